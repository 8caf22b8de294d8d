use super::*;
use crate::land::changeset::Change;
use crate::land::layer::project_of;
use crate::land::review::Review;
use crate::land::testing::{Fixture, WORLDS, World, list, sh};
use landbox_shared::policy::{Mask, MaskKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

pub(in crate::land) const BASE: &str = r#"
mkdir -p dir/sub empty replaced emptied removed/deep dirtofile modedir
echo a > dir/a; echo b > dir/sub/b
echo r1 > replaced/one; echo r2 > replaced/two; echo r3 > replaced/keep
echo e > emptied/e; echo r > removed/r; echo d > removed/deep/d; echo x > dirtofile/x
printf 'line\r\n' > crlf; printf 'no end' > noend; : > emptyfile
printf '\0\1\2' > binary; echo text > text; echo gone > gone; echo 'moved text' > moved
ln -s text link; ln -s gone linkgone; ln -s text linktofile; ln -s dir linktodir
echo f > filetolink; echo f > filetodir
printf '#!/bin/sh\n' > script; chmod 755 script
echo secret > secret; chmod 600 secret; echo mode > mode; echo both > both; echo untouched > untouched
mkdir shared; chmod 2775 shared; echo s > shared/s
echo z > $'\xff\xfe.bin'; echo id > setid; chmod 2755 setid; echo id > setidout; chmod 4755 setidout
"#;

pub(in crate::land) const TASK: &str = r#"
echo more >> text; echo new > added; mkdir newdir; echo n > newdir/n; mkdir newempty; mkdir -m 700 newprivate
rm gone; rm link; ln -s script linkgone2; ln -sfn script linkgone
rm linktofile; echo file > linktofile; rm linktodir; mkdir linktodir; echo in > linktodir/in
rm filetolink; ln -s text filetolink; rm filetodir; mkdir filetodir; echo in > filetodir/in
rm -r dirtofile; echo file > dirtofile
rm -r replaced; mkdir replaced; echo r3 > replaced/keep; echo rnew > replaced/new
rm emptied/e; rm -r removed; rmdir empty
printf 'line\r\nnext\r\n' > crlf; printf 'no end, longer' > noend; printf x > emptyfile; : > newemptyfile
printf '\0\3\4' > binary; printf '\0\7' > newbinary
mv moved moved2
chmod +x mode; chmod +x both; echo more >> both; echo k >> secret
(umask 077; echo s > new.key); printf '#!/bin/sh\n' > new.sh; chmod 755 new.sh
echo two >> shared/s; mkdir shared/t; echo t > shared/t/t
chmod 750 modedir; chmod 640 untouched; chmod 644 untouched; touch untouched; touch -d 2001-01-01 dir/sub/b
echo 1 > "sp ace"; echo 2 > "$(printf 'tab\tname')"; echo 3 > "$(printf 'nl\nname')"; echo 4 > é; echo 5 > "$(printf '\377\375.bin')"
echo 6 > 'q"q'; mkdir 'b '; echo 7 > 'b / c' || echo 7 > 'b / c2' || true; echo 8 > ./-rf; echo 9 > ' lead'; echo 10 > 'back\slash'
rm "$(printf '\377\376.bin')"; touch setid; echo more >> setidout; chmod 755 setidout
mkdir .git; echo hook > .git/hook; mkfifo pipe; mkdir t; rm -r t
"#;

pub(in crate::land) fn shown(fixture: &Fixture) -> Digest {
    fixture.review().digest
}

pub(in crate::land) fn land(fixture: &Fixture) -> Result<Landed> {
    apply_all(fixture, &shown(fixture))
}

pub(super) fn apply_all(fixture: &Fixture, shown: &Digest) -> Result<Landed> {
    apply_these(fixture, &Selection::default(), shown)
}

pub(in crate::land) fn apply_these(
    fixture: &Fixture,
    selection: &Selection,
    shown: &Digest,
) -> Result<Landed> {
    apply(&fixture.state, &fixture.id, &Order { selection, shown, key: &fixture.key() })
}

pub(super) fn apply_stopping(
    fixture: &Fixture,
    shown: &Digest,
    stop: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Landed> {
    let selection = Selection::default();
    let order = Order { selection: &selection, shown, key: &fixture.key() };
    apply_with(&fixture.state, &fixture.id, &order, stop)
}

/// What a listing holds but for things that never land.
fn landable(listing: Vec<String>) -> Vec<String> {
    listing.into_iter().filter(|l| !l.starts_with(".git") && !l.starts_with("pipe ")).collect()
}

#[test]
fn every_row_gives_the_same_changeset_patch_and_result_in_every_world() {
    let mut first: Option<(Vec<String>, Vec<u8>)> = None;
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        let fixture = Fixture::new(world, BASE);
        let copy = fixture.dir.path().join("copy");
        sh(fixture.dir.path(), "cp -a project copy");
        let before = fixture.real();
        let merged = fixture.run(TASK);
        let lines = fixture.lines();
        let patch = fixture.patch();
        assert_eq!(fixture.real(), before, "{world:?}: looking changes nothing");
        match &first {
            None => first = Some((lines.clone(), patch.clone())),
            Some((other, text)) => {
                assert_eq!(&lines, other, "{world:?}");
                assert!(&patch == text, "{world:?}");
            }
        }
        let landed = land(&fixture).unwrap();
        assert!(landed.synced && landed.disturbed.is_none() && landed.staying.is_empty());
        let merged = match world {
            // fuse-overlayfs shows its own loss of set-id bits inside.
            World::UserFuse => merged
                .into_iter()
                .map(|l| match l.as_str() {
                    "setid f 755 id\n" => "setid f 2755 id\n".to_owned(),
                    "shared d 775" => "shared d 2775".to_owned(),
                    "shared/t d 755" => "shared/t d 2755".to_owned(),
                    _ => l,
                })
                .collect(),
            World::UserKernel | World::RootKernel => merged,
        };
        assert_eq!(fixture.real(), landable(merged), "{world:?}");
        assert!(matches!(land(&fixture), Err(Failure { kind: Kind::Nothing, .. })));
        assert!(
            fixture
                .lines()
                .iter()
                .all(|l| l.contains(".git") || l.ends_with("pipe landable=false")),
            "{:?}",
            fixture.lines()
        );
        git_apply(&copy, &patch);
        // What a patch can't say: empty folders, modes beyond the executable bit, names git refuses.
        let plain = |root: &std::path::Path| -> Vec<String> {
            let is_dir = |l: &String| l.contains(" d ") && !l.contains(" f ");
            list(root)
                .into_iter()
                .filter(|l| !is_dir(l))
                .map(|l| l.replace(" f 600 ", " f 644 ").replace(" f 640 ", " f 644 "))
                .collect()
        };
        assert_eq!(plain(&copy), plain(&fixture.project), "{world:?}");
    }
    let (lines, _) = first.unwrap();
    let expected = include_str!("rows.txt");
    assert_eq!(lines.join("\n") + "\n", expected);
}

fn git_apply(dir: &std::path::Path, patch: &[u8]) {
    let file = dir.with_extension("patch");
    std::fs::write(&file, patch).unwrap();
    for check in [true, false] {
        let mut git = Command::new("git");
        git.arg("apply").current_dir(dir).env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap());
        if check {
            git.arg("--check");
        }
        let out = git.arg(&file).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn a_path_that_drifted_stops_everything_and_is_named() {
    for world in WORLDS.into_iter().filter(|w| w.is_here()) {
        let fixture = Fixture::new(world, "echo 1 > f; echo 1 > g; mkdir d; echo x > d/x");
        fixture.run("echo 2 >> f; echo 2 > g; rm -r d; echo n > new");
        // Before the first scan: the base of `f` is unknown. After it: the base is on record.
        sh(&fixture.project, "echo owner >> f");
        let before = fixture.real();
        let failure = land(&fixture).unwrap_err();
        assert_eq!(failure.kind, Kind::Conflict);
        assert!(failure.message.contains(": f"), "{}", failure.message);
        assert_eq!(fixture.real(), before);
    }
}

#[test]
fn what_was_recorded_stays_the_base_whatever_the_owner_does() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f; mkdir d; echo x > d/x");
    fixture.run("echo 2 >> f; rm -r d");
    let (digest, patch) = (shown(&fixture), fixture.patch());
    for edit in ["echo owner > f", "rm f", "mkdir -p f2; rm -rf f; mv f2 f", "rm -r d"] {
        sh(&fixture.project, edit);
        assert_eq!(shown(&fixture), digest, "{edit}");
        assert_eq!(fixture.patch(), patch, "{edit}");
        assert_eq!(land(&fixture).unwrap_err().kind, Kind::Conflict);
    }
    sh(&fixture.project, "rm -rf f; echo 1 > f; mkdir d; echo x > d/x");
    land(&fixture).unwrap();
    assert_eq!(fixture.real(), ["f f 644 1\n2\n"]);
}

#[test]
fn after_a_landing_the_owners_edits_are_no_changes_of_the_session() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f; mkdir d; echo x > d/x; echo g > g");
    fixture.run("echo 2 >> f; rm -r d; mkdir d; echo y > d/y");
    land(&fixture).unwrap();
    assert_eq!(fixture.lines(), [""; 0]);
    sh(&fixture.project, "echo owner > f; echo new > d/new; rm d/y");
    assert_eq!(fixture.lines(), [""; 0]);
    // A later launch goes on from there, with what the owner has made of it.
    fixture.give_back();
    fixture.run("echo 3 >> g; echo 3 >> f");
    let lines = fixture.lines();
    assert_eq!(lines, ["modified file:0644 -> file:0644 f", "modified file:0644 -> file:0644 g"]);
}

