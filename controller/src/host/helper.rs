//! Which helper is used, and whether it is the packaged one.

use crate::error::{Context, Failure, Kind, Result};
use crate::session::store::show;
use landbox_shared::evidence::HelperMode;
use landbox_shared::trust::OTHERS_WRITE;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where packages put it.
pub const PACKAGED: &str = "/usr/libexec/landbox/landbox-helper";

/// The helper that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The program.
    pub path: PathBuf,
    /// Whether it is the one that a package put there; any other lies beside this program.
    pub packaged: bool,
}

/// Beside this program, else where packages put it. No environment variable overrides that.
pub fn find() -> Result<Helper> {
    let exe = std::env::current_exe().context(|| "can't find this program".into())?;
    let beside = exe.with_file_name("landbox-helper");
    let packaged = Path::new(PACKAGED);
    let found = [beside.as_path(), packaged].into_iter().find(|path| path.is_file());
    match found {
        Some(path) => Ok(Helper { path: path.to_path_buf(), packaged: path == packaged }),
        None => Err(Failure::new(
            Kind::Unavailable,
            format!("landbox-helper is neither {} nor {}", show(&beside), show(packaged)),
        )
        .hint("install the landbox package, or build all of it: cargo build --release")),
    }
}

impl Helper {
    /// Whether its file carries a capability.
    pub fn is_capable(&self) -> bool {
        rustix::fs::getxattr(&self.path, "security.capability", &mut [0_u8; 64]).is_ok()
    }
}

/// Refuses any helper but the packaged one. `sandboxed`: one is used at all.
pub fn require_packaged(sandboxed: bool) -> Result<()> {
    let refuse = |why: String| Failure::new(Kind::Refused, format!("{ASKED}, but {why}"));
    if !sandboxed {
        return Err(refuse("with \"sandbox\": false there is no helper at all".into())
            .hint("take one of the two out of the bot"));
    }
    let helper = find()?;
    if !helper.packaged {
        return Err(refuse(format!("{} would be used", show(&helper.path)))
            .hint("start the packaged program: /usr/bin/landbox"));
    }
    for path in helper.path.ancestors() {
        let meta =
            std::fs::symlink_metadata(path).context(|| format!("can't read {}", show(path)))?;
        if meta.uid() != 0 || (!meta.is_symlink() && meta.mode() & OTHERS_WRITE != 0) {
            return Err(refuse(format!("somebody other than root can change {}", show(path)))
                .hint("install the package again"));
        }
    }
    if rustix::process::geteuid().is_root() || helper.is_capable() {
        return Ok(());
    }
    Err(refuse("it has lost its capability".into())
        .hint(format!("sudo setcap cap_sys_admin=p {PACKAGED}")))
}

/// Refuses a boundary that was made without the packaged helper's rights.
pub fn require_rights(mode: HelperMode) -> Result<()> {
    match mode {
        HelperMode::Capable | HelperMode::Root => Ok(()),
        HelperMode::Unprivileged => {
            Err(Failure::new(Kind::Refused, format!("{ASKED}, but it ran without its capability"))
                .hint("landbox doctor says why"))
        }
    }
}

const ASKED: &str = "the bot wants the packaged helper (\"requirePackagedHelper\")";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_without_rights_is_not_the_packaged_one() {
        assert!(require_rights(HelperMode::Capable).is_ok());
        assert!(require_rights(HelperMode::Root).is_ok());
        assert_eq!(require_rights(HelperMode::Unprivileged).unwrap_err().kind, Kind::Refused);
    }

    #[test]
    fn without_a_sandbox_there_is_no_packaged_helper() {
        assert_eq!(require_packaged(false).unwrap_err().kind, Kind::Refused);
    }
}
