//! ssh refuses an included configuration file whose owner is neither root nor the user. In a user namespace that maps
//! the user alone, root's files show as nobody's, so a session is shown copies of its own.

use super::files::{Files, Kind};
use landbox_shared::path::AbsPath;
use std::io::Read;
use std::path::{Path, PathBuf};

const CONFIG: &str = "/etc/ssh/ssh_config";
const FOLDER: &str = "/etc/ssh/ssh_config.d";
/// Bounds that no real configuration comes near.
const MAX_FILES: usize = 64;
const MAX_BYTES: u64 = 64 << 10;

/// Copies of the included files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshFiles {
    /// The canonical `/etc/ssh/ssh_config.d`, if there is something in it.
    pub folder: Option<AbsPath>,
    /// The folder's regular files: name and text.
    pub copies: Vec<(Vec<u8>, Vec<u8>)>,
    /// Other files that one of the files includes by absolute path.
    pub others: Vec<(AbsPath, Vec<u8>)>,
}

/// Reads what ssh would include.
pub fn gather(files: &Files) -> SshFiles {
    let mut found = SshFiles::default();
    let mut texts: Vec<Vec<u8>> = read(Path::new(CONFIG)).into_iter().collect();
    if let Some(at) = files.locate(Path::new(FOLDER)).filter(|l| l.kind == Kind::Dir) {
        found.copies = folder(at.path.as_path());
        texts.extend(found.copies.iter().map(|(_, text)| text.clone()));
        // An empty folder needs no copy.
        found.folder = Some(at.path).filter(|_| !found.copies.is_empty());
    }
    let mut queue: Vec<PathBuf> = texts.iter().flat_map(|text| includes(text)).collect();
    while let Some(path) = queue.pop() {
        let Some(at) = files.locate(&path).filter(|l| l.kind == Kind::File) else { continue };
        let inside = |folder: &AbsPath| at.path.is_within(folder);
        if found.others.len() == MAX_FILES
            || found.folder.as_ref().is_some_and(inside)
            || found.others.iter().any(|(known, _)| *known == at.path)
        {
            continue;
        }
        if let Some(text) = read(at.path.as_path()) {
            queue.extend(includes(&text));
            found.others.push((at.path, text));
        }
    }
    found
}

fn folder(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt;
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut copies: Vec<_> = entries
        .flatten()
        .filter_map(|e| Some((e.file_name().as_bytes().to_vec(), read(&e.path())?)))
        .take(MAX_FILES)
        .collect();
    copies.sort();
    copies
}

/// A regular file's text, through links; `None` for anything else, and for a file that is not a configuration's size.
fn read(path: &Path) -> Option<Vec<u8>> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return None;
    }
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

/// The absolute paths without patterns that a configuration includes. (A pattern elsewhere than in the folder above
/// is rare; ssh then names the file it refuses.)
fn includes(text: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        let mut words = line.split([' ', '\t', '=', '"']).filter(|w| !w.is_empty());
        if words.next().is_some_and(|w| w.eq_ignore_ascii_case("include")) {
            found.extend(
                words.filter(|w| w.starts_with('/') && !w.contains(['*', '?'])).map(PathBuf::from),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_includes_are_found_and_patterns_are_left_to_the_folder() {
        let text = b"# c\nInclude /etc/ssh/ssh_config.d/*.conf\n include \"/a/b\" /c\nHost x\nIncluded /no\n";
        assert_eq!(includes(text), [PathBuf::from("/a/b"), PathBuf::from("/c")]);
    }
}