#[test]
fn a_deleted_folder_that_got_a_new_file_meanwhile_keeps_that_file_alone() {
    let fixture = Fixture::new(World::UserKernel, "mkdir d; echo x > d/x; echo f > f");
    fixture.run("rm -r d; echo 2 > f");
    let digest = shown(&fixture);
    sh(&fixture.project, "echo new > d/new");
    apply_all(&fixture, &digest).unwrap();
    assert_eq!(fixture.real(), ["d d 755", "d/new f 644 new\n", "f f 644 2\n"]);
    assert_eq!(fixture.lines(), [""; 0]);
}

#[test]
fn a_folder_that_became_a_file_is_a_conflict_while_it_holds_what_the_session_never_saw() {
    let fixture = Fixture::new(World::UserKernel, "mkdir -p d/e; echo x > d/e/x; echo f > f");
    fixture.run("rm -r d; echo file > d; echo 2 > f");
    let digest = shown(&fixture);
    sh(&fixture.project, "echo new > d/e/new");
    let before = fixture.real();
    let failure = apply_all(&fixture, &digest).unwrap_err();
    assert_eq!(failure.kind, Kind::Conflict);
    assert!(failure.message.contains("d/e/new"), "{}", failure.message);
    assert_eq!(fixture.real(), before);
}

