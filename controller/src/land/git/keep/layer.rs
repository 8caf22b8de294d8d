//! The repository as the session left it: its layer over the owner's. Read as bytes, without following a link in it.

use super::super::repo::{Format, Repo};
use super::object::{Kind, is_id};
use crate::error::{Context, Failure, Kind as FailureKind, Result};
use crate::land::kind::EntryType;
use crate::land::tree::{self, Tree, is_absence};
use crate::overlay::marks::{self, Mark};
use crate::session::store::Session;
use flate2::read::ZlibDecoder;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::policy::Backend;
use std::io::{self, Read};
use std::path::Path;

/// Largest file of refs that is read.
const REFS: u64 = 16 << 20;
/// Largest object that is kept.
pub(super) const OBJECT: u64 = 128 << 20;
/// Longest way from ref to ref.
const LINKS: usize = 5;

/// The session's side of a repository.
#[derive(Debug)]
pub(super) struct SessionRepo<'a> {
    repo: &'a Repo,
    layers: Vec<Side>,
}

#[derive(Debug)]
struct Side {
    target: AbsPath,
    upper: Tree,
    backend: Backend,
}

/// What a layer says about a path.
enum Said {
    Here(std::fs::File),
    Gone,
    Nothing,
}

impl<'a> SessionRepo<'a> {
    /// Opens the layers in which the session may have written to it.
    pub(super) fn open(session: &Session, repo: &'a Repo) -> Result<Self> {
        let mut layers = Vec::new();
        for layer in &session.snapshot.policy.layers {
            match Tree::open(&session.upper(&layer.id)) {
                Ok(upper) => {
                    let target = layer.target.clone();
                    layers.push(Side { target, upper, backend: layer.backend });
                }
                Err(e) if is_absence(&e) => {}
                Err(e) => return Err(e).context(|| format!("can't read the layer {}", layer.id)),
            }
        }
        // The deepest covers the others.
        layers.sort_by_key(|side| std::cmp::Reverse(side.target.depth()));
        Ok(Self { repo, layers })
    }

    /// The layer that a path lies in, and how it is called there.
    fn side(&self, path: &Path) -> Option<(&Side, RelPath)> {
        let path = AbsPath::from_path(path).ok()?;
        self.layers.iter().find_map(|side| Some((side, path.relative_to(&side.target)?)))
    }

    /// A small file as the session had it.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let what = || "can't read the session's repository".to_owned();
        let said = match self.side(path) {
            None => Said::Nothing,
            Some((side, name)) => side.look(&name).context(what)?,
        };
        let mut bytes = Vec::new();
        let file = match said {
            Said::Gone => return Ok(None),
            Said::Here(file) => file,
            Said::Nothing => match std::fs::File::open(path) {
                Ok(file) => file,
                Err(e) if is_absence(&e) => return Ok(None),
                Err(e) => return Err(e).context(what),
            },
        };
        file.take(REFS + 1).read_to_end(&mut bytes).context(what)?;
        if bytes.len() as u64 > REFS {
            return Err(refused("a file of its refs is too large"));
        }
        Ok(Some(bytes))
    }

    /// The commit that the session's HEAD is at; `None` where it is at none.
    pub(super) fn tip(&self) -> Result<Option<String>> {
        let unclear = || refused("its HEAD names nothing that can be followed");
        let mut at = self.repo.git_dir.join("HEAD");
        for _ in 0..LINKS {
            let Some(text) = self.read(&at)? else { return Ok(None) };
            let word = text.trim_ascii();
            if is_id(word, self.repo.format) {
                return Ok(Some(String::from_utf8_lossy(word).into_owned()));
            }
            let name = word.strip_prefix(b"ref:").ok_or_else(unclear)?.trim_ascii();
            let name = RelPath::new(name).map_err(|_| unclear())?;
            if !name.as_bytes().starts_with(b"refs/") || name.as_bytes().contains(&b'\n') {
                return Err(unclear());
            }
            at = self.repo.common.join(name.as_path());
            if self.read(&at)?.is_none() {
                return self.packed(name.as_bytes());
            }
        }
        Err(unclear())
    }

    fn packed(&self, name: &[u8]) -> Result<Option<String>> {
        let text = self.read(&self.repo.common.join("packed-refs"))?.unwrap_or_default();
        let mut lines = text.split(|b| *b == b'\n').filter(|line| !line.starts_with(b"#"));
        Ok(lines.find_map(|line| {
            let space = line.iter().position(|b| *b == b' ')?;
            let (id, at) = (&line[..space], &line[space + 1..]);
            let found = at == name && is_id(id, self.repo.format);
            found.then(|| String::from_utf8_lossy(id).into_owned())
        }))
    }

    /// Refuses a repository that takes objects from elsewhere by the session's word.
    pub(super) fn refuse_alternates(&self) -> Result<()> {
        let path = self.repo.common.join("objects/info/alternates");
        let Some((side, name)) = self.side(&path) else { return Ok(()) };
        match side.upper.meta(&name) {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => {
                Err(refused("it takes objects from another place (alternates)"))
            }
        }
    }

    /// The packs that the session made.
    pub(super) fn packs(&self) -> Result<Vec<std::fs::File>> {
        let what = || "can't read the session's packs".to_owned();
        let Some((side, name)) = self.side(&self.repo.common.join("objects/pack")) else {
            return Ok(Vec::new());
        };
        let dir = match side.upper.dir(Some(&name)) {
            Ok(dir) => dir,
            Err(e) if is_absence(&e) => return Ok(Vec::new()),
            Err(e) => return Err(e).context(what),
        };
        let mut out = Vec::new();
        for name in tree::names(&dir).context(what)? {
            if name.starts_with(b"pack-") && name.ends_with(b".pack") {
                out.push(tree::file_at(&dir, &name).context(what)?);
            }
        }
        Ok(out)
    }

    /// A single object that the session made, if its bytes have that name.
    pub(super) fn loose(&self, id: &str) -> Result<Option<(Kind, Vec<u8>)>> {
        let path = self.repo.common.join("objects").join(&id[..2]).join(&id[2..]);
        let Some((side, name)) = self.side(&path) else { return Ok(None) };
        let open = || tree::file_at(side.upper.place(name.parent().as_ref())?, name.file_name());
        let file = match open() {
            Ok(file) => file,
            Err(e) if is_absence(&e) => return Ok(None),
            Err(e) => return Err(e).context(|| "can't read one of the session's objects".into()),
        };
        let broken = || refused(&format!("its object {id} is broken"));
        let mut bytes = Vec::new();
        ZlibDecoder::new(file).take(OBJECT + 64).read_to_end(&mut bytes).map_err(|_| broken())?;
        if bytes.len() as u64 >= OBJECT {
            return Err(refused(&format!("its object {id} is too large")));
        }
        let end = bytes.iter().position(|b| *b == 0).ok_or_else(broken)?;
        let content = bytes.split_off(end + 1);
        let kind = [Kind::Commit, Kind::Tree, Kind::Blob]
            .into_iter()
            .find(|kind| bytes == format!("{} {}\0", kind.word(), content.len()).into_bytes());
        let kind = kind.ok_or_else(broken)?;
        if name_of(self.repo.format, kind, &content).ok().as_deref() != Some(id) {
            return Err(broken());
        }
        Ok(Some((kind, content)))
    }
}

