//! `landbox ls`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Scan the layers of every session, also of running ones
    #[arg(long)]
    scan: bool,
}

pub(super) fn ls(_call: &Invocation, _args: LsArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox ls` is not there yet"))
}