#[test]
fn only_what_was_shown_is_applied() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f");
    fixture.run("echo 2 > f");
    let digest = shown(&fixture);
    fixture.run("echo 3 > f");
    let failure = apply_all(&fixture, &digest).unwrap_err();
    assert_eq!(failure.kind, Kind::Refused);
    assert_eq!(fixture.real(), ["f f 644 1\n"]);
}

#[test]
fn a_failure_or_a_crash_at_any_step_leaves_nothing_behind() {
    for world in [World::UserKernel, World::UserFuse] {
        let fixture = Fixture::new(world, BASE);
        let before = fixture.real();
        let merged = fixture.run(TASK);
        let digest = shown(&fixture);
        let count = steps(&fixture);
        assert!(count > 40, "{count}");
        // All of them in one world, some in the other.
        let stride = if world == World::UserFuse { 13 } else { 5 };
        for (crash, at) in
            (0..count).map(|at| (false, at)).chain((0..=count).map(|at| (true, at))).step_by(stride)
        {
            let mut stop = |index: usize| {
                if index != at {
                    return Ok(());
                }
                assert!(!crash, "crashed on purpose");
                Err(Failure::new(Kind::Failed, "failed on purpose"))
            };
            let result = quietly(|| apply_stopping(&fixture, &digest, &mut stop));
            match result {
                Ok(result) => assert_eq!(result.unwrap_err().message, "failed on purpose"),
                Err(_) => {
                    let project = AbsPath::from_path(&fixture.project).unwrap();
                    assert!(recover(&fixture.state, &project).unwrap().is_some());
                }
            }
            assert_eq!(fixture.real(), before, "{world:?} {crash} {at}");
        }
        land(&fixture).unwrap();
        if world == World::UserKernel {
            assert_eq!(fixture.real(), landable(merged.clone()));
        }
        assert_eq!(
            kept(&fixture.state, &AbsPath::from_path(&fixture.project).unwrap()),
            [] as [PathBuf; 0]
        );
    }
}

