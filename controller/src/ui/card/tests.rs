//! What the card says, and what nothing on it can do.

use super::*;
use crate::land::card::samples::{card, change};
use crate::land::kind::{ChangeKind, EntryType};
use crate::land::risk::Risk;
use std::io::Write as _;

fn shown(card: &Card) -> String {
    render(card, &View { next: true, ..View::default() })
}

#[test]
fn the_card_shows_every_kind_of_change_sorted_by_folder() {
    let mut changes = vec![
        change(b"src/main.rs", ChangeKind::Modified),
        change(b"zeta", ChangeKind::Modified),
        change(b"run.sh", ChangeKind::Added),
        change(b"src/old.rs", ChangeKind::Deleted),
        change(b"tool", ChangeKind::Mode),
        change(b"current", ChangeKind::Symlink),
        change(b"thing", ChangeKind::Type),
        change(b"b.rs", ChangeKind::Renamed),
        change(b"logo.png", ChangeKind::Modified),
        change(b"target/debug/a", ChangeKind::Added),
        change(b"target/debug/b", ChangeKind::Added),
        change(b".git/index", ChangeKind::Modified),
    ];
    changes[1].state = ChangeState::Drifted;
    (changes[2].old_type, changes[2].old_mode, changes[2].new_mode) = (None, None, Some(0o755));
    (changes[3].new_type, changes[3].new_mode) = (None, None);
    (changes[4].new_mode, changes[4].added, changes[4].deleted) = (Some(0o755), Some(0), Some(0));
    changes[5].old_target = Some(b"v1".to_vec());
    changes[5].new_target = Some(b"v2".to_vec());
    changes[6].new_type = Some(EntryType::Symlink);
    changes[6].new_target = Some(b"/etc/passwd".to_vec());
    changes[7].old_path = Some(b"src/a.rs".to_vec());
    (changes[7].added, changes[7].deleted) = (Some(0), Some(0));
    (changes[8].binary, changes[8].added, changes[8].deleted) = (true, None, None);
    for (at, group) in [(9, Group::Ignored), (10, Group::Ignored), (11, Group::Git)] {
        (changes[at].group, changes[at].selected) = (group, false);
    }
    changes[0].risks.push(Risk { kind: RiskKind::Ci, why: "runs on the server".into() });
    let text = shown(&card(changes));
    assert_eq!(text, include_str!("card.snapshot"));
}

#[test]
fn no_name_target_or_content_can_fake_the_card_or_touch_the_terminal() {
    let mut evil = change(
        b"x\n  digest   sha256:00\r\x1b[2J\x1b]0;t\x07\xff\xe2\x80\xae",
        ChangeKind::Symlink,
    );
    evil.new_target = Some(b"v2\n  landbox land --apply\xc2\x9b".to_vec());
    evil.old_path = Some("a \u{202e}\u{200b}\u{301}".into());
    evil.reason = Some("line\nbreak \u{1b}[1m".into());
    let mut quiet = change(b"q", ChangeKind::Modified);
    (quiet.group, quiet.selected) = (Group::Ignored, false);
    quiet.path = b"\x1b[8m/x".to_vec();
    let mut preview = Preview::new();
    preview.write_all(b"@@ -1 +1 @@\n+\x1b[2J\r  digest   sha256:00\n").unwrap();
    let card = card(vec![evil, quiet]);
    let view = View { preview: Some(&preview), next: true, ..View::default() };
    let text = render(&card, &view);
    assert!(text.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{text:?}");
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("digest ")).count(), 1);
    assert!(text.contains("  | +\\u{1b}[2J\\r  digest"));
    assert!(!text.lines().any(|l| l.trim_start().starts_with("landbox land --apply")));
}

#[test]
fn colours_change_nothing_but_colours() {
    let mut deleted = change(b"a", ChangeKind::Deleted);
    deleted.state = ChangeState::Conflict;
    let card = card(vec![deleted, change(b"b", ChangeKind::Added)]);
    let plain = render(&card, &View::default());
    let mut painted = render(&card, &View { color: true, ..View::default() });
    assert_ne!(plain, painted);
    for code in [BOLD, GREEN, RED, YELLOW, "\x1b[0m"] {
        painted = painted.replace(code, "");
    }
    assert_eq!(plain, painted);
}

