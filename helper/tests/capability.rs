//! What the file capability does not buy. Played by an ordinary user whose key root enrolled, and by one whose key it did
//! not; as root, since files of several users are needed. The machine's keys lie in an `/etc` of the test's own.

// The lint knows test functions, not the functions they share.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod play;

use landbox_shared::event::{Event, Failure, Stage as At, Status};
use landbox_shared::evidence::HelperMode;
use landbox_shared::id::LayerId;
use landbox_shared::network::{NETWORK_POLICY_VERSION, NetworkPolicy, Zone};
use landbox_shared::plan::{Access, LayerOp, Op, Plan};
use landbox_shared::policy::{Backend, Network, SeccompProfile};
use landbox_shared::wire::KeyId;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use play::{Launch, Stage, abs, behind, copy_program, enrolled, frames, set_capabilities, users};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio as Process};
use std::time::{Duration, Instant};

/// The other ordinary user. Nobody needs to know the number.
const OTHER: u32 = 1001;

/// Most launches of one session.
const LAUNCHES: u32 = 13;

/// A stage of the ordinary user's, with a helper that has the capability. `None` where the tests don't run as root.
fn capable() -> Option<Stage> {
    let uid = users().get(1).copied()?;
    let stage = Stage::new(uid);
    set_capabilities(&stage, "cap_sys_admin=p");
    // A launch needs a work folder of its own.
    for launch in 2..=LAUNCHES {
        stage.own_folder(&stage.path(&format!("session/layers/project/work.{launch}")));
    }
    Some(stage)
}

/// Starts the helper where these keys count, behind more words.
fn start(stage: &Stage, lines: &[String], more: &str) -> Launch {
    let script = enrolled(stage, lines, more);
    behind(stage, &["setpriv", "unshare", "-m", "sh", "-c", &script])
}

fn start_enrolled(stage: &Stage) -> Launch {
    start(stage, &[stage.trust_line()], "")
}

/// Tries a plan whose signer is not enrolled: refused before anything is made.
fn not_enrolled(stage: &Stage, plan: Plan, script: &str) {
    let mut launch = start(stage, &[], "");
    launch.send(stage, plan, &["sh", "-c", script]);
    let failure = refusal(launch.next().0);
    assert_eq!(failure.stage, At::Verify);
    assert!(failure.detail.contains("not trusted"), "{failure}");
    assert!(launch.is_silent());
}

/// Runs a plan, first as one whose key nobody enrolled, then as one whose key is, and gives the output and the last event.
fn run(stage: &Stage, plan: Plan, script: &str) -> (String, Event) {
    not_enrolled(stage, plan.clone(), script);
    run_enrolled(stage, plan, script)
}

/// The second half of it.
fn run_enrolled(stage: &Stage, plan: Plan, script: &str) -> (String, Event) {
    let mut launch = start_enrolled(stage);
    launch.send(stage, plan, &["sh", "-c", script]);
    match launch.next().0 {
        Event::Ready(evidence) => {
            assert_eq!(evidence.mode, HelperMode::Capable);
            launch.release();
        }
        other => return (String::new(), other),
    }
    let output = launch.output();
    (output, launch.next().0)
}

/// As [`run`], for what must run.
fn output(stage: &Stage, plan: Plan, script: &str) -> String {
    let (output, end) = run(stage, plan, script);
    assert!(matches!(end, Event::Exited(_)), "{end:?}");
    output
}

fn refusal(event: Event) -> Failure {
    match event {
        Event::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// A folder or file that belongs to somebody else.
fn foreign(stage: &Stage, name: &str, owner: u32, mode: u32, text: Option<&str>) -> PathBuf {
    let path = stage.path(name);
    match text {
        Some(text) => fs::write(&path, text).unwrap(),
        None => fs::create_dir(&path).unwrap(),
    }
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
    path
}

fn as_caller(stage: &Stage, program: &str, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).uid(stage.uid).gid(stage.gid).current_dir("/");
    command.output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&[&*out.stdout, &*out.stderr].concat()).into_owned()
}

/// Waits for something that comes soon, or never.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Every process whose program is the stage's helper.
fn helpers(stage: &Stage) -> Vec<u32> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    let pids = pids.filter_map(|name| name.parse().ok());
    pids.filter(|pid| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == stage.helper)
    })
    .collect()
}

/// Mounts of the stage's where the caller is. There are none, ever. (Others come and go on a machine that does more.)
fn mounts(stage: &Stage) -> Vec<String> {
    let (table, place) = (fs::read_to_string("/proc/self/mountinfo").unwrap(), stage.path(""));
    let place = place.to_str().unwrap();
    table.lines().filter(|line| line.contains(place)).map(str::to_owned).collect()
}

