//! Doing all the steps of a journal. Where they are many, what each has displaced is compared by another thread, at most a
//! moment later; a step counts only once that was done.

use super::commit::{self, Hand};
use super::plan::Step;
use super::stage::Stage;
use crate::error::{Failure, Kind, Result};
use crate::land::tree::Tree;
use std::sync::mpsc;
use std::thread;

/// Below this a thread costs more than it brings.
const FEW: usize = 64;
/// As many steps are handed over at once.
const PIECE: usize = 16;
/// As many pieces the comparison may be behind.
const BEHIND: usize = 4;
/// Bytes of its stack.
const STACK: usize = 1 << 20;

/// Does every step, and compares what it has displaced. `before` is called with the number of each before it is done. After a
/// failure all of them are to be rolled back.
pub(super) fn all(
    steps: &[Step],
    project: &Tree,
    stage: &Stage,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<()> {
    let mut hand = Hand::of(project, stage);
    let mut index = 0;
    let mut exchange = |step: &Step| {
        before(index)?;
        index += 1;
        hand.exchange(step)
    };
    if steps.len() < FEW {
        return steps.iter().try_for_each(|step| {
            exchange(step)?;
            commit::compare(step, stage)
        });
    }
    let (send, receive) = mpsc::sync_channel::<&[Step]>(BEHIND);
    let comparing =
        move || receive.iter().flatten().try_for_each(|step: &Step| commit::compare(step, stage));
    thread::scope(|scope| {
        let beside = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, comparing);
        let mut done = Ok(());
        for piece in steps.chunks(PIECE) {
            done = piece.iter().try_for_each(|step| {
                exchange(step)?;
                // The machine gives no thread more.
                if beside.is_err() { commit::compare(step, stage) } else { Ok(()) }
            });
            // Nobody takes it where a comparison has failed.
            if done.is_err() || beside.is_ok() && send.send(piece).is_err() {
                break;
            }
        }
        drop(send);
        let compared = match beside {
            Ok(thread) => thread.join().unwrap_or_else(|_| {
                Err(Failure::new(Kind::Failed, "a thread of this command has ended"))
            }),
            Err(_) => Ok(()),
        };
        compared.and(done)
    })
}

#[cfg(test)]
mod tests {
    use super::super::recover_all;
    use super::super::tests::{apply_stopping, land, quietly, shown};
    use super::*;
    use crate::land::testing::{Fixture, World};

    /// Enough for a thread to compare.
    const MANY: usize = 6 * FEW;
    /// The path of the last step.
    const LAST: &str = "d6/97";

    fn many() -> Fixture {
        let base =
            "mkdir d0 d1 d2 d3 d4 d5 d6; for i in $(seq {}); do echo $i > d$((i % 7))/$i; done";
        let fixture = Fixture::new(World::UserKernel, &base.replace("{}", &MANY.to_string()));
        fixture.run("for f in d*/*; do echo more >> $f; done; rm d1/1 d2/2; echo new > d3/new");
        fixture
    }

    #[test]
    fn many_steps_are_done_as_few_are() {
        let fixture = many();
        assert_eq!(land(&fixture).unwrap().changes, MANY + 1);
        assert_eq!(fixture.lines(), [] as [String; 0]);
        let read = |path: &str| std::fs::read_to_string(fixture.project.join(path)).ok();
        assert_eq!(read("d3/3").as_deref(), Some("3\nmore\n"));
        assert_eq!(read(LAST).as_deref(), Some("97\nmore\n"));
        assert_eq!((read("d1/1"), read("d3/new").as_deref()), (None, Some("new\n")));
    }

    #[test]
    fn an_edit_of_the_last_moment_among_many_rolls_all_of_them_back() {
        let fixture = many();
        let digest = shown(&fixture);
        for at in [0, PIECE, MANY / 2, MANY] {
            let path = fixture.project.join(LAST);
            std::fs::write(&path, "97\n").unwrap();
            let before = fixture.real();
            let mut edit = |step: usize| {
                if step == at {
                    std::fs::write(&path, "mine\n").unwrap();
                }
                Ok(())
            };
            let failure = apply_stopping(&fixture, &digest, &mut edit).unwrap_err();
            assert_eq!(failure.kind, Kind::Conflict, "{at}: {failure}");
            assert_eq!(std::fs::read(&path).unwrap(), b"mine\n", "{at}");
            std::fs::write(&path, "97\n").unwrap();
            assert_eq!(fixture.real(), before, "{at}");
        }
    }

    #[test]
    fn a_failure_or_a_crash_amid_many_steps_leaves_nothing_behind() {
        let fixture = many();
        let (digest, before) = (shown(&fixture), fixture.real());
        for crash in [false, true] {
            let mut stop = |step: usize| {
                if step < MANY / 2 {
                    return Ok(());
                }
                assert!(!crash, "crashed on purpose");
                Err(Failure::new(Kind::Failed, "failed on purpose"))
            };
            match quietly(|| apply_stopping(&fixture, &digest, &mut stop)) {
                Ok(result) => assert_eq!(result.unwrap_err().message, "failed on purpose"),
                Err(_) => assert_eq!(recover_all(&fixture.state).unwrap().len(), 1),
            }
            assert_eq!(fixture.real(), before, "{crash}");
        }
    }
}
