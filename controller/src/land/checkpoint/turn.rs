//! Checkpoints that are taken by themselves: one for each turn, of what the layers hold when it begins.
//!
//! A launch is a turn, so that going on with a session takes a checkpoint first. On a terminal another turn begins with
//! each line that its owner sends to a command that has come to rest. The picture is made while it rests and not
//! when the line comes: by then the command is at work already, and no key has to wait. With the line it becomes a
//! checkpoint, unless the newest one holds the same. Of a command that never rests the picture is made while the line is
//! typed; where that is too fast for it, when the line comes.

use super::folder::Folder;
use super::model::{Layers, Manifest, Reason};
use super::take::{Bounds, Obstacle};
use super::{MOST_TURNS, drop_oldest, moment, now};
use crate::error::{Failure, Result};
use crate::pty::Pace;
use crate::session::store::Session;
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Most objects in the layers of one picture.
const TURN_ENTRIES: usize = 100_000;
/// Most bytes of content of one session's checkpoints; once there are more, none is taken by itself.
const TURN_BYTES: u64 = 2 << 30;
/// How long a launch waits at most for what is kept before it.
const LAUNCH: Duration = Duration::from_secs(2);
/// The same of a picture that nobody waits for.
const REST: Duration = Duration::from_secs(10);
/// Pause between pictures, in how long the last one took.
const SHARE: u32 = 20;
/// One in so many checkpoints clears away the content that none of them names any more.
const SWEEP: u32 = 8;
const STACK: usize = 1 << 20;

/// Why a turn began without a checkpoint although its session had changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which turn.
    pub turn: u32,
    /// RFC 3339, UTC.
    pub at: String,
    /// A sentence.
    pub why: String,
}

/// Takes the checkpoint of a turn that begins with a launch. The caller holds the session, and counts the turn. Whatever
/// goes wrong is noted, and the launch goes on.
pub fn before_launch(session: &mut Session) {
    let Ok(folder) = Folder::open(session) else { return };
    folder.forget_next();
    // A launch that was killed has not said how many it had.
    let known = folder.heads().iter().filter_map(|head| head.turn).max();
    session.state.turns = session.state.turns.max(known.unwrap_or(0));
    let turn = session.state.turns.saturating_add(1);
    let session = &*session;
    let mut work = Work::new(session, false);
    let ready = work.prepare(&folder, turn);
    work.begin(&folder, turn, ready);
}

/// What became of the picture for a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// There is none yet.
    No,
    /// It is as the newest checkpoint.
    Unchanged,
    /// It is made.
    Next,
    /// It can't be had.
    Failed(String),
}

pub(super) struct Work<'a> {
    session: &'a Session,
    /// What the last look has read.
    last: Option<Layers>,
    /// The newest checkpoint then.
    newest: Option<u32>,
    live: bool,
    limit: Duration,
    /// Most bytes.
    pub(super) bytes: u64,
}

impl<'a> Work<'a> {
    /// Of a session that runs, or doesn't.
    pub(super) fn new(session: &'a Session, live: bool) -> Self {
        let limit = if live { REST } else { LAUNCH };
        Self { session, last: None, newest: None, live, limit, bytes: TURN_BYTES }
    }

    /// Makes the picture for the turn that may begin next.
    pub(super) fn prepare(&mut self, folder: &Folder, turn: u32) -> Ready {
        folder.forget_next();
        match self.picture(folder, turn) {
            Ok(true) => Ready::Next,
            Ok(false) => Ready::Unchanged,
            Err(failure) => Ready::Failed(failure.message),
        }
    }

    fn picture(&mut self, folder: &Folder, turn: u32) -> Result<bool> {
        let newest = folder.newest();
        let layers = match self.look(folder, newest.as_ref()) {
            Err(Obstacle::Room(_)) => {
                // What is older makes room.
                drop_oldest(folder, |head| head.turn.is_some(), 1)?;
                folder.sweep()?;
                self.look(folder, newest.as_ref())
            }
            other => other,
        };
        let layers = layers.map_err(Obstacle::failure)?;
        let changed = match &newest {
            Some(newest) => !layers.holds_same(&newest.layers),
            None => layers.entries() > 0,
        };
        self.newest = newest.map(|newest| newest.head.number);
        let manifest = Manifest::new(now(), Reason::Turn(turn), layers);
        let written = if changed { folder.write_next(&manifest) } else { Ok(()) };
        self.last = Some(manifest.layers);
        written.map(|()| changed)
    }

    fn look(&self, folder: &Folder, newest: Option<&Manifest>) -> Result<Layers, Obstacle> {
        let until = Some(Instant::now() + self.limit);
        let bounds = Bounds { entries: TURN_ENTRIES, bytes: self.bytes, spare: true, until };
        let newest = newest.map(|manifest| &manifest.layers);
        let earlier: Vec<&Layers> = newest.into_iter().chain(&self.last).collect();
        moment::picture(self.session, folder, &earlier, self.live, &bounds)
    }

