use super::tests::{land, shown, steps};
use super::*;
use crate::land::layer::project_of;
use crate::land::testing::{Fixture, WORLDS, World, list, sh};
use landbox_shared::policy::{Mask, MaskKind};

/// What the layer holds, marks included.
fn layer(fixture: &Fixture) -> Vec<String> {
    let session = fixture.session();
    list(&session.upper(&project_of(&session).unwrap().id))
}

fn worlds() -> impl Iterator<Item = World> {
    WORLDS.into_iter().filter(|world| world.is_here())
}

#[test]
fn landed_changes_leave_the_layer_in_every_world() {
    for world in worlds() {
        let fixture = Fixture::new(
            world,
            "mkdir -p d/sub gone/deep again modes; echo f > f; echo x > d/sub/x; echo g > gone/deep/g; \
             echo a > again/a; echo k > again/k; echo m > m; echo old > old; ln -s f l; echo t > t; mkdir dirtofile",
        );
        fixture.run(
            "echo 2 >> f; echo 2 >> d/sub/x; rm -r gone; rm -r again; mkdir again; echo k > again/k; \
             echo n > again/n; chmod 750 modes; chmod +x m; mkdir -p new/deep; echo n > new/deep/n; mv old moved; \
             ln -sfn m l; rm t; mkdir t; echo t > t/t; rmdir dirtofile; echo d > dirtofile; mkdir -m 700 private",
        );
        land(&fixture).unwrap();
        assert_eq!(layer(&fixture), [""; 0], "{world:?}");
        assert_eq!(fixture.lines(), [""; 0], "{world:?}");
        let real = fixture.real();
        fixture.give_back();
        assert_eq!(fixture.run("true"), real, "{world:?}");
    }
}

#[test]
fn a_resumed_session_sees_and_changes_what_the_owner_made_of_landed_files() {
    for world in worlds() {
        let fixture =
            Fixture::new(world, "mkdir d; echo 1 > f; echo r > r; echo x > d/x; echo y > d/y");
        fixture.run("echo 2 >> f; rm r; rm -r d; mkdir d; echo x2 > d/x; mkdir n; echo n > n/n");
        land(&fixture).unwrap();
        sh(
            &fixture.project,
            "echo owner >> f; echo back > r; echo x3 > d/x; echo z > d/z; echo o > n/o; rm n/n",
        );
        fixture.give_back();
        let real = fixture.real();
        assert_eq!(fixture.lines(), [""; 0], "{world:?}");
        let seen = fixture.run("echo 3 >> f; echo 3 >> r; rm d/z; echo 3 >> n/o; cat f > copy");
        assert_ne!(seen, real);
        land(&fixture).unwrap();
        assert_eq!(fixture.real(), seen, "{world:?}");
        assert!(seen.iter().any(|l| l.starts_with("copy ") && l.contains("owner")), "{seen:?}");
        assert_eq!(layer(&fixture), [""; 0], "{world:?}");
    }
}

#[test]
fn what_did_not_land_stays_as_it_is() {
    for world in worlds() {
        let base = "git init -q .; printf 'out/\\n.env\\n' > .gitignore; mkdir -p out d/out; echo e > .env; \
                    echo o > out/o; echo p > d/out/p; echo x > d/x; git add -A";
        let masks =
            vec![Mask { path: AbsPath::new("/m/hidden").unwrap(), kind: MaskKind::Missing }];
        let fixture = Fixture::masked(world, base, masks);
        fixture.run(
            "echo 2 >> .env; rm out/o; echo b > out/b; rm -r d; mkdir d; echo x2 > d/x; mkdir d/out; \
             echo q > d/out/q; mkdir m; echo h > m/hidden; echo s > m/seen; echo hook > .git/hook; mkfifo pipe",
        );
        let landing: Vec<String> = fixture.lines();
        land(&fixture).unwrap();
        let left: Vec<String> = fixture.lines();
        let landed = ["d/x", "m/seen"];
        let rest: Vec<String> = landing
            .into_iter()
            .filter(|line| !landed.iter().any(|path| line.ends_with(&format!(" {path}"))))
            .collect();
        assert_eq!(left, rest, "{world:?}");
        let names: Vec<String> =
            layer(&fixture).iter().map(|l| l.split(' ').next().unwrap_or("").to_owned()).collect();
        for path in [".env", "out/b", "d/x", "d/out/q", "m/hidden", ".git/hook", "pipe"] {
            assert!(names.iter().any(|n| n == path), "{world:?} {path}: {names:?}");
        }
        // Nothing is left to land: the folder that hides the real one still does.
        fixture.give_back();
        let seen = fixture.run("true");
        assert!(!seen.iter().any(|l| l.starts_with("d/out/p ")), "{world:?} {seen:?}");
        assert_eq!(land(&fixture).unwrap_err().kind, Kind::Nothing, "{world:?}");
    }
}

#[test]
fn what_the_owner_changed_during_the_landing_leaves_the_sessions_copy_in_the_layer() {
    let fixture = Fixture::new(World::UserKernel, "mkdir d; echo 1 > f; echo x > d/x; echo r > r");
    fixture.run("echo 2 >> f; rm r; rm -r d; mkdir d; echo y > d/y");
    let (count, digest) = (steps(&fixture), shown(&fixture));
    let project = fixture.project.clone();
    let mut edit = |index: usize| {
        if index == count {
            sh(&project, "echo owner > f; echo back > r; echo z > d/z");
        }
        Ok(())
    };
    super::tests::apply_stopping(&fixture, &digest, &mut edit).unwrap();
    fixture.give_back();
    // Not what landed, so what the session wrote stays in the layer, too: nothing is lost, and nothing is a change.
    assert!(layer(&fixture).iter().any(|l| l.starts_with("f f 644 1")));
    assert_eq!(fixture.lines(), [""; 0]);
}

#[test]
fn a_prune_that_broke_off_half_way_changes_nothing() {
    for world in worlds() {
        let fixture = Fixture::new(world, "mkdir d; echo 1 > f; echo 1 > g; echo x > d/x");
        fixture
            .run("echo 2 >> f; echo 2 >> g; rm -r d; mkdir d; echo y > d/y; mkdir n; echo n > n/n");
        let session = fixture.session();
        let upper = session.upper(&project_of(&session).unwrap().id);
        let kept = fixture.dir.path().join("kept");
        sh(fixture.dir.path(), &format!("cp -a {} kept", upper.display()));
        land(&fixture).unwrap();
        // As if only `g` had gone.
        std::fs::remove_file(kept.join("g")).unwrap();
        std::fs::remove_dir_all(&upper).unwrap();
        std::fs::rename(&kept, &upper).unwrap();
        assert_eq!(fixture.lines(), [""; 0], "{world:?}");
        fixture.give_back();
        let real = fixture.real();
        assert_eq!(fixture.run("true"), real, "{world:?}");
    }
}
