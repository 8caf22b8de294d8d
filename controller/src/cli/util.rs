//! `landbox util`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct UtilArgs {
    /// man or completions
    what: String,
    /// Shell
    shell: Option<String>,
}

pub(super) fn util(_call: &Invocation, _args: UtilArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox util` is not there yet"))
}
