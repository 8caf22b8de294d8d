//! The hardest case: inside a session, Landbox's own sources are edited and the programs that run the session rebuilt.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::snapshot::{Depth, Snapshot};
use landbox_tests::{Place, world};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The toolchain lies in root's home, so this one is a session of root.
#[test]
fn root_rebuilds_the_programs_that_run_the_session_and_they_are_unaffected_until_landing() {
    let place = Place::new(world::root_kernel());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // The sources as they are, without what git doesn't know.
    let files = Command::new("git")
        .args(["-C", sources.to_str().unwrap(), "ls-files", "-z"])
        .output()
        .unwrap();
    assert!(files.status.success(), "the sources are no git checkout");
    for file in files.stdout.split(|b| *b == 0).filter(|f| !f.is_empty()) {
        let file = std::str::from_utf8(file).unwrap();
        if let Ok(content) = fs::read(sources.join(file)) {
            place.write(place.project.join(file), content);
        }
    }
    place.write(place.project.join(".gitignore"), "/target\n");
    // The programs that run the session are the project's own.
    let built = place.project.join("target/debug");
    place.mkdir(&built);
    for name in ["landbox", "landbox-helper"] {
        fs::copy(world::bin(name), built.join(name)).unwrap();
    }
    let git = |args: &[&str]| {
        place.git(&[&["-c", "user.name=t", "-c", "user.email=t@example.invalid"], args].concat());
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "as it is"]);

    let landbox = built.join("landbox");
    let session = |args: &[&str]| {
        let mut run = place.landbox::<&str>([]);
        run.program(&landbox).limit(900);
        let home = std::env::var("HOME").unwrap();
        let own = |name: &str, folder: &str| {
            std::env::var(name).unwrap_or_else(|_| format!("{home}/{folder}"))
        };
        run.env("CARGO_HOME", own("CARGO_HOME", ".cargo"));
        run.env("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup"));
        run.args(args);
        run.output()
    };
    session(&["run", "--", "true"]).ok();
    let ours = [place.state(), place.home.join(".config/landbox")];
    let look = || Snapshot::take(&[place.root()], &ours, Depth::Content);
    let before = look();

    let script = "set -e; sed -i '1s/^/\\/\\/! Rebuilt inside.\\n/' helper/src/main.rs; \
                  cargo build --quiet --offline --locked --package landbox-helper; \
                  target/debug/landbox-helper --version; cmp target/debug/landbox-helper /proc/1/exe && exit 9; echo built";
    let out = session(&["run", "--name", "self", "--", "sh", "-c", script]).ok();
    assert!(out.text().ends_with("built\n"), "{}", out.text());
    before.same_as(&look());

    session(&["land", "self", "--apply", "--yes"]).ok();
    let landed = fs::read_to_string(place.project.join("helper/src/main.rs")).unwrap();
    assert!(landed.starts_with("//! Rebuilt inside.\n"), "{landed}");
    // Build output is a group of its own: it lands when it is asked for.
    let helper = fs::read(world::bin("landbox-helper")).unwrap();
    assert!(
        fs::read(built.join("landbox-helper")).unwrap() == helper,
        "build output was landed unasked"
    );
}
