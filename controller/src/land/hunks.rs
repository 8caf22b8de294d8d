//! A change of text in parts: which lines of the base it replaces, and what comes of the base when only some of that is
//! wanted. Pure.

use super::patch::lines::diff;
use std::ops::Range;

/// Common lines shown around what differs.
const CONTEXT: usize = 3;
/// Bytes at the start in which git looks for a NUL to call content binary.
const HEAD: usize = 8000;

/// Whether bytes are text to git.
pub fn is_text(bytes: &[u8]) -> bool {
    !bytes.iter().take(HEAD).any(|b| *b == 0)
}

/// Lines of the base and the lines in their place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    before: Range<usize>,
    after: Range<usize>,
}

/// One or more edits that are decided on together: their range.
pub type Hunk = Range<usize>;

/// What is wanted of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// All of it.
    Take,
    /// Nothing of it.
    Leave,
    /// These lines instead, in the place of the hunk's and its context's.
    Edited(Vec<u8>),
}

/// A text before and after.
#[derive(Debug)]
pub struct TextChange {
    old: Lines,
    new: Lines,
    edits: Vec<Edit>,
}

/// A text with the places where its lines start, and its end.
#[derive(Debug)]
struct Lines {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Lines {
    fn new(bytes: Vec<u8>) -> Self {
        let mut starts = vec![0];
        starts.extend(bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1));
        if starts.last() != Some(&bytes.len()) {
            starts.push(bytes.len());
        }
        Self { bytes, starts }
    }

    fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn get(&self, lines: Range<usize>) -> &[u8] {
        &self.bytes[self.starts[lines.start]..self.starts[lines.end]]
    }

    fn each(&self, lines: Range<usize>) -> impl Iterator<Item = &[u8]> {
        lines.map(|line| self.get(line..line + 1))
    }
}

impl TextChange {
    /// Compares two texts.
    pub fn new(old: Vec<u8>, new: Vec<u8>) -> Self {
        let script = diff(&old, &new);
        let skipped = script.skipped;
        let shift = |range: &Range<usize>| range.start + skipped..range.end + skipped;
        let edit = |h: &super::patch::lines::Hunk| Edit {
            before: shift(&h.before),
            after: shift(&h.after),
        };
        let edits = script.hunks.iter().map(edit).collect();
        Self { old: Lines::new(old), new: Lines::new(new), edits }
    }

    /// The hunks as git shows them: edits whose contexts would meet are one.
    pub fn hunks(&self) -> Vec<Hunk> {
        let mut out: Vec<Hunk> = Vec::new();
        for (at, edit) in self.edits.iter().enumerate() {
            match out.last_mut() {
                Some(last)
                    if edit.before.start - self.edits[last.end - 1].before.end <= 2 * CONTEXT =>
                {
                    last.end = at + 1;
                }
                Some(_) | None => out.push(at..at + 1),
            }
        }
        out
    }

    /// How many parts there are that cannot be split any more.
    pub fn edits(&self) -> usize {
        self.edits.len()
    }

    /// Lines of the base that a hunk is shown with: up to three on each side, and none that another is shown with.
    fn shown(&self, hunk: &Hunk) -> Range<usize> {
        let (first, last) = (&self.edits[hunk.start].before, &self.edits[hunk.end - 1].before);
        // The gap to the edit before goes to that one first.
        let lead = hunk.start.checked_sub(1).map_or(first.start, |at| {
            (first.start - self.edits[at].before.end).saturating_sub(CONTEXT)
        });
        let next = self.edits.get(hunk.end).map_or(self.old.count(), |edit| edit.before.start);
        first.start - lead.min(CONTEXT)..last.end + (next - last.end).min(CONTEXT)
    }

    /// A hunk as it stands in a patch of the whole change.
    pub fn print(&self, hunk: &Hunk) -> Vec<u8> {
        let first = &self.edits[hunk.start];
        self.print_at(hunk, self.shown(hunk).start + first.after.start - first.before.start)
    }

    /// `new_start` counts the lines in front of it in the text that the patch makes.
    fn print_at(&self, hunk: &Hunk, new_start: usize) -> Vec<u8> {
        let shown = self.shown(hunk);
        let (added, deleted) = self.counts(hunk);
        let new = place(new_start, shown.len() + added - deleted);
        let mut out = format!("@@ -{} +{new} @@\n", place(shown.start, shown.len())).into_bytes();
        let mut at = shown.start;
        for edit in &self.edits[hunk.clone()] {
            self.old.each(at..edit.before.start).for_each(|line| push(&mut out, b' ', line));
            self.old.each(edit.before.clone()).for_each(|line| push(&mut out, b'-', line));
            self.new.each(edit.after.clone()).for_each(|line| push(&mut out, b'+', line));
            at = edit.before.end;
        }
        self.old.each(at..shown.end).for_each(|line| push(&mut out, b' ', line));
        out
    }

