//! The frames as bytes: committed vectors, so that a format can't change by accident, and every way of being refused.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use landbox_shared::digest::Digest;
use landbox_shared::event::{Event, Failure, Stage, Status};
use landbox_shared::evidence::{
    CapSets, Evidence, HelperMode, LayerRecord, MountRecord, Namespace, OwnerMap,
};
use landbox_shared::exec::Exec;
use landbox_shared::id::{LayerId, SessionId};
use landbox_shared::limits;
use landbox_shared::network::egress::{Counted, Destination, Egress, Row, Totals};
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{Access, LayerMask, LayerOp, Loss, Op, Plan, Stdio};
use landbox_shared::policy::{
    Backend, LayerKind, LayerPolicy, Mask, MaskKind, Network, NetworkKind, POLICY_VERSION, Policy,
    SeccompProfile,
};
use landbox_shared::wire::{self, Binding, EventAssembler, KeyId, WireError};
use std::path::Path;

fn abs(path: &str) -> AbsPath {
    AbsPath::new(path).unwrap()
}

fn rel(path: &str) -> RelPath {
    RelPath::new(path).unwrap()
}

fn layer(id: &str) -> LayerId {
    LayerId::new(id).unwrap()
}

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn binding() -> Binding {
    Binding { challenge: [0xc4; 32], uid: 1000, boot_id: [0xb0; 16] }
}

fn exec() -> Exec {
    Exec {
        argv: vec![b"sh".to_vec(), b"-c".to_vec(), b"echo \xff".to_vec()],
        env: vec![b"PATH=/usr/bin:/bin".to_vec(), b"EMPTY=".to_vec()],
    }
}

/// One of every operation, so that a changed or moved variant shows.
fn plan() -> Plan {
    Plan {
        session: SessionId::new("abcdef0123").unwrap(),
        policy_digest: wire::policy_digest(&policy()).unwrap(),
        session_dir: abs("/home/u/.local/state/landbox/sessions/abcdef0123"),
        launch: 2,
        uid: 1000,
        gid: 1000,
        stdio: [Stdio::Pty, Stdio::Pipe, Stdio::Pty],
        cwd: abs("/home/u/project"),
        network: Network::None,
        seccomp: SeccompProfile::Base,
        exec_digest: wire::exec_frame(&exec()).unwrap().1,
        ops: vec![
            Op::Root,
            Op::Proc,
            Op::Dev { console: None },
            Op::Dev { console: Some(abs("/dev/pts/3")) },
            Op::Tmpfs { target: abs("/run"), mode: 0o755, size: 1 << 24 },
            Op::Private { source: rel("tmp"), target: abs("/tmp"), access: Access::ReadWrite },
            Op::Layer(LayerOp {
                id: layer("home"),
                target: abs("/home/u"),
                backend: Backend::Kernel,
                masks: vec![
                    LayerMask { path: rel(".ssh"), kind: MaskKind::Dir },
                    LayerMask { path: rel(".netrc"), kind: MaskKind::File },
                    LayerMask { path: rel("later"), kind: MaskKind::Missing },
                ],
            }),
            Op::Layer(LayerOp {
                id: layer("mount-1"),
                target: abs("/home/u/project"),
                backend: Backend::Fuse,
                masks: Vec::new(),
            }),
            Op::Bind { source: abs("/a"), target: abs("/b"), access: Access::ReadOnly },
            Op::Mask { target: abs("/etc/secret"), kind: MaskKind::File, loss: Loss::EndsSession },
            Op::Mask { target: abs("/srv/app.sock"), kind: MaskKind::File, loss: Loss::Tolerated },
        ],
    }
}

