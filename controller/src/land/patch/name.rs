//! Names in git patches: quoting, and which names git refuses.

/// How git marks a name that needs no quotes around it.
fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\'
}

/// Appends `prefix` and `name` as git writes them with `core.quotePath=true`: as they are, or in C quotes with octal
/// escapes. A folder whose name ends in a space is quoted, too: git takes that space for the end of the name.
pub(super) fn push_quoted(out: &mut Vec<u8>, prefix: &[u8], name: &[u8]) {
    if name.iter().copied().all(is_plain) && !name.windows(2).any(|pair| pair == b" /") {
        out.extend_from_slice(prefix);
        out.extend_from_slice(name);
        return;
    }
    out.push(b'"');
    out.extend_from_slice(prefix);
    for &byte in name {
        let short = match byte {
            0x07 => b'a',
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0b => b'v',
            0x0c => b'f',
            b'\r' => b'r',
            b'"' | b'\\' => byte,
            _ if is_plain(byte) => {
                out.push(byte);
                continue;
            }
            _ => {
                let digit = |shift: u8| b'0' + ((byte >> shift) & 7);
                out.extend_from_slice(&[b'\\', digit(6), digit(3), digit(0)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.push(b'"');
}

/// Appends `--- ` or `+++ `, the name and a line end. A name with a space gets a tab after it: `patch` and git read the
/// name up to there.
pub(super) fn push_label(out: &mut Vec<u8>, marker: &[u8], prefix: &[u8], name: Option<&[u8]>) {
    out.extend_from_slice(marker);
    match name {
        None => out.extend_from_slice(b"/dev/null"),
        Some(name) => {
            push_quoted(out, prefix, name);
            if name.contains(&b' ') {
                out.push(b'\t');
            }
        }
    }
    out.push(b'\n');
}

/// Whether git takes `path` in a patch. It refuses its own folder's name also in the spellings other systems fold into
/// it, and `.gitmodules` as a link.
pub fn git_accepts(path: &[u8], link: bool) -> bool {
    // On Linux a backslash is an ordinary byte, but git still looks at what follows it as if it were a separator.
    let refused = path
        .split(|b| matches!(b, b'/' | b'\\'))
        .any(|part| folds_to_dot_git(part) || link && folds_to_dot_gitmodules(part));
    !refused && path.split(|b| *b == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// `.git` and `git~1` in any case, then only dots and spaces up to the end or a colon.
fn folds_to_dot_git(part: &[u8]) -> bool {
    let lower = part.to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix(b".git").or_else(|| lower.strip_prefix(b"git~1")) else {
        return false;
    };
    ends_there(rest)
}

/// `.gitmodules` and the short names NTFS may give it.
fn folds_to_dot_gitmodules(part: &[u8]) -> bool {
    let lower = part.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix(b".gitmodules") {
        return ends_there(rest);
    }
    // `gitmod~1` to `gitmod~4`, and the hashed forms such as `gi7eba~1`: eight bytes with a tilde and a digit.
    let short: &[u8] = lower.split(|b| matches!(b, b'.' | b' ' | b':')).next().unwrap_or(&[]);
    short.len() == 8 && short.starts_with(b"gi") && short.contains(&b'~')
}

fn ends_there(rest: &[u8]) -> bool {
    let tail = rest.iter().position(|b| !matches!(b, b'.' | b' '));
    tail.is_none_or(|at| rest[at] == b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(name: &[u8]) -> String {
        let mut out = Vec::new();
        push_quoted(&mut out, b"a/", name);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_are_quoted_as_git_quotes_them() {
        assert_eq!(quoted(b"plain -name"), "a/plain -name");
        assert_eq!(quoted(b"q\"b\\"), r#""a/q\"b\\""#);
        assert_eq!(quoted(b"\x07\x08\t\n\x0b\x0c\r\x01\x7f"), r#""a/\a\b\t\n\v\f\r\001\177""#);
        assert_eq!(quoted("é".as_bytes()), r#""a/\303\251""#);
        assert_eq!(quoted(b"\xff"), r#""a/\377""#);
        assert_eq!(quoted(b"end /x"), r#""a/end /x""#);
    }

    #[test]
    fn a_label_with_a_space_ends_in_a_tab() {
        let mut out = Vec::new();
        push_label(&mut out, b"+++ ", b"b/", Some(b"a b"));
        push_label(&mut out, b"--- ", b"a/", Some(b"ab"));
        push_label(&mut out, b"--- ", b"a/", None);
        assert_eq!(out, b"+++ b/a b\t\n--- a/ab\n--- /dev/null\n");
    }

    #[test]
    fn names_that_git_refuses_are_known() {
        for bad in [
            &b".git"[..],
            b"a/.GIT/x",
            b"git~1/x",
            b".git. ./x",
            b".git:x",
            b"a\\.git",
            b"a//b",
            b"../a",
            b"./a",
        ] {
            assert!(!git_accepts(bad, false), "{}", String::from_utf8_lossy(bad));
        }
        for good in [&b".gitignore"[..], b".gitmodules", b"a.git", b"git~2", b"...", b"gitmod~1"] {
            assert!(git_accepts(good, false), "{}", String::from_utf8_lossy(good));
        }
        assert!(!git_accepts(b"x/.GitModules", true));
        assert!(!git_accepts(b"gitmod~1", true));
        assert!(git_accepts(b"modules", true));
    }
}
