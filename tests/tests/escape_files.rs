//! Isolation, proved: real home, project, neighbours and system folders are the same to the last attribute after a hostile
//! program has tried every way of writing.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::probe::{Attack, Attempt};
use landbox_tests::snapshot::Snapshot;
use landbox_tests::world::{self, Who};
use landbox_tests::{Place, World, procs, worlds};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A session masks every socket it finds, those of another test too; when that test removes its folder, the mask falls off
/// and the session ends, as it should. So one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed before is no reason for this one to.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the machine has besides files: things that a session must not reach.
struct Host {
    listeners: Vec<UnixListener>,
    datagrams: Vec<UnixDatagram>,
    fifos: Vec<File>,
    victim: Child,
    attack: Attack,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn host(place: &Place) -> Host {
    let (uid, gid) = place.world.ids();
    let own = |path: &Path| {
        chown(path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    };
    let folders = [&place.home, &place.project, &place.outside];
    let streams = folders.map(|f| f.join("stream.sock"));
    let letters = folders.map(|f| f.join("letter.sock"));
    let fifos = [&place.home, &place.project].map(|f| f.join("fifo"));
    let name = format!("landbox-test-{}", place.root().display());
    let mut listeners: Vec<_> = streams.iter().map(|p| UnixListener::bind(p).unwrap()).collect();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    listeners.push(UnixListener::bind_addr(&address).unwrap());
    listeners.iter().for_each(|l| l.set_nonblocking(true).unwrap());
    let datagrams: Vec<_> = letters.iter().map(|p| UnixDatagram::bind(p).unwrap()).collect();
    datagrams.iter().for_each(|d| d.set_nonblocking(true).unwrap());
    let open_fifo = |path: &PathBuf| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        own(path);
        file
    };
    let fifos_open = fifos.iter().map(open_fifo).collect();
    streams.iter().chain(&letters).for_each(|path| own(path));
    let mut sleep = Command::new("sleep");
    sleep.arg("600").current_dir(&place.outside);
    if world::is_root() {
        sleep.uid(uid).gid(gid);
    }
    let victim = sleep.spawn().unwrap();
    let attack = Attack {
        targets: targets(place),
        gently: ["/etc/passwd", "/etc", "/usr/bin/env", "/usr/local/bin", "/boot", "/root", "/"]
            .map(PathBuf::from)
            .into(),
        scratch: "/tmp/scratch".into(),
        sockets: streams.into_iter().chain(letters).collect(),
        abstract_sockets: vec![name],
        fifos: fifos.into(),
        pids: vec![i32::try_from(victim.id()).unwrap(), i32::try_from(std::process::id()).unwrap()],
        host_pid_namespace: fs::read_link("/proc/self/ns/pid").unwrap().display().to_string(),
    };
    Host { listeners, datagrams, fifos: fifos_open, victim, attack }
}

/// Files of every kind in the project, the home, beside them, and where only root may write.
fn targets(place: &Place) -> Vec<PathBuf> {
    let mut targets = Vec::new();
    for folder in [&place.project, &place.home, &place.outside] {
        let dir = folder.join("victims");
        for (name, mode) in
            [("plain", 0o644), ("private", 0o600), ("script", 0o755), ("open", 0o666)]
        {
            let path = dir.join(name).join("file");
            place.write(&path, format!("{name} {}\n", "content ".repeat(600)));
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            targets.push(path);
        }
        let twin = dir.join("twin/file");
        place.write(&twin, "two names\n");
        fs::hard_link(&twin, dir.join("twin-name")).unwrap();
        targets.push(twin);
        targets.push(dir.join("plain"));
    }
    // A stand-in for a system folder: everything a folder of root's is to the boundary, but nobody's loss.
    let system = place.root().join("system");
    fs::create_dir(&system).unwrap();
    fs::write(system.join("conf"), "root's\n").unwrap();
    targets.push(system.join("conf"));
    targets
}

/// The machine's own folders, whole, and what a session shows of its devices. All that does not change by itself while
/// tests run is compared by its content too.
fn system() -> Snapshot {
    let roots = SYSTEM.into_iter().chain(DEVICES).map(Path::new).collect::<Vec<_>>();
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let busy = BUSY.iter().map(PathBuf::from);
    let own = if world::is_root() {
        BUSY_AT_HOME.iter().map(|name| home.join(name)).collect()
    } else {
        // Whoever tests as themselves goes on working in it.
        vec![home.clone()]
    };
    Snapshot::take(&roots, &busy.chain(own).collect::<Vec<_>>()).forget(&home)
}

/// What there is on a machine, but for the kernel's own file systems, `/tmp` and `/run`, of which a session has its own, and
/// `/srv`, where the tests' places are: this one is compared by itself.
const SYSTEM: [&str; 14] = [
    "/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt",
    "/root", "/sbin", "/usr", "/var",
];

/// The host's nodes, which a session shows by themselves.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What daemons write: their logs, caches and data, and files that are there for a while.
const BUSY: [&str; 7] = [
    "/var/cache",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/systemd",
    "/var/log",
    "/var/spool",
    "/var/tmp",
];

/// What root's own programs write as they run, cargo among them, which started these tests.
const BUSY_AT_HOME: [&str; 8] =
    [".bash_history", ".cache", ".cargo", ".claude", ".config/landbox", ".debug", ".local", ".npm"];

/// The kernel's own switches, which are no files of a disk.
fn switches() -> Vec<String> {
    let names = [
        "fs/binfmt_misc/status",
        "kernel/core_pattern",
        "kernel/domainname",
        "kernel/hostname",
        "kernel/modprobe",
        "net/ipv4/ip_forward",
        "user/max_user_namespaces",
        "vm/overcommit_memory",
    ];
    names.map(|name| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default()).into()
}

/// What is mounted on the machine's own folders, and in the test's place.
fn mounts(place: &Place) -> Vec<String> {
    let below =
        SYSTEM.into_iter().chain(["/dev", "/proc", "/sys"]).map(Path::new).chain([place.root()]);
    below.flat_map(procs::mounts_below).collect()
}

fn tried<'a>(attempts: &'a [Attempt], way: &str) -> Vec<&'a Attempt> {
    let found: Vec<_> = attempts.iter().filter(|a| a.way == way).collect();
    assert!(!found.is_empty(), "{way} was not tried");
    found
}

