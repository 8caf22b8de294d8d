//! Judging with what rights the helper was started.
//!
//! A helper with a file capability that got none looks exactly like an uncapped copy, so the file is compared with what
//! the process has; every way in which they can differ has its own message.

use crate::evidence::HelperMode;

/// Number of `cap_sys_admin`, the one file capability the package sets.
pub const FILE_CAPABILITY: u8 = 21;
/// The same as a bit mask.
const PERMITTED: u64 = 1 << FILE_CAPABILITY;

/// What is known of a helper's process and of its file.
#[derive(Clone, Debug)]
pub struct Start {
    /// Real, effective and saved user id.
    pub uids: [u32; 3],
    /// Real, effective and saved group id.
    pub gids: [u32; 3],
    /// Whether the file has a set-user-id or set-group-id bit.
    pub set_id_bits: bool,
    /// The permitted capabilities.
    pub permitted: u64,
    /// The file's capabilities, as stored.
    pub stored: Option<Vec<u8>>,
    /// Not inside somebody's user namespace.
    pub on_host: bool,
    /// `no_new_privs`.
    pub no_new_privs: bool,
    /// The file's mount is `nosuid`.
    pub nosuid: bool,
    /// [`FILE_CAPABILITY`] is in the bounding set.
    pub bounded: bool,
}

impl Start {
    /// With what rights it runs, or why it must not.
    pub fn judge(&self) -> Result<HelperMode, String> {
        let refuse = |why: &str| Err(why.to_owned());
        let same = |ids: [u32; 3]| ids.iter().all(|id| *id == ids[0]);
        if self.set_id_bits || !same(self.uids) || !same(self.gids) {
            return refuse(
                "was started set-user-id or set-group-id; remove those mode bits (chmod ug-s)",
            );
        }
        if self.uids[0] == 0 {
            return Ok(HelperMode::Root);
        }
        let held = self.permitted;
        match &self.stored {
            None if held == 0 => Ok(HelperMode::Unprivileged),
            None => Err(format!(
                "landbox-helper was started with capabilities that its file does not give it ({held:#x}); start it \
                 without ambient capabilities"
            )),
            Some(stored) if !is_ours(stored) => refuse(
                "landbox-helper's file must carry cap_sys_admin=p of the host and nothing else; set it again (setcap \
                 cap_sys_admin=p) or remove it (setcap -r)",
            ),
            Some(_) if !self.on_host => refuse(
                "landbox-helper has file capabilities but runs inside a user namespace, where they count for nothing; \
                 start landbox outside it, or take them away (setcap -r)",
            ),
            Some(_) if held == PERMITTED => Ok(HelperMode::Capable),
            Some(_) => {
                let what = "landbox-helper got other capabilities";
                Err(format!("{what} ({held:#x}) than its file gives it: {}", self.why_not()))
            }
        }
    }

    /// Whether the program has nothing that its caller hasn't: no set-id bit, no file capability, no capability but root's.
    pub fn is_plain(&self) -> bool {
        let same = |ids: [u32; 3]| ids.iter().all(|id| *id == ids[0]);
        let ids = !self.set_id_bits && same(self.uids) && same(self.gids);
        ids && self.stored.is_none() && (self.uids[0] == 0 || self.permitted == 0)
    }

    /// Why a file capability was not given.
    fn why_not(&self) -> &'static str {
        if self.no_new_privs {
            "this process tree has no_new_privs set; start landbox outside the other sandbox"
        } else if self.nosuid {
            "its file system is mounted nosuid; install it elsewhere"
        } else if !self.bounded {
            "cap_sys_admin is not in the bounding set; start landbox outside the service or container that removed it"
        } else {
            "the kernel refused them (is it being traced?)"
        }
    }
}

