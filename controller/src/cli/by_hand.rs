//! `landbox land -i`: file by file and hunk by hunk, on the terminal.

use super::Invocation;
use crate::error::{Failure, Kind, Result};
use crate::land::card::CardChange;
use crate::land::interactive::{Desk, Done, Key, Memory, Part, Question, edit};
use crate::land::kind::ChangeKind;
use crate::land::live::Sight;
use crate::land::review::Review;
use crate::land::select::Reviewed;
use crate::session::store::Session;
use crate::ui::card::render_change;
use crate::ui::text::visible_name;
use std::collections::HashMap;

const HELP: &str = "\
y       land this
n       leave this in the session, for later
a       land this and all that follows in this file
d       leave this and all that follows in this file
q       stop here: what has no answer yet stays in the session
s       split this hunk into smaller ones
e       edit this hunk in $VISUAL or $EDITOR, and land what comes of it; the session
        keeps its own text, and the next land would put that back
j, k    go to the next, the previous one without an answer
J, K    go to the next, the previous one
g [N]   list all; go to number N
/TEXT   go to the next one in which TEXT is found
?       this help
Nothing is applied before the end, where what you picked is shown and asked about.
";

/// Asks about every change that can land, and gives what was picked, and of a session that runs what it was picked from.
pub(super) fn by_hand(
    call: &Invocation,
    session: &Session,
    review: Review,
) -> Result<(Reviewed, Sight)> {
    if !call.ui.is_interactive() {
        return Err(Failure::new(Kind::Usage, "land -i needs a terminal to ask on").hint(format!(
            "landbox land {} -- PATH.. chooses without asking",
            session.snapshot.id
        )));
    }
    let mut desk = Desk::new(review.items()?);
    let card = review.card(session)?;
    // Whoever else looks at the session is not to wait for the owner's answers.
    let sight = review.into_sight();
    let lines = card.changes.into_iter().map(|c| (c.path.clone(), c)).collect();
    let mut memory = Memory::open(&session.dir);
    memory.recall(&mut desk);
    if desk.questions().is_empty() {
        let id = &session.snapshot.id;
        let what = format!("session {id} has nothing to land");
        return Err(Failure::new(Kind::Nothing, what)
            .hint(format!("landbox show {id} says what it holds and what has landed of it")));
    }
    if desk.is_decided() {
        let what = "You have been through all of this before. Go over it again? [y/N]";
        match call.ui.ask(what) {
            Some(line) if line.trim() == "y" => desk.restart(),
            Some(_) | None => return Ok((desk.picked(), sight)),
        }
    }
    Table { call, session, lines, shown: None }.sit(&mut desk, &mut memory)?;
    Ok((desk.picked(), sight))
}

struct Table<'a> {
    call: &'a Invocation,
    session: &'a Session,
    lines: HashMap<Vec<u8>, CardChange>,
    /// The item whose line was shown last.
    shown: Option<usize>,
}

