//! The body of `GIT binary patch`: zlib, in git's base 85, in lines of up to 52 bytes.

use crate::error::{Context, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::{self, Read, Write};

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Bytes of compressed data in a full line.
const LINE: usize = 52;

/// Writes `literal <size>`, the content and an empty line. `content` must give `size` bytes: the caller compares.
pub(super) fn write_literal(out: &mut dyn Write, size: u64, content: &mut dyn Read) -> Result<()> {
    let failed = || "can't write the patch".to_owned();
    writeln!(out, "literal {size}").context(failed)?;
    let mut encoder =
        ZlibEncoder::new(Lines { out, line: Vec::with_capacity(LINE) }, Compression::default());
    io::copy(content, &mut encoder).context(failed)?;
    encoder.finish().and_then(Lines::finish).context(failed)
}

/// Turns compressed bytes into lines.
struct Lines<'a> {
    out: &'a mut dyn Write,
    line: Vec<u8>,
}

impl Lines<'_> {
    fn flush_line(&mut self) -> io::Result<()> {
        let length = self.line.len();
        if length == 0 {
            return Ok(());
        }
        // 1-26 are A-Z, 27-52 are a-z; a line never holds more.
        let mark = u8::try_from(length).map_err(io::Error::other)?;
        let mut text = [0; 2 + LINE / 4 * 5];
        text[0] = if mark <= 26 { b'A' + mark - 1 } else { b'a' + mark - 27 };
        let mut at = 1;
        for group in self.line.chunks(4) {
            let mut word = [0; 4];
            word[..group.len()].copy_from_slice(group);
            let mut value = u32::from_be_bytes(word);
            for digit in text[at..at + 5].iter_mut().rev() {
                *digit = ALPHABET[(value % 85) as usize];
                value /= 85;
            }
            at += 5;
        }
        text[at] = b'\n';
        self.line.clear();
        self.out.write_all(&text[..=at])
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush_line()?;
        self.out.write_all(b"\n")
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        for part in data.chunks(LINE) {
            let (head, tail) = part.split_at(part.len().min(LINE - self.line.len()));
            self.line.extend_from_slice(head);
            if self.line.len() == LINE {
                self.flush_line()?;
            }
            self.line.extend_from_slice(tail);
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(content: &[u8]) -> String {
        let mut out = Vec::new();
        write_literal(&mut out, content.len() as u64, &mut &*content).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nothing_is_one_short_line() {
        // An empty zlib stream is eight bytes, hence the H.
        let text = literal(b"");
        assert!(text.starts_with("literal 0\nH") && text.ends_with("\n\n"));
        assert_eq!(text.len(), "literal 0\nHcmV?d00001\n\n".len());
    }

    #[test]
    fn no_line_holds_more_than_52_bytes() {
        let noise: Vec<u8> =
            (0..5000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        let text = literal(&noise);
        let lines: Vec<&str> = text.lines().skip(1).filter(|l| !l.is_empty()).collect();
        let (last, full) = lines.split_last().unwrap();
        assert!(full.iter().all(|l| l.len() == 66 && l.starts_with('z')));
        assert!(last.len() <= 66);
    }
}
