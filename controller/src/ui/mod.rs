//! The only place that prints. People read stderr; results go to stdout.

pub mod card;
pub mod patch;
pub mod text;

use crate::error::{Failure, Result};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to speak to whoever called.
#[derive(Clone, Debug)]
pub struct Ui {
    /// Print documents for machines.
    pub json: bool,
    /// Say no more than results and errors.
    pub quiet: bool,
    /// Say more.
    pub verbose: bool,
    color: ColorChoice,
    held: Arc<Mutex<Vec<Held>>>,
}

/// A line for people, held back where documents are asked for: a failure is one document, and nothing before it.
#[derive(Debug)]
enum Held {
    Status(String),
    Warning(String),
}

impl Ui {
    /// Decides from the flags and the environment.
    pub fn new(json: bool, quiet: bool, verbose: bool, color: ColorChoice) -> Self {
        Self { json, quiet, verbose, color, held: Arc::default() }
    }

    fn colored(&self, terminal: bool) -> bool {
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }

    /// Whether stdout is coloured.
    pub fn color_stdout(&self) -> bool {
        self.colored(std::io::stdout().is_terminal())
    }

    /// Whether stderr is coloured.
    pub fn color_stderr(&self) -> bool {
        self.colored(std::io::stderr().is_terminal())
    }

    /// Prints a line for people on stderr, unless quiet. Errors of printing are ignored: the terminal may be gone.
    pub fn status(&self, line: impl AsRef<str>) {
        if self.quiet {
        } else if self.json {
            self.held().push(Held::Status(line.as_ref().to_owned()));
        } else {
            say(line.as_ref());
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints what was held back, at the end of a command that has not failed.
    pub fn release(&self) {
        for line in std::mem::take(&mut *self.held()) {
            match line {
                Held::Status(line) => say(&line),
                Held::Warning(line) => self.warn(&line),
            }
        }
    }

    /// Prints lines for people on stderr that were asked for by `-v`.
    pub fn detail(&self, lines: impl FnOnce() -> Vec<String>) {
        if self.verbose && !self.quiet {
            for line in lines() {
                self.status(format!("landbox: {line}"));
            }
        }
    }

    /// Prints a warning on stderr, also when quiet.
    pub fn warning(&self, line: impl AsRef<str>) {
        if self.json {
            self.held().push(Held::Warning(line.as_ref().to_owned()));
        } else {
            self.warn(line.as_ref());
        }
    }

    fn warn(&self, line: &str) {
        let (on, off) = if self.color_stderr() { ("\x1b[33m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(std::io::stderr(), "landbox: {on}warning:{off} {line}");
    }

    /// Prints a result on stdout, as it is.
    pub fn result(&self, text: impl AsRef<[u8]>) -> Result<()> {
        let mut out = std::io::stdout().lock();
        written_out(out.write_all(text.as_ref()).and_then(|()| out.flush()))
    }

    /// Prints a patch on stdout, made visible for a terminal; `raw` gives a reader that is no terminal the bytes.
    pub fn patch(&self, raw: bool, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        self.patch_to(std::io::stdout().lock(), raw, write)
    }

    /// [`Self::patch`] for a device or a pipe of another name.
    pub fn patch_to(
        &self,
        out: impl Write + IsTerminal,
        raw: bool,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let verbatim = raw && !out.is_terminal();
        let mut out = Lenient(out);
        if verbatim {
            write(&mut out)?;
        } else {
            write(&mut patch::PatchPrinter::new(&mut out, self.color_stdout()))?;
        }
        crate::error::Context::context(out.flush(), || "can't write the patch".into())
    }

    /// Whether there is somebody to ask.
    pub fn is_interactive(&self) -> bool {
        !self.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Prints a document on stdout.
    pub fn document(&self, document: &impl Serialize) -> Result<()> {
        // As it comes: the card of a large layer is many times as long as anything else of it.
        let mut out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
        let written = serde_json::to_writer_pretty(&mut out, document)
            .map_err(std::io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
        written_out(written)
    }

    /// Prints a failure on stderr.
    pub fn failure(&self, failure: &Failure) {
        let held = std::mem::take(&mut *self.held());
        let mut err = std::io::stderr().lock();
        if self.json {
            let warning = |line: Held| match line {
                Held::Warning(line) => Some(line),
                Held::Status(_) => None,
            };
            let warnings: Vec<String> = held.into_iter().filter_map(warning).collect();
            let document = serde_json::json!({"error": {
                "kind": failure.kind, "message": failure.message, "hints": failure.hints,
                "warnings": warnings,
            }});
            let _ = writeln!(err, "{document}");
            return;
        }
        let (on, off) = if self.color_stderr() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(err, "landbox: {on}error:{off} {}", failure.message);
        for hint in &failure.hints {
            let _ = writeln!(err, "  hint: {hint}");
        }
    }

    /// Why [`Self::is_interactive`] says no, as a clause.
    pub fn unasked(&self) -> &'static str {
        if self.json { "with --json nobody is asked" } else { "there is no terminal to ask on" }
    }

    /// Asks for a line on the terminal; `None` at the end of input or where nobody can be asked.
    pub fn ask(&self, prompt: &str) -> Option<String> {
        if !self.is_interactive() {
            return None;
        }
        let (on, off) = if self.color_stderr() { ("\x1b[1;34m", "\x1b[0m") } else { ("", "") };
        let _ = write!(std::io::stderr(), "{on}{prompt}{off} ");
        let _ = std::io::stderr().flush();
        read_line().filter(|line| !line.is_empty())
    }

    /// Prints what a question is about, on stderr where the question goes.
    pub fn about(&self, text: impl AsRef<str>) {
        let _ = write!(std::io::stderr(), "{}", text.as_ref());
    }

    /// Prints a hunk on stderr, made visible.
    pub fn hunk(&self, hunk: &[u8]) {
        let mut out = Vec::new();
        let _ = patch::PatchPrinter::new(&mut out, self.color_stderr()).write_all(hunk);
        let _ = std::io::stderr().write_all(&out);
    }

    /// Asks a yes-or-no question on the terminal; only "y" or "yes" is yes. `None` where nobody can be asked.
    pub fn confirm(&self, question: &str) -> Option<bool> {
        if !self.is_interactive() {
            return None;
        }
        let _ = write!(std::io::stderr(), "{question} [y/N] ");
        let _ = std::io::stderr().flush();
        let answer = read_line()?;
        Some(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A line that was typed, empty at the end of input, which ends the question's line. What is no text is an answer like
/// any other, to which nothing fits.
fn read_line() -> Option<String> {
    let mut line = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut line).ok()?;
    if !line.ends_with(b"\n") {
        let _ = writeln!(std::io::stderr());
    }
    Some(String::from_utf8_lossy(&line).into_owned())
}

/// A reader that has seen enough (`| head`) is not a failure.
struct Lenient<W: Write>(W);

impl<W: Write> Write for Lenient<W> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        match self.0.write(data) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(data.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self.0.flush() {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}
/// How writing to stdout went.
fn written_out(written: std::io::Result<()>) -> Result<()> {
    match written {
        // A reader that has seen enough (`| head`) is not a failure.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => crate::error::Context::context(other, || "can't write to stdout".into()),
    }
}
