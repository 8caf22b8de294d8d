//! Layers made to hurt whoever reads them: nothing in them runs, leads out, or costs without bound.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::world::Overlay;
use landbox_tests::{Place, worlds};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

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
    [user_kernel, user_fuse, root_kernel]
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

    [user_kernel, user_fuse, root_kernel]
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

    [user_kernel, user_fuse]
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

    [user_kernel, user_fuse, root_kernel]
    fn what_is_no_file_is_named_and_never_opened(world) {
        let place = Place::new(world);
        // fuse-overlayfs leaves room for the mark of a deletion.
        let longest = if world.overlay == Overlay::Kernel { 255 } else { 251 };
        let script = format!(
            "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; \
             truncate -s 1T huge; head -c 9000 /dev/zero | tr '\\0' a > text; truncate -s 300G text; truncate -s 1G README.md; \
             mkdir locked; echo x > locked/x; chmod 000 locked; echo y > shut; chmod 000 shut; \
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
            for path in ["locked", "shut"] {
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

    [user_kernel]
    fn many_objects_are_counted_in_bounded_memory(world) {
        let place = Place::new(world);
        let script = format!(
            "import os\nos.mkdir('many')\nfor i in range({MANY}): os.close(os.open(f'many/{{i}}', os.O_CREAT | os.O_WRONLY, 0o644))\n"
        );
        place.session(["--name", "s"], ["python3", "-c", &script]).limit(300).output().ok();
        let mut run = place.landbox(["land", "s"]);
        // Of address space, all that is mapped counted, the program itself too: about 3 KiB are used for an object.
        let out = run.prefix("ulimit -v 300000").limit(300).output().ok();
        let text = out.text();
        assert!(text.contains(&format!("{MANY} files")), "{}", &text[..text.len().min(2000)]);
        assert!(text.len() < 20_000, "{}", text.len());
    }
}

fn world_is_root(place: &Place) -> bool {
    place.world.ids().0 == 0
}
