//! Taking every right from the calling process, which is about to become the task.

use crate::caps;
use crate::failure::{Context, Failure, Stage, refused};
use crate::sys::landlock;
use landbox_seccomp::{Arch, Error, Program};

const STAGE: Stage = Stage::Confine;
/// The first Landlock ABI with scopes.
const SCOPES_SINCE: u32 = 6;

/// Compiles one of the profiles of `landbox_seccomp` for this machine.
pub(crate) fn filters(
    profile: impl FnOnce(Arch) -> Result<Vec<Program>, Error>,
) -> Result<Vec<Program>, Failure> {
    landbox_seccomp::for_host(profile).map_err(|e| refused(STAGE, e))
}

/// Installs filters on the calling process, for good.
pub(crate) fn install(filters: &[Program]) -> Result<(), Failure> {
    landbox_seccomp::install(filters).map_err(|e| refused(STAGE, e))
}

/// Drops the capabilities, enters the Landlock scopes, installs the filters, in this order: the first needs its own
/// rights to go, the second needs `no_new_privs`, and the third would refuse the others' system calls if it could.
/// Gives the Landlock ABI, 0 where the kernel has no scopes.
pub(crate) fn confine(filters: &[Program]) -> Result<u32, Failure> {
    caps::drop_all().stage(STAGE, "dropping the capabilities")?;
    let abi = landlock::abi();
    let scoped = abi >= SCOPES_SINCE;
    if scoped {
        // Blocks signals and ptrace to init and the daemons, and abstract sockets, which no mount can hide.
        let scopes = landlock::SCOPE_ABSTRACT_UNIX_SOCKET | landlock::SCOPE_SIGNAL;
        landlock::enter_scopes(scopes).stage(STAGE, "entering the Landlock scopes")?;
    }
    install(filters)?;
    Ok(if scoped { abi } else { 0 })
}
