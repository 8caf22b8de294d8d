//! The handshake, with a thread in the helper's place.

use super::*;
use landbox_shared::event::Status;
use landbox_shared::fixtures::{self, evidence};
use landbox_shared::wire::Binding;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

fn plan() -> Plan {
    fixtures::plan(Vec::new())
}

/// What the stand-in for the helper has: the other ends of both channels.
struct Other {
    frames: File,
    events: OwnedFd,
}

impl Other {
    fn say(&self, event: &Event, descriptors: usize) {
        let packets = wire::event_packets(event).unwrap();
        for (at, packet) in packets.iter().enumerate() {
            let fds = vec![self.events.as_fd(); descriptors];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if at == 0 && descriptors > 0 {
                assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            }
            let parts = [IoSlice::new(packet)];
            rustix::net::sendmsg(&self.events, &parts, &mut control, SendFlags::empty()).unwrap();
        }
    }

    /// Reads the envelope and the exec frame as the helper does; gives the envelope's digest.
    fn open(&mut self, key: &Key, frame: &[u8]) -> Digest {
        let mut bytes = vec![0; wire::ENVELOPE_HEAD];
        self.frames.read_exact(&mut bytes).unwrap();
        let length = wire::envelope_length(bytes.first_chunk().unwrap()).unwrap();
        bytes.resize(length, 0);
        self.frames.read_exact(&mut bytes[wire::ENVELOPE_HEAD..]).unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let hex: String = boot.trim().replace('-', "");
        let boot_id =
            std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap());
        let binding = Binding { challenge: [5; 32], uid: 1000, boot_id };
        let trusted = |id: &wire::KeyId| (*id == key.id()).then(|| key.signing().verifying_key());
        let opened = wire::open(&bytes, &binding, trusted).unwrap();
        let mut rest = vec![0; frame.len()];
        self.frames.read_exact(&mut rest).unwrap();
        assert_eq!(rest, frame);
        // The helper goes on only when the pipe has ended.
        assert_eq!(self.frames.read(&mut [0]).unwrap(), 0);
        opened.digest
    }
}

/// Runs a handshake against `script`; gives its result and the launch's folder.
fn against(
    script: impl FnOnce(Other, &Key) + Send + 'static,
) -> (Result<Stands, Refusal>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::load(&dir.path().join("config")).unwrap();
    let (frames, frames_out) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    #[expect(clippy::zombie_processes, reason = "reaped below, by its number")]
    let child = std::process::Command::new("true").spawn().unwrap();
    let mut helper = spawn::Helper {
        child: spawn::Process::new(child.id().try_into().unwrap()),
        frames: Some(File::from(frames_out)),
        events: EventSocket::new(ours),
    };
    let signals = Signals::install().unwrap();
    let folder = dir.path().join("launches/1");
    let config = dir.path().join("config");
    let played = std::thread::spawn(move || {
        let other = Other { frames: File::from(frames), events: theirs };
        script(other, &Key::load(&config).unwrap());
    });
    let order = Order { plan: plan(), exec_frame: b"frame".to_vec() };
    let made = dir.path().join("made");
    let folders = || std::fs::create_dir(&made).context(String::new);
    let result = handshake(&mut helper, &order, folders, &key, &folder, &signals);
    played.join().unwrap();
    reap(&mut helper.child);
    (result, dir)
}

#[test]
fn a_boundary_that_is_as_asked_for_stands_and_is_written_down() {
    let (result, dir) = against(|mut other, key| {
        other.say(&Event::Challenge([5; 32]), 0);
        let envelope_digest = other.open(key, b"frame");
        other.say(&Event::Ready(Box::new(Evidence { envelope_digest, ..evidence() })), 2);
    });
    let (_, _, _, merged) = result.unwrap();
    assert_eq!(merged.len(), 1);
    assert_eq!(merged[0].0.as_str(), "project");
    assert!(dir.path().join("launches/1/envelope").is_file());
    let stored = std::fs::read(dir.path().join("launches/1/evidence")).unwrap();
    assert_eq!(wire::open_evidence(&stored).unwrap().0.mounts, evidence().mounts);
}

#[test]
fn evidence_that_deviates_is_refused_at_its_stage() {
    let (result, _dir) = against(|mut other, key| {
        other.say(&Event::Challenge([5; 32]), 0);
        let envelope_digest = other.open(key, b"frame");
        let evidence = Evidence { envelope_digest, no_new_privs: false, ..evidence() };
        other.say(&Event::Ready(Box::new(evidence)), 2);
    });
    let Err(Refusal::Helper(failure)) = result else { panic!("{result:?}") };
    assert_eq!(failure.stage, Stage::Evidence);
}

#[test]
fn what_the_helper_says_failed_counts_even_where_it_stopped_reading() {
    let (result, _dir) = against(|other, _| {
        other.say(&Event::Challenge([5; 32]), 0);
        drop(other.frames);
        let failure = event::Failure {
            stage: Stage::Verify,
            errno: 0,
            path: Vec::new(),
            detail: "no".into(),
        };
        let packets = wire::event_packets(&Event::Failed(failure)).unwrap();
        rustix::net::send(&other.events, &packets[0], SendFlags::empty()).unwrap();
    });
    assert!(matches!(result, Err(Refusal::Helper(f)) if f.stage == Stage::Verify));
}

#[test]
fn silence_disorder_and_missing_descriptors_are_refused() {
    let (silent, _dir) = against(|other, _| drop(other));
    assert!(matches!(silent, Err(Refusal::Other(_))));
    let (early, _dir) = against(|other, _| {
        other.say(&Event::Exited(Status::Code(0)), 0);
    });
    assert!(matches!(early, Err(Refusal::Other(_))));
    let (few, _dir) = against(|mut other, key| {
        other.say(&Event::Challenge([5; 32]), 0);
        let envelope_digest = other.open(key, b"frame");
        other.say(&Event::Ready(Box::new(Evidence { envelope_digest, ..evidence() })), 1);
    });
    assert!(matches!(few, Err(Refusal::Other(_))));
}

#[test]
fn a_state_folder_that_fuse_overlayfs_does_not_find_is_told_from_other_faults() {
    let hint = |detail: &str| {
        let detail = detail.to_owned();
        let failure = event::Failure { stage: Stage::Layer, errno: 0, path: Vec::new(), detail };
        explain(&failure).hints.concat()
    };
    let unplaced = "fuse-overlayfs: cannot retrieve path for /proc/self/fd/516: No such file";
    assert!(hint(unplaced).contains("LANDBOX_STATE_DIR"));
    assert!(!hint("fuse-overlayfs: cannot mount").contains("LANDBOX_STATE_DIR"));
}
