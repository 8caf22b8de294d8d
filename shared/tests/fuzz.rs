//! The decoders of everything that comes from somebody hostile, fed with changed versions of a committed corpus: no input
//! may end the program, and what is accepted must be what it says.
//!
//! `LANDBOX_FUZZ_SECONDS` says how long all of them are tried together, an equal part each (CI: 60), `LANDBOX_FUZZ_SEED` where the
//! changes begin; the same seed gives the same inputs. Without nightly and without a C++ library on purpose: it runs wherever the tests run. An
//! input that failed is printed, and belongs into `corpus/` with the fix.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use ed25519_dalek::{Signer, SigningKey};
use landbox_shared::bytes;
use landbox_shared::digest::Digest;
use landbox_shared::event::{Event, Status};
use landbox_shared::explain;
use landbox_shared::holds;
use landbox_shared::inner::Message;
use landbox_shared::judge::judge;
use landbox_shared::limits;
use landbox_shared::mountinfo;
use landbox_shared::netlink::{self, Answer};
use landbox_shared::network::egress::Egress;
use landbox_shared::network::route;
use landbox_shared::network::ruleset::{count, dump};
use landbox_shared::procfs;
use landbox_shared::trust;
use landbox_shared::wire::{self, Assembler, Binding, EventAssembler, KeyId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// As often as in any case, however slow the machine.
const ROUNDS: u64 = 300;
const DECODERS: u64 = 8;
/// Longest changed input: well above every seed.
const LONGEST: usize = 64 << 10;

fn number(name: &str) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let prefix = format!("{kind}-");
    let wanted = paths
        .iter()
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix));
    let seeds: Vec<_> = wanted.map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "no seed of {kind}");
    seeds
}

/// Numbers that follow each other without a pattern (xorshift64*).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    /// One change of the kinds that break decoders.
    fn change(&mut self, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
        // Where a length may stand: what a varint of each width begins with, and the borders of integers.
        const EDGES: [&[u8]; 8] = [
            b"\xfb\xff\xff",
            b"\xfc\xff\xff\xff\xff",
            b"\xfd\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xfd\x00\x00\x00\x00\x00\x00\x00\x80",
            b"\xff",
            b"\x00",
            b"\x7f",
            b"\x80",
        ];
        let at = self.below(bytes.len() + 1);
        let end = (at + 1 + self.below(16)).min(bytes.len());
        match self.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.byte(),
            2 => {
                let edge = EDGES[self.below(EDGES.len())];
                let end = (at + edge.len()).min(bytes.len());
                bytes.splice(at..end, edge.iter().copied());
            }
            3 => {
                let new: Vec<u8> = (0..self.below(8)).map(|_| self.byte()).collect();
                bytes.splice(at..at, new);
            }
            4 if at < end => drop(bytes.drain(at..end)),
            5 if at < end => {
                let again = bytes[at..end].repeat(1 + self.below(64));
                bytes.splice(at..at, again);
            }
            6 => {
                let other = &others[self.below(others.len())];
                let from = self.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            7 => bytes.truncate(at),
            _ if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(self.byte() % 3),
            _ => bytes.push(self.byte()),
        }
        bytes.truncate(LONGEST);
    }
}

/// Tries `decode` on every seed, and on changed ones, until the time is up.
fn fuzz(name: &str, seeds: &[Vec<u8>], mut decode: impl FnMut(&[u8])) {
    seeds.iter().for_each(|seed| decode(seed));
    let time =
        Duration::from_secs(number("LANDBOX_FUZZ_SECONDS")) / u32::try_from(DECODERS).unwrap();
    let until = Instant::now() + time;
    // Never 0, where the generator stands still.
    let mut chance =
        Chance(number("LANDBOX_FUZZ_SEED").wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1);
    let mut round = 0;
    while round < ROUNDS || Instant::now() < until {
        let mut bytes = seeds[chance.below(seeds.len())].clone();
        for _ in 0..1 + chance.below(6) {
            chance.change(&mut bytes, seeds);
        }
        if catch_unwind(AssertUnwindSafe(|| decode(&bytes))).is_err() {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            panic!("{name}, round {round}: {hex}");
        }
        round += 1;
    }
}

