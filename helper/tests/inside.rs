//! What the task is, seen from inside and in the evidence.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod play;

use landbox_shared::event::{Event, Status};
use landbox_shared::evidence::{HelperMode, OwnerMap};
use landbox_shared::plan::{Access, Op, Plan, Stdio};
use landbox_shared::policy::{Network, SeccompProfile};
use nix::sys::signal::Signal;
use play::{Stage, abs, procs, users};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::process::Stdio as Process;

/// Runs a script as every user and gives each output with the user.
fn script(change: impl Fn(&mut Plan), text: &str) -> Vec<(u32, String, Event)> {
    let run = |uid| {
        let stage = Stage::new(uid);
        let mut plan = stage.plan();
        change(&mut plan);
        let (output, end) = stage.run(plan, &["sh", "-c", text]);
        (uid, output, end)
    };
    users().into_iter().map(run).collect()
}

fn outputs(text: &str) -> Vec<(u32, String)> {
    let ended = |(uid, output, end)| {
        assert_eq!(end, Event::Exited(Status::Code(0)), "{output}");
        (uid, output)
    };
    script(|_| {}, text).into_iter().map(ended).collect()
}

#[test]
fn the_task_has_no_descriptor_but_its_three() {
    // The fourth is the listing's own.
    for (_, output) in outputs("ls -l /proc/self/fd | sed -n 's/.* -> //p'") {
        let (pipes, rest): (Vec<&str>, Vec<&str>) =
            output.lines().partition(|line| line.starts_with("pipe:"));
        assert_eq!((pipes.len(), rest.len()), (3, 1), "{output}");
    }
}

#[test]
fn descriptors_and_a_folder_the_caller_left_open_reach_nobody() {
    for uid in users() {
        let stage = Stage::new(uid);
        stage.own_file("project/left", b"open\n");
        let left = fs::File::open(stage.path("project/left")).unwrap();
        nix::fcntl::fcntl(&left, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))
            .unwrap();
        let mut launch = stage.start_with(|command| {
            command.current_dir(stage.path("project"));
        });
        launch.send(&stage, stage.plan(), &["sh", "-c", "echo up; exec cat"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        launch.child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        let monitor = i32::try_from(launch.child.id()).unwrap();
        let [init, task] = procs::descendants(monitor)[..] else { panic!("init and the task") };
        // What can't be dumped is root's to look into.
        let seen =
            if nix::unistd::geteuid().is_root() { vec![monitor, init, task] } else { vec![] };
        for pid in seen {
            for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
                let target = fs::read_link(fd.unwrap().path()).unwrap_or_default();
                assert!(!target.ends_with("left"), "{pid}: {target:?}");
            }
            let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
            assert_eq!(folder.ends_with("project"), pid == task, "{folder:?}");
        }
        drop(launch.child.stdin.take());
        assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
    }
}

