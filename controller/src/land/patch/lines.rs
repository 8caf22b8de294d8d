//! Which lines differ between two texts, in time and memory that hostile text cannot blow up.
//!
//! The diff algorithms take quadratic time on some texts (a 200,000-line file in which every second line differs takes
//! a minute). So: the common head and tail go first; what is left is diffed whole where it is small, else only between
//! lines that occur once on each side, and where even that would take too long it is replaced.

use imara_diff::sources::byte_lines;
use imara_diff::{Algorithm, Diff, InternedInput};
use std::collections::HashMap;
use std::ops::Range;

/// Lines of common text kept on each side of what differs: context, and room to place an insertion well.
const MARGIN: usize = 64;
/// Most lines of both sides that are diffed in one go (at worst about a tenth of a second).
const SMALL: usize = 8 << 10;
/// Most lines of both sides that are looked at one by one.
const LARGE: usize = 4 << 20;
/// What may be spent on the gaps of one large text; a gap costs the square of its lines.
const WORK: usize = 1 << 32;

/// Lines replaced by other lines, counted from the start of the windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::land) struct Hunk {
    pub(in crate::land) before: Range<usize>,
    pub(in crate::land) after: Range<usize>,
}

/// The difference of two texts.
#[derive(Debug)]
pub(in crate::land) struct Script<'a> {
    /// Lines in front of both windows; they are the same.
    pub(in crate::land) skipped: usize,
    /// The part of the old text that holds every difference, with a margin.
    pub(in crate::land) before: &'a [u8],
    /// The same part of the new text.
    pub(in crate::land) after: &'a [u8],
    /// Lines in `before`.
    pub(in crate::land) before_lines: usize,
    /// What differs, in order; between two hunks there is at least one common line.
    pub(in crate::land) hunks: Vec<Hunk>,
}

impl Script<'_> {
    /// Added and deleted lines.
    pub(in crate::land) fn counts(&self) -> (u64, u64) {
        self.hunks.iter().fold((0, 0), |(added, deleted), hunk| {
            (added + hunk.after.len() as u64, deleted + hunk.before.len() as u64)
        })
    }
}

/// Number of lines; a last line needs no line end.
pub(super) fn count(text: &[u8]) -> usize {
    let ends = text.iter().filter(|b| **b == b'\n').count();
    ends + usize::from(text.last().is_some_and(|b| *b != b'\n'))
}

/// Compares two texts.
pub(in crate::land) fn diff<'a>(old: &'a [u8], new: &'a [u8]) -> Script<'a> {
    if old.is_empty() || new.is_empty() {
        let (before, after) = (count(old), count(new));
        let hunk = Hunk { before: 0..before, after: 0..after };
        let hunks = if before + after == 0 { Vec::new() } else { vec![hunk] };
        return Script { skipped: 0, before: old, after: new, before_lines: before, hunks };
    }
    let head = common_head(old, new);
    let tail = common_tail(&old[head..], &new[head..]);
    let start = back(&old[..head], MARGIN);
    let margin = forth(&old[old.len() - tail..], MARGIN);
    let before = &old[start..old.len() - tail + margin];
    let after = &new[start..new.len() - tail + margin];
    let (before_lines, after_lines) = (count(before), count(after));
    let hunks = if before_lines + after_lines <= SMALL {
        small(before, after)
    } else if before_lines + after_lines <= LARGE {
        anchored(before, after)
    } else {
        let (lead, trail) = (count(&old[start..head]), count(&old[old.len() - tail..][..margin]));
        vec![Hunk { before: lead..before_lines - trail, after: lead..after_lines - trail }]
    };
    Script { skipped: count(&old[..start]), before, after, before_lines, hunks }
}

/// Bytes of whole lines that both texts start with.
fn common_head(old: &[u8], new: &[u8]) -> usize {
    let same = same_prefix(old, new);
    if same == old.len() && same == new.len() {
        return same;
    }
    old[..same].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)
}

fn same_prefix(old: &[u8], new: &[u8]) -> usize {
    // By blocks first: comparing slices is many times faster than comparing bytes.
    const BLOCK: usize = 4096;
    let blocks = old.chunks_exact(BLOCK).zip(new.chunks_exact(BLOCK));
    let at = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    at + old[at..].iter().zip(&new[at..]).take_while(|(a, b)| a == b).count()
}

