//! The table on which a review happens: all questions, the answers, and where the owner is.

use super::item::Item;
use super::question::{Part, Question};
use crate::land::changeset::Node;
use crate::land::hunks::{Hunk, Wish};
use crate::land::select::{self, Reviewed};
use landbox_shared::digest::Digest;

/// What the owner can do at a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// Land it.
    Yes,
    /// Leave it in the session.
    No,
    /// Land it and all that follows in the same file.
    All,
    /// Leave it and all that follows in the same file.
    Rest,
    /// Stop asking.
    Quit,
    /// Take the hunk apart.
    Split,
    /// Change the hunk.
    Edit,
    /// The next question without an answer.
    Next,
    /// The next question.
    NextAny,
    /// The last question before without an answer.
    Back,
    /// The question before.
    BackAny,
    /// A question by its number; without one, the list.
    Go(Option<usize>),
    /// The next question in which this text is found; without one, ask for it.
    Search(Option<String>),
    /// What the keys do.
    Help,
}

/// What came of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// There is a question to show.
    Moved,
    /// It can't be done here: why.
    Not(&'static str),
    /// Nothing is left to ask, or the owner stopped.
    Finished,
}

impl Key {
    /// Reads a line that was typed. Nothing is taken for a yes but `y`.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end_matches(['\n', '\r']);
        let mut rest = line.trim_start().chars();
        let key = rest.next()?;
        let rest = rest.as_str();
        let argument = Some(rest.trim()).filter(|rest| !rest.is_empty());
        Some(match (key, argument) {
            ('g', None) => Self::Go(None),
            ('g', Some(number)) => Self::Go(Some(number.parse().ok()?)),
            ('/', None) => Self::Search(None),
            ('/', Some(_)) => Self::Search(Some(rest.to_owned())),
            (_, Some(_)) => return None,
            ('y', None) => Self::Yes,
            ('n', None) => Self::No,
            ('a', None) => Self::All,
            ('d', None) => Self::Rest,
            ('q', None) => Self::Quit,
            ('s', None) => Self::Split,
            ('e', None) => Self::Edit,
            ('j', None) => Self::Next,
            ('J', None) => Self::NextAny,
            ('k', None) => Self::Back,
            ('K', None) => Self::BackAny,
            ('?', None) => Self::Help,
            (_, None) => return None,
        })
    }
}

/// All questions of a review.
#[derive(Debug)]
pub struct Desk {
    items: Vec<Item>,
    questions: Vec<Question>,
    at: usize,
}

impl Desk {
    /// Lays out `items`.
    pub fn new(items: Vec<Item>) -> Self {
        let each = items.iter().enumerate().flat_map(|(at, item)| Question::all(at, item));
        let questions = each.collect();
        Self { items, questions, at: 0 }
    }

    /// The questions.
    pub fn questions(&self) -> &[Question] {
        &self.questions
    }

    /// The changes.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Number of the question to ask, from 0.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The question to ask, and what it is about.
    pub fn current(&self) -> Option<(&Question, &Item)> {
        let question = self.questions.get(self.at)?;
        Some((question, &self.items[question.item]))
    }

    /// Whether every question has an answer.
    pub fn is_decided(&self) -> bool {
        self.questions.iter().all(|q| q.answer.is_some())
    }

    /// Takes up earlier answers and goes to the first question without one.
    pub fn recall(&mut self, known: &dyn Fn(&Digest) -> Option<Wish>) {
        let mut out = Vec::with_capacity(self.questions.len());
        for mut question in std::mem::take(&mut self.questions) {
            question.answer = known(&question.digest);
            let mut parts = match question.answer {
                Some(_) => Vec::new(),
                None => question.split(&self.items[question.item]),
            };
            parts.iter_mut().for_each(|part| part.answer = known(&part.digest));
            // It was split the last time.
            if parts.iter().any(|part| part.answer.is_some()) {
                out.extend(parts);
            } else {
                out.push(question);
            }
        }
        self.questions = out;
        self.at = self.open_from(0).unwrap_or(0);
    }

    /// Forgets every answer.
    pub fn restart(&mut self) {
        self.questions.iter_mut().for_each(|q| q.answer = None);
        self.at = 0;
    }

    /// The first question without an answer at or behind `from`, else before it.
    fn open_from(&self, from: usize) -> Option<usize> {
        let open = |at: &usize| self.questions[*at].answer.is_none();
        (from..self.questions.len()).find(open).or_else(|| (0..from).find(open))
    }

    fn advance(&mut self, from: usize) -> Done {
        match self.open_from(from) {
            None => Done::Finished,
            Some(at) => {
                self.at = at;
                Done::Moved
            }
        }
    }

    /// Does what needs nothing but the desk. [`Key::Edit`], [`Key::Help`] and keys without their argument do not belong
    /// here.
    pub fn press(&mut self, key: &Key) -> Done {
        match key {
            Key::Yes => self.answer(Wish::Take),
            Key::No => self.answer(Wish::Leave),
            Key::All => self.answer_file(&Wish::Take),
            Key::Rest => self.answer_file(&Wish::Leave),
            Key::Quit => Done::Finished,
            Key::Split => self.split(),
            Key::Next => {
                let open = |at: &usize| self.questions[*at].answer.is_none();
                let found = (self.at + 1..self.questions.len()).find(open);
                self.go(found, "no later one is left to decide on")
            }
            Key::Back => {
                let open = |at: &usize| self.questions[*at].answer.is_none();
                let found = (0..self.at).rev().find(open);
                self.go(found, "no earlier one is left to decide on")
            }
            Key::NextAny => {
                let found = Some(self.at + 1).filter(|at| *at < self.questions.len());
                self.go(found, "this is the last one")
            }
            Key::BackAny => self.go(self.at.checked_sub(1), "this is the first one"),
            Key::Go(Some(number)) => {
                let found = number.checked_sub(1).filter(|at| *at < self.questions.len());
                self.go(found, "there is none of that number")
            }
            Key::Search(Some(text)) => self.search(text),
            Key::Edit | Key::Help | Key::Go(None) | Key::Search(None) => Done::Moved,
        }
    }