    /// Added and deleted lines of a hunk.
    pub fn counts(&self, hunk: &Hunk) -> (usize, usize) {
        let edits = &self.edits[hunk.clone()];
        (edits.iter().map(|e| e.after.len()).sum(), edits.iter().map(|e| e.before.len()).sum())
    }

    /// What tells a hunk from others wherever it stands: its lines, and those it is shown with.
    pub fn identity(&self, hunk: &Hunk) -> [&[u8]; 4] {
        let (first, last) = (&self.edits[hunk.start], &self.edits[hunk.end - 1]);
        let (shown, old) = (self.shown(hunk), first.before.start..last.before.end);
        let (lead, trail) = (shown.start..old.start, old.end..shown.end);
        let new = first.after.start..last.after.end;
        [self.old.get(lead), self.old.get(old), self.new.get(new), self.old.get(trail)]
    }

    /// What comes of the base. `wishes` are hunks in order, none of which meets another.
    pub fn make<'a>(&self, wishes: impl Iterator<Item = (&'a Hunk, &'a Wish)>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = 0;
        for (hunk, wish) in wishes {
            match wish {
                Wish::Leave => {}
                Wish::Take => {
                    for edit in &self.edits[hunk.clone()] {
                        out.extend_from_slice(self.old.get(at..edit.before.start));
                        out.extend_from_slice(self.new.get(edit.after.clone()));
                        at = edit.before.end;
                    }
                }
                Wish::Edited(lines) => {
                    let shown = self.shown(hunk);
                    out.extend_from_slice(self.old.get(at..shown.start));
                    out.extend_from_slice(lines);
                    at = shown.end;
                }
            }
        }
        out.extend_from_slice(self.old.get(at..self.old.count()));
        out
    }

    /// Reads a hunk that somebody edited. `None` if nothing is left of it; an error says why it does not apply.
    pub fn read_edit(&self, hunk: &Hunk, edited: &[u8]) -> Result<Option<Wish>, &'static str> {
        let shown = self.shown(hunk);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let mut any = false;
        let mut ended = true;
        let mut marks = edited.split_inclusive(|b| *b == b'\n').filter(|l| l[0] != b'#').peekable();
        while let Some(line) = marks.next() {
            let (mark, text) = match line {
                // Editors strip the space of an empty line.
                b"\n" => (b' ', line),
                line => (line[0], &line[1..]),
            };
            if line.starts_with(b"@@ ") && !any {
                continue;
            }
            let bare = marks.next_if(|next| next[0] == b'\\').is_some();
            let text = match (bare, text.ends_with(b"\n")) {
                (true, true) => &text[..text.len() - 1],
                (false, true) | (true, false) => text,
                (false, false) => return Err("its last line has no end"),
            };
            any = true;
            match mark {
                b' ' => [&mut old, &mut new].into_iter().for_each(|side| side.extend(text)),
                b'-' => old.extend(text),
                b'+' => new.extend(text),
                _ => return Err("a line starts with none of ' ', '-', '+' and '#'"),
            }
            if mark != b'-' {
                if !ended {
                    return Err("only the last line of a file can be without an end");
                }
                ended = !bare;
            }
        }
        if !any {
            return Ok(None);
        }
        if old != self.old.get(shown.clone()) {
            return Err("the lines marked ' ' and '-' are not those of the file any more");
        }
        if !ended && shown.end < self.old.count() {
            return Err("only the last line of a file can be without an end");
        }
        Ok(Some(if new == old { Wish::Leave } else { Wish::Edited(new) }))
    }
}

/// `start` counts lines in front. An empty range names the line before it.
fn place(start: usize, length: usize) -> String {
    match length {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        _ => format!("{},{length}", start + 1),
    }
}

