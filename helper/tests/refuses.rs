//! What the helper refuses. It answers with one event, `Failed`, and nothing of the session comes to be.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod play;

use ed25519_dalek::SigningKey;
use landbox_shared::event::{Event, Failure, Stage as At};
use landbox_shared::plan::{Op, Stdio};
use landbox_shared::wire;
use play::{Launch, Stage, frames, users};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio as Process;
use std::time::Duration;

const TRUE: &[&str] = &["true"];

/// The failure that ends this launch; it is the last word, and the lock is free again.
fn failure(stage: &Stage, launch: &mut Launch) -> Failure {
    let Event::Failed(failure) = launch.next().0 else { panic!("no failure") };
    assert!(launch.is_silent());
    launch.child.wait().unwrap();
    File::open(stage.path("session/lock")).unwrap().try_lock().unwrap();
    failure
}

/// Sends frames changed by `change` and gives the failure.
fn after(change: impl Fn(&Stage, &mut Vec<u8>, &mut Vec<u8>) + Copy) -> Failure {
    let mut last = None;
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        let binding = launch.binding(uid);
        let (mut envelope, mut exec) = frames(stage.plan(), TRUE, &binding, &stage.key);
        change(&stage, &mut envelope, &mut exec);
        launch.write(&[envelope, exec].concat());
        last = Some(failure(&stage, &mut launch));
    }
    last.unwrap()
}

#[test]
fn a_changed_signature_digest_or_payload_is_refused_before_decoding() {
    for from_end in [1, 64 + 1, 64 + 32 + 5] {
        let failure = after(|_, envelope, _| {
            let at = envelope.len() - from_end;
            envelope[at] ^= 1;
        });
        assert_eq!(failure.stage, At::Verify, "{failure}");
        assert!(!failure.detail.contains("decode"), "{failure}");
    }
}

#[test]
fn a_changed_exec_frame_is_refused() {
    let failure = after(|_, _, exec| *exec.last_mut().unwrap() ^= 1);
    assert_eq!(failure.stage, At::Verify, "{failure}");
}

#[test]
fn trailing_bytes_are_refused() {
    let failure = after(|_, _, exec| exec.push(0));
    assert_eq!(failure.stage, At::Receive, "{failure}");
}

#[test]
fn an_early_end_is_refused() {
    let failure = after(|_, _, exec| {
        exec.pop();
    });
    assert_eq!(failure.stage, At::Receive, "{failure}");
    let failure = after(|_, envelope, exec| {
        envelope.truncate(40);
        exec.clear();
    });
    assert_eq!(failure.stage, At::Receive, "{failure}");
}

#[test]
fn an_envelope_for_an_earlier_launch_is_refused() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut first = stage.start();
        let binding = first.binding(uid);
        let (envelope, exec) = frames(stage.plan(), TRUE, &binding, &stage.key);
        drop(first);
        let mut second = stage.start();
        second.challenge();
        second.write(&[envelope, exec].concat());
        let failure = failure(&stage, &mut second);
        assert!(failure.detail.contains("another challenge"), "{failure}");
    }
}

#[test]
fn an_envelope_for_another_user_or_boot_is_refused() {
    for uid in users() {
        for (other_uid, other_boot) in [(uid + 1, false), (uid, true)] {
            let stage = Stage::new(uid);
            let mut launch = stage.start();
            let mut binding = launch.binding(other_uid);
            binding.boot_id[0] ^= u8::from(other_boot);
            let (envelope, exec) = frames(stage.plan(), TRUE, &binding, &stage.key);
            launch.write(&[envelope, exec].concat());
            assert_eq!(failure(&stage, &mut launch).stage, At::Verify);
        }
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        let mut plan = stage.plan();
        plan.uid += 1;
        launch.send(&stage, plan, TRUE);
        assert!(failure(&stage, &mut launch).detail.contains("another user"));
    }
}