fn policy() -> Policy {
    Policy {
        version: POLICY_VERSION,
        uid: 1000,
        gid: 1000,
        home: abs("/home/u"),
        project: AbsPath::new(b"/home/u/pro\xffject".to_vec()).unwrap(),
        layers: vec![
            LayerPolicy {
                id: layer("home"),
                kind: LayerKind::Home,
                target: abs("/home/u"),
                backend: Backend::Kernel,
            },
            LayerPolicy {
                id: layer("project"),
                kind: LayerKind::Project,
                target: AbsPath::new(b"/home/u/pro\xffject".to_vec()).unwrap(),
                backend: Backend::Fuse,
            },
            LayerPolicy {
                id: layer("mount-1"),
                kind: LayerKind::Mount,
                target: abs("/home/u/m"),
                backend: Backend::Fuse,
            },
            LayerPolicy {
                id: layer("worktree"),
                kind: LayerKind::Worktree,
                target: abs("/home/u/main/.git"),
                backend: Backend::Kernel,
            },
        ],
        masks: vec![
            Mask { path: abs("/home/u/.ssh"), kind: MaskKind::Dir },
            Mask { path: abs("/home/u/.netrc"), kind: MaskKind::File },
            Mask { path: abs("/etc/some-secret"), kind: MaskKind::Missing },
        ],
        read_only: vec![abs("/data/ref")],
        auth: vec![abs("/home/u/.agent")],
        credentials: vec![abs("/home/u/.claude/.credentials.json")],
        run_folders: vec![abs("/run/user/1000/fnm/bin")],
        network: Network::Host,
        seccomp: SeccompProfile::Base,
        env: vec![("A".into(), "1".into())],
        env_removed: vec!["SSH_AUTH_SOCK".into()],
    }
}

fn evidence(mounts: usize) -> Evidence {
    Evidence {
        helper_version: "0.1.0".into(),
        mode: HelperMode::Unprivileged,
        policy_digest: Digest([1; 32]),
        envelope_digest: Digest([2; 32]),
        namespaces: vec![Namespace { kind: "mnt".into(), inode: 4_026_531_841, own: true }],
        owner_map: OwnerMap::Single,
        second_user_namespace: true,
        mounts: (0..mounts)
            .map(|n| MountRecord {
                mount_point: abs(&format!("/m/{n}")),
                fs_type: "overlay".into(),
                options: "rw,nosuid,relatime".into(),
                device: "0:55".into(),
            })
            .collect(),
        mount_table_digest: Digest([3; 32]),
        mount_count: 41,
        propagation_private: true,
        caps: CapSets { effective: 0, permitted: 0, inheritable: 0, bounding: 0, ambient: 0 },
        no_new_privs: true,
        seccomp_mode: 2,
        seccomp_filters: 2,
        seccomp_profile: SeccompProfile::Base,
        landlock_abi: 7,
        network: NetworkKind::None,
        network_boundary: None,
        layers: vec![LayerRecord { id: layer("home"), backend: Backend::Kernel }],
    }
}

fn events() -> Vec<Event> {
    vec![
        Event::Challenge([9; 32]),
        Event::Ready(Box::new(evidence(2))),
        Event::ExecFailed { errno: 13 },
        Event::Exited(Status::Code(7)),
        Event::Exited(Status::Signal(9)),
        Event::Failed(Failure {
            stage: Stage::Layer,
            errno: 22,
            path: b"/home/u/\xff".to_vec(),
            detail: "mount the overlay".into(),
        }),
        Event::BoundaryLost { path: b"/home/u".to_vec() },
        Event::LinkLost,
        Event::Egress(Box::new(egress())),
    ]
}

fn egress() -> Egress {
    let row = |address: &str, protocol, port, count| Row {
        destination: Destination { address: address.parse().unwrap(), protocol, port },
        count,
    };
    Egress {
        reached: Counted {
            rows: vec![row("93.184.216.34", 6, 443, 3), row("2606:4700::53", 17, 53, 1)],
            totals: Totals { public: 3, private: 0, fixed: 1 },
        },
        refused: Counted {
            rows: vec![row("10.0.0.1", 1, 0, u64::MAX)],
            totals: Totals { public: 0, private: u64::MAX, fixed: 0 },
        },
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = |line: &[u8]| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(digits).collect()
}

/// Compares with a committed vector. `LANDBOX_BLESS=1` writes it: for a change of format that is meant, together with
/// a new `wire::VERSION`.
fn golden(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LANDBOX_BLESS").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        now, committed,
        "{name}: the format changed; old helpers and snapshots can't read it"
    );
}

fn open(envelope: &[u8]) -> Result<Plan, WireError> {
    open_for(envelope, &binding())
}

