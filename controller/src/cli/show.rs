//! `landbox show`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
}

pub(super) fn show(_call: &Invocation, _args: ShowArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox show` is not there yet"))
}