/// Bytes of whole lines that both texts end with.
fn common_tail(old: &[u8], new: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    let blocks = old.rchunks_exact(BLOCK).zip(new.rchunks_exact(BLOCK));
    let at = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let rest = old[..old.len() - at].iter().rev().zip(new[..new.len() - at].iter().rev());
    let same = at + rest.take_while(|(a, b)| a == b).count();
    // The first line end inside ends a line of both sides, whatever stands before.
    let tail = &old[old.len() - same..];
    tail.iter().position(|b| *b == b'\n').map_or(0, |end| same - end - 1)
}

/// Where the last `lines` lines of whole-line `text` start.
fn back(text: &[u8], lines: usize) -> usize {
    let ends = text.iter().enumerate().rev().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
    ends.skip(1).nth(lines - 1).unwrap_or(0)
}

/// Where the first `lines` lines of `text` end.
fn forth(text: &[u8], lines: usize) -> usize {
    byte_lines(text).take(lines).map(<[u8]>::len).sum()
}

fn small(before: &[u8], after: &[u8]) -> Vec<Hunk> {
    // `InternedInput::new` reserves memory by the first twenty lines, which a session can make lie.
    let mut input = InternedInput::default();
    input.update_before(byte_lines(before));
    input.update_after(byte_lines(after));
    compare(&input, 0, 0).collect()
}

fn compare(
    input: &InternedInput<&[u8]>,
    before: usize,
    after: usize,
) -> impl Iterator<Item = Hunk> + use<> {
    let mut diff = Diff::compute(Algorithm::Histogram, input);
    diff.postprocess_lines(input);
    let hunks: Vec<Hunk> = diff
        .hunks()
        .map(|h| Hunk {
            before: before + h.before.start as usize..before + h.before.end as usize,
            after: after + h.after.start as usize..after + h.after.end as usize,
        })
        .collect();
    hunks.into_iter()
}

/// Compares between lines that occur once on each side and stand in the same order.
fn anchored(before: &[u8], after: &[u8]) -> Vec<Hunk> {
    let before: Vec<&[u8]> = byte_lines(before).collect();
    let after: Vec<&[u8]> = byte_lines(after).collect();
    let mut hunks = Vec::new();
    let mut input = InternedInput::default();
    let mut work = WORK;
    let (mut at, mut to) = (0, 0);
    let end = (before.len(), after.len());
    for (x, y) in anchors(&before, &after).into_iter().chain([end]) {
        let (old, new) = (&before[at..x], &after[to..y]);
        let cost = (old.len() + new.len()).pow(2);
        if old == new {
            // Nothing, or the same lines, which occur elsewhere too.
        } else if old.is_empty() || new.is_empty() || old.len() + new.len() > SMALL || cost > work {
            hunks.extend(replaced(old, new, at, to));
        } else {
            work -= cost;
            input.clear();
            input.update_before(old.iter().copied());
            input.update_after(new.iter().copied());
            hunks.extend(compare(&input, at, to));
        }
        (at, to) = (x + 1, y + 1);
    }
    hunks
}

/// Everything but the common head and tail.
fn replaced(old: &[&[u8]], new: &[&[u8]], at: usize, to: usize) -> Option<Hunk> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = rest.take_while(|(a, b)| a == b).count();
    let hunk =
        Hunk { before: at + head..at + old.len() - tail, after: to + head..to + new.len() - tail };
    (!hunk.before.is_empty() || !hunk.after.is_empty()).then_some(hunk)
}

/// The longest run of lines, each once on either side, that both sides have in the same order.
fn anchors(before: &[&[u8]], after: &[&[u8]]) -> Vec<(usize, usize)> {
    #[derive(Default)]
    struct Seen {
        before: usize,
        after: usize,
        place: usize,
    }
    let mut seen: HashMap<&[u8], Seen> = HashMap::new();
    for line in before {
        seen.entry(line).or_default().before += 1;
    }
    for (place, line) in after.iter().enumerate() {
        if let Some(seen) = seen.get_mut(line) {
            seen.after += 1;
            seen.place = place;
        }
    }
    let pairs: Vec<(usize, usize)> = before
        .iter()
        .enumerate()
        .filter_map(|(at, line)| match seen.get(line) {
            Some(Seen { before: 1, after: 1, place }) => Some((at, *place)),
            Some(_) | None => None,
        })
        .collect();
    increasing(&pairs)
}

