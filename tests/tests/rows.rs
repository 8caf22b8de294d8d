//! Every kind of change that a landing knows, made in real sessions: each world gives the same changeset and the same patch,
//! and the patch, applied by git to a copy of the base, gives what our own landing gives.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::git::in_a_patch;
use landbox_tests::{Place, World, worlds};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the owner has.
const BASE: &str = r#"
umask 022; rm -rf ./* .[a-z]*
mkdir -p dir/sub emptied removed/deep empty dir2file dir2link replaced modedir
echo a > dir/a; echo b > dir/sub/b; echo e > emptied/e; echo r > removed/r; echo d > removed/deep/d
echo x > dir2file/x; echo y > dir2link/y; echo 1 > replaced/one; echo 2 > replaced/two
for f in modified gone mode both file2dir file2link untouched touched; do echo $f > $f; done
echo 'moved text' > moved; printf '#!/bin/sh\n' > script; chmod 755 script; chmod 600 touched
printf 'no end' > noend; printf 'line\r\n' > crlf; : > empty.file; : > empty.gone
printf '\0\1\2' > binary; printf '\0\3' > binary.gone
ln -s modified retargeted; ln -s modified link.gone; ln -s modified link2file; ln -s dir link2dir
mkdir shared; chmod 2775 shared; echo s > shared/s; echo p > private; chmod 600 private
echo z > $'\xff\xfe'; echo q > 'q"uo te'
"#;

/// What the session makes of it: each row of the list, in its order.
const TASK: &str = r#"
set -e; umask 022
echo new > added; mkdir folder; echo in > folder/in
echo more >> modified
rm gone
mv moved renamed
chmod 755 mode
echo more >> both; chmod 755 both
ln -s script link.added; ln -sfn script retargeted; rm link.gone
rm file2dir; mkdir file2dir; echo in > file2dir/in
rm file2link; ln -s script file2link
rm -r dir2file; echo file > dir2file
rm -r dir2link; ln -s script dir2link
rm link2file; echo file > link2file
rm link2dir; mkdir link2dir; echo in > link2dir/in
rm -r replaced; mkdir replaced; echo 2 > replaced/two; echo 3 > replaced/three
rm emptied/e
mkdir empty.added; mkdir -m 700 private.added
rm -r removed; rmdir empty
printf '\0\1\3' > binary; printf '\0\7' > binary.added; rm binary.gone
: > empty.new; echo filled > empty.file; rm empty.gone
printf 'no end, longer' > noend; printf 'no end either' > noend.new
printf 'line\r\nnext\r\n' > crlf; printf 'new\r\n' > crlf.new
echo spaced > 'sp ace'; echo 2 > $'tab\tname'; echo 3 > $'nl\nname'; echo 4 > é; echo 5 > 'back\slash'; echo more >> 'q"uo te'
echo 6 > $'\xff\xfd.new'; rm $'\xff\xfe'
(umask 077; echo k > mode600); printf '#!/bin/sh\n' > mode755; chmod 755 mode755
echo more >> shared/s; mkdir shared/t; echo t > shared/t/t; echo more >> private; chmod 750 modedir
chmod 640 untouched; chmod 644 untouched; touch touched; : >> script; touch -d 2001-01-01 dir/sub/b
mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
"#;

const ROWS: &str = include_str!("rows.txt");
/// Of the patch: its bytes, and so the names of all objects in it, do not depend on the world.
const PATCH: &str = "6be96ac896d3e9e09f8477b69efafc2508974b9f19247f60fa9c89f8876cc0f6";

fn as_owner(place: &Place, script: &str) {
    let (uid, gid) = place.world.ids();
    let mut bash = Command::new("bash");
    bash.args(["-ec", script]).current_dir(&place.project).uid(uid).gid(gid);
    assert!(bash.status().unwrap().success());
}

/// One change a line, with all that is not as usual.
fn lines(card: &Value) -> String {
    let text = |value: &Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => "-".to_owned(),
        None => value.to_string(),
    };
    let mut lines = String::new();
    for change in card["changes"].as_array().unwrap() {
        let [kind, old, new, path] =
            ["kind", "old_type", "new_type", "path"].map(|key| text(&change[key]));
        let [was, is] = ["old_mode", "new_mode"].map(|key| text(&change[key]));
        lines += &format!("{kind} {old}:{was} -> {new}:{is} {}", path.replace('\n', "\\n"));
        for key in ["old_path", "old_target", "new_target"] {
            if !change[key].is_null() {
                lines += &format!(" {key}={}", text(&change[key]));
            }
        }
        let usual =
            [("state", "clean"), ("group", "project"), ("landable", "true"), ("in_patch", "true")];
        for (key, usual) in usual {
            if text(&change[key]) != usual {
                lines += &format!(" {key}={}", text(&change[key]));
            }
        }
        lines.push('\n');
    }
    lines
}

fn every_row(world: World) {
    let place = Place::new(world);
    as_owner(&place, BASE);
    let copy = place.outside.join("copy");
    as_owner(&place, &format!("cp -a . {}", copy.display()));
    let before = in_a_patch(&place.project, 0o100);
    place.session::<&str, _>([], ["bash", "-c", TASK]).output().ok();
    assert_eq!(lines(&place.json(["diff"])), ROWS, "{world:?}");

    let patch = place.outside.join("rows.patch");
    let patch = patch.to_str().unwrap();
    place.landbox(["land", "--patch", patch]).output().ok();
    assert_eq!(in_a_patch(&place.project, 0o100), before, "looking changed something");
    let digest: String =
        Sha256::digest(fs::read(patch).unwrap()).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(digest, PATCH, "{world:?}: {}", fs::read_to_string(patch).unwrap_or_default());
    place.git_in(&copy, &["apply", "--check", patch]);
    place.git_in(&copy, &["apply", patch]);

    place.landbox(["land", "--apply", "--yes"]).risks_accepted().output().ok();
    assert_eq!(in_a_patch(&copy, 0o100), in_a_patch(&place.project, 0o100), "{world:?}");
    // And what a patch can't say.
    let mode = |path: &str| fs::metadata(place.project.join(path)).unwrap().mode() & 0o7777;
    for (path, is) in [
        ("empty.added", 0o755),
        ("private.added", 0o700),
        ("emptied", 0o755),
        ("modedir", 0o750),
        ("mode600", 0o600),
        ("mode755", 0o755),
        ("shared/t", 0o2755),
        ("private", 0o600),
        ("touched", 0o600),
    ] {
        assert_eq!(format!("{:o}", mode(path)), format!("{is:o}"), "{world:?}: {path}");
    }
    for gone in ["empty", "removed", "fifo", "socket"] {
        assert!(!place.project.join(gone).exists(), "{world:?}: {gone}");
    }
    let left = lines(&place.json(["diff"]));
    assert!(left.lines().all(|line| line.starts_with("special ")), "{left}");
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn every_row_gives_the_same_changeset_patch_and_landing(world) {
        every_row(world);
    }
}
