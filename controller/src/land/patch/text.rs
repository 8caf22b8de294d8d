//! Hunks of a text change, as git prints them with three lines of context.

use super::lines::Script;
use imara_diff::sources::{ByteLines, byte_lines};
use std::io::{self, Write};

/// Common lines shown around what differs.
const CONTEXT: usize = 3;

/// Writes every hunk of `script`.
pub(super) fn write_hunks(out: &mut dyn Write, script: &Script<'_>) -> io::Result<()> {
    let mut old = Cursor { lines: byte_lines(script.before), at: 0 };
    let mut new = Cursor { lines: byte_lines(script.after), at: 0 };
    let mut rest = script.hunks.as_slice();
    while let Some(first) = rest.first() {
        // Hunks whose contexts would meet are printed as one.
        let meets = |pair: &[_]| {
            let [a, b]: &[super::lines::Hunk; 2] = pair.try_into().ok()?;
            (b.before.start - a.before.end > 2 * CONTEXT).then_some(())
        };
        let length = rest.windows(2).take_while(|pair| meets(pair).is_none()).count() + 1;
        let (group, tail) = rest.split_at(length);
        let last = group.last().unwrap_or(first);
        let lead = first.before.start.min(CONTEXT);
        let trail = (script.before_lines - last.before.end).min(CONTEXT);
        let before = first.before.start - lead..last.before.end + trail;
        let after = first.after.start - lead..last.after.end + trail;
        out.write_all(b"@@ -")?;
        write_range(out, script.skipped + before.start, before.len())?;
        out.write_all(b" +")?;
        write_range(out, script.skipped + after.start, after.len())?;
        out.write_all(b" @@\n")?;
        old.skip_to(before.start);
        new.skip_to(after.start);
        for hunk in group {
            new.skip_to(hunk.after.start);
            old.print(out, b' ', hunk.before.start)?;
            old.print(out, b'-', hunk.before.end)?;
            new.print(out, b'+', hunk.after.end)?;
        }
        old.print(out, b' ', before.end)?;
        rest = tail;
    }
    Ok(())
}

/// `start` counts lines in front. An empty range names the line before it.
fn write_range(out: &mut dyn Write, start: usize, length: usize) -> io::Result<()> {
    match length {
        0 => write!(out, "{start},0"),
        1 => write!(out, "{}", start + 1),
        _ => write!(out, "{},{length}", start + 1),
    }
}

struct Cursor<'a> {
    lines: ByteLines<'a>,
    at: usize,
}

impl Cursor<'_> {
    fn skip_to(&mut self, line: usize) {
        if let Some(skip) = line.checked_sub(self.at + 1) {
            self.lines.nth(skip);
            self.at = line;
        }
    }

    fn print(&mut self, out: &mut dyn Write, mark: u8, end: usize) -> io::Result<()> {
        for line in self.lines.by_ref().take(end.saturating_sub(self.at)) {
            self.at += 1;
            out.write_all(&[mark])?;
            out.write_all(line)?;
            if !line.ends_with(b"\n") {
                out.write_all(b"\n\\ No newline at end of file\n")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::diff;
    use super::*;

    fn hunks(old: &str, new: &str) -> String {
        let mut out = Vec::new();
        write_hunks(&mut out, &diff(old.as_bytes(), new.as_bytes())).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_missing_final_line_end_is_said_on_each_side() {
        let marker = "\\ No newline at end of file\n";
        assert_eq!(hunks("a", "b"), format!("@@ -1 +1 @@\n-a\n{marker}+b\n{marker}"));
        assert_eq!(hunks("a\n", "a"), format!("@@ -1 +1 @@\n-a\n+a\n{marker}"));
        assert_eq!(hunks("x\na", "y\na"), format!("@@ -1,2 +1,2 @@\n-x\n+y\n a\n{marker}"));
        assert_eq!(hunks("", "a"), format!("@@ -0,0 +1 @@\n+a\n{marker}"));
        assert_eq!(hunks("a\nb\n", ""), "@@ -1,2 +0,0 @@\n-a\n-b\n");
    }

    #[test]
    fn changes_seven_lines_apart_are_two_hunks_and_six_are_one() {
        let text = |middle: usize, mark: &str| {
            let same: String = (0..middle).map(|i| format!("{i}\n")).collect();
            format!("{mark}\n{same}{mark}\n")
        };
        assert_eq!(hunks(&text(6, "a"), &text(6, "b")).matches("@@ -").count(), 1);
        assert_eq!(
            hunks(&text(7, "a"), &text(7, "b")),
            "@@ -1,4 +1,4 @@\n-a\n+b\n 0\n 1\n 2\n@@ -6,4 +6,4 @@\n 4\n 5\n 6\n-a\n+b\n"
        );
    }

    #[test]
    fn lines_that_look_like_headers_and_carriage_returns_are_content() {
        assert_eq!(hunks("-- c\r\n", "++ d\r\n"), "@@ -1 +1 @@\n--- c\r\n+++ d\r\n");
    }
}