    /// A turn begins: what is ready becomes a checkpoint.
    pub(super) fn begin(&mut self, folder: &Folder, turn: u32, ready: Ready) {
        let kept = match ready {
            Ready::Next => match folder.keep_next() {
                // Its owner has brought the session back meanwhile, say.
                Ok(None) => Err(None),
                Ok(Some(number)) => Ok(Some(number)),
                Err(failure) => Err(Some(failure.message)),
            },
            Ready::Unchanged if folder.newest_number() == self.newest => Ok(None),
            // The one that holds the same was removed meanwhile.
            Ready::Unchanged | Ready::No => Err(None),
            Ready::Failed(why) => Err(Some(why)),
        };
        let kept = match kept {
            Err(None) => match self.prepare(folder, turn) {
                Ready::Next => folder.keep_next().map_err(|failure| failure.message),
                Ready::Failed(why) => Err(why),
                Ready::Unchanged | Ready::No => Ok(None),
            },
            Err(Some(why)) => Err(why),
            Ok(kept) => Ok(kept),
        };
        let skipped = kept.as_ref().err().map(|why| Skipped { turn, at: now(), why: why.clone() });
        // What can't be written down or cleared away now is so the next time.
        let _ = folder.note_skipped(skipped.as_ref());
        if let Ok(Some(number)) = kept {
            let gone = drop_oldest(folder, |head| head.turn.is_some(), MOST_TURNS);
            if number.is_multiple_of(SWEEP) && gone.is_ok() {
                let _ = folder.sweep();
            }
        }
    }
}

/// What the thread is told.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// The command rests; the next turn would be this one.
    Rest(u32),
    /// It does not, but this turn is near: what was seen before is no picture of it.
    Near(u32),
    /// This turn begins.
    Begin(u32),
}

/// The turns of one launch on a terminal.
#[derive(Debug)]
pub struct Turns<'a> {
    session: &'a Session,
    turn: u32,
    words: Option<Sender<Word>>,
}

impl<'a> Turns<'a> {
    /// Of a session that is being launched, which is the first of them.
    pub fn new(session: &'a Session) -> Self {
        Self { session, turn: session.state.turns, words: None }
    }

    /// How many the session has had by now.
    pub fn count(&self) -> u32 {
        self.turn
    }

    /// A machine without room for a thread has no room for a picture either.
    fn say(&mut self, word: Word) {
        if self.words.is_none() {
            let (words, heard) = channel();
            let session = self.session.clone();
            let thread = std::thread::Builder::new().name("checkpoint".into()).stack_size(STACK);
            // Nobody waits for it at the end: what it leaves half done counts as nothing.
            let started = thread.spawn(move || listen(&session, &heard));
            self.words = started.is_ok().then_some(words);
        }
        if let Some(words) = &self.words {
            let _ = words.send(word);
        }
    }
}

impl Pace for Turns<'_> {
    fn rest(&mut self) {
        self.say(Word::Rest(self.turn.saturating_add(1)));
    }

    fn typing(&mut self) {
        self.say(Word::Near(self.turn.saturating_add(1)));
    }

    fn turn(&mut self) {
        self.turn = self.turn.saturating_add(1);
        self.say(Word::Begin(self.turn));
    }
}

fn listen(session: &Session, words: &Receiver<Word>) {
    let mut work = Work::new(session, true);
    let mut ready = Ready::No;
    let mut pause = Instant::now();
    let mut due: Option<u32> = None;
    loop {
        let heard = match due {
            None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => words.recv_timeout(pause.saturating_duration_since(Instant::now())),
        };
        let open = || Folder::open(session).map_err(|failure: Failure| failure.message);
        match (heard, due) {
            (Ok(Word::Rest(turn)), _) => due = Some(turn),
            (Ok(Word::Near(turn)), _) => (ready, due) = (Ready::No, Some(turn)),
            (Ok(Word::Begin(turn)), _) => {
                let ready = std::mem::replace(&mut ready, Ready::No);
                if let Ok(folder) = open() {
                    work.begin(&folder, turn, ready);
                }
                due = None;
            }
            (Err(RecvTimeoutError::Timeout), Some(turn)) => {
                let began = Instant::now();
                ready = match open() {
                    Ok(folder) => work.prepare(&folder, turn),
                    Err(why) => Ready::Failed(why),
                };
                pause = Instant::now() + began.elapsed() * SHARE;
                due = None;
            }
            (Err(RecvTimeoutError::Timeout), None) => {}
            (Err(RecvTimeoutError::Disconnected), _) => return,
        }
    }
}
