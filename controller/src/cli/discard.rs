//! `landbox discard`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DiscardArgs {
    /// Session: exact id, exact name, or a unique prefix
    #[arg(value_name = "ID")]
    id: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) fn discard(_call: &Invocation, _args: DiscardArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox discard` is not there yet"))
}