fn name_of(format: Format, kind: Kind, content: &[u8]) -> io::Result<String> {
    format.object(kind.word(), content.len() as u64, &mut &*content)
}

/// Why commits of the session's can't be kept.
pub(super) fn refused(why: &str) -> Failure {
    Failure::new(FailureKind::Refused, format!("the session's commits can't be kept: {why}"))
        .hint("without --keep-commits, everything lands as one commit")
}

impl Side {
    /// What the layer says about a path: the file it holds, that nothing is there, or nothing.
    fn look(&self, path: &RelPath) -> io::Result<Said> {
        let mut folders: Vec<RelPath> =
            std::iter::successors(path.parent(), RelPath::parent).collect();
        folders.reverse();
        let mut hides = false;
        for (folder, below) in
            std::iter::once(None).chain(folders.iter().map(Some)).zip(folders.iter().chain([path]))
        {
            let dir = match self.upper.dir(folder) {
                Ok(dir) => dir,
                // Something else is in the folder's place, or nothing: then the one above has said so.
                Err(e) if is_absence(&e) => return Ok(Said::Nothing),
                Err(e) => return Err(e),
            };
            let names = tree::names(&dir)?;
            let found = marks::folder_marks(self.backend, &dir, &names)?;
            if found.redirected || found.xattr_whiteouts {
                return Err(io::Error::other(
                    "the layer holds a mark that Landbox's mounts never write",
                ));
            }
            hides |= found.opaque;
            let meta = tree::meta_at(&dir, below.file_name())?;
            let deleted = || {
                names.iter().any(|name| {
                    let mark = marks::name_mark(self.backend, name, false);
                    mark == Mark::WhiteoutOf(below.file_name().to_vec())
                })
            };
            match meta {
                None if hides || deleted() => return Ok(Said::Gone),
                None => return Ok(Said::Nothing),
                Some(meta) if meta.kind == EntryType::CharDevice => return Ok(Said::Gone),
                Some(meta) if meta.kind == EntryType::File && below == path => {
                    return Ok(Said::Here(tree::file_at(&dir, below.file_name())?));
                }
                Some(meta) if meta.kind == EntryType::Dir && below != path => {}
                // A folder where a file was meant, a file on the way: no such ref.
                Some(meta) if matches!(meta.kind, EntryType::Dir | EntryType::File) => {
                    return Ok(Said::Gone);
                }
                Some(_) => return Err(io::Error::other("a link is in its way")),
            }
        }
        Ok(Said::Nothing)
    }
}