/// Runs something that panics on purpose. The hook stays: tests run side by side, and another's panic must be seen.
pub(in crate::land) fn quietly<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(run))
}

pub(super) fn steps(fixture: &Fixture) -> usize {
    let session = fixture.session();
    let layer = project_of(&session).unwrap();
    let view = LayerView::read(&session, layer, false).unwrap();
    let selection = Selection::default();
    let picked = selection.pick(&view.changeset, &fixture.id).unwrap();
    let holds = |c: &&Change| picked.holds(c) && c.landable;
    let chosen: Vec<&Change> = view.changeset.changes.iter().filter(holds).collect();
    let project = Tree::open(&fixture.project).unwrap();
    plan::plan(&view.changeset, &chosen, &[], &view.masks, &project).unwrap().steps.len()
}

#[test]
fn a_folder_exchanged_for_a_link_is_never_followed() {
    let fixture = Fixture::new(World::UserKernel, "mkdir d; echo x > d/x");
    fixture.run("echo y > d/y; echo 2 > d/x");
    let digest = shown(&fixture);
    sh(fixture.dir.path(), "mkdir out; echo x > out/x; cd project; mv d ..; ln -s ../out d");
    let failure = apply_all(&fixture, &digest).unwrap_err();
    assert_eq!(failure.kind, Kind::Conflict);
    assert_eq!(list(&fixture.dir.path().join("out")), ["x f 644 x\n"]);
}

#[test]
fn set_id_bits_and_hidden_paths_do_not_land() {
    let masks = vec![Mask { path: AbsPath::new("/.env").unwrap(), kind: MaskKind::Missing }];
    let fixture = Fixture::masked(World::UserKernel, "echo 1 > f", masks);
    fixture.run("echo x > suid; chmod 4755 suid; echo x > .env; echo 2 > f; mkdir -m 2755 sg");
    assert_eq!(
        fixture.lines(),
        [
            "added -:- -> file:0644 .env landable=false",
            "modified file:0644 -> file:0644 f",
            "added -:- -> dir:2755 sg",
            "added -:- -> file:4755 suid landable=false",
        ]
    );
    land(&fixture).unwrap();
    assert_eq!(fixture.real(), ["f f 644 2\n", "sg d 2755"]);
}

#[test]
fn the_other_back_ends_marks_are_plain_content() {
    let fixture = Fixture::new(World::UserKernel, "mkdir d; echo x > d/x; echo y > y");
    fixture.run(
        ": > .wh.y; : > d/.wh..wh..opq; setfattr -n user.fuseoverlayfs.opaque -v y d; \
         setfattr -n user.overlay.opaque -v y d; setfattr -n user.overlay.whiteout -v y y || true",
    );
    assert_eq!(
        fixture.lines(),
        ["added -:- -> file:0644 .wh.y", "added -:- -> file:0644 d/.wh..wh..opq"]
    );
    let fixture = Fixture::new(World::UserFuse, "mkdir d; echo x > d/x; echo y > y");
    fixture.run("echo z > d/z; setfattr -n user.overlay.opaque -v y d");
    assert_eq!(fixture.lines(), ["added -:- -> file:0644 d/z"]);
}

