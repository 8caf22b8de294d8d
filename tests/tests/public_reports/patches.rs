//! Reviews and patches: complete, exact, and harmless to whoever reads them.

use super::{change, copy_of, git, harmless_to_a_terminal, host, land, mode, patch, read};
use landbox_tests::git::in_a_patch;
use landbox_tests::snapshot::Snapshot;
use landbox_tests::{Place, world, worlds};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The patch applies to a copy of the base and gives what landing gives.
#[track_caller]
fn patch_and_landing_agree(place: &Place, copy: &Path) {
    let patch = patch(place);
    let patch = patch.to_str().unwrap();
    git(place, copy, &["apply", "--check", patch]);
    git(place, copy, &["apply", patch]);
    land(place);
    assert_eq!(in_a_patch(copy, 0o111), in_a_patch(&place.project, 0o111));
}

const NAMES: &str = "echo 1 > 'sp ace.txt'; echo 2 > $'tab\\tname'; echo 3 > $'nl\\nname'; echo 4 > é.txt; \
    echo 5 > $'\\xff\\xfe.bin'; echo 6 > 'q\"q'; mkdir b; echo 7 > 'b/ c'; echo 8 > ./-rf; echo 9 > ' lead'; \
    mkdir 'a b'; echo 10 > 'a b/b'; echo 11 > 'back\\slash'; echo 12 > $'esc\\e[2Jname'";

