//! `landbox run`.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Take the sandbox settings of this bot (`name`, else a unique `cliId`)
    #[arg(long, value_name = "NAME")]
    bot: Option<String>,
    /// Name the session
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Work in this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    workdir: Option<std::path::PathBuf>,
    /// Show this path as empty
    #[arg(long, value_name = "PATH")]
    hide: Vec<std::ffi::OsString>,
    /// Show this path read-only
    #[arg(long, value_name = "PATH")]
    read_only: Vec<std::ffi::OsString>,
    /// Give the real path, read-write
    #[arg(long, value_name = "PATH")]
    auth: Vec<std::ffi::OsString>,
    /// Network: the host's (on), loopback alone (off), or a policy file
    #[arg(long, value_name = "on|off|FILE")]
    network: Option<std::ffi::OsString>,
    /// Which overlay writes the layers
    #[arg(long, value_name = "auto|kernel|fuse")]
    overlay: Option<String>,
    /// Write the session document to FILE at exit
    #[arg(long, value_name = "FILE")]
    report: Option<std::path::PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<std::ffi::OsString>,
}

pub(super) fn run(_call: &Invocation, _args: RunArgs) -> Result<u8> {
    Err(Failure::new(Kind::Failed, "`landbox run` is not there yet"))
}
