//! A landing, and an undo, in a process of their own: killed before each system call that writes, or with that call
//! failing. Whatever happens, what the next command finds is all of it or nothing.
#![cfg(target_arch = "x86_64")] // the registers of a call

use super::journal::Work;
use super::tests::{land, shown};
use super::trace::{Act, Call, Ended, run};
use super::*;
use crate::land::testing::{Fixture, World};
use nix::errno::Errno;

const VARIABLE: &str = "LANDBOX_TEST_FAULTS";
/// Every so many calls a fault is tried, in the place of what is usual; 1 tries each fault at each call.
const STRIDE: &str = "LANDBOX_TEST_STRIDE";

/// The word for putting right what broke off.
const RECOVERY: &str = "recovery";

/// One of every kind of step, few enough that all is done by one thread.
const BASE: &str = "mkdir -p d/sub gone todir; echo 1 > f; echo 2 > d/two; echo x > gone/x; echo m > m; ln -s f l; \
                    echo t > tofile; rm -f tofile; mkdir tofile; echo d > dtf; echo r > renamed; echo a > attr; \
                    setfattr -n user.note -v kept attr; setfacl -m u:1000:r attr";
const TASK: &str = "echo more >> f; rm d/two; rm -r gone; chmod 755 m; ln -sfn m l; rmdir tofile; \
                    echo file > tofile; rm dtf; mkdir dtf; echo in > dtf/in; mkdir -p new/deep; mv renamed new/moved; \
                    echo more >> attr; chmod 700 new";

/// What is done in the process of its own.
#[test]
fn child() {
    let Some(place) = std::env::var_os(VARIABLE) else { return };
    let place = PathBuf::from(place);
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    let state = StateDir::open(&place.join("state")).unwrap();
    let id = SessionId::new(&read("id")).unwrap();
    let key = Key::load(&place.join("config")).unwrap();
    let shown = Digest::parse(&read("digest")).unwrap();
    let work = read("work");
    std::fs::write(place.join("tid"), rustix::thread::gettid().as_raw_nonzero().to_string())
        .unwrap();
    // To this very thread: one that is sent to the process stops this thread only when another one has taken it.
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
    let selection = Selection::default();
    let done = match &*work {
        RECOVERY => recover_all(&state).map(|_| ()),
        "undo" => crate::land::undo::find(&state, Some(id.as_str()), None)
            .and_then(|target| crate::land::undo::undo(&state, &target, &key))
            .map(|_| ()),
        _ => apply(&state, &id, &Order { selection: &selection, shown: &shown, key: &key })
            .map(|_| ()),
    };
    if let Err(failure) = done {
        panic!("{failure}");
    }
}

struct Trial {
    fixture: Fixture,
    before: Vec<String>,
    landed: Vec<String>,
    lines: Vec<String>,
}

impl Trial {
    fn new() -> Self {
        let fixture = Fixture::new(World::UserKernel, BASE);
        fixture.run(TASK);
        let (before, lines) = (fixture.real(), fixture.lines());
        let place = fixture.dir.path();
        std::fs::write(place.join("id"), fixture.id.as_str()).unwrap();
        std::fs::write(place.join("digest"), shown(&fixture).to_string()).unwrap();
        land(&fixture).unwrap();
        let landed = fixture.real();
        let this = Self { fixture, before, landed, lines };
        this.undo();
        this.is_before("at first");
        this
    }

    fn run(&self, work: Work, at: &mut dyn FnMut(&Call) -> Act) -> Ended {
        self.child(if work == Work::Undo { "undo" } else { "land" }, at)
    }

    fn child(&self, word: &str, at: &mut dyn FnMut(&Call) -> Act) -> Ended {
        let place = self.fixture.dir.path();
        std::fs::write(place.join("work"), word).unwrap();
        let name = "land::apply::fault_tests::child";
        run(name, VARIABLE, place.to_str().unwrap(), at)
    }

    fn project(&self) -> AbsPath {
        AbsPath::from_path(&self.fixture.project).unwrap()
    }

    fn undo(&self) {
        let Fixture { state, id, .. } = &self.fixture;
        let target = crate::land::undo::find(state, Some(id.as_str()), None).unwrap();
        crate::land::undo::undo(state, &target, &self.fixture.key()).unwrap();
    }

    fn is_before(&self, when: &str) {
        assert_eq!(self.fixture.real(), self.before, "{when}");
        assert_eq!(self.fixture.lines(), self.lines, "{when}");
    }

