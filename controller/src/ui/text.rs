//! Printing of bytes that a session wrote. Nothing in them may reach the terminal as anything but visible text.

use std::fmt::Write;
use unicode_width::UnicodeWidthChar;

/// Most marks in a row that may sit on one character: enough for every written language, too few to paint over the
/// lines above.
const MARKS: usize = 3;

/// Whether a character changes the terminal or the direction of text, or looks like nothing or like a plain space.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
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

/// Like [`visible`], in double quotes where the name could be taken for more than one word.
pub fn visible_name(bytes: &[u8]) -> String {
    let text = visible(bytes);
    if text.is_empty() || text.contains([' ', '"', '\'', '`', '(']) {
        format!("\"{}\"", text.replace('"', "\\\""))
    } else {
        text
    }
}

/// A count with its word.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The first `most` characters, and how many were left out.
pub fn cut(text: &str, most: usize) -> (&str, usize) {
    match text.char_indices().nth(most) {
        Some((at, _)) => (&text[..at], text[at..].chars().count()),
        None => (text, 0),
    }
}

fn render(bytes: &[u8], name: bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    // At the start there is nothing a mark could sit on but what we printed ourselves.
    let mut marks = MARKS;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mark = c.width() == Some(0);
            marks = if mark { marks + 1 } else { 0 };
            match c {
                '\\' if name => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' if name => out.push_str("\\t"),
                '\t' => {
                    out.push('\t');
                    marks = MARKS;
                }
                '\r' => out.push_str("\\r"),
                // Writing to a String cannot fail.
                c if is_hidden(c) || (mark && marks > MARKS) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                    marks = MARKS;
                }
                c => out.push(c),
            }
        }
        for b in chunk.invalid() {
            let _ = write!(out, "\\x{b:02x}");
            marks = MARKS;
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

    #[test]
    fn what_looks_like_nothing_or_like_a_space_is_spelt_out() {
        for c in [
            '\u{a0}',
            '\u{2003}',
            '\u{3000}',
            '\u{200b}',
            '\u{3164}',
            '\u{2800}',
            '\u{e0041}',
            '\u{fe01}',
        ] {
            let text = format!("a{c}b");
            assert_eq!(visible(text.as_bytes()), format!("a\\u{{{:x}}}b", u32::from(c)));
        }
    }

    #[test]
    fn marks_sit_on_a_character_and_never_pile_up() {
        assert_eq!(visible("e\u{301}".as_bytes()), "e\u{301}");
        assert_eq!(visible("\u{301}e".as_bytes()), "\\u{301}e");
        let pile = format!("a{}", "\u{316}".repeat(50));
        assert_eq!(visible(pile.as_bytes()).matches('\u{316}').count(), MARKS);
        assert_eq!(visible(b"\xff\xcc\x81"), "\\xff\\u{301}");
        assert_eq!(visible("\u{2764}\u{fe0f}".as_bytes()), "\u{2764}\u{fe0f}");
    }

    #[test]
    fn a_name_that_could_be_two_words_is_quoted() {
        assert_eq!(visible_name(b"a/b.rs"), "a/b.rs");
        assert_eq!(visible_name(b"a -> \"b\""), "\"a -> \\\"b\\\"\"");
        assert_eq!(visible_name(b""), "\"\"");
    }

    #[test]
    fn cutting_counts_what_is_left_out() {
        assert_eq!(cut("aéb", 2), ("aé", 1));
        assert_eq!(cut("aéb", 3), ("aéb", 0));
    }
}
