//! Landing into git: branches, commits and mail of what a session changed, in every state a repository may be in.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, World, worlds};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONFIG: &str =
    "[user]\nname = Ada Lóvelace\nemail = ada@example.org\n[init]\ndefaultBranch = main\n";

fn repository(world: World, init: &[&str]) -> Place {
    Place::repository(world, CONFIG, init)
}

/// A bit of everything that git can hold.
const WORK: &str = "echo two >> README.md; rm src/deep/er/file.txt; echo '#!/bin/sh' > run.sh; chmod +x run.sh; \
                    ln -sf README.md link; mkdir -p new/dir; echo x > new/dir/x; printf 'a\\0b' > bin; chmod +x src/main.py";

fn work(place: &Place) {
    place.session(["--name", "s"], ["sh", "-ec", WORK]).output().ok();
}

/// What a repository shows of itself.
fn picture(place: &Place) -> String {
    let index = fs::read(place.project.join(".git/index")).unwrap();
    let head = fs::read_to_string(place.project.join(".git/HEAD")).unwrap();
    let mut names: Vec<String> = walk(&place.project, &place.project.join(".git"));
    names.sort();
    format!("{head}\n{index:?}\n{names:?}\n{}", place.git(&["rev-parse", "HEAD"]))
}

fn walk(dir: &Path, without: &Path) -> Vec<String> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path == without {
            continue;
        }
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            out.extend(walk(&path, without));
        } else if meta.is_symlink() {
            out.push(format!("{} -> {:?}", path.display(), fs::read_link(&path).unwrap()));
        } else {
            let mode = meta.permissions().mode() & 0o777;
            out.push(format!("{} {mode:o} {:?}", path.display(), fs::read(&path).unwrap()));
        }
    }
    out
}

/// A checkout of a branch beside the project, listed.
fn checkout(place: &Place, branch: &str) -> Vec<String> {
    let dir = place.outside.join(format!("checkout-{}", branch.replace('/', "-")));
    place.git(&["clone", "-q", "--no-local", "-b", branch, ".", dir.to_str().unwrap()]);
    listed(&dir)
}