    /// What the next command makes of it: all or nothing, with nothing left over. Gives whether all.
    fn settle(&self, when: &str) -> bool {
        let note = recover(&self.fixture.state, &self.project())
            .unwrap_or_else(|failure| panic!("{when}: {failure}: {:?}", failure.hints));
        assert_eq!(recover(&self.fixture.state, &self.project()).unwrap(), None, "{when}");
        let real = self.fixture.real();
        let all = real == self.landed;
        if !all {
            assert_eq!(real, self.before, "{when}: {note:?}");
            assert_eq!(self.fixture.lines(), self.lines, "{when}: {note:?}");
        } else {
            assert_eq!(self.fixture.lines(), [""; 0], "{when}: {note:?}");
        }
        all
    }

    /// Gets back to where a piece of work can begin.
    fn reset(&self, work: Work, landed: bool) {
        match (work, landed) {
            (Work::Landing, true) => self.undo(),
            (Work::Undo, false) => drop(land(&self.fixture).unwrap()),
            (Work::Landing, false) | (Work::Undo, true) => {}
        }
        if work == Work::Landing {
            let kept = kept(&self.fixture.state, &self.project());
            assert!(kept.is_empty(), "{kept:?}");
        }
    }
}

#[test]
fn killed_before_any_call_that_writes_a_landing_or_an_undo_is_all_or_nothing() {
    let trial = Trial::new();
    for work in [Work::Landing, Work::Undo] {
        trial.reset(work, work == Work::Undo && trial.settle("at first"));
        let (mut at, mut ends) = (0, [0, 0]);
        loop {
            let mut count = 0;
            let mut last = None;
            let ended = trial.run(work, &mut |call| {
                count += 1;
                last = Some(call.clone());
                if count > at { Act::Kill } else { Act::Go }
            });
            let when = format!("{work:?} killed at {at}, before {last:?}");
            let landed = trial.settle(&when);
            ends[usize::from(landed)] += 1;
            if !ended.killed {
                assert!(ended.success, "{}", ended.output);
                break;
            }
            trial.reset(work, landed);
            at += 1;
        }
        assert!(at > 30 && ends.iter().all(|n| *n > 3), "{at} {ends:?}");
    }
}

#[test]
fn killed_again_before_any_call_that_writes_of_putting_it_right_a_landing_or_an_undo_is_all_or_nothing()
 {
    let trial = Trial::new();
    let below = format!("{}/", trial.fixture.project.display());
    for work in [Work::Landing, Work::Undo] {
        trial.reset(work, work == Work::Undo && trial.settle("at first"));
        // Amid its exchanges, and after the last.
        for exchanges in [3, usize::MAX] {
            let mut at = 0;
            loop {
                let mut count = 0;
                let first = trial.run(work, &mut |call| {
                    let exchange =
                        call.name == "rename" && call.paths.iter().any(|p| p.starts_with(&below));
                    count += usize::from(exchange);
                    let over = count > 5 && !exchange && call.name == "rename";
                    if (exchange && count > exchanges) || over { Act::Kill } else { Act::Go }
                });
                assert!(first.killed, "{}", first.output);
                let (mut count, mut last) = (0, None);
                let ended = trial.child(RECOVERY, &mut |call| {
                    count += 1;
                    last = Some(call.clone());
                    if count > at { Act::Kill } else { Act::Go }
                });
                let when =
                    format!("{work:?} after {exchanges}, killed again at {at}, before {last:?}");
                let landed = trial.settle(&when);
                trial.reset(work, landed);
                if !ended.killed {
                    assert!(ended.success, "{}", ended.output);
                    break;
                }
                at += 1;
            }
            assert!(at > 5, "{at}");
        }
    }
}