/// A session whose task waits: monitor, init and task.
fn waiting(stage: &Stage) -> (Launch, [u32; 3]) {
    let mut launch = start_enrolled(stage);
    launch.send(stage, stage.plan(), &["sh", "-c", "echo up > up; exec cat"]);
    assert!(matches!(launch.next().0, Event::Ready(_)));
    launch.release();
    let up = stage.path("session/layers/project/upper/up");
    wait_until("the task runs", || up.exists());
    let monitor = launch.child.id();
    let init = children(monitor)[0];
    let task = children(init)[0];
    (launch, [monitor, init, task])
}

#[test]
fn a_user_whose_key_is_not_enrolled_is_refused_before_anything_is_made() {
    let Some(stage) = capable() else { return };
    let other = Stage::new(stage.uid);
    let for_other = stage.trust_line().replace(&format!(" {} ", stage.uid), &format!(" {OTHER} "));
    for (lines, word) in [
        (vec![], "not trusted"),
        (vec![other.trust_line()], "not trusted"),
        (vec![for_other], "speaks for uid 1001"),
    ] {
        let mut launch = start(&stage, &lines, "");
        launch.send(&stage, stage.plan(), &["touch", "made"]);
        let failure = refusal(launch.next().0);
        assert_eq!(failure.stage, At::Verify);
        assert!(failure.detail.contains(word), "{failure}");
        assert!(launch.is_silent());
        assert!(!stage.path("session/layers/project/upper/made").exists());
    }
}

#[test]
fn an_envelope_for_another_user_or_group_is_refused() {
    let Some(stage) = capable() else { return };
    let mut launch = start_enrolled(&stage);
    let mut binding = launch.binding(stage.uid);
    binding.uid = OTHER;
    let (envelope, exec) = frames(stage.plan(), &["true"], &binding, &stage.key);
    launch.write(&[envelope, exec].concat());
    assert_eq!(refusal(launch.next().0).stage, At::Verify);
    type Change = fn(&mut Plan);
    let changes: [Change; 3] = [|p| p.uid = OTHER, |p| p.uid = 0, |p| p.gid = 0];
    for change in changes {
        let mut plan = stage.plan();
        change(&mut plan);
        let failure = refusal(run(&stage, plan, "true").1);
        assert!(failure.detail.contains("another user or group"), "{failure}");
    }
}

#[test]
fn nothing_of_the_capability_is_left_in_any_process() {
    let Some(stage) = capable() else { return };
    let (mut launch, pids) = waiting(&stage);
    let here = fs::read_link("/proc/self/ns/user").unwrap();
    for pid in pids {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let status = read("status");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
        assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
        assert!(status.contains(&format!("Uid:\t{0}\t{0}\t{0}\t{0}", stage.uid)), "{status}");
        // The monitor alone stays in the caller's user namespace.
        let outside = fs::read_link(format!("/proc/{pid}/ns/user")).unwrap() == here;
        assert_eq!(outside, pid == pids[0]);
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let target = fs::read_link(fd.unwrap().path()).unwrap_or_default();
            let target = target.to_string_lossy().into_owned();
            assert!(!target.starts_with("/etc") && !target.contains("trusted.d"), "{target}");
        }
    }
    assert_eq!(mounts(&stage), [] as [String; 0]);
    drop(launch.child.stdin.take());
    assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
    wait_until("nothing is left", || {
        let _ = launch.child.try_wait();
        helpers(&stage).is_empty()
    });
}

