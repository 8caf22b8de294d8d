//! Layers made to hurt whoever reads them: nothing in them runs, leads out, or costs without bound.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::world::Overlay;
use landbox_tests::{Place, World, worlds};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// Every name, with its type, and the content of every file.
const LIST: &str = "find . -printf '%P %y %#m %l\\n' | sort; find . -type f -exec cat {} + | sort";

/// Files of the owner's beside those that every project has.
const OWNERS: [&str; 4] = ["d/keep", "d/x", "e/f/keep", "g/keep"];
/// Names that mean "deleted" to one back end or the other, as files, folders and devices.
const DEVICES: &str = "for n in .wh.README.md d/.wh..wh..opq d/.wh..opq d/.wh.keep new/.wh.n; do \
                       echo x > $n; mkdir -p $n.d; done; mknod d/null c 0 0; mknod d/keep c 0 0;";
/// A folder that is really replaced, marked as if it were not.
const REPLACE: &str = "echo z > d/z; rm -r g; mkdir g; setfattr -n user.overlay.opaque -v n g; \
                       setfattr -x user.overlay.opaque g; rm -f g/.wh..wh..opq";

fn marked(world: World) -> Place {
    let place = Place::new(world);
    place.write(place.outside.join("secret"), "secret\n");
    OWNERS.iter().for_each(|file| place.write(place.project.join(file), "owner's\n"));
    place
}

/// Sets every mark of some name spaces on files and folders, old and new. Names those that fuse-overlayfs would obey.
fn forge(place: &Place, spaces: &str) -> String {
    let out = place.outside.display();
    format!(
        "mkdir new; : > new/n; for ns in {spaces}; do \
         for m in opaque=y opaque=x redirect=/e redirect={out} metacopy= whiteout=y origin=d/x protattr=i upper={out} override_stat=0:0:4755; do \
         for f in d d/x e/f new new/n README.md src .; do setfattr -n $ns.${{m%%=*}} -v \"${{m#*=}}\" $f && \
         case $ns in user.fuse*|user.containers) echo \"forged $ns.$m\";; esac; done; done; done"
    )
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|e| format!("{e}"))
}

/// Objects in one folder; a task may make a million, which takes the same steps fifty times as often.
const MANY: usize = 20_000;

fn change<'a>(card: &'a Value, path: &str) -> &'a Value {
    let all = card["changes"].as_array().unwrap();
    all.iter().find(|c| c["path"] == path).unwrap_or_else(|| panic!("no {path} in {card:#}"))
}

