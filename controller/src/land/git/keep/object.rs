//! Commits and trees as bytes: read strictly, and commits written anew. Pure.

use super::super::repo::Format;
use crate::land::patch::git_accepts;
use crate::ui::text::is_hidden;

/// Longest name or address of an author.
const NAME: usize = 200;
/// Longest message.
const MESSAGE: usize = 64 << 10;
/// The last second that dates are written of (the end of the year 9999).
const LAST: u64 = 253_402_300_799;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Commit,
    Tree,
    Blob,
}

impl Kind {
    /// Git's word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        }
    }
}

/// A commit as the session wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub tree: String,
    pub parents: Vec<String>,
    author: Vec<u8>,
    message: Vec<u8>,
}

/// Whether a word is an object's full name.
pub(super) fn is_id(word: &[u8], format: Format) -> bool {
    let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    word.len() == format.nothing().len() && word.iter().all(hex)
}

impl Commit {
    /// Reads one. Signatures, notes of merges, encodings and whatever else its head may hold are left out.
    pub(super) fn parse(bytes: &[u8], format: Format) -> Option<Self> {
        let end = bytes.windows(2).position(|pair| pair == b"\n\n")?;
        let (head, message) = (&bytes[..end], &bytes[end + 2..]);
        let mut lines = head.split(|b| *b == b'\n').peekable();
        let id =
            |word: &[u8]| is_id(word, format).then(|| String::from_utf8_lossy(word).into_owned());
        let tree = id(lines.next()?.strip_prefix(b"tree ")?)?;
        let mut parents = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(b"parent ")) {
            parents.push(id(&line[b"parent ".len()..])?);
        }
        let author = lines.next()?.strip_prefix(b"author ")?.to_vec();
        Some(Self { tree, parents, author, message: message.to_vec() })
    }

    /// Writes it anew with other parents: author and message as stated, but clean; the owner commits.
    pub(super) fn write(&self, parents: &[&str], committer: &str) -> Vec<u8> {
        let mut out = format!("tree {}\n", self.tree);
        parents.iter().for_each(|parent| out.push_str(&format!("parent {parent}\n")));
        out.push_str(&format!("author {}\n", self.author(committer)));
        out.push_str(&format!("committer {committer}\n\n{}", self.message()));
        out.into_bytes()
    }

    /// `NAME <EMAIL> SECONDS ZONE`, whatever the session wrote.
    fn author(&self, committer: &str) -> String {
        let text = String::from_utf8_lossy(&self.author);
        let (name, rest) = text.split_once('<').unwrap_or((&text, ""));
        let (email, when) = rest.rsplit_once('>').unwrap_or((rest, ""));
        let name = Some(plain(name)).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "unknown".to_owned());
        let now = committer.rsplit_once('>').map_or("0 +0000", |(_, when)| when.trim());
        let mut when = when.trim().split(' ');
        let stated = when.next().and_then(|s| s.parse::<u64>().ok()).filter(|s| *s <= LAST);
        let zone = when.next().filter(|zone| is_zone(zone)).unwrap_or("+0000");
        let when = stated.map_or_else(|| now.to_owned(), |seconds| format!("{seconds} {zone}"));
        format!("{name} <{}> {when}", plain(email))
    }

    fn message(&self) -> String {
        let text = String::from_utf8_lossy(&self.message);
        let kept = |c: &char| matches!(c, '\n' | '\t') || !is_hidden(*c);
        let mut out: String = text.chars().filter(kept).take(MESSAGE).collect();
        out.truncate(out.trim_end().len());
        if out.is_empty() {
            out.push_str("(no message)");
        }
        out.push('\n');
        out
    }

    /// First line of the message.
    pub(super) fn subject(&self) -> String {
        self.message().lines().next().unwrap_or_default().to_owned()
    }
}

fn is_zone(zone: &str) -> bool {
    let digits = zone.strip_prefix(['+', '-']).unwrap_or_default();
    digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A name without what could end it or be taken for something else.
fn plain(text: &str) -> String {
    let kept = |c: &char| !is_hidden(*c) && !matches!(c, '<' | '>' | '\n');
    let text: String = text.chars().filter(kept).take(NAME).collect();
    // Git drops these at the ends, and refuses a name of nothing else.
    text.trim_matches(|c: char| c <= ' ' || ".,:;<>\"\\'".contains(c)).to_owned()
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub name: Vec<u8>,
    pub kind: Option<Kind>,
    pub link: bool,
    pub executable: bool,
    pub id: String,
}

/// Reads a tree of the session's. Git's own rules for names and order are held, and no mode passes that files and
/// folders do not have.
pub(super) fn tree(bytes: &[u8], format: Format) -> Result<Vec<TreeEntry>, &'static str> {
    let entries = entries(bytes, format)?;
    let mut last: Option<(Vec<u8>, &[u8])> = None;
    for (mode, entry) in &entries {
        let name = entry.name.as_slice();
        if !matches!(*mode, b"40000" | b"100644" | b"100755" | b"120000" | b"160000") {
            return Err("it holds an entry of a mode that git does not write");
        }
        if name.contains(&b'/') || !git_accepts(name, entry.link) {
            return Err("it holds a name that git refuses");
        }
        // Folders are sorted as if their names ended in a slash.
        let slash: &[u8] = if entry.kind == Some(Kind::Tree) { b"/" } else { b"" };
        let key = [name, slash].concat();
        if last.as_ref().is_some_and(|(before, plain)| *before >= key || *plain == name) {
            return Err("its entries are out of order");
        }
        last = Some((key, name));
    }
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// The entries of a tree of the owner's, whatever git once wrote into it; another repository has no kind.
pub(super) fn owned_tree(bytes: &[u8], format: Format) -> Result<Vec<TreeEntry>, &'static str> {
    Ok(entries(bytes, format)?.into_iter().map(|(_, entry)| entry).collect())
}

