//! `landbox diff`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Print the list of changes without their text
    #[arg(long)]
    stat: bool,
    /// Show this layer instead of the project
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// Include what the project's own ignore rules cover
    #[arg(long)]
    with_ignored: bool,
    /// Only these paths, relative to the project
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<std::ffi::OsString>,
}

pub(super) fn diff(_call: &Invocation, _args: DiffArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox diff` is not there yet"))
}
