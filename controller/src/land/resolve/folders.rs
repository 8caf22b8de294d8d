//! Every kind of change of a folder against every kind of owner's change of it meanwhile, held to a model that knows
//! nothing of the code: a landing that skips conflicts leaves exactly what the model says.

use super::{Choice, Choices};
use crate::error::Kind;
use crate::land::apply::tests::apply_these;
use crate::land::select::Selection;
use crate::land::testing::{Fixture, WORLDS, World, sh};
use crate::land::undo::{find, undo};
use std::collections::BTreeMap;

/// What a path holds: a file's text, a folder's files, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    None,
    File(&'static str),
    Link(&'static str),
    Dir(&'static [(&'static str, &'static str)]),
}

use Thing::{Dir, File, Link};

const BASE: Thing = Dir(&[("a", "a"), ("b", "b")]);

/// What becomes of the folder, at the hands of either side.
const THINGS: [Thing; 11] = [
    BASE,
    Thing::None,
    Dir(&[]),
    Dir(&[("a", "a")]),
    Dir(&[("a", "a"), ("b", "changed")]),
    Dir(&[("a", "a"), ("b", "other")]),
    Dir(&[("a", "a"), ("b", "b"), ("n", "new")]),
    Dir(&[("n", "mine")]),
    File("file"),
    File("other file"),
    Link("nowhere"),
];

impl Thing {
    /// Shell words that make it of what is there; what is the same stays untouched.
    fn make(&self, path: &str) -> String {
        match self {
            Self::None => format!("rm -rf {path}"),
            File(text) => format!("rm -rf {path}; echo {text} > {path}"),
            Link(to) => format!("rm -rf {path}; ln -s {to} {path}"),
            Dir(files) => {
                let gone = ["a", "b"].iter().filter(|name| !files.iter().any(|(f, _)| f == *name));
                let gone: String = gone.map(|name| format!("rm -f {path}/{name}; ")).collect();
                let other = |(name, text): &&(&str, &str)| name != text;
                let come = files.iter().filter(other);
                let come: String =
                    come.map(|(name, text)| format!("echo {text} > {path}/{name}; ")).collect();
                format!("{gone}{come}true")
            }
        }
    }

    fn list(&self, path: &str) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            File(text) => vec![format!("{path} f 644 {text}\n")],
            Link(to) => vec![format!("{path} l {to:?}")],
            Dir(files) => {
                let file = |(name, text): &(&str, &str)| format!("{path}/{name} f 644 {text}\n");
                std::iter::once(format!("{path} d 755")).chain(files.iter().map(file)).collect()
            }
        }
    }

    fn file(&self, name: &str) -> Option<&'static str> {
        match self {
            Dir(files) => files.iter().find(|(found, _)| *found == name).map(|(_, text)| *text),
            Self::None | File(_) | Link(_) => None,
        }
    }
}

/// What is right at the path, line by line.
fn model(path: &str, mine: &Thing, theirs: &Thing) -> Vec<String> {
    if *mine == BASE {
        return theirs.list(path);
    }
    if mine == theirs {
        return mine.list(path);
    }
    let Dir(owners) = mine else {
        // It is no folder any more, and none comes back.
        return mine.list(path);
    };
    // Of each file the side that changed it has its way; the owner, where both did.
    let merged = |name: &'static str| -> Option<(&'static str, &'static str)> {
        let [b, m, t] = [&BASE, mine, theirs].map(|thing| thing.file(name));
        Some((name, if m == b { t } else { m }?))
    };
    let files: Vec<(&str, &str)> = ["a", "b", "n"].into_iter().filter_map(merged).collect();
    let folder = || {
        let file = |(name, text): &(&str, &str)| format!("{path}/{name} f 644 {text}\n");
        std::iter::once(format!("{path} d 755")).chain(files.iter().map(file)).collect()
    };
    match theirs {
        Dir(_) => folder(),
        // It goes unless the owner's own is in it.
        Thing::None if files.is_empty() => Vec::new(),
        Thing::None => folder(),
        // All of it or nothing: with anything of the owner's in it, it stays a folder as it is.
        File(_) | Link(_) if owners.iter().all(|(name, text)| name == text) => theirs.list(path),
        File(_) | Link(_) => mine.list(path),
    }
}

fn try_all(world: World) {
    let mut cases: BTreeMap<String, (Thing, Thing)> = BTreeMap::new();
    for (m, mine) in THINGS.iter().enumerate() {
        for (t, theirs) in THINGS.iter().enumerate().skip(1) {
            cases.insert(format!("m{m}t{t}"), (mine.clone(), theirs.clone()));
        }
    }
    let script = |pick: &dyn Fn(&(Thing, Thing)) -> Option<Thing>| -> String {
        let one =
            |(dir, case): (&String, &(Thing, Thing))| Some(pick(case)?.make(&format!("{dir}/x")));
        cases.iter().filter_map(one).collect::<Vec<_>>().join("\n")
    };
    let base: String = cases
        .keys()
        .map(|dir| format!("mkdir -p {dir}/x; echo keep > {dir}/keep; for f in a b; do echo $f > {dir}/x/$f; done\n"))
        .collect();
    let fixture = Fixture::new(world, &base);
    fixture.task(&script(&|(_, theirs)| Some(theirs.clone())));
    drop(fixture.review());
    sh(&fixture.project, &script(&|(mine, _)| (*mine != BASE).then(|| mine.clone())));
    let before = fixture.real();
    let choices = Choices { all: Some(Choice::Skip), ..Choices::default() };
    let land = |choices: Choices| {
        let digest = fixture.review().digest;
        apply_these(&fixture, &Selection { choices, ..Selection::default() }, &digest)
    };
    assert_eq!(land(Choices::default()).unwrap_err().kind, Kind::Conflict);
    assert_eq!(fixture.real(), before);
    land(choices).unwrap_or_else(|failure| panic!("{world:?}: {failure}"));
    let mut real: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fixture.real() {
        let dir = line.split(['/', ' ']).next().unwrap().to_owned();
        if line.starts_with(&format!("{dir}/x")) {
            real.entry(dir).or_default().push(line);
        } else {
            assert!(line.ends_with(" d 755") || line.ends_with("/keep f 644 keep\n"), "{line}");
        }
    }
    let mut wrong = Vec::new();
    for (dir, (mine, theirs)) in &cases {
        let expected = model(&format!("{dir}/x"), mine, theirs);
        let found = real.remove(dir).unwrap_or_default();
        if found != expected {
            wrong.push(format!("mine {mine:?}, theirs {theirs:?}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{world:?}: {wrong:#?}");
    let target = find(&fixture.state, Some(fixture.id.as_str()), None).unwrap();
    undo(&fixture.state, &target, &fixture.key()).unwrap();
    assert_eq!(fixture.real(), before, "{world:?}");
}

#[test]
fn every_change_of_a_folder_meets_every_change_of_the_owner_as_the_model_says() {
    for world in WORLDS.into_iter().filter(|world| world.is_here()) {
        try_all(world);
    }
}
