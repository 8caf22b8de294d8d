//! Links that lead out of the project, or into git's own files.

use super::{Risk, RiskKind};
use landbox_shared::path::{AbsPath, RelPath};

/// Judges where a link at `path` in `project` leads, by its words alone: what it leads to may change at any time.
pub(in crate::land) fn judge(path: &RelPath, to: &[u8], project: &AbsPath) -> Option<Risk> {
    let parts: Vec<&[u8]> =
        to.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    let outside = |why: &str| Some(Risk::new(RiskKind::OutsideLink, why));
    let inner = if to.first() == Some(&b'/') {
        let root: Vec<&[u8]> =
            project.as_bytes().split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
        match parts.strip_prefix(root.as_slice()) {
            Some(inner) => inner,
            None => return outside("the link leads to a path outside the project"),
        }
    } else {
        let up = parts.iter().take_while(|p| **p == b"..").count();
        // The folders a link lies in are folders, not links, so these steps can be counted.
        if up >= path.components().count() {
            return outside("the link leads to a path outside the project");
        }
        &parts[up..]
    };
    if inner.contains(&&b".."[..]) {
        return outside("where the link leads depends on other links");
    }
    let git = inner.iter().any(|part| part.eq_ignore_ascii_case(b".git"));
    git.then(|| Risk::new(RiskKind::Git, "the link leads into git's own files"))
}
