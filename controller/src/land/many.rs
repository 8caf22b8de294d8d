//! Work on many things of a landing at once: reading, comparing and writing files waits more than it computes.

use crate::error::{Failure, Kind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Below this a thread costs more than it brings.
const FEW: usize = 64;
/// As many threads a processor: while one waits for the disk, or for another to be done with a folder, the next works.
const EACH: usize = 2;
/// More would only wait for the disk together.
const MOST: usize = 8;
/// As many items are taken at once.
const PIECE: usize = 16;
/// Bytes of a thread's stack.
const STACK: usize = 1 << 20;

/// Does `work` with every item. Where some fail, the others may not be done; one of the failures is given.
pub(super) fn each<T: Send>(
    items: &mut [T],
    work: impl Fn(&mut T) -> Result<()> + Sync,
) -> Result<()> {
    each_with(items, || (), |(), item| work(item))
}

/// The same with something that a thread keeps from one item to the next.
pub(super) fn each_with<T: Send, S>(
    items: &mut [T],
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &mut T) -> Result<()> + Sync,
) -> Result<()> {
    let threads = threads(items.len());
    if threads == 1 {
        let mut with = begin();
        return items.iter_mut().try_for_each(|item| work(&mut with, item));
    }
    let failed = AtomicBool::new(false);
    let part = |with: &mut S, items: &mut [T]| -> Result<()> {
        for item in items {
            if failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            work(with, item).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    // Shared out by the piece: where the machine gives no thread more, those that are there do all of it.
    let pieces = Mutex::new(items.chunks_mut(PIECE));
    let take = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<()> {
        let mut with = begin();
        while let Some(items) = take() {
            part(&mut with, items)?;
        }
        Ok(())
    };
    crew(threads, STACK, work)
}

/// Does `work` on as many threads, this one among them: fewer where the machine gives no more. One of the failures is
/// given.
pub(super) fn crew(
    threads: usize,
    stack: usize,
    work: impl Fn() -> Result<()> + Sync,
) -> Result<()> {
    thread::scope(|scope| {
        let spawn = || thread::Builder::new().stack_size(stack).spawn_scoped(scope, &work);
        let running: Vec<_> = (1..threads).map_while(|_| spawn().ok()).collect();
        let mut done = work();
        for thread in running {
            done = done.and(thread.join().unwrap_or_else(|_| Err(ended())));
        }
        done
    })
}

/// Does `waiting`, which is about that many things, beside `work` where they are many; else before it. Where one of
/// them fails the other may not be done.
pub(super) fn beside(
    count: usize,
    waiting: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if count < FEW {
        waiting()?;
        return work();
    }
    let waiting = Mutex::new(Some(waiting));
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    let wait = || take().map_or(Ok(()), |waiting| waiting());
    thread::scope(|scope| {
        let beside = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, wait);
        let done = work();
        let waited = match beside {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(ended())),
            // The machine gives no thread more.
            Err(_) => wait(),
        };
        waited.and(done)
    })
}

/// What `work` makes of every item, in their order.
pub(super) fn map<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut out: Vec<(&T, Option<R>)> = items.iter().map(|item| (item, None)).collect();
    each(&mut out, |(item, made)| {
        *made = Some(work(item)?);
        Ok(())
    })?;
    out.into_iter().map(|(_, made)| made.ok_or_else(ended)).collect()
}

fn threads(items: usize) -> usize {
    if items < FEW {
        return 1;
    }
    thread::available_parallelism().map_or(1, |count| (count.get() * EACH).min(MOST))
}

fn ended() -> Failure {
    Failure::new(Kind::Failed, "a thread of this command has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_many_keeps_their_order() {
        let items: Vec<usize> = (0..1000).collect();
        let made = map(&items, |n| Ok(n * 2)).unwrap();
        assert_eq!(made, items.iter().map(|n| n * 2).collect::<Vec<_>>());
    }

    #[test]
    fn one_failure_among_many_is_given() {
        let mut items: Vec<usize> = (0..1000).collect();
        let work = |n: &mut usize| match *n {
            777 => Err(Failure::new(Kind::Failed, "777")),
            _ => Ok(()),
        };
        assert_eq!(each(&mut items, work).unwrap_err().message, "777");
    }

    #[test]
    fn of_two_things_beside_one_another_both_are_done_and_either_failure_is_given() {
        for count in [1, FEW] {
            let (one, other) = (AtomicBool::new(false), AtomicBool::new(false));
            let does = |what: &AtomicBool| {
                what.store(true, Ordering::Relaxed);
                Ok(())
            };
            beside(count, || does(&one), || does(&other)).unwrap();
            assert!(one.into_inner() && other.into_inner());
            let fails = || Err(Failure::new(Kind::Failed, "no"));
            assert!(beside(count, fails, || Ok(())).is_err());
            assert!(beside(count, || Ok(()), fails).is_err());
        }
    }
}