impl Table<'_> {
    fn sit(mut self, desk: &mut Desk, memory: &mut Memory) -> Result<()> {
        let ui = &self.call.ui;
        let mut show = true;
        loop {
            if show {
                self.show(desk);
            }
            let Some(line) = ui.ask(&prompt(desk)) else { return Ok(()) };
            let done = match Key::parse(&line) {
                Some(Key::Help) => {
                    ui.about(HELP);
                    show = false;
                    continue;
                }
                None => {
                    ui.about("One letter, please; ? lists them.\n");
                    show = false;
                    continue;
                }
                Some(Key::Edit) => self.edit(desk)?,
                Some(Key::Go(None)) => {
                    self.list(desk);
                    match ui.ask("Go to number?").map(|text| text.trim().parse().ok()) {
                        Some(Some(number)) => desk.press(&Key::Go(Some(number))),
                        Some(None) | None => Done::Moved,
                    }
                }
                Some(Key::Search(None)) => match ui.ask("Search for?") {
                    Some(text) => desk.press(&Key::Search(Some(text.trim_end().to_owned()))),
                    None => Done::Moved,
                },
                Some(key) => desk.press(&key),
            };
            // At once: whoever interrupts the review goes on from here.
            memory.keep(desk)?;
            match done {
                Done::Moved => show = true,
                Done::Not(why) => {
                    ui.about(format!("Sorry, {why}.\n"));
                    show = false;
                }
                Done::Finished => return Ok(()),
            }
        }
    }

    fn show(&mut self, desk: &Desk) {
        let Some((question, item)) = desk.current() else { return };
        let ui = &self.call.ui;
        if self.shown != Some(question.item) {
            self.shown = Some(question.item);
            if let Some(line) = self.lines.get(item.path().as_bytes()) {
                ui.about(format!("\n{}", render_change(line, ui.color_stderr())));
            }
        }
        if let Some(hunk) = desk.hunk(question) {
            ui.hunk(&hunk);
        }
    }

    fn edit(&self, desk: &mut Desk) -> Result<Done> {
        let ui = &self.call.ui;
        let hunk = desk.current().and_then(|(question, _)| desk.hunk(question));
        let Some(mut text) = hunk else { return Ok(Done::Not("only a hunk can be edited")) };
        loop {
            // An editor that can't be had is no reason to lose the review.
            text = match edit(&text, &self.session.dir) {
                Ok(text) => text,
                Err(failure) => {
                    ui.about(format!("{failure}.\n"));
                    return Ok(Done::Not("nothing was edited"));
                }
            };
            match desk.edited(&text) {
                Ok(Some(wish)) => return Ok(desk.answer(wish)),
                Ok(None) => {
                    return Ok(Done::Not("nothing was left of it, so it is not decided on"));
                }
                Err(why) => {
                    ui.about(format!("The edited hunk does not apply: {why}.\n"));
                    match ui.ask("Edit it again? [Y/n]") {
                        Some(line) if !line.trim().eq_ignore_ascii_case("n") => {}
                        Some(_) | None => return Ok(Done::Not("nothing was edited")),
                    }
                }
            }
        }
    }

    fn list(&self, desk: &Desk) {
        for (at, question) in desk.questions().iter().enumerate() {
            let item = &desk.items()[question.item];
            let what = match &question.part {
                Part::Whole => word(item.change.kind).to_owned(),
                Part::Mode => "mode".to_owned(),
                // The first line is ours.
                Part::Hunk(_) => desk.hunk(question).map_or_else(String::new, |hunk| {
                    let first = hunk.split(|b| *b == b'\n').next().unwrap_or_default();
                    String::from_utf8_lossy(first).into_owned()
                }),
            };
            let mark = answered(question).unwrap_or(" ");
            let name = visible_name(item.path().as_bytes());
            self.call.ui.about(format!("{mark:<7} {:>5}  {what:<24}  {name}\n", at + 1));
        }
    }
}

fn answered(question: &Question) -> Option<&'static str> {
    use crate::land::hunks::Wish;
    Some(match question.answer.as_ref()? {
        Wish::Take => "yes",
        Wish::Leave => "no",
        Wish::Edited(_) => "edited",
    })
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Special => "special file",
        ChangeKind::Type => "change of type",
        ChangeKind::Renamed => "rename",
        ChangeKind::Added => "addition",
        ChangeKind::Deleted => "deletion",
        ChangeKind::Symlink => "link",
        ChangeKind::Modified => "change",
        ChangeKind::Mode => "change of mode",
    }
}

fn prompt(desk: &Desk) -> String {
    let Some((question, item)) = desk.current() else { return String::new() };
    let what = match &question.part {
        Part::Whole => format!("this {}", word(item.change.kind)),
        Part::Mode => item.modes().map_or_else(String::new, |(old, new)| {
            use crate::land::card::octal;
            format!("this change of mode, {} -> {}", octal(old), octal(new))
        }),
        Part::Hunk(_) => "this hunk".to_owned(),
    };
    let keys: Vec<String> = desk.keys().into_iter().map(String::from).collect();
    let said = answered(question).map_or_else(String::new, |said| format!(" (so far: {said})"));
    let (at, count) = (desk.at() + 1, desk.questions().len());
    format!("({at}/{count}) Land {what}{said} [{},?]?", keys.join(","))
}
