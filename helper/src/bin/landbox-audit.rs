//! `landbox-audit`: see [`landbox_helper::audit`].
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    landbox_helper::audit()
}
