//! Parts of changes that land, through real overlays.

use super::*;
use crate::land::apply::tests::apply_these;
use crate::land::review::Review;
use crate::land::testing::{Fixture, WORLDS, sh};

fn part_of(fixture: &Fixture, path: &str, mode: u32, text: &str) -> Selection {
    let review = Review::of(&fixture.session(), None, Selection::default()).unwrap();
    let mut reviewed = Reviewed::default();
    let change = review.selected().find(|c| c.path.to_string() == path).unwrap();
    reviewed.take_part(change, Part::new(mode, text.into()));
    Selection { reviewed: Some(Arc::new(reviewed)), ..Selection::default() }
}

#[test]
fn a_part_lands_and_the_rest_stays_and_lands_later() {
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        let fixture = Fixture::new(world, "printf '1\\n2\\n3\\n' > f; mkdir o; echo a > o/a");
        fixture.run("printf 'one\\n2\\nthree\\n' > f; chmod +x f; rm -r o; mkdir o; printf 'x\\ny\\n' > o/a");
        let land = |selection: &Selection| {
            let review = Review::of(&fixture.session(), None, selection.clone()).unwrap();
            let digest = review.digest;
            let card = review.card(&fixture.session()).unwrap();
            drop(review);
            apply_these(&fixture, selection, &digest).unwrap();
            (card.files, card.added, card.deleted)
        };
        let part = part_of(&fixture, "f", 0o644, "one\n2\n3\n");
        assert_eq!(land(&part), (1, 1, 1), "{world:?}");
        assert_eq!(std::fs::read_to_string(fixture.project.join("f")).unwrap(), "one\n2\n3\n");
        let counts = fixture.session().state.changes.unwrap();
        assert_eq!((counts.files, counts.added, counts.deleted), (2, 3, 2), "{world:?}");
        fixture.give_back();
        land(&part_of(&fixture, "o/a", 0o644, "x\n"));
        fixture.give_back();
        // What the session sees is still all of its own.
        fixture.run("test \"$(cat f)\" = \"$(printf 'one\\n2\\nthree')\"; test \"$(cat o/a)\" = \"$(printf 'x\\ny')\"");
        assert_eq!(land(&Selection::default()), (2, 2, 1), "{world:?}");
        sh(
            &fixture.project,
            "test -x f; test \"$(cat f)\" = \"$(printf 'one\\n2\\nthree')\"; test \"$(cat o/a)\" = \"$(printf 'x\\ny')\"",
        );
        assert_eq!(fixture.lines(), Vec::<String>::new(), "{world:?}");
    }
}

#[test]
fn a_part_of_what_is_no_longer_a_file_is_refused_by_the_digest() {
    let fixture = Fixture::new(WORLDS[0], "printf '1\\n2\\n' > f");
    fixture.run("printf 'one\\ntwo\\n' > f");
    let part = part_of(&fixture, "f", 0o644, "one\n2\n");
    let shown = Review::of(&fixture.session(), None, part.clone()).unwrap().digest;
    fixture.run("rm f; ln -s x f");
    let failure = apply_these(&fixture, &part, &shown).unwrap_err();
    assert_eq!(failure.kind, crate::error::Kind::Refused);
}