/// Every command that reads a layer, with whatever it says.
fn look_at_all(place: &Place) {
    for args in [
        &["diff", "s"][..],
        &["diff", "s", "--json", "--with-ignored"],
        &["land", "s"],
        &["land", "s", "--patch", "/dev/null"],
        &["show", "s"],
        &["checkpoint", "s"],
        &["gc", "--dry-run"],
    ] {
        let out = place.landbox(args).limit(300).output();
        assert!(out.code() < 7, "{args:?}: {} {}", out.code(), out.errors());
    }
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn no_configuration_attribute_or_hook_of_a_session_runs(world) {
        let place = Place::new(world);
        let marker = place.outside.join("ran");
        let git = |place: &Place| {
            let script = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm base";
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(&place.project).env("HOME", &place.home);
            if landbox_tests::world::is_root() {
                let (uid, gid) = place.world.ids();
                std::os::unix::process::CommandExt::uid(&mut command, uid);
                std::os::unix::process::CommandExt::gid(&mut command, gid);
            }
            assert!(command.status().unwrap().success());
        };
        git(&place);
        let run = format!("touch {}", marker.display());
        let script = format!(
            "cat >> .git/config <<X\n[core]\n\tfsmonitor = {run}\n\thooksPath = hooks\n\tsshCommand = {run}\n\tpager = {run}\n\
             [diff \"x\"]\n\tcommand = {run}\n\ttextconv = {run}\n[filter \"x\"]\n\tclean = {run}\n\tsmudge = {run}\n\trequired\n\
             [merge \"x\"]\n\tdriver = {run}\n[include]\n\tpath = ../evil\nX\n\
             printf '* filter=x diff=x merge=x\\n' > .gitattributes; mkdir -p hooks .git/hooks sub/.git/hooks; \
             for h in pre-commit post-checkout post-merge post-index-change reference-transaction post-commit; do \
             for d in hooks .git/hooks sub/.git/hooks; do printf '#!/bin/sh\\n{run}\\n' > $d/$h; chmod +x $d/$h; done; done; \
             cp .git/config sub/.git/config; cp .git/HEAD sub/.git/HEAD; cp .git/config evil; \
             echo two >> README.md; echo x > src/main.py; rm src/deep/er/file.txt"
        );
        place.session(["--name", "s"], ["sh", "-c", &script]).output().ok();
        // Merged too: the owner's edit and the session's.
        place.write(place.project.join("README.md"), "# Project of the owner\n\nOne line.\n");
        look_at_all(&place);
        place.landbox(["land", "s", "--apply", "--yes"]).risks_accepted().output().ok();
        assert!(!marker.exists(), "something ran");
        assert_eq!(read(place.project.join("src/main.py")), "x\n");
        assert!(!read(place.project.join(".git/config")).contains("fsmonitor"));
        assert!(!place.project.join(".git/hooks/pre-commit").exists() && !place.project.join("sub/.git").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn links_out_of_the_project_are_named_at_every_level_and_never_followed(world) {
        let place = Place::new(world);
        place.write(place.outside.join("secret"), "secret\n");
        let out = place.outside.display();
        let script = format!(
            "ln -s {out}/secret a; ln -s {out} d; mkdir -p x/y; ln -s ../../../../outside/secret x/y/l; \
             rm -r src; ln -s {out} src; ln -s / root; ln -s /proc/self/root/etc/passwd p; ln -s . loop"
        );
        place.session(["--name", "s"], ["sh", "-c", &script]).output().ok();
        look_at_all(&place);
        let card = place.json(["diff"]);
        for path in ["a", "d", "x/y/l", "src", "root", "p"] {
            let risks = change(&card, path)["risks"].clone();
            assert!(risks.as_array().unwrap().iter().any(|r| r["kind"] == "outside-link"), "{path}: {risks}");
        }
        assert_eq!(change(&card, "loop")["risks"], serde_json::json!([]));
        assert!(!card.to_string().contains("secret\\n"));
        place.landbox(["land", "s", "--apply", "--yes"]).risks_accepted().output().ok();
        assert_eq!(read(place.outside.join("secret")), "secret\n");
        assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 2);
        assert_eq!(fs::read_link(place.project.join("src")).unwrap(), place.outside);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn links_exchanged_for_folders_while_a_landing_runs_lead_nowhere(world) {
        let place = Place::new(world);
        let out = place.outside.display();
        // The session itself swaps a folder and a link for as long as it runs.
        let script = format!(
            "mkdir d; for i in 1 2 3 4 5 6 7 8 9; do echo $i > d/$i; done; ln -s {out} e; echo ready; \
             while :; do mv d t; mv e d; mv d e; mv t d; done"
        );
        let mut live = place.session(["--name", "s"], ["timeout", "60", "sh", "-c", &script]).limit(120).start();
        live.expect("ready");
        for _ in 0..12 {
            let out = place.landbox(["land", "s", "--apply", "--yes"]).risks_accepted().output();
            assert!([0, 3, 4, 6].contains(&out.code()), "{}: {}", out.code(), out.errors());
            assert_eq!(fs::read_dir(&place.outside).unwrap().count(), 1);
        }
        rustix::process::kill_process(rustix::process::Pid::from_raw(live.pid()).unwrap(), rustix::process::Signal::TERM).unwrap();
        live.wait();
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_is_no_file_is_named_and_never_opened(world) {
        let place = Place::new(world);
        // fuse-overlayfs leaves room for the mark of a deletion.
        let longest = if world.overlay == Overlay::Kernel { 255 } else { 251 };
        let script = format!(
            "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; \
             truncate -s 1T huge; head -c 9000 /dev/zero | tr '\\0' a > text; truncate -s 300G text; truncate -s 1G README.md; \
             mkdir locked; echo x > locked/x; chmod 000 locked; echo y > shut; chmod 000 shut; \
             mkdir half; echo x > half/x; chmod 444 half; \
             n=$(printf '%0{longest}d' 7); echo long > $n; \
             d=.; for i in $(seq 400); do d=$d/dddddddd; done; mkdir -p $d; echo deep > $d/f; echo a > a"
        );
        place.session(["--name", "s"], ["sh", "-c", &script]).output().ok();
        look_at_all(&place);
        let card = place.json(["diff"]);
        for path in ["pipe", "sock"] {
            assert_eq!(change(&card, path)["landable"], false, "{path}");
        }
        for (path, size) in [("huge", 1 << 40), ("text", 300 << 30), ("README.md", 1u64 << 30)] {
            let huge = change(&card, path);
            assert_eq!((&huge["new_size"], &huge["landable"]), (&Value::from(size), &Value::Bool(true)), "{path}");
            assert!(huge["reason"].as_str().unwrap().contains("not in the patch"), "{huge}");
            assert!(huge["risks"].as_array().unwrap().iter().any(|r| r["kind"] == "large"), "{huge}");
        }
        if !world_is_root(&place) {
            for path in ["locked", "half", "shut"] {
                assert_eq!(change(&card, path)["landable"], false, "{path}");
            }
        }
        place.landbox(["land", "s", "--apply", "--yes"]).risks_accepted().limit(300).output().ok();
        assert_eq!(read(place.project.join("a")), "a\n");
        assert_eq!(read(place.project.join(format!("{:0longest$}", 7))), "long\n");
        assert_eq!(fs::metadata(place.project.join("huge")).unwrap().len(), 1 << 40);
        let text = fs::File::open(place.project.join("text")).unwrap();
        let mut start = String::new();
        text.take(9000).read_to_string(&mut start).unwrap();
        assert_eq!(start, "a".repeat(9000));
        assert!(!place.project.join("pipe").exists() && !place.project.join("sock").exists());
    }

    [user_kernel, user_fuse]
    fn what_cannot_be_looked_into_on_either_side_holds_up_nothing_else(world) {
        let place = Place::new(world);
        let sealed = place.project.join("sealed");
        place.write(sealed.join("x"), "the owner's\n");
        let mode = |mode| fs::set_permissions(&sealed, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        for sealing in [0o444, 0o111, 0o000] {
            mode(sealing);
            let script = "chmod 755 sealed; echo n > sealed/n; echo more >> sealed/x; echo a > a";
            place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
            look_at_all(&place);
            let out = place.landbox(["land", "s", "--apply", "--yes", "--", "a"]).output().ok();
            assert_eq!(read(place.project.join("a")), "a\n", "{}", out.errors());
            let out = place.landbox(["land", "s", "--apply", "--yes"]).output();
            mode(0o755);
            if out.code() != 0 {
                assert_eq!(out.code(), 3, "{sealing:o}: {}", out.errors());
                assert!(out.errors().contains("sealed"), "{sealing:o}: {}", out.errors());
                assert_eq!(read(sealed.join("x")), "the owner's\n");
                assert!(!sealed.join("n").exists());
            }
            place.landbox(["discard", "s", "--yes"]).output().ok();
            place.write(sealed.join("x"), "the owner's\n");
            let _ = (fs::remove_file(sealed.join("n")), fs::remove_file(place.project.join("a")));
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_a_session_saw_is_what_lands_whatever_marks_it_forges(world) {
        let place = marked(world);
        // fuse-overlayfs refuses its own names and attributes; those of the kernel it takes for its own at the next start.
        let (spaces, make) = match world.overlay {
            Overlay::Kernel => ("user.overlay user.fuseoverlayfs user.containers trusted.overlay user.overlay.overlay", DEVICES),
            Overlay::Fuse => ("user.fuseoverlayfs user.containers trusted.overlay", ""),
        };
        let script = format!("{{ {}; {make} {REPLACE}; }} 2>/dev/null; echo ---; {LIST}", forge(&place, spaces));
        let seen = place.session(["--name", "s"], ["sh", "-c", &script]).output().ok().text();
        let (forged, seen) = seen.split_once("---\n").unwrap();
        if world.overlay == Overlay::Fuse {
            assert_eq!(forged, "", "fuse-overlayfs keeps its own attributes from the task");
        }
        assert!(seen.contains("d/z") && seen.contains("d/keep") && !seen.contains("g/keep"), "{seen}");
        look_at_all(&place);
        assert_eq!(place.landbox(["resume", "s", "--", "sh", "-c", LIST]).output().ok().text(), seen);
        place.landbox(["land", "s", "--apply", "--yes"]).risks_accepted().output().ok();
        let landed = Command::new("sh").args(["-c", LIST]).current_dir(&place.project).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&landed.stdout), seen);
        assert_eq!(read(place.outside.join("secret")), "secret\n");
    }

    // Whatever fuse-overlayfs makes of these itself.
    [user_fuse, root_fuse]
    fn a_forged_mark_takes_nothing_away_that_the_card_does_not_list(world) {
        let place = marked(world);
        let script = format!(
            "{{ {}; {DEVICES} {REPLACE}; mkdir d/.wh.x d/.wh.opq e/.wh..wh..opq e/f/.wh..wh..opq; mv new d/.wh.z; }} 2>/dev/null; true",
            forge(&place, "user.overlay user.fuseoverlayfs trusted.overlay")
        );
        place.session(["--name", "s"], ["sh", "-c", &script]).output().ok();
        place.landbox(["resume", "s", "--", "sh", "-c", "echo more > d/more; echo more > e/f/more"]).output().ok();
        look_at_all(&place);
        let card = place.json(["diff"]);
        let gone = |path: &str| !place.project.join(path).exists();
        let listed = |path: &str| {
            let all = card["changes"].as_array().unwrap();
            all.iter().any(|c| c["path"] == path && c["kind"] == "deleted" && c["landable"] == true)
        };
        let before: Vec<&str> = OWNERS.into_iter().filter(|path| listed(path)).collect();
        assert!(before.contains(&"g/keep"), "{card:#}");
        place.landbox(["land", "s", "--apply", "--yes"]).risks_accepted().output().ok();
        let after: Vec<&str> = OWNERS.into_iter().filter(|path| gone(path)).collect();
        assert_eq!(after, before);
        assert_eq!(read(place.project.join("e/f/more")), "more\n");
        assert_eq!(read(place.outside.join("secret")), "secret\n");
    }

    [user_kernel]
    fn many_objects_are_counted_in_bounded_memory(world) {
        let place = Place::new(world);
        let script = format!(
            "import os\nos.mkdir('many')\nfor i in range({MANY}): os.close(os.open(f'many/{{i}}', os.O_CREAT | os.O_WRONLY, 0o644))\n"
        );
        place.session(["--name", "s"], ["python3", "-c", &script]).limit(300).output().ok();
        let mut run = place.landbox(["land", "s"]);
        // Of address space, all that is mapped counted, the program itself too: about 1 KiB is used for an object.
        let out = run.prefix("ulimit -v 260000").limit(300).output().ok();
        let text = out.text();
        assert!(text.contains(&format!("{MANY} files")), "{}", &text[..text.len().min(2000)]);
        assert!(text.len() < 20_000, "{}", text.len());
    }
}

fn world_is_root(place: &Place) -> bool {
    place.world.ids().0 == 0
}
