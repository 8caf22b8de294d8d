//! `landbox gc`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct GcArgs {
    /// List what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Also remove sessions that are older than the stated age and were never landed
    #[arg(long)]
    expired: bool,
}

pub(super) fn gc(_call: &Invocation, _args: GcArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox gc` is not there yet"))
}
