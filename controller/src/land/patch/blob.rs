//! One side of a change as git sees it: bytes, their kind and their name.

use crate::error::{Context, Failure, Kind, Result};
use rustix::fs::{SeekFrom as SeekTo, seek};
use sha1::{Digest, Sha1};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes at the start in which git looks for a NUL to call content binary.
const HEAD: u64 = 8000;
/// Larger files are binary whatever they hold (git's `core.bigFileThreshold`).
const TEXT_BYTES: u64 = 512 << 20;
/// Larger files with a hole are binary too, although git says so only of a NUL at the start: a hole of half a gigabyte
/// costs a session nothing, and reading it as text costs that much time and memory.
const HOLED: u64 = 1 << 20;
/// Binary content up to this size is kept in memory instead of being read twice.
const KEPT_BYTES: u64 = 1 << 20;

/// Name of no object at all.
pub(super) const NO_ID: [u8; 40] = [b'0'; 40];

/// Where the bytes of a side come from.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// A link's target.
    Bytes(&'a [u8]),
    /// A regular file's bytes.
    Kept(Vec<u8>),
    /// A regular file, at its start.
    File(File),
}

/// A side whose first bytes have been looked at.
#[derive(Debug)]
pub(super) struct Peeked {
    head: Vec<u8>,
    rest: Option<File>,
    binary: bool,
}

impl Peeked {
    /// Reads as much of `source` as decides whether it is text.
    pub(super) fn new(source: Source<'_>) -> Result<Self> {
        let mut file = match source {
            Source::Bytes(bytes) => {
                return Ok(Self { head: bytes.to_vec(), rest: None, binary: bytes.contains(&0) });
            }
            Source::Kept(bytes) => {
                let looked_at = bytes.len().min(usize::try_from(HEAD).unwrap_or(usize::MAX));
                let binary = bytes.get(..looked_at).is_some_and(|head| head.contains(&0));
                return Ok(Self { head: bytes, rest: None, binary });
            }
            Source::File(file) => file,
        };
        let meta = file.metadata().context(reading)?;
        if !meta.is_file() {
            return Err(changed());
        }
        let mut head = Vec::with_capacity(usize::try_from(meta.len().min(HEAD)).unwrap_or(0));
        (&mut file).take(HEAD).read_to_end(&mut head).context(reading)?;
        let binary =
            head.contains(&0) || meta.len() > TEXT_BYTES || meta.len() > HOLED && has_hole(&file);
        Ok(Self { head, rest: Some(file), binary })
    }

    /// Whether git calls it binary.
    pub(super) fn is_binary(&self) -> bool {
        self.binary
    }

    /// All bytes.
    pub(super) fn read(self) -> Result<Vec<u8>> {
        let Self { head: mut bytes, rest, .. } = self;
        if let Some(file) = rest {
            let left = file.metadata().context(reading)?.len().min(TEXT_BYTES);
            bytes.reserve(usize::try_from(left).unwrap_or(0).saturating_sub(bytes.len()) + 1);
            file.take(TEXT_BYTES).read_to_end(&mut bytes).context(reading)?;
        }
        // It grew while it was read.
        if bytes.len() as u64 > TEXT_BYTES { Err(changed()) } else { Ok(bytes) }
    }

    /// The bytes or, where they are many, the file they can be read from twice.
    pub(super) fn measure(self) -> Result<Measured> {
        let Self { mut head, rest, .. } = self;
        let Some(mut file) = rest else { return Ok(Measured::kept(head)) };
        if file.metadata().context(reading)?.len() <= KEPT_BYTES {
            (&mut file).take(KEPT_BYTES).read_to_end(&mut head).context(reading)?;
            return if head.len() as u64 > KEPT_BYTES {
                Err(changed())
            } else {
                Ok(Measured::kept(head))
            };
        }
        // The name of a blob starts with its size, so the size must be right before the first byte is hashed.
        let size = file.seek(SeekFrom::End(0)).context(reading)?;
        file.rewind().context(reading)?;
        let mut reader = Hashing::new(file, size);
        io::copy(&mut reader, &mut io::sink()).context(reading)?;
        let (id, mut file) = reader.finish()?;
        file.rewind().context(reading)?;
        Ok(Measured { size, id, bytes: Bytes::File(file) })
    }
}

/// Binary content with its size and name.
#[derive(Debug)]
pub(super) struct Measured {
    /// In bytes.
    pub(super) size: u64,
    /// Git's name, in hex.
    pub(super) id: [u8; 40],
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Kept(Vec<u8>),
    File(File),
}

impl Measured {
    fn kept(bytes: Vec<u8>) -> Self {
        Self { size: bytes.len() as u64, id: blob_id(&bytes), bytes: Bytes::Kept(bytes) }
    }

