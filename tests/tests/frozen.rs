//! What was settled when a session was made holds at every resumption, whatever the configuration says by then.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::net::Outer;
use landbox_tests::world::Overlay;
use landbox_tests::{Place, worlds};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// What a session can tell of its rules, a line each.
const LOOK: &str = r#"
    echo "env $MODEL $ADDED"
    echo "hidden $(cat .env 2>/dev/null) $(cat notes)"
    if echo x >> src/main.py; then echo "source open"; else echo "source shut"; fi 2>/dev/null
    if echo x >> README.md; then echo "readme open"; else echo "readme shut"; fi 2>/dev/null
    echo "token $(cat ~/.agent/token)"; echo "$1" > ~/.agent/token; echo "$1" > ~/.other/token
    echo "network $(cut -s -d: -f1 /proc/net/dev | tr -d ' \n')"
"#;

fn bots(place: &Place) -> PathBuf {
    place.home.join(".config/landbox/bots.json")
}

/// What a session says that was made by the bot, and what its owner finds afterwards.
fn said(model: &str, token: &str) -> String {
    format!("env {model} \nhidden  notes\nsource shut\nreadme open\ntoken {token}\nnetwork lo\n")
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_resumed_session_keeps_the_rules_it_was_made_with(world) {
        let place = Place::new(world);
        for (file, content) in [("project/.env", "SECRET\n"), ("project/notes", "notes\n"), (".agent/token", "first\n"), (".other/token", "kept\n")] {
            place.write(place.home.join(file), content);
        }
        let bot = json!([{
            "name": "b", "env": {"MODEL": "small"}, "sandboxHidePaths": [".env"], "sandboxReadonlyPaths": ["src"],
            "authPaths": ["~/.agent"], "sandboxNetwork": false,
        }]);
        place.write(bots(&place), bot.to_string());
        let look = |word: &str| ["sh", "-c", LOOK, "sh", word].map(str::to_owned);
        let read = |name: &str| fs::read_to_string(place.home.join(name)).unwrap();
        let out = place.session(["--bot", "b", "--name", "s"], look("second")).output().ok();
        assert_eq!(out.text(), said("small", "first"), "{}", out.errors());
        let policy = place.json(["show", "s"])["boundary"]["policy_digest"].clone();

        // Everything the other way round; broken; gone.
        let other = json!([{
            "name": "b", "env": {"MODEL": "large", "ADDED": "x"}, "sandboxHidePaths": ["notes"],
            "sandboxReadonlyPaths": ["README.md"], "authPaths": ["~/.other"], "sandbox": false,
        }]);
        let mut token = "second".to_owned();
        for (next, content) in [("third", other.to_string()), ("fourth", "[{".to_owned()), ("fifth", String::new())] {
            if content.is_empty() {
                fs::remove_file(bots(&place)).unwrap();
            } else {
                place.write(bots(&place), content);
            }
            let mut run = place.landbox(["resume", "s", "--"]);
            let out = run.args(look(next)).output().ok();
            assert_eq!(out.text(), said("small", &token), "{}", out.errors());
            assert_eq!((read(".agent/token"), read(".other/token")), (format!("{next}\n"), "kept\n".to_owned()));
            assert_eq!(place.json(["show", "s"])["boundary"]["policy_digest"], policy);
            next.clone_into(&mut token);
        }
        assert_eq!(place.changes(), [("README.md".to_owned(), "modified".to_owned())]);
    }

    [user_kernel, root_fuse]
    fn a_session_whose_snapshot_was_changed_is_refused_and_its_layers_are_kept(world) {
        let place = Place::new(world);
        place.session(["--name", "s", "--network", "off", "--hide", ".env"], ["sh", "-c", "echo new > new"]).output().ok();
        let id = place.json(["show", "s"])["id"].as_str().unwrap().to_owned();
        let path = place.sessions()[0].join("snapshot.json");
        let text = fs::read_to_string(&path).unwrap();
        let freeze = |text: &str| {
            fs::remove_file(&path).unwrap();
            place.write(&path, text);
        };
        let other = |at: &PathBuf| format!("\"target\": \"{}\"", at.display());
        let (project, outside) = (other(&place.project), other(&place.outside));
        for (from, to) in [
            ("\"network\": \"none\"", "\"network\": \"host\""),
            ("/.env\"", "/.nothing\""),
            (&project, &outside),
            ("\"auth\": []", "\"auth\": [\"/etc\"]"),
            ("\"isolated\": true", "\"isolated\": false"),
            ("\"name\": \"s\"", "\"name\": \"t\""),
            ("\"command\": [\"sh\"", "\"command\": [\"bash\""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            freeze(&changed);
            let said = |args: &[&str], code| place.landbox(args).output().expect(code).errors();
            let why = "its snapshot was changed after it was frozen";
            for (args, code) in [
                (&["resume", &id, "--", "touch", "ran"][..], 125),
                (&["diff", &id], 6),
                (&["land", &id, "--apply", "--yes"], 6),
                (&["show", &id], 6),
            ] {
                assert!(said(args, code).contains(why), "{to} {args:?}");
            }
            // By its name it can't be known.
            assert!(said(&["resume", "t"], 125).contains(why), "{to}");
            assert!(said(&["ls"], 0).contains(why), "{to}");
            place.landbox(["gc", "--expired"]).output().ok();
            assert!(!place.project.join("ran").exists() && !place.project.join("new").exists());
        }
        freeze(&text);
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        assert_eq!(fs::read_to_string(place.project.join("new")).unwrap(), "new\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_takes_the_overlay_away_that_wrote_a_session_and_no_other_goes_on_with_it(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo kept > kept; rm README.md"]).output().ok();
        let (state, root) = (place.state().display().to_string(), place.root().display().to_string());
        let (uid, gid) = world.ids();
        let (change, why, next) = match world.overlay {
            Overlay::Fuse => (
                "mount --bind /dev/null /usr/bin/fuse-overlayfs".to_owned(),
                "was written by fuse-overlayfs, which",
                "fuse-overlayfs",
            ),
            // As where a folder was moved into a container.
            Overlay::Kernel => (
                format!(
                    "rm -rf {root}/u {root}/w; mkdir {root}/u {root}/w; chown {uid}:{gid} {root}/u; chmod 700 {root}/u\n\
                     mount -t overlay -o lowerdir={state},upperdir={root}/u,workdir={root}/w none {state}"
                ),
                "was written by the kernel's overlay, which can't be mounted now",
                "LANDBOX_STATE_DIR",
            ),
        };
        let outer = Outer::new();
        let changed = |args: &[&str]| place.landbox(args).within_changed(&outer, &change).output();
        let said = changed(&["resume", "s", "--", "touch", "ran"]).expect(125).errors();
        assert!(said.contains(why) && said.contains(next) && said.contains("work without it"), "{said}");
        // What it says works, works.
        assert!(changed(&["diff", "s", "--stat"]).ok().text().contains("kept"));
        let out = place.landbox(["resume", "s", "--", "ls"]).output().ok();
        assert_eq!(out.text(), "kept\nlink\nsrc\n");
    }
}
