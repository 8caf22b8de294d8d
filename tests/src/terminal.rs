//! A terminal around `landbox`, as a person's terminal program would be.

use crate::procs;
use crate::run::Run;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{self, Winsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A running command on a pseudo-terminal.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    master: File,
    slave: File,
    screen: Arc<Mutex<Vec<u8>>>,
    what: String,
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    pub(crate) fn start(run: &mut Run, columns: u16, rows: u16) -> Self {
        let master: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        if let Some(uid) = run.owner() {
            std::os::unix::fs::chown(path, Some(uid), None).unwrap();
        }
        let slave =
            OpenOptions::new().read(true).write(true).custom_flags_noctty().open(path).unwrap();
        termios::tcsetwinsize(&slave, size(columns, rows)).unwrap();
        // A login of its own: `setsid --ctty` makes the slave the controlling terminal.
        let mut command = run.command(&["setsid", "--ctty", "--wait"]);
        let fd = || slave.try_clone().unwrap();
        command.stdin(fd()).stdout(fd()).stderr(fd());
        let child = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut reader = File::from(master.try_clone().unwrap());
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                shown.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, master: master.into(), slave, screen, what: format!("{command:?}") }
    }

    /// The process that was started.
    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// Types.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.master.write_all(bytes.as_ref()).unwrap();
    }

    /// Changes the window's size.
    pub fn resize(&self, columns: u16, rows: u16) {
        termios::tcsetwinsize(&self.master, size(columns, rows)).unwrap();
    }

    /// Everything shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The same, byte for byte.
    pub fn bytes(&self) -> Vec<u8> {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until `text` was shown.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        self.expect_after(0, text);
    }

    /// Waits until `text` was shown after the first `from` bytes; gives where it ends.
    #[track_caller]
    pub fn expect_after(&self, from: usize, text: &str) -> usize {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let shown = self.shown();
            let rest = shown.get(from..).unwrap_or_default();
            if let Some(at) = rest.find(text) {
                return from + at + text.len();
            }
            if Instant::now() > end {
                panic!("{text:?} was not shown by {}\nshown: {shown:?}", self.what);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The line settings of the terminal, as text to compare.
    pub fn settings(&self) -> String {
        let settings = termios::tcgetattr(self.slave.as_fd()).unwrap();
        format!("{:?} {:?} {:?}", settings.input_modes, settings.output_modes, settings.local_modes)
    }

    /// Waits for the end; gives the exit code, or 1000 + the signal.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // The reader gets what is still in the line.
                std::thread::sleep(Duration::from_millis(50));
                return status.code().unwrap_or_else(|| 1000 + status.signal().unwrap_or(0));
            }
            if Instant::now() > end {
                let tree = procs::descendants(self.pid());
                procs::kill_all(&tree);
                let _ = self.child.kill();
                panic!("no end of {}\nshown: {:?}\n{tree:#?}", self.what, self.shown());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The slave must not become the controlling terminal of the tests themselves.
trait NoCtty {
    fn custom_flags_noctty(&mut self) -> &mut Self;
}

impl NoCtty for OpenOptions {
    fn custom_flags_noctty(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt;
        self.custom_flags(libc::O_NOCTTY)
    }
}
