//! `landbox resume`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Write the session document to FILE at exit
    #[arg(long, value_name = "FILE")]
    report: Option<std::path::PathBuf>,
    /// Session: exact id, exact name, or a unique prefix
    #[arg(value_name = "ID")]
    id: String,
    /// Another command instead of the first one
    #[arg(value_name = "CMD", last = true)]
    command: Vec<std::ffi::OsString>,
}

pub(super) fn resume(_call: &Invocation, _args: ResumeArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox resume` is not there yet"))
}