/// The longest subsequence of pairs whose second halves grow (patience sorting).
fn increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut piles: Vec<usize> = Vec::new();
    let mut below: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, (_, place)) in pairs.iter().enumerate() {
        let pile = piles.partition_point(|top| pairs[*top].1 < *place);
        below.push(pile.checked_sub(1).map(|p| piles[p]));
        if pile == piles.len() {
            piles.push(index);
        } else {
            piles[pile] = index;
        }
    }
    let mut chain = Vec::with_capacity(piles.len());
    let mut next = piles.last().copied();
    while let Some(index) = next {
        chain.push(pairs[index]);
        next = below[index];
    }
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    /// Makes the new text from the old one and the script.
    fn replay(old: &[u8], new: &[u8]) -> Vec<u8> {
        let script = diff(old, new);
        let head: usize = byte_lines(old).take(script.skipped).map(<[u8]>::len).sum();
        let lines: Vec<&[u8]> = byte_lines(script.before).collect();
        let fresh: Vec<&[u8]> = byte_lines(script.after).collect();
        assert_eq!(lines.len(), script.before_lines);
        let mut out = old[..head].to_vec();
        let (mut at, mut to) = (0, 0);
        for hunk in &script.hunks {
            assert!(at == 0 || hunk.before.start > at);
            assert_eq!(hunk.before.start - at, hunk.after.start - to);
            out.extend(lines[at..hunk.before.start].concat());
            out.extend(fresh[hunk.after.clone()].concat());
            (at, to) = (hunk.before.end, hunk.after.end);
        }
        out.extend(lines[at..].concat());
        out.extend_from_slice(&old[head + script.before.len()..]);
        out
    }

    fn numbered(range: Range<u32>, mark: &str) -> Vec<u8> {
        range.map(|i| format!("same {i}\n{mark} {i}\n")).collect::<String>().into_bytes()
    }

    #[test]
    fn a_long_file_with_every_second_line_changed_is_compared_quickly() {
        let (old, new) = (numbered(0..100_000, "b"), numbered(0..100_000, "c"));
        let start = Instant::now();
        assert_eq!(diff(&old, &new).counts(), (100_000, 100_000));
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(replay(&old, &new), new);
    }

    #[test]
    fn a_long_file_of_few_different_lines_is_compared_quickly() {
        let text = |seed: u32| -> Vec<u8> {
            let mut x = seed;
            (0..150_000)
                .flat_map(|_| {
                    x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if x >> 31 == 0 { *b"a\n" } else { *b"b\n" }
                })
                .collect()
        };
        let start = Instant::now();
        assert_eq!(replay(&text(1), &text(2)), text(2));
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_giant_file_of_empty_lines_is_compared_in_little_memory() {
        let old = vec![b'\n'; 6 << 20];
        let mut new = old.clone();
        new[3 << 20] = b'x';
        let script = diff(&old, &new);
        assert!(script.before.len() < 200);
        new[10] = b'y';
        assert_eq!(replay(&old, &new), new);
    }

    #[test]
    fn edits_far_apart_in_a_long_file_stay_small() {
        let old = numbered(0..50_000, "x");
        let text = String::from_utf8(old.clone()).unwrap();
        let new = text.replace("x 17\n", "y\n").replace("x 40000\n", "z\nz\n").into_bytes();
        assert_eq!(diff(&old, &new).counts(), (3, 2));
        assert_eq!(replay(&old, &new), new);
    }

    proptest! {
        #[test]
        fn the_script_makes_the_new_text(
            old in "([abc]{0,2}\n){0,200}[ab]{0,2}", new in "([abc]{0,2}\n){0,200}[ab]{0,2}",
            (cut, insert) in (0usize..300, "[a\n]{0,5}"),
        ) {
            prop_assert_eq!(replay(old.as_bytes(), new.as_bytes()), new.as_bytes());
            let mut edited = old.clone();
            edited.insert_str(cut.min(old.len()), &insert);
            prop_assert_eq!(replay(old.as_bytes(), edited.as_bytes()), edited.as_bytes());
        }

        #[test]
        fn the_anchored_script_makes_the_new_text(
            old in "([a-f]{0,2}\n){0,100}[ab]{0,2}", new in "([a-f]{0,2}\n){0,100}[ab]{0,2}",
        ) {
            let before: Vec<&[u8]> = byte_lines(old.as_bytes()).collect();
            let after: Vec<&[u8]> = byte_lines(new.as_bytes()).collect();
            let mut out = Vec::new();
            let (mut at, mut to) = (0, 0);
            for hunk in anchored(old.as_bytes(), new.as_bytes()) {
                prop_assert_eq!(hunk.before.start - at, hunk.after.start - to);
                out.extend(before[at..hunk.before.start].concat());
                out.extend(after[hunk.after.clone()].concat());
                (at, to) = (hunk.before.end, hunk.after.end);
            }
            out.extend(before[at..].concat());
            prop_assert_eq!(out, new.as_bytes());
        }
    }
}
