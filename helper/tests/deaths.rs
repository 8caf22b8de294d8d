//! The death of any of the processes ends all others and leaves nothing.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod play;

use landbox_shared::event::{Event, Stage as At, Status};
use landbox_shared::plan::{Access, Op};
use landbox_shared::policy::Backend;
use nix::fcntl::OFlag;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{pipe2, read};
use play::{Launch, Stage, abs, procs, users};
use std::fs::{self, File};
use std::io::{IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A running session on one back end, whose task has written a line, and its processes: monitor first.
struct Running {
    stage: Stage,
    launch: Launch,
    processes: Vec<i32>,
    /// What came beside the evidence. A layer's root keeps the mount, and a daemon that serves it; nothing else does.
    beside: Vec<OwnedFd>,
}

fn running(uid: u32, backend: Backend, more: Vec<Op>) -> Running {
    let stage = Stage::new(uid);
    let mut plan = stage.plan();
    for op in &mut plan.ops {
        if let Op::Layer(layer) = op {
            layer.backend = backend;
        }
    }
    plan.ops.extend(more);
    let mut launch = stage.start();
    launch.send(&stage, plan, &["sh", "-c", "echo up; exec sleep 1000"]);
    let (event, beside) = launch.next();
    assert!(matches!(event, Event::Ready(_)), "{event:?}");
    launch.release();
    let mut up = [0; 3];
    launch.child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let monitor = i32::try_from(launch.child.id()).unwrap();
    // Monitor, init, task.
    let want = if backend == Backend::Fuse { 4 } else { 3 };
    let since = Instant::now();
    let processes = loop {
        let processes = [vec![monitor], procs::descendants(monitor)].concat();
        if processes.len() >= want || since.elapsed() > Duration::from_secs(5) {
            break processes;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(
        processes.len(),
        want,
        "{:?}",
        processes.iter().map(|p| procs::name(*p)).collect::<Vec<_>>()
    );
    Running { stage, launch, processes, beside }
}

impl Running {
    /// Waits until every process but those of the test has ended and the lock is free.
    fn is_gone(&mut self, what: &str) {
        let _ = self.launch.child.wait();
        self.beside.clear();
        procs::gone(&self.processes, 5);
        File::open(self.stage.path("session/lock")).unwrap().try_lock().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.stage.path("").to_str().unwrap()), "{what}");
    }
}

fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
}

const BACKENDS: [Backend; 2] = [Backend::Kernel, Backend::Fuse];

#[test]
fn the_death_of_any_process_ends_all_others() {
    for uid in users() {
        for backend in BACKENDS {
            let count = running(uid, backend, vec![]).processes.len();
            for victim in 0..count {
                let mut session = running(uid, backend, vec![]);
                let pid = session.processes[victim];
                let what = format!("{uid} {backend:?} {}", procs::name(pid));
                kill(pid);
                session.is_gone(&what);
            }
        }
    }
}

#[test]
fn the_end_of_the_controller_ends_the_session() {
    for uid in users() {
        for backend in BACKENDS {
            let session = running(uid, backend, vec![]);
            let Running { stage, launch, processes, beside } = session;
            let (child, events) = (launch.child, launch.events);
            // Closing its end of the socket is what its death looks like.
            drop((events, launch.envelope, beside));
            let (envelope_out, envelope) = nix::unistd::pipe().unwrap();
            drop(envelope_out);
            let launch = Launch { child, envelope: None, events: envelope };
            Running { stage, launch, processes, beside: vec![] }.is_gone("controller");
        }
    }
}

#[test]
fn a_session_that_is_never_released_leaves_nothing() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, stage.plan(), &["touch", "mark"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        let monitor = i32::try_from(launch.child.id()).unwrap();
        let processes = [vec![monitor], procs::descendants(monitor)].concat();
        let Launch { mut child, events, .. } = launch;
        drop(events);
        child.wait().unwrap();
        assert!(!processes.iter().any(|pid| procs::is_alive(*pid)));
        assert!(!stage.path("session/layers/project/upper/mark").exists());
    }
}

#[test]
fn a_session_is_locked_until_what_its_controller_handed_over_is_closed() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.send(&stage, stage.plan(), &["true"]);
        assert!(matches!(launch.next().0, Event::Ready(_)));
        launch.release();
        assert_eq!(launch.next().0, Event::Exited(Status::Code(0)));
        let (open, handed) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        let rights = [handed.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&rights)];
        let (events, word) = (launch.events.as_raw_fd(), [IoSlice::new(b"0")]);
        // A helper that was waited for too long has gone.
        let _ = sendmsg::<()>(events, &word, &rights, MsgFlags::MSG_NOSIGNAL, None);
        drop(handed);
        let lock = File::open(stage.path("session/lock")).unwrap();
        while lock.try_lock().is_err() {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(read(&open, &mut [0]), Ok(0), "{uid}");
        launch.child.wait().unwrap();
    }
}

#[test]
fn a_daemon_that_dies_is_named() {
    for uid in users() {
        let mut session = running(uid, Backend::Fuse, vec![]);
        let daemon =
            session.processes.iter().find(|pid| procs::name(**pid).starts_with("fuse")).unwrap();
        kill(*daemon);
        let Event::Failed(failure) = session.launch.next().0 else { panic!("no failure") };
        assert_eq!(failure.stage, At::Watch);
        assert!(failure.detail.contains("layer project"), "{failure}");
        session.is_gone("daemon");
    }
}

#[test]
fn a_mount_that_falls_off_ends_the_session_and_is_named() {
    for uid in users() {
        let probe = Stage::new(uid);
        probe.own_file("shown", b"shown\n");
        probe.own_file("host", b"host\n");
        let bind = Op::Bind {
            source: abs(probe.path("shown")),
            target: abs(probe.path("host")),
            access: Access::ReadOnly,
        };
        let mut session = running(uid, Backend::Kernel, vec![bind]);
        // As an editor saves: the folder entry below the mount is replaced.
        probe.own_file("new", b"new\n");
        fs::rename(probe.path("new"), probe.path("host")).unwrap();
        let lost = Event::BoundaryLost { path: abs(probe.path("host")).as_bytes().to_vec() };
        assert_eq!(session.launch.next().0, lost);
        session.is_gone("mount");
    }
}

#[test]
fn a_failure_half_way_leaves_nothing() {
    for uid in users() {
        for backend in BACKENDS {
            let stage = Stage::new(uid);
            let mut plan = stage.plan();
            for op in &mut plan.ops {
                if let Op::Layer(layer) = op {
                    layer.backend = backend;
                }
            }
            plan.cwd = abs("/no/such/folder");
            let mut launch = stage.start();
            launch.send(&stage, plan, &["true"]);
            let Event::Failed(failure) = launch.next().0 else { panic!("no failure") };
            assert_eq!((failure.stage, failure.errno), (At::Confine, libc::ENOENT), "{failure}");
            assert_eq!(failure.path, b"/no/such/folder");
            assert!(launch.is_silent());
            let monitor = i32::try_from(launch.child.id()).unwrap();
            launch.child.wait().unwrap();
            assert!(procs::descendants(monitor).is_empty());
            File::open(stage.path("session/lock")).unwrap().try_lock().unwrap();
        }
    }
}