#[test]
fn a_key_that_is_not_enrolled_or_speaks_for_another_is_refused() {
    for uid in users() {
        let mut stage = Stage::new(uid);
        let enrolled = stage.key_file();
        stage.key = SigningKey::from_bytes(&[9; 32]);
        let (_, end) = stage.run(stage.plan(), TRUE);
        assert!(matches!(end, Event::Failed(Failure { stage: At::Verify, .. })), "{end:?}");
        fs::remove_file(enrolled).unwrap();

        let stage = Stage::new(uid);
        for line in [
            stage.trust_line().replace(&format!(" {uid} "), " 4242 "),
            stage.trust_line().repeat(2),
            String::new(),
        ] {
            stage.trust(&line);
            let (_, end) = stage.run(stage.plan(), TRUE);
            assert!(matches!(end, Event::Failed(Failure { stage: At::Verify, .. })), "{end:?}");
        }
    }
}

#[test]
fn trusted_keys_that_others_could_have_written_are_refused() {
    // As root the folder is root's real one, which no test opens to others.
    let uid = *users().last().unwrap();
    if uid == 0 {
        return;
    }
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap()
    };
    for mode in [0o777, 0o750, 0o701] {
        let stage = Stage::new(uid);
        open(stage.trusted(), mode);
        let (_, end) = stage.run(stage.plan(), TRUE);
        let Event::Failed(failure) = end else { panic!("{end:?}") };
        assert!(failure.detail.contains("0700"), "{failure}");
    }
    let stage = Stage::new(uid);
    open(&stage.key_file(), 0o666);
    assert!(matches!(stage.run(stage.plan(), TRUE).1, Event::Failed(_)));

    let stage = Stage::new(uid);
    let elsewhere = stage.path("elsewhere");
    fs::rename(stage.trusted(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, stage.trusted()).unwrap();
    assert!(matches!(stage.run(stage.plan(), TRUE).1, Event::Failed(_)));
}

#[test]
fn operations_out_of_order_are_refused() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut plan = stage.plan();
        plan.ops.swap(0, 1);
        let (_, end) = stage.run(plan, TRUE);
        assert!(matches!(end, Event::Failed(Failure { stage: At::Verify, .. })), "{end:?}");
        let mut plan = stage.plan();
        plan.ops.push(Op::Root);
        assert!(matches!(stage.run(plan, TRUE).1, Event::Failed(_)));
    }
}

#[test]
fn a_file_of_the_callers_never_becomes_a_descriptor_of_the_task() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start_with(|command| {
            command.stdin(Process::from(File::open(stage.path("project/file")).unwrap()));
        });
        launch.send(&stage, stage.plan(), TRUE);
        assert!(failure(&stage, &mut launch).detail.contains("descriptor 0"));

        let stage = Stage::new(uid);
        let mut plan = stage.plan();
        plan.stdio[1] = Stdio::Pty;
        assert!(matches!(stage.run(plan, TRUE).1, Event::Failed(_)));
    }
}

#[test]
fn a_session_that_runs_already_is_refused() {
    for uid in users() {
        let stage = Stage::new(uid);
        let lock = File::open(stage.path("session/lock")).unwrap();
        lock.try_lock().unwrap();
        let (_, end) = stage.run(stage.plan(), TRUE);
        let Event::Failed(failure) = end else { panic!("{end:?}") };
        assert_eq!(failure.stage, At::Lock);
        assert!(failure.detail.contains("already running"), "{failure}");
    }
}

