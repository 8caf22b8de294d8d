//! `landbox send`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    /// What to send
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    message: Vec<std::ffi::OsString>,
}

pub(super) fn send(_call: &Invocation, _args: SendArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox send` is not there yet"))
}