/// The capability permitted, and not raised.
#[track_caller]
fn is_held_and_not_raised(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("CapPrm:\t0000000000200000"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
}

#[test]
fn while_it_holds_the_capability_its_caller_can_not_look_into_it_or_steer_it() {
    let Some(stage) = capable() else { return };
    let mut launch = start_enrolled(&stage);
    let binding = launch.binding(stage.uid);
    let pid = launch.child.id();
    is_held_and_not_raised(pid);
    let attach = format!(
        "import ctypes,os\nc=ctypes.CDLL(None,use_errno=True)\n\
         print('attach',c.ptrace(16,{pid},None,None))\n\
         for f in 'mem','environ','maps','fd/4','exe','cwd','root','ns/user':\n\
         \ttry: os.open('/proc/{pid}/'+f,os.O_RDONLY); print('opened',f)\n\
         \texcept OSError: pass\n"
    );
    let looked = || said(&as_caller(&stage, "python3", &["-c", &attach]));
    assert_eq!(looked(), "attach -1\n");
    // Again when the one call was made: init is there and waits for its maps and for the end of the pipe.
    let (envelope, exec) = frames(stage.plan(), &["true"], &binding, &stage.key);
    let mut pipe = launch.envelope.take().unwrap();
    pipe.write_all(&[envelope, exec].concat()).unwrap();
    wait_until("the namespaces are made", || {
        let init = children(pid).first().copied();
        init.is_some_and(|init| {
            fs::read_to_string(format!("/proc/{init}/gid_map")).is_ok_and(|map| !map.is_empty())
        })
    });
    is_held_and_not_raised(pid);
    assert_eq!(looked(), "attach -1\n");
    drop(pipe);
    assert!(matches!(launch.next().0, Event::Ready(_)));
}

#[test]
fn the_capability_is_gone_before_another_program_is_executed() {
    let Some(stage) = capable() else { return };
    // In the link's place one that never says it is ready, so that the monitor has something to start yet.
    let link = stage.path("link");
    fs::write(&link, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&link, Permissions::from_mode(0o755)).unwrap();
    let script = enrolled(&stage, &[stage.trust_line()], "");
    let script = format!("mount --bind {} /usr/bin/slirp4netns && {script}", link.display());
    let mut launch = behind(&stage, &["setpriv", "unshare", "-m", "sh", "-c", &script]);
    let (public, private) = (Zone::Block, Zone::Block);
    let (version, dns_servers) = (NETWORK_POLICY_VERSION, vec![]);
    let policy = NetworkPolicy { version, public, private, dns_servers, proxy_mode: None };
    let (network, seccomp) = (Network::Policy(policy), SeccompProfile::Restricted);
    launch.send(&stage, Plan { network, seccomp, ..stage.plan() }, &["true"]);
    let monitor = launch.child.id();
    let is_link = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    };
    wait_until("the link runs", || children(monitor).iter().any(is_link));
    for pid in [vec![monitor], children(monitor)].concat() {
        let here = fs::read_link(format!("/proc/{pid}/ns/user")).unwrap()
            == fs::read_link("/proc/self/ns/user").unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(!here || status.contains("CapPrm:\t0000000000000000"), "{status}");
    }
    launch.child.kill().unwrap();
    launch.child.wait().unwrap();
    wait_until("every process is gone", || helpers(&stage).is_empty());
}

#[test]
fn keys_that_somebody_else_could_have_put_there_do_not_count() {
    let Some(stage) = capable() else { return };
    for (spoil, word) in [
        ("chown 1000 /etc", "other than root"),
        ("chmod o+w /etc", "other than root"),
        ("chown 1001 /etc/landbox", "other than root"),
        ("chmod g+w /etc/landbox", "other than root"),
        ("chown 1000 /etc/landbox/trusted.d", "other than root"),
        ("chmod 777 /etc/landbox/trusted.d", "other than root"),
        ("mv /etc/landbox /etc/real && ln -s real /etc/landbox", "opening"),
        ("chown 1000 /etc/landbox/trusted.d/*.pub", "only its owner can write"),
        ("chmod g+w /etc/landbox/trusted.d/*.pub", "only its owner can write"),
        (
            "for k in /etc/landbox/trusted.d/*.pub; do mv $k /etc/k && ln -s /etc/k $k; done",
            "opening",
        ),
        ("for k in /etc/landbox/trusted.d/*.pub; do rm $k && mkfifo $k; done", "regular file"),
        ("true", ""),
    ] {
        let script = enrolled(&stage, &[stage.trust_line()], "");
        let script = script.replace("exec setpriv", &format!("{spoil} && exec setpriv"));
        let mut launch = behind(&stage, &["setpriv", "unshare", "-m", "sh", "-c", &script]);
        launch.send(&stage, stage.plan(), &["true"]);
        match launch.next().0 {
            Event::Ready(_) => assert!(word.is_empty(), "{spoil}"),
            other => {
                let failure = refusal(other);
                assert_eq!(failure.stage, At::Verify, "{spoil}: {failure}");
                assert!(!word.is_empty() && failure.detail.contains(word), "{spoil}: {failure}");
            }
        }
    }
}

#[test]
fn who_enters_the_namespaces_from_outside_is_the_caller_and_nobody_else() {
    let Some(stage) = capable() else { return };
    let (root, other) = (
        foreign(&stage, "roots", 0, 0o600, Some("root's\n")),
        foreign(&stage, "others", OTHER, 0o600, Some("another's\n")),
    );
    let folder = foreign(&stage, "roots-folder", 0, 0o755, None);
    let (launch, [monitor, init, task]) = waiting(&stage);
    let script = format!(
        "cat /proc/self/uid_map | tr -s ' '; for f in {0} {1}; do cat $f; echo x >> $f; done; touch {2}/made; \
         for u in 1 1001 65534; do setpriv --reuid $u true && echo became $u; done; chown 1001 {3}/up && echo gave; \
         cp /bin/sh {3}/shell; chmod 4755 {3}/shell; mknod {3}/disk b 8 0 && echo device; \
         mount -o remount,rw /sys 2>/dev/null && echo remounted; echo 0 > /proc/sys/kernel/randomize_va_space && echo switched",
        root.display(),
        other.display(),
        folder.display(),
        stage.path("session/layers/project/upper").display()
    );
    for pid in [monitor, init, task] {
        for kinds in [&["-U"][..], &["-U", "-m"], &["-a"]] {
            let pid = pid.to_string();
            let words =
                [&["-t", &pid], kinds, &["--preserve-credentials", "sh", "-c", &script]].concat();
            let said = said(&as_caller(&stage, "nsenter", &words));
            for word in ["root's", "another's", "became", "gave", "device", "remounted", "switched"]
            {
                assert!(!said.lines().any(|line| line.starts_with(word)), "{kinds:?}: {said}");
            }
            let maps =
                said.lines().filter(|line| line.ends_with(" 1") || line.contains("4294967295"));
            for map in maps {
                let fields: Vec<&str> = map.split_whitespace().collect();
                assert!(fields[1] == "1000" || fields == ["1000", "0", "1"], "{map}");
            }
        }
    }
    assert_eq!(fs::read_to_string(&root).unwrap(), "root's\n");
    assert_eq!(fs::read_to_string(&other).unwrap(), "another's\n");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    // A set-user-id program made there is the caller's own.
    let shell = stage.path("session/layers/project/upper/shell");
    assert!(!shell.exists() || fs::metadata(shell).unwrap().uid() == stage.uid);
    drop(launch);
}

