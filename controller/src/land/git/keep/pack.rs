//! Objects as a pack, for git to check and take in.

use super::super::repo::Format;
use super::object::Kind;
use crate::error::{Context, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha2::Digest;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};

/// A pack that is being written.
pub(super) struct Pack {
    body: BufWriter<File>,
    count: u32,
    format: Format,
}

impl Pack {
    pub(super) fn new(format: Format, dir: &std::path::Path) -> Result<Self> {
        let file = tempfile::tempfile_in(dir).context(|| "can't make a file to work in".into())?;
        Ok(Self { body: BufWriter::with_capacity(256 << 10, file), count: 0, format })
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Adds one object.
    pub(super) fn add(&mut self, kind: Kind, content: &[u8]) -> Result<()> {
        self.write(kind, content).context(|| "can't write a pack".into())
    }

    fn write(&mut self, kind: Kind, content: &[u8]) -> io::Result<()> {
        let tag: u8 = match kind {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
        };
        let mut size = content.len();
        let low = |size: usize, mask: usize| u8::try_from(size & mask).unwrap_or(0);
        let mut byte = tag << 4 | low(size, 0x0f);
        size >>= 4;
        while size > 0 {
            self.body.write_all(&[byte | 0x80])?;
            byte = low(size, 0x7f);
            size >>= 7;
        }
        self.body.write_all(&[byte])?;
        let mut zlib = ZlibEncoder::new(&mut self.body, Compression::fast());
        zlib.write_all(content)?;
        zlib.finish()?;
        self.count += 1;
        Ok(())
    }

    /// Hands head, objects and checksum to `out`.
    pub(super) fn send(self, out: &mut dyn Write) -> Result<()> {
        let what = || "can't write a pack".to_owned();
        let mut body =
            self.body.into_inner().map_err(io::IntoInnerError::into_error).context(what)?;
        body.rewind().context(what)?;
        let head = [b"PACK", &2u32.to_be_bytes()[..], &self.count.to_be_bytes()].concat();
        let sent = match self.format {
            Format::Sha1 => stream(sha1::Sha1::new(), &head, body, out),
            Format::Sha256 => stream(sha2::Sha256::new(), &head, body, out),
        };
        sent.context(what)
    }
}

fn stream<D: Digest>(
    mut hash: D,
    head: &[u8],
    mut body: File,
    out: &mut dyn Write,
) -> io::Result<()> {
    hash.update(head);
    out.write_all(head)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match body.read(&mut buffer)? {
            0 => break,
            got => {
                hash.update(&buffer[..got]);
                out.write_all(&buffer[..got])?;
            }
        }
    }
    out.write_all(&hash.finalize())?;
    out.flush()
}