fn listed(dir: &Path) -> Vec<String> {
    let prefix = format!("{}/", dir.display());
    let mut out: Vec<String> =
        walk(dir, &dir.join(".git")).into_iter().map(|line| line.replace(&prefix, "")).collect();
    out.sort();
    out
}

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_branch_holds_the_changes_and_nothing_else_moves(world) {
        let place = repository(world, &[]);
        work(&place);
        let before = picture(&place);
        let out = place.landbox(["land", "--to-branch", "agent/work", "-m", "Do it\n\nAll of it"]).risks_accepted().output().ok();
        assert!(out.errors().contains("Made the branch agent/work with 7 changes"), "{}", out.errors());
        assert_eq!(picture(&place), before);
        assert_eq!(place.git(&["status", "--short"]), "");
        let log = place.git(&["log", "--format=%an|%ae|%cn|%s|%b", "main..agent/work"]);
        assert_eq!(log, "Ada Lóvelace|ada@example.org|Ada Lóvelace|Do it|All of it\n\n");
        place.git(&["fsck", "--strict", "--no-dangling"]);
        let refs = place.git(&["for-each-ref", "--format=%(refname)"]);
        assert_eq!(refs, "refs/heads/agent/work\nrefs/heads/main\n");
        let branch = checkout(&place, "agent/work");
        // The session still has all of it, and landing gives the same files.
        place.landbox(["land", "--apply", "--yes", "--accept-risk", "executable"]).output().ok();
        assert_eq!(listed(&place.project), branch);
    }

    [user_kernel]
    fn a_branch_that_exists_or_has_no_name_is_refused(world) {
        let place = repository(world, &[]);
        work(&place);
        place.git(&["branch", "taken"]);
        place.git(&["branch", "folder/x"]);
        let refs = place.git(&["for-each-ref"]);
        for (name, code) in [("taken", 6), ("main", 6), ("a..b", 2), ("-x", 2), ("", 2), ("@{-1}", 2), ("folder", 1)] {
            let out = place.landbox(["land", &format!("--to-branch={name}")]).risks_accepted().output().expect(code);
            assert!(!out.errors().contains("Made"), "{name}");
            let free = format!("another name is free: --to-branch {name}-2");
            assert_eq!(out.errors().contains(&free), code == 6, "{name}: {}", out.errors());
        }
        assert_eq!(place.git(&["for-each-ref"]), refs);
    }

    [user_kernel]
    fn a_part_of_the_changes_makes_a_branch_and_the_digest_binds_it(world) {
        let place = repository(world, &[]);
        work(&place);
        let wrong = format!("sha256:{}", "0".repeat(64));
        place.landbox(["land", "--to-branch", "b", "--expect", &wrong]).output().expect(6);
        place.landbox(["land", "--to-branch", "b", "--", "README.md", "new"]).output().ok();
        assert_eq!(place.git(&["diff", "--name-only", "main", "b"]), "README.md\nnew/dir/x\n");
    }

    [user_kernel, root_kernel]
    fn a_commit_takes_what_landed_and_leaves_what_is_staged(world) {
        let place = repository(world, &[]);
        place.write(place.project.join("mine.txt"), "staged\n");
        place.git(&["add", "mine.txt"]);
        place.write(place.project.join("mine.txt"), "not staged\n");
        place.write(place.project.join("other.txt"), "untracked\n");
        work(&place);
        let out = place.landbox(["land", "--commit", "--yes", "-m", "Landed", "--accept-risk", "executable"]).output().ok();
        assert!(out.errors().contains("Committed it on main"), "{}", out.errors());
        assert_eq!(place.git(&["status", "--short"]), "AM mine.txt\n?? other.txt\n");
        assert_eq!(place.git(&["log", "--format=%s", "-2"]), "Landed\nfirst\n");
        assert_eq!(place.git(&["show", ":mine.txt"]), "staged\n");
        assert_eq!(place.git(&["diff", "--name-status", "HEAD~", "HEAD"]).lines().count(), 7);
        assert!(place.git(&["reflog", "-1"]).contains("landbox"));
        place.git(&["fsck", "--strict", "--no-dangling"]);
        place.landbox(["land", "--apply", "--yes"]).output().expect(4);
    }

    [user_kernel]
    fn committing_again_what_was_undone_names_the_commit_that_is_in_the_way(world) {
        let place = repository(world, &[]);
        place.sh("echo two > README.md").output().ok();
        place.landbox(["land", "--commit", "--yes"]).output().ok();
        place.landbox(["undo"]).output().ok();
        let out = place.landbox(["land", "--commit", "--yes"]).output().expect(3);
        assert!(out.errors().contains("git reset HEAD~ takes that off"), "{}", out.errors());
        place.git(&["reset", "-q", "HEAD~"]);
        place.landbox(["land", "--commit", "--yes"]).output().ok();
        assert_eq!(place.git(&["show", "HEAD:README.md"]), "two\n");
    }

    [user_kernel]
    fn a_commit_leaves_what_the_owner_has_told_git_of_its_files(world) {
        let place = repository(world, &[]);
        for name in ["both", "skipped", "assumed", "gone"] {
            place.write(place.project.join(name), "one\n");
        }
        place.git(&["add", "-A"]);
        place.git(&["commit", "-qm", "second"]);
        place.git(&["update-index", "--skip-worktree", "both", "skipped", "gone"]);
        place.git(&["update-index", "--assume-unchanged", "both", "assumed", "src/main.py"]);
        place.sh("for f in both skipped assumed README.md; do echo two > $f; done; rm gone").output().ok();
        place.landbox(["land", "--commit", "--yes"]).output().ok();
        let flags = place.git(&["ls-files", "-v", "both", "skipped", "assumed", "gone", "README.md", "src/main.py"]);
        assert_eq!(flags, "H README.md\nh assumed\ns both\nS skipped\nh src/main.py\n");
        assert_eq!(place.git(&["diff", "--cached", "--name-only"]), "");
        assert_eq!(place.git(&["show", "HEAD:both"]), "two\n");
    }

    [user_kernel]
    fn a_commit_that_would_take_in_the_owner_s_edits_is_refused_before_anything_lands(world) {
        let refused = |prepare: &dyn Fn(&Place), code: i32, why: &str| {
            let place = repository(world, &[]);
            prepare(&place);
            work(&place);
            let before = picture(&place);
            let out = place.landbox(["land", "--commit", "--yes"]).output().expect(code);
            assert!(out.errors().contains(why), "{why}: {}", out.errors());
            assert_eq!(picture(&place), before, "{why}");
        };
        refused(&|p| p.write(p.project.join("README.md"), "edited\n"), 3, "README.md");
        refused(&|p| { fs::remove_file(p.project.join("README.md")).unwrap() }, 3, "README.md");
        refused(&|p| p.write(p.project.join("bin"), "untracked\n"), 3, "bin");
        refused(&|p| {
            p.write(p.project.join("README.md"), "staged\n");
            p.git(&["add", "README.md"]);
            p.write(p.project.join("README.md"), "# Project\n\nOne line.\n");
        }, 3, "you have staged a change to README.md");
        refused(&|p| p.write(p.project.join(".git/MERGE_HEAD"), "x"), 6, "a merge is under way");
        refused(&|p| p.write(p.project.join(".git/index.lock"), ""), 6, "another git command");
        refused(&|p| p.write(p.home.join(".gitconfig"), "[user]\nuseConfigOnly = true\n"), 1, "who you are");
    }

    [user_kernel]
    fn edits_made_meanwhile_are_merged_into_the_files_and_not_into_the_commit(world) {
        let place = repository(world, &[]);
        let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n{last}\n");
        place.write(place.project.join("f"), lines("1", "8"));
        place.git(&["add", "f"]);
        place.git(&["commit", "-qm", "f"]);
        place.session(["--name", "s"], ["sed", "-i", "s/^8/eight/", "f"]).output().ok();
        place.landbox(["diff"]).output().ok();
        place.write(place.project.join("f"), lines("one", "8"));
        place.landbox(["land", "--commit", "--yes"]).output().ok();
        assert_eq!(fs::read_to_string(place.project.join("f")).unwrap(), lines("one", "eight"));
        assert_eq!(place.git(&["show", "HEAD:f"]), lines("1", "eight"));
        assert_eq!(place.git(&["status", "--short"]), " M f\n");
        // Where both touched the same line, there is no such commit.
        place.git(&["commit", "-qam", "mine"]);
        place.landbox(["resume", "s", "--", "sed", "-i", "s/^eight/acht/", "f"]).output().ok();
        place.landbox(["diff"]).output().ok();
        place.write(place.project.join("f"), lines("one", "huit"));
        let before = picture(&place);
        for args in [&["land", "--commit", "--yes"][..], &["land", "--commit", "--yes", "--resolve-all", "theirs"]] {
            place.landbox(args).output().expect(3);
            assert_eq!(picture(&place), before);
        }
        place.landbox(["land", "--to-branch", "b"]).output().ok();
        assert_eq!(place.git(&["show", "b:f"]), lines("one", "acht"));
    }

    [user_kernel]
    fn what_the_owner_keeps_out_of_the_files_is_not_committed_either(world) {
        let place = repository(world, &[]);
        let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n{last}\n");
        place.write(place.project.join("f"), lines("1", "8"));
        place.git(&["add", "f"]);
        place.git(&["commit", "-qm", "f"]);
        place.session(["--name", "s"], ["sh", "-c", "sed -i s/^8/eight/ f; echo g > g"]).output().ok();
        place.write(place.project.join("f"), lines("one", "8"));
        let before = picture(&place);
        for choice in ["f=mine", "f=skip"] {
            let out = place.landbox(["land", "--commit", "--yes", "--resolve", choice]).output().expect(3);
            assert!(out.errors().contains("with f:"), "{}", out.errors());
            assert_eq!(picture(&place), before);
        }
        // The session's own, and the owner's edit gone: what is committed is what is there.
        place.landbox(["land", "--commit", "--yes", "--resolve", "f=theirs"]).output().ok();
        assert_eq!(place.git(&["show", "HEAD:f"]), lines("1", "eight"));
        assert_eq!(place.git(&["status", "--short"]), "");
    }

    [user_kernel]
    fn a_branch_starts_from_what_the_session_saw(world) {
        let place = repository(world, &[]);
        work(&place);
        let base = place.git(&["rev-parse", "HEAD"]);
        place.write(place.project.join("README.md"), "# Project\n\nAnother line.\n");
        place.git(&["commit", "-qam", "mine"]);
        let out = place.landbox(["land", "--to-branch", "b"]).risks_accepted().output().ok();
        assert!(out.errors().contains("from the commit that the session saw"), "{}", out.errors());
        assert_eq!(place.git(&["rev-parse", "b~"]), base);
        assert_eq!(place.git(&["show", "b:README.md"]), "# Project\n\nOne line.\ntwo\n");
        place.landbox(["land", "--commit", "--yes"]).output().expect(3);
        // Where no commit holds it, there is nothing to start from.
        let place = repository(world, &[]);
        place.write(place.project.join("README.md"), "edited\n");
        work(&place);
        let out = place.landbox(["land", "--to-branch", "b"]).output().expect(3);
        assert!(out.errors().contains("README.md"), "{}", out.errors());
        place.landbox(["land", "--to-branch", "b", "--exclude", "README.md"]).risks_accepted().output().ok();
    }

    [user_kernel]
    fn every_kind_of_repository_is_served_or_refused(world) {
        // SHA-256.
        let place = repository(world, &["--object-format=sha256"]);
        work(&place);
        place.landbox(["land", "--to-branch", "b"]).risks_accepted().output().ok();
        place.landbox(["land", "--commit", "--yes", "--accept-risk", "executable"]).output().ok();
        assert_eq!(place.git(&["status", "--short"]), "");
        assert_eq!(place.git(&["rev-parse", "b^{tree}"]), place.git(&["rev-parse", "HEAD^{tree}"]));
        // HEAD at no branch.
        let place = repository(world, &[]);
        place.git(&["checkout", "-q", "--detach"]);
        work(&place);
        let main = place.git(&["rev-parse", "main"]);
        let out = place.landbox(["land", "--commit", "--yes", "--accept-risk", "executable"]).output().ok();
        assert!(out.errors().contains("HEAD is at no branch"), "{}", out.errors());
        assert_eq!(place.git(&["rev-parse", "main", "HEAD~"]), format!("{main}{main}"));
        assert_eq!(place.git(&["status", "--short"]), "");
        // No commit yet.
        let place = Place::new(world);
        place.write(place.home.join(".gitconfig"), CONFIG);
        place.git(&["init", "-q"]);
        place.sh("echo x > x; mkdir d; echo y > d/y").output().ok();
        place.landbox(["land", "--to-branch", "b"]).output().ok();
        place.landbox(["land", "--commit", "--yes"]).output().ok();
        assert_eq!(place.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "d/y\nx\n");
        assert_eq!(place.git(&["log", "--format=%P"]), "\n");
        assert!(place.git(&["status", "--short"]).starts_with("?? README.md\n"));
        // No repository at all.
        let place = Place::new(world);
        place.sh("echo x > x").output().ok();
        for args in [["land", "--to-branch", "b"], ["land", "--commit", "--yes"]] {
            let out = place.landbox(args).output().expect(6);
            assert!(out.errors().contains("in no git repository"), "{}", out.errors());
        }
        assert!(!place.project.join("x").exists());
    }

    [user_kernel, user_fuse]
    fn a_linked_worktree_and_a_folder_of_a_repository_are_served(world) {
        let place = repository(world, &[]);
        let tree = place.home.join("tree");
        place.git(&["worktree", "add", "-q", "-b", "side", tree.to_str().unwrap()]);
        place.sh("echo more >> README.md").cwd(&tree).output().ok();
        let land = |args: &[&str]| place.landbox(args.iter().copied()).cwd(&tree).output().ok();
        land(&["land", "--to-branch", "b"]);
        land(&["land", "--commit", "--yes"]);
        assert_eq!(place.git_in(&tree, &["status", "--short"]), "");
        assert_eq!(place.git(&["log", "--format=%s", "main..side"]).lines().count(), 1);
        assert_eq!(place.git(&["status", "--short"]), "");
        // A session of a folder below the top.
        let folder = place.project.join("src");
        place.sh("echo '# end' >> main.py; echo z > z").cwd(&folder).output().ok();
        let land = |args: &[&str]| place.landbox(args.iter().copied()).cwd(&folder).output().ok();
        land(&["land", "--to-branch", "c"]);
        assert_eq!(place.git(&["diff", "--name-only", "main", "c"]), "src/main.py\nsrc/z\n");
        land(&["land", "--commit", "--yes"]);
        assert_eq!(place.git(&["status", "--short"]), "");
    }

    [user_kernel]
    fn changes_of_another_repository_in_the_project_are_refused_and_named(world) {
        let place = repository(world, &[]);
        let module = place.outside.join("module");
        place.mkdir(&module);
        place.write(module.join("m.txt"), "m\n");
        place.git_in(&module, &["init", "-q"]);
        place.git_in(&module, &["add", "-A"]);
        place.git_in(&module, &["commit", "-qm", "m"]);
        place.git(&["-c", "protocol.file.allow=always", "submodule", "add", "-q", module.to_str().unwrap(), "sub"]);
        place.git(&["commit", "-qm", "sub"]);
        place.session(["--name", "s"], ["sh", "-c", "echo x >> sub/m.txt; echo x >> README.md"]).output().ok();
        for args in [["land", "--to-branch", "b"], ["land", "--commit", "--yes"]] {
            let out = place.landbox(args).output().expect(6);
            assert!(out.errors().contains("sub is a repository of its own"), "{}", out.errors());
        }
        place.landbox(["land", "--commit", "--yes", "--exclude", "/sub/"]).output().ok();
        assert_eq!(place.git(&["status", "--short"]), "");
    }

    [user_kernel]
    fn mail_is_what_git_am_takes(world) {
        let place = repository(world, &[]);
        place.write(place.project.join("dos.txt"), "one\r\ntwo\r\n");
        place.git(&["add", "-A"]);
        place.git(&["commit", "-qm", "dos"]);
        let mail = place.outside.join("mail");
        let copy: PathBuf = place.outside.join("copy");
        place.git(&["clone", "-q", "--no-local", ".", copy.to_str().unwrap()]);
        let script = format!("{WORK}; printf 'From me\\n-- c\\n' > odd; sed -i 's/two/2/' dos.txt");
        place.session(["--name", "s"], ["sh", "-ec", &script]).output().ok();
        let message = "Grüße: é und ein sehr langer Betreff, der in einem Wort des Kopfes nicht Platz hat ✓\n\n\
                       Body.\n---\ndiff --git a/x b/x\nFrom ada Mon Sep 17 00:00:00 2001\n";
        for exclude in ["dos.txt", "nothing-of-that-name"] {
            let args = ["land", "--mbox", mail.to_str().unwrap(), "-m", message, "--exclude", exclude];
            place.landbox(args).output().ok();
            place.git_in(&copy, &["am", "-q", "--keep-non-patch", mail.to_str().unwrap()]);
            let log = place.git_in(&copy, &["log", "-1", "--format=%an|%ae|%s|%b"]);
            assert!(log.starts_with("Ada Lóvelace|ada@example.org|"), "{log}");
            assert!(log.contains("Grüße: é und ein sehr langer Betreff, der in einem Wort des Kopfes nicht Platz hat ✓|Body.\n ---\n"), "{log}");
            if exclude == "dos.txt" {
                place.git_in(&copy, &["reset", "-q", "--hard", "HEAD~"]);
            }
        }
        place.landbox(["land", "--apply", "--yes", "--accept-risk", "executable"]).output().ok();
        assert_eq!(listed(&copy), listed(&place.project));
    }

    [user_kernel, user_fuse]
    fn nothing_that_a_repository_or_a_session_names_is_run(world) {
        let place = repository(world, &[]);
        let marker = place.outside.join("ran");
        let run = format!("touch {}", marker.display());
        let script = format!("#!/bin/sh\n{run}\ncat\n");
        let program = place.outside.join("evil.sh");
        let everyone = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        place.write(&program, &script);
        everyone(&program);
        // The owner's own hooks and monitors stay out of it, too.
        for hook in ["pre-commit", "post-commit", "commit-msg", "prepare-commit-msg", "reference-transaction",
                     "post-index-change", "post-checkout", "pre-applypatch", "fsmonitor-watchman"] {
            let path = place.project.join(".git/hooks").join(hook);
            place.write(&path, &script);
            everyone(&path);
        }
        place.git(&["config", "core.fsmonitor", program.to_str().unwrap()]);
        for (key, value) in [("diff.external", &program), ("diff.evil.textconv", &program),
                             ("core.pager", &program), ("core.editor", &program)] {
            place.git(&["config", key, value.to_str().unwrap()]);
        }
        fs::remove_file(&marker).unwrap_or_default();
        let p = program.display();
        let work = format!(
            "{WORK}; mkdir -p .git/hooks; printf '#!/bin/sh\\n{run}\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*; \
             printf '[core]\\nfsmonitor={p}\\nhooksPath=.git/hooks\\nsshCommand={p}\\n[filter \"evil\"]\\nclean={p}\\nsmudge={p}\\nrequired=true\\n\
             [diff]\\nexternal={p}\\n[diff \"evil\"]\\ntextconv={p}\\n[alias]\\nls-tree=!{p}\\n[gpg]\\nprogram={p}\\n[commit]\\ngpgSign=true\\n' >> .git/config; \
             printf '* filter=evil diff=evil\\n' > .gitattributes; cp .gitattributes .git/info/attributes; \
             echo /nonexistent > .git/objects/info/alternates; printf 'x' > '.git/refs/heads/$(touch x)'; \
             printf '%040d\\n' 0 > .git/refs/heads/main; echo 'ref: refs/heads/../../../x' > .git/HEAD"
        );
        place.session(["--name", "s"], ["sh", "-ec", &work]).output().ok();
        fs::remove_file(&marker).unwrap_or_default();
        place.landbox(["diff"]).output().ok();
        place.landbox(["land", "--to-branch", "b"]).risks_accepted().output().ok();
        place.landbox(["land", "--mbox", place.outside.join("m").to_str().unwrap()]).output().ok();
        place.landbox(["land", "--commit", "--yes", "--accept-risk", "executable", "--accept-risk", "ignore-rules"]).output().ok();
        assert!(!marker.exists(), "something was run");
        assert!(place.git(&["show", "--stat", "--format=%s", "--no-ext-diff", "--no-textconv", "b"]).contains("README.md"));
    }

    [user_kernel]
    fn a_repository_that_takes_nothing_in_is_an_error_and_nobody_waits_for_it(world) {
        let place = repository(world, &[]);
        place.session(["--name", "s"], ["sh", "-c", "head -c 1000000 /dev/urandom > large"]).output().ok();
        let objects = place.project.join(".git/objects");
        let only_read = |may: &str| assert!(Command::new("chmod").args(["-R", may]).arg(&objects).status().unwrap().success());
        only_read("a-w");
        for args in [&["land", "--to-branch", "b"][..], &["land", "--commit", "--yes"]] {
            let out = place.landbox(args).output().expect(1);
            assert!(out.errors().contains("can't write to the repository"), "{}", out.errors());
        }
        assert!(!place.project.join("large").exists());
        only_read("u+w");
        place.landbox(["land", "--to-branch", "b"]).output().ok();
        assert_eq!(place.git(&["cat-file", "-s", "b:large"]), "1000000\n");
    }

    [user_kernel]
    fn filters_of_the_owner_s_are_neither_run_nor_got_round(world) {
        let place = repository(world, &[]);
        let marker = place.outside.join("ran");
        place.git(&["config", "filter.big.clean", &format!("touch {}; cat", marker.display())]);
        place.write(place.project.join(".gitattributes"), "*.big filter=big\n*.txt text\n");
        place.git(&["add", ".gitattributes"]);
        place.git(&["commit", "-qm", "attributes"]);
        fs::remove_file(&marker).unwrap_or_default();
        place.session(["--name", "s"], ["sh", "-c", "echo x > a.big; printf 'x\\r\\n' > b.txt; echo c > c"]).output().ok();
        for (exclude, name) in [("b.txt", "a.big"), ("a.big", "b.txt")] {
            let out = place.landbox(["land", "--to-branch", "b", "--exclude", exclude]).output().expect(6);
            assert!(out.errors().contains(name), "{}", out.errors());
        }
        place.landbox(["land", "--to-branch", "b", "--", "c"]).output().ok();
        assert!(!marker.exists());
    }
}