#[test]
fn another_ordinary_user_neither_enters_nor_steers_a_session() {
    let Some(stage) = capable() else { return };
    let (mut launch, pids) = waiting(&stage);
    let other = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(words)
            .uid(OTHER)
            .gid(OTHER)
            .current_dir("/")
            .output()
            .unwrap()
            .status
            .success()
    };
    for pid in pids.map(|pid| pid.to_string()) {
        assert!(!other("nsenter", &["-t", &pid, "-U", "--preserve-credentials", "true"]));
        assert!(!other("nsenter", &["-t", &pid, "-m", "true"]));
        assert!(!other("kill", &["-9", &pid]));
        assert!(!other("kill", &["-STOP", &pid]));
        for name in ["mem", "environ", "fd/0", "root/etc/passwd", "cwd"] {
            let path = format!("/proc/{pid}/{name}");
            assert!(!other("head", &["-c", "1", &path]), "{path}");
        }
        assert!(!other("prlimit", &["--pid", &pid, "--nofile=1:1"]));
    }
    drop(launch.child.stdin.take());
    assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
}

#[test]
fn what_the_caller_can_not_read_or_write_it_can_not_inside() {
    let Some(stage) = capable() else { return };
    let secret = foreign(&stage, "secret", 0, 0o600, Some("root's\n"));
    let system = foreign(&stage, "system", 0, 0o755, None);
    fs::write(system.join("conf"), "root's\n").unwrap();
    fs::set_permissions(system.join("conf"), Permissions::from_mode(0o600)).unwrap();
    let theirs = foreign(&stage, "theirs", OTHER, 0o700, None);
    fs::write(theirs.join("letter"), "another's\n").unwrap();
    let mut plan = stage.plan();
    for path in [&secret, &theirs] {
        let (source, target) = (abs(path), abs(path));
        plan.ops.push(Op::Bind { source, target, access: Access::ReadWrite });
    }
    let script = format!(
        "cat {0} {1}/conf {2}/letter; echo x >> {0}; echo x > {1}/conf; echo x > {1}/new; touch {2}/new; rm -f {1}/conf; \
         mv {1} {1}2; chmod 666 {0}; chown 1000 {0}; ls {2}",
        secret.display(),
        system.display(),
        theirs.display()
    );
    let said = output(&stage, plan, &script);
    assert!(!said.contains("root's\n") && !said.contains("another's"), "{said}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "root's\n");
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(system.join("conf")).unwrap(), "root's\n");
    assert_eq!(fs::read_dir(&system).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 1);
}

#[test]
fn a_layer_over_a_folder_of_roots_shows_no_more_of_it_and_changes_nothing() {
    let Some(stage) = capable() else { return };
    let system = foreign(&stage, "system", 0, 0o755, None);
    for (name, mode) in [("secret", 0o600), ("open", 0o644)] {
        fs::write(system.join(name), "root's\n").unwrap();
        fs::set_permissions(system.join(name), Permissions::from_mode(mode)).unwrap();
    }
    stage.own_folder(&stage.path("session/layers/mount-1/upper"));
    stage.own_folder(&stage.path("session/layers/mount-1/work.1"));
    let mut plan = stage.plan();
    plan.ops.push(Op::Layer(LayerOp {
        id: LayerId::new("mount-1").unwrap(),
        target: abs(&system),
        backend: Backend::Kernel,
        masks: vec![],
    }));
    let script = format!(
        "cd {} && cat open secret; echo x > secret; echo x > new; rm -f open",
        system.display()
    );
    let said = output(&stage, plan, &script);
    assert_eq!(said.matches("root's").count(), 1, "{said}");
    for name in ["secret", "open"] {
        assert_eq!(fs::read_to_string(system.join(name)).unwrap(), "root's\n");
    }
    assert!(!system.join("new").exists());
    // Nothing that came to be belongs to anybody else.
    for entry in fs::read_dir(stage.path("session/layers/mount-1/upper")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().uid(), stage.uid);
    }
}

