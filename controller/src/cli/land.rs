//! `landbox land`.

use super::{Invocation, conflict, landed, select};
use crate::error::{Failure, Kind, Result};
use crate::land::apply::{self, Order};
use crate::land::card::Card;
use crate::land::checkpoint;
use crate::land::git::Prepared;
use crate::land::kind::Durability;
use crate::land::live;
use crate::land::review::Review;
use crate::land::risk::consent::{self, Question};
use crate::seal::Key;
use crate::session::store::{Session, StateDir};
use crate::ui::card::{Asked, Past, View, render};
use crate::ui::patch::Preview;
use clap::Args;
use landbox_shared::digest::Digest;

#[derive(Debug, Args)]
pub(super) struct LandArgs {
    /// Session; the newest of this directory when left out
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Go through the changes one by one: files and hunks
    #[arg(short, long, conflicts_with = "expect")]
    interactive: bool,
    /// Apply the changes; without a terminal only with --expect or --yes
    #[arg(long)]
    apply: bool,
    /// With --apply: do not ask
    #[arg(long)]
    yes: bool,
    /// Only if the changes still have this digest
    #[arg(long, value_name = "DIGEST")]
    expect: Option<String>,
    /// Land the session as it was at checkpoint N
    #[arg(long, value_name = "N")]
    checkpoint: Option<u32>,
    /// Land this kind of risk without being asked; may be repeated: git, startup, editor, agent, ci, install, build,
    /// executable, set-id, outside-link, secret, generated, large, hidden-text or ignore-rules
    #[arg(long, value_name = "KIND", conflicts_with_all = ["patch", "mbox"])]
    accept_risk: Vec<String>,
    #[command(flatten)]
    elsewhere: super::elsewhere::ElsewhereArgs,
    #[command(flatten)]
    conflicts: super::conflict::ConflictArgs,
    #[command(flatten)]
    select: super::select::SelectArgs,
}

/// A session that was found, and the state it lies in.
pub(super) struct Opened {
    pub state: StateDir,
    pub session: Session,
}

/// Finds the session meant, and undoes a landing on its project that broke off.
pub(super) fn open(call: &Invocation, id: Option<&str>) -> Result<Opened> {
    let home = crate::host::home()?;
    let state = StateDir::open(&StateDir::locate(&home))?;
    // A folder that is gone is no obstacle to naming a session.
    let here = match id {
        Some(_) => None,
        None => select::here()?,
    };
    let mut session = state.find(id, here.as_ref())?;
    if let Some(note) = apply::recover(&state, &session.snapshot.policy.project)? {
        call.ui.warning(note);
        session = state.load(&session.snapshot.id)?;
    }
    if let Some(note) = checkpoint::finish(&state, &session)? {
        call.ui.warning(note);
        session = state.load(&session.snapshot.id)?;
    }
    if let Some(note) = live::clear(&session)? {
        call.ui.warning(note);
    }
    Ok(Opened { state, session })
}