#[test]
fn hostile_layers_are_shown_without_waiting_and_without_following() {
    let fixture = Fixture::new(World::UserKernel, "echo r > README");
    fixture.task(
        "ln -s /etc/passwd p; rm README; ln -s /proc/self/environ README; mkfifo f; ln -s /dev/zero z; \
         truncate -s 1T huge; mkdir closed; echo x > closed/x; chmod 000 closed; echo x > unread; chmod 000 unread; \
         perl -e 'for (1..300) { mkdir q(a) x 20; chdir q(a) x 20 or die }'",
    );
    let start = std::time::Instant::now();
    let lines = fixture.lines();
    assert!(start.elapsed() < Duration::from_secs(10));
    let has = |text: &str| lines.iter().any(|l| l.starts_with(text));
    assert!(has("type file:0644 -> symlink:- README new_target=/proc/self/environ"), "{lines:?}");
    assert!(has("special -:- -> fifo:0644 f landable=false"), "{lines:?}");
    assert!(has("added -:- -> file:0644 huge"), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("added -:- -> dir:0755 aaaa") && l.ends_with("landable=false")),
        "{lines:?}"
    );
    assert!(!String::from_utf8_lossy(&fixture.patch_without("huge")).contains("root:"));
}

/// A stream of numbers from a seed: every failure can be had again.
pub(in crate::land) struct Dice(pub u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn path(&mut self) -> String {
        let names = ["a", "b", "c", "d.x", "d-x", "d"];
        let depth = 1 + self.roll(3);
        (0..depth).map(|_| names[self.roll(names.len())]).collect::<Vec<_>>().join("/")
    }

    /// Shell lines, each of which may fail.
    pub(in crate::land) fn script(&mut self, lines: usize) -> String {
        let mut out = String::new();
        for n in 0..lines {
            let (p, q) = (self.path(), self.path());
            out += &match self.roll(12) {
                0..=2 => format!("mkdir -p $(dirname {p}) && echo {n} >> {p}"),
                3 => format!("mkdir -p {p}"),
                4 => format!("rm -rf {p}"),
                5 => format!("mv -T {p} {q}"),
                6 => format!("rm -rf {p} && ln -s {q} {p}"),
                7 => {
                    // A folder that cannot be listed could not be compared.
                    let dir = ["755", "700", "2755", "500"][self.roll(4)];
                    let file = ["600", "644", "755", "700"][self.roll(4)];
                    format!("chmod $(test -d {p} && echo {dir} || echo {file}) {p}")
                }
                8 => format!("rm -rf {p} && mkdir {p} && echo {n} > {p}/new"),
                9 => format!("rm -rf {p} && printf '\\0{n}' > {p}"),
                10 => format!("cp -rT {p} {q}"),
                _ => format!("touch {p}"),
            };
            out += " 2>/dev/null || true\n";
        }
        out
    }
}

#[test]
fn whatever_a_session_did_landing_gives_the_project_it_saw() {
    for seed in 0..9 {
        let mut dice = Dice(seed);
        let here: Vec<World> = WORLDS.into_iter().filter(|w| w.is_here()).collect();
        let world = here[usize::try_from(seed).unwrap() % here.len()];
        let fixture = Fixture::new(world, &dice.script(40));
        for round in 0..2 {
            let before = fixture.real();
            let merged = fixture.run(&dice.script(25));
            if world == World::UserFuse && before.iter().any(|l| l.contains(" d 2")) {
                // The back end loses these bits: tried elsewhere.
                continue;
            }
            if fixture.review().has_landable() {
                land(&fixture).unwrap_or_else(|f| {
                    panic!("{seed} {round} {world:?}: {f}\n{:#?}", fixture.lines())
                });
            }
            assert_eq!(fixture.real(), merged, "{seed} {round} {world:?}");
            assert_eq!(fixture.lines(), [""; 0], "{seed} {round} {world:?}");
            fixture.give_back();
        }
    }
}