#[test]
fn a_folder_the_caller_can_not_enter_is_no_source_and_no_place() {
    let Some(stage) = capable() else { return };
    let closed = foreign(&stage, "closed", 0, 0o700, None);
    fs::create_dir(closed.join("in")).unwrap();
    let inner = abs(closed.join("in"));
    let open = abs(stage.path("project"));
    let bind = |source, target| Op::Bind { source, target, access: Access::ReadOnly };
    for op in [bind(inner.clone(), open.clone()), bind(open, inner)] {
        let mut plan = stage.plan();
        plan.ops.push(op);
        let failure = refusal(run(&stage, plan, "true").1);
        assert_eq!((failure.stage, failure.errno), (At::Mount, libc::EACCES), "{failure}");
    }
    let mut plan = stage.plan();
    plan.session_dir = abs(closed.join("in"));
    assert_eq!(refusal(run(&stage, plan, "true").1).stage, At::Lock);
}

#[test]
fn anothers_session_folder_lock_or_layer_is_not_taken() {
    let Some(stage) = capable() else { return };
    type Spoil = fn(&Stage);
    let cases: [(Spoil, At); 5] = [
        (|s| chown(s.path("session"), Some(OTHER), None).unwrap(), At::Lock),
        (|s| chown(s.path("session/lock"), Some(OTHER), None).unwrap(), At::Lock),
        (
            |s| {
                fs::remove_file(s.path("session/lock")).unwrap();
                std::os::unix::fs::symlink("/etc/passwd", s.path("session/lock")).unwrap();
            },
            At::Lock,
        ),
        (
            |s| {
                let folder = foreign(s, "victim", OTHER, 0o777, None);
                let upper = s.path("session/layers/project/upper");
                fs::remove_dir(&upper).unwrap();
                std::os::unix::fs::symlink(folder, upper).unwrap();
            },
            At::Layer,
        ),
        (
            |s| fs::set_permissions(s.path("session"), Permissions::from_mode(0o777)).unwrap(),
            At::Lock,
        ),
    ];
    for (spoil, at) in cases {
        let stage = capable().unwrap();
        spoil(&stage);
        let failure = refusal(run(&stage, stage.plan(), "true").1);
        assert_eq!(failure.stage, at, "{failure}");
    }
    drop(stage);
}

#[test]
fn set_id_and_capable_programs_inside_are_only_programs() {
    let Some(stage) = capable() else { return };
    let copy = |name: &str, how: &[&str]| {
        let path = stage.path(name);
        copy_program("/usr/bin/id", &path);
        assert!(Command::new(how[0]).args(&how[1..]).arg(&path).status().unwrap().success());
        path
    };
    let [setuid, setgid] = [copy("setuid", &["chmod", "4755"]), copy("setgid", &["chmod", "2755"])];
    // And the helper itself: no capability comes of it.
    let script = format!(
        "{} -u; {} -g; grep NoNewPrivs /proc/self/status; {} 3</dev/null 4</dev/null 2>/dev/null; echo $?",
        setuid.display(),
        setgid.display(),
        stage.helper.display()
    );
    let said = output(&stage, stage.plan(), &script);
    assert_eq!(said, format!("{}\n{}\nNoNewPrivs:\t1\n2\n", stage.uid, stage.gid));
}

#[test]
fn processes_outside_are_neither_signalled_nor_traced() {
    let Some(stage) = capable() else { return };
    let mut outside =
        Command::new("sleep").arg("60").uid(stage.uid).gid(stage.gid).spawn().unwrap();
    let pid = outside.id();
    let script = format!(
        "kill -9 {pid}; kill -9 -1; kill -9 1; cat /proc/{pid}/environ; \
         python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16,{pid},None,None))'; true"
    );
    // The last but one kills the task itself.
    let (_, end) = run(&stage, stage.plan(), &script);
    assert!(matches!(end, Event::Exited(_)), "{end:?}");
    assert!(outside.try_wait().unwrap().is_none(), "it was killed");
    outside.kill().unwrap();
    outside.wait().unwrap();
}

/// Swaps a path for a link and back, as the caller, as fast as it goes.
struct Swapper(Child);

