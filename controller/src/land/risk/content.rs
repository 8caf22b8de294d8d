//! What the bytes of a file say: secrets, characters that the eye does not see, marks of a generator.

use super::{Lower, Risk, RiskKind};
use landbox_shared::path::RelPath;
use regex::bytes::{Regex, RegexSet};
use std::collections::HashSet;
use std::sync::LazyLock;

/// Bytes at the start in which git looks for a NUL to call content binary.
const HEAD: usize = 8000;
/// One byte in so many that is no text does not make something else of a text.
const STRAY: usize = 16;
/// A line of more bytes was not written by hand.
const LONG_LINE: usize = 5000;
/// Bytes at the start in which generators leave their mark.
const MARKED: usize = 2048;

/// Shapes of secrets, with what they are. Each is told by fixed letters, so that ordinary text has none of them.
const SECRETS: &[(&str, &str)] = &[
    (r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----", "a private key"),
    (r"\bPuTTY-User-Key-File-[23]:", "a private key"),
    (r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}", "a private key"),
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "an AWS access key"),
    (r"(?i)aws_secret_access_key\s*[=:]\s*.?[0-9a-z/+]{40}\b", "an AWS secret key"),
    (r"\bgh[pousr]_[0-9A-Za-z]{36,}", "a GitHub token"),
    (r"\bgithub_pat_[0-9A-Za-z_]{60,}", "a GitHub token"),
    (r"\bgl(?:pat|ptt|rt|dt|cbt|ft)-[0-9A-Za-z_-]{20,}", "a GitLab token"),
    (r"\bsk-ant-[0-9A-Za-z_-]{32,}", "an Anthropic key"),
    (r"\bsk-(?:proj-|svcacct-|admin-)?[0-9A-Za-z_-]{40,}", "an API key"),
    (r"\bAIza[0-9A-Za-z_-]{35}", "a Google API key"),
    (r"\bya29\.[0-9A-Za-z_-]{40,}", "a Google token"),
    (r"\bGOCSPX-[0-9A-Za-z_-]{28}", "a Google client secret"),
    (r"\bxox[abeoprs]-[0-9A-Za-z-]{20,}", "a Slack token"),
    (
        r"https://hooks\.slack\.com/services/T[0-9A-Z]+/B[0-9A-Z]+/[0-9A-Za-z]{20,}",
        "a Slack address",
    ),
    (r"\b[sr]k_live_[0-9A-Za-z]{24,}", "a Stripe key"),
    (r"\bnpm_[0-9A-Za-z]{36}\b", "an npm token"),
    (r"//[^\s/]+/:_authToken\s*=\s*[^\s$]{8,}", "an npm token"),
    (r"\bpypi-AgE[0-9A-Za-z_-]{50,}", "a PyPI token"),
    (r"\bhf_[0-9A-Za-z]{34,}\b", "a Hugging Face token"),
    (r"\bSG\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z_-]{43}", "a SendGrid key"),
    (r"\bdop_v1_[0-9a-f]{64}\b", "a DigitalOcean token"),
    (r"\bdckr_pat_[0-9A-Za-z_-]{27,}", "a Docker token"),
    (r"\bhv[sb]\.[0-9A-Za-z_-]{24,}", "a Vault token"),
    (r"\bglsa_[0-9A-Za-z]{32}_[0-9a-f]{8}\b", "a Grafana token"),
    (r"\beyJ[0-9A-Za-z_-]{15,}\.eyJ[0-9A-Za-z_-]{15,}\.[0-9A-Za-z_-]{20,}", "a signed token (JWT)"),
    (
        r"\b[a-z][a-z0-9+.-]{2,20}://[^\s/:@'\x22]{1,64}:[^\s/:@'\x22$<{]{6,128}@[0-9A-Za-z.-]",
        "an address with a password",
    ),
    (r#""(?:refresh|access)_?[tT]oken"\s*:\s*"[0-9A-Za-z._~+/-]{24,}"#, "a login token"),
];

static SHAPES: LazyLock<RegexSet> = LazyLock::new(|| {
    // Unicode is off: a byte that is no text must not hide what follows.
    let shapes = SECRETS.iter().map(|(shape, _)| format!("(?-u){shape}"));
    RegexSet::new(shapes).expect("the table is tested")
});

/// Words by which generators mark what they wrote.
static MARKS: LazyLock<Regex> = LazyLock::new(|| {
    let shape = "(?i-u)@generated|do not edit|auto-?generated|automatically generated";
    Regex::new(shape).expect("the table is tested")
});

/// Endings of names of programs. Interpreters and compilers pass over a NUL in a comment, but no difference is shown then.
const PROGRAMS: &[&str] = &[
    "bash", "bat", "c", "cc", "cjs", "clj", "cmd", "cpp", "cs", "css", "cxx", "ex", "exs", "fish",
    "go", "groovy", "h", "hpp", "hs", "htm", "html", "java", "jl", "js", "json", "jsx", "ksh",
    "kt", "kts", "lua", "md", "mjs", "ml", "nix", "php", "pl", "pm", "ps1", "py", "rb", "rs",
    "scala", "sh", "sql", "swift", "tcl", "tf", "toml", "tsx", "vue", "xml", "yaml", "yml", "zig",
    "zsh",
];

/// Judges the bytes of a file that the session wrote.
pub(super) fn judge<'a>(
    path: &RelPath,
    new: &[u8],
    old: &dyn Fn() -> Option<&'a [u8]>,
) -> Vec<Risk> {
    let mut found = Vec::new();
    found.extend(secret(new, old));
    if is_text(path, new) {
        found.extend(hidden(new, old));
        found.extend(generated(new, old));
    }
    found
}

