//! Every kind of change against every kind of owner's change meanwhile, in every world, held to a model that knows
//! nothing of the code: a landing that skips conflicts gives exactly what the model says, path by path.

use super::{Choice, Choices};
use crate::land::apply::tests::apply_these;
use crate::land::kind::ChangeState;
use crate::land::select::Selection;
use crate::land::testing::{Fixture, WORLDS, World, sh};
use std::collections::BTreeMap;

/// What lies at a path, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    None,
    File(u32, &'static str),
    Link(&'static str),
    /// A folder that holds one file of this name.
    Dir(&'static str),
}

use Thing::{Dir, File, Link};

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n";
const TOP: &str = "top\n2\n3\n4\n5\n6\n7\n8\n";
const OTHER_TOP: &str = "other\n2\n3\n4\n5\n6\n7\n8\n";
const BOTTOM: &str = "1\n2\n3\n4\n5\n6\n7\nbottom\n";
const BOTH: &str = "top\n2\n3\n4\n5\n6\n7\nbottom\n";
const OTHER_BOTH: &str = "other\n2\n3\n4\n5\n6\n7\nbottom\n";
const BINARY: &str = "\u{1}\0one";

const BASES: [Thing; 4] = [Thing::None, File(0o644, TEXT), File(0o755, BINARY), Link("a")];

const THINGS: [Thing; 11] = [
    Thing::None,
    File(0o644, TEXT),
    File(0o644, TOP),
    File(0o644, OTHER_TOP),
    File(0o644, BOTTOM),
    File(0o755, TEXT),
    File(0o600, BOTTOM),
    File(0o755, "\0two"),
    Link("a"),
    Link("b"),
    Dir("in"),
];

impl Thing {
    /// Shell words that make it, at `path`, where something else may be; a file is written in place where there is one.
    fn make(&self, path: &str) -> String {
        let quoted =
            |text: &str| text.replace('\0', "\\000").replace('\u{1}', "\\001").replace('\n', "\\n");
        match self {
            Self::None => format!("rm -rf {path}"),
            File(mode, text) => format!(
                "[ -f {path} ] && [ ! -L {path} ] || rm -rf {path}; printf '{}' > {path}; chmod {mode:o} {path}",
                quoted(text)
            ),
            Link(target) => format!("rm -rf {path}; ln -s {target} {path}"),
            Dir(name) => format!("rm -rf {path}; mkdir {path}; echo in > {path}/{name}"),
        }
    }

    fn list(&self, path: &str) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            File(mode, text) => {
                vec![format!(
                    "{path} f {mode:o} {}",
                    landbox_shared::bytes::escape(text.as_bytes())
                )]
            }
            Link(target) => vec![format!("{path} l {target:?}")],
            Dir(name) => vec![format!("{path} d 755"), format!("{path}/{name} f 644 in\n")],
        }
    }
}

/// What is right: how the path stands, and what is there after a landing that skips conflicts. `known` says whether
/// anybody knows the base.
fn model(base: &Thing, mine: &Thing, theirs: &Thing, known: bool) -> (ChangeState, Thing) {
    let conflict = (ChangeState::Conflict, mine.clone());
    if mine == base {
        return (ChangeState::Clean, theirs.clone());
    }
    if mine == theirs {
        return (ChangeState::Merged, mine.clone());
    }
    let (true, File(b, old), File(m, ours), File(t, new)) = (known, base, mine, theirs) else {
        return conflict;
    };
    let one_of =
        |b: u32, m: u32, t: u32| if m == b || m == t { Some(t) } else { (t == b).then_some(m) };
    let Some(mode) = one_of(*b, *m, *t) else { return conflict };
    let text = if ours == old || ours == new {
        new
    } else if new == old {
        ours
    } else {
        match (*old, *ours, *new) {
            (TEXT, TOP, BOTTOM) | (TEXT, BOTTOM, TOP) => &BOTH,
            (TEXT, OTHER_TOP, BOTTOM) | (TEXT, BOTTOM, OTHER_TOP) => &OTHER_BOTH,
            _ => return conflict,
        }
    };
    (ChangeState::Merged, File(mode, text))
}