#[test]
fn a_project_on_another_file_system_is_staged_there_and_left_clean() {
    for base in ["echo 1 > f; echo d > d; git init -q .", "echo 1 > f; echo d > d"] {
        let fixture = Fixture::elsewhere(World::UserKernel, base);
        fixture.run("echo 2 > f; rm d; mkdir n; echo n > n/n");
        let (digest, before) = (shown(&fixture), fixture.real());
        let mut stop = |at| if at == 2 { Err(Failure::new(Kind::Failed, "stop")) } else { Ok(()) };
        apply_stopping(&fixture, &digest, &mut stop).unwrap_err();
        assert_eq!(fixture.real(), before);
        land(&fixture).unwrap();
        let outside = |l: &String| !l.starts_with(".git");
        let real: Vec<String> = fixture.real().into_iter().filter(outside).collect();
        assert_eq!(real, ["f f 644 2\n", "n d 755", "n/n f 644 n\n"]);
        // What undoing needs lies where git does not look; once it is done, nothing is left.
        let target = crate::land::undo::find(&fixture.state, Some("aaaaaaaaaa"), None).unwrap();
        crate::land::undo::undo(&fixture.state, &target, &fixture.key()).unwrap();
        assert_eq!(fixture.real(), before);
        let beside = fixture.project.parent().unwrap();
        assert_eq!(std::fs::read_dir(beside).unwrap().count(), 1);
    }
}

#[test]
fn two_landings_at_once_are_one() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f");
    fixture.run("echo 2 >> f; for i in $(seq 50); do echo $i > n$i; done");
    let digest = shown(&fixture);
    let selection = Selection::default();
    let results: Vec<Result<Landed>> = std::thread::scope(|scope| {
        let land = || apply_these(&fixture, &selection, &digest);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(land)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    let rest = results.into_iter().filter_map(Result::err);
    assert!(rest.map(|f| f.kind).all(|kind| kind == Kind::Nothing));
    assert_eq!(fixture.session().state.landing.count, 1);
    assert!(fixture.real().contains(&"f f 644 1\n2\n".to_owned()));
}

#[test]
fn a_running_session_lands_as_it_is_and_keeps_its_layer() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > f");
    fixture.run("echo 2 > f");
    let digest = shown(&fixture);
    let _running = fixture.session().try_lock().unwrap().unwrap();
    assert_eq!(fixture.review().digest, digest);
    assert!(fixture.review().is_live());
    let failure = crate::land::discard::discard(&fixture.state, &fixture.id).unwrap_err();
    assert_eq!(failure.kind, Kind::Refused);
    apply_these(&fixture, &Selection::default(), &digest).unwrap();
    assert_eq!(fixture.real(), ["f f 644 2\n"]);
    assert!(fixture.review().selected().next().is_none());
    let layer = crate::land::layer::project_of(&fixture.session()).unwrap().id.clone();
    assert!(fixture.session().upper(&layer).join("f").exists());
}

#[test]
fn discarding_removes_folders_of_any_mode_and_follows_no_link() {
    let fixture = Fixture::new(World::UserKernel, "echo 1 > tracked");
    let outside = fixture.dir.path().join("outside");
    sh(fixture.dir.path(), "mkdir outside; echo keep > outside/keep");
    fixture.task(&format!(
        "rm tracked; mkdir -p x/y; echo 1 > x/y/z; ln -s {} x/out; chmod 000 x/y; chmod 555 x; \
         perl -e 'for (1..3000) {{ open F, \">m$_\" }}'",
        outside.display()
    ));
    crate::land::discard::discard(&fixture.state, &fixture.id).unwrap();
    assert!(!fixture.session().dir.join("layers").exists());
    assert!(fixture.session().state.landing.discarded_at.is_some());
    assert_eq!(list(&outside), ["keep f 644 keep\n"]);
    let again = crate::land::discard::discard(&fixture.state, &fixture.id).unwrap_err();
    assert_eq!(again.kind, Kind::Nothing);
    assert_eq!(fixture.real(), ["tracked f 644 1\n"]);
}