/// Whether something reads the content as text, whatever git thinks of it: git takes one NUL near the start for a sign
/// of other content, of which no difference is shown, and a shell, for one, does not.
fn is_text(path: &RelPath, bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD)];
    if !head.contains(&0) || head.starts_with(b"#!") {
        return true;
    }
    let lower = Lower::of(path);
    let mut parts = lower.name().rsplit(|b| *b == b'.');
    let ending = parts.next().unwrap_or_default();
    if parts.next().is_some() && PROGRAMS.iter().any(|known| known.as_bytes() == ending) {
        return true;
    }
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r' | '\u{c}' | '\u{1b}');
    let strange: usize = head
        .utf8_chunks()
        .map(|chunk| chunk.invalid().len() + chunk.valid().chars().filter(|c| control(*c)).count())
        .sum();
    strange <= head.len() / STRAY
}

/// A line that did not stand in the file before.
fn fresh<'a, 'b>(
    new: &'b [u8],
    old: &dyn Fn() -> Option<&'a [u8]>,
    is_hit: impl Fn(&[u8]) -> bool,
) -> Option<&'b [u8]> {
    let lines = |bytes: &'b [u8]| bytes.split(|b| *b == b'\n');
    let mut hits = lines(new).filter(|line| is_hit(line)).peekable();
    hits.peek()?;
    let known: HashSet<&[u8]> =
        old().unwrap_or_default().split(|b| *b == b'\n').filter(|line| is_hit(line)).collect();
    hits.find(|line| !known.contains(line))
}

fn secret<'a>(new: &[u8], old: &dyn Fn() -> Option<&'a [u8]>) -> Option<Risk> {
    // Nearly every file has none, which one pass tells.
    if !SHAPES.is_match(new) {
        return None;
    }
    let line = fresh(new, old, |line| SHAPES.is_match(line));
    let which = match line {
        Some(line) => SHAPES.matches(line),
        // Spread over lines; or what stood there before.
        None if old().is_some_and(|old| SHAPES.is_match(old)) => return None,
        None => SHAPES.matches(new),
    };
    let what = which.iter().next().and_then(|at| SECRETS.get(at)).map_or("a secret", |s| s.1);
    Some(Risk::new(RiskKind::Secret, format!("it seems to hold {what}")))
}

fn hidden<'a>(new: &[u8], old: &dyn Fn() -> Option<&'a [u8]>) -> Option<Risk> {
    if !may_hide(new) {
        return None;
    }
    // A byte order mark at the start of a file is an ordinary thing.
    let body = new.strip_prefix(b"\xef\xbb\xbf").unwrap_or(new);
    // A line is given without its end, so the last one may seem to have one.
    let cut = |text: &[u8]| text.ends_with(b"\r");
    let fresh = fresh(body, old, |line| first_hidden(line, false).is_some());
    let c = match fresh {
        Some(line) => first_hidden(line, false)?,
        None if cut(body) && !old().is_some_and(cut) => '\r',
        None => return None,
    };
    let why = format!("new text holds {} (U+{:04X})", word(c), u32::from(c));
    Some(Risk::new(RiskKind::HiddenText, why))
}

