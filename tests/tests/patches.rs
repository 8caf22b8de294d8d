//! The patch against git itself, of what real sessions did.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, worlds};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir).env("GIT_CEILING_DIRECTORIES", dir);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse] fn git_works_in_a_folder_of_a_repository(world) {
        let place = Place::new(world);
        let script = "git init -q . && git add -A && git -c user.name=n -c user.email=e commit -qm i";
        let mut make = Command::new("sh");
        make.args(["-c", script]).current_dir(&place.project).uid(world.ids().0).gid(world.ids().1);
        assert!(make.env("HOME", &place.home).status().unwrap().success());
        let script = "git log --format=%s; echo x >> main.py; git status --short";
        let out = place.sh(script).cwd(place.project.join("src")).output().ok();
        assert_eq!(out.text(), "i\n M main.py\n", "{}", out.errors());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse] fn git_applies_all_of_a_patch_where_folders_give_way_to_files(world) {
        let place = Place::new(world);
        for folder in ["plain/empty", "deep/a/b", "bare", "end /of"] {
            place.mkdir(place.project.join(folder));
        }
        for file in ["plain/x", "deep/y", "full/z", "end /empty"] {
            place.write(place.project.join(file), if file.starts_with("end") { "" } else { "x\n" });
        }
        let copy = place.outside.join("copy");
        let status = Command::new("cp").arg("-a").args([&place.project, &copy]).status().unwrap();
        assert!(status.success());
        let script = "for d in plain deep full bare; do rm -r $d; echo now a file > $d; done; \
                      rm 'end /empty'; echo new >> README.md";
        place.sh(script).output().ok();
        let patch = place.outside.join("x.patch");
        place.landbox(["land", "--patch", patch.to_str().unwrap()]).output().ok();
        let card = place.json(["diff"]);
        let in_patch = |path: &str| {
            let changes = card["changes"].as_array().unwrap();
            changes.iter().find(|c| c["path"] == path).unwrap()["in_patch"].as_bool().unwrap()
        };
        // Git takes a folder away with the last file in it, and no sooner.
        assert_eq!(
            ["plain", "deep", "full", "bare", "end /empty", "README.md"].map(in_patch),
            [false, false, true, true, true, true]
        );
        git(&copy, &["apply", "--check", patch.to_str().unwrap()]);
        git(&copy, &["apply", patch.to_str().unwrap()]);
        assert!(copy.join("full").is_file() && copy.join("bare").is_file());
        assert!(!copy.join("end /empty").exists() && copy.join("plain/empty").is_dir());
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert!(["plain", "deep", "full", "bare"].iter().all(|d| place.project.join(d).is_file()));
    }
}
