//! Looks at a session from the inside. Static, so that it runs whatever the session shows. Prints one JSON document.
//!
//! ```text
//! prober facts                              what this process can see of itself and its world
//! prober calls                              what the system-call filters say
//! prober restricted-calls                   the same for the restricted profile
//! prober net FLOWS.json [MILLISECONDS]      tries each destination, for so long
//! prober flood FLOWS.json [FILE]            sends to every destination until it is ended; the file has the time
//! prober again WORD..                       becomes this program anew, with these words
//! prober serve PORT..                       listens on every address, and counts
//! prober without PART CMD ARG..             becomes the command, on a kernel without nf-tables or landlock
//! prober meddle FAULT CMD ARG..             runs the command with a hand in what it says to the packet filter
//! prober write SCRATCH PATH..               every way of changing each path
//! prober attack ATTACK.json                 everything there is: see `Attack`
//! ```

mod calls;
mod facts;
mod files;
mod net;
mod sys;
mod world;

use landbox_tests::probe::{Attack, Attempt};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What was tried and how it ended.
#[derive(Default)]
struct Log {
    attempts: Vec<Attempt>,
}

impl Log {
    fn add(&mut self, way: &str, on: &str, result: Result<i64, i32>) {
        self.add_number(way, on, result.err().unwrap_or(0));
    }

    fn add_number(&mut self, way: &str, on: &str, errno: i32) {
        self.attempts.push(Attempt { way: way.to_owned(), on: on.to_owned(), errno });
    }
}

fn attack(attack: &Attack) -> Vec<Attempt> {
    let mut log = Log::default();
    // Mounts and namespaces first, while the targets are still there to be mounted over.
    world::descriptors(&mut log);
    world::kernel(&mut log);
    world::gently(&mut log, &attack.gently);
    world::sockets(&mut log, &attack.sockets, &attack.abstract_sockets, &attack.fifos);
    world::mounts(&mut log, &attack.targets);
    world::namespaces(&mut log, &attack.targets, &attack.scratch);
    for target in &attack.targets {
        files::write_every_way(&mut log, target, &attack.scratch);
    }
    // Last: signals end what they reach.
    world::processes(&mut log, &attack.pids, &attack.host_pid_namespace);
    log.attempts
}

fn document(args: &[&str]) -> Option<Result<Vec<u8>, serde_json::Error>> {
    let mut log = Log::default();
    match args {
        ["facts"] => return Some(serde_json::to_vec(&facts::facts())),
        ["calls"] => calls::calls(&mut log),
        ["restricted-calls"] => calls::restricted(&mut log),
        ["net", file, millis @ ..] => {
            let patience = match millis {
                [] => net::PATIENCE,
                [millis, ..] => Duration::from_millis(millis.parse().ok()?),
            };
            let answers = net::read(Path::new(file)).and_then(|flows| net::tries(&flows, patience));
            return Some(
                answers.map_err(serde_json::Error::io).and_then(|a| serde_json::to_vec(&a)),
            );
        }
        ["flood", file, clock @ ..] => {
            let clock = clock.first().map(Path::new);
            let ended = net::read(Path::new(file)).and_then(|flows| net::flood(&flows, clock));
            return Some(Err(serde_json::Error::io(match ended {
                Ok(never) => match never {},
                Err(error) => error,
            })));
        }
        ["again", words @ ..] => {
            let error = std::process::Command::new("/proc/self/exe").args(words).exec();
            return Some(Err(serde_json::Error::io(error)));
        }
        ["serve", ports @ ..] => {
            let ports: Option<Vec<u16>> = ports.iter().map(|port| port.parse().ok()).collect();
            return Some(net::serve(&ports?).map(|()| Vec::new()).map_err(serde_json::Error::io));
        }
        ["without", part, command @ ..] => {
            return Some(Err(serde_json::Error::io(net::without(part, command)?)));
        }
        ["meddled-with", command @ ..] => {
            return Some(Err(serde_json::Error::io(net::meddled_with(command))));
        }
        ["write", scratch, targets @ ..] => {
            for target in targets {
                files::write_every_way(&mut log, &PathBuf::from(target), Path::new(scratch));
            }
        }
        ["attack", file] => {
            let text = std::fs::read(file).ok()?;
            let plan: Attack = serde_json::from_slice(&text).ok()?;
            log.attempts = attack(&plan);
        }
        _ => return None,
    }
    Some(serde_json::to_vec(&log.attempts))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["meddle", fault, command @ ..] = words.as_slice() {
        return net::meddle(fault, command).unwrap_or_else(|error| {
            let _ = writeln!(std::io::stderr(), "prober: {error}");
            ExitCode::from(3)
        });
    }
    match document(&words) {
        Some(Ok(mut json)) => {
            json.push(b'\n');
            match std::io::stdout().write_all(&json) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::from(3),
            }
        }
        Some(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "prober: {error}");
            ExitCode::from(3)
        }
        None => ExitCode::from(2),
    }
}