fn open_for(envelope: &[u8], binding: &Binding) -> Result<Plan, WireError> {
    let trusted = key().verifying_key();
    wire::open(envelope, binding, |id| (*id == KeyId::of(&trusted)).then_some(trusted))
        .map(|opened| opened.plan)
}

/// An envelope around any payload, put together from the description of the format, not by the code under test.
fn seal_payload(payload: &[u8], signer: &SigningKey) -> Vec<u8> {
    let mut out = b"lbxplan\0".to_vec();
    out.extend(1u16.to_le_bytes());
    out.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    out.extend([0xc4; 32]);
    out.extend(1000u32.to_le_bytes());
    out.extend([0xb0; 16]);
    out.extend(KeyId::of(&key().verifying_key()).0);
    out.extend(payload);
    let digest = Digest::of("envelope", &[&out]);
    out.extend(digest.0);
    out.extend(signer.sign(&Digest::of("signature", &[&digest.0]).0).to_bytes());
    out
}

fn payload_of(envelope: &[u8]) -> Vec<u8> {
    envelope[wire::ENVELOPE_HEAD..envelope.len() - wire::ENVELOPE_TAIL].to_vec()
}

fn sealed() -> Vec<u8> {
    wire::seal(&plan(), &binding(), &key()).unwrap()
}

// Where the fields of an envelope begin.
const LENGTH_AT: usize = 10;
const CHALLENGE_AT: usize = 14;
const UID_AT: usize = 46;
const BOOT_AT: usize = 50;
const KEY_AT: usize = 66;

#[test]
fn the_envelope_is_byte_for_byte_the_committed_one() {
    golden("envelope.hex", &hex(&sealed()));
}

#[test]
fn the_exec_frame_is_byte_for_byte_the_committed_one() {
    golden("exec.hex", &hex(&wire::exec_frame(&exec()).unwrap().0));
}

#[test]
fn the_events_are_byte_for_byte_the_committed_ones() {
    let lines: String = events()
        .iter()
        .flat_map(|e| wire::event_packets(e).unwrap())
        .map(|p| hex(&p) + "\n")
        .collect();
    golden("events.hex", &lines);
}

#[test]
fn the_digests_of_policy_and_evidence_are_the_committed_ones() {
    let policy = wire::policy_digest(&policy()).unwrap();
    let evidence = wire::evidence_frame(&evidence(2)).unwrap().1;
    golden("digests.txt", &format!("policy {policy}\nevidence {evidence}\n"));
}

#[test]
fn the_policy_document_is_the_committed_one_and_reads_back() {
    let text = serde_json::to_string_pretty(&policy()).unwrap() + "\n";
    golden("policy.json", &text);
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy());
}

#[test]
fn a_policy_document_with_an_unknown_key_is_refused() {
    let text = serde_json::to_string(&policy()).unwrap().replacen('{', "{\"extra\":1,", 1);
    assert!(serde_json::from_str::<Policy>(&text).is_err());
}

#[test]
fn a_sealed_plan_opens_to_itself() {
    let envelope = sealed();
    let head = envelope.first_chunk().unwrap();
    assert_eq!(wire::envelope_length(head).unwrap(), envelope.len());
    assert_eq!(open(&envelope).unwrap(), plan());
    assert_eq!(seal_payload(&payload_of(&envelope), &key()), envelope, "the described format");
}

#[test]
fn the_opened_envelope_names_its_digest_and_its_key() {
    let envelope = sealed();
    let opened = wire::open(&envelope, &binding(), |_| Some(key().verifying_key())).unwrap();
    let signed = &envelope[..envelope.len() - wire::ENVELOPE_TAIL];
    assert_eq!(opened.digest, Digest::of("envelope", &[signed]));
    assert_eq!(opened.key, KeyId::of(&key().verifying_key()));
}

#[test]
fn no_envelope_with_a_changed_byte_is_accepted() {
    let mut envelope = sealed();
    for at in 0..envelope.len() {
        // One bit a byte, another one each time: all of them take a minute in a debug build.
        let bit = 1 << (at % 8);
        envelope[at] ^= bit;
        assert!(open(&envelope).is_err(), "byte {at} bit {bit:#x}");
        envelope[at] ^= bit;
    }
    open(&envelope).unwrap();
}

