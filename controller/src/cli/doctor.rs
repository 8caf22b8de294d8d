//! `landbox doctor`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Install what is missing, where that is all it takes
    #[arg(long)]
    fix: bool,
}

pub(super) fn doctor(_call: &Invocation, _args: DoctorArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox doctor` is not there yet"))
}
