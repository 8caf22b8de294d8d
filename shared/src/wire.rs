//! The frames on the pipe and the packets on the event socket. The only place that knows bincode.
//!
//! Envelope (little-endian):
//!
//! ```text
//! magic      8   "lbxplan\0"
//! version    2   1
//! length     4   of the payload, at most 1 MiB
//! challenge 32   from the helper's first event
//! uid        4   of the caller
//! boot id   16   /proc/sys/kernel/random/boot_id
//! key id    32   SHA-256 of the public key
//! payload        the plan
//! digest    32   SHA-256, domain "envelope", over everything before it
//! signature 64   Ed25519 over SHA-256, domain "signature", of the digest
//! ```
//!
//! The exec frame follows it: magic `"lbxexec\0"`, version, length (at most 8 MiB), payload. Its digest is in the plan.
//! Evidence is stored in a frame of the same form: magic `"lbxevid\0"`, version, length (at most 1 MiB), payload.

use crate::digest::Digest;
use crate::event::Event;
use crate::evidence::Evidence;
use crate::exec::Exec;
use crate::limits;
use crate::plan::Plan;
use crate::policy::Policy;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;
use std::marker::PhantomData;

/// Version of both frames.
pub const VERSION: u16 = 1;
/// Bytes of an envelope before its payload.
pub const ENVELOPE_HEAD: usize = 8 + 2 + 4 + 32 + 4 + 16 + 32;
/// Bytes of an envelope after its payload.
pub const ENVELOPE_TAIL: usize = 32 + 64;
/// Bytes of an exec frame before its payload.
pub const EXEC_HEAD: usize = 8 + 2 + 4;
/// Most bytes on the pipe.
pub const PIPE_BYTES: usize =
    ENVELOPE_HEAD + limits::PLAN_BYTES + ENVELOPE_TAIL + EXEC_HEAD + limits::EXEC_BYTES;
/// What the controller sends on the event socket after it has checked the evidence of `Ready`.
pub const RELEASE: &[u8] = b"lbxgo\0";

const PLAN_MAGIC: &[u8; 8] = b"lbxplan\0";
const EXEC_MAGIC: &[u8; 8] = b"lbxexec\0";
const EVIDENCE_MAGIC: &[u8; 8] = b"lbxevid\0";

