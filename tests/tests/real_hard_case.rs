//! The hardest case: inside a session, Landbox's own sources are edited and the programs that run the session rebuilt.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::net::Outer;
use landbox_tests::run::{Out, Run};
use landbox_tests::snapshot::Snapshot;
use landbox_tests::{Place, World, world, worlds};
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 2] = ["landbox", "landbox-helper"];

fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn said(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The project: the sources as they are, without what git doesn't know, and the programs that run the session.
fn check_out(place: &Place) {
    let list = said(Command::new("git").arg("-C").arg(sources()).args(["ls-files", "-z"]));
    for file in list.split('\0').filter(|file| !file.is_empty()) {
        if let Ok(content) = fs::read(sources().join(file)) {
            place.write(place.project.join(file), content);
        }
    }
    place.write(place.project.join(".gitignore"), "/target\n");
    let built = place.project.join("target/debug");
    place.mkdir(&built);
    for name in PROGRAMS {
        fs::copy(world::bin(name), built.join(name)).unwrap();
    }
    let git = |args: &[&str]| {
        place.git(&[&["-c", "user.name=t", "-c", "user.email=t@example.invalid"], args].concat());
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "as it is"]);
}

/// What the compiler made of other people's crates for this run of the tests, so that they need not be built again.
fn take_dependencies(place: &Place) {
    let (real, own) = (sources().join("target/debug"), place.project.join("target/debug"));
    let (uid, gid) = place.world.ids();
    let ours = |name: &str| name.trim_start_matches("lib").starts_with("landbox");
    let mut folders = ["deps", ".fingerprint", "build"].map(PathBuf::from).to_vec();
    while let Some(folder) = folders.pop() {
        place.mkdir(own.join(&folder));
        for entry in fs::read_dir(real.join(&folder)).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let (at, kind) = (folder.join(&name), entry.file_type().unwrap());
            let is_part = [".rlib", ".rmeta", ".so", ".d"].iter().any(|end| name.ends_with(end));
            if ours(&name) || (folder.ends_with("deps") && !is_part) {
                continue;
            }
            if kind.is_dir() {
                folders.push(at);
            } else if kind.is_file() && fs::copy(entry.path(), own.join(&at)).is_ok() {
                // By the times cargo knows that they are still good.
                let time = entry.metadata().unwrap().modified().unwrap();
                File::open(own.join(&at)).unwrap().set_modified(time).unwrap();
                chown(own.join(&at), Some(uid), Some(gid)).unwrap();
            }
        }
    }
}

/// The compiler and the crates' sources, for whoever runs the session. Root's home is closed to others: where they lie
/// in it, one that holds nothing else takes its place.
struct Tools {
    mounts: Option<String>,
    path: String,
    cargo_home: PathBuf,
}

impl Tools {
    fn of(place: &Place) -> Self {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let cargo_home =
            std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        let root = PathBuf::from(said(Command::new("rustc").args(["--print", "sysroot"])).trim());
        let path = format!("{}:/usr/bin:/bin", root.join("bin").display());
        let crates = cargo_home.join("registry");
        let is_closed = world::is_root() && place.world.ids().0 != 0;
        let mounts = is_closed.then(|| {
            let aside = ["tools", "crates"].map(|name| place.outside.join(name));
            aside.iter().for_each(|folder| place.mkdir(folder));
            let [from, to] = [[&root, &crates], [&aside[0], &aside[1]]].map(|all| all.map(|path| path.display()));
            format!(
                "umask 022\nmount --bind {0} {2}\nmount --bind {1} {3}\nmount -t tmpfs -o mode=0755 none {4}\n\
                 mkdir -p {0} {1}\nmount --bind {2} {0}\nmount --bind {3} {1}",
                from[0], from[1], to[0], to[1], home.display()
            )
        });
        Self { mounts, path, cargo_home }
    }

    /// `landbox ARG..` by the program in the project.
    fn landbox(&self, place: &Place, args: &[&str]) -> Out {
        let mut run: Run = place.landbox::<&str>([]);
        run.program(place.project.join("target/debug/landbox")).limit(900);
        // Without what only a later build would be quicker by.
        run.env("CARGO_INCREMENTAL", "0")
            .env("PATH", &self.path)
            .env("CARGO_HOME", &self.cargo_home)
            .args(args);
        match &self.mounts {
            Some(mounts) => run.within_changed(&Outer::new(), mounts).output(),
            None => run.output(),
        }
    }
}

/// `packages` are what is rebuilt, `programs` what that makes of the programs that run the session.
fn rebuilt(world: World, packages: &str, programs: &[&str]) {
    let place = Place::new(world);
    check_out(&place);
    take_dependencies(&place);
    let tools = Tools::of(&place);
    let landbox = |args: &[&str]| tools.landbox(&place, args);
    landbox(&["run", "--", "true"]).ok();
    let ours = [place.state(), place.home.join(".config/landbox")];
    let look = || Snapshot::take(&[place.root()], &ours);
    let before = look();

    // The comparison is with the helper that runs this session: its init.
    let script = &format!(
        "set -e; sed -i '1s/^/\\/\\/! Rebuilt inside.\\n/' helper/src/main.rs controller/src/main.rs; \
                  cargo build --offline --locked {packages}; \
                  target/debug/landbox-helper --version; target/debug/landbox --version >/dev/null; \
                  cmp target/debug/landbox-helper /proc/1/exe && exit 9; echo built"
    );
    let out = landbox(&[
        "run",
        "--overlay",
        world.overlay_name(),
        "--name",
        "self",
        "--",
        "sh",
        "-c",
        script,
    ])
    .ok();
    assert!(out.text().ends_with("built\n"), "{}", out.text());
    before.same_as(&look());
    let session =
        place.state().join("sessions").join(place.json(["show", "self"])["id"].as_str().unwrap());
    for name in programs {
        let made = fs::read(session.join("layers/project/upper/target/debug").join(name)).unwrap();
        assert!(made != fs::read(world::bin(name)).unwrap(), "{name} is not another one");
    }

    landbox(&["land", "self", "--apply", "--yes"]).ok();
    for source in ["helper/src/main.rs", "controller/src/main.rs"] {
        let landed = fs::read_to_string(place.project.join(source)).unwrap();
        assert!(landed.starts_with("//! Rebuilt inside.\n"), "{landed}");
    }
    // Build output is a group of its own: it lands when it is asked for.
    for name in PROGRAMS {
        let same = fs::read(place.project.join("target/debug").join(name)).unwrap()
            == fs::read(world::bin(name)).unwrap();
        assert!(same, "build output was landed unasked");
    }
}

worlds! {
    [user_kernel]
    fn a_helper_that_runs_a_session_is_rebuilt_in_it_and_is_unaffected_until_landing(world) {
        rebuilt(world, "--package landbox-helper", &["landbox-helper"]);
    }

    [root_kernel]
    fn the_programs_that_run_a_session_are_rebuilt_in_it_and_are_unaffected_until_landing(world) {
        rebuilt(world, "--package landbox --package landbox-helper", &PROGRAMS);
    }
}
