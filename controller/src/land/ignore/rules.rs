//! One file of ignore rules, as git reads it.

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Compiles the rules in `text`.
///
/// The matcher knows a few things that git does not, and git one that it does not. Where a line cannot be put so that
/// both agree, it covers nothing; if it was to take something back in, it takes back everything: what is wrongly in the
/// project is seen, what is wrongly left out is not.
pub(super) fn matcher(text: &[u8]) -> Gitignore {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut builder = GitignoreBuilder::new("");
    for line in text.split(|b| *b == b'\n') {
        let added = translate(line).is_some_and(|line| builder.add_line(None, &line).is_ok());
        if !added && line.starts_with(b"!") {
            // This one always parses.
            let _ = builder.add_line(None, "!*");
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// A line in the matcher's language; `None` where it has no word for it.
fn translate(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    // Git drops the line end of other systems. A tab at the end is part of the name to it; the matcher drops that too.
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.trim_end_matches(' ').ends_with(char::is_whitespace) || line.contains("[[:") {
        return None;
    }
    let mut out = String::with_capacity(line.len());
    let mut class = false;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if class => return None,
            '\\' => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            '[' => class = true,
            ']' => class = false,
            // Braces are ordinary characters to git.
            '{' | '}' if !class => out.push('\\'),
            _ => {}
        }
        out.push(c);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(rules: &str, path: &str) -> bool {
        matcher(rules.as_bytes()).matched(path, false).is_ignore()
    }

    #[test]
    fn braces_are_ordinary_characters() {
        assert!(!covers("*.{a,b}", "x.a"));
        assert!(covers("*.{a,b}", "x.{a,b}"));
        assert!(covers("[{]", "{"));
        assert!(!covers("[{]", "\\"));
    }

    #[test]
    fn a_line_without_translation_never_leaves_more_out() {
        assert!(covers("a\r\n", "a"));
        assert!(!covers("a\t", "a"));
        assert!(covers("*", "x1"));
        assert!(!covers("*\n![[:alpha:]]*", "x1"));
    }
}