#[test]
fn the_task_has_users_and_mounts_of_its_own_inside_those_of_init() {
    // What can't be dumped is root's to look into.
    for uid in users().into_iter().filter(|_| nix::unistd::geteuid().is_root()) {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, stage.plan(), &["sh", "-c", "echo up; exec cat"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        launch.child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        let monitor = i32::try_from(launch.child.id()).unwrap();
        let [init, task] = procs::descendants(monitor)[..] else { panic!("init and the task") };
        for kind in ["user", "mnt", "pid", "ipc", "uts"] {
            let of = |pid| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
            assert_ne!(of(monitor), of(init), "{kind}");
            assert_eq!(of(init) != of(task), ["user", "mnt"].contains(&kind), "{kind}");
        }
    }
}

#[test]
fn the_task_has_no_rights_and_cannot_gain_any() {
    let text = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status";
    for (_, output) in outputs(text) {
        for line in output.lines().filter(|line| line.starts_with("Cap")) {
            assert!(line.ends_with("0000000000000000"), "{output}");
        }
        assert!(output.contains("NoNewPrivs:\t1") && output.contains("Seccomp:\t2"), "{output}");
        assert_eq!(output.lines().count(), 7, "{output}");
    }
    // PR_GET_SECUREBITS: all but KEEP_CAPS on, and each locked.
    for (_, output) in outputs("python3 -c 'import ctypes; print(ctypes.CDLL(None).prctl(27))'") {
        assert_eq!(output, format!("{}\n", 0b1110_1111));
    }
}

#[test]
fn the_filter_of_the_plan_is_the_one_on_the_task() {
    let text = "unshare --user true 2>/dev/null && echo made || echo refused";
    for (profile, answer) in
        [(SeccompProfile::Base, "made\n"), (SeccompProfile::Restricted, "refused\n")]
    {
        for (_, output, _) in script(|plan| plan.seccomp = profile, text) {
            assert_eq!(output, answer, "{profile:?}");
        }
    }
}

#[test]
fn the_task_gets_what_the_caller_had_and_not_what_the_helper_set() {
    let text = "umask; ulimit -Sc; grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let before = "umask 027; ulimit -Sc 77; exec \"$0\"";
    for uid in users() {
        let stage = Stage::new(uid);
        let helper = stage.helper.clone();
        let mut launch = stage.start_with(|command| {
            let mut shell = std::process::Command::new("/bin/sh");
            shell.args(["-c", before]).arg(&helper).env_clear();
            shell.env("HOME", stage.path("home"));
            shell.stdin(Process::piped()).stdout(Process::piped()).stderr(Process::piped());
            if nix::unistd::geteuid().as_raw() != uid {
                std::os::unix::process::CommandExt::uid(&mut shell, uid);
                std::os::unix::process::CommandExt::gid(&mut shell, uid);
            }
            *command = shell;
        });
        launch.send(&stage, stage.plan(), &["sh", "-c", text]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        let output = launch.output();
        let ignored = ignored_by_the_caller();
        assert_eq!(output, format!("0027\n77\nSigBlk:\t{:016x}\nSigIgn:\t{ignored:016x}\n", 0));
    }
}

/// The signals this process ignores, but for the one that the standard library ignores for itself.
fn ignored_by_the_caller() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    u64::from_str_radix(line, 16).unwrap() & !(1 << (libc::SIGPIPE - 1))
}

#[test]
fn the_environment_is_the_one_that_was_sent() {
    for (_, output) in outputs("env | grep -v -E '^(PWD|_|OLDPWD|SHLVL)='| sort") {
        assert_eq!(output, "MARK=1\nPATH=/usr/bin:/bin\n");
    }
}

#[test]
fn the_task_starts_in_its_folder_and_cannot_walk_out_of_the_root() {
    for uid in users() {
        let stage = Stage::new(uid);
        let text = "pwd; readlink /proc/self/cwd; stat -c %d:%i / /../.. | uniq | wc -l";
        let (output, _) = stage.run(stage.plan(), &["sh", "-c", text]);
        let project = stage.path("project");
        assert_eq!(output, format!("{0}\n{0}\n1\n", project.display()));
    }
}

#[test]
fn init_is_out_of_the_tasks_reach() {
    let text = "(: < /proc/1/mem) 2>/dev/null && echo mem; readlink /proc/1/exe /proc/1/root /proc/1/fd/3; \
                kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null; sleep 0.1; ls /proc | grep -c '^[0-9]'";
    for (_, output) in outputs(text) {
        let count: u32 = output.trim().parse().unwrap_or_else(|_| panic!("{output}"));
        assert!((2..10).contains(&count), "{output}");
    }
}

#[test]
fn the_task_signals_nothing_but_its_own() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        let text = "kill -0 1 2>/dev/null && echo reached; kill -0 $$ && echo own";
        launch.send(&stage, stage.plan(), &["sh", "-c", text]);
        let Event::Ready(evidence) = launch.next().0 else { panic!("no evidence") };
        launch.release();
        let output = launch.output();
        // Of init's own ids: without Landlock's scope it could be signalled, which it takes from outside alone.
        let wanted = if evidence.landlock_abi == 0 { "reached\nown\n" } else { "own\n" };
        assert_eq!(output, wanted);
    }
}

#[test]
fn the_exit_status_is_the_tasks() {
    for (text, status) in [
        ("exit 0", Status::Code(0)),
        ("exit 255", Status::Code(255)),
        ("kill -TERM $$", Status::Signal(15)),
        ("kill -34 $$", Status::Signal(34)),
        // One that is left behind is ended and does not hold the session.
        ("sleep 1000 >/dev/null 2>&1 </dev/null & exit 3", Status::Code(3)),
    ] {
        for (_, output, end) in script(|_| {}, text) {
            assert_eq!(end, Event::Exited(status), "{text}: {output}");
        }
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_told_from_one_that_is_not_there() {
    for uid in users() {
        for (argv, errno) in [
            ("no-such-program", libc::ENOENT),
            ("/no/such/program", libc::ENOENT),
            ("./file", libc::EACCES),
            ("/etc", libc::EACCES),
        ] {
            let stage = Stage::new(uid);
            let (_, end) = stage.run(stage.plan(), &[argv]);
            assert_eq!(end, Event::ExecFailed { errno }, "{argv}");
        }
        let stage = Stage::new(uid);
        stage.own_file("project/script", b"echo $0 $1\n");
        fs::set_permissions(
            stage.path("project/script"),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap();
        let (output, _) = stage.run(stage.plan(), &["./script", "a b"]);
        assert_eq!(output, "./script a b\n");
    }
}

#[test]
fn without_network_there_is_loopback_alone_and_it_is_up() {
    let ended = script(
        |plan| plan.network = Network::None,
        "sed -n 's/:.*//p' /proc/net/dev; cat /sys/class/net/lo/operstate >/dev/null; ping -c1 -W1 127.0.0.1 >/dev/null 2>&1 || \
         bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>&1 | grep -c refused",
    );
    for (_, output, _) in ended {
        assert_eq!(output.split_whitespace().next(), Some("lo"), "{output}");
        assert!(!output.contains("eth"), "{output}");
        assert_ne!(output.split_whitespace().last(), Some("0"), "{output}");
    }
}

#[test]
fn signals_from_outside_reach_the_task() {
    for uid in users() {
        for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGWINCH] {
            let stage = Stage::new(uid);
            let mut launch = stage.start();
            let name = signal.as_str().trim_start_matches("SIG");
            let text =
                format!("trap 'echo got; exit 5' {name}; echo ready; while :; do sleep 0.05; done");
            launch.send(&stage, stage.plan(), &["sh", "-c", &text]);
            let (_, beside) = launch.next();
            launch.release();
            let mut ready = [0; 6];
            launch.child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
            // SAFETY: no pointer is passed.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    beside[0].as_raw_fd(),
                    signal as i32,
                    0,
                    0,
                )
            };
            assert_eq!(sent, 0);
            assert_eq!(launch.output(), "got\n", "{signal}");
            assert_eq!(launch.next().0, Event::Exited(Status::Code(5)));
        }
    }
}

