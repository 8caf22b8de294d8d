//! The packaged helper, with its file capability, where the machine's keys count. Everything that a package would put in place
//! is put into a mount namespace of the test's own, so these tests run as root alone.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::world::{bin, is_root};
use landbox_tests::{Place, World, worlds};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Runs a script as root where the helper is installed as a package does it. In it, `landbox` is the controller as the
/// ordinary user, started in the project from a folder of its own, and `audit` is `landbox-audit` as root.
fn installed(place: &Place, script: &str) -> String {
    let (uid, gid) = place.world.ids();
    let only = place.root().join("only");
    fs::create_dir_all(&only).unwrap();
    let script = format!(
        "set -e; mount --make-rprivate /; cp {landbox} {only}; cp {helper} {only}/packed; \
         mount -t tmpfs -o mode=755 none /usr/libexec; mkdir /usr/libexec/landbox; H=/usr/libexec/landbox/landbox-helper; \
         cp {only}/packed $H; setcap cap_sys_admin=p $H; \
         mkdir {root}/etc; mount -t tmpfs -o mode=755 none {root}/etc; cd {root}/etc; mkdir u w; \
         mount -t overlay -o lowerdir=/etc,upperdir=u,workdir=w none /etc; rm -rf /etc/landbox; cd {project}; \
         audit() {{ {audit} \"$@\"; }}; \
         landbox() {{ setpriv --reuid {uid} --regid {gid} --clear-groups env -i HOME={home} PATH=/usr/bin:/bin:/usr/sbin \
         {only}/landbox \"$@\"; }}; set +e; {script}",
        helper = bin("landbox-helper").display(),
        landbox = bin("landbox").display(),
        audit = bin("landbox-audit").display(),
        root = place.root().display(),
        project = place.project.display(),
        home = place.home.display(),
        only = only.display(),
    );
    let out = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

/// Types what the doctor says, without its `sudo`.
const ENROL: &str =
    "enrol=$(landbox doctor | sed -n 's/.*sudo landbox-audit //p'); audit $enrol >/dev/null; ";

#[test]
fn the_doctor_names_the_command_that_enrols_and_with_it_everything_runs() {
    if !is_root() {
        return;
    }
    let place = Place::new(World::USUAL);
    let said =
        installed(&place, "landbox run -- true; echo run $?; landbox doctor; echo doctor $?");
    assert!(said.contains("signed by a key that is not trusted"), "{said}");
    assert!(said.contains("run 125\n") && said.contains("doctor 1\n"), "{said}");
    assert!(said.contains("the packaged one, with its file capability"), "{said}");
    assert!(
        said.contains("FAIL  trust") && said.contains("sudo landbox-audit trust add "),
        "{said}"
    );
    let script = "landbox run -- sh -c 'id -u; grep CapPrm /proc/self/status'; landbox doctor; echo doctor $?; \
                  landbox show; audit replay {}/.local/state/landbox/sessions/*";
    let place = Place::new(World::USUAL);
    let script = script.replace("{}", &place.home.display().to_string());
    let said = installed(&place, &format!("{ENROL}{script}"));
    let uid = place.world.ids().0;
    assert!(said.contains(&format!("{uid}\nCapPrm:\t0000000000000000\n")), "{said}");
    for line in [
        "your key is enrolled: /etc/landbox/trusted.d/",
        "a real session was run and checked from inside",
        "a session was run with one and checked from inside",
        "helper       with its file capability: the keys in /etc/landbox/trusted.d count",
        ": checked",
        "what the kernel said is what the plan asks for",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains("doctor 0\n"), "{said}");
}

#[test]
fn a_bot_that_wants_the_packaged_helper_gets_it_or_nothing() {
    if !is_root() {
        return;
    }
    let place = Place::new(World::USUAL);
    let bots = r#"[{"name": "a", "command": ["echo", "ran"], "requirePackagedHelper": true}]"#;
    place.write(place.home.join(".config/landbox/bots.json"), bots);
    let script = "landbox run --bot a; echo first $?; setcap -r $H; landbox run --bot a; echo second $?; \
                  landbox resume $(ls {}/.local/state/landbox/sessions) -- echo resumed; echo third $?; \
                  setcap cap_sys_admin=p $H; chmod g+w $H; landbox run --bot a; echo fourth $?";
    let script = script.replace("{}", &place.home.display().to_string());
    let said = installed(&place, &format!("{ENROL}{script}"));
    assert!(said.contains("ran\n") && said.contains("first 0\n"), "{said}");
    assert_eq!(said.matches("ran\n").count(), 1, "{said}");
    assert!(!said.contains("resumed\n"), "{said}");
    for end in ["second 125\n", "third 125\n", "fourth 125\n"] {
        assert!(said.contains(end), "{end}: {said}");
    }
    assert!(said.contains("it has lost its capability"), "{said}");
    assert!(said.contains("somebody other than root can change"), "{said}");
}

worlds! {
    // What can't be dumped is root's in /proc: no core is made of it, and nothing of the user's looks into it.
    [user_kernel]
    fn no_core_is_made_of_the_controller_and_the_helper(world) {
        let place = Place::new(world);
        // In blocks of 1024 bytes for bash, of 512 for sh.
        let mut live = place.sh("echo up; ulimit -c; cat").prefix("ulimit -c 4096").stdin_open().start();
        live.expect("8192");
        let controller = live.pid();
        let children = |pid: i32| {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let text = fs::read_to_string(path).unwrap();
            text.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()).collect::<Vec<_>>()
        };
        let monitor = children(controller)[0];
        let init = children(monitor)[0];
        for pid in [controller, monitor, init] {
            let owner = fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid();
            assert!(!is_root() || owner == 0, "{pid}: {owner}");
        }
        // Also while the two are open to whoever writes their id maps: no file, and nothing for a program.
        for pid in [monitor, init] {
            let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
            assert_eq!(core.split_whitespace().nth(4), Some("1"), "{pid}: {core}");
        }
        live.close_stdin();
        live.wait().ok();
    }
}