fn binding() -> Binding {
    Binding { challenge: [0xc4; 32], uid: 1000, boot_id: [0xb0; 16] }
}

/// An envelope whose digest and signature are good around any payload, so that it is decoded.
fn sealed(payload: &[u8], key: &SigningKey) -> Vec<u8> {
    let mut out = b"lbxplan\0".to_vec();
    out.extend(wire::VERSION.to_le_bytes());
    out.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    out.extend(binding().challenge);
    out.extend(binding().uid.to_le_bytes());
    out.extend(binding().boot_id);
    out.extend(KeyId::of(&key.verifying_key()).0);
    out.extend(payload);
    let digest = Digest::of("envelope", &[&out]);
    out.extend(digest.0);
    out.extend(key.sign(&Digest::of("signature", &[&digest.0]).0).to_bytes());
    out
}

fn framed(magic: &[u8; 8], payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&magic[..], &wire::VERSION.to_le_bytes(), &length, payload].concat()
}

#[test]
fn plans_signed_by_anybody_are_decoded_judged_and_told() {
    let key = SigningKey::from_bytes(&[7; 32]);
    fuzz("plan", &corpus("plan"), |payload| {
        let envelope = sealed(payload, &key);
        let Ok(opened) = wire::open(&envelope, &binding(), |_| Some(key.verifying_key())) else {
            return;
        };
        if judge(&opened.plan).is_ok() {
            // What would be carried out means one thing alone.
            let again = wire::seal(&opened.plan, &binding(), &key).unwrap();
            let reread = wire::inspect(&again).unwrap();
            assert!(reread.fits && reread.plan == opened.plan);
        }
        let told = explain::plan(&opened.plan);
        let plain =
            told.iter().all(|line| bytes::plain(line).bytes().all(|b| (b' '..=b'~').contains(&b)));
        assert!(plain);
    });
}

#[test]
fn envelopes_and_pipes_of_any_bytes_are_refused_or_whole() {
    let key = SigningKey::from_bytes(&[7; 32]);
    let exec =
        corpus("exec").into_iter().map(|payload| framed(b"lbxexec\0", &payload)).next().unwrap();
    let mut seeds: Vec<_> = corpus("plan").iter().map(|payload| sealed(payload, &key)).collect();
    seeds.extend(seeds.clone().iter().map(|envelope| [&envelope[..], &exec].concat()));
    fuzz("pipe", &seeds, |bytes| {
        if let Ok([envelope, exec]) = wire::frames(bytes) {
            assert_eq!([envelope, exec].concat(), bytes);
        }
        let _ = wire::signer(bytes);
        if let Ok(opened) = wire::open(bytes, &binding(), |_| Some(key.verifying_key())) {
            // Nothing but what was signed.
            assert!(seeds.iter().any(|seed| seed == bytes), "{opened:?}");
        }
        let _ = wire::inspect(bytes);
    });
}

#[test]
fn commands_of_any_bytes_are_refused_or_read() {
    fuzz("exec", &corpus("exec"), |payload| {
        let frame = framed(b"lbxexec\0", payload);
        let digest = Digest::of("exec", &[payload]);
        for digest in [digest, Digest([0; 32])] {
            if let Ok(exec) = wire::open_exec(&frame, &digest) {
                let _ = exec.flaw();
                let _ = explain::exec(&exec);
            }
        }
    });
}

#[test]
fn evidence_of_any_bytes_is_refused_or_judged() {
    let key = SigningKey::from_bytes(&[7; 32]);
    let plans: Vec<_> = corpus("plan")
        .iter()
        .map(|payload| wire::inspect(&sealed(payload, &key)).unwrap().plan)
        .collect();
    fuzz("evidence", &corpus("evidence"), |payload| {
        let frame = framed(b"lbxevid\0", payload);
        let Ok((evidence, digest)) = wire::open_evidence(&frame) else { return };
        assert_eq!(wire::evidence_frame(&evidence).unwrap().1, {
            let (again, _) = wire::evidence_frame(&evidence).unwrap();
            wire::open_evidence(&again).unwrap().1
        });
        for plan in &plans {
            let _ = holds::check(plan, &digest, &evidence);
        }
    });
}

