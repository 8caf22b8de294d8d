//! Checking a receipt: whole, unchanged, and signed with a key that the owner trusts.

use super::{Receipt, Signed, VERSION};
use crate::error::{Failure, Kind, Result};
use ed25519_dalek::{Signature, VerifyingKey};
use landbox_shared::wire::KeyId;

/// What was found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What it says, where that can be understood.
    pub receipt: Option<Receipt>,
    /// The name of the key it was signed with.
    pub key: Option<KeyId>,
    /// Why it is not to be believed; none for a good one.
    pub fault: Option<&'static str>,
}

impl Verdict {
    fn fault(why: &'static str) -> Self {
        Self { receipt: None, key: None, fault: Some(why) }
    }
}

/// Checks the bytes of a file. What never was a receipt is a usage error; what is one no longer has a fault.
pub fn verify(bytes: &[u8], trusted: &[(VerifyingKey, u32)]) -> Result<Verdict> {
    let has = |word: &[u8]| bytes.windows(word.len()).any(|w| w == word);
    if !has(b"\"changeset_digest\"") && !has(b"\"signature\"") {
        return Err(Failure::new(Kind::Usage, "this is not a receipt of landbox"));
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return Ok(Verdict::fault("it was damaged or changed: it can't be understood"));
    };
    let version = value.get("receipt").and_then(|r| r.get("version"));
    if version.and_then(serde_json::Value::as_u64).is_some_and(|v| v > u64::from(VERSION)) {
        return Ok(Verdict::fault("it is damaged, or of a newer landbox"));
    }
    let Ok(signed) = serde_json::from_slice::<Signed>(bytes) else {
        return Ok(Verdict::fault("it was damaged or changed: it can't be understood"));
    };
    // The text as it was signed is the only one that counts: no other spacing, order or spelling.
    if signed.text()? != bytes {
        return Ok(Verdict::fault("it was changed after it was signed"));
    }
    let (Some(key), Some(signature)) = (unhex::<32>(&signed.key), unhex::<64>(&signed.signature))
    else {
        return Ok(Verdict::fault("its signature can't be understood"));
    };
    let Ok(key) = VerifyingKey::from_bytes(&key) else {
        return Ok(Verdict::fault("its signature can't be understood"));
    };
    let message = signed.receipt.message()?;
    if key.verify_strict(&message, &Signature::from_bytes(&signature)).is_err() {
        return Ok(Verdict::fault("it was changed after it was signed"));
    }
    let known = trusted.iter().any(|(k, uid)| *k == key && *uid == signed.receipt.uid);
    let fault = (!known).then_some("it is signed with a key that is not among yours");
    Ok(Verdict { receipt: Some(signed.receipt), key: Some(KeyId::of(&key)), fault })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let digit = |d: u8| match d {
        b'0'..=b'9' => Some(d - b'0'),
        b'a'..=b'f' => Some(d - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{Line, Outcome};
    use super::*;
    use crate::land::changeset::Node;
    use crate::seal::{Key, trusted};
    use crate::session::testing::snapshot;
    use landbox_shared::digest::Digest;
    use landbox_shared::path::RelPath;

    fn signed(dir: &std::path::Path) -> (Vec<u8>, Vec<(VerifyingKey, u32)>) {
        let key = Key::load(dir).unwrap();
        let digest = Digest::of("test", &[]);
        let link = Node::Symlink { target: b"a\xff\\".to_vec() };
        let file = Node::File { mode: 0o644, size: 3, digest };
        let path = RelPath::new(b"nl\n\xff").unwrap();
        let lines = vec![Line::new(&path, Some(&file), Some(&link), Outcome::Landed)];
        let receipt = Receipt::landing(&snapshot("aaaaaaaaaa", None), 1, digest, lines);
        (receipt.sign(&key).unwrap(), trusted(dir).unwrap())
    }

    #[test]
    fn a_change_of_any_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, keys) = signed(dir.path());
        let good = verify(&bytes, &keys).unwrap();
        assert_eq!((good.fault, good.receipt.unwrap().changes.len()), (None, 1));
        for at in 0..bytes.len() {
            for flip in [1, 0x20, 0x80] {
                let mut bad = bytes.clone();
                bad[at] ^= flip;
                assert!(verify(&bad, &keys).unwrap().fault.is_some(), "{at} {flip}");
            }
            let mut bad = bytes.clone();
            bad.remove(at);
            assert!(verify(&bad, &keys).unwrap().fault.is_some(), "{at} gone");
            bad.insert(at, b' ');
            bad.insert(at, bytes[at]);
            assert!(verify(&bad, &keys).unwrap().fault.is_some(), "{at} more");
        }
    }

    #[test]
    fn another_s_key_and_another_uid_are_not_believed_and_anything_else_is_no_receipt() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (bytes, keys) = signed(dir.path());
        let (_, others) = signed(other.path());
        assert!(verify(&bytes, &others).unwrap().fault.is_some());
        let foreign: Vec<_> = keys.iter().map(|(k, uid)| (*k, uid + 1)).collect();
        assert!(verify(&bytes, &foreign).unwrap().fault.is_some());
        for text in ["", "{}", "hello", "{\"receipt\": 1}"] {
            assert_eq!(verify(text.as_bytes(), &keys).unwrap_err().kind, Kind::Usage);
        }
    }
}