#[test]
fn every_shortened_or_lengthened_envelope_is_refused() {
    let envelope = sealed();
    for length in 0..envelope.len() {
        assert_eq!(open(&envelope[..length]).unwrap_err(), WireError::Length, "{length}");
    }
    let mut longer = envelope;
    longer.push(0);
    assert_eq!(open(&longer).unwrap_err(), WireError::Length);
}

#[test]
fn another_magic_is_refused() {
    let mut envelope = sealed();
    envelope[..8].copy_from_slice(b"lbxexec\0");
    assert_eq!(open(&envelope).unwrap_err(), WireError::Magic);
}

#[test]
fn another_version_is_refused_and_named() {
    let mut envelope = sealed();
    envelope[8..10].copy_from_slice(&2u16.to_le_bytes());
    assert_eq!(open(&envelope).unwrap_err(), WireError::Version(2));
}

#[test]
fn an_oversized_length_is_refused_from_the_header_alone() {
    let mut envelope = sealed();
    let limit = limits::PLAN_BYTES;
    for length in [limit + 1, u32::MAX as usize] {
        let field = u32::try_from(length).unwrap().to_le_bytes();
        envelope[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&field);
        let head = envelope.first_chunk().unwrap();
        assert_eq!(wire::envelope_length(head).unwrap_err(), WireError::TooLong { length, limit });
        assert_eq!(open(&envelope).unwrap_err(), WireError::TooLong { length, limit });
    }
}

#[test]
fn a_length_that_differs_from_the_bytes_is_refused() {
    for difference in [-1i64, 1] {
        let mut envelope = sealed();
        let length = i64::try_from(payload_of(&envelope).len()).unwrap() + difference;
        let field = u32::try_from(length).unwrap().to_le_bytes();
        envelope[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&field);
        assert_eq!(open(&envelope).unwrap_err(), WireError::Length);
    }
}

#[test]
fn an_envelope_for_another_challenge_user_or_boot_is_refused_by_name() {
    let envelope = sealed();
    let here = binding();
    let other = Binding { challenge: [0xc5; 32], ..here };
    assert_eq!(open_for(&envelope, &other).unwrap_err(), WireError::Challenge);
    let other = Binding { uid: 0, ..here };
    assert_eq!(open_for(&envelope, &other).unwrap_err(), WireError::Uid(1000));
    let other = Binding { boot_id: [0xb1; 16], ..here };
    assert_eq!(open_for(&envelope, &other).unwrap_err(), WireError::BootId);
}

#[test]
fn a_binding_edited_into_the_bytes_does_not_pass_the_digest() {
    for at in [CHALLENGE_AT, UID_AT, BOOT_AT] {
        let mut envelope = sealed();
        envelope[at] ^= 1;
        let mut expected = binding();
        match at {
            CHALLENGE_AT => expected.challenge[0] ^= 1,
            UID_AT => expected.uid ^= 1,
            _ => expected.boot_id[0] ^= 1,
        }
        assert_eq!(open_for(&envelope, &expected).unwrap_err(), WireError::Digest, "{at}");
    }
}

#[test]
fn a_key_that_is_not_trusted_is_refused_and_named() {
    let stranger = SigningKey::from_bytes(&[8; 32]);
    let envelope = wire::seal(&plan(), &binding(), &stranger).unwrap();
    let id = KeyId::of(&stranger.verifying_key());
    assert_eq!(open(&envelope).unwrap_err(), WireError::UnknownKey(id));
    // A lookup that answers with a key of another name (a mislaid file) doesn't help either.
    let answer = wire::open(&envelope, &binding(), |_| Some(key().verifying_key()));
    assert_eq!(answer.unwrap_err(), WireError::UnknownKey(id));
}

#[test]
fn a_changed_payload_or_digest_is_refused() {
    for at in [wire::ENVELOPE_HEAD, sealed().len() - wire::ENVELOPE_TAIL, KEY_AT] {
        let mut envelope = sealed();
        envelope[at] ^= 1;
        assert_eq!(open(&envelope).unwrap_err(), WireError::Digest, "{at}");
    }
}

