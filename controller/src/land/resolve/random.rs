//! Random trees, random changes of the session's, random edits of the owner's meanwhile: whatever they are, a landing
//! touches nothing outside the changeset, loses no line that the owner wrote, brings back nothing they deleted, and can
//! be undone exactly; where it conflicts it changes nothing. Held against the listings of the trees alone.

use super::{Choice, Choices};
use crate::error::Kind;
use crate::land::apply::tests::apply_these;
use crate::land::review::Review;
use crate::land::select::{Selection, Wanted};
use crate::land::testing::{Fixture, WORLDS, World, sh};
use crate::land::undo::{find, undo};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PATHS: [&str; 10] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "g", "g/a"];

/// One thing that somebody does: what, where, where to, and at which line.
type Deed = (u8, usize, usize, u8);

fn deeds(most: usize) -> impl Strategy<Value = Vec<Deed>> {
    prop::collection::vec((0_u8..9, 0..PATHS.len(), 0..PATHS.len(), 1_u8..9), 1..most)
}

/// Shell words for them. What is impossible where it comes is not done.
fn script(who: &str, deeds: &[Deed]) -> String {
    let one = |(at, (what, path, other, line)): (usize, &Deed)| {
        let (path, other) = (PATHS[*path], PATHS[*other]);
        let word = format!("{who}-{at}");
        let is_file = format!("[ -f {path} ] && [ ! -L {path} ]");
        let free = format!("[ ! -e {path} ] && [ ! -L {path} ] && mkdir -p $(dirname {path})");
        let deed = match what {
            0..=2 => format!("{is_file} && sed -i 's/^{line}.*/{line} {word}/' {path}"),
            3 => format!("{free} && seq 8 | sed 's/$/ {word}/' > {path}"),
            4 => format!("rm -rf {path}"),
            5 => format!("{is_file} && chmod {} {path}", if line % 2 == 0 { "755" } else { "600" }),
            6 => format!("[ -e {path} ] && [ ! -e {other} ] && mv {path} {other}"),
            7 => format!("{is_file} && rm {path} && ln -s {word} {path}"),
            _ => format!("{is_file} && cat {path} > t && echo {word} >> t && mv t {path}"),
        };
        format!("( {deed} ) 2>/dev/null || true\n")
    };
    deeds.iter().enumerate().map(one).collect()
}

/// A listing by path.
fn by_path(lines: Vec<String>) -> BTreeMap<String, String> {
    let split = |line: String| {
        let (path, rest) = line.split_once(' ').unwrap();
        (path.to_owned(), rest.to_owned())
    };
    lines.into_iter().map(split).collect()
}

/// The words that the owner has written, wherever they are.
fn words(tree: &BTreeMap<String, String>) -> Vec<String> {
    let text: String = tree.values().map(|rest| rest.replace("\\n", "\n") + "\n").collect();
    let of = |word: &str| word.trim_matches('"').to_owned();
    let mut all: Vec<String> =
        text.split_whitespace().map(of).filter(|word| word.starts_with("owner-")).collect();
    all.sort();
    all.dedup();
    all
}

fn try_one(world: World, known: bool, base: &[Deed], session: &[Deed], owner: &[Deed]) {
    let made = "mkdir -p d/e; for f in a b d/a d/e/a; do seq 8 > $f; echo $f >> $f; done";
    let fixture = Fixture::new(world, &format!("{made}\n{}", script("base", base)));
    let old = by_path(fixture.real());
    let theirs = by_path(fixture.run(&script("session", session)));
    if known {
        drop(fixture.review());
    }
    sh(&fixture.project, &script("owner", owner));
    let mine_lines = fixture.real();
    let mine = by_path(mine_lines.clone());
    let land = |choices: Choices| {
        let digest = fixture.review().digest;
        apply_these(&fixture, &Selection { choices, ..Selection::default() }, &digest)
    };
    let landed = match land(Choices::default()) {
        Err(failure) if failure.kind == Kind::Conflict => {
            assert_eq!(fixture.real(), mine_lines, "a conflict changed something");
            land(Choices { all: Some(Choice::Skip), ..Choices::default() })
        }
        other => other,
    };
    match &landed {
        Ok(_) => {}
        Err(failure) => assert_eq!(failure.kind, Kind::Nothing, "{}", failure.message),
    }
    let result = by_path(fixture.real());
    if mine == old {
        assert_eq!(result, theirs, "nobody else edited");
    }
    let all: std::collections::BTreeSet<&String> =
        old.keys().chain(theirs.keys()).chain(mine.keys()).chain(result.keys()).collect();
    for path in all {
        let [b, t, m, r] = [&old, &theirs, &mine, &result].map(|tree| tree.get(path));
        if t == b {
            assert_eq!(r, m, "{path} is not in the changeset: base {b:?}");
        }
        if m == b {
            // An edit of the owner's goes along with a file that the session moved.
            let moved =
                b.is_none() && t.is_some() && r.is_some_and(|r| mine.values().any(|m| m == r));
            assert!(r == t || r == b || moved, "{path}: {r:?} is neither {t:?} nor {b:?}");
        } else if m.is_none() {
            assert_eq!(r, None, "{path} was deleted by the owner: base {b:?}, theirs {t:?}");
        } else if !known && m != t {
            assert_eq!(r, m, "{path}: nobody knows the base");
        }
    }
    let kept = words(&result);
    for word in words(&mine) {
        assert!(kept.contains(&word), "{word} is lost: {result:#?}");
    }
    if landed.is_ok() {
        let target = find(&fixture.state, Some(fixture.id.as_str()), None).unwrap();
        undo(&fixture.state, &target, &fixture.key()).unwrap();
    }
    assert_eq!(fixture.real(), mine_lines, "undone");
}

