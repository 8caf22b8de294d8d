//! `landbox-helper`, the privileged half of Landbox. It carries out one signed plan and stays until the session ends.
//!
//! The stages, each of which consumes what the one before it made:
//!
//! 1. **start** (`start.rs`, `caps.rs`): close what was not given, forget the environment, find out what we are.
//! 2. **Received** (`receive.rs`): a challenge goes out; one envelope and one exec frame come in, and nothing more.
//! 3. **Verified** (`verify.rs`, `trust.rs`): an enrolled key signed them for this launch; every operation is judged. With
//!    the file capability the system's log (`log.rs`) is told of a refusal, and of a launch before anything is raised.
//! 4. the session's **lock** (`lock.rs`).
//! 5. **Isolated** (`ns.rs`): user namespace N with all others, init in it, and in T, inside N, what will be the task.
//! 6. **Guarded** (`net/filter.rs`): a policy's rules stand, and were read back, before there is a link.
//! 7. **Mounted** (`mount/`, `fuse.rs`): init builds the new root, operation by operation, while the link starts.
//! 8. **Networked** (`net/link.rs`, `net/slirp.rs`): the link is there and is what was meant.
//! 9. **Confined** (`task.rs`, `confine.rs`, `landlock`): the task enters the new root and gives every right up.
//! 10. the **evidence** (`evidence.rs`): what the kernel says about it now; init and monitor give up their rights, too.
//! 11. **Released** (`init.rs`): only after the controller's word does the task execute its program.
//!
//! Then init reaps (`reap.rs`) and the monitor watches (`monitor.rs`) until one of all these processes ends,
//! which ends the others. There is no other way to the task's first instruction.
//!
//! `audit/` is another program, `landbox-audit`, which never has a privilege that its caller hasn't.
#![deny(unsafe_code)]

mod audit;
mod caps;
mod channel;
mod confine;
mod daemon;
mod evidence;
mod fuse;
mod init;
mod lock;
mod log;
mod monitor;
mod mount;
mod net;
mod ns;
mod open;
mod reap;
mod receive;
mod start;
#[allow(unsafe_code)]
mod sys;
mod task;
mod trust;
mod verify;

pub use audit::audit;

use channel::Events;
use landbox_shared::event::Event;
use landbox_shared::failure::{self, Failure};
use landbox_shared::log::{Caller, Entry};
use landbox_shared::policy::Network;
use landbox_shared::wire;
use ns::Isolated;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

/// The whole program.
pub fn helper() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let words = match (arguments.next(), arguments.next()) {
        (None, _) => return session(),
        (Some(argument), None) if argument == "--version" => {
            // `println!` would panic where nobody listens.
            let version = concat!("landbox-helper ", env!("CARGO_PKG_VERSION"));
            let _ = writeln!(std::io::stdout(), "{version}");
            return ExitCode::SUCCESS;
        }
        (Some(_), _) => "landbox-helper takes no argument but --version.",
    };
    refuse(words)
}

fn refuse(words: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{words}");
    ExitCode::from(2)
}

fn session() -> ExitCode {
    let Some((envelope, mut events)) = start::inherit() else {
        let how = "with an envelope on descriptor 3 and an event socket on 4";
        return refuse(&format!("landbox-helper is started by landbox, {how}."));
    };
    match boundary(envelope, &mut events) {
        Ok(isolated) => {
            monitor::stay(isolated, &events);
            // Not by way of `main`: what the standard library does there the monitor's own filter would kill.
            sys::process::leave(0)
        }
        Err(failure) => {
            // A controller that is gone can't be told.
            let _ = events.send(failure.stage, &Event::Failed(failure), &[]);
            ExitCode::FAILURE
        }
    }
}

/// The stages of this process. Those of init follow in `init::run`.
fn boundary(envelope: OwnedFd, events: &mut Events) -> Result<Isolated, Failure> {
    let caller = start::start()?;
    let mut told = Caller { mode: caller.mode, uid: caller.uid, signer: None };
    let verified = receive::receive(caller, envelope, events).and_then(|received| {
        told.signer = wire::signer(&received.envelope);
        verify::verify(received)
    });
    let verified =
        verified.inspect_err(|failure| log::tell(&told, Entry::Refusal(failure.stage)))?;
    if matches!(verified.plan.network, Network::Policy(_)) {
        net::probe()?;
    }
    let locked = lock::lock(&verified.plan.session_dir, verified.caller.uid)?;
    log::tell(&told, Entry::Launch);
    ns::isolate(verified, locked, events)
}