fn push(out: &mut Vec<u8>, mark: u8, line: &[u8]) {
    out.push(mark);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use std::process::{Command, Stdio};

    fn made(change: &TextChange, hunks: &[Hunk], wishes: &[Wish]) -> Vec<u8> {
        change.make(hunks.iter().zip(wishes))
    }

    /// What git makes of the same hunks.
    fn by_git(dir: &Path, old: &[u8], hunks: &[Vec<u8>]) -> Vec<u8> {
        if hunks.is_empty() {
            return old.to_vec();
        }
        std::fs::write(dir.join("f"), old).unwrap();
        let mut patch = b"--- a/f\n+++ b/f\n".to_vec();
        patch.extend(hunks.concat());
        std::fs::write(dir.join("patch"), &patch).unwrap();
        let mut git = Command::new("git");
        git.args(["apply", "--recount", "--unidiff-zero", "--whitespace=nowarn", "patch"]);
        let out = git.current_dir(dir).env("GIT_DIR", "/dev/null").stdin(Stdio::null()).output();
        let out = out.unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&patch));
        std::fs::read(dir.join("f")).unwrap()
    }

    fn numbered(count: usize) -> String {
        (0..count).map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn hunks_are_those_of_git_and_splitting_gives_single_edits() {
        let old = numbered(40);
        let new =
            old.replace("line 3\n", "three\n").replace("line 8\n", "").replace("line 30\n", "30\n");
        let change = TextChange::new(old.into(), new.into());
        assert_eq!(change.hunks(), [0..2, 2..3]);
        assert_eq!(change.edits(), 3);
        let text = String::from_utf8(change.print(&(0..2))).unwrap();
        assert!(text.starts_with("@@ -1,12 +1,11 @@\n line 0\n"), "{text}");
        let text = String::from_utf8(change.print(&(1..2))).unwrap();
        assert_eq!(text, "@@ -8,5 +8,4 @@\n line 7\n-line 8\n line 9\n line 10\n line 11\n");
    }

    #[test]
    fn an_edited_hunk_must_still_fit_the_base() {
        let change = TextChange::new(b"a\nb\nc\n".to_vec(), b"a\nB\nc\n".to_vec());
        let hunk = change.hunks()[0].clone();
        let read = |text: &str| change.read_edit(&hunk, text.as_bytes());
        let wish = read("@@ -1,3 +1,3 @@\n a\n-b\n+bee\n c\n# a note\n").unwrap().unwrap();
        assert_eq!(made(&change, std::slice::from_ref(&hunk), &[wish]), b"a\nbee\nc\n");
        assert_eq!(read("# only notes\n"), Ok(None));
        assert_eq!(read(" a\n b\n c\n"), Ok(Some(Wish::Leave)));
        for wrong in
            [" a\n-x\n+b\n c\n", " a\n+b\n", "a\nb\nc\n", " a\n-b\n+bee\n\\ no\n c\n", " a\n-b\n c"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_last_line_without_an_end_can_be_edited() {
        let change = TextChange::new(b"a\nb".to_vec(), b"a\nc\n".to_vec());
        let hunk = change.hunks()[0].clone();
        let shown = change.print(&hunk);
        assert_eq!(
            String::from_utf8_lossy(&shown),
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
        );
        let edited = String::from_utf8(shown).unwrap().replace("+c\n", "+d\n\\ none\n");
        let wish = change.read_edit(&hunk, edited.as_bytes()).unwrap().unwrap();
        assert_eq!(made(&change, &[hunk], &[wish]), b"a\nd");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_part_of_a_change_is_what_git_makes_of_the_same_hunks(
            old in "([abc]{0,2}\n){0,60}[ab]{0,2}", new in "([abc]{0,2}\n){0,60}[ab]{0,2}",
            edits in proptest::collection::vec((0usize..60, "[xy\n]{0,4}"), 0..6),
            (mask, fine) in (any::<u64>(), any::<bool>()),
        ) {
            let mut near = old.clone();
            for (at, text) in edits {
                near.insert_str(at.min(near.len()), &text);
            }
            let dir = tempfile::tempdir().unwrap();
            for new in [new, near] {
                let change = TextChange::new(old.clone().into(), new.clone().into());
                let mut hunks = change.hunks();
                if fine {
                    hunks = (0..change.edits()).map(|at| at..at + 1).collect();
                }
                let all = |wish: Wish| vec![wish; hunks.len()];
                prop_assert_eq!(made(&change, &hunks, &all(Wish::Take)), new.as_bytes());
                prop_assert_eq!(made(&change, &hunks, &all(Wish::Leave)), old.as_bytes());
                let taken = |n: usize| mask >> (n % 64) & 1 == 1;
                let wishes: Vec<Wish> = (0..hunks.len())
                    .map(|n| if taken(n) { Wish::Take } else { Wish::Leave })
                    .collect();
                // Git looks for a hunk where it says that it comes to lie. One that leaves no line names the line before,
                // where git would take any that begins as a last line without an end does.
                let (mut added, mut deleted) = (0, 0);
                let mut printed = Vec::new();
                for (_, hunk) in hunks.iter().enumerate().filter(|(n, _)| taken(*n)) {
                    let (shown, counts) = (change.shown(hunk), change.counts(hunk));
                    let nothing = shown.len() + counts.0 == counts.1;
                    let start = shown.start + added - deleted + usize::from(nothing);
                    printed.push(change.print_at(hunk, start));
                    (added, deleted) = (added + counts.0, deleted + counts.1);
                }
                let ours = made(&change, &hunks, &wishes);
                if old.is_empty() || ours.is_empty() {
                    continue;
                }
                prop_assert_eq!(&ours, &by_git(dir.path(), old.as_bytes(), &printed));
                // What an editor leaves as it was means the same.
                let again: Vec<Wish> = hunks.iter().zip(&wishes).map(|(hunk, wish)| match wish {
                    Wish::Take => change.read_edit(hunk, &change.print(hunk)).unwrap().unwrap(),
                    other @ (Wish::Leave | Wish::Edited(_)) => other.clone(),
                }).collect();
                prop_assert_eq!(made(&change, &hunks, &again), ours);
            }
        }
    }
}