    /// Hands the bytes to `use_bytes` and fails if they are no longer those that were measured.
    pub(super) fn stream(self, use_bytes: impl FnOnce(&mut dyn Read) -> Result<()>) -> Result<()> {
        match self.bytes {
            Bytes::Kept(bytes) => use_bytes(&mut bytes.as_slice()),
            Bytes::File(file) => {
                let mut reader = Hashing::new(file, self.size);
                use_bytes(&mut reader)?;
                let (id, _) = reader.finish()?;
                if id == self.id { Ok(()) } else { Err(changed()) }
            }
        }
    }
}

/// Names bytes while they are read.
struct Hashing {
    file: File,
    sha: Sha1,
    left: u64,
}

impl Hashing {
    fn new(file: File, size: u64) -> Self {
        let mut sha = Sha1::new();
        sha.update(format!("blob {size}\0"));
        Self { file, sha, left: size }
    }

    fn finish(self) -> Result<([u8; 40], File)> {
        if self.left == 0 { Ok((hex(self.sha), self.file)) } else { Err(changed()) }
    }
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let got = self.file.read(&mut buffer[..most])?;
        self.sha.update(&buffer[..got]);
        self.left -= got as u64;
        Ok(got)
    }
}

/// Whether some of a file was never written.
fn has_hole(file: &File) -> bool {
    let end = file.metadata().map_or(u64::MAX, |meta| meta.len());
    let found = seek(file, SeekTo::Hole(0));
    // Where the reading goes on.
    let back = seek(file, SeekTo::Start(HEAD));
    back.is_err() || found.is_ok_and(|at| at < end)
}

/// Git's name of a blob, in hex.
pub(super) fn blob_id(bytes: &[u8]) -> [u8; 40] {
    let mut sha = Sha1::new();
    sha.update(format!("blob {}\0", bytes.len()));
    sha.update(bytes);
    hex(sha)
}

fn hex(sha: Sha1) -> [u8; 40] {
    let mut out = [0; 40];
    let digit = |d: u8| if d < 10 { b'0' + d } else { b'a' + d - 10 };
    for (pair, byte) in out.chunks_exact_mut(2).zip(sha.finalize()) {
        pair[0] = digit(byte >> 4);
        pair[1] = digit(byte & 15);
    }
    out
}

fn reading() -> String {
    "can't read a changed file".to_owned()
}

fn changed() -> Failure {
    Failure::new(Kind::Failed, "a changed file was written to while it was read")
        .hint("try again when the session is idle")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn blobs_have_the_names_git_gives_them() {
        assert_eq!(&blob_id(b""), b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(&blob_id(b"hello\n"), b"ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn only_a_nul_near_the_start_makes_content_binary() {
        let mut content = vec![b'a'; 8001];
        content[8000] = 0;
        assert!(!Peeked::new(Source::File(file(&content))).unwrap().is_binary());
        content[7999] = 0;
        assert!(Peeked::new(Source::File(file(&content))).unwrap().is_binary());
    }

    #[test]
    fn large_text_with_a_hole_is_binary_and_without_one_is_read_whole() {
        let text = vec![b'a'; 2 << 20];
        let whole = Peeked::new(Source::File(file(&text))).unwrap();
        assert!(!whole.is_binary());
        assert_eq!(whole.read().unwrap(), text);
        let holed = file(&text);
        holed.set_len(256 << 20).unwrap();
        assert!(Peeked::new(Source::File(holed)).unwrap().is_binary());
    }

    #[test]
    fn large_binary_content_is_streamed_and_checked() {
        let content = vec![0; 3 << 20];
        let source = file(&content);
        let measured =
            Peeked::new(Source::File(source.try_clone().unwrap())).unwrap().measure().unwrap();
        assert_eq!((measured.size, measured.id), (3 << 20, blob_id(&content)));
        let result = measured.stream(|reader| {
            // Same size, another byte: only the name gives it away.
            std::os::unix::fs::FileExt::write_all_at(&source, b"x", 2 << 20).unwrap();
            io::copy(reader, &mut io::sink()).map(|_| ()).context(reading)
        });
        assert!(result.is_err());
    }

    #[test]
    fn a_file_that_shrinks_meanwhile_is_refused() {
        let source = file(&vec![0; 3 << 20]);
        let measured =
            Peeked::new(Source::File(source.try_clone().unwrap())).unwrap().measure().unwrap();
        source.set_len(5).unwrap();
        assert!(
            measured.stream(|r| io::copy(r, &mut io::sink()).map(|_| ()).context(reading)).is_err()
        );
    }
}
