//! Patch text on a terminal: the whole of it, or its first lines. Everything a session wrote is made visible; the bodies
//! of binary patches are replaced by a line that says how large they are.

use super::text::{cut, visible_content};
use std::io::{self, Write};

/// Most lines of a preview.
const PREVIEW_LINES: usize = 60;
/// Most characters of a preview.
const PREVIEW_CHARS: usize = 4000;
/// Most characters of one line of a preview.
const LINE_CHARS: usize = 240;
/// A line is printed in pieces of this size, so that no line needs more memory.
const PIECE: usize = 64 << 10;

/// What a line of a patch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Hunk,
    Added,
    Deleted,
    Same,
    /// Inside the body of a binary patch; `true` after its first size.
    Binary,
}

/// Follows a patch line by line.
#[derive(Debug)]
struct Reader {
    part: Part,
    /// Sizes after and before, from the `literal` lines of a binary patch.
    sizes: Vec<String>,
}

/// One line to show.
struct Line<'a> {
    part: Part,
    text: std::borrow::Cow<'a, [u8]>,
}

impl Reader {
    fn new() -> Self {
        Self { part: Part::Head, sizes: Vec::new() }
    }

    /// The line to show for a line of the patch. Content always has a mark in front, so no content can pass for a header.
    fn line<'a>(&mut self, line: &'a [u8]) -> Option<Line<'a>> {
        if line.starts_with(b"diff --git ") {
            self.part = Part::Head;
        } else if line.starts_with(b"@@ ") && self.part != Part::Binary {
            self.part = Part::Hunk;
        } else if line == b"GIT binary patch" && self.part == Part::Head {
            self.part = Part::Binary;
            self.sizes.clear();
            return None;
        } else if self.part == Part::Binary {
            if let Some(size) = line.strip_prefix(b"literal ") {
                self.sizes.push(String::from_utf8_lossy(size).into_owned());
                if let [after, before] = self.sizes.as_slice() {
                    let text = format!("binary, {after} bytes (was {before})").into_bytes();
                    return Some(Line { part: Part::Binary, text: text.into() });
                }
            }
            return None;
        } else if self.part != Part::Head {
            self.part = match line.first() {
                Some(b'+') => Part::Added,
                Some(b'-') => Part::Deleted,
                _ => Part::Same,
            };
        }
        Some(Line { part: self.part, text: line.into() })
    }
}

fn paint(part: Part, color: bool) -> (&'static str, &'static str) {
    let code = match part {
        _ if !color => return ("", ""),
        Part::Head => "\x1b[1m",
        Part::Hunk => "\x1b[36m",
        Part::Added => "\x1b[32m",
        Part::Deleted => "\x1b[31m",
        Part::Binary => "\x1b[2m",
        Part::Same => return ("", ""),
    };
    (code, "\x1b[0m")
}

/// Splits what is written into lines and pieces of lines.
#[derive(Debug, Default)]
struct Splitter {
    line: Vec<u8>,
    /// Whether the start of the current line has been given away.
    started: bool,
}

impl Splitter {
    /// Calls `each(piece, starts, ends)`.
    fn feed(
        &mut self,
        mut data: &[u8],
        mut each: impl FnMut(&[u8], bool, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        while !data.is_empty() {
            let end = data.iter().take(PIECE).position(|b| *b == b'\n');
            let take = end.unwrap_or_else(|| data.len().min(PIECE));
            self.line.extend_from_slice(&data[..take]);
            data = &data[take + usize::from(end.is_some())..];
            if end.is_some() {
                each(&self.line, !self.started, true)?;
                self.line.clear();
                self.started = false;
            } else if self.line.len() >= PIECE {
                // A character cut in two would be shown as bytes.
                let tail =
                    (1..4).find(|n| self.line[self.line.len() - n] & 0xc0 != 0x80).unwrap_or(0);
                let cut = self.line.len() - tail;
                each(&self.line[..cut], !self.started, false)?;
                self.line.drain(..cut);
                self.started = true;
            }
        }
        Ok(())
    }
}

/// Prints a patch as it is written, for a terminal.
#[derive(Debug)]
pub struct PatchPrinter<W: Write> {
    out: W,
    color: bool,
    reader: Reader,
    splitter: Splitter,
    /// How the current line ends; `None` while it is not shown.
    tail: Option<&'static str>,
}

impl<W: Write> PatchPrinter<W> {
    /// Prints to `out`.
    pub fn new(out: W, color: bool) -> Self {
        Self { out, color, reader: Reader::new(), splitter: Splitter::default(), tail: None }
    }
}

impl<W: Write> Write for PatchPrinter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let Self { out, color, reader, splitter, tail } = self;
        splitter.feed(data, |piece, starts, ends| {
            if starts {
                let Some(line) = reader.line(piece) else {
                    *tail = None;
                    return Ok(());
                };
                let (on, off) = paint(line.part, *color);
                *tail = Some(off);
                write!(out, "{on}{}", visible_content(&line.text))?;
            } else if tail.is_some() {
                out.write_all(visible_content(piece).as_bytes())?;
            }
            match tail {
                Some(off) if ends => writeln!(out, "{off}"),
                _ => Ok(()),
            }
        })?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Keeps the first lines of a patch that is written to it, and counts the rest.
#[derive(Debug)]
pub struct Preview {
    lines: Vec<(Part, String)>,
    chars: usize,
    hidden: u64,
    reader: Reader,
    splitter: Splitter,
    /// Characters of the line being written that were left out, in bytes.
    rest: usize,
}

impl Default for Preview {
    fn default() -> Self {
        Self::new()
    }
}

impl Preview {
    /// An empty preview.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            chars: 0,
            hidden: 0,
            reader: Reader::new(),
            splitter: Splitter::default(),
            rest: 0,
        }
    }

    /// Lines that are not in it.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines, each painted and without its line end.
    pub fn lines(&self, color: bool) -> impl Iterator<Item = String> + '_ {
        self.lines.iter().map(move |(part, line)| {
            let (on, off) = paint(*part, color);
            format!("{on}{line}{off}")
        })
    }
}