#[test]
fn a_summary_of_a_folder_hides_nothing_but_plain_files() {
    let plain = (0..200).map(|i| change(format!("gen/f{i}").as_bytes(), ChangeKind::Modified));
    let mut telling: Vec<CardChange> = ["mode", "risk", "note", "drift", "stuck"]
        .map(|name| change(format!("gen/{name}").as_bytes(), ChangeKind::Modified))
        .into();
    telling[0].new_mode = Some(0o600);
    telling[1].risks.push(Risk { kind: RiskKind::Secret, why: "it holds a key".into() });
    telling[2].reason = Some("hard links".into());
    telling[3].state = ChangeState::Drifted;
    telling[4].landable = false;
    for (name, kind) in [("gone", ChangeKind::Deleted), ("link", ChangeKind::Symlink)] {
        telling.push(change(format!("gen/{name}").as_bytes(), kind));
    }
    let mut fresh = change(b"gen/fresh", ChangeKind::Added);
    (fresh.old_type, fresh.old_mode, fresh.old_size) = (None, None, None);
    let card = card(plain.chain(telling.clone()).chain([fresh]).collect());
    let text = render(&card, &View { summarise: true, ..View::default() });
    assert!(text.contains("  1 added, 200 modified, +402 -201: plain files in gen/\n"), "{text}");
    for change in &telling {
        assert!(text.contains(&visible_name(&change.path)), "{text}");
    }
    assert_eq!(text.matches("  gen/").count(), telling.len());
    let whole = render(&card, &View::default());
    assert_eq!(whole.matches("  gen/").count(), 208);
}

#[test]
fn the_command_that_lands_all_names_the_answers_it_needs() {
    let mut open = change(b"a", ChangeKind::Modified);
    let says = |change: &CardChange, flag: &str| shown(&card(vec![change.clone()])).contains(flag);
    assert!(!says(&open, "all of it, with"));
    open.state = ChangeState::Conflict;
    assert!(says(&open, "apply all of it, with --resolve-all CHOICE\n"));
    open.risks.push(Risk { kind: RiskKind::Ci, why: "runs on the server".into() });
    assert!(says(&open, "--resolve-all CHOICE, and --accept-risk KIND for each\n"));
}

#[test]
fn that_a_layer_is_not_on_disk_is_said_where_nothing_is_about_to_write_it() {
    let mut card = card(vec![change(b"a", ChangeKind::Modified)]);
    let says = |card: &Card, storage| {
        render(card, &View { storage, ..View::default() }).contains("  storage ")
    };
    assert!(!says(&card, false));
    assert!(says(&card, true));
    card.applied = true;
    assert!(says(&card, false));
}

#[test]
fn only_diff_text_is_cut() {
    let many = (0..500).map(|i| change(format!("f{i}").as_bytes(), ChangeKind::Deleted));
    let long = change(&[b'x'; 4000], ChangeKind::Deleted);
    let text = shown(&card(many.chain([long]).collect()));
    assert_eq!(text.matches("  deleted  ").count(), 501);
    assert!(text.contains(&"x".repeat(4000)));
}

#[test]
fn what_to_type_next_is_the_same_selection_again() {
    let card = card(vec![change(b"a", ChangeKind::Modified)]);
    let asked = Asked {
        options: " --exclude '*.o'".into(),
        choices: " --resolve a=mine".into(),
        paths: " -- 'a b'".into(),
        checkpoint: Some(Past { number: 3, known: None, overtaken: true }),
    };
    let text = render(&card, &View { next: true, asked: Some(&asked), ..View::default() });
    let digest = card.digest;
    for part in [
        "  as of    checkpoint 3, not what the session holds now\n",
        "  back     older than the last landing: this may take back what has landed since\n",
        "  landbox land abc123def4 --checkpoint 3 --exclude '*.o' --patch - -- 'a b' ",
        &format!(
            "  landbox land abc123def4 --checkpoint 3 --exclude '*.o' --resolve a=mine --apply --expect {digest} -- 'a b' "
        ),
        "  landbox discard abc123def4 --checkpoint 3 ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let asked = Asked { checkpoint: None, ..asked };
    let text = render(&card, &View { next: true, asked: Some(&asked), ..View::default() });
    assert!(text.contains("  landbox diff abc123def4 --exclude '*.o' -- 'a b' "), "{text}");
    assert!(!text.contains("checkpoint"), "{text}");
}

#[test]
fn where_nothing_can_land_no_command_is_named_that_would_land_something() {
    let mut stuck = change(b".git/config", ChangeKind::Modified);
    stuck.landable = false;
    let text = shown(&card(vec![stuck]));
    assert!(!text.contains("--apply") && !text.contains("--patch"), "{text}");
}

#[test]
fn what_was_not_chosen_of_the_project_is_said_to_be_for_later() {
    let mut later = change(b"d/x", ChangeKind::Modified);
    later.selected = false;
    let text = shown(&card(vec![change(b"a", ChangeKind::Modified), later]));
    assert!(text.contains("  project     1 file, for later     d/\n"), "{text}");
}

#[test]
fn a_word_to_be_typed_is_one_word_and_touches_no_terminal() {
    assert_eq!(word(b"src/a.rs"), "src/a.rs");
    assert_eq!(word(b"a b"), "'a b'");
    assert_eq!(word(b"a\\b"), "'a\\b'");
    assert_eq!(word(b"a\x1b[2J'\xff\n"), r"$'a\x1b[2J\'\xff\x0a'");
    assert_eq!(word("a\u{202e}".as_bytes()), r"$'a\xe2\x80\xae'");
}