#[test]
fn a_signature_by_another_key_is_refused() {
    let envelope = seal_payload(&payload_of(&sealed()), &SigningKey::from_bytes(&[8; 32]));
    assert_eq!(open(&envelope).unwrap_err(), WireError::Signature);
}

#[test]
fn a_key_of_small_order_signs_nothing() {
    // The identity point: with it, a lax verifier accepts one signature for every message.
    let mut point = [0; 32];
    point[0] = 1;
    let weak = VerifyingKey::from_bytes(&point).unwrap();
    let mut envelope = sealed();
    envelope[KEY_AT..KEY_AT + 32].copy_from_slice(&KeyId::of(&weak).0);
    let body = envelope.len() - wire::ENVELOPE_TAIL;
    let digest = Digest::of("envelope", &[&envelope[..body]]);
    envelope[body..body + 32].copy_from_slice(&digest.0);
    envelope[body + 32..body + 64].copy_from_slice(&point);
    envelope[body + 64..].fill(0);
    let answer = wire::open(&envelope, &binding(), |_| Some(weak));
    assert_eq!(answer.unwrap_err(), WireError::Signature);
}

#[test]
fn well_signed_payloads_that_are_no_plan_are_refused() {
    let good = payload_of(&sealed());
    let mut trailing = good.clone();
    trailing.push(0);
    assert_eq!(open(&seal_payload(&trailing, &key())).unwrap_err(), WireError::Length);
    for length in (0..good.len()).step_by(5) {
        let cut = open(&seal_payload(&good[..length], &key()));
        assert!(matches!(cut, Err(WireError::Decode(_))), "cut at {length}: {cut:?}");
    }
    // The last operation's tag is the last but a path, a kind and a loss: give it a number no operation has.
    let tag = good.len() - 1 - 1 - 1 - "/srv/app.sock".len() - 1;
    let mut unknown = good;
    assert_eq!(unknown[tag], 7);
    unknown[tag] = 99;
    assert!(matches!(open(&seal_payload(&unknown, &key())), Err(WireError::Decode(_))));
}

#[test]
fn a_path_that_is_not_canonical_is_refused_while_decoding() {
    let good = payload_of(&sealed());
    let at = good.windows(11).position(|w| w == b"/etc/secret").unwrap();
    for path in
        [&b"/etc/../../"[..], b"/etc//secre", b"/etc/secre\0", b"etc/secrets", b"/etc/././.."]
    {
        let mut bad = good.clone();
        bad[at..at + 11].copy_from_slice(path);
        assert!(matches!(open(&seal_payload(&bad, &key())), Err(WireError::Decode(_))), "{path:?}");
    }
}