impl Swapper {
    fn start(stage: &Stage, path: &Path, to: &Path) -> Self {
        let script = format!(
            "while :; do mv -T {0} {0}.away && ln -sT {1} {0}; rm -f {0}; mv -T {0}.away {0}; done",
            path.display(),
            to.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).uid(stage.uid).gid(stage.gid).process_group(0);
        let quiet = command.stdin(Process::null()).stdout(Process::null()).stderr(Process::null());
        Self(quiet.spawn().unwrap())
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        // The shell and whatever it has under way: a last `mv` must not come after this.
        let group = Pid::from_raw(self.0.id().cast_signed());
        killpg(group, Signal::SIGKILL).unwrap();
        self.0.wait().unwrap();
        // Bounded: whoever inherits the dead one may be in no hurry to look at it.
        for _ in 0..1000 {
            if killpg(group, None).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn no_path_of_the_plan_that_is_swapped_meanwhile_leads_elsewhere() {
    let Some(stage) = capable() else { return };
    let uid = stage.uid;
    drop(stage);
    for name in [
        "project",
        "session",
        "session/lock",
        "session/layers",
        "session/layers/project/upper",
        "session/layers/project/work.1",
        "session/tmp",
        "bound",
    ] {
        let stage = capable().unwrap();
        // Root's, and the caller's own: what no operation names.
        let root = foreign(&stage, "victim-root", 0, 0o755, None);
        let own = foreign(&stage, "victim-own", uid, 0o700, None);
        // The test's own folder is root's: the caller must be able to rename in it.
        chown(stage.path(""), Some(uid), Some(uid)).unwrap();
        for folder in ["session/tmp", "bound", "shown"] {
            stage.own_folder(&stage.path(folder));
        }
        let mut plan = stage.plan();
        let (target, access) = (abs("/run/tmp"), Access::ReadWrite);
        let source = landbox_shared::path::RelPath::new("tmp").unwrap();
        plan.ops.push(Op::Private { source, target, access });
        let (source, target) = (abs(stage.path("bound")), abs(stage.path("shown")));
        plan.ops.push(Op::Bind { source, target, access });
        let shown = stage.path("shown");
        let script =
            format!("for d in . /run/tmp {}; do echo x > $d/written; done", shown.display());
        let undisturbed = Plan { launch: LAUNCHES, ..plan.clone() };
        output(&stage, undisturbed, &script);
        for victim in [&root, &own] {
            let swapper = Swapper::start(&stage, &stage.path(name), victim);
            for _ in 0..LAUNCHES / 2 {
                // It fails, or it runs; a helper that ended without a word would panic here.
                let (_, end) = run_enrolled(&stage, plan.clone(), &script);
                plan.launch += 1;
                assert!(matches!(end, Event::Exited(_) | Event::Failed(_)), "{name}: {end:?}");
            }
            drop(swapper);
            let (path, away) = (stage.path(name), stage.path(&format!("{name}.away")));
            if away.symlink_metadata().is_ok() {
                let _ = fs::remove_file(&path);
                fs::rename(away, path).unwrap();
            }
            assert_eq!(fs::read_dir(victim).unwrap().count(), 0, "{name}");
        }
    }
}

#[test]
fn a_mount_put_over_a_source_meanwhile_shows_nothing_the_caller_could_not_see() {
    let Some(stage) = capable() else { return };
    // What lies under the mount is root's to hide, and stays hidden: binds take the mounts along.
    let hidden = stage.path("project/vault");
    stage.own_folder(&hidden);
    fs::write(hidden.join("under"), "under\n").unwrap();
    let script = enrolled(&stage, &[stage.trust_line()], "");
    let script = format!("mount -t tmpfs tmpfs {} && {script}", hidden.display());
    let shown = stage.path("shown");
    stage.own_folder(&shown);
    let mut plan = stage.plan();
    plan.ops.pop();
    let (source, target) = (abs(stage.path("project")), abs(&shown));
    plan.ops.push(Op::Bind { source, target, access: Access::ReadOnly });
    let mut launch = behind(&stage, &["setpriv", "unshare", "-m", "sh", "-c", &script]);
    let look = format!(
        "cat {0}/vault/under vault/under; umount vault; umount {0}/vault; cat vault/under",
        shown.display()
    );
    launch.send(&stage, plan, &["sh", "-c", &look]);
    assert!(matches!(launch.next().0, Event::Ready(_)));
    launch.release();
    let said = launch.output();
    assert!(!said.lines().any(|line| line == "under"), "{said}");
}

/// The plan of one more launch, which needs a work folder of its own.
fn next_launch(stage: &Stage) -> Plan {
    let launch = (LAUNCHES + 1..)
        .find(|launch| !stage.path(&format!("session/layers/project/work.{launch}")).exists());
    let launch = launch.unwrap();
    stage.own_folder(&stage.path(&format!("session/layers/project/work.{launch}")));
    Plan { launch, ..stage.plan() }
}

/// How a start may end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// With a session that ends well: it takes no harm.
    Runs,
    /// Refused, or without a word.
    Refused,
    /// One or the other, by how much the limit leaves.
    Either,
}

/// Whether a session began and ended; in no case with a right that its caller hasn't.
fn harmless(stage: &Stage, lines: &[String], more: &str, what: &str) -> bool {
    let plan = next_launch(stage);
    let mut launch = start(stage, lines, more);
    let text = "grep -h -e ^Cap -e ^Uid /proc/self/status; touch /etc/made";
    let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        launch.send(stage, plan, &["sh", "-c", text]);
        launch.next().0
    }));
    let begun = match answered {
        // It ended before the challenge, or was killed by a limit.
        Err(_) | Ok(Event::Failed(_)) => false,
        Ok(Event::Ready(evidence)) => {
            assert_eq!(evidence.flaw(), None, "{what}");
            launch.release();
            let said = launch.output();
            for line in said.lines().filter(|line| line.starts_with("Cap")) {
                assert!(line.ends_with("\t0000000000000000"), "{what}: {said}");
            }
            assert!(
                !said.contains("Uid:\t0") && !Path::new("/etc/made").exists(),
                "{what}: {said}"
            );
            // Its end is told, too.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| launch.next().0))
                .is_ok_and(|end| matches!(end, Event::Exited(_)))
        }
        Ok(other) => panic!("{what}: {other:?}"),
    };
    let _ = launch.child.kill();
    let _ = launch.child.wait();
    begun
}

