//! Judging: signature and digest first, then, decoded, every part of the plan and every operation of its own, which is
//! `landbox_shared::judge`'s. The caller is taken to be hostile: it may have signed anything.

use crate::failure::{Context, Failure, Stage, refused, require};
use crate::receive::{Pipe, Received};
use crate::start::Caller;
use crate::trust;
use landbox_shared::digest::Digest;
use landbox_shared::exec::Exec;
use landbox_shared::judge::judge;
use landbox_shared::plan::{Plan, Stdio};
use landbox_shared::wire;
use nix::sys::stat::fstat;
use std::io::{stderr, stdin, stdout};
use std::os::fd::AsFd;

const STAGE: Stage = Stage::Verify;

/// An enrolled key signed this plan for this very launch, and every part of it was judged.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) caller: Caller,
    pub(crate) plan: Plan,
    pub(crate) exec: Exec,
    pub(crate) envelope_digest: Digest,
    /// Its end is waited for before anything is mounted.
    pub(crate) pipe: Pipe,
}

/// Checks the two frames and judges the plan.
pub(crate) fn verify(received: Received) -> Result<Verified, Failure> {
    let Received { caller, binding, envelope, exec, pipe } = received;
    let mut found = Ok(None);
    let opened = wire::open(&envelope, &binding, |id| {
        found = trust::find(&caller.trusted, caller.uid, id);
        found.as_ref().ok().copied().flatten()
    });
    // Why the folder of a key isn't trusted says more than that the key is not.
    found?;
    let wire::Opened { plan, digest: envelope_digest, key: _ } =
        opened.map_err(|e| refused(STAGE, e))?;
    let exec = wire::open_exec(&exec, &plan.exec_digest).map_err(|e| refused(STAGE, e))?;
    let same = (plan.uid, plan.gid) == (caller.uid, caller.gid);
    require(same, STAGE, "the plan is for another user or group")?;
    exec.flaw().map_or(Ok(()), |flaw| Err(refused(STAGE, flaw)))?;
    judge(&plan)?;
    judge_stdio(&plan.stdio)?;
    Ok(Verified { caller, plan, exec, envelope_digest, pipe })
}

/// Whether the descriptors 0 to 2 are what the plan says.
fn judge_stdio(stdio: &[Stdio; 3]) -> Result<(), Failure> {
    let (stdin, stdout, stderr) = (stdin(), stdout(), stderr());
    let fds = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    for (n, (kind, fd)) in stdio.iter().zip(fds).enumerate() {
        let mode = fstat(fd).stage(STAGE, "reading what a descriptor is")?.st_mode;
        require(kind.allows(mode), STAGE, format!("descriptor {n} is not a pipe"))?;
    }
    Ok(())
}
