//! `landbox-helper`: see [`landbox_helper`].
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    landbox_helper::helper()
}