/// Why bytes were not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Not this kind of frame.
    Magic,
    /// A version this build does not speak.
    Version(u16),
    /// Longer than its bound.
    TooLong {
        /// The length found.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// Shorter or longer than its header says.
    Length,
    /// Made for another challenge.
    Challenge,
    /// Made for another user.
    Uid(u32),
    /// Made before this boot.
    BootId,
    /// Signed by a key that is not trusted.
    UnknownKey(KeyId),
    /// The digest does not fit the bytes.
    Digest,
    /// The signature does not fit the digest.
    Signature,
    /// The payload is not what it should be.
    Decode(String),
    /// A value could not be encoded.
    Encode(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not a landbox frame"),
            Self::Version(v) => {
                write!(f, "frame version {v} is not supported (this build speaks {VERSION})")
            }
            Self::TooLong { length, limit } => write!(f, "frame of {length} bytes exceeds {limit}"),
            Self::Length => f.write_str("frame length differs from its header"),
            Self::Challenge => f.write_str("envelope answers another challenge"),
            Self::Uid(uid) => write!(f, "envelope was made for uid {uid}"),
            Self::BootId => f.write_str("envelope was made in another boot"),
            Self::UnknownKey(id) => {
                write!(f, "envelope is signed by a key that is not trusted ({id})")
            }
            Self::Digest => f.write_str("envelope digest does not fit"),
            Self::Signature => f.write_str("envelope signature does not fit"),
            Self::Decode(what) => write!(f, "payload does not decode: {what}"),
            Self::Encode(what) => write!(f, "value does not encode: {what}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Names a public key: its SHA-256 in the domain "key".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub [u8; 32]);

impl KeyId {
    /// The name of `key`.
    pub fn of(key: &VerifyingKey) -> Self {
        Self(Digest::of("key", &[key.as_bytes()]).0)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// What ties an envelope to one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The helper's challenge.
    pub challenge: [u8; 32],
    /// The caller's effective user id.
    pub uid: u32,
    /// The kernel's boot id.
    pub boot_id: [u8; 16],
}

/// An envelope that was checked.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The plan.
    pub plan: Plan,
    /// The envelope's digest.
    pub digest: Digest,
    /// The key that signed it.
    pub key: KeyId,
}

fn config() -> bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::NoLimit,
> {
    bincode::config::standard()
}

fn encode<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, WireError> {
    let bytes = bincode::serde::encode_to_vec(value, config())
        .map_err(|e| WireError::Encode(e.to_string()))?;
    if bytes.len() > limit {
        return Err(WireError::TooLong { length: bytes.len(), limit });
    }
    Ok(bytes)
}

/// Decodes exactly all of `bytes`. The limit is a constant because bincode takes it as a type: it also bounds what a
/// hostile length prefix may make the decoder reserve.
fn decode<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, WireError> {
    if bytes.len() > LIMIT {
        return Err(WireError::TooLong { length: bytes.len(), limit: LIMIT });
    }
    let (value, used) = bincode::serde::decode_from_slice(bytes, config().with_limit::<LIMIT>())
        .map_err(|e| WireError::Decode(e.to_string()))?;
    if used == bytes.len() { Ok(value) } else { Err(WireError::Length) }
}

/// Digest of a policy, as named by plans and snapshots.
pub fn policy_digest(policy: &Policy) -> Result<Digest, WireError> {
    Ok(Digest::of("policy", &[&encode(policy, limits::PLAN_BYTES)?]))
}

/// Seals a plan for one launch.
pub fn seal(plan: &Plan, binding: &Binding, key: &SigningKey) -> Result<Vec<u8>, WireError> {
    let payload = encode(plan, limits::PLAN_BYTES)?;
    let length = u32::try_from(payload.len()).map_err(|_| WireError::Length)?;
    let mut out = Vec::with_capacity(ENVELOPE_HEAD + payload.len() + ENVELOPE_TAIL);
    out.extend_from_slice(PLAN_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&binding.challenge);
    out.extend_from_slice(&binding.uid.to_le_bytes());
    out.extend_from_slice(&binding.boot_id);
    out.extend_from_slice(&KeyId::of(&key.verifying_key()).0);
    out.extend_from_slice(&payload);
    let digest = Digest::of("envelope", &[&out]);
    out.extend_from_slice(&digest.0);
    out.extend_from_slice(&key.sign(&Digest::of("signature", &[&digest.0]).0).to_bytes());
    Ok(out)
}

/// Reads how long an envelope is in all from its first [`ENVELOPE_HEAD`] bytes.
pub fn envelope_length(head: &[u8; ENVELOPE_HEAD]) -> Result<usize, WireError> {
    let length = frame_length(head, PLAN_MAGIC, limits::PLAN_BYTES)?;
    Ok(ENVELOPE_HEAD + length + ENVELOPE_TAIL)
}

/// Reads how long an exec frame is in all from its first [`EXEC_HEAD`] bytes.
pub fn exec_length(head: &[u8; EXEC_HEAD]) -> Result<usize, WireError> {
    Ok(EXEC_HEAD + frame_length(head, EXEC_MAGIC, limits::EXEC_BYTES)?)
}

fn frame_length(head: &[u8], magic: &[u8; 8], limit: usize) -> Result<usize, WireError> {
    let mut at = Fields(head);
    if at.take::<8>()? != *magic {
        return Err(WireError::Magic);
    }
    let version = u16::from_le_bytes(at.take()?);
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let length = usize::try_from(u32::from_le_bytes(at.take()?)).map_err(|_| WireError::Length)?;
    if length > limit { Err(WireError::TooLong { length, limit }) } else { Ok(length) }
}

/// How many bytes [`frames`] lacks at least; 0 where it has both. So many can be read without taking what follows them.
pub fn missing(bytes: &[u8]) -> Result<usize, WireError> {
    let Some(head) = bytes.first_chunk() else { return Ok(ENVELOPE_HEAD - bytes.len()) };
    let envelope = envelope_length(head)?;
    let Some(rest) = bytes.get(envelope..) else { return Ok(envelope - bytes.len()) };
    let Some(head) = rest.first_chunk() else { return Ok(EXEC_HEAD - rest.len()) };
    Ok(exec_length(head)?.saturating_sub(rest.len()))
}

/// Cuts what came through the pipe into the envelope and the exec frame. Nothing may be missing or follow.
pub fn frames(bytes: &[u8]) -> Result<[&[u8]; 2], WireError> {
    let (envelope, rest) = frame(bytes, envelope_length)?;
    let (exec, rest) = frame(rest, exec_length)?;
    if rest.is_empty() { Ok([envelope, exec]) } else { Err(WireError::Length) }
}

fn frame<const HEAD: usize>(
    bytes: &[u8],
    length: fn(&[u8; HEAD]) -> Result<usize, WireError>,
) -> Result<(&[u8], &[u8]), WireError> {
    let head = bytes.first_chunk().ok_or(WireError::Length)?;
    bytes.split_at_checked(length(head)?).ok_or(WireError::Length)
}

/// An envelope as it is, whoever made it for whomever.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// What it is tied to.
    pub binding: Binding,
    /// The key it names as its signer.
    pub key: KeyId,
    /// The digest it carries.
    pub digest: Digest,
    /// Whether that is the digest of its bytes.
    pub fits: bool,
    /// The plan. Nobody approved it, as far as is known here.
    pub plan: Plan,
}

/// Takes an envelope apart for somebody who wants to know what it says. To act on it, [`open`] it.
pub fn inspect(envelope: &[u8]) -> Result<Inspected, WireError> {
    let head: &[u8; ENVELOPE_HEAD] = envelope.first_chunk().ok_or(WireError::Length)?;
    if envelope.len() != envelope_length(head)? {
        return Err(WireError::Length);
    }
    let mut at = Fields(envelope);
    at.slice(8 + 2 + 4)?;
    let challenge = at.take()?;
    let uid = u32::from_le_bytes(at.take()?);
    let binding = Binding { challenge, uid, boot_id: at.take()? };
    let key = KeyId(at.take()?);
    let payload = at.slice(envelope.len() - ENVELOPE_HEAD - ENVELOPE_TAIL)?;
    let digest = Digest(at.take()?);
    let fits = Digest::of("envelope", &[&envelope[..envelope.len() - ENVELOPE_TAIL]]) == digest;
    let plan = decode::<_, { limits::PLAN_BYTES }>(payload)?;
    Ok(Inspected { binding, key, digest, fits, plan })
}

/// The key that an envelope names as its signer. Nothing about the envelope was checked.
pub fn signer(envelope: &[u8]) -> Option<KeyId> {
    let head: &[u8; ENVELOPE_HEAD] = envelope.first_chunk()?;
    head.last_chunk().copied().map(KeyId)
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(head)
    }
}

/// Checks an envelope against `expected`, its digest and its signature, and only then decodes it.
pub fn open(
    envelope: &[u8],
    expected: &Binding,
    trusted: impl FnOnce(&KeyId) -> Option<VerifyingKey>,
) -> Result<Opened, WireError> {
    let head: &[u8; ENVELOPE_HEAD] = envelope.first_chunk().ok_or(WireError::Length)?;
    if envelope.len() != envelope_length(head)? {
        return Err(WireError::Length);
    }
    let mut at = Fields(envelope);
    at.slice(8 + 2 + 4)?;
    if at.take::<32>()? != expected.challenge {
        return Err(WireError::Challenge);
    }
    let uid = u32::from_le_bytes(at.take()?);
    if uid != expected.uid {
        return Err(WireError::Uid(uid));
    }
    if at.take::<16>()? != expected.boot_id {
        return Err(WireError::BootId);
    }
    let id = KeyId(at.take()?);
    let payload = at.slice(envelope.len() - ENVELOPE_HEAD - ENVELOPE_TAIL)?;
    let digest = Digest(at.take()?);
    if Digest::of("envelope", &[&envelope[..envelope.len() - ENVELOPE_TAIL]]) != digest {
        return Err(WireError::Digest);
    }
    let key = trusted(&id).filter(|key| KeyId::of(key) == id).ok_or(WireError::UnknownKey(id))?;
    let signature = Signature::from_bytes(&at.take()?);
    key.verify_strict(&Digest::of("signature", &[&digest.0]).0, &signature)
        .map_err(|_| WireError::Signature)?;
    Ok(Opened { plan: decode::<_, { limits::PLAN_BYTES }>(payload)?, digest, key: id })
}

/// Makes the exec frame and the digest that the plan must name.
pub fn exec_frame(exec: &Exec) -> Result<(Vec<u8>, Digest), WireError> {
    let payload = encode(exec, limits::EXEC_BYTES)?;
    let length = u32::try_from(payload.len()).map_err(|_| WireError::Length)?;
    let mut out = Vec::with_capacity(EXEC_HEAD + payload.len());
    out.extend_from_slice(EXEC_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&payload);
    let digest = Digest::of("exec", &[&payload]);
    Ok((out, digest))
}

/// Checks an exec frame against the digest named by the plan, then decodes it.
pub fn open_exec(frame: &[u8], expected: &Digest) -> Result<Exec, WireError> {
    let head: &[u8; EXEC_HEAD] = frame.first_chunk().ok_or(WireError::Length)?;
    if frame.len() != exec_length(head)? {
        return Err(WireError::Length);
    }
    let payload = &frame[EXEC_HEAD..];
    if Digest::of("exec", &[payload]) != *expected {
        return Err(WireError::Digest);
    }
    decode::<_, { limits::EXEC_BYTES }>(payload)
}

/// Cuts an event into packets for the event socket.
pub fn event_packets(event: &Event) -> Result<Vec<Vec<u8>>, WireError> {
    packets(event)
}

/// Cuts a value into packets: one byte 0 (more follow) or 1 (last), then a piece.
pub fn packets<T: Serialize>(value: &T) -> Result<Vec<Vec<u8>>, WireError> {
    let bytes = encode(value, limits::EVENT_BYTES)?;
    let pieces: Vec<&[u8]> = bytes.chunks(limits::PACKET_BYTES - 1).collect();
    let last = pieces.len().saturating_sub(1);
    let packet = |(i, piece): (usize, &&[u8])| {
        let mut packet = Vec::with_capacity(piece.len() + 1);
        packet.push(u8::from(i == last));
        packet.extend_from_slice(piece);
        packet
    };
    Ok(pieces.iter().enumerate().map(packet).collect())
}

/// Puts events together from packets.
pub type EventAssembler = Assembler<Event>;

/// Puts values together from [`packets`].
#[derive(Debug)]
pub struct Assembler<T> {
    bytes: Vec<u8>,
    of: PhantomData<T>,
}

impl<T> Default for Assembler<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), of: PhantomData }
    }
}

