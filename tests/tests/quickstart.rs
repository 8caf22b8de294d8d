//! The README's two commands: the first from a checkout to a card, of the second what it sets up. Packages and compiler are
//! stand-ins: what was built for the tests takes the place of what they would make.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::run::Run;
use landbox_tests::{Place, World, world, worlds};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A checkout of the scripts, and programs that come first on `PATH` and note that they were called.
struct Machine {
    place: Place,
    checkout: PathBuf,
    bin: PathBuf,
}

impl Machine {
    /// `lacks`: a package that is not there until apt-get is asked for it.
    fn new(world: World, lacks: Option<&str>) -> Self {
        let place = Place::new(world);
        let (checkout, bin) = (place.home.join("checkout"), place.outside.join("bin"));
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for script in ["packaging/quickstart.sh", "packaging/setup.sh", "tests/run.sh"] {
            let path = checkout.join(script);
            place.write(&path, fs::read(sources.join(script)).unwrap());
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        let this = Self { place, checkout, bin };
        let installed = this.place.outside.join("installed").display().to_string();
        let lacks = lacks.unwrap_or("nothing");
        this.program(
            "dpkg-query",
            &format!("case \"$*\" in *' {lacks}') cat {installed};; *) printf installed;; esac"),
        );
        this.program(
            "apt-get",
            &format!("case \"$*\" in *' {lacks}'*) printf installed > {installed};; esac"),
        );
        this.program("sudo", "echo a password is required >&2; exit 1");
        // Puts in place what it is asked to build, by its name: `--bin NAME`.
        let made = format!(
            "case $1 in --version) echo cargo 1.95.0; exit;; esac\n\
             to={0}/target/release; mkdir -p $to\n\
             while [ $1 != --bin ]; do shift; done; cp {1}/$2 $to/",
            this.checkout.display(),
            world::bin("landbox").parent().unwrap().display()
        );
        this.program("cargo", &made);
        this
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.bin.join(name);
        let called = self.place.outside.join("called");
        let script = format!("#!/bin/sh\necho \"{name} $*\" >> {}\n{script}\n", called.display());
        self.place.write(&path, script);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    fn quickstart(&self, args: &[&str]) -> Run {
        self.script("packaging/quickstart.sh", args)
    }

    fn script(&self, script: &str, args: &[&str]) -> Run {
        let mut run = self.place.landbox(args);
        run.program(self.checkout.join(script));
        run.env("PATH", format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap()));
        run
    }

    fn called(&self, program: &str) -> Vec<String> {
        let all = fs::read_to_string(self.place.outside.join("called")).unwrap_or_default();
        all.lines().filter(|line| line.starts_with(program)).map(str::to_owned).collect()
    }
}

worlds! {
    [user_kernel, root_kernel]
    fn without_a_command_or_a_terminal_a_demo_is_edited_shown_and_lands_as_it_says(world) {
        let machine = Machine::new(world, None);
        let out = machine.quickstart(&[]).output().ok();
        let (shown, said) = (out.text(), out.errors());
        for part in ["modified", "greeting.txt", "deleted", "notes.txt", "added", "src/main.py", "+Hello from inside."] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(said.contains("3 files changed"), "{said}");
        assert!(machine.called("apt-get").is_empty() && machine.called("sudo").is_empty());
        let line = said.lines().find_map(|line| line.strip_prefix("To land it:")).unwrap().trim();
        let words: Vec<_> = line.split(' ').collect();
        let demo = fs::read_dir(machine.place.home.join(".cache")).unwrap().next().unwrap().unwrap().path();
        assert!(demo.join("notes.txt").exists() && !demo.join("src").exists());
        machine.place.landbox(&words[1..]).program(words[0]).args(["--apply", "--yes"]).cwd(&demo).output().ok();
        assert!(!demo.join("notes.txt").exists() && demo.join("src/main.py").exists());
    }

    [user_kernel]
    fn a_command_runs_where_it_was_called_and_its_status_is_the_scripts(world) {
        let machine = Machine::new(world, None);
        let out = machine.quickstart(&["--", "sh", "-c", "pwd; echo more >> README.md; exit 7"]).output().expect(7);
        let shown = out.text();
        assert!(shown.starts_with(&format!("{}\n", machine.place.project.display())), "{shown}");
        assert!(shown.contains("+more"), "{shown}");
        machine.quickstart(&["--help"]).output().expect(2);
    }

    [user_kernel]
    fn on_a_terminal_it_opens_a_shell_and_shows_what_was_done_in_it(world) {
        let machine = Machine::new(world, None);
        let mut terminal = machine.quickstart(&[]).env("SHELL", "/bin/sh").terminal(100, 40);
        terminal.expect("leave with exit");
        terminal.send("echo more >> README.md; exit\n");
        terminal.expect("+more");
        terminal.expect("To land it:");
        assert_eq!(terminal.wait(), 0, "{}", terminal.shown());
    }

    [user_kernel]
    fn who_may_not_install_is_given_the_one_line_to_type_and_nothing_is_built(world) {
        let machine = Machine::new(world, Some("fuse-overlayfs"));
        let out = machine.quickstart(&[]).output().expect(1);
        let said = out.errors();
        assert!(said.contains("    sudo apt-get update && sudo apt-get install -y fuse-overlayfs\n"), "{said}");
        assert_eq!(machine.called("sudo"), ["sudo -n true"]);
        assert!(machine.called("apt-get").is_empty());
        assert!(!machine.checkout.join("target").exists());
    }

    [user_kernel]
    fn a_compiler_that_is_too_old_is_named_once_in_the_line_to_type(world) {
        for lacks in ["rustc-web", "fuse-overlayfs"] {
            let machine = Machine::new(world, Some(lacks));
            machine.program("cargo", "echo cargo 1.63.0");
            let said = machine.quickstart(&[]).output().expect(1).errors();
            let line = said.lines().find(|line| line.starts_with("    sudo apt-get")).unwrap();
            assert!(line.contains(lacks) && line.matches("rustc-web").count() == 1, "{said}");
            assert_eq!(line.matches("cargo-web").count(), 1, "{said}");
        }
    }

    [user_kernel]
    fn sudo_that_asks_for_no_password_installs_what_is_missing(world) {
        let machine = Machine::new(world, Some("fuse-overlayfs"));
        machine.program("sudo", "shift; \"$@\"");
        machine.quickstart(&["--", "true"]).output().ok();
        let asked = machine.called("sudo");
        assert!(asked.len() == 2 && asked[0] == "sudo -n true" && asked[1].ends_with(" fuse-overlayfs"), "{asked:?}");
        assert_eq!(machine.called("apt-get").len(), 1);
    }

    // The second of the two commands.
    [user_kernel]
    fn who_may_not_install_is_given_the_one_line_for_the_suite_too(world) {
        let machine = Machine::new(world, Some("fuse-overlayfs"));
        let mut run = machine.script("tests/run.sh", &[]);
        let said = run.env("LANDBOX_TEST_BASE", machine.place.outside.join("base")).output().expect(1).errors();
        assert!(said.contains("    sudo apt-get update && sudo apt-get install -y fuse-overlayfs\n"), "{said}");
        assert!(!machine.called("cargo").iter().any(|call| call.contains("test") || call.contains("build")));
    }

    [root_kernel]
    fn root_has_what_is_missing_installed(world) {
        let machine = Machine::new(world, Some("fuse-overlayfs"));
        machine.quickstart(&["--", "true"]).output().ok();
        let called = machine.called("apt-get");
        assert!(called.len() == 1 && called[0].ends_with(" fuse-overlayfs"), "{called:?}");
    }

    [user_kernel]
    fn the_suite_installs_the_real_clis_where_a_named_test_has_one_take_a_turn_and_once(world) {
        let machine = Machine::new(world, None);
        machine.program("rustc", "echo host: here");
        machine.program("node", "echo v22.0.0");
        machine.program("npm", "");
        // Of the suite's files it knows two tests.
        let tests = "case \"$*\" in --version) echo cargo 1.95.0;;\n\
             *' real_clis -- --list'*turn) echo codex::takes_a_turn: test;;\n\
             *' network -- --list'*rule) echo matrix::every_rule: test;;\n\
             build*) mkdir -p target/debug target/prober/here/debug\n\
             touch target/debug/landbox target/debug/landbox-audit target/debug/landbox-helper target/prober/here/debug/prober;; esac";
        machine.program("cargo", tests);
        let base = machine.place.outside.join("base");
        let suite = |name| {
            machine.script("tests/run.sh", &["suite", name]).env("LANDBOX_TEST_BASE", &base).output().ok();
            let ran = machine.called("cargo test").pop().unwrap();
            assert!(ran.ends_with(&format!(" {name}")) && !ran.contains("--list"), "{ran}");
            machine.called("npm")
        };
        assert!(suite("rule").is_empty());
        let [called] = &suite("turn")[..] else { panic!("npm was called more or less than once") };
        for part in ["install", "codex@", "claude-code@", "opencode-ai@", "gemini-cli@"] {
            assert!(called.contains(part), "{part}: {called}");
        }
        assert_eq!(suite("turn").len(), 1);
    }
}