pub(super) fn land(call: &Invocation, args: LandArgs) -> Result<u8> {
    let expected = args.expect.as_deref().map(expected).transpose()?;
    let accepted = consent::parse(&args.accept_risk)?;
    let applies = args.apply || args.elsewhere.commit;
    let chooses = args.interactive || args.checkpoint.is_some() || args.select.chooses();
    args.elsewhere.check(chooses)?;
    if !applies && (args.yes || expected.is_some() && !args.elsewhere.is_asked()) {
        let flag = if args.yes { "--yes" } else { "--expect" };
        return Err(Failure::new(
            Kind::Usage,
            format!("{flag} says nothing without --apply or --commit"),
        ));
    }
    let Opened { state, session } = open(call, args.id.as_deref())?;
    let id = &session.snapshot.id;
    args.elsewhere.ready(&session)?;
    let asked = Asked {
        choices: args.conflicts.asked(),
        checkpoint: args.checkpoint.map(|number| past(&session, number)),
        ..args.select.asked()
    };
    let mut selection = args.select.selection()?;
    selection.checkpoint = args.checkpoint;
    let mut review = Review::of(&session, None, selection.clone())?;
    selection.choices = args.conflicts.put(&mut review, &session)?;
    if let Some(expected) = expected
        && expected != review.digest
    {
        return Err(Failure::new(
            Kind::Refused,
            format!("the changes have the digest {}, not the one expected", review.digest),
        )
        .hint(format!(
            "landbox land {id}, with the same paths and options, shows them as they are"
        )));
    }
    if review.selected().next().is_none() && !args.elsewhere.may_be_all_landed() {
        return Err(landed::nothing(&state, &session, &review, chooses, args.id.is_none()));
    }
    if args.interactive {
        let (reviewed, sight) = super::by_hand::by_hand(call, &session, review)?;
        if reviewed.paths.is_empty() {
            call.ui.status("You picked nothing; all of it stays in the session.");
            return Ok(0);
        }
        selection.reviewed = Some(std::sync::Arc::new(reviewed));
        review = Review::again(&session, sight, selection.clone())?;
    }
    if args.elsewhere.land(call, &session, &review, &accepted)? {
        return Ok(0);
    }
    let shown = review.digest;
    let asks = call.ui.is_interactive() && !args.yes;
    let shows = !applies || asks;
    let mut preview = Preview::new();
    let mut card = if shows && !call.ui.json {
        review.card_with_patch(&session, &mut preview)?
    } else if call.ui.json {
        review.card(&session)?
    } else {
        review.bare_card(&session)?
    };
    if applies && !asks && !args.yes && expected.is_none() {
        return Err(unasked(call, id.as_str(), &shown));
    }
    let can_ask = asks && review.has_landable();
    let too_many = || apply::refuse_too_many(id, review.selected().filter(|c| c.landable).count());
    if applies {
        too_many()?;
    }
    if shows {
        let view = View {
            preview: Some(&preview),
            next: !can_ask,
            asked: Some(&asked),
            storage: review.is_live(),
            summarise: true,
            color: call.ui.color_stdout(),
        };
        show_card(call, &card, &view)?;
        if let Some(line) = super::policy::refused_line(&session).filter(|_| !call.ui.json) {
            call.ui.status(line);
        }
        if !call.ui.json && args.checkpoint.is_none() && review.has_commits(&session) {
            call.ui.status(format!(
                "The session made commits of its own: landbox land {id} --to-branch NAME --keep-commits lands them as commits."
            ));
        }
    }
    if let Some(note) = review.note() {
        call.ui.warning(note);
    }
    if can_ask {
        too_many()?;
    }
    let committing = args.elsewhere.prepare(call, &session, &review)?;
    let passing = committing.as_ref().map_or(&[][..], |prepared| &prepared.risks);
    super::elsewhere::passing_risks(call, &card, passing);
    let open_risks = consent::open(&card, passing, &accepted);
    let refused = review.resolution().check();
    let decided = !can_ask || conflict::ask(call, &review, &mut selection.choices);
    // The scan's lock on the base goes with it; the landing scans for itself.
    let sight = review.into_sight();
    if applies && !can_ask {
        refused?;
    }
    if !decided {
        call.ui.status("Nothing was changed.");
        return Ok(0);
    }
    if can_ask {
        let action = if committing.is_some() { "Apply and commit" } else { "Apply" };
        let question = format!("{action} this to {}?", session.snapshot.policy.project);
        let mut asked = std::iter::once(question).chain(open_risks.iter().map(Question::ask));
        if !asked.all(|question| call.ui.confirm(&question) == Some(true)) {
            call.ui.status("Nothing was changed.");
            return Ok(0);
        }
    } else if !applies {
        return Ok(finish(call, &state, &card));
    } else {
        consent::refuse(id, &open_risks)?;
    }
    committing.as_ref().map_or(Ok(()), Prepared::store)?;
    let key = Key::load(&crate::host::key_dir(&crate::host::home()?)?)?;
    let order = Order { selection: &selection, shown: &shown, key: &key };
    let landed = apply::apply_shown(&state, id, &order, sight)?;
    card.receipt = Some(landed.receipt.clone());
    card.applied = true;
    card.durability = if landed.synced { Durability::Synced } else { Durability::Unsynced };
    let committed = committing
        .map_or(Ok(()), |prepared| super::elsewhere::commit(call, (&state, &session), prepared));
    let code = landed::report(call, &state, &session, &card, &landed)?;
    if selection.reviewed.is_some_and(|reviewed| reviewed.edited) {
        call.ui.status(format!(
            "What you edited landed as you wrote it. The session keeps its own text, and landing that takes your edit back: landbox discard {id} -- PATH drops it."
        ));
    }
    committed.map(|()| code)
}

/// What the card says of the checkpoint that it shows.
fn past(session: &Session, number: u32) -> Past {
    let known = checkpoint::list(session).into_iter().find(|known| known.number == number);
    let landing = &session.state.landing;
    let landed = landing.count as usize > landing.undone.len();
    // Both in UTC and whole seconds.
    let since = known.as_ref().is_some_and(|known| {
        landing.last_at.as_ref().is_some_and(|at| at.as_str() >= known.at.as_str())
    });
    Past { number, known, overtaken: landed && since }
}

/// The layer is made durable once it was shown.
fn finish(call: &Invocation, state: &StateDir, card: &Card) -> u8 {
    if let Err(failure) = crate::land::sync::session(state, &card.session) {
        call.ui.warning(failure.message);
    }
    0
}

fn expected(text: &str) -> Result<Digest> {
    Digest::parse(text).ok_or_else(|| {
        Failure::new(Kind::Usage, "--expect takes a digest as landbox diff prints it")
            .hint("it looks like sha256: and 64 hexadecimal digits")
    })
}

fn unasked(call: &Invocation, id: &str, shown: &Digest) -> Failure {
    Failure::new(Kind::Usage, format!("{}, so nothing was applied", call.ui.unasked()))
        // Not written out: a command without the paths and options that were given would apply something else.
        .hint(format!("the same command with --expect {shown} applies what has this digest now"))
        .hint("the same command with --yes applies what it selects by then")
        .hint(format!("landbox diff {id} shows it; each risk needs its own --accept-risk KIND"))
}

fn show_card(call: &Invocation, card: &Card, view: &View<'_>) -> Result<()> {
    if call.ui.json { call.ui.document(card) } else { call.ui.result(render(card, view)) }
}
