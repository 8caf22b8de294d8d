//! Patterns of what to leave out, in the language of `.gitignore`, from the project's root.

use crate::error::{Failure, Kind, Result};
use crate::ui::text::visible_name;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use landbox_shared::path::RelPath;

/// What to leave out.
#[derive(Clone, Debug)]
pub struct Exclude(Gitignore);

impl Default for Exclude {
    fn default() -> Self {
        Self(Gitignore::empty())
    }
}

impl Exclude {
    /// Reads patterns; of several that fit, the last counts, and `!` in front takes back in.
    pub fn new(patterns: &[String]) -> Result<Self> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            let wrong = |why: &str| {
                let name = visible_name(pattern.as_bytes());
                Failure::new(Kind::Usage, format!("{name} is no pattern to exclude by: {why}"))
                    .hint("it is written as a line of .gitignore: '*.lock', '/docs/', '!keep.lock'")
            };
            if pattern.trim().is_empty() || pattern.contains('\n') {
                return Err(wrong("it must be one line"));
            }
            // As a line of a file, this would be a comment.
            let hash = if pattern.starts_with('#') { "\\" } else { "" };
            let added = builder.add_line(None, &format!("{hash}{pattern}"));
            added.map_err(|e| wrong(&e.to_string()))?;
        }
        let built = builder.build();
        built.map(Self).map_err(|e| Failure::new(Kind::Usage, e.to_string()))
    }

    /// Whether a path, or a folder it lies in, is to be left out.
    pub(super) fn covers(&self, path: &RelPath, folder: bool) -> bool {
        !self.0.is_empty() && self.0.matched_path_or_any_parents(path.as_path(), folder).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(patterns: &[&str], path: &str) -> bool {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        Exclude::new(&patterns).unwrap().covers(&RelPath::new(path).unwrap(), false)
    }

    #[test]
    fn patterns_work_as_lines_of_gitignore() {
        assert!(covers(&["*.lock"], "a/b.lock"));
        assert!(covers(&["docs/"], "docs/a/b"));
        assert!(!covers(&["/docs"], "a/docs"));
        assert!(covers(&["docs"], "a/docs/x"));
        assert!(!covers(&["*.lock", "!keep.lock"], "keep.lock"));
        assert!(covers(&["#a"], "#a"));
        assert!(!covers(&[], "a"));
    }

    #[test]
    fn a_pattern_that_is_none_is_refused() {
        for bad in ["", " ", "a\nb", "{a"] {
            assert!(Exclude::new(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