fn entries(bytes: &[u8], format: Format) -> Result<Vec<(&[u8], TreeEntry)>, &'static str> {
    let length = format.nothing().len() / 2;
    let mut rest = bytes;
    let mut out = Vec::new();
    while !rest.is_empty() {
        let space = rest.iter().position(|b| *b == b' ').ok_or("it is broken off")?;
        let (mode, after) = (&rest[..space], &rest[space + 1..]);
        let end = after.iter().position(|b| *b == 0).ok_or("it is broken off")?;
        let (name, after) = (&after[..end], &after[end + 1..]);
        let (id, after) = after.split_at_checked(length).ok_or("it is broken off")?;
        let kind = match mode {
            b"40000" | b"040000" => Some(Kind::Tree),
            b"160000" => None,
            _ => Some(Kind::Blob),
        };
        let entry = TreeEntry {
            name: name.to_vec(),
            kind,
            link: mode == b"120000",
            executable: mode == b"100755",
            id: id.iter().map(|b| format!("{b:02x}")).collect(),
        };
        out.push((mode, entry));
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "1111111111111111111111111111111111111111";
    const ME: &str = "Ada <a@b.c> 1700000000 +0100";

    fn commit(author: &str, message: &str) -> Commit {
        let text = format!(
            "tree {ID}\nparent {ID}\nauthor {author}\ncommitter X <x> 1 +0000\nencoding latin-1\n\
             gpgsig -----BEGIN\n evil\n\n{message}"
        );
        Commit::parse(text.as_bytes(), Format::Sha1).unwrap()
    }

    fn written(author: &str, message: &str) -> String {
        String::from_utf8(commit(author, message).write(&["p"], ME)).unwrap()
    }

    #[test]
    fn a_commit_is_written_anew_with_the_owner_as_committer() {
        let text = written("Bot <bot@x> 1600000000 -0200", "Do it\n\nWell\n\n");
        let head = format!(
            "tree {ID}\nparent p\nauthor Bot <bot@x> 1600000000 -0200\ncommitter {ME}\n\nDo it\n\nWell\n"
        );
        assert_eq!(text, head);
    }

    #[test]
    fn no_author_or_message_says_more_than_text() {
        for (author, expected) in [
            ("", "unknown <> 1700000000 +0100"),
            (
                "\u{1b}[2J\u{202e}x <a\u{7}@b> 99999999999999999 +0000",
                "[2Jx <a@b> 1700000000 +0100",
            ),
            ("a <b> c <d> 5 +9", "a <b c d> 5 +0000"),
            ("...  <x> -5 +0000", "unknown <x> 1700000000 +0100"),
        ] {
            assert!(written(author, "m").contains(&format!("\nauthor {expected}\n")), "{author}");
        }
        assert!(written("a <b> 1 +0000", "\r\u{1b}[2Jx\u{200b}y\n").ends_with("\n\n[2Jxy\n"));
        assert!(written("a <b> 1 +0000", " \n\u{7}").ends_with("\n\n(no message)\n"));
    }

    #[test]
    fn what_is_no_commit_is_refused() {
        for text in
            ["", "tree x\n\n", &format!("tree {ID}\n\nm"), &format!("tree {ID}\nparent {ID}\n\nm")]
        {
            assert_eq!(Commit::parse(text.as_bytes(), Format::Sha1), None, "{text}");
        }
    }

    fn entry(mode: &str, name: &str) -> Vec<u8> {
        [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[7; 20]].concat()
    }

    #[test]
    fn trees_are_read_as_git_writes_them_and_no_other_way() {
        let good = [
            entry("100644", "a"),
            entry("40000", "a.b"),
            entry("120000", "a0"),
            entry("160000", "s"),
        ];
        let read = tree(&good.concat(), Format::Sha1).unwrap();
        let kinds: Vec<_> = read.iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [Some(Kind::Blob), Some(Kind::Tree), Some(Kind::Blob), None]);
        assert_eq!(read[0].id, "07".repeat(20));
        for bad in [
            vec![entry("100644", ".git")],
            vec![entry("40000", ".GIT")],
            vec![entry("100644", "..")],
            vec![entry("100644", "a/b")],
            vec![entry("100644", "")],
            vec![entry("120000", ".gitmodules")],
            vec![entry("100666", "a")],
            vec![entry("040000", "a")],
            vec![entry("100644", "b"), entry("100644", "a")],
            vec![entry("100644", "a"), entry("100644", "a")],
            vec![entry("100644", "a"), entry("40000", "a")],
            vec![b"100644 a\0short".to_vec()],
        ] {
            assert!(tree(&bad.concat(), Format::Sha1).is_err(), "{bad:?}");
        }
    }
}