/// Base, mine and theirs.
type Case = (Thing, Thing, Thing);
/// One thing of a case, or none where nothing is to be done.
type Pick<'a> = &'a dyn Fn(&Case) -> Option<Thing>;

/// Every case, by the folder it lies in.
fn cases() -> BTreeMap<String, Case> {
    let mut all = BTreeMap::new();
    for (b, base) in BASES.iter().enumerate() {
        let sides = || THINGS.iter().chain(BASES.iter().skip(2).take(1)).enumerate();
        for (t, theirs) in sides().filter(|(_, theirs)| *theirs != base) {
            for (m, mine) in sides() {
                all.insert(format!("c{b}-{m}-{t}"), (base.clone(), mine.clone(), theirs.clone()));
            }
        }
    }
    all
}

fn try_all(world: World, known: bool) {
    let cases = cases();
    let script = |pick: Pick<'_>| -> String {
        let lines =
            cases.iter().filter_map(|(dir, case)| Some(pick(case)?.make(&format!("{dir}/x"))));
        lines.collect::<Vec<_>>().join("\n")
    };
    let folders =
        cases.keys().map(|dir| format!("mkdir {dir}; echo keep > {dir}/keep")).collect::<Vec<_>>();
    let base = format!("{}\n{}", folders.join("\n"), script(&|(base, ..)| Some(base.clone())));
    let fixture = Fixture::new(world, &base);
    fixture.task(&script(&|(.., theirs)| Some(theirs.clone())));
    if known {
        drop(fixture.review());
    }
    // What the owner leaves alone keeps its times.
    sh(&fixture.project, &script(&|(base, mine, _)| (mine != base).then(|| mine.clone())));
    let review = fixture.review();
    let card = review.card(&fixture.session()).unwrap();
    let digest = review.digest;
    drop(review);
    let states: BTreeMap<String, ChangeState> = card
        .changes
        .iter()
        .filter(|change| !change.path.ends_with(b"/in"))
        .flat_map(|change| {
            // A move is two cases at once.
            let paths = [Some(&change.path), change.old_path.as_ref()].into_iter().flatten();
            paths.map(|path| (String::from_utf8(path.clone()).unwrap(), change.state))
        })
        .collect();
    let mut expected = Vec::new();
    for (dir, (base, mine, theirs)) in &cases {
        let (state, result) = model(base, mine, theirs, known);
        let path = format!("{dir}/x");
        let case =
            format!("{world:?} known={known} {dir}: {base:?} | mine {mine:?} | theirs {theirs:?}");
        // A folder whose mode is the usual one is no change of its own; its file is.
        let shows = *theirs != Dir("in") || *base != Thing::None;
        if shows && (known || mine != theirs) {
            assert_eq!(states.get(&path), Some(&state), "{case}");
        }
        expected.push((format!("{dir} d 755"), case.clone()));
        expected.push((format!("{dir}/keep f 644 keep\n"), case.clone()));
        expected.extend(result.list(&path).into_iter().map(|line| (line, case.clone())));
    }
    let choices = Choices { all: Some(Choice::Skip), ..Choices::default() };
    apply_these(&fixture, &Selection { choices, ..Selection::default() }, &digest).unwrap();
    expected.sort();
    let real = fixture.real();
    for (line, case) in &expected {
        assert!(real.contains(line), "{case}: {line:?} is missing");
    }
    let more = real.len() - expected.len();
    assert!(more == 0, "{world:?}: there is more than there should be");
}

#[test]
fn every_change_meets_every_change_of_the_owner_as_the_model_says() {
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        try_all(world, true);
    }
}

#[test]
fn what_nobody_knows_the_base_of_is_never_merged() {
    for world in [World::UserKernel, World::UserFuse] {
        try_all(world, false);
    }
}
