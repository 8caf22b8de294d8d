//! The enrolment of a signing key: a file `<key id>.pub` in a folder `trusted.d`, holding one line with the public key in
//! 64 hex digits, the user id it speaks for, and a comment.
//!
//! Which folders count depends on with what rights the helper runs:
//!
//! - without any: `landbox/trusted.d` in the caller's own configuration folder (the caller's, 0700);
//! - with the file capability: `/etc/landbox/trusted.d` alone, every component root's;
//! - as root: that one, then the one in root's home as `/etc/passwd` names it, every component root's. Root believes no
//!   environment; root of a user namespace that an ordinary user made is that user.

use crate::evidence::HelperMode;
use crate::wire::KeyId;
use ed25519_dalek::VerifyingKey;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The folder of trusted keys, below a configuration folder.
pub const FOLDER: &str = "landbox/trusted.d";

/// The folder of the keys that root trusts for everybody.
pub const SYSTEM: &str = "/etc/landbox/trusted.d";
/// Longest key file.
pub const KEY_BYTES: u64 = 1024;
/// Writing for group or others, which no folder or file of trusted keys may allow.
pub const OTHERS_WRITE: u32 = 0o022;

/// A folder of trusted keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// [`FOLDER`] in this configuration folder of the caller's, which alone may enter and change it.
    Own(PathBuf),
    /// A folder that only root can change, along the whole path.
    Roots(PathBuf),
}

/// The folders that count, in order. `config` is the configuration folder that the environment names, `passwd` the list of
/// users; `on_host`: not inside somebody's user namespace.
pub fn places(
    mode: HelperMode,
    on_host: bool,
    config: Option<PathBuf>,
    passwd: &[u8],
) -> Vec<Place> {
    let etc = Place::Roots(SYSTEM.into());
    match (mode, on_host) {
        (HelperMode::Capable, _) => vec![etc],
        (HelperMode::Root, true) => {
            let home = home_of(passwd, 0).map(|home| home.join(".config").join(FOLDER));
            [etc].into_iter().chain(home.map(Place::Roots)).collect()
        }
        (HelperMode::Unprivileged, _) | (HelperMode::Root, false) => {
            config.map(Place::Own).into_iter().collect()
        }
    }
}

/// What the file of a key is called.
pub fn file_name(id: &KeyId) -> String {
    format!("{id}.pub")
}

/// The configuration folder that these two variables of the environment name.
pub fn config_folder(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    config_home.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".config")))
}

/// The line that enrols `key` for `uid`.
pub fn line(key: &VerifyingKey, uid: u32, comment: &str) -> String {
    let mut line = String::new();
    for byte in key.as_bytes() {
        // Writing to a String cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    line + &format!(" {uid} {comment}\n")
}

/// Reads such a file: the key and the user id. `None` for anything but one line of that form.
pub fn read_line(text: &str) -> Option<(VerifyingKey, u32)> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let (hex, rest) = line.split_once(' ').filter(|(hex, _)| hex.len() == 64)?;
    if line.contains('\n') {
        return None;
    }
    let uid = rest.split(' ').next()?.parse().ok()?;
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some((VerifyingKey::from_bytes(&key).ok()?, uid))
}

/// The key of such a file, if it is for this user id; else what is wrong with it.
pub fn key_for(uid: u32, text: &str) -> Result<VerifyingKey, String> {
    let why = "this file does not hold a key, a uid and a comment in one line";
    let (key, owner) = read_line(text).ok_or(why)?;
    if owner == uid { Ok(key) } else { Err(format!("this key speaks for uid {owner}")) }
}

/// The comment of such a file.
pub fn comment(text: &str) -> &str {
    text.trim_end().splitn(3, ' ').nth(2).unwrap_or_default()
}

/// The home folder of `uid` as the text of `/etc/passwd` names it.
pub fn home_of(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    let home = |home| Some(PathBuf::from(OsStr::from_bytes(home)));
    users(passwd, uid).find_map(|fields| home(fields.get(5)?).filter(|home| home.is_absolute()))
}

