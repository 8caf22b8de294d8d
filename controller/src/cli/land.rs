//! `landbox land`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct LandArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Apply the changes
    #[arg(long)]
    apply: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Apply only if the changes still have this digest
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
    /// Write the patch to FILE (`-` for stdout) and apply nothing
    #[arg(long, value_name = "FILE", conflicts_with = "apply")]
    patch: Option<std::path::PathBuf>,
    /// Include what the project's own ignore rules cover
    #[arg(long)]
    with_ignored: bool,
}

pub(super) fn land(_call: &Invocation, _args: LandArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox land` is not there yet"))
}