#[test]
fn packets_of_any_bytes_make_an_event_or_none() {
    let evidence = corpus("evidence");
    let ready = evidence.iter().map(|payload| {
        let (evidence, _) = wire::open_evidence(&framed(b"lbxevid\0", payload)).unwrap();
        wire::event_packets(&Event::Ready(Box::new(evidence))).unwrap().concat()
    });
    let others = [
        Event::Challenge([9; 32]),
        Event::Exited(Status::Signal(9)),
        Event::BoundaryLost { path: b"/home/u\xff".to_vec() },
        Event::Egress(Box::default()),
    ];
    let others = others.iter().map(|event| wire::event_packets(event).unwrap().concat());
    let seeds: Vec<_> = ready.chain(others).collect();
    fuzz("events", &seeds, |bytes| {
        let mut events = EventAssembler::default();
        let mut messages = Assembler::<Message>::default();
        for packet in bytes.chunks(limits::PACKET_BYTES) {
            let _ = events.push(packet);
            let _ = messages.push(packet);
        }
    });
}

#[test]
fn lists_of_mounts_of_any_bytes_are_read_or_refused() {
    let ours: Vec<(u32, Box<[u8]>)> = vec![(1, (*b"/").into()), (7, (*b"/home").into())];
    fuzz("mountinfo", &corpus("mountinfo"), |bytes| {
        let _ = mountinfo::lost(bytes, &ours);
        for mount in mountinfo::parse(bytes).into_iter().flatten() {
            let _ = (mount.point(), mount.backend(), mount.is_writable());
        }
    });
}

#[test]
fn answers_of_the_kernel_of_any_bytes_are_read_or_refused() {
    let mut seeds: Vec<Vec<u8>> = [16, 20, 24].map(|kind| route::list(kind, 1)).into();
    seeds.extend([route::set_address(2, 1), route::set_route(2, 1), dump::ask_generation(1)]);
    seeds.extend(count::READ.map(|set| count::list_elements(set, 1)));
    let attributes =
        [netlink::text(1, "landbox"), netlink::nested(2, &[netlink::attribute(3, &[0; 8])])];
    seeds.push(netlink::message(2561, 2, 1, &attributes.concat()));
    fuzz("netlink", &seeds, |bytes| {
        let (mut links, mut rules, mut counted) =
            (route::Reading::default(), dump::Reading::default(), Egress::default());
        for (_, answer) in netlink::answers(bytes).into_iter().flatten() {
            if let Answer::Object(message) = answer {
                let _ = (links.take(message), rules.take(message), dump::generation(message));
                let _ = count::read(&mut counted, message);
            }
        }
        let _ = (rules.set_names(), rules.finish(), links.judge(true));
    });
}

#[test]
fn texts_of_any_bytes_are_read_or_refused() {
    let kinds = ["key", "passwd", "status", "map", "said"].map(corpus);
    fuzz("texts", &kinds.concat(), |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = (trust::read_line(&text), trust::comment(&text), procfs::status(&text));
        let _ = (trust::home_of(bytes, 1000), trust::name_of(bytes, 1000), procfs::boot_id(&text));
        let _ = (procfs::is_initial_map(&text), procfs::identity_over(&text));
        assert!(bytes::plain(&text).bytes().all(|b| (b' '..=b'~').contains(&b)));
        let line = bytes::last_line(bytes).unwrap_or_default();
        assert!(!line.contains('\n') && !line.contains('\x1b'), "{line:?}");
        assert_eq!(bytes::unescape(&bytes::escape(bytes)).as_deref(), Some(bytes));
    });
}
