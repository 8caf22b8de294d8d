//! The file work that benches time: `write DIR COUNT SIZE`, `edit DIR COUNT`, `lines BYTES`; the network work ([`net`]);
//! and, under the helper's name, what times that ([`between`]).
//!
//! One static program does the same work natively and in a session, so that an interpreter's start and pace cancel out.
#![forbid(unsafe_code)]

mod between;
mod net;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args();
    let is_helper = args.next().is_some_and(|name| name.ends_with("/landbox-helper"));
    let args: Vec<String> = args.collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] if is_helper => between::stand(),
        ["write", dir, count, size] => numbers(count, size).and_then(|(n, s)| write(dir, n, s)),
        ["edit", dir, count] => numbers(count, "0").and_then(|(n, _)| edit(dir, n)),
        ["lines", bytes] => numbers(bytes, "0").and_then(|(n, _)| lines(n)),
        ["serve", address, port] => number(port).and_then(|port| net::serve(address, port)),
        ["send", address, port, millis] => {
            number(port).and_then(|port| say(net::send(address, port, number(millis)?)?))
        }
        ["receive", address, port, millis] => {
            number(port).and_then(|port| say(net::receive(address, port, number(millis)?)?))
        }
        ["connect", address, port, count] => {
            number(port).and_then(|port| say(net::connect(address, port, number(count)?)?))
        }
        _ => Err(io::Error::other(
            "usage: bench-io write DIR COUNT SIZE | edit DIR COUNT | lines BYTES | serve ADDRESS PORT \
             | send ADDRESS PORT MS | receive ADDRESS PORT MS | connect ADDRESS PORT COUNT",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing to do where stderr is gone.
            let _ = writeln!(io::stderr(), "bench-io: {error}");
            ExitCode::FAILURE
        }
    }
}

fn numbers(a: &str, b: &str) -> io::Result<(usize, usize)> {
    let parse = |text: &str| text.parse().map_err(io::Error::other);
    Ok((parse(a)?, parse(b)?))
}

fn number<T: std::str::FromStr<Err = std::num::ParseIntError>>(text: &str) -> io::Result<T> {
    text.parse().map_err(io::Error::other)
}

fn say(figure: f64) -> io::Result<()> {
    writeln!(io::stdout(), "{figure:.1}")
}

fn place(dir: &str, i: usize) -> std::path::PathBuf {
    Path::new(dir).join(format!("d{}", i / 100)).join(format!("f{i}.txt"))
}

/// Makes `count` files of `size` bytes, a hundred in each folder.
fn write(dir: &str, count: usize, size: usize) -> io::Result<()> {
    let body = vec![b'x'; size];
    for i in 0..count {
        let path = place(dir, i);
        if i % 100 == 0 {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(dir)))?;
        }
        File::create(path)?.write_all(&body)?;
    }
    Ok(())
}

/// Appends a byte to each of the files that `write` made.
fn edit(dir: &str, count: usize) -> io::Result<()> {
    (0..count)
        .try_for_each(|i| OpenOptions::new().append(true).open(place(dir, i))?.write_all(b"x"))
}

/// Writes 80-column lines.
fn lines(mut bytes: usize) -> io::Result<()> {
    let block: Vec<u8> = (0..8000u32)
        .map(
            |i| if i % 80 == 79 { b'\n' } else { b"abcdefghijklmnopqrstuvwxyz"[(i % 26) as usize] },
        )
        .collect();
    let mut out = io::stdout().lock();
    while bytes > 0 {
        let piece = bytes.min(block.len());
        out.write_all(&block[..piece])?;
        bytes -= piece;
    }
    out.flush()
}
