//! `--keep-commits`: what of a session's own commits comes along, and what never does.
#![allow(clippy::unwrap_used)] // tests

use landbox_tests::{Place, World, worlds};
use std::fs;
use std::process::Command;

const CONFIG: &str =
    "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n[gc]\nauto = 0\n";

fn repository(world: World, init: &[&str]) -> Place {
    Place::repository(world, CONFIG, init)
}

/// Two commits of a bot, and something that is not committed.
const COMMITS: &str = "b() { git -c user.name=Bot -c user.email=bot@example.org \"$@\"; }; \
                       echo two >> README.md; b commit -qam 'Second line'; \
                       mkdir n; echo x > n/x; rm src/main.py; b add -A; b commit -qm 'New\n\nWith words.'";

fn session(place: &Place, script: &str) {
    place.session(["--name", "s"], ["sh", "-ec", script]).output().ok();
}

const KEEP: [&str; 4] = ["land", "--to-branch", "b", "--keep-commits"];

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn commits_made_inside_are_kept_and_the_rest_comes_last(world) {
        let place = repository(world, &[]);
        session(&place, &format!("{COMMITS}; echo rest > rest; git tag mine; git branch other"));
        let index = fs::read(place.project.join(".git/index")).unwrap();
        let offers = || {
            let out = place.landbox(["land", "s"]).output().ok();
            out.errors().contains("The session made commits of its own: landbox land ")
        };
        assert!(offers());
        let out = place.landbox(["land", "--to-branch", "b", "--keep-commits", "-m", "The rest"]).output().ok();
        assert!(!offers(), "the owner has them");
        for text in ["With 2 commits that the session made:", "  | Second line", "  | New"] {
            assert!(out.errors().contains(text), "{}", out.errors());
        }
        let log = place.git(&["log", "--format=%an <%ae> %cn %s", "main..b"]);
        assert_eq!(
            log,
            "Ada <ada@example.org> Ada The rest\nBot <bot@example.org> Ada New\nBot <bot@example.org> Ada Second line\n"
        );
        assert_eq!(place.git(&["log", "-1", "--format=%b", "b~"]), "With words.\n\n");
        assert_eq!(place.git(&["diff", "--name-only", "b~2", "b~"]), "n/x\nsrc/main.py\n");
        assert_eq!(place.git(&["diff", "--name-only", "b~", "b"]), "rest\n");
        place.git(&["fsck", "--strict", "--no-dangling"]);
        let refs = place.git(&["for-each-ref", "--format=%(refname)"]);
        assert_eq!(refs, "refs/heads/b\nrefs/heads/main\n");
        assert_eq!(fs::read(place.project.join(".git/index")).unwrap(), index);
        assert_eq!(place.git(&["status", "--short"]), "");
        // The same again, onto the branch that is checked out.
        let out = place.landbox(["land", "--commit", "--keep-commits", "--yes", "-m", "The rest"]).output().ok();
        assert!(out.errors().contains("With 2 commits"), "{}", out.errors());
        assert_eq!(place.git(&["status", "--short"]), "");
        assert_eq!(place.git(&["rev-parse", "main^{tree}"]), place.git(&["rev-parse", "b^{tree}"]));
        assert_eq!(place.git(&["rev-list", "--count", "main"]), "4\n");
    }

    [user_kernel, user_fuse]
    fn packed_merged_and_detached_commits_are_kept(world) {
        for (init, more) in [
            (&[][..], "git gc -q --prune=now; git pack-refs --all"),
            (&[][..], "git checkout -q --detach; echo y > y; git add y; git commit -qm detached"),
            (&[][..], "git checkout -q -b side HEAD~; echo s > s; git add s; git commit -qm side; \
                       git checkout -q main; git merge -q --no-ff -m merged side"),
            (&["--object-format=sha256"][..], "true"),
        ] {
            let place = repository(world, init);
            session(&place, &format!("{COMMITS}; {more}"));
            let out = place.landbox(KEEP).output().ok();
            assert!(out.errors().contains("  | New"), "{more}: {}", out.errors());
            place.git(&["fsck", "--strict", "--no-dangling"]);
            // Everything was committed, so nothing comes last.
            assert!(!place.git(&["log", "--format=%s", "b"]).contains("Land changes"), "{more}");
            let copy = place.outside.join("copy");
            place.git(&["clone", "-q", "--no-local", "-b", "b", ".", copy.to_str().unwrap()]);
            place.landbox(["land", "--apply", "--yes"]).output().ok();
            fs::remove_dir_all(copy.join(".git")).unwrap();
            let same = Command::new("diff").args(["-r", "--no-dereference", "-x", ".git"]).args([&copy, &place.project]).output().unwrap();
            assert!(same.status.success(), "{more}: {}", String::from_utf8_lossy(&same.stdout));
        }
    }

    [user_kernel, user_fuse]
    fn commits_of_a_linked_worktree_are_kept(world) {
        let place = repository(world, &[]);
        let tree = place.home.join("tree");
        place.git(&["worktree", "add", "-q", "-b", "side", tree.to_str().unwrap()]);
        place.session(["--name", "s"], ["sh", "-ec", COMMITS]).cwd(&tree).output().ok();
        let out = place.landbox(KEEP).cwd(&tree).output().ok();
        assert!(out.errors().contains("With 2 commits"), "{}", out.errors());
        assert_eq!(place.git(&["rev-list", "--count", "side..b"]), "2\n");
    }

    [user_kernel]
    fn without_commits_there_is_nothing_to_keep(world) {
        let place = repository(world, &[]);
        session(&place, "echo x > x; git add x");
        let out = place.landbox(KEEP).output().expect(4);
        assert!(out.errors().contains("made no commits"), "{}", out.errors());
        place.landbox(["land", "--keep-commits"]).output().expect(2);
        place.landbox(["land", "--keep-commits", "--to-branch", "b", "--", "x"]).output().expect(2);
        assert_eq!(place.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
    }

    [user_kernel]
    fn what_an_author_says_of_themselves_is_only_text(world) {
        let place = repository(world, &[]);
        session(&place, "echo x > x; git add x; export GIT_AUTHOR_NAME=\"$(printf 'Evil\\033[2J\\342\\200\\256')\"; \
                         GIT_AUTHOR_DATE='@1 +0000' git commit -q -m \"$(printf 'a\\033]52;c;AAAA\\007b\\n\\nline')\"");
        let out = place.landbox(KEEP).output().ok();
        assert!(out.errors().contains("  | a]52;c;AAAAb\n"), "{:?}", out.errors());
        assert_eq!(place.git(&["log", "-1", "--format=%an|%s|%b", "b"]), "Evil[2J|a]52;c;AAAAb|line\n\n");
    }

    [user_kernel, user_fuse]
    fn a_hostile_repository_is_refused_and_nothing_is_run_or_made(world) {
        let commit = "git add -A; git commit -qm evil";
        // A tree that git would not write: `@` is an object's name, `%` a NUL.
        let by_hand = |tree: &str| {
            format!("f=$(git rev-parse HEAD:README.md); \
                     t=$(python3 -c \"import sys; sys.stdout.buffer.write(b'{tree}'.replace(b'@', bytes.fromhex('$f')).replace(b'%', bytes(1)))\" | \
                     git hash-object -t tree -w --stdin --literally); \
                     git update-ref refs/heads/main $(git commit-tree -p HEAD -m evil $t)")
        };
        let rows = [
            (format!("ln -s /etc/passwd l; {commit}; rm l"), "may lead out of the project"),
            (format!("ln -s ../../x src/l; {commit}; rm src/l"), "may lead out of the project"),
            ("git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm sub".into(), "a repository of its own"),
            ("git checkout -q --orphan o; git commit -qm root".into(), "starts from nothing of yours"),
            (format!("{COMMITS}; echo /etc > .git/objects/info/alternates"), "alternates"),
            (format!("{COMMITS}; echo 'ref: refs/heads/../../../../x' > .git/HEAD"), "HEAD names nothing"),
            (format!("{COMMITS}; echo 'ref: ../x' > .git/HEAD"), "HEAD names nothing"),
            (format!("{COMMITS}; ln -s /etc/passwd .git/l; mv -f .git/l .git/refs/heads/main"), "a link is in its way"),
            (format!("{COMMITS}; o=$(git rev-parse HEAD | sed 's|..|&/|'); rm -f .git/objects/$o; echo junk > .git/objects/$o"), "is broken"),
            (format!("{COMMITS}; o=$(git rev-parse HEAD | sed 's|..|&/|'); p=$(git rev-parse HEAD~ | sed 's|..|&/|'); cp -f .git/objects/$p .git/objects/$o"), "is broken"),
            (format!("{COMMITS}; o=$(git rev-parse HEAD: | sed 's|..|&/|'); rm -f .git/objects/$o"), "is missing"),
            (by_hand("100644 .git%@"), "a name that git refuses"),
            (by_hand("100644 ..%@"), "a name that git refuses"),
            (by_hand("100644 a/b%@"), "a name that git refuses"),
            (by_hand("100644 b%@100644 a%@"), "out of order"),
            (by_hand("104755 a%@"), "a mode that git does not write"),
        ];
        let marker_name = "ran";
        for (script, why) in rows {
            let place = repository(world, &[]);
            let marker = place.outside.join(marker_name);
            let evil = place.outside.join("evil.sh");
            place.write(&evil, format!("#!/bin/sh\ntouch {}\n", marker.display()));
            fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let p = evil.display();
            let tail = format!(
                "; printf '[core]\\nfsmonitor={p}\\nhooksPath=/x\\nalternateRefsCommand={p}\\n[uploadpack]\\npackObjectsHook={p}\\n\
                 [diff]\\nexternal={p}\\n[extensions]\\nworktreeConfig=true\\n' >> .git/config; cp {p} .git/hooks/reference-transaction"
            );
            session(&place, &format!("{script}{tail}; rm -f l src/l; echo y > y"));
            fs::remove_file(&marker).unwrap_or_default();
            let before = place.git(&["count-objects", "-v"]);
            let out = place.landbox(KEEP).output();
            assert!([4, 6, 1].contains(&out.code()), "{why}: {}", out.errors());
            assert!(out.errors().contains(why), "{why}: {}", out.errors());
            assert_eq!(place.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
            assert_eq!(place.git(&["count-objects", "-v"]), before, "{why}");
            assert!(!marker.exists(), "{why}: something was run");
        }
    }

    [user_kernel]
    fn a_pack_that_unfolds_to_more_than_fits_is_refused_unread(world) {
        let place = repository(world, &[]);
        // A base of 16 MiB, and a delta of a few hundred bytes that copies it two hundred times.
        let bomb = "import hashlib, os, struct, zlib\n\
            def head(size, kind):\n    out = [kind << 4 | size & 15]; size >>= 4\n    while size: out[-1] |= 128; out.append(size & 127); size >>= 7\n    return bytes(out)\n\
            def number(n):\n    out = b''\n    while n > 127: out += bytes([n & 127 | 128]); n >>= 7\n    return out + bytes([n])\n\
            base = b'x' * 0xffffff\n\
            delta = number(len(base)) + number(len(base) * 200) + bytes([0xf0, 0xff, 0xff, 0xff]) * 200\n\
            name = hashlib.sha1(b'blob %d\\0' % len(base) + base).digest()\n\
            pack = b'PACK' + struct.pack('>II', 2, 2) + head(len(base), 3) + zlib.compress(base) + head(len(delta), 7) + name + zlib.compress(delta)\n\
            os.makedirs('.git/objects/pack', exist_ok=True)\n\
            open('.git/objects/pack/pack-' + '1' * 40 + '.pack', 'wb').write(pack + hashlib.sha1(pack).digest())\n";
        place.write(place.outside.join("bomb.py"), bomb);
        session(&place, &format!("{COMMITS}; python3 {}", place.outside.join("bomb.py").display()));
        let out = place.landbox(KEEP).output().expect(6);
        assert!(out.errors().contains("can't read a pack") && out.errors().contains("over limit"), "{}", out.errors());
        place.landbox(["land", "--to-branch", "b"]).output().ok();
    }

    [user_kernel]
    fn commits_that_touch_hidden_paths_are_refused(world) {
        let place = repository(world, &[]);
        let secret = place.project.join("src/main.py");
        place.session(["--name", "s", "--hide", secret.to_str().unwrap()],
                      ["sh", "-ec", "echo x > x; git add -A; git commit -qm all"]).output().ok();
        let out = place.landbox(KEEP).output().expect(6);
        assert!(out.errors().contains("was hidden from the session"), "{}", out.errors());
        place.landbox(["land", "--to-branch", "b"]).output().ok();
        assert_eq!(place.git(&["diff", "--name-only", "main", "b"]), "x\n");
    }

    [user_kernel]
    fn a_tree_that_stands_for_more_paths_than_anybody_can_hold_is_refused(world) {
        let place = repository(world, &[]);
        session(&place, "b=$(git rev-parse HEAD:README.md); t=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '100644 blob %s\\t%s\\n' $b $n; done | git mktree); \
                         for i in 1 2 3 4 5 6 7 8 9 10 11 12; do t=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\\t%s\\n' $t $n; done | git mktree); done; \
                         git update-ref refs/heads/main $(git commit-tree -p HEAD -m bomb $t); echo x > x");
        // As many paths as are looked at take their time where other tests run beside it.
        let out = place.landbox(KEEP).limit(300).output().expect(6);
        assert!(out.errors().contains("more paths than can be looked at"), "{}", out.errors());
    }

    [user_kernel, user_fuse]
    fn what_only_a_commit_in_between_holds_needs_a_yes_too(world) {
        let place = repository(world, &[]);
        let key = ["-----BEGIN OPENSSH ", "PRIVATE KEY-----"].concat();
        session(&place, &format!(
            "b() {{ git -c user.name=Bot -c user.email=b@e.org \"$@\"; }}; echo '{key}' > notes; mkdir .vscode; \
             echo '{{}}' > .vscode/tasks.json; b add -A; b commit -qm one; rm -r notes .vscode; echo x > plain; b add -A; b commit -qm two"
        ));
        assert!(!place.json(["diff"]).to_string().contains("secret"));
        // Nobody sees it who looks at the changes alone.
        place.landbox(["land", "--to-branch", "plain"]).output().ok();
        for args in [&KEEP[..], &["land", "--commit", "--keep-commits", "--yes"]] {
            let out = place.landbox(args).output().expect(6);
            for text in ["holds notes: risk secret", "holds .vscode/tasks.json: risk editor", "--accept-risk secret"] {
                assert!(out.errors().contains(text), "{}", out.errors());
            }
        }
        assert_eq!(place.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\nrefs/heads/plain\n");
        assert!(!place.project.join("plain").exists());
        let accepted = ["--accept-risk", "secret", "--accept-risk", "editor"];
        let out = place.landbox(KEEP).args(accepted).output().ok();
        assert!(out.errors().contains("With 2 commits"), "{}", out.errors());
    }

    [user_kernel, user_fuse]
    fn a_landed_session_stays_for_commits_that_were_not_kept_and_goes_once_they_are(world) {
        let place = repository(world, &[]);
        session(&place, &format!("{COMMITS}; git branch other HEAD~"));
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        let out = place.landbox(["gc"]).output().ok();
        for text in ["commits of its own were left in it", "--to-branch NAME --keep-commits"] {
            assert!(out.errors().contains(text), "{}", out.errors());
        }
        assert_eq!(place.sessions().len(), 1);
        // All files have landed, and the commits can still be had.
        let out = place.landbox(["land", "s", "--to-branch", "b", "--keep-commits"]).output().ok();
        assert!(out.errors().contains("With 2 commits"), "{}", out.errors());
        assert_eq!(place.git(&["log", "--format=%s", "main..b"]), "New\nSecond line\n");
        let out = place.landbox(["gc"]).output().ok();
        assert!(out.errors().contains("(landed)") && out.errors().contains("removed 1 session ("), "{}", out.errors());
        assert_eq!(place.sessions().len(), 0);
    }

    [user_kernel]
    fn commits_and_the_rest_of_a_part_that_landed_are_not_mixed_up(world) {
        let place = repository(world, &[]);
        session(&place, &format!("{COMMITS}; echo rest > rest"));
        place.landbox(["land", "--apply", "--yes", "--", "n"]).output().ok();
        let out = place.landbox(KEEP).output().expect(6);
        for text in ["has landed already", "landbox undo"] {
            assert!(out.errors().contains(text), "{}", out.errors());
        }
        place.landbox(["undo", "s"]).output().ok();
        place.landbox(KEEP).output().ok();
        assert_eq!(place.git(&["diff", "--name-only", "main", "b"]), "README.md\nn/x\nrest\nsrc/main.py\n");
    }

    [user_kernel]
    fn what_commits_do_not_go_with_is_refused_with_what_to_type(world) {
        let place = repository(world, &[]);
        session(&place, COMMITS);
        for (args, why, next) in [
            (&["--mbox", "-"][..], "a mail holds one change", "git format-patch"),
            (&["--patch", "-"], "a mail holds one change", "git format-patch"),
            (&["--to-branch", "b", "--", "n"], "no part of them can be chosen", "lands as one commit"),
            (&["--commit", "--exclude", "n"], "no part of them can be chosen", "--to-branch NAME --keep-commits"),
            (&["--commit", "-i"], "no part of them can be chosen", "lands as one commit"),
            (&["--commit", "--checkpoint", "1"], "no part of them can be chosen", "lands as one commit"),
        ] {
            let out = place.landbox(["land", "--keep-commits"]).args(args).output().expect(2);
            assert!(out.errors().contains(why) && out.errors().contains(next), "{args:?}: {}", out.errors());
        }
    }
}
