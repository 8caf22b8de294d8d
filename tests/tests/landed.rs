//! What a landing leaves of a session: the next launch goes on from the project as its owner has it.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, worlds};
use std::fs;

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_resumed_session_goes_on_from_what_the_owner_made_of_landed_files(world) {
        let place = Place::new(world);
        let script = "echo one >> README.md; rm src/main.py; mkdir -p new/deep; echo n > new/deep/n; \
                      mkdir again; echo a > again/a; rm link";
        place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        let readme = place.project.join("README.md");
        let text = fs::read_to_string(&readme).unwrap() + "owner\n";
        place.write(&readme, &text);
        place.write(place.project.join("src/main.py"), "back\n");
        place.write(place.project.join("new/deep/n"), "n2\n");
        place.write(place.project.join("new/more"), "m\n");
        let script = "cat README.md src/main.py new/deep/n new/more again/a; echo two >> README.md; \
                      echo two >> src/main.py; echo two >> new/deep/n";
        let out = place.landbox(["resume", "s", "--", "sh", "-c", script]).output().ok();
        assert_eq!(out.text(), format!("{text}back\nn2\nm\na\n"));
        let changed = |path: &str| (path.to_owned(), "modified".to_owned());
        assert_eq!(place.changes(), ["README.md", "new/deep/n", "src/main.py"].map(changed));
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        let read = |path: &str| fs::read_to_string(place.project.join(path)).unwrap();
        assert_eq!(read("README.md"), format!("{text}two\n"));
        assert_eq!(read("src/main.py"), "back\ntwo\n");
        assert_eq!(read("new/deep/n"), "n2\ntwo\n");
        place.landbox(["land", "--apply", "--yes"]).output().expect(4);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn gc_keeps_a_landed_session_that_holds_changes_to_ignored_files(world) {
        let place = Place::new(world);
        place.git(&["init", "-q", "."]);
        place.write(place.project.join(".gitignore"), ".env\n");
        place.write(place.project.join(".env"), "KEY=old\n");
        let script = "echo KEY=new > .env; echo more >> README.md";
        place.session(["--name", "s"], ["sh", "-c", script]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        let id = place.json(["show", "s"])["id"].as_str().unwrap().to_owned();
        for args in [&["gc", "--dry-run"][..], &["gc"]] {
            let out = place.landbox(args).output().ok();
            for text in [format!("{id} stays"), format!("landbox land {id} --with-ignored"), format!("landbox discard {id}")] {
                assert!(out.errors().contains(&text), "{}", out.errors());
            }
            assert_eq!(place.sessions().len(), 1);
        }
        assert_eq!(fs::read_to_string(place.project.join(".env")).unwrap(), "KEY=old\n");
        place.landbox(["land", "s", "--with-ignored", "--apply", "--yes"]).risks_accepted().output().ok();
        assert_eq!(fs::read_to_string(place.project.join(".env")).unwrap(), "KEY=new\n");
        place.landbox(["gc"]).output().ok();
        assert_eq!(place.sessions().len(), 0);
    }

    [user_kernel]
    fn gc_keeps_a_landed_session_with_checkpoints(world) {
        let place = Place::new(world);
        place.session(["--name", "s"], ["sh", "-c", "echo 1 >> README.md"]).output().ok();
        place.landbox(["checkpoint", "s"]).output().ok();
        place.landbox(["resume", "s", "--", "sh", "-c", "echo 2 > more"]).output().ok();
        // What it wrote since is in the checkpoint that going back takes, and nowhere else.
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        place.landbox(["land", "s", "--apply", "--yes"]).output().ok();
        let out = place.landbox(["gc"]).output().ok();
        assert!(out.errors().contains("2 checkpoints were left in it ("), "{}", out.errors());
        assert!(out.errors().contains("landbox discard ID --checkpoint N removes it"), "{}", out.errors());
        assert!(!out.errors().contains("throw them away"), "the session is not what is to go: {}", out.errors());
        place.landbox(["rewind", "s", "2", "--yes"]).output().ok();
        assert!(place.changes().contains(&("more".to_owned(), "added".to_owned())));
        // Without them it is as any that has landed.
        place.landbox(["rewind", "s", "1", "--yes"]).output().ok();
        let shown = place.json(["show", "s"]);
        let mut all = vec!["--yes".to_owned()];
        for checkpoint in shown["checkpoints"].as_array().unwrap() {
            all.extend(["--checkpoint".to_owned(), checkpoint["number"].to_string()]);
        }
        assert!(out.errors().contains("discard") && out.errors().contains("--checkpoint N"), "{}", out.errors());
        place.landbox(["discard", "s"].map(str::to_owned).into_iter().chain(all)).output().ok();
        place.landbox(["gc"]).output().ok();
        assert_eq!(place.sessions().len(), 0);
    }
}
