//! `landbox`: see [`landbox::cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    landbox::host::close_memory();
    landbox::host::umask::soften();
    landbox::cli::main()
}
