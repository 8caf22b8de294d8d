//! `landbox send`: typed inside a session, for the chat the session belongs to.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    /// What to send
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    message: Vec<std::ffi::OsString>,
}

pub(super) fn send(_call: &Invocation, args: SendArgs) -> Result<u8> {
    let SendArgs { message } = args;
    // Nobody listens: a message that would reach no one must not look sent.
    let size = message.iter().map(|word| word.len()).sum::<usize>();
    Err(Failure::new(Kind::Refused, format!("no receiver: {size} bytes were not sent"))
        .hint("this session belongs to a terminal, not to a chat: say it in your output"))
}