#[test]
fn no_way_to_start_it_gives_more() {
    let Some(stage) = capable() else { return };
    let lib = stage.path("x.so");
    fs::write(&lib, "no library").unwrap();
    let long = "$(head -c 100000 /dev/zero | tr '\\0' A)";
    let env = |text: &str| format!("env {text}");
    let python = |code: &str| {
        let imports = "import ctypes,os,signal,sys,tempfile";
        format!("python3 -c '{imports}; {code}; os.execv(sys.argv[1], sys.argv[1:])'")
    };
    for (what, more, end) in [
        ("few descriptors", "prlimit --nofile=6:6".to_owned(), Start::Either),
        ("no files", "prlimit --fsize=0".to_owned(), Start::Runs),
        ("no core", "prlimit --core=0".to_owned(), Start::Runs),
        ("no memory", "prlimit --as=20000000".to_owned(), Start::Either),
        ("little stack", "prlimit --stack=65536".to_owned(), Start::Either),
        ("no processes", "prlimit --nproc=1".to_owned(), Start::Either),
        ("no locked memory", "prlimit --memlock=0".to_owned(), Start::Runs),
        ("no waiting signals", "prlimit --sigpending=0".to_owned(), Start::Either),
        ("no priority", "nice -n 19".to_owned(), Start::Runs),
        ("short of time", "prlimit --cpu=1".to_owned(), Start::Either),
        ("ignored signals", "env --ignore-signal".to_owned(), Start::Runs),
        ("blocked signals", "env --block-signal".to_owned(), Start::Runs),
        (
            "hostile environment",
            env(&format!(
                "LD_PRELOAD={0} LD_LIBRARY_PATH={0} LD_AUDIT={0} GLIBC_TUNABLES=glibc.malloc.check=3 RUST_BACKTRACE=full \
             HOME=/../../etc XDG_CONFIG_HOME=/proc/self/root/etc MALLOC_CHECK_=3 IFS=/",
                lib.display()
            )),
            Start::Runs,
        ),
        ("huge environment", env(&format!("BIG={long} ANOTHER={long}")), Start::Runs),
        ("no terminal", python("[os.close(n) for n in (0,1,2)]"), Start::Refused),
        ("no pipe", python("os.close(3)"), Start::Refused),
        ("no event socket", python("os.close(4)"), Start::Refused),
        ("a file for a pipe", python("os.dup2(os.open(\"/etc\",0),3)"), Start::Refused),
        ("a pipe for the event socket", python("os.dup2(3,4)"), Start::Refused),
        ("a deleted folder", python("d=tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)"), Start::Runs),
        ("an alarm", python("signal.alarm(1)"), Start::Either),
        ("another session", "setsid -f".to_owned(), Start::Runs),
        ("a tracer's child", python("ctypes.CDLL(None).prctl(0x59616d61,-1,0,0,0)"), Start::Runs),
        ("a signal at its parent's end", python("ctypes.CDLL(None).prctl(1,9,0,0,0)"), Start::Runs),
        ("no new privileges", "setpriv --no-new-privs".to_owned(), Start::Refused),
        ("a short bounding set", "--bounding-set -sys_admin".to_owned(), Start::Refused),
        ("an own user namespace", "unshare -U".to_owned(), Start::Refused),
        ("root of an own user namespace", "unshare -Urm".to_owned(), Start::Refused),
    ] {
        let begun = harmless(&stage, &[stage.trust_line()], &more, what);
        match end {
            Start::Runs => assert!(begun, "{what}"),
            Start::Refused => assert!(!begun, "{what}"),
            Start::Either => {}
        }
        // And whose key nobody enrolled gets nothing by any of them.
        assert!(!harmless(&stage, &[], &more, what), "{what}");
    }
}