/// What may work, apart from writing in the layers: it changes nothing outside the session.
fn harmless(attempt: &Attempt) -> bool {
    match (attempt.way.as_str(), attempt.on.as_str()) {
        // The session's own pipes.
        ("open again for writing", _) => true,
        ("socketpair" | "own socket below /tmp", "") => true,
        // A user namespace of its own has no right over anything of the boundary: the nested round tries.
        ("unshare", "user") | ("nested user and mount namespace", "") => true,
        // Init runs as the same user, and the kernel asks for no more here. The session can end itself by it.
        ("set its limits" | "write its oom_score_adj", "1") => true,
        _ => false,
    }
}

fn attacked(world: World, options: impl FnOnce(&Place) -> Vec<String>) {
    let place = Place::new(world);
    // The first run makes the signing key and the state folder: those are ours.
    place.sh("true").output().ok();
    let mut host = host(&place);
    place.write(place.root().join("attack.json"), serde_json::to_vec(&host.attack).unwrap());
    place.write(place.outside.join("stdin.txt"), "the owner's input\n");
    place.write(place.outside.join("stderr.txt"), "ORIGINAL\n");
    for fd in ["fd7", "fd9", "fd2048"] {
        place.write(place.outside.join(fd), "inherited\n");
    }
    let ours =
        [place.state(), place.home.join(".config/landbox"), place.outside.join("stderr.txt")];
    let programs = world::bin("landbox");
    let look = || {
        let places = Snapshot::take(&[place.root(), programs.parent().unwrap()], &ours);
        (places, switches(), mounts(&place))
    };
    let before = look();
    assert!(before.0.len() > 40);

    let out = place.outside.display();
    let file = place.root().join("attack.json");
    let ended = place
        .session(
            options(&place),
            [world::bin("prober").to_str().unwrap(), "attack", file.to_str().unwrap()],
        )
        .stdin_file(File::open(place.outside.join("stdin.txt")).unwrap())
        .stderr_file(
            OpenOptions::new()
                .append(true)
                .read(true)
                .open(place.outside.join("stderr.txt"))
                .unwrap(),
        )
        .prefix(&format!("ulimit -n 4096; exec 7<>{out}/fd7 9<{out}/fd9 10</ 2048<>{out}/fd2048"))
        .limit(180)
        .output();
    let stderr = fs::read_to_string(place.outside.join("stderr.txt")).unwrap();
    assert!(stderr.starts_with("ORIGINAL\n"), "{stderr}");
    assert_eq!(ended.code(), 0, "{world:?}: {stderr}");
    let attempts: Vec<Attempt> = ended.json_of_last_line();

    let after = look();
    before.0.same_as(&after.0);
    assert_eq!(before.1, after.1, "switches of the kernel");
    assert_eq!(before.2, after.2, "mounts of the host");
    // The attack was one: it ran to its end, and in the merged view its writes worked.
    assert!(attempts.len() > 1000, "{}", attempts.len());
    let on = place.project.join("victims/open/file").display().to_string();
    let there = |way: &str| tried(&attempts, way).into_iter().find(|a| a.on == on).unwrap();
    for way in ["open for writing", "write pieces", "write in the background"] {
        assert!(there(way).worked(), "{way}");
    }
    // Some machines have no rings, or none of this kind.
    let ring = there("write through a ring").errno;
    assert!([0, libc::ENOSYS, libc::EPERM, libc::EINVAL].contains(&ring), "{ring}");
    // Nothing of the host was reached.
    let inherited: Vec<_> = attempts.iter().filter(|a| a.way == "inherited descriptor").collect();
    assert!(inherited.is_empty(), "{inherited:#?}");
    for listener in &host.listeners {
        assert!(listener.accept().is_err(), "a connection reached {:?}", listener.local_addr());
    }
    for socket in &host.datagrams {
        assert!(socket.recv(&mut [0; 8]).is_err(), "a letter reached {:?}", socket.local_addr());
    }
    for fifo in &mut host.fifos {
        assert!(!matches!(fifo.read(&mut [0; 8]), Ok(1..)), "bytes came through a FIFO");
    }
    assert!(host.victim.try_wait().unwrap().is_none(), "a process of the host was ended");
    let targets: Vec<_> = host.attack.targets.iter().map(|t| t.display().to_string()).collect();
    let worked: Vec<_> = attempts
        .iter()
        .filter(|a| a.worked() && !targets.contains(&a.on) && !a.way.starts_with("nested: "))
        .filter(|a| !harmless(a))
        .collect();
    assert!(worked.is_empty(), "{world:?}: {worked:#?}");
    for way in [
        "umount",
        "remount writable",
        "clear read-only",
        "clone the mount",
        "reconfigure the file system",
        "move the mount",
        "mount over",
        "bind over",
        "make shared",
        "chroot",
        "pivot_root",
    ] {
        let worked: Vec<_> = tried(&attempts, way).into_iter().filter(|a| a.worked()).collect();
        assert!(worked.is_empty(), "{world:?}: {worked:#?}");
    }
    // What every program needs works.
    for way in ["socketpair", "own socket below /tmp"] {
        assert!(tried(&attempts, way).iter().all(|a| a.worked()), "{way}");
    }
}

