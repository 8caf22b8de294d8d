//! Text form of byte strings: valid UTF-8 without a backslash stays as it is, a backslash is doubled, and each byte
//! that is not part of valid UTF-8 becomes `\xHH`. The form is reversible.

use std::fmt::Write;

/// Writes `bytes` in the reversible text form.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                out.push_str("\\\\");
            } else {
                out.push(c);
            }
        }
        for b in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    out
}

/// Reads the text form back. `None` if a backslash is followed by anything but a backslash or `xHH`.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        if b != b'\\' {
            out.push(b);
            rest = tail;
            continue;
        }
        match tail {
            [b'\\', tail @ ..] => {
                out.push(b'\\');
                rest = tail;
            }
            [b'x', h, l, tail @ ..] => {
                let digit = |d: u8| char::from(d).to_digit(16).and_then(|v| u8::try_from(v).ok());
                out.push(digit(*h)? << 4 | digit(*l)?);
                rest = tail;
            }
            _ => return None,
        }
    }
    Some(out)
}

/// Whether the text form differs from the bytes, so that a document needs the raw bytes beside it.
pub fn needs_escape(bytes: &[u8]) -> bool {
    bytes.contains(&b'\\') || std::str::from_utf8(bytes).is_err()
}

/// Text of which nothing but printable ASCII is left; every other byte is `\xHH`. For the eye: not reversible.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => out.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => write!(out, "\\x{byte:02x}").unwrap_or_default(),
        }
    }
    out
}

/// The last line somebody else wrote, fit to be shown. `None` where there is none.
pub fn last_line(said: &[u8]) -> Option<String> {
    let clean = escape(said).replace(|c: char| c.is_control() && c != '\n', "?");
    clean.lines().next_back().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_survives_the_text_form() {
        for raw in [&b"plain"[..], b"a\\b", b"\xff\xfe.bin", b"caf\xc3\xa9", b"\\x41", b"", b"\n\t"]
        {
            assert_eq!(unescape(&escape(raw)).as_deref(), Some(raw));
        }
        assert_eq!(escape(b"\xff\\"), "\\xff\\\\");
    }

    #[test]
    fn a_stray_backslash_is_refused() {
        assert_eq!(unescape("a\\"), None);
        assert_eq!(unescape("a\\n"), None);
        assert_eq!(unescape("a\\xg0"), None);
    }

    #[test]
    fn the_last_line_of_others_holds_no_control_character() {
        assert_eq!(last_line(b"a\nb \x1b[2J\xff\n").as_deref(), Some("b ?[2J\\xff"));
        assert_eq!(last_line(b""), None);
    }
}