#[test]
fn the_replaced_files_attributes_and_access_list_stay_and_a_hard_link_is_told() {
    let fixture = Fixture::new(
        World::UserKernel,
        "echo 1 > f; setfattr -n user.note -v kept f; setfacl -m u:4242:r f; echo 1 > h; ln h h2",
    );
    fixture.task("echo 2 >> f; echo 2 >> h");
    let review = fixture.review();
    let told = review.selected().find(|c| c.path.as_bytes() == b"h").unwrap();
    assert!(told.reason.as_deref().unwrap().contains("hard links"));
    drop(review);
    land(&fixture).unwrap();
    sh(
        &fixture.project,
        "test \"$(getfattr --only-values -n user.note f)\" = kept; getfacl -n f | grep -q '^user:4242:r'; \
         test \"$(cat h2)\" = 1; test \"$(wc -l < h)\" = 2",
    );
}

#[test]
fn capabilities_and_a_group_that_are_lost_are_told_before() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new(World::UserKernel, "echo 1 > c; chmod 755 c; echo 1 > plain");
    let set = Command::new("setfattr")
        .args([
            "-n",
            "security.capability",
            "-v",
            "0x0100000200040000000000000000000000000000",
            "c",
        ])
        .current_dir(&fixture.project)
        .status();
    if !set.is_ok_and(|status| status.success()) {
        // Not in this user namespace.
        return;
    }
    fixture.task("echo 2 > c2; chmod 755 c2; mv c2 c; echo 2 > plain");
    let review = fixture.review();
    let told = |path: &str| {
        let change = review.selected().find(|c| c.path.as_bytes() == path.as_bytes()).unwrap();
        change.reason.clone()
    };
    assert!(told("c").unwrap().contains("capabilities"));
    assert_eq!(told("plain"), None);
}

#[test]
fn what_is_ignored_lands_only_when_asked_for_and_keeps_its_folder() {
    let fixture = Fixture::new(
        World::UserKernel,
        "git init -q .; echo '*.o' > .gitignore; mkdir d; echo c > d/c; echo o > d/o.o; mkdir e; echo c > e/c",
    );
    fixture.run("rm -r d; rm -r e; echo x > x.o; echo f > f");
    let plain = |fixture: &Fixture| -> Vec<String> {
        fixture.real().into_iter().filter(|l| !l.starts_with(".git")).collect()
    };
    let landed = land(&fixture).unwrap();
    assert_eq!(landed.staying.len(), 1);
    assert_eq!(plain(&fixture), ["d d 755", "d/o.o f 644 o\n", "f f 644 f\n"]);
    let all = Selection { with_ignored: true, ..Selection::default() };
    let digest = Review::of(&fixture.session(), None, all.clone()).unwrap().digest;
    apply_these(&fixture, &all, &digest).unwrap();
    assert_eq!(plain(&fixture), ["f f 644 f\n", "x.o f 644 x\n"]);
}

#[test]
fn folders_that_forbid_writing_are_opened_up_and_closed_again() {
    let fixture = Fixture::new(
        World::UserKernel,
        "mkdir -p d/sub gone; echo 1 > d/f; echo 1 > d/sub/f; echo 1 > gone/f; chmod 555 d/sub d gone",
    );
    let merged = fixture.run(
        "chmod 755 d d/sub gone; echo 2 > d/f; rm d/sub/f; echo n > d/sub/n; rm -r gone; \
         mkdir closed; echo c > closed/c; chmod 500 closed; chmod 555 d/sub d",
    );
    land(&fixture).unwrap();
    assert_eq!(fixture.real(), merged);
}

#[test]
fn more_changes_than_land_at_once_are_refused_and_as_many_are_not() {
    let id = SessionId::new("abcdefghij").unwrap();
    assert!(refuse_more_than(3, &id, 3).is_ok());
    let failure = refuse_more_than(3, &id, 4).unwrap_err();
    assert_eq!(failure.kind, Kind::Refused);
    assert!(failure.to_string().contains("4 changes are more than land at once (3)"), "{failure}");
    assert!(failure.hints.iter().any(|hint| hint.contains("land abcdefghij --apply -- PATH")));
    assert!(refuse_too_many(&id, MOST).is_ok() && refuse_too_many(&id, MOST + 1).is_err());
}