#[test]
fn a_session_folder_that_is_open_to_others_or_a_link_is_refused() {
    for uid in users() {
        let stage = Stage::new(uid);
        fs::set_permissions(stage.path("session"), Permissions::from_mode(0o750)).unwrap();
        let (_, end) = stage.run(stage.plan(), TRUE);
        assert!(matches!(end, Event::Failed(Failure { stage: At::Lock, .. })), "{end:?}");

        let stage = Stage::new(uid);
        fs::rename(stage.path("session"), stage.path("real")).unwrap();
        std::os::unix::fs::symlink(stage.path("real"), stage.path("session")).unwrap();
        let (_, end) = stage.run(stage.plan(), TRUE);
        assert!(matches!(end, Event::Failed(Failure { stage: At::Lock, .. })), "{end:?}");

        let stage = Stage::new(uid);
        fs::remove_file(stage.path("session/lock")).unwrap();
        std::os::unix::fs::symlink("/dev/null", stage.path("session/lock")).unwrap();
        let (_, end) = stage.run(stage.plan(), TRUE);
        assert!(matches!(end, Event::Failed(Failure { stage: At::Lock, .. })), "{end:?}");
    }
}

#[test]
fn a_session_folder_that_is_replaced_meanwhile_is_refused() {
    for uid in users() {
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        let binding = launch.binding(uid);
        let (envelope, exec) = frames(stage.plan(), &["touch", "mark"], &binding, &stage.key);
        let mut pipe = launch.envelope.take().unwrap();
        pipe.write_all(&[envelope, exec].concat()).unwrap();
        // It waits for the end of the pipe by now, or soon: with the lock, and before anything is mounted.
        let lock = File::open(stage.path("session/lock")).unwrap();
        while lock.try_lock().is_ok() {
            lock.unlock().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let session = stage.path("session");
        fs::rename(&session, stage.path("away")).unwrap();
        for folder in ["layers/project/upper", "layers/project/work.1"] {
            stage.own_folder(&session.join(folder));
        }
        stage.own_file("session/lock", b"");
        drop(pipe);
        let failure = failure(&stage, &mut launch);
        assert!(failure.detail.contains("was replaced"), "{failure}");
        assert!(!session.join("layers/project/upper/mark").exists());
    }
}

#[test]
fn a_set_user_id_helper_refuses_to_start() {
    for uid in users() {
        let stage = Stage::new(uid);
        fs::set_permissions(&stage.helper, Permissions::from_mode(0o4755)).unwrap();
        let mut launch = stage.start();
        let failure = failure(&stage, &mut launch);
        assert_eq!(failure.stage, At::Start);
        assert!(failure.detail.contains("set-user-id"), "{failure}");
    }
}

#[test]
fn there_is_one_argument_and_it_prints_the_version() {
    let stage = Stage::new(users()[0]);
    let version = stage.command().arg("--version").output().unwrap();
    assert!(version.status.success());
    assert_eq!(
        String::from_utf8(version.stdout).unwrap(),
        format!("landbox-helper {}\n", env!("CARGO_PKG_VERSION"))
    );
    for arguments in [&["--help"][..], &["--version", "x"], &["x"], &[""]] {
        let refused = stage.command().args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(refused.stdout.is_empty() && !refused.stderr.is_empty());
    }
    let alone = stage.command().output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
    assert!(String::from_utf8(alone.stderr).unwrap().contains("started by landbox"));
}

#[test]
fn a_word_before_or_other_than_the_release_ends_the_session() {
    for uid in users() {
        for word in [&b"lbxgo"[..], b"lbxgo\0\0", b"x"] {
            let stage = Stage::new(uid);
            let mut launch = stage.start();
            launch.send(&stage, stage.plan(), &["touch", "mark"]);
            assert!(matches!(launch.next().0, Event::Ready(_)));
            launch.say(word);
            assert!(launch.is_silent());
            launch.child.wait().unwrap();
            assert!(!stage.path("session/layers/project/upper/mark").exists());
        }
        let stage = Stage::new(uid);
        let mut launch = stage.start();
        launch.say(wire::RELEASE);
        launch.send(&stage, stage.plan(), &["touch", "mark"]);
        assert!(launch.is_silent());
        launch.child.wait().unwrap();
        assert!(!stage.path("session/layers/project/upper/mark").exists());
    }
}
