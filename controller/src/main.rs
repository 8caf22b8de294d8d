//! `landbox`: see [`landbox::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    landbox::cli::main()
}