#[test]
fn a_full_or_read_only_disk_or_a_refusal_at_any_call_leaves_all_or_nothing() {
    let trial = Trial::new();
    // From that call on, as a disk that is full stays full; or that one call alone.
    let faults = [
        (Errno::ENOSPC, true),
        (Errno::EDQUOT, true),
        (Errno::EROFS, true),
        (Errno::EACCES, false),
        (Errno::EIO, false),
    ];
    let takes_room =
        ["create", "rename", "link", "mkdir", "symlink", "setxattr", "write", "truncate"];
    let asked: Option<usize> = std::env::var(STRIDE).ok().map(|text| text.parse().unwrap());
    for work in [Work::Landing, Work::Undo] {
        trial.reset(work, work == Work::Undo && trial.settle("at first"));
        for (index, (errno, stays)) in faults.into_iter().enumerate() {
            let full = matches!(errno, Errno::ENOSPC | Errno::EDQUOT);
            // Each call of a landing meets a full disk. Of the faults that any call can meet each begins at another one,
            // so that together they are tried at every call.
            let stride = match asked {
                Some(stride) => stride.max(1),
                None if index == 0 && work == Work::Landing => 1,
                None if full => 6,
                None => 3,
            };
            let mut at = index % stride;
            loop {
                let (mut count, mut last, mut failed) = (0, None, false);
                let ended = trial.run(work, &mut |call| {
                    count += 1;
                    let meant = count == at + 1 || (stays && count > at);
                    if !meant || (full && !takes_room.contains(&call.name)) {
                        return Act::Go;
                    }
                    last.get_or_insert(call.clone());
                    failed = true;
                    Act::Fail(errno)
                });
                let when = format!("{work:?} with {errno} at {at}: {last:?}: {}", ended.output);
                let landed = trial.settle(&when);
                trial.reset(work, landed);
                if count <= at {
                    break;
                }
                // Whoever is told of success has it.
                let done = landed == (work == Work::Landing);
                assert!(!ended.success || done, "{when}");
                at += stride;
            }
        }
    }
}

#[test]
fn everything_is_on_disk_before_it_is_relied_on() {
    let trial = Trial::new();
    let mut calls: Vec<Call> = Vec::new();
    let ended = trial.run(Work::Landing, &mut |call| {
        calls.push(call.clone());
        Act::Go
    });
    assert!(ended.success, "{}", ended.output);
    let project = trial.fixture.project.display().to_string();
    let first = |what: &str, holds: &dyn Fn(&Call) -> bool| {
        calls.iter().position(holds).unwrap_or_else(|| panic!("{what}: {calls:#?}"))
    };
    // Not the new files that have no name yet.
    let below =
        |path: &String| path.starts_with(&format!("{project}/")) && !path.ends_with(" (deleted)");
    let exchange = first("exchange", &|c| {
        (c.name == "rename" || c.name == "chmod") && c.paths.iter().any(below)
    });
    let is_journal = |c: &Call| {
        c.name == "rename"
            && c.paths.iter().any(|p| p.contains("/landings/") && p.ends_with(".json"))
    };
    let journal = calls[..exchange].iter().rposition(is_journal).unwrap();
    assert!(calls[..journal].iter().any(is_journal));
    let synced_before = |end: usize, path: &str| {
        calls[..end].iter().rposition(|c| c.name == "sync" && c.paths[0].contains(path))
    };
    // The journal, its name, what it names and the stage, before the first exchange.
    assert!(synced_before(exchange, "/landings").is_some_and(|at| at > journal));
    let stage = format!("/undo/{}/", place::key(&trial.project()));
    for (at, call) in calls[..journal].iter().enumerate() {
        let made = call.name == "write" || call.name == "chmod" || call.name == "setxattr";
        let path = &call.paths[0];
        // What is written beside its place has its name, and comes to disk under it, further down.
        let has_name = !path.contains("(deleted)") && !path.ends_with(".write");
        if made && path.contains(&stage) && has_name {
            let later = calls[at..journal].iter().any(|c| c.name == "sync" && c.paths[0] == *path);
            assert!(later, "{call:?}\n{calls:#?}");
        }
    }
    // The folders of the project after the last exchange, and before the landing counts.
    let happened = first("records", &|c| {
        c.name == "rename"
            && c.paths[0].ends_with("/base/project.landing")
            && c.paths[1].ends_with("/base/project.records")
    });
    let last = calls[..happened].iter().rposition(|c| c.paths.iter().any(below)).unwrap();
    assert_eq!(calls[last].name, "sync", "{:#?}", &calls[last..=happened]);
    // The new records, those from before, what undoes the landing and its receipt, each with its name, before the journal
    // says that they decide.
    for (within, end) in [
        ("/base/", "/project.landing"),
        ("/landed/", "/records"),
        ("/undo/", ".steps"),
        ("/undo/", ".new"),
        ("/receipts/", ".new"),
    ] {
        let is_it = |path: &&String| path.contains(within) && path.ends_with(end);
        let made = |c: &Call| c.name != "sync" && c.paths.iter().any(|p| is_it(&p));
        let made = calls[..journal].iter().rposition(made).unwrap();
        let path = calls[made].paths.iter().find(is_it).unwrap();
        let folder = path.rsplit_once('/').unwrap().0;
        for what in [path.as_str(), folder] {
            let synced =
                calls[made..journal].iter().any(|c| c.name == "sync" && c.paths[0] == what);
            assert!(synced, "{what}\n{calls:#?}");
        }
    }
}
