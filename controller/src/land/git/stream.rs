//! A selection as a commit: what is told to `git fast-import`, which takes bytes as they are and reads no attribute.

use super::Source;
use super::base::Ground;
use super::message::Message;
use super::repo::{Entry, Repo};
use super::run::{feed, given};
use super::workshop::Workshop;
use crate::error::{Context, Failure, Kind, Result};
use crate::land::changeset::{Change, Node};
use crate::land::content;
use crate::ui::text::visible_name;
use landbox_shared::path::RelPath;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, Write};

/// Larger files are nothing for a repository.
const LARGEST: u64 = 1 << 30;
/// Content up to this size is held in memory.
const SMALL: u64 = 1 << 20;
/// The ref that a commit is made under, in the workshop.
const MADE: &str = "refs/heads/landed";

/// A path of the commit with its new entry; `None` where nothing is any more.
pub(super) type Written = (Vec<u8>, Option<Entry>);

/// What a commit lies on.
pub(super) struct Onto<'a> {
    /// Its parent.
    pub parent: Option<&'a str>,
    /// The tree that the changes are put on, where it is not the parent's.
    pub tree: Option<&'a str>,
}

/// Makes the commit in the workshop. Gives its name and what changed.
pub(super) fn make(
    repo: &Repo,
    workshop: &Workshop,
    source: &Source<'_>,
    ground: &Ground,
    onto: &Onto<'_>,
    message: &Message,
) -> Result<(String, Vec<Written>)> {
    let (gone, come) = sides(&source.sayable.changes);
    let converted = Conversions::of(repo, &come)?;
    let mut written: Vec<Written> = Vec::new();
    let mut import = workshop.command();
    import
        .args(["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--done"])
        .arg("--date-format=raw");
    let what = || "can't make the commit".to_owned();
    feed(&mut import, "can't make the commit", |out| {
        let mut out = std::io::BufWriter::with_capacity(256 << 10, out);
        let head = format!(
            "feature done\ncommit {MADE}\nauthor {}\ncommitter {}\ndata {}\n{}\n",
            message.author,
            message.committer,
            message.text.len(),
            message.text
        );
        out.write_all(head.as_bytes()).context(what)?;
        if let Some(parent) = onto.parent {
            out.write_all(format!("from {parent}\n").as_bytes()).context(what)?;
        }
        if let Some(tree) = onto.tree {
            out.write_all(format!("M 040000 {tree} \"\"\n").as_bytes()).context(what)?;
        }
        for path in gone {
            let name = repo.name(path);
            if ground.entries.contains_key(&name) {
                out.write_all(&[b"D ", quoted(&name).as_slice(), b"\n"].concat()).context(what)?;
                written.push((name, None));
            }
        }
        for change in come {
            let name = repo.name(&change.path);
            let entry = put(&mut out, repo, workshop, source, change, &name, ground, &converted)?;
            written.push((name, Some(entry)));
        }
        out.write_all(b"\ndone\n").and_then(|()| out.flush()).context(what)
    })?;
    Ok((workshop.object(MADE)?, written))
}

/// Names that go, and changes that put something. A name may be among both.
fn sides<'a>(changes: &[&'a Change]) -> (Vec<&'a RelPath>, Vec<&'a Change>) {
    let stored = |node: &Node| matches!(node, Node::File { .. } | Node::Symlink { .. });
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    for change in changes {
        if change.old_node().is_some_and(stored) {
            gone.push(change.old_path.as_ref().unwrap_or(&change.path));
        }
        if change.new.as_ref().is_some_and(stored) {
            come.push(*change);
        }
    }
    let kept: HashSet<&RelPath> = come.iter().map(|c| &c.path).collect();
    gone.retain(|path| !kept.contains(path));
    (gone, come)
}

#[expect(clippy::too_many_arguments, reason = "one step of the stream above")]
fn put(
    out: &mut dyn Write,
    repo: &Repo,
    workshop: &Workshop,
    source: &Source<'_>,
    change: &Change,
    name: &[u8],
    ground: &Ground,
    converted: &Conversions,
) -> Result<Entry> {
    let what = || format!("can't write {} to the commit", change.path);
    let mut write = |mode: &str, size: u64, bytes: &mut dyn Read| -> Result<()> {
        let head = [b"M ", mode.as_bytes(), b" inline ", &quoted(name), b"\n"].concat();
        out.write_all(&head).context(what)?;
        out.write_all(format!("data {size}\n").as_bytes()).context(what)?;
        let copied = std::io::copy(bytes, &mut *out).context(what)?;
        out.write_all(b"\n").context(what)?;
        if copied == size { Ok(()) } else { Err(Failure::new(Kind::Failed, what())) }
    };
    if let Some(Node::Symlink { target }) = &change.new {
        let size = target.len() as u64;
        write("120000", size, &mut target.as_slice())?;
        let id = repo.format.blob(size, &mut target.as_slice()).context(what)?;
        return Ok(Entry { mode: "120000".into(), id });
    }
    let Some(Node::File { mode, size, digest }) = &change.new else {
        return Err(Failure::new(Kind::Failed, what()));
    };
    if *size > LARGEST {
        let name = visible_name(name);
        return Err(Failure::new(Kind::Refused, format!("{name} is too large for a commit"))
            .hint("leave it out with --exclude; --apply has no such limit"));
    }
    // A copy that nobody else can write to is compared with what was shown, and then sent.
    let from = source.bodies.new_bytes(change)?;
    let mut copy = if *size <= SMALL {
        super::run::memory(&[])?
    } else {
        tempfile::tempfile_in(workshop.path()).context(what)?
    };
    if content::copy(&from, &copy).context(what)? != (*size, *digest) {
        return Err(Failure::new(
            Kind::Refused,
            format!("{} was changed since it was looked at", visible_name(change.path.as_bytes())),
        )
        .hint("try again when the session is idle"));
    }
    copy.rewind().context(what)?;
    let entry = ground.entries.get(name);
    if converted.converts(name, entry.is_none()) && has_crlf(&copy).context(what)? {
        return Err(Conversions::refusal(name, "line endings"));
    }
    let id = repo.format.blob(*size, &mut copy).context(what)?;
    copy.rewind().context(what)?;
    let mode = file_mode(*mode, change, entry);
    write(mode, *size, &mut copy)?;
    Ok(Entry { mode: mode.into(), id })
}

