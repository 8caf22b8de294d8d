//! The network work that benches time: `serve ADDRESS PORT`, `send ADDRESS PORT MS`, `receive ADDRESS PORT MS`,
//! `connect ADDRESS PORT COUNT`.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 256 * 1024;

/// Serves until it is ended: the first byte of a connection says which way the data goes; none, that it was only made.
pub(crate) fn serve(address: &str, port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((address, port))?;
    io::stdout().write_all(b"serving\n")?;
    io::stdout().flush()?;
    for stream in listener.incoming().flatten() {
        thread::spawn(move || one(stream));
    }
    Ok(())
}

fn one(mut stream: TcpStream) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut way = [0];
    if stream.read(&mut way)? == 0 {
        return Ok(());
    }
    match way {
        // It says at the end how much arrived: what the sender wrote may still be under way.
        [b's'] => {
            let mut total = 0u64;
            loop {
                match stream.read(&mut block)? {
                    0 => return stream.write_all(&total.to_be_bytes()),
                    count => total += u64::try_from(count).unwrap_or(0),
                }
            }
        }
        _ => loop {
            stream.write_all(&block)?;
        },
    }
}

/// Sends for so long; gives megabits per second, as they arrived.
pub(crate) fn send(address: &str, port: u16, millis: u64) -> io::Result<f64> {
    let block = vec![0x5a; BLOCK];
    let mut stream = TcpStream::connect((address, port))?;
    stream.write_all(b"s")?;
    let begin = Instant::now();
    let limit = Duration::from_millis(millis);
    while begin.elapsed() < limit {
        stream.write_all(&block)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut total = [0; 8];
    stream.read_exact(&mut total)?;
    Ok(rate(u64::from_be_bytes(total), begin))
}

/// Receives for so long; gives megabits per second.
pub(crate) fn receive(address: &str, port: u16, millis: u64) -> io::Result<f64> {
    let mut block = vec![0; BLOCK];
    let mut stream = TcpStream::connect((address, port))?;
    stream.write_all(b"r")?;
    let begin = Instant::now();
    let limit = Duration::from_millis(millis);
    let mut total = 0;
    while begin.elapsed() < limit {
        total += u64::try_from(stream.read(&mut block)?).unwrap_or(0);
    }
    Ok(rate(total, begin))
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn rate(bytes: u64, begin: Instant) -> f64 {
    bytes as f64 * 8.0 / 1e6 / begin.elapsed().as_secs_f64()
}

/// Makes so many connections; gives the median in microseconds.
pub(crate) fn connect(address: &str, port: u16, count: usize) -> io::Result<f64> {
    let mut figures = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        let stream = TcpStream::connect((address, port))?;
        figures.push(begin.elapsed().as_secs_f64() * 1e6);
        // Ends by a reset, so that the link doesn't fill with connections that are being closed.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    }
    figures.sort_by(f64::total_cmp);
    Ok(figures.get(count / 2).copied().unwrap_or(0.0))
}
