//! The digest of file content. Blocks of zeros are left out of it and holes are skipped, so that a sparse file costs
//! what it holds and not what it claims to hold: a task can make a file of a terabyte with one call.

use landbox_shared::digest::{Digest, Hasher};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const BLOCK: usize = 64 << 10;
const DOMAIN: &str = "file content 1";

/// Size and digest of a file's bytes.
pub(crate) fn digest(file: &File) -> io::Result<(u64, Digest)> {
    digest_while(file, |_| Ok(()))
}

/// The same as long as `watch` agrees, who is told after each block how many bytes were read. A session that writes to
/// the file meanwhile can keep its end away for ever.
pub(crate) fn digest_while(
    file: &File,
    mut watch: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<(u64, Digest)> {
    let mut read = 0;
    pass(file, |_, bytes, _| {
        read += bytes.len() as u64;
        watch(read)
    })
}

/// Copies a file's bytes into `to`, which must be empty, and gives their size and digest. Holes stay holes.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<(u64, Digest)> {
    copy_while(from, to, |_| Ok(()))
}

/// The same as long as `watch` agrees, who is told before each block how many bytes will be written with it.
pub(crate) fn copy_while(
    from: &File,
    to: &File,
    mut watch: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<(u64, Digest)> {
    let (mut end, mut written) = (0, 0);
    let (size, digest) = pass(from, |at, bytes, zero| {
        if zero {
            return watch(written);
        }
        written += bytes.len() as u64;
        watch(written)?;
        end = at + bytes.len() as u64;
        to.write_all_at(bytes, at)
    })?;
    if end < size {
        to.set_len(size)?;
    }
    Ok((size, digest))
}

/// The digest of bytes in memory, equal to that of a file of these bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new(DOMAIN);
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        if !is_zero(block) {
            add(&mut hasher, index as u64 * BLOCK as u64, block);
        }
    }
    finish(hasher, bytes.len() as u64)
}

fn add(hasher: &mut Hasher, at: u64, block: &[u8]) {
    hasher.update(&at.to_le_bytes());
    hasher.update(&(block.len() as u64).to_le_bytes());
    hasher.update(block);
}

fn finish(mut hasher: Hasher, size: u64) -> Digest {
    hasher.update(&size.to_le_bytes());
    hasher.finish()
}

fn is_zero(block: &[u8]) -> bool {
    let (words, tail) = block.as_chunks::<8>();
    tail.iter().all(|b| *b == 0) && words.iter().all(|w| *w == [0; 8])
}

fn pass(
    file: &File,
    mut sink: impl FnMut(u64, &[u8], bool) -> io::Result<()>,
) -> io::Result<(u64, Digest)> {
    let mut hasher = Hasher::new(DOMAIN);
    let claimed = usize::try_from(file.metadata()?.len()).unwrap_or(BLOCK);
    // A small file gets a small buffer, of one byte more than is expected so that one read shows that it has ended.
    let mut buffer = vec![0; claimed.saturating_add(1).min(BLOCK)];
    let mut at = 0;
    loop {
        let mut got = fill(file, &mut buffer, at)?;
        if got == buffer.len() && got < BLOCK {
            // It grew while it was read. Blocks are whole, or the digest would depend on that.
            buffer.resize(BLOCK, 0);
            got += fill(file, &mut buffer[got..], at + got as u64)?;
        }
        let block = &buffer[..got];
        let zero = is_zero(block);
        if !zero {
            add(&mut hasher, at, block);
        }
        sink(at, block, zero)?;
        at += got as u64;
        if got < BLOCK {
            return Ok((at, finish(hasher, at)));
        }
        at = skip_hole(file, at)?;
    }
}

/// The start of the block in which the next data lies; the end of the file if there is none.
fn skip_hole(file: &File, at: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data - data % BLOCK as u64),
        Err(Errno::NXIO) => {
            let end = file.metadata()?.len();
            Ok(end.max(at))
        }
        // A file system that knows no holes.
        Err(Errno::INVAL | Errno::NOTSUP | Errno::SPIPE) => Ok(at),
        Err(e) => Err(e.into()),
    }
}

fn fill(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn the_digest_does_not_depend_on_where_the_holes_are() {
        let mut bytes = vec![0; 5 * BLOCK + 17];
        bytes[3 * BLOCK + 5] = 1;
        let dense = file(&bytes);
        let sparse = tempfile::tempfile().unwrap();
        sparse.write_all_at(&[1], 3 * BLOCK as u64 + 5).unwrap();
        sparse.set_len(bytes.len() as u64).unwrap();
        assert_eq!(digest(&dense).unwrap(), digest(&sparse).unwrap());
        assert_eq!(digest(&dense).unwrap(), (bytes.len() as u64, digest_of(&bytes)));
    }

    #[test]
    fn what_is_read_or_copied_ends_where_whoever_watches_says_so() {
        let from = file(&vec![1; 5 * BLOCK]);
        let until = |most: u64| {
            move |bytes: u64| if bytes > most { Err(io::Error::other("enough")) } else { Ok(()) }
        };
        let to = tempfile::tempfile().unwrap();
        assert!(digest_while(&from, until(4 * BLOCK as u64)).is_err());
        assert!(copy_while(&from, &to, until(2 * BLOCK as u64)).is_err());
        assert_eq!(to.metadata().unwrap().len(), 2 * BLOCK as u64);
        assert_eq!(digest_while(&from, until(5 * BLOCK as u64)).unwrap(), digest(&from).unwrap());
        // Zeros are read, and take no room.
        let zeros = file(&vec![0; 3 * BLOCK]);
        copy_while(&zeros, &tempfile::tempfile().unwrap(), until(0)).unwrap();
        assert!(digest_while(&zeros, until(2 * BLOCK as u64)).is_err());
    }

    #[test]
    fn every_length_around_a_block_has_its_own_digest() {
        let mut seen = std::collections::HashSet::new();
        for len in [0, 1, 7, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1] {
            for fill in [0, 1] {
                let bytes = vec![fill; len];
                let (size, found) = digest(&file(&bytes)).unwrap();
                assert_eq!((size, found), (len as u64, digest_of(&bytes)));
                assert!(seen.insert(found) || len == 0, "{len} {fill}");
            }
        }
    }

    #[test]
    fn a_terabyte_of_nothing_costs_nothing_and_is_copied_as_a_hole() {
        let from = tempfile::tempfile().unwrap();
        from.set_len(1 << 40).unwrap();
        from.write_all_at(b"end", (1 << 39) + 5).unwrap();
        let to = tempfile::tempfile().unwrap();
        let copied = copy(&from, &to).unwrap();
        assert_eq!(copied.0, 1 << 40);
        assert_eq!(digest(&to).unwrap(), copied);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&to.metadata().unwrap());
        assert!(blocks < 4096, "{blocks}");
    }
}
