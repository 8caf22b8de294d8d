//! What is hidden stays hidden.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::{Place, worlds};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const SECRET: &str = "TOKEN-of-the-owner";

worlds! {
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn hidden_folders_and_files_are_empty(world) {
        let place = Place::new(world);
        place.write(place.outside.join("vault/key"), SECRET);
        place.write(place.outside.join("single"), SECRET);
        place.write(place.project.join(".env"), SECRET);
        let out = place.outside.display().to_string();
        let options = ["--hide", "~/.ssh", "--hide", ".env"].map(str::to_owned);
        let more = [format!("{out}/vault"), format!("{out}/single")];
        let hide = more.iter().flat_map(|p| ["--hide".to_owned(), p.clone()]);
        let script = format!(
            "ls -A ~/.ssh {out}/vault; cat .env {out}/single; [ -f .env ] && [ -d ~/.ssh ] && [ -f {out}/single ] && echo same kinds"
        );
        let text = place
            .session(options.into_iter().chain(hide), ["sh", "-c", &script])
            .output()
            .ok()
            .text();
        assert!(text.ends_with("same kinds\n"), "{text}");
        assert!(!text.contains(SECRET) && !text.contains("id_ed25519") && !text.contains("key"), "{text}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn nothing_inside_takes_a_mask_away(world) {
        let place = Place::new(world);
        place.write(place.project.join(".env"), SECRET);
        place.write(place.project.join("vault/key"), SECRET);
        let script = "rm -f .env; rm -rf vault; mv .env e2; mv vault v2; ln .env e3; touch .env; mkdir vault; \
                      umount .env vault; unshare -Urm sh -c 'umount -l .env; umount -l vault; umount -l .; cat .env vault/key'; \
                      cd ..; mv project p2; cat p2/.env p2/vault/key project/.env project/vault/key; \
                      grep -r TOKEN . /proc/self/root$PWD";
        let out = place
            .session(["--hide", ".env", "--hide", "vault"], ["sh", "-c", script])
            .output();
        assert!(!out.text().contains(SECRET), "{}", out.text());
        assert_eq!(fs::read_to_string(place.project.join(".env")).unwrap(), SECRET);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_path_that_is_not_there_yet_stays_hidden_when_it_appears(world) {
        let place = Place::new(world);
        let missing = [place.project.join(".env"), place.home.join(".config/secret/deep")];
        let options = missing.iter().flat_map(|p| ["--hide".to_owned(), p.display().to_string()]);
        let script = "echo ready; read go; cat .env ~/.config/secret/deep; \
                      touch .env && rm .env; cat .env; mkdir -p ~/.config/secret; cat ~/.config/secret/deep; true";
        let mut live =
            place.session(options, ["sh", "-c", script]).stdin_open().start();
        live.expect("ready");
        missing.iter().for_each(|path| place.write(path, SECRET));
        live.write(b"go\n");
        let out = live.wait();
        assert!(out.text().starts_with("ready"), "{} {}", out.text(), out.errors());
        assert!(!out.text().contains(SECRET), "{}", out.text());
        assert!(missing.iter().all(|path| fs::read_to_string(path).unwrap() == SECRET));
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn masking_leaves_no_stub_in_the_real_tree(world) {
        let place = Place::new(world);
        place.session(["--hide", ".env", "--hide", ".git", "--hide", "~/.netrc"], ["true"]).output().ok();
        for stub in [place.project.join(".env"), place.project.join(".git"), place.home.join(".netrc")] {
            assert!(!stub.exists(), "{}", stub.display());
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn what_an_editor_s_save_puts_in_place_of_a_hidden_file_is_not_read(world) {
        let place = Place::new(world);
        let paths = [place.project.join(".env"), place.home.join(".netrc"), place.outside.join("token")];
        paths.iter().for_each(|path| place.write(path, "old secret"));
        let options = paths.iter().flat_map(|p| ["--hide".to_owned(), p.display().to_string()]);
        let script = format!("echo ready; read go; cat .env ~/.netrc {}; true", paths[2].display());
        let mut live = place.session(options, ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        for path in &paths {
            let fresh = path.with_extension("new");
            place.write(&fresh, SECRET);
            fs::rename(&fresh, path).unwrap();
        }
        // Either it stays hidden, or the session has ended as `boundary lost` before it could read.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live.write(b"go\n")));
        let out = live.wait();
        assert!(!out.text().contains(SECRET), "{}", out.text());
        assert!([0, 125].contains(&out.code()), "{} {}", out.code(), out.errors());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_mask_wins_over_read_only_and_auth_paths(world) {
        let place = Place::new(world);
        place.write(place.outside.join("ref/hidden/key"), SECRET);
        place.write(place.outside.join("ref/open"), "readable");
        let out = place.outside.display();
        let (reference, hidden) = (format!("{out}/ref"), format!("{out}/ref/hidden"));
        let key = format!("{hidden}/key");
        let script = format!("cat {reference}/open; cat {key}; ls {hidden}; true");
        for options in [
            ["--read-only", &reference, "--hide", &hidden, "--auth", &key],
            ["--hide", &hidden, "--auth", &hidden, "--read-only", &key],
        ] {
            let text = place.session(options, ["sh", "-c", &script]).output().ok().text();
            assert_eq!(text, "readable");
        }
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn a_hidden_link_hides_what_it_leads_to_by_either_name(world) {
        let place = Place::new(world);
        place.write(place.home.join("dots/netrc"), SECRET);
        place.symlink("dots/netrc", place.home.join(".netrc"));
        let text = place
            .session(["--hide", "~/.netrc"], ["sh", "-c", "cat ~/.netrc ~/dots/netrc; true"])
            .output()
            .ok()
            .text();
        assert!(!text.contains(SECRET), "{text}");
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn changes_on_a_hidden_path_are_never_landed(world) {
        let place = Place::new(world);
        place.write(place.project.join(".env"), SECRET);
        place
            .session(["--hide", ".env", "--hide", "absent"], ["sh", "-c", "echo x > .env; echo x > absent; mkdir -p absent/d; echo ok > seen; true"])
            .output()
            .ok();
        // What a session makes in place of a hidden path that was missing is its own affair: shown, never landed.
        let card = place.json(["diff"]);
        for change in card["changes"].as_array().unwrap() {
            assert_eq!(change["landable"], change["path"] == "seen", "{change}");
        }
        place.landbox(["land", "--apply", "--yes"]).output().ok();
        assert_eq!(fs::read_to_string(place.project.join(".env")).unwrap(), SECRET);
        assert!(place.project.join("seen").exists() && !place.project.join("absent").exists());
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn read_only_paths_can_be_read_but_not_written_and_stay_out_of_the_changes(world) {
        let place = Place::new(world);
        let script = "cat src/main.py; echo x > src/new; echo x >> src/main.py; rm src/main.py; echo ok > seen; true";
        let out = place.session(["--read-only", "src"], ["sh", "-c", script]).output().ok();
        assert_eq!(out.text(), "print('hello')\n");
        assert_eq!(place.changes(), [("seen".to_owned(), "added".to_owned())]);
    }

    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn an_auth_path_is_the_real_thing(world) {
        let place = Place::new(world);
        place.write(place.home.join(".agent/token"), "old\n");
        place
            .session(["--auth", "~/.agent"], ["sh", "-c", "echo new > ~/.agent/token; echo x > ~/other"])
            .output()
            .ok();
        assert_eq!(fs::read_to_string(place.home.join(".agent/token")).unwrap(), "new\n");
        assert!(!place.home.join("other").exists());
    }
}

/// A folder that only another user can look into, with a secret below.
fn closed(place: &Place) -> PathBuf {
    let vault = place.outside.join("closed");
    place.write(vault.join("deeper/key"), SECRET);
    fs::set_permissions(&vault, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&vault, Some(0), Some(0)).unwrap();
    vault
}

worlds! {
    [user_kernel, user_fuse]
    fn what_is_hidden_in_a_folder_you_cannot_look_into_stays_hidden_when_that_changes(world) {
        let place = Place::new(world);
        let vault = closed(&place);
        let key = vault.join("deeper/key").display().to_string();
        let script = format!("echo ready; read l; cat {key} || echo hidden");
        let mut live = place.session(["--hide", &key], ["sh", "-c", &script]).stdin_open().start();
        live.expect("ready");
        fs::set_permissions(&vault, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fs::read(&key).unwrap(), SECRET.as_bytes());
        live.write(b"\n");
        let out = live.wait().ok();
        assert!(out.text().ends_with("hidden\n"), "{}", out.text());
        let closed = vault.display().to_string();
        assert!(out.errors().contains(&format!("you can't look into {closed}")), "{}", out.errors());
    }
}
