use super::journal::Journal;
use super::tests::{apply_stopping, land, quietly, shown, steps};
use super::*;
use crate::land::testing::{Fixture, World, sh};

fn crash(fixture: &Fixture, at: usize) {
    let digest = shown(fixture);
    let mut stop = |index: usize| {
        assert!(index != at, "crashed on purpose");
        Ok(())
    };
    let result = quietly(|| apply_stopping(fixture, &digest, &mut stop));
    assert!(result.is_err());
}

fn journal_of(fixture: &Fixture) -> PathBuf {
    let entries = std::fs::read_dir(fixture.state.root().join("landings")).unwrap();
    let mut paths = entries.map(|e| e.unwrap().path());
    paths.find(|p| p.extension().is_some_and(|end| end == "json")).unwrap()
}

#[test]
fn a_broken_journal_s_stage_is_named_and_no_later_landing_or_discard_wipes_it() {
    for git in [false, true] {
        let script = if git { "mkdir .git; echo 1 > f; rm -rf g" } else { "echo 1 > f" };
        let fixture = if git {
            Fixture::elsewhere(World::UserKernel, script)
        } else {
            Fixture::new(World::UserKernel, script)
        };
        fixture.run("rm f; echo new > new");
        crash(&fixture, 1);
        let journal = journal_of(&fixture);
        std::fs::write(&journal, "torn").unwrap();
        let project = AbsPath::from_path(&fixture.project).unwrap();
        for failure in [
            recover(&fixture.state, &project).unwrap_err(),
            recover_all(&fixture.state).unwrap_err(),
        ] {
            let key = place::key(&project);
            let stage = if git {
                fixture.project.join(format!(".git/landbox/{key}/{}-1", fixture.id))
            } else {
                fixture.state.root().join(format!("undo/{key}/{}-1", fixture.id))
            };
            let hints = failure.hints.join("\n");
            assert!(hints.contains(&stage.display().to_string()), "{hints}");
        }
        std::fs::remove_file(&journal).unwrap();
        sh(&fixture.project, "echo 1 > f; touch -d 2001-01-01 f");
        assert_eq!(kept(&fixture.state, &project).len(), 1);
        let aside = land(&fixture).unwrap().aside.unwrap();
        assert_eq!(std::fs::read(aside.join("0")).unwrap(), b"1\n");
        crate::land::discard::discard(&fixture.state, &fixture.id).unwrap();
        assert_eq!(std::fs::read(aside.join("0")).unwrap(), b"1\n");
        assert_eq!(kept(&fixture.state, &project), [aside]);
    }
}

#[test]
fn a_landing_that_broke_off_after_its_last_step_is_counted() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f");
    fixture.run("echo 2 > f");
    crash(&fixture, steps(&fixture));
    // The last moment before the landing counts itself: its records have taken their place.
    let bytes = std::fs::read(journal_of(&fixture)).unwrap();
    let journal: Journal = serde_json::from_slice(&bytes).unwrap();
    let session = fixture.session();
    let records = session.dir.join("base/project.records");
    std::fs::rename(journal.records.as_ref().unwrap().as_path(), records).unwrap();
    assert_eq!(session.state.landing.count, 0);
    assert!(recover(&fixture.state, &journal.entry.project).unwrap().is_some());
    let state = fixture.session().state;
    assert_eq!((state.landing.count, state.landing.last_at.is_some()), (1, true));
    assert_eq!(state.changes.map(|c| c.files), Some(0));
    assert_eq!(recover(&fixture.state, &journal.entry.project).unwrap(), None);
    fixture.give_back();
    fixture.run("echo 3 > f");
    land(&fixture).unwrap();
    assert_eq!(fixture.session().state.landing.count, 2);
}