/// Whether a file's `struct vfs_cap_data` says `cap_sys_admin=p`, not effective, nothing inheritable, and for the host:
/// revision 2, or revision 3 with user id 0.
fn is_ours(stored: &[u8]) -> bool {
    let words: Vec<u32> =
        stored.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let permitted = 1 << FILE_CAPABILITY;
    stored.len().is_multiple_of(4)
        && (words == [0x0200_0000, permitted, 0, 0, 0]
            || words == [0x0300_0000, permitted, 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn the_packages_file_capability_is_known_in_both_revisions() {
        assert!(is_ours(&stored(&[0x0200_0000, 1 << 21, 0, 0, 0])));
        assert!(is_ours(&stored(&[0x0300_0000, 1 << 21, 0, 0, 0, 0])));
    }

    #[test]
    fn any_other_file_capability_is_not_ours() {
        for other in [
            stored(&[]),
            // Effective, more permitted, inheritable, in the upper half, none.
            stored(&[0x0200_0001, 1 << 21, 0, 0, 0]),
            stored(&[0x0200_0000, 1 << 21 | 1, 0, 0, 0]),
            stored(&[0x0200_0000, 1 << 21, 1, 0, 0]),
            stored(&[0x0200_0000, 1 << 21, 0, 1, 0]),
            stored(&[0x0200_0000, 1 << 21, 0, 0, 1]),
            stored(&[0x0200_0000, 0, 0, 0, 0]),
            // For the root of a namespace; of a wrong length or revision.
            stored(&[0x0300_0000, 1 << 21, 0, 0, 0, 1000]),
            stored(&[0x0200_0000, 1 << 21, 0, 0, 0, 0]),
            stored(&[0x0300_0000, 1 << 21, 0, 0, 0]),
            stored(&[0x0100_0000, 1 << 21, 0]),
            [stored(&[0x0200_0000, 1 << 21, 0, 0, 0]), vec![0]].concat(),
        ] {
            assert!(!is_ours(&other), "{other:?}");
        }
    }

    fn start() -> Start {
        Start {
            uids: [1000; 3],
            gids: [1000; 3],
            set_id_bits: false,
            permitted: 0,
            stored: None,
            on_host: true,
            no_new_privs: false,
            nosuid: false,
            bounded: true,
        }
    }

    #[test]
    fn a_program_is_plain_only_without_any_right_of_its_own() {
        assert!(start().is_plain());
        assert!(Start { uids: [0; 3], permitted: 7, ..start() }.is_plain());
        for other in [
            Start { set_id_bits: true, ..start() },
            Start { uids: [1000, 0, 0], ..start() },
            Start { gids: [1000, 5, 5], ..start() },
            Start { stored: Some(Vec::new()), ..start() },
            Start { permitted: 1, ..start() },
        ] {
            assert!(!other.is_plain(), "{other:?}");
        }
    }

    #[test]
    fn each_way_to_run_has_its_mode_and_each_mismatch_its_own_refusal() {
        let packaged =
            || Start { stored: Some(stored(&[0x0200_0000, 1 << 21, 0, 0, 0])), ..start() };
        let capable = || Start { permitted: PERMITTED, ..packaged() };
        assert_eq!(start().judge(), Ok(HelperMode::Unprivileged));
        assert_eq!(capable().judge(), Ok(HelperMode::Capable));
        assert_eq!(Start { uids: [0; 3], ..start() }.judge(), Ok(HelperMode::Root));
        for (case, why) in [
            (Start { set_id_bits: true, ..start() }, "set-user-id"),
            (Start { uids: [1000, 0, 0], ..start() }, "set-user-id"),
            (Start { gids: [1000, 5, 1000], ..start() }, "set-group-id"),
            (Start { permitted: 1, ..start() }, "ambient"),
            (Start { stored: Some(vec![0; 20]), ..capable() }, "set it again"),
            (Start { on_host: false, ..capable() }, "inside a user namespace"),
            (Start { permitted: PERMITTED | 1, ..capable() }, "other capabilities"),
            (Start { no_new_privs: true, ..packaged() }, "no_new_privs"),
            (Start { nosuid: true, ..packaged() }, "nosuid"),
            (Start { bounded: false, ..packaged() }, "bounding"),
            (packaged(), "traced"),
        ] {
            let refusal = case.judge().unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