/// Lands some of the changes, then the rest: nothing of the session's comes apart in between.
fn land_in_parts(world: World, base: &[Deed], session: &[Deed], first: u32) {
    let made = "mkdir -p d/e; for f in a b d/a d/e/a; do seq 8 > $f; echo $f >> $f; done";
    let fixture = Fixture::new(world, &format!("{made}\n{}", script("base", base)));
    let theirs = fixture.run(&script("session", session));
    let land = |selection: &Selection| {
        let digest = Review::of(&fixture.session(), None, selection.clone())?.digest;
        apply_these(&fixture, selection, &digest)
    };
    let review = fixture.review();
    let changes = review.selected().enumerate();
    let paths: Vec<Wanted> = changes
        .filter(|(at, _)| first >> (at % 32) & 1 == 1)
        .map(|(_, change)| Wanted::new(change.path.as_bytes(), None))
        .collect();
    drop(review);
    if !paths.is_empty() {
        land(&Selection { paths, ..Selection::default() }).unwrap();
        fixture.give_back();
    }
    assert_eq!(fixture.run("true"), theirs, "inside, after the first part");
    match land(&Selection::default()) {
        Ok(_) => {}
        Err(failure) => assert_eq!(failure.kind, Kind::Nothing, "{}", failure.message),
    }
    assert_eq!(fixture.real(), theirs, "after both parts");
}

#[test]
fn a_folder_whose_files_wait_to_be_moved_goes_with_the_last_of_them() {
    for world in WORLDS.into_iter().filter(|world| world.is_here()) {
        for task in ["mv g n", "mv g a; echo x > g", "mkdir n; mv g/k n/k; rmdir g"] {
            let fixture = Fixture::new(world, "mkdir g; seq 9 > g/k");
            let theirs = fixture.run(&format!("{task}; echo y > y"));
            let land = |paths: &[&str]| {
                let paths = paths.iter().map(|path| Wanted::new(*path, None)).collect();
                let selection = Selection { paths, ..Selection::default() };
                let digest =
                    Review::of(&fixture.session(), None, selection.clone()).unwrap().digest;
                apply_these(&fixture, &selection, &digest).unwrap();
                fixture.give_back();
            };
            land(&["y"]);
            assert_eq!(fixture.run("true"), theirs, "{world:?}: {task}");
            land(&[]);
            assert_eq!(fixture.real(), theirs, "{world:?}: {task}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn whatever_both_sides_do_nothing_of_the_owner_s_is_lost(
        kernel in any::<bool>(),
        known in any::<bool>(),
        base in deeds(5),
        session in deeds(8),
        owner in deeds(6),
    ) {
        let world = if kernel { World::UserKernel } else { World::UserFuse };
        try_one(world, known, &base, &session, &owner);
    }

    #[test]
    fn what_lands_in_two_parts_is_what_would_have_landed_in_one(
        kernel in any::<bool>(),
        base in deeds(5),
        session in deeds(8),
        first in any::<u32>(),
    ) {
        let world = if kernel { World::UserKernel } else { World::UserFuse };
        land_in_parts(world, &base, &session, first);
    }
}