#[test]
fn the_terminal_is_the_tasks_own_and_controls_it() {
    for uid in users() {
        let stage = Stage::new(uid);
        let pty = nix::pty::openpty(None, None).unwrap();
        let name = nix::unistd::ttyname(&pty.slave).unwrap();
        chown(&name, Some(uid), None).unwrap();
        let mut plan = stage.plan();
        plan.stdio = [Stdio::Pty, Stdio::Pty, Stdio::Pipe];
        plan.ops[2] = Op::Dev { console: Some(abs(&name)) };
        let slave = || Process::from(pty.slave.try_clone().unwrap());
        let mut launch = stage.start_with(|command| {
            command.stdin(slave()).stdout(slave());
        });
        let text = "tty >&2; echo typed > /dev/tty; ps -o stat= -p $$ >&2; [ -p /proc/self/fd/2 ] && echo pipe >&2";
        launch.send(&stage, plan, &["sh", "-c", text]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        let mut errors = String::new();
        launch.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
        let mut lines = errors.lines();
        assert_eq!(lines.next(), Some("/dev/console"), "{errors}");
        // Leader of a session, in the terminal's foreground.
        assert!(
            lines.next().is_some_and(|stat| stat.contains('s') && stat.contains('+')),
            "{errors}"
        );
        assert_eq!(lines.next(), Some("pipe"), "{errors}");
        let mut typed = [0; 5];
        fs::File::from(pty.master).read_exact(&mut typed).unwrap();
        assert_eq!(&typed, b"typed");
    }
}

#[test]
fn the_evidence_says_what_is_true() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut plan = stage.plan();
        plan.network = Network::None;
        plan.ops.push(Op::Bind {
            source: abs("/usr/share"),
            target: abs("/usr/share"),
            access: Access::ReadOnly,
        });
        let mut launch = stage.start();
        let policy = plan.policy_digest;
        launch.send(
            &stage,
            plan,
            &[
                "sh",
                "-c",
                "readlink /proc/self/ns/mnt /proc/self/ns/user; wc -l < /proc/self/mountinfo",
            ],
        );
        let (event, beside) = launch.next();
        let Event::Ready(evidence) = event else { panic!("{event:?}") };
        assert_eq!(beside.len(), 2);
        launch.release();
        let output = launch.output();
        let root = uid == 0;
        assert_eq!(evidence.mode, if root { HelperMode::Root } else { HelperMode::Unprivileged });
        assert_eq!(evidence.owner_map, if root { OwnerMap::Full } else { OwnerMap::Single });
        assert!(
            evidence.second_user_namespace && evidence.caps.is_empty() && evidence.no_new_privs
        );
        assert_eq!((evidence.seccomp_mode, evidence.policy_digest), (2, policy));
        assert!(evidence.seccomp_filters >= 1 && evidence.propagation_private);
        assert!(evidence.namespaces.iter().all(|n| n.own) && evidence.namespaces.len() == 6);
        let inode = |kind: &str| {
            let found = evidence.namespaces.iter().find(|n| n.kind == kind).unwrap();
            format!("{kind}:[{}]", found.inode)
        };
        let expected = format!("{}\n{}\n{}\n", inode("mnt"), inode("user"), evidence.mount_count);
        assert_eq!(output, expected);
        let points: Vec<String> =
            evidence.mounts.iter().map(|m| m.mount_point.to_string()).collect();
        let project = stage.path("project").display().to_string();
        for point in ["/", "/proc", "/dev", "/run", &project, "/usr/share"] {
            assert!(points.iter().any(|p| p == point), "{point}: {points:?}");
        }
        let shown = evidence.mounts.iter().find(|m| m.mount_point == abs("/usr/share")).unwrap();
        assert!(shown.options.split(',').any(|o| o == "ro"), "{shown:?}");
    }
}

#[test]
fn input_reaches_the_task_and_its_end_is_seen() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, stage.plan(), &["cat"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        launch.child.stdin.as_mut().unwrap().write_all(b"\0bin\xff\n").unwrap();
        drop(launch.child.stdin.take());
        let mut back = Vec::new();
        launch.child.stdout.take().unwrap().read_to_end(&mut back).unwrap();
        assert_eq!(back, b"\0bin\xff\n");
        assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
    }
}