worlds! {
    // A patch without binary bodies is refused whole.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn binary_files_are_whole_in_the_patch_and_only_counted_on_the_card(world) {
        let place = Place::new(world);
        place.write(place.project.join("old.bin"), [0, 1, 2, 3]);
        place.write(place.project.join("gone.bin"), [0, 9]);
        let copy = copy_of(&place, "copy");
        let script = r#"printf "\0\1\2" > logo.bin; printf "\0\7\7" >> old.bin; rm gone.bin; echo hi >> README.md; : > empty.bin"#;
        place.sh(script).output().ok();
        let shown = place.landbox(["diff"]).output().ok().text();
        harmless_to_a_terminal(&shown);
        assert!(shown.contains("binary 3 bytes") && shown.contains("binary 4 -> 7 bytes"), "{shown}");
        assert!(read(patch(&place)).contains("\nGIT binary patch\n"));
        patch_and_landing_agree(&place, &copy);
        assert_eq!(fs::read(place.project.join("old.bin")).unwrap(), [0, 1, 2, 3, 0, 7, 7]);
    }

    // A header made of raw names is misread.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn every_name_is_the_same_in_the_patch_the_document_and_the_project(world) {
        let place = Place::new(world);
        let copy = copy_of(&place, "copy");
        place.session::<&str, _>([], ["bash", "-c", NAMES]).output().ok();
        let card = place.json(["diff"]);
        let paths: Vec<&str> =
            card["changes"].as_array().unwrap().iter().map(|c| c["path"].as_str().unwrap()).collect();
        assert_eq!(paths.len(), 12, "{paths:?}");
        for path in ["nl\nname", "é.txt", "\\xff\\xfe.bin", "q\"q", "b/ c", "-rf", " lead", "a b/b", "back\\\\slash"] {
            assert!(paths.contains(&path), "{path:?} {paths:?}");
        }
        assert_eq!(change(&card, "\\xff\\xfe.bin")["path_b64"], "//4uYmlu");
        harmless_to_a_terminal(&place.landbox(["diff"]).output().ok().text());
        patch_and_landing_agree(&place, &copy);
    }

    // The index does not say what is executable where git was told not to look.
    [user_kernel]
    fn modes_land_where_git_does_not_track_them_and_set_id_bits_never_do_unseen(world) {
        let place = Place::new(world);
        for args in [&["init", "-q", "."][..], &["config", "core.fileMode", "false"], &["add", "."], &["commit", "-qm", "i"]] {
            git(&place, &place.project, args);
        }
        place.sh("chmod 755 README.md; echo '#!/bin/sh' > s.sh; chmod 4755 s.sh").output().ok();
        let card = place.json(["diff"]);
        assert_eq!(change(&card, "README.md")["kind"], "mode");
        let set_id = change(&card, "s.sh");
        assert_eq!((&set_id["landable"], &set_id["new_mode"]), (&Value::from(false), &Value::from("4755")), "{set_id}");
        land(&place);
        assert_eq!(mode(place.project.join("README.md")), 0o755);
        assert!(!place.project.join("s.sh").exists());
    }

    // Links that were left out of the changes, or followed.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn links_are_changes_of_their_own_and_never_followed(world) {
        let place = Place::new(world);
        place.write(place.project.join("somedir/kept"), "kept\n");
        place.symlink("v1", place.project.join("current"));
        place.symlink("somedir", place.project.join("link2dir"));
        let copy = copy_of(&place, "copy");
        let script = "echo a > a; ln -s a b; ln -sfn v2 current; ln -s /nope dangling; ln -s $'x\\nname' odd; \
                      rm link2dir && mkdir link2dir && echo in > link2dir/in";
        place.session::<&str, _>([], ["bash", "-c", script]).output().ok();
        let card = place.json(["diff"]);
        for (path, kind, target) in [
            ("b", "added", "a"), ("dangling", "added", "/nope"), ("odd", "added", "x\nname"), ("current", "symlink", "v2"),
        ] {
            let change = change(&card, path);
            assert_eq!((&change["kind"], &change["new_target"]), (&Value::from(kind), &Value::from(target)));
        }
        let replaced = change(&card, "link2dir");
        assert_eq!((&replaced["old_type"], &replaced["new_type"]), (&Value::from("symlink"), &Value::from("dir")));
        patch_and_landing_agree(&place, &copy);
        assert_eq!(fs::read_dir(place.project.join("somedir")).unwrap().count(), 1);
    }

    // The base is what the session saw: not the last commit.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_owner_s_unsaved_work_is_the_base_and_the_index_stays(world) {
        let place = Place::new(world);
        for (name, text) in [(".gitignore", ".env\n"), ("app.py", "1\n")] {
            place.write(place.project.join(name), text);
        }
        for args in [&["init", "-q", "."][..], &["add", "."], &["commit", "-qm", "i"]] {
            git(&place, &place.project, args);
        }
        place.write(place.project.join("app.py"), "1\nowner\n");
        place.write(place.project.join("staged.py"), "staged\n");
        git(&place, &place.project, &["add", "staged.py"]);
        place.write(place.project.join("test.txt"), "untracked\n");
        place.write(place.project.join(".env"), "K=1\n");
        let git_folder = place.project.join(".git");
        let look = || Snapshot::take(&[&git_folder], &[]);
        let before = look();
        place.sh("echo more >> test.txt; echo agent >> app.py; echo K=2 >> .env").output().ok();
        let text = read(patch(&place));
        let changed: Vec<&str> = text
            .lines()
            .filter(|l| (l.starts_with('+') && !l.starts_with("+++")) || (l.starts_with('-') && !l.starts_with("---")))
            .collect();
        assert_eq!(changed, ["+agent", "+more"], "{text}");
        land(&place);
        assert_eq!(read(place.project.join("app.py")), "1\nowner\nagent\n");
        assert_eq!(read(place.project.join("test.txt")), "untracked\nmore\n");
        assert_eq!(read(place.project.join(".env")), "K=1\n");
        place.landbox(["land", "--apply", "--yes", "--with-ignored"]).risks_accepted().output().ok();
        assert_eq!(read(place.project.join(".env")), "K=1\nK=2\n");
        before.same_as(&look());
    }

    // Git would turn line ends, encodings and keywords; and where its index is broken, it would do nothing at all.
    [user_kernel, user_fuse, root_kernel]
    fn no_setting_of_the_owner_s_git_changes_a_byte_and_its_index_is_not_needed(world) {
        let script = "printf 'a\\r\\nb\\n$Id$\\n' > text.txt; printf 'x\\n' >> README.md; printf '\\0\\r\\n' > data.bin; \
                      printf 'caf\\303\\251\\n' > wide.txt; chmod +x src/main.py; ln -s text.txt alias";
        let made = |settings: &dyn Fn(&Place)| {
            let place = Place::new(world);
            settings(&place);
            place.sh(script).output().ok();
            let text = fs::read(patch(&place)).unwrap();
            land(&place);
            let files = ["text.txt", "README.md", "data.bin", "wide.txt"].map(|name| fs::read(place.project.join(name)).unwrap());
            (text, files, mode(place.project.join("src/main.py")))
        };
        let plain = made(&|_| {});
        assert_eq!(plain.1[0], b"a\r\nb\n$Id$\n");
        let configured = made(&|place| {
            place.write(
                place.project.join(".gitattributes"),
                "* text=auto eol=crlf ident\nwide.txt working-tree-encoding=UTF-16\n*.bin text diff=x\n*.py -diff binary\n",
            );
            for args in [
                &["init", "-q", "."][..],
                &["config", "core.autocrlf", "true"],
                &["config", "core.fileMode", "false"],
                &["config", "core.symlinks", "false"],
                &["config", "core.abbrev", "7"],
                &["config", "diff.noprefix", "true"],
                &["config", "diff.mnemonicPrefix", "true"],
                &["config", "diff.external", "false"],
                &["config", "core.quotePath", "false"],
                &["config", "apply.whitespace", "fix"],
            ] {
                git(place, &place.project, args);
            }
        });
        assert!(configured == plain, "{} {}", String::from_utf8_lossy(&configured.0), String::from_utf8_lossy(&plain.0));
        let broken = made(&|place| {
            git(place, &place.project, &["init", "-q", "."]);
            place.write(place.project.join(".git/index"), "no index");
        });
        assert!(broken == plain);
    }

    // A preview that opens what a link names shows the owner's secrets, or never ends.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_review_opens_nothing_a_session_left_and_prints_nothing_it_wrote_raw(world) {
        let place = Place::new(world);
        let script = "ln -s ~/.ssh/id_ed25519 notes.txt; rm README.md; ln -s /etc/passwd README.md; \
                      ln -s /proc/self/environ e; mkfifo pipe; ln -s /dev/zero z; \
                      python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'; \
                      printf 'evil\\033]52;c;x\\007\\033[2J\\r\\nModified: nothing' > x";
        place.sh(script).output().ok();
        let start = Instant::now();
        let shown = place.landbox(["land"]).limit(20).output().text();
        harmless_to_a_terminal(&shown);
        let text = read(patch(&place));
        assert!(start.elapsed() < Duration::from_secs(10));
        for secret in ["PRIVATE", "root:", "PATH="] {
            assert!(!shown.contains(secret) && !text.contains(secret), "{shown}\n{text}");
        }
        assert!(text.contains("new file mode 120000"), "{text}");
        let card = place.json(["diff"]);
        for path in ["pipe", "s"] {
            assert_eq!(change(&card, path)["landable"], false);
            assert!(change(&card, path)["reason"].is_string());
        }
        land(&place);
        assert_eq!(fs::read_link(place.project.join("README.md")).unwrap(), Path::new("/etc/passwd"));
        assert!(!place.project.join("pipe").exists() && !place.project.join("s").exists());
    }

    // A patch is written beside its name and renamed over it: that must not take a device's place.
    [user_kernel, root_kernel]
    fn a_patch_goes_through_devices_and_pipes_and_follows_links_to_files(world) {
        let place = Place::new(world);
        place.sh("echo more >> README.md").output().ok();
        let text = read(patch(&place));
        let null = fs::metadata("/dev/null").unwrap().ino();
        for file in ["-", "/dev/stdout", "/dev/fd/1"] {
            // A pipe of the user's own, or its name could not be opened.
            let line = format!("{} land --patch {file} | cat", world::bin("landbox").display());
            assert_eq!(host(&place, "/bin/sh", &["-c", &line], &place.project).output().ok().text(), text, "{file}");
        }
        place.landbox(["land", "--patch", "/dev/null"]).output().ok();
        assert_eq!(fs::metadata("/dev/null").unwrap().ino(), null);
        let [file, link] = ["real.patch", "link.patch"].map(|name| place.outside.join(name));
        place.write(&file, "old\n");
        place.symlink("real.patch", &link);
        place.landbox(["land", "--patch", link.to_str().unwrap()]).prefix("umask 077").output().ok();
        assert_eq!((read(&file), mode(&file)), (text, 0o600));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