/// The name of `uid` in that text.
pub fn name_of(passwd: &[u8], uid: u32) -> Option<String> {
    users(passwd, uid).find_map(|fields| String::from_utf8(fields.first()?.to_vec()).ok())
}

fn users(passwd: &[u8], uid: u32) -> impl Iterator<Item = Vec<&[u8]>> {
    let uid = uid.to_string();
    let lines = passwd.split(|b| *b == b'\n').map(|line| line.split(|b| *b == b':').collect());
    lines.filter(move |fields: &Vec<&[u8]>| fields.get(2) == Some(&uid.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_line_has_a_key_a_uid_and_nothing_after_the_line() {
        let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        let (read, uid) = read_line(&format!("{key} 1000 a comment\n")).unwrap();
        assert_eq!(line(&read, uid, "a comment"), format!("{key} 1000 a comment\n"));
        assert_eq!(read_line(&format!("{key} 1000")).unwrap().1, 1000);
        assert_eq!(comment(&format!("{key} 1000 a comment\n")), "a comment");
        assert_eq!(comment(&format!("{key} 1000")), "");
        for bad in [
            format!("{key}\n"),
            format!("{key} x y\n"),
            format!("{key} 1000 c\n{key} 0 c\n"),
            format!("0{key} 1000 c\n"),
            format!("{} 1000 c\n", key.replace('d', "g")),
            String::new(),
        ] {
            assert!(read_line(&bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_key_is_good_for_its_own_uid() {
        let line = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a 1000 c\n";
        assert_eq!(key_for(1000, line).ok(), read_line(line).map(|(key, _)| key));
        assert!(key_for(0, line).unwrap_err().contains("uid 1000"));
        assert!(key_for(1000, "").unwrap_err().contains("one line"));
    }

    #[test]
    fn the_home_folder_is_the_one_of_that_very_uid_whatever_its_name() {
        let passwd = b"a:x:10:0:c:/a:/bin/sh\ntoor:x:0:0::/toor:/bin/bash\nroot:x:0:0:root:/root:/bin/bash\n\
            r:x:00:0::/b:\n:0:\nbroken:x:0\n";
        assert_eq!(home_of(passwd, 0), Some(PathBuf::from("/toor")));
        assert_eq!(home_of(passwd, 10), Some(PathBuf::from("/a")));
        assert_eq!(home_of(passwd, 1), None);
        assert_eq!(name_of(passwd, 10).as_deref(), Some("a"));
        assert_eq!(home_of(b"root:x:0:0:r:relative:/bin/sh", 0), None);
    }

    #[test]
    fn with_the_capability_the_callers_own_keys_never_count() {
        let config = Some(PathBuf::from("/home/u/.config"));
        let passwd = b"root:x:0:0:root:/root:/bin/bash\n";
        let places = |mode, on_host| places(mode, on_host, config.clone(), passwd);
        let etc = Place::Roots(SYSTEM.into());
        let own = [Place::Own("/home/u/.config".into())];
        let root = Place::Roots("/root/.config/landbox/trusted.d".into());
        assert_eq!(places(HelperMode::Root, true), [etc.clone(), root]);
        for on_host in [true, false] {
            assert_eq!(places(HelperMode::Capable, on_host), std::slice::from_ref(&etc));
        }
        assert_eq!(places(HelperMode::Root, false), own);
        assert_eq!(places(HelperMode::Unprivileged, true), own);
        assert_eq!(super::places(HelperMode::Unprivileged, true, None, passwd), []);
    }

    #[test]
    fn a_relative_configuration_folder_counts_as_unset() {
        let set = |text: &str| Some(OsString::from(text));
        assert_eq!(config_folder(set("x"), set("/h")), Some(PathBuf::from("/h/.config")));
        assert_eq!(config_folder(set("/x"), set("/h")), Some(PathBuf::from("/x")));
        assert_eq!(config_folder(None, set("h")), None);
    }
}