impl<T: DeserializeOwned> Assembler<T> {
    /// Takes one packet; gives the value it completes. All pieces but the last are full, so that there can't be any number
    /// of them.
    pub fn push(&mut self, packet: &[u8]) -> Result<Option<T>, WireError> {
        let (last, piece) = packet.split_first().ok_or(WireError::Length)?;
        if self.bytes.len() + piece.len() > limits::EVENT_BYTES {
            let length = self.bytes.len() + piece.len();
            return Err(WireError::TooLong { length, limit: limits::EVENT_BYTES });
        }
        self.bytes.extend_from_slice(piece);
        match last {
            0 if piece.len() == limits::PACKET_BYTES - 1 => Ok(None),
            0 => Err(WireError::Length),
            1 => decode::<_, { limits::EVENT_BYTES }>(&std::mem::take(&mut self.bytes)).map(Some),
            _ => Err(WireError::Magic),
        }
    }
}

/// The evidence as it is stored, and its digest.
pub fn evidence_frame(evidence: &Evidence) -> Result<(Vec<u8>, Digest), WireError> {
    let payload = encode(evidence, limits::EVENT_BYTES)?;
    let length = u32::try_from(payload.len()).map_err(|_| WireError::Length)?;
    let mut out = Vec::with_capacity(EXEC_HEAD + payload.len());
    out.extend_from_slice(EVIDENCE_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&payload);
    Ok((out, Digest::of("evidence", &[&payload])))
}

/// Reads stored evidence, and gives its digest.
pub fn open_evidence(frame: &[u8]) -> Result<(Evidence, Digest), WireError> {
    let length = frame_length(frame, EVIDENCE_MAGIC, limits::EVENT_BYTES)?;
    let payload = frame.get(EXEC_HEAD..).unwrap_or_default();
    if payload.len() != length {
        return Err(WireError::Length);
    }
    let evidence = decode::<_, { limits::EVENT_BYTES }>(payload)?;
    Ok((evidence, Digest::of("evidence", &[payload])))
}

/// Digest of what the packet filter holds. The largest policy makes a few megabytes.
pub fn ruleset_digest(table: &crate::network::ruleset::Ruleset) -> Result<Digest, WireError> {
    Ok(Digest::of("ruleset", &[&encode(table, limits::RULESET_BYTES)?]))
}