/// The executable bit is the session's where it changed it, else what is committed.
fn file_mode(mode: u32, change: &Change, entry: Option<&Entry>) -> &'static str {
    let executable = |mode: u32| mode & 0o100 != 0;
    let same = match change.old_node() {
        Some(Node::File { mode: old, .. }) => executable(*old) == executable(mode),
        Some(_) | None => false,
    };
    let committed = entry.filter(|entry| same && entry.mode.starts_with("100"));
    match committed.map_or(executable(mode), |entry| entry.mode == "100755") {
        true => "100755",
        false => "100644",
    }
}

fn has_crlf(file: &File) -> std::io::Result<bool> {
    let mut reader = file.try_clone()?;
    reader.rewind()?;
    let mut buffer = vec![0; 64 << 10];
    let (mut last, mut found) = (0, false);
    loop {
        let got = reader.read(&mut buffer)?;
        if got == 0 {
            reader.rewind()?;
            return Ok(found);
        }
        let block = &buffer[..got];
        found |= last == b'\r' && block[0] == b'\n' || block.windows(2).any(|w| w == b"\r\n");
        last = block[got - 1];
    }
}

/// A name in C quotes, as fast-import reads it.
fn quoted(name: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &byte in name {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            _ => out.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    out.push(b'"');
    out
}

/// Where git would store other bytes than the file's, by the owner's attributes and settings.
struct Conversions {
    text: HashMap<Vec<u8>, bool>,
    everywhere: bool,
}

impl Conversions {
    /// Asks git, of the real files' attributes. A filter of the owner's own is refused at once: it is not run on what a
    /// session wrote, and without it the commit would hold the wrong thing.
    fn of(repo: &Repo, come: &[&Change]) -> Result<Self> {
        let files = come.iter().filter(|c| matches!(c.new, Some(Node::File { .. })));
        let names: Vec<Vec<u8>> = files.map(|c| repo.name(&c.path)).collect();
        let input: Vec<u8> = names.iter().flat_map(|n| [n.as_slice(), b"\0"].concat()).collect();
        let mut command = repo.command();
        command.args(["check-attr", "-z", "--stdin"]);
        command.args(["filter", "ident", "working-tree-encoding", "text", "eol"]);
        let said = given(&mut command, "can't ask git about attributes", &input)?;
        let mut text = HashMap::new();
        let mut filters: HashMap<Vec<u8>, bool> = HashMap::new();
        let fields: Vec<&[u8]> = said.split(|b| *b == 0).collect();
        for triple in fields.chunks_exact(3) {
            let [name, attribute, value] = [triple[0], triple[1], triple[2]];
            if matches!(value, b"unspecified" | b"unset") {
                continue;
            }
            match attribute {
                b"filter" => {
                    if !filters.contains_key(value) {
                        filters.insert(value.to_vec(), has_driver(repo, value)?);
                    }
                    if filters.get(value) == Some(&true) {
                        return Err(Self::refusal(name, "a filter"));
                    }
                }
                b"text" if value == b"auto" => drop(text.entry(name.to_vec()).or_insert(false)),
                b"text" | b"eol" => drop(text.insert(name.to_vec(), true)),
                b"ident" => return Err(Self::refusal(name, "ident")),
                _ => return Err(Self::refusal(name, "an encoding")),
            }
        }
        let autocrlf = repo.config("core.autocrlf")?;
        let everywhere = autocrlf.is_some_and(|value| value != "false");
        Ok(Self { text, everywhere })
    }

    /// Whether git would turn line ends that `name` may have.
    fn converts(&self, name: &[u8], added: bool) -> bool {
        match self.text.get(name) {
            Some(true) => true,
            // What is committed with such line ends keeps them.
            Some(false) => added,
            None => added && self.everywhere,
        }
    }

    fn refusal(name: &[u8], what: &str) -> Failure {
        let name = visible_name(name);
        Failure::new(
            Kind::Refused,
            format!("your attributes put {what} between the file {name} and what is committed"),
        )
        .hint("land it with --apply and commit it with git, or leave it out with --exclude")
    }
}

/// Whether the owner has a program for a filter. Without one, git stores the bytes as they are.
fn has_driver(repo: &Repo, name: &[u8]) -> Result<bool> {
    let Ok(name) = std::str::from_utf8(name) else { return Ok(false) };
    for part in ["clean", "process"] {
        if repo.config(&format!("filter.{name}.{part}"))?.is_some_and(|value| !value.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}