#[test]
fn a_traced_start_gets_no_capability_and_is_refused() {
    let Some(stage) = capable() else { return };
    // PTRACE_TRACEME, then the helper; the parent lets it go on at every stop.
    let code = "import ctypes,os,sys\n\
                c=ctypes.CDLL(None)\n\
                p=os.fork()\n\
                if p==0:\n\
                \tc.ptrace(0,0,None,None); os.execv(sys.argv[1],sys.argv[1:])\n\
                while True:\n\
                \tw,s=os.waitpid(p,0)\n\
                \tif not os.WIFSTOPPED(s): break\n\
                \tc.ptrace(7,p,None,None)\n";
    let file = stage.path("trace.py");
    fs::write(&file, code).unwrap();
    let mut launch = start(&stage, &[stage.trust_line()], &format!("python3 {}", file.display()));
    let failure = refusal(launch.next().0);
    assert_eq!(failure.stage, At::Start);
    assert!(failure.detail.contains("traced"), "{failure}");
    launch.child.wait().unwrap();
}

#[test]
fn arguments_of_any_number_and_length_start_no_session() {
    let Some(stage) = capable() else { return };
    let helper = stage.helper.to_str().unwrap();
    let long = "A".repeat(100_000);
    for words in [&[&*long][..], &["--version", "x"], &["-3"], &["--help"], &vec!["x"; 1000]] {
        let out = as_caller(&stage, helper, words);
        assert_eq!(out.status.code(), Some(2), "{}", said(&out));
        assert!(out.stderr.len() < 200);
        // With what a session needs beside them.
        let mut launch = stage.start_with(|command| {
            command.args(words);
        });
        assert!(launch.is_silent());
        assert_eq!(launch.child.wait().unwrap().code(), Some(2));
    }
    let code = format!(
        "import ctypes; n=(ctypes.c_char_p*1)(None); ctypes.CDLL(None).execve(b\"{helper}\",n,n)"
    );
    let out = as_caller(&stage, "python3", &["-c", &code]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
}

#[test]
fn killed_at_any_moment_it_leaves_no_process_and_no_mount() {
    let Some(stage) = capable() else { return };
    let mut plan = stage.plan();
    for pause in [0, 1, 2, 4, 8, 12, 16, 24, 32, 48] {
        let mut launch = start_enrolled(&stage);
        launch.send(&stage, plan.clone(), &["cat"]);
        plan.launch += 1;
        std::thread::sleep(Duration::from_millis(pause));
        launch.child.kill().unwrap();
        launch.child.wait().unwrap();
        wait_until("every process is gone", || helpers(&stage).is_empty());
    }
    assert_eq!(mounts(&stage), [] as [String; 0]);
    // And the session can be launched again.
    assert_eq!(output(&stage, plan, "echo again"), "again\n");
}

/// Starts the helper where `/dev/log` is this socket.
fn start_with_log(stage: &Stage, lines: &[String], log: &Path) -> Launch {
    let (dev, log) = (stage.path("dev"), log.display());
    fs::create_dir_all(&dev).unwrap();
    let dev = dev.display();
    let script = format!(
        "mount --rbind /dev {dev} && mount -t tmpfs -o mode=755 tmpfs /dev && cd /dev && mkdir pts shm && \
         mount --bind {dev}/pts pts && touch log && mount --bind {log} log && \
         for n in null zero full random urandom tty; do touch $n && mount --bind {dev}/$n $n; done && cd / && {}",
        enrolled(stage, lines, "")
    );
    behind(stage, &["setpriv", "unshare", "-m", "sh", "-c", &script])
}

#[test]
fn launches_and_refusals_are_told_to_the_log_in_words_of_its_own() {
    let Some(stage) = capable() else { return };
    let path = stage.path("log");
    let log = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut heard = [0; 1024];
    let id = KeyId::of(&stage.key.verifying_key());
    for (lines, what, priority) in
        [(vec![], "refused at verify", 84), (vec![stage.trust_line()], "launch", 85)]
    {
        let mut launch = start_with_log(&stage, &lines, &path);
        let pid = launch.child.id();
        let since = Instant::now();
        launch.send(&stage, stage.plan(), &["true"]);
        let length = log.recv(&mut heard).unwrap();
        let line = String::from_utf8_lossy(&heard[..length]).into_owned();
        let wanted =
            format!("<{priority}>landbox-helper[{pid}]: {what} uid={} key={id}", stage.uid);
        assert_eq!(line, wanted);
        let ready = matches!(launch.next().0, Event::Ready(_));
        assert_eq!(ready, !lines.is_empty());
        // Whoever tries again and again has to wait.
        assert!(ready || since.elapsed() >= Duration::from_secs(1));
    }
}

#[test]
fn a_log_that_takes_nothing_more_holds_no_launch_up() {
    let Some(stage) = capable() else { return };
    let path = stage.path("log");
    let _log = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"full", &path).is_ok() {}
    let mut launch = start_with_log(&stage, &[stage.trust_line()], &path);
    launch.send(&stage, stage.plan(), &["true"]);
    assert!(matches!(launch.next().0, Event::Ready(_)));
}
