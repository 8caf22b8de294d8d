//! The login files of a known CLI: kept in step with the host both ways, and nothing else of their folders.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::procs::wait_for;
use landbox_tests::run::Live;
use landbox_tests::{Place, worlds};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A place whose user is logged in to a CLI: a shell by that CLI's name, which runs the lines written to it.
struct Login {
    place: Place,
    file: PathBuf,
}

impl Login {
    fn new(place: Place) -> Self {
        let file = place.home.join(".codex/auth.json");
        place.write(&file, "{\"t\":1}");
        place.write(place.home.join(".codex/history"), "the host's\n");
        place.symlink("/bin/sh", place.root().join("codex"));
        Self { place, file }
    }

    fn script() -> &'static str {
        "echo ready; n=0; while read -r l; do eval \"$l\"; n=$((n+1)); echo \"done $n\"; done"
    }

    fn start(&self) -> Live {
        let codex = self.place.root().join("codex");
        let args = [codex.as_os_str(), "-c".as_ref(), Self::script().as_ref()];
        let mut live = self.place.session(["--name", "s"], args).stdin_open().start();
        live.expect("ready");
        live
    }

    /// Writes the file as a CLI does that is careful: beside it, then renamed over.
    fn refresh(&self, content: &str) {
        let beside = self.file.with_extension("new");
        self.place.write(&beside, content);
        fs::rename(beside, &self.file).unwrap();
    }

    fn becomes(&self, content: &str) {
        wait_for("the refreshed login on the host", 20, || {
            (fs::read_to_string(&self.file).ok()? == content).then_some(())
        });
    }
}

/// Waits inside until the file has that content.
fn until_inside(content: &str) -> String {
    format!("until [ \"$(cat ~/.codex/auth.json)\" = '{content}' ]; do sleep 0.05; done\n")
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_login_refreshed_on_either_side_is_seen_on_the_other_and_its_neighbours_stay_apart(world) {
        let login = Login::new(Place::new(world));
        let mut live = login.start();
        live.write(b"echo '{\"t\":2}' > ~/.codex/n; mv ~/.codex/n ~/.codex/auth.json; echo mine >> ~/.codex/history\n");
        live.expect("done 1");
        login.becomes("{\"t\":2}\n");
        login.refresh("{\"t\":3}");
        live.write(until_inside("{\"t\":3}").as_bytes());
        live.expect("done 2");
        live.write(b"printf '{\"t\":4}' > ~/.codex/auth.json\n");
        live.expect("done 3");
        login.becomes("{\"t\":4}");
        login.place.write(&login.file, "{\"t\":5}");
        live.write(until_inside("{\"t\":5}").as_bytes());
        live.expect("done 4");
        live.write(b"printf '{\"t\":6}' > ~/.codex/auth.json\n");
        live.wait().ok();
        assert_eq!(fs::read_to_string(&login.file).unwrap(), "{\"t\":6}");
        assert_eq!(fs::metadata(&login.file).unwrap().permissions().mode() & 0o777, 0o600);
        let history = login.place.home.join(".codex/history");
        assert_eq!(fs::read_to_string(history).unwrap(), "the host's\n");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_login_refreshed_between_two_launches_is_seen_by_the_second(world) {
        let login = Login::new(Place::new(world));
        let mut live = login.start();
        live.write(b"printf '{\"t\":2}' > ~/.codex/auth.json\n");
        live.wait().ok();
        assert_eq!(fs::read_to_string(&login.file).unwrap(), "{\"t\":2}");
        login.refresh("{\"t\":3}");
        let codex = login.place.root().join("codex");
        let args = ["resume".as_ref(), "s".as_ref(), "--".as_ref(), codex.as_os_str(), "-c".as_ref(), "cat ~/.codex/auth.json".as_ref()];
        let out = login.place.landbox(args).output().ok();
        assert_eq!(out.text(), "{\"t\":3}");
        assert_eq!(fs::read_to_string(&login.file).unwrap(), "{\"t\":3}");
    }

    // Root's fuse-overlayfs shows its merged view to nobody outside: there the clock decides.
    [user_kernel, user_fuse, root_kernel]
    fn a_login_that_is_being_written_reaches_the_host_whole(world) {
        let place = Place::new(world);
        let file = place.home.join(".gemini/antigravity-cli/antigravity-oauth-token");
        place.write(&file, "old");
        place.symlink("/bin/sh", place.root().join("agy"));
        let agy = place.root().join("agy");
        let args = [agy.as_os_str(), "-c".as_ref(), Login::script().as_ref()];
        let mut live = place.session(["--name", "s"], args).stdin_open().start();
        live.expect("ready");
        let there = || fs::read_to_string(&file).unwrap();
        live.write(b"cd ~/.gemini/antigravity-cli; printf first > antigravity-oauth-token\n");
        wait_for("the first login on the host", 20, || (there() == "first").then_some(()));
        live.write(b"exec 3> antigravity-oauth-token; printf PART >&3; sleep 2\n");
        live.expect("done 2");
        assert_eq!(there(), "first");
        live.write(b"printf REST >&3; exec 3>&-\n");
        wait_for("the whole login on the host", 20, || match there().as_str() {
            "PARTREST" => Some(()),
            "first" => None,
            other => panic!("{other:?} reached the host"),
        });
        live.wait().ok();
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_folder_of_logins_is_kept_in_step_both_ways_and_nothing_beside_it(world) {
        let place = Place::new(world);
        let folder = place.home.join(".kimi-code/credentials");
        place.write(folder.join("one.json"), "{\"t\":1}");
        place.symlink("/bin/sh", place.root().join("kimi"));
        let kimi = place.root().join("kimi");
        let args = [kimi.as_os_str(), "-c".as_ref(), Login::script().as_ref()];
        let mut live = place.session(["--name", "s"], args).stdin_open().start();
        live.expect("ready");
        live.write(b"cd ~/.kimi-code/credentials; printf '{\"t\":2}' > one.json; printf '{\"t\":3}' > two.json; echo x > ../config\n");
        for (name, content) in [("one.json", "{\"t\":2}"), ("two.json", "{\"t\":3}")] {
            wait_for("the login on the host", 20, || {
                (fs::read_to_string(folder.join(name)).ok()? == content).then_some(())
            });
        }
        place.write(folder.join("two.json"), "{\"t\":4}");
        live.write(b"until [ \"$(cat two.json)\" = '{\"t\":4}' ]; do sleep 0.05; done\n");
        live.expect("done 2");
        live.wait().ok();
        assert!(!place.home.join(".kimi-code/config").exists());
    }
}
