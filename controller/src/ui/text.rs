//! Printing of bytes that a session wrote. Nothing in them may reach the terminal as anything but visible text.

use std::fmt::Write;

/// Whether a character changes the terminal, the direction of text, or nothing visible at all.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line of visible text: backslash doubled, `\n`, `\t`, other control, bidirectional and invisible characters as
/// `\u{..}`, bytes that are not UTF-8 as `\xHH`.
pub fn visible(bytes: &[u8]) -> String {
    render(bytes, true)
}

/// Like [`visible`], but tabs stay and a backslash is not doubled: for lines of file content.
pub fn visible_content(bytes: &[u8]) -> String {
    render(bytes, false)
}

fn render(bytes: &[u8], name: bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' if name => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' if name => out.push_str("\\t"),
                '\t' => out.push('\t'),
                '\r' => out.push_str("\\r"),
                // Writing to a String cannot fail.
                c if is_hidden(c) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_the_cursor_or_turns_text_survives() {
        assert_eq!(visible(b"\x1b[2Ja\r\nb"), "\\u{1b}[2Ja\\r\\nb");
        assert_eq!(visible("a\u{202e}b\u{2066}".as_bytes()), "a\\u{202e}b\\u{2066}");
        assert_eq!(visible(b"\xff\\"), "\\xff\\\\");
        assert_eq!(visible("é".as_bytes()), "é");
        assert_eq!(visible_content(b"a\tb\\"), "a\tb\\");
        assert_eq!(visible("\u{9b}31m".as_bytes()), "\\u{9b}31m");
    }
}