/// Masks of every kind. What hides paths outside the layers rebuilds parts of the tree: folders, and the root itself, are
/// copied.
fn masks(place: &Place) -> Vec<String> {
    let hidden = [
        "/landbox-no-such-folder/secret".into(),
        "/etc/hostname".into(),
        "/usr/local/no-such-file".into(),
        place.outside.join("data.txt").display().to_string(),
        place.outside.join("missing/deep").display().to_string(),
        place.home.join(".ssh").display().to_string(),
        place.project.join("missing").display().to_string(),
        place.root().join("system/missing").display().to_string(),
    ];
    hidden.into_iter().flat_map(|path| ["--hide".into(), path]).collect()
}

/// Attacks in these worlds, without rules and with masks, between two looks at all of the machine.
fn nothing_real_is_changed(worlds: [World; 2]) {
    let _alone = alone();
    let before = system();
    assert!(before.len() > 2000);
    for world in worlds {
        attacked(world, |_| Vec::new());
        attacked(world, masks);
    }
    before.same_as(&system());
}

#[test]
fn a_hostile_program_of_a_user_changes_nothing_real() {
    nothing_real_is_changed([world::user_kernel(), world::user_fuse()]);
}

#[test]
fn root_runs_a_hostile_program_and_it_changes_nothing_real() {
    nothing_real_is_changed([world::root_kernel(), world::root_fuse()]);
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn root_makes_a_mount_later_on_a_shared_mount_and_no_session_can_write_it(world) {
        shared_mount_made_later(world);
    }
}

