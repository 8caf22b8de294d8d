//! Taking paths back in a process of its own, killed before each system call that writes: what it had made ready beside
//! their places is no change of the session's, and gone with the next command.
#![cfg(target_arch = "x86_64")] // the registers of a call

use super::*;
use crate::land::apply::trace::{Act, run};
use crate::land::discard;
use crate::land::testing::{Fixture, World, list};
use crate::session::store::StateDir;
use landbox_shared::id::SessionId;
use std::fs;
use std::path::PathBuf;

const VARIABLE: &str = "LANDBOX_TEST_TAKE_BACK";
const BASE: &str = "mkdir -p d/in; echo 1 > d/in/x; echo 2 > d/y; ln -s y d/l; echo 3 > f";
const TASK: &str = "rm -r d; mkdir d; echo 4 > d/in; echo 5 > d/l; echo 6 > d/new; echo 7 > f";

/// What is done in the process of its own.
#[test]
fn child() {
    let Some(place) = std::env::var_os(VARIABLE) else { return };
    let place = PathBuf::from(place);
    let state = StateDir::open(&place.join("state")).unwrap();
    let id = SessionId::new("aaaaaaaaaa").unwrap();
    fs::write(place.join("tid"), rustix::thread::gettid().as_raw_nonzero().to_string()).unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
    discard::take_back(&state, &id, &Selection::default()).unwrap();
}

#[test]
fn killed_before_any_call_that_writes_taking_back_leaves_nothing_that_it_had_made_ready() {
    for world in [World::UserKernel, World::UserFuse].into_iter().filter(|world| world.is_here()) {
        let fixture = Fixture::new(world, BASE);
        let real = fixture.real();
        let upper = fixture.session().upper(&project(&fixture).id);
        let ready = |all: &[String]| all.iter().any(|line| line.contains(".landbox-"));
        let (mut at, mut left) = (0, 0);
        loop {
            fixture.task(TASK);
            let (mut count, mut last) = (0, None);
            let place = fixture.dir.path().to_str().unwrap();
            let ended = run("land::live::fault_tests::child", VARIABLE, place, &mut |call| {
                count += 1;
                last = Some(call.clone());
                if count > at { Act::Kill } else { Act::Go }
            });
            let when = format!("{world:?} killed at {at}, before {last:?}");
            left += usize::from(ready(&list(&upper)));
            assert!(!ready(&fixture.lines()), "{when}: {:?}", fixture.lines());
            clear(&fixture.session()).unwrap();
            assert!(!ready(&list(&upper)), "{when}");
            discard::take_back(&fixture.state, &fixture.id, &Selection::default()).unwrap();
            assert_eq!(fixture.lines(), [""; 0], "{when}");
            assert_eq!(fixture.real(), real, "{when}");
            if !ended.killed {
                assert!(ended.success, "{}", ended.output);
                break;
            }
            at += 1;
        }
        assert!(at > 20 && left > 5, "{at} {left}");
    }
}

fn project(fixture: &Fixture) -> LayerPolicy {
    crate::land::layer::project_of(&fixture.session()).unwrap().clone()
}

#[test]
fn what_a_session_made_under_such_a_name_is_its_own_whatever_the_note_says_of_another() {
    let fixture = Fixture::new(World::UserKernel, BASE);
    let [noted, grown, other] = [1, 2, 3].map(|n| format!(".landbox-000000000000000{n}"));
    fixture.task(&format!("echo mine > {noted}; echo mine > {grown}; echo mine > {other}"));
    let session = fixture.session();
    let line = |name: &str, made: &str| {
        format!("{{\"layer\":\"project\",\"path\":\"{name}\",\"link\":null,\"made\":{made}}}\n")
    };
    // Another inode lay there; and one of which nothing is known but that it was to be made.
    let text = line(&noted, "{\"ino\":1,\"born\":[1,1]}") + &line(&grown, "null");
    fs::write(session.dir.join("prepared"), text + "{\"layer\":\"pro").unwrap();
    let lines = fixture.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    clear(&session).unwrap();
    assert_eq!(fixture.lines(), lines);
    assert_eq!(fs::metadata(session.dir.join("prepared")).unwrap().len(), 0);
}
