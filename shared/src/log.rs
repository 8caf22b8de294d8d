//! What the helper writes to the system's log where it has the file capability.
//!
//! A line is made of fixed words, numbers and hex digits, and its length does not depend on what a caller sent: nothing of
//! that reaches the log as it came.

use crate::event::Stage;
use crate::evidence::HelperMode;
use crate::wire::KeyId;

/// The socket of the system's log.
pub const SOCKET: &str = "/dev/log";

/// `LOG_AUTHPRIV`, as the upper bits of a priority.
const AUTHPRIV: u8 = 10 << 3;
/// `LOG_WARNING` and `LOG_NOTICE`.
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The capability is about to be used.
    Launch,
    /// A caller was refused in this step, before anything was raised.
    Refusal(Stage),
}

/// Who is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// With what rights the helper runs for it.
    pub mode: HelperMode,
    /// Its user id.
    pub uid: u32,
    /// The key that its envelope names as the signer, once one came.
    pub signer: Option<KeyId>,
}

impl Caller {
    /// One line: `landbox-helper[PID]: launch uid=1000 key=HEX`. `None` without the file capability: then a caller gets
    /// nothing from the helper that it doesn't have.
    pub fn line(&self, entry: Entry, pid: u32) -> Option<String> {
        let (severity, what) = match (self.mode, entry) {
            (HelperMode::Unprivileged | HelperMode::Root, _) => return None,
            (HelperMode::Capable, Entry::Launch) => (NOTICE, "launch".to_owned()),
            (HelperMode::Capable, Entry::Refusal(stage)) => {
                (WARNING, format!("refused at {stage}"))
            }
        };
        let key = self.signer.map_or("none".to_owned(), |key| key.to_string());
        let (priority, uid) = (AUTHPRIV | severity, self.uid);
        Some(format!("<{priority}>landbox-helper[{pid}]: {what} uid={uid} key={key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_words_numbers_and_hex_digits_and_never_long() {
        let caller = |uid, signer| Caller { mode: HelperMode::Capable, uid, signer };
        let key = Some(KeyId([0xab; 32]));
        let said = caller(1000, key).line(Entry::Launch, 7).unwrap();
        assert_eq!(said, format!("<85>landbox-helper[7]: launch uid=1000 key={}", "ab".repeat(32)));
        let said = caller(u32::MAX, key).line(Entry::Refusal(Stage::Verify), u32::MAX).unwrap();
        assert!(said.starts_with("<84>landbox-helper[4294967295]: refused at verify uid="));
        assert!(said.len() < 160 && said.bytes().all(|b| (b' '..=b'~').contains(&b)));
        let said = caller(1, None).line(Entry::Refusal(Stage::Receive), 1).unwrap();
        assert!(said.ends_with(" key=none"));
    }

    #[test]
    fn without_the_capability_nothing_is_told() {
        for mode in [HelperMode::Unprivileged, HelperMode::Root] {
            let caller = Caller { mode, uid: 0, signer: None };
            assert_eq!(caller.line(Entry::Launch, 1), None);
            assert_eq!(caller.line(Entry::Refusal(Stage::Verify), 1), None);
        }
    }
}