impl Write for Preview {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let Self { lines, chars, hidden, reader, splitter, rest } = self;
        splitter.feed(data, |piece, starts, ends| {
            if starts {
                *rest = 0;
                let Some(line) = reader.line(piece) else { return Ok(()) };
                // Once a line did not fit, no later one is shown.
                if *hidden > 0 || lines.len() == PREVIEW_LINES || *chars >= PREVIEW_CHARS {
                    *hidden += 1;
                    return Ok(());
                }
                let text = visible_content(&line.text);
                let most = LINE_CHARS.min(PREVIEW_CHARS - *chars);
                let (head, left) = cut(&text, most);
                *chars += head.chars().count();
                *rest = left;
                lines.push((line.part, head.to_owned()));
            } else if *hidden == 0 {
                *rest += piece.len();
            }
            if ends && *rest > 0 {
                if let Some((_, line)) = lines.last_mut() {
                    line.push_str(&format!(" [{rest} more characters]"));
                }
                *rest = 0;
            }
            Ok(())
        })?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: &[u8] = b"diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 30\nzabc\n\nliteral 2\nAxx\n\ndiff --git a/y b/y\n";

    fn printed(patch: &[u8], color: bool) -> String {
        let mut out = Vec::new();
        let mut printer = PatchPrinter::new(&mut out, color);
        // In small writes, as they may come.
        patch.chunks(7).for_each(|part| printer.write_all(part).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_binary_body_is_told_by_its_sizes() {
        assert_eq!(
            printed(BINARY, false),
            "diff --git a/x b/x\nindex 1..2 100644\nbinary, 30 bytes (was 2)\ndiff --git a/y b/y\n"
        );
    }

    #[test]
    fn content_cannot_act_on_the_terminal_or_pass_for_a_header() {
        let patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-\x1b[2J\n+\x1b]52;c;AAAA\x07\r\n+GIT binary patch\n";
        assert_eq!(
            printed(patch, true),
            "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n\
             \x1b[36m@@ -1 +1,2 @@\x1b[0m\n\x1b[31m-\\u{1b}[2J\x1b[0m\n\
             \x1b[32m+\\u{1b}]52;c;AAAA\\u{7}\\r\x1b[0m\n\x1b[32m+GIT binary patch\x1b[0m\n"
        );
    }

    #[test]
    fn a_long_line_is_printed_whole_in_pieces() {
        let mut patch = b"@@ -1 +1 @@\n+".to_vec();
        let line = "\u{e9}".repeat(200_000);
        patch.extend_from_slice(line.as_bytes());
        patch.push(b'\n');
        let mut out = Vec::new();
        PatchPrinter::new(&mut out, false).write_all(&patch).unwrap();
        assert!(out == patch);
    }

    #[test]
    fn a_preview_holds_sixty_lines_and_counts_the_rest() {
        let mut preview = Preview::new();
        for i in 0..100 {
            preview.write_all(format!("line {i}\n").as_bytes()).unwrap();
        }
        assert_eq!(preview.lines(false).count(), 60);
        assert_eq!(preview.hidden(), 40);
    }

    #[test]
    fn a_preview_cuts_long_lines_and_says_how_much() {
        let mut preview = Preview::new();
        let mut long = vec![b'x'; 300_000];
        long.push(b'\n');
        preview.write_all(&long).unwrap();
        preview.write_all(b"next\n").unwrap();
        let lines: Vec<String> = preview.lines(false).collect();
        assert!(lines[0].ends_with("x [299760 more characters]"));
        assert_eq!(lines[1], "next");
        for _ in 0..60 {
            preview.write_all(&long).unwrap();
        }
        let shown: usize = preview.lines(false).map(|l| l.matches('x').count()).sum();
        assert!(shown <= PREVIEW_CHARS);
        assert!(preview.hidden() > 40);
    }
}
