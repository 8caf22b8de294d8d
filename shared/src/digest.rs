//! SHA-256 digests and their text form, `sha256:<64 hex digits>`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digests `parts` in order under a domain name, so that a digest made for one purpose never fits another.
    pub fn of(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = Hasher::new(domain);
        for part in parts {
            hasher.update(part);
        }
        hasher.finish()
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let digit = |d: u8| match d {
                b'0'..=b'9' => Some(d - b'0'),
                b'a'..=b'f' => Some(d - b'a' + 10),
                _ => None,
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(out))
    }
}

/// An incremental [`Digest`] for content that does not fit in memory.
#[derive(Clone, Debug)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Starts a digest in `domain`.
    pub fn new(domain: &str) -> Self {
        let mut inner = Sha256::new();
        inner.update(b"landbox ");
        inner.update(domain.as_bytes());
        inner.update([0]);
        Self(inner)
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Ends the digest.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"sha256:0000000000000000000000000000000000000000000000000000000000000000";
        for (pair, byte) in text[7..].chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        // All of it is ASCII.
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let text = String::deserialize(d)?;
            Self::parse(&text).ok_or_else(|| D::Error::custom("expected sha256:<64 hex digits>"))
        } else {
            Ok(Self(<[u8; 32]>::deserialize(d)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_round_trips_and_refuses_anything_else() {
        let digest = Digest::of("test", &[b"a", b"b"]);
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse("sha256:00"), None);
        assert_eq!(Digest::parse(&digest.to_string().to_uppercase()), None);
        assert_ne!(digest, Digest::of("other", &[b"a", b"b"]));
    }
}