fn shared_mount_made_later(world: World) {
    let _alone = alone();
    assert!(world::is_root(), "this test mounts on the host: start tests/run.sh as root");
    let place = Place::new(world);
    let shared = place.root().join("shared");
    fs::create_dir(&shared).unwrap();
    let mount = |args: &[&str]| {
        assert!(Command::new("mount").args(args).status().unwrap().success(), "{args:?}");
    };
    let path = shared.to_str().unwrap();
    mount(&["-t", "tmpfs", "-o", "mode=0777", "none", path]);
    mount(&["--make-shared", path]);
    let sub = shared.join("sub");
    fs::create_dir(&sub).unwrap();
    fs::set_permissions(&sub, PermissionsExt::from_mode(0o777)).unwrap();
    let script = format!("echo ready; read go; touch {0}/pwned; ls {0}", sub.display());
    let mut live = place.sh(&format!("{script}; cat /proc/self/mountinfo")).stdin_open().start();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        live.expect("ready");
        mount(&["-t", "tmpfs", "-o", "mode=0777", "none", sub.to_str().unwrap()]);
        fs::write(sub.join("of-the-host"), "").unwrap();
        live.write(b"go\n");
        live.close_stdin();
    }));
    let out = live.wait();
    let found: Vec<_> = fs::read_dir(&sub).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(Command::new("umount").args(["-R", path]).status().unwrap().success());
    result.unwrap();
    assert_eq!(found, ["of-the-host"], "{}", out.text());
    let text = out.text();
    assert!(text.starts_with("ready\n"), "{text} {}", out.errors());
    assert!(!text.contains("shared:") && !text.contains("master:"), "{text}");
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn inside_reads_are_native_and_writes_are_seen_inside(world) {
        let _alone = alone();
        let place = Place::new(world);
        let script = format!(
            "cat ~/.profile README.md {}/data.txt; echo new >> README.md; rm src/main.py; cat README.md; ls src; pwd",
            place.outside.display()
        );
        let text = place.sh(&script).output().ok().text();
        let expected = format!(
            "# the owner's\n# Project\n\nOne line.\noutside\n# Project\n\nOne line.\nnew\ndeep\n{}\n",
            place.project.display()
        );
        assert_eq!(text, expected);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn the_session_is_the_owner_without_rights(world) {
        let _alone = alone();
        let place = Place::new(world);
        let facts: landbox_tests::probe::Facts = place.prober(["facts"]).output().ok().json();
        let (uid, gid) = world.ids();
        assert_eq!(facts.uids, [uid; 4]);
        assert_eq!(facts.gids, [gid; 4]);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(facts.status[set], "0000000000000000", "{set}");
        }
        assert_eq!(facts.status["NoNewPrivs"], "1");
        assert_eq!(facts.status["Seccomp"], "2");
        assert_eq!(facts.cwd, place.project.display().to_string());
        assert!(facts.fds.keys().all(|fd| *fd <= 2), "{:?}", facts.fds);
        assert!(facts.pids.len() < 8, "{:?}", facts.pids);
        if world.who == Who::User {
            assert_eq!(facts.uid_map.split(' ').next(), Some(uid.to_string().as_str()));
        }
    }
}