/// Whether any byte can belong to a hidden character: what is plain ASCII is passed over at the speed of memory.
fn may_hide(bytes: &[u8]) -> bool {
    /// As many are looked at together.
    const PIECE: usize = 256;
    let may = |b: u8| b >= 0x80 || (b < 0x20) & (b != b'\n') & (b != b'\t') || b == 0x7f;
    bytes.chunks(PIECE).any(|piece| piece.iter().fold(false, |any, b| any | may(*b)))
}

/// The flag of a name with characters that the eye does not see, or that break a line.
pub(super) fn hidden_in_name(name: &[u8]) -> Option<Risk> {
    let c = first_hidden(name, true)?;
    let why = format!("its name holds {} (U+{:04X})", word(c), u32::from(c));
    Some(Risk::new(RiskKind::HiddenText, why))
}

/// The first character that turns text around, moves the cursor, or looks like nothing.
fn first_hidden(bytes: &[u8], name: bool) -> Option<char> {
    for chunk in bytes.utf8_chunks() {
        let mut before = None;
        let mut chars = chunk.valid().chars().peekable();
        while let Some(c) = chars.next() {
            let after = chars.peek().copied();
            let hides = match c {
                '\n' | '\t' => name,
                // At the end of a line a part of it; elsewhere it starts one for some who read the text.
                '\r' => name || !(after.is_none() && chunk.invalid().is_empty()),
                // A page break, as old sources have; elsewhere a space that moves what follows.
                '\u{c}' => name || before.is_some(),
                c if c.is_control() => true,
                // Within words of many scripts, and within emoji, these shape the letters beside them.
                '\u{200c}' | '\u{200d}' => {
                    let shapes =
                        |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_unseen(c));
                    !(shapes(before) && shapes(after))
                }
                c => is_unseen(c),
            };
            if hides {
                return Some(c);
            }
            before = Some(c);
        }
    }
    None
}

fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn word(c: char) -> &'static str {
    match c {
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            "a character that turns the direction of text"
        }
        c if c.is_control() => "a control character",
        _ => "a character without a width",
    }
}

fn generated<'a>(new: &[u8], old: &dyn Fn() -> Option<&'a [u8]>) -> Option<Risk> {
    let is_long = |line: &[u8]| line.len() > LONG_LINE;
    if new.len() > LONG_LINE && fresh(new, old, is_long).is_some() {
        let why =
            format!("a line of more than {LONG_LINE} bytes was made by a program, not written");
        return Some(Risk::new(RiskKind::Generated, why));
    }
    let marked = MARKS.is_match(&new[..new.len().min(MARKED)]);
    marked.then(|| Risk::new(RiskKind::Generated, "it says that a program made it"))
}

/// Sections of a configuration that names programs to git, or other files that do.
static GIT_SECTIONS: LazyLock<Regex> = LazyLock::new(|| {
    let sections = "core|include|includeif|extensions|alias|diff|difftool|merge|mergetool|filter|gpg|credential|\
                    remote|url|uploadpack|receive|hook|pager|interactive|sequence|sendemail|submodule|tar|trailer|\
                    browser|man|web|http|ssh|protocol|safe";
    let shape = format!(r"(?im-u)^[ \t\x0b\x0c\r]*\[(?:{sections})(?:[\] \t.]|$)");
    Regex::new(&shape).expect("the table is tested")
});

/// Whether git may look into a file of this name to find out about a repository.
pub(super) fn is_of_git(path: &RelPath) -> bool {
    matches!(Lower::of(path).name(), b"head" | b"config" | b"config.worktree")
}

/// A folder in which git finds these is a repository, with hooks and configuration, whatever its name. `bytes` are those
/// of a file, or where a link leads.
pub(super) fn git_folder(path: &RelPath, bytes: &[u8], link: bool) -> Option<Risk> {
    let is_head = || {
        let named = if link { Some(bytes) } else { bytes.strip_prefix(b"ref:") };
        let id = bytes.len() >= 40 && bytes[..40].iter().all(u8::is_ascii_hexdigit);
        named.is_some_and(|name| name.trim_ascii_start().starts_with(b"refs/")) || !link && id
    };
    let is = match Lower::of(path).name() {
        b"head" => is_head(),
        // What a link leads to may change at any time.
        b"config" | b"config.worktree" => link || GIT_SECTIONS.is_match(bytes),
        _ => false,
    };
    is.then(|| {
        Risk::new(
            RiskKind::Git,
            "it makes its folder a git repository, which can name programs to run",
        )
    })
}
