//! What a hostile init can say: its caller may trace it until the task is released.

use super::*;
use crate::sys::process;
use landbox_shared::fixtures;
use landbox_shared::id::LayerId;
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::fs::File;

const STAGE: Stage = Stage::Watch;

/// Says something to a monitor that is so far, as init, and gives the monitor's answer and what the controller heard.
fn said(phase: Phase, message: &Message, beside: usize) -> (Result<Turn, Failure>, Vec<OwnedFd>) {
    let kind = SockType::SeqPacket;
    let (ours, controller) =
        socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let (events, heard) = (Events::new(ours).unwrap(), Events::new(controller).unwrap());
    let [channel, init] = Channel::pair(["init", "the monitor"], STAGE).unwrap();
    // Stands for init, and does nothing: it is a fork of one thread of many.
    let Some(child) = process::clone(CloneFlags::empty()).unwrap() else { process::leave(0) };
    let mut monitor = Monitor {
        events: &events,
        init: child,
        channel,
        daemons: Vec::new(),
        link: None,
        awaited: false,
        recorder: None,
        due: 0,
        phase,
        watch: None,
    };
    let null = File::open("/dev/null").unwrap();
    init.send(STAGE, message, &vec![null.as_fd(); beside]).unwrap();
    let answer = monitor.hear_init();
    assert_eq!(process::signal(&monitor.init.pidfd, Signal::SIGKILL), Ok(()));
    ns::end(&monitor.init);
    drop(monitor);
    drop(events);
    (answer, heard.receive(STAGE).unwrap().map(|(_, fds)| fds).unwrap_or_default())
}

fn refusal(phase: Phase, message: &Message, beside: usize) -> String {
    let (answer, heard) = said(phase, message, beside);
    assert!(heard.is_empty(), "{message:?}");
    answer.unwrap_err().detail
}

/// Evidence of one layer and two mounts, with so many numbers of mounts.
fn ready(numbers: usize) -> Message {
    Message::Ready(Box::new(fixtures::evidence()), vec![1; numbers])
}

#[test]
fn init_is_heard_in_order_or_not_at_all() {
    let layer = LayerId::new("project").unwrap();
    let never = [
        Message::Mapped,
        Message::Isolated,
        Message::OneOnly,
        Message::FuseStarted,
        Message::LinkReady,
        Message::Mounted(1, 1),
        Message::Entered,
        Message::Confined(6),
        Message::Release,
    ];
    let early = [Message::Fuse(layer), Message::Link(true), Message::AwaitLink];
    for phase in [Phase::Preparing, Phase::Confined, Phase::Shown, Phase::Running] {
        let (late, again) = (phase != Phase::Preparing, phase != Phase::Confined);
        let out_of_turn = never.iter().chain(early.iter().filter(|_| late));
        for message in out_of_turn.chain(again.then_some(&ready(2))) {
            let why = refusal(phase, message, 2);
            assert!(why.contains("out of turn"), "{message:?}: {why}");
        }
    }
}

#[test]
fn evidence_comes_with_a_list_of_mounts_and_one_root_a_layer() {
    for (numbers, beside, word) in [
        (2, 0, "no list of mounts"),
        (2, 1, "one root for each layer"),
        (2, 3, "one root for each layer"),
        (1, 2, "one number a mount"),
        (3, 2, "one number a mount"),
    ] {
        let why = refusal(Phase::Confined, &ready(numbers), beside);
        assert!(why.contains(word), "{why}");
    }
    let (answer, heard) = said(Phase::Confined, &ready(2), 2);
    assert!(matches!(answer, Ok(Continue(()))));
    // Init, and the root of the layer.
    assert_eq!(heard.len(), 2);
}
