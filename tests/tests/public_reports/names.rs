//! One file by several names: links in homes, projects and rules; git's folders elsewhere.

use super::{change, git, kinds, land, read, set_mode};
use landbox_tests::snapshot::Snapshot;
use landbox_tests::{Place, worlds};
use std::fs;
use std::path::{Path, PathBuf};

/// A repository outside the home with a linked worktree in it.
fn worktree(place: &Place, relative: bool) -> (PathBuf, PathBuf) {
    let (main, tree) = (place.outside.join("main"), place.home.join("wt"));
    place.mkdir(&main);
    git(place, &main, &["init", "-q", "."]);
    git(place, &main, &["commit", "-q", "--allow-empty", "-m", "i"]);
    git(place, &main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    if relative {
        place.write(tree.join(".git"), "gitdir: ../../outside/main/.git/worktrees/wt\n");
        place.write(main.join(".git/worktrees/wt/gitdir"), "../../../../../home/wt/.git\n");
    }
    (main, tree)
}

const COMMIT: &str = "echo a > f; git add f; git -c user.name=T -c user.email=t@example.org commit -qm msg; \
                      git log --format=%s";

worlds! {
    // Half of the paths in the link's form, half in the real one.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_home_below_a_link_is_one_home_for_programs_variables_and_rules(world) {
        let mut place = Place::new(world);
        let real = place.home.clone();
        // As where /home is a link to /var/home.
        let link = place.root().join("homes");
        place.symlink(place.root(), &link);
        place.home = link.join("home");
        place.write(real.join(".local/bin/agent"), "#!/bin/sh\ncat $AGENT_DIR/settings.json\n");
        set_mode(real.join(".local/bin/agent"), 0o755);
        place.write(real.join("ref/file"), "real\n");
        let path = format!("{}:/usr/bin:/bin", place.home.join(".local/bin").display());
        let hide = real.join(".ssh").display().to_string();
        let script = "agent; echo x > $HOME/ref/file || echo refused; cat ~/.ssh/id_ed25519 || echo hidden; \
                      cd \"$HOME/project\" && echo a > a; cd \"$(pwd -P)\" && echo b > b; ls";
        let out = place
            .session(["--hide", &hide, "--read-only", "~/ref"], ["sh", "-c", script])
            .env("PATH", path)
            .env("AGENT_DIR", place.home.join(".config/tool"))
            .cwd(place.home.join("project"))
            .output()
            .ok();
        assert_eq!(out.text(), "{}\nrefused\nhidden\nREADME.md\na\nb\nlink\nsrc\n", "{}", out.errors());
        place.home = real;
        assert_eq!(kinds(&place), ["added a", "added b"]);
        assert!(!place.project.join("a").exists() && !place.project.join("b").exists());
    }

    // A rule on a link that leads nowhere (yet) must neither stop the start nor leave a hole.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_hidden_link_that_leads_nowhere_hides_what_appears_there(world) {
        let place = Place::new(world);
        place.mkdir(place.home.join("dots"));
        place.symlink("dots/netrc", place.home.join(".netrc"));
        let script = "echo ready; read go; cat ~/.netrc ~/dots/netrc; rm ~/.netrc; cat ~/dots/netrc; true";
        let mut live = place.session(["--hide", "~/.netrc"], ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        place.write(place.home.join("dots/netrc"), "TOKEN\n");
        live.write(b"\n");
        assert_eq!(live.wait().ok().text(), "ready\n");
        assert_eq!(read(place.home.join("dots/netrc")), "TOKEN\n");
    }

    // A later mount on a parent must not cover what lies deeper.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_project_below_a_read_only_folder_is_written_in_its_layer(world) {
        let place = Place::new(world);
        place.write(place.outside.join("repo/f"), "old\n");
        let parent = place.outside.display().to_string();
        let out = place
            .session(["--read-only", &parent], ["sh", "-c", "echo new > f; cat f; echo x > ../data.txt || echo refused"])
            .cwd(place.outside.join("repo"))
            .output()
            .ok();
        assert_eq!(out.text(), "new\nrefused\n");
        assert_eq!(read(place.outside.join("repo/f")), "old\n");
    }

    // Commits of a linked worktree go to a folder outside the project.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn files_of_a_linked_worktree_land_and_its_commits_are_shown_and_kept(world) {
        for relative in [false, true] {
            let place = Place::new(world);
            let (main, tree) = worktree(&place, relative);
            let before = Snapshot::take(&[&main], &[]);
            let out = place.session::<&str, _>([], ["sh", "-c", COMMIT]).cwd(&tree).output().ok();
            assert_eq!(out.text(), "msg\ni\n", "{}", out.errors());
            let mut diff = place.landbox(["diff", "--json"]);
            let card: serde_json::Value = diff.cwd(&tree).output().ok().json();
            assert_eq!(change(&card, "f")["landable"], true);
            let others = card["other_layers"].as_array().unwrap();
            let kept = others.iter().find(|l| l["layer"] == "worktree").unwrap_or_else(|| panic!("{card:#}"));
            assert!(kept["files"].as_u64() > Some(2), "{kept}");
            let shown = place.landbox(["diff"]).cwd(&tree).output().ok().text();
            assert!(shown.contains("worktree") && shown.contains("never landed"), "{shown}");
            place.landbox(["land", "--apply", "--yes"]).cwd(&tree).output().ok();
            assert_eq!(read(tree.join("f")), "a\n");
            before.same_as(&Snapshot::take(&[&main], &[]));
            let again = place.json(["ls"])["sessions"][0]["id"].as_str().unwrap().to_owned();
            let out = place.landbox(["resume", &again, "--", "git", "log", "--format=%s"]).output().ok();
            assert_eq!(out.text(), "msg\ni\n");
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_submodule_can_commit_and_the_repository_above_stays(world) {
        let place = Place::new(world);
        let (part, main) = (place.outside.join("part"), place.outside.join("main"));
        for repo in [&part, &main] {
            place.mkdir(repo);
            git(&place, repo, &["init", "-q", "."]);
            git(&place, repo, &["commit", "-q", "--allow-empty", "-m", "i"]);
        }
        git(&place, &main, &["submodule", "--quiet", "add", part.to_str().unwrap(), "sub"]);
        let before = Snapshot::take(&[&main, &part], &[]);
        let out = place.session::<&str, _>([], ["sh", "-c", COMMIT]).cwd(main.join("sub")).output().ok();
        assert_eq!(out.text(), "msg\ni\n", "{}", out.errors());
        before.same_as(&Snapshot::take(&[&main, &part], &[]));
    }

    // A forged pointer must not make a folder of the owner's writable, by any of the three ways git knows.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_forged_git_pointer_widens_nothing(world) {
        let place = Place::new(world);
        let victim = place.outside.join("victim");
        place.write(victim.join("worktrees/x/commondir"), "../..\n");
        place.write(victim.join("worktrees/x/gitdir"), format!("{}\n", place.outside.join("elsewhere/.git").display()));
        place.write(victim.join("config"), "[core]\n\tworktree = /somewhere/else\n");
        place.write(victim.join("HEAD"), "ref: refs/heads/main\n");
        for folder in ["objects", "refs"] {
            place.mkdir(victim.join(folder));
        }
        let before = Snapshot::take(&[&victim], &[]);
        for (pointer, at) in [("worktrees/x", "worktrees/x"), ("", "."), ("../.ssh", "../../home/.ssh")] {
            place.write(place.project.join(".git"), format!("gitdir: {}\n", victim.join(pointer).display()));
            let script = format!("echo x > {}/new || echo refused; ls -A ~/.ssh", victim.join(at).display());
            let out = place.sh(&script).output().ok();
            assert!(out.text().contains("refused") || at.contains(".ssh"), "{at}: {}", out.text());
            let layers = place.json(["show"])["layers"].clone();
            assert_eq!(layers.as_array().unwrap().len(), 2, "{layers}");
        }
        before.same_as(&Snapshot::take(&[&victim], &[]));
        assert!(!place.home.join(".ssh/new").exists());
    }

    // The project's own folder given by a link, and a link in it to a folder of the home.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_is_written_through_a_link_of_the_project_is_no_change_of_the_project(world) {
        let place = Place::new(world);
        place.write(place.home.join("shared/f"), "real\n");
        place.symlink("../shared", place.project.join("shared"));
        let out = place.sh("echo new > shared/f; cat shared/f; echo y > own").output().ok();
        assert_eq!(out.text(), "new\n");
        assert_eq!(kinds(&place), ["added own"]);
        land(&place);
        assert_eq!(read(place.home.join("shared/f")), "real\n");
        assert_eq!(fs::read_link(place.project.join("shared")).unwrap(), Path::new("../shared"));
    }
}