    /// Answers the current question and goes on.
    pub fn answer(&mut self, wish: Wish) -> Done {
        let at = self.at;
        if let Some(question) = self.questions.get_mut(at) {
            question.answer = Some(wish);
        }
        self.advance(at + 1)
    }

    fn answer_file(&mut self, wish: &Wish) -> Done {
        let Some(item) = self.questions.get(self.at).map(|q| q.item) else { return Done::Finished };
        let mut at = self.at;
        // The one that was asked, and those behind it that have no answer yet.
        self.questions[at].answer = None;
        while let Some(question) = self.questions.get_mut(at).filter(|q| q.item == item) {
            question.answer.get_or_insert_with(|| wish.clone());
            at += 1;
        }
        self.advance(at)
    }

    fn split(&mut self) -> Done {
        let Some((question, item)) = self.current() else { return Done::Finished };
        let parts = question.split(item);
        if parts.is_empty() {
            return Done::Not("this can't be split any more");
        }
        self.questions.splice(self.at..=self.at, parts);
        Done::Moved
    }

    fn go(&mut self, to: Option<usize>, why: &'static str) -> Done {
        let Some(to) = to else { return Done::Not(why) };
        self.at = to;
        Done::Moved
    }

    fn search(&mut self, text: &str) -> Done {
        let count = self.questions.len();
        let found = (1..=count).map(|step| (self.at + step) % count.max(1)).find(|at| {
            let question = &self.questions[*at];
            let item = &self.items[question.item];
            holds(item.path().as_bytes(), text.as_bytes())
                || self.hunk(question).is_some_and(|hunk| holds(&hunk, text.as_bytes()))
        });
        self.go(found, "that is in none of them")
    }

    /// The hunk that a question is about, as it stands in a patch.
    pub fn hunk(&self, question: &Question) -> Option<Vec<u8>> {
        match (&question.part, &self.items[question.item].text) {
            (Part::Hunk(hunk), Some(text)) => Some(text.print(hunk)),
            (Part::Whole | Part::Mode | Part::Hunk(_), _) => None,
        }
    }

    /// Reads what the owner made of the current hunk in an editor. `None` if nothing is left of it; an error says why it
    /// does not apply.
    pub fn edited(&self, text: &[u8]) -> Result<Option<Wish>, &'static str> {
        let Some((question, item)) = self.current() else { return Ok(None) };
        match (&question.part, &item.text) {
            (Part::Hunk(hunk), Some(change)) => change.read_edit(hunk, text),
            (Part::Whole | Part::Mode | Part::Hunk(_), _) => Ok(None),
        }
    }

    /// Keys that do something at the current question, besides those that always do.
    pub fn keys(&self) -> Vec<char> {
        let Some((question, _)) = self.current() else { return Vec::new() };
        let mut keys = vec!['y', 'n', 'q', 'a', 'd'];
        let open = |q: &Question| q.answer.is_none();
        let (before, after) = (&self.questions[..self.at], &self.questions[self.at + 1..]);
        for (key, can) in [
            ('j', after.iter().any(open)),
            ('J', !after.is_empty()),
            ('k', before.iter().any(open)),
            ('K', !before.is_empty()),
            ('g', self.questions.len() > 1),
            ('/', self.questions.len() > 1),
            ('s', matches!(&question.part, Part::Hunk(hunk) if hunk.len() > 1)),
            ('e', matches!(question.part, Part::Hunk(_))),
        ] {
            keys.extend(can.then_some(key));
        }
        keys
    }

    /// What was picked. What was not decided on stays in the session.
    pub fn picked(&self) -> Reviewed {
        let mut out = Reviewed::default();
        for asked in self.questions.chunk_by(|a, b| a.item == b.item) {
            let Some(item) = asked.first().map(|q| &self.items[q.item]) else { continue };
            if asked.iter().all(|q| q.answer == Some(Wish::Take)) {
                out.take(&item.change);
            } else if let Some(part) = part(item, asked) {
                out.edited |= asked.iter().any(|q| matches!(q.answer, Some(Wish::Edited(_))));
                out.take_part(&item.change, part);
            }
        }
        out
    }
}

/// The file that the answers make of an item; `None` if that is the base.
fn part(item: &Item, asked: &[Question]) -> Option<select::Part> {
    let text = item.text.as_ref()?;
    let new = item.change.new.as_ref().and_then(Node::mode)?;
    let mut mode = new;
    let mut wishes: Vec<(&Hunk, &Wish)> = Vec::new();
    for question in asked {
        let wish = question.answer.as_ref().unwrap_or(&Wish::Leave);
        match &question.part {
            Part::Mode if *wish == Wish::Leave => mode = item.modes().map_or(new, |(old, _)| old),
            Part::Mode | Part::Whole => {}
            Part::Hunk(hunk) => wishes.push((hunk, wish)),
        }
    }
    let nothing = wishes.iter().all(|(_, wish)| **wish == Wish::Leave);
    let old_mode = item.change.old_node().and_then(Node::mode);
    if nothing && (old_mode.is_none() || old_mode == Some(mode)) {
        return None;
    }
    let bytes = text.make(wishes.into_iter());
    let part = select::Part::new(mode, bytes);
    (Some(&part.node()) != item.change.old_node()).then_some(part)
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}
