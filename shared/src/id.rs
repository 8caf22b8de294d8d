//! Session and layer identifiers.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;
use std::sync::Arc;

/// A session's identifier: ten characters of `[a-z0-9]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SessionId(String);

impl SessionId {
    /// Number of characters.
    pub const LEN: usize = 10;

    /// Checks and wraps an identifier.
    pub fn new(text: &str) -> Option<Self> {
        let ok = text.len() == Self::LEN
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        ok.then(|| Self(text.to_owned()))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A layer's identifier and the name of its folder: `project`, `home`, `worktree`, or `mount-<n>`. Shared by its clones:
/// every change of a layer names it, and there may be a million of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(Arc<str>);

impl LayerId {
    /// Checks and wraps an identifier: 1 to 32 characters of `[a-z0-9-]`, starting with a letter.
    pub fn new(text: &str) -> Option<Self> {
        let ok = (1..=32).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        ok.then(|| Self(text.into()))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for LayerId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

macro_rules! text_id {
    ($name:ident, $what:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                Self::new(&text).ok_or_else(|| D::Error::custom(concat!("not a ", $what)))
            }
        }
    };
}

text_id!(SessionId, "session id");
text_id!(LayerId, "layer id");
