//! Paths that crossed the border: absolute or relative byte strings in canonical form.

use crate::{bytes, limits};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{borrow::Cow, fmt};

/// Why a byte string is not a canonical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It does not start with `/` (for an absolute path), or does (for a relative one).
    Anchor,
    /// It is longer than [`limits::PATH_BYTES`], or a component longer than [`limits::NAME_BYTES`].
    TooLong,
    /// It has an empty, `.` or `..` component, a trailing slash or a NUL byte.
    NotCanonical,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anchor => "path has the wrong anchor (absolute and relative mixed up)",
            Self::TooLong => "path or path component is too long",
            Self::NotCanonical => "path is not in canonical form",
        })
    }
}

impl std::error::Error for PathError {}

fn check_components(bytes: &[u8]) -> Result<(), PathError> {
    if bytes.len() > limits::PATH_BYTES {
        return Err(PathError::TooLong);
    }
    for part in bytes.split(|b| *b == b'/') {
        if part.len() > limits::NAME_BYTES {
            return Err(PathError::TooLong);
        }
        if part.is_empty() || part == b"." || part == b".." || part.contains(&0) {
            return Err(PathError::NotCanonical);
        }
    }
    Ok(())
}

macro_rules! path_type {
    ($name:ident) => {
        impl $name {
            /// The path as raw bytes.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// The path as the standard library's type.
            pub fn as_path(&self) -> &Path {
                Path::new(OsStr::from_bytes(&self.0))
            }
        }

        impl AsRef<Path> for $name {
            fn as_ref(&self) -> &Path {
                self.as_path()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&bytes::escape(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&bytes::escape(&self.0), f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                if s.is_human_readable() {
                    s.serialize_str(&bytes::escape(&self.0))
                } else {
                    self.0.serialize(s)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let raw = if d.is_human_readable() {
                    let text = Cow::<'_, str>::deserialize(d)?;
                    bytes::unescape(&text).ok_or_else(|| D::Error::custom("bad escape in path"))?
                } else {
                    Vec::<u8>::deserialize(d)?
                };
                Self::new(raw).map_err(D::Error::custom)
            }
        }
    };
}

/// An absolute path without empty, `.` or `..` components. `/` itself is one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbsPath(Vec<u8>);

path_type!(AbsPath);

impl AbsPath {
    /// Checks and wraps an absolute path.
    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let path = path.into();
        match path.split_first() {
            Some((b'/', [])) => Ok(Self(path)),
            Some((b'/', rest)) => check_components(rest).map(|()| Self(path)),
            _ => Err(PathError::Anchor),
        }
    }

    /// Checks and wraps a path of the standard library's type.
    pub fn from_path(path: &Path) -> Result<Self, PathError> {
        Self::new(path.as_os_str().as_bytes())
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// The path with one or more components added.
    pub fn join(&self, rest: impl AsRef<[u8]>) -> Result<Self, PathError> {
        let mut path = if self.is_root() { Vec::new() } else { self.0.clone() };
        path.push(b'/');
        path.extend_from_slice(rest.as_ref());
        Self::new(path)
    }

    /// The folder this path lies in; `None` for `/`.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(if cut == 0 { b"/".to_vec() } else { self.0[..cut].to_vec() }))
    }

    /// The last component; `None` for `/`.
    pub fn file_name(&self) -> Option<&[u8]> {
        if self.is_root() { None } else { self.0.rsplit(|b| *b == b'/').next() }
    }

    /// Whether this path is `ancestor` or lies below it.
    pub fn is_within(&self, ancestor: &Self) -> bool {
        ancestor.is_root() || *self == *ancestor || self.relative_to(ancestor).is_some()
    }

    /// Whether this path is the folder `top`, a path without a slash at its end, or lies below it.
    pub fn is_in(&self, top: &str) -> bool {
        let rest = self.0.strip_prefix(top.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Whether this is the name of a pseudo-terminal's slave.
    pub fn is_terminal(&self) -> bool {
        let number = self.0.strip_prefix(b"/dev/pts/");
        number.is_some_and(|n| (1..=10).contains(&n.len()) && n.iter().all(u8::is_ascii_digit))
    }

    /// What remains of this path below `ancestor`; `None` if it is not strictly below it.
    pub fn relative_to(&self, ancestor: &Self) -> Option<RelPath> {
        let rest = if ancestor.is_root() {
            self.0.strip_prefix(b"/")?
        } else {
            self.0.strip_prefix(ancestor.0.as_slice())?.strip_prefix(b"/")?
        };
        if rest.is_empty() { None } else { Some(RelPath(rest.to_vec())) }
    }

    /// Number of components; 0 for `/`.
    pub fn depth(&self) -> usize {
        if self.is_root() { 0 } else { self.0.iter().filter(|b| **b == b'/').count() }
    }

    /// The path as an owned standard path.
    pub fn to_path_buf(&self) -> PathBuf {
        self.as_path().to_path_buf()
    }
}

/// A relative path of one or more components, none of them empty, `.` or `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(Vec<u8>);

path_type!(RelPath);

impl RelPath {
    /// Checks and wraps a relative path.
    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let path = path.into();
        if path.first() == Some(&b'/') {
            return Err(PathError::Anchor);
        }
        check_components(&path).map(|()| Self(path))
    }

    /// The components in order.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// The path with one component added.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        let mut path = self.0.clone();
        path.push(b'/');
        path.extend_from_slice(name);
        Self::new(path)
    }

    /// The folder this path lies in; `None` for a single component.
    pub fn parent(&self) -> Option<Self> {
        let cut = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..cut].to_vec()))
    }

    /// The last component.
    pub fn file_name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or(&self.0)
    }

    /// Whether this path is `ancestor` or lies below it.
    pub fn is_within(&self, ancestor: &Self) -> bool {
        self.0.strip_prefix(ancestor.0.as_slice()).is_some_and(|r| r.is_empty() || r[0] == b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abs(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn only_canonical_paths_are_accepted() {
        for good in ["/", "/a", "/a/b c", "/a:b,c\\d/[x]\n"] {
            assert!(AbsPath::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", "a", "/a/", "//", "/a//b", "/./a", "/a/..", "/a\0b"] {
            assert!(AbsPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(RelPath::new("").is_err());
        assert!(RelPath::new("../x").is_err());
        assert!(AbsPath::new(vec![b'/'; 5000]).is_err());
        assert_eq!(AbsPath::new(format!("/{}", "x".repeat(256))), Err(PathError::TooLong));
    }

    #[test]
    fn a_terminal_is_a_number_in_its_folder() {
        assert!(abs("/dev/pts/0").is_terminal() && abs("/dev/pts/1234567890").is_terminal());
        for other in ["/dev/pts", "/dev/pts/ptmx", "/dev/pts/0/x", "/dev/pts/12345678901", "/x/0"] {
            assert!(!abs(other).is_terminal(), "{other}");
        }
    }

    #[test]
    fn containment_counts_whole_components() {
        assert!(abs("/a/b").is_within(&abs("/a")));
        assert!(abs("/a").is_within(&abs("/a")));
        assert!(!abs("/ab").is_within(&abs("/a")));
        assert!(abs("/ab").is_within(&abs("/")));
        assert_eq!(abs("/a/b/c").relative_to(&abs("/a")).unwrap().as_bytes(), b"b/c");
        assert_eq!(abs("/a").relative_to(&abs("/a")), None);
        assert!(abs("/a").is_in("/a") && abs("/a/b").is_in("/a") && !abs("/ab").is_in("/a"));
        assert_eq!(abs("/a").parent(), Some(abs("/")));
        assert_eq!(abs("/").join("x").unwrap(), abs("/x"));
    }
}