/// Length prefixes of the encoding: one byte to 250, else a tag and 2, 4, 8 or 16 bytes.
const HOSTILE_LENGTHS: [&[u8]; 6] = [
    &[250],
    &[251, 0xff, 0xff],
    &[252, 0xff, 0xff, 0xff, 0xff],
    &[253, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[253, 0, 0, 0, 0, 1, 0, 0, 0],
    &[254, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
];

#[test]
fn a_hostile_length_prefix_is_refused_without_reserving_memory_for_it() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("VmPeak:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = peak();
    let good = payload_of(&sealed());
    // The session id's own length is the first byte; the list of operations begins before the tag of `Root`.
    for prefix in HOSTILE_LENGTHS {
        let session = [prefix, &good[1..]].concat();
        assert!(matches!(open(&seal_payload(&session, &key())), Err(WireError::Decode(_))));
        let ops = good.windows(3).position(|w| w == [11, 0, 1]).unwrap();
        let list = [&good[..ops], prefix, &good[ops + 1..]].concat();
        assert!(matches!(open(&seal_payload(&list, &key())), Err(WireError::Decode(_))));
        let frame = exec_of(&[prefix, &[1, b'a']].concat());
        assert!(matches!(open_exec(&frame), Err(WireError::Decode(_))), "{prefix:?}");
    }
    assert!(peak() - before < 512 << 10, "KiB; a length of 4 GiB was believed");
}

#[test]
fn a_plan_above_its_bound_is_not_sealed() {
    let mut big = plan();
    let target = abs(&format!("/{}", "x".repeat(200)));
    big.ops = vec![Op::Mask { target, kind: MaskKind::Dir, loss: Loss::EndsSession }; 6000];
    let refused = wire::seal(&big, &binding(), &key()).unwrap_err();
    assert!(matches!(refused, WireError::TooLong { limit: limits::PLAN_BYTES, .. }), "{refused:?}");
}

/// An exec frame around any payload.
fn exec_of(payload: &[u8]) -> Vec<u8> {
    let mut out = b"lbxexec\0".to_vec();
    out.extend(1u16.to_le_bytes());
    out.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    out.extend(payload);
    out
}

/// Opens a frame whose digest fits.
fn open_exec(frame: &[u8]) -> Result<Exec, WireError> {
    wire::open_exec(frame, &Digest::of("exec", &[&frame[wire::EXEC_HEAD..]]))
}

#[test]
fn an_exec_frame_opens_to_itself() {
    let (frame, digest) = wire::exec_frame(&exec()).unwrap();
    assert_eq!(wire::exec_length(frame.first_chunk().unwrap()).unwrap(), frame.len());
    assert_eq!(wire::open_exec(&frame, &digest).unwrap(), exec());
    assert_eq!(exec_of(&frame[wire::EXEC_HEAD..]), frame, "the described format");
}

#[test]
fn an_exec_frame_other_than_the_one_the_plan_names_is_refused() {
    let (frame, digest) = wire::exec_frame(&exec()).unwrap();
    let other = Exec { argv: vec![b"id".to_vec()], env: Vec::new() };
    let (swapped, _) = wire::exec_frame(&other).unwrap();
    assert_eq!(wire::open_exec(&swapped, &digest).unwrap_err(), WireError::Digest);
    for at in 0..frame.len() {
        let mut changed = frame.clone();
        changed[at] ^= 1;
        assert!(wire::open_exec(&changed, &digest).is_err(), "byte {at}");
        assert!(wire::open_exec(&frame[..at], &digest).is_err(), "cut at {at}");
    }
}

#[test]
fn exec_frames_have_their_own_magic_version_bound_and_end() {
    let (frame, _) = wire::exec_frame(&exec()).unwrap();
    let mut bad = frame.clone();
    bad[..8].copy_from_slice(b"lbxplan\0");
    assert_eq!(open_exec(&bad).unwrap_err(), WireError::Magic);
    let mut bad = frame.clone();
    bad[8] = 9;
    assert_eq!(open_exec(&bad).unwrap_err(), WireError::Version(9));
    let mut bad = frame.clone();
    bad[10..14].copy_from_slice(&u32::MAX.to_le_bytes());
    let refused = open_exec(&bad).unwrap_err();
    assert!(matches!(refused, WireError::TooLong { limit: limits::EXEC_BYTES, .. }));
    let trailing = exec_of(&[&frame[wire::EXEC_HEAD..], &[0]].concat());
    assert_eq!(open_exec(&trailing).unwrap_err(), WireError::Length);
}

#[test]
fn a_long_environment_fits_the_exec_frame() {
    let long = Exec { argv: vec![b"true".to_vec()], env: vec![vec![b'x'; 6 << 20]] };
    let (frame, digest) = wire::exec_frame(&long).unwrap();
    assert_eq!(wire::open_exec(&frame, &digest).unwrap(), long);
    let longer = Exec { argv: Vec::new(), env: vec![vec![b'x'; 9 << 20]] };
    assert!(matches!(wire::exec_frame(&longer), Err(WireError::TooLong { .. })));
}

#[test]
fn secrets_of_the_environment_are_not_in_debug_output() {
    let exec = Exec { argv: vec![b"s3cret".to_vec()], env: vec![b"KEY=s3cret".to_vec()] };
    assert!(!format!("{exec:?}").contains("s3cret"));
}

fn assemble(packets: &[Vec<u8>]) -> Result<Vec<Event>, WireError> {
    let mut assembler = EventAssembler::default();
    let pushed = packets.iter().map(|packet| assembler.push(packet));
    pushed.filter_map(Result::transpose).collect()
}

#[test]
fn every_event_survives_its_packets() {
    let packets: Vec<_> = events().iter().flat_map(|e| wire::event_packets(e).unwrap()).collect();
    assert_eq!(packets.len(), events().len());
    assert_eq!(assemble(&packets).unwrap(), events());
}

#[test]
fn an_event_larger_than_a_packet_is_cut_and_put_together() {
    let big = Event::Ready(Box::new(evidence(5000)));
    let packets = wire::event_packets(&big).unwrap();
    assert!(packets.len() > 3);
    assert!(packets.iter().all(|p| p.len() <= limits::PACKET_BYTES));
    let then = wire::event_packets(&Event::LinkLost).unwrap();
    assert_eq!(assemble(&[packets, then].concat()).unwrap(), [big, Event::LinkLost]);
}

#[test]
fn an_event_above_its_bound_is_neither_sent_nor_gathered() {
    let big = Event::Ready(Box::new(evidence(60_000)));
    assert!(matches!(wire::event_packets(&big), Err(WireError::TooLong { .. })));
    let mut more = vec![0; limits::PACKET_BYTES];
    more[0] = 0;
    let refused = assemble(&vec![more; 30]).unwrap_err();
    assert!(matches!(refused, WireError::TooLong { limit: limits::EVENT_BYTES, .. }));
}

#[test]
fn packets_that_are_no_part_of_an_event_are_refused() {
    let good = wire::event_packets(&Event::Exited(Status::Code(0))).unwrap().remove(0);
    assert_eq!(assemble(&[Vec::new()]).unwrap_err(), WireError::Length);
    let mut unknown = good.clone();
    unknown[0] = 2;
    assert_eq!(assemble(&[unknown]).unwrap_err(), WireError::Magic);
    let mut trailing = good.clone();
    trailing.push(0);
    assert_eq!(assemble(&[trailing]).unwrap_err(), WireError::Length);
    assert!(matches!(assemble(&[vec![1]]), Err(WireError::Decode(_))));
    assert!(matches!(assemble(&[vec![1, 99]]), Err(WireError::Decode(_))));
    for prefix in HOSTILE_LENGTHS {
        // 5: BoundaryLost, then the length of its path.
        assert!(matches!(assemble(&[[&[1, 5], prefix].concat()]), Err(WireError::Decode(_))));
    }
}

#[test]
fn no_piece_but_the_last_may_be_short() {
    let big = Event::Ready(Box::new(evidence(5000)));
    let packets = wire::event_packets(&big).unwrap();
    // However many empty ones came, the bound of the whole would never be met.
    for short in [vec![0], vec![0, 7], packets[0][..packets[0].len() - 1].to_vec()] {
        assert_eq!(assemble(std::slice::from_ref(&short)).unwrap_err(), WireError::Length);
        assert_eq!(assemble(&[packets[0].clone(), short]).unwrap_err(), WireError::Length);
    }
    assert_eq!(assemble(&packets).unwrap(), [big]);
}

#[test]
fn the_pipe_holds_two_whole_frames_and_nothing_else() {
    let (exec, _) = wire::exec_frame(&exec()).unwrap();
    let (envelope, both) = (sealed(), [sealed(), exec.clone()].concat());
    assert_eq!(wire::frames(&both), Ok([&*envelope, &*exec]));
    for length in 0..both.len() {
        assert!(wire::frames(&both[..length]).is_err(), "{length}");
    }
    assert_eq!(wire::frames(&[&*both, b"x"].concat()), Err(WireError::Length));
}

#[test]
fn what_is_missing_is_never_more_than_the_frames_need_and_never_nothing_before_they_are_whole() {
    let both = [sealed(), wire::exec_frame(&exec()).unwrap().0].concat();
    for length in 0..both.len() {
        let missing = wire::missing(&both[..length]).unwrap();
        assert!(missing > 0 && length + missing <= both.len(), "{length}: {missing}");
    }
    assert_eq!(wire::missing(&both), Ok(0));
    assert_eq!(wire::missing(&[&*both, b"x"].concat()), Ok(0));
    let other = |at: usize| [&both[..at], b"x", &both[at + 1..]].concat();
    for at in [0, sealed().len()] {
        assert_eq!(wire::missing(&other(at)), Err(WireError::Magic));
    }
}
