//! `landbox show` tells the owner what a session can reach.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::probe::Facts;
use landbox_tests::world::{self, World};
use landbox_tests::{Place, worlds};
use std::path::{Path, PathBuf};

fn shown(hide: &str) -> String {
    let place = Place::new(World::USUAL);
    let file = place.outside.join("bots.json");
    place.write(
        &file,
        format!(r#"[{{"name": "b", "command": "true", "sandboxHidePaths": [{hide}]}}]"#),
    );
    let config = file.display().to_string();
    place.landbox(["run", "--config", &config, "--bot", "b"]).output().ok();
    place.landbox(["show"]).output().ok().text()
}

#[test]
fn a_configuration_file_that_the_session_can_read_is_named_as_such() {
    let text = shown("");
    assert!(text.contains("bots.json, which the session can read"), "{text}");
}

#[test]
fn a_hidden_configuration_file_is_named_without_a_warning() {
    let text = shown(r#""../../outside/bots.json""#);
    assert!(text.contains("bots.json") && !text.contains("can read"), "{text}");
}

worlds! {
    // What is named, against what the kernel says is mounted: by that alone a write could get past the layers.
    [user_kernel, user_fuse, root_kernel, root_fuse]
    fn every_real_write_is_named_and_nothing_else_is_writable(world) {
        let place = Place::new(world);
        let login = place.home.join(".codex/auth.json");
        place.write(&login, "{}");
        let (shared, token) = (place.outside.join("shared"), place.home.join(".tool/token"));
        place.write(shared.join("deep/file"), "");
        place.write(&token, "");
        place.write(place.home.join(".tool/ref"), "");
        place.write(place.project.join("vault/key"), "");
        let codex = place.root().join("codex");
        place.symlink(world::bin("prober"), &codex);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let options = [
            ("--name", "s".to_owned()), ("--auth", text(&shared)), ("--auth", text(&token)), ("--auth", text(&place.home.join(".tool/ref"))),
            ("--read-only", text(&place.home.join(".tool/ref"))), ("--hide", "vault".to_owned()), ("--auth", "vault/key".to_owned()),
        ];
        let options = options.iter().flat_map(|(flag, value)| [*flag, value.as_str()]);
        let facts: Facts = place.session(options, [text(&codex), "facts".to_owned()]).output().ok().json();
        let shown = place.json(["show", "s"]);
        let mut named: Vec<PathBuf> = serde_json::from_value(shown["real_writes"].clone()).unwrap();
        named.sort();
        let mut wanted = [login.clone(), shared.clone(), token.clone()];
        wanted.sort();
        assert_eq!(named, wanted, "{shown:#}");

        let own = format!("/sessions/{}/", shown["id"].as_str().unwrap());
        let of_the_kernel = ["tmpfs", "proc", "devpts", "mqueue"];
        let writable = facts.mounts.iter().filter(|mount| mount.has("rw"));
        // Layers, the session's own folders and file systems, its terminal.
        let real = writable.filter(|mount| {
            let is_layer = mount.kind == "overlay" || mount.kind == "fuse.fuse-overlayfs";
            let is_new = of_the_kernel.contains(&mount.kind.as_str()) && mount.root == "/";
            !is_layer && !is_new && !mount.root.contains(&own) && mount.point != "/dev/console"
        });
        let mut real: Vec<PathBuf> = real.map(|mount| PathBuf::from(&mount.point)).collect();
        real.sort();
        // Login files go by way of their layer, and are copied.
        let mut bound = [shared, token];
        bound.sort();
        assert_eq!(real, bound, "{:#?}", facts.mounts);
        let told = place.landbox(["show", "s"]).output().ok().text();
        for path in wanted {
            assert!(told.contains(&format!("real write   {}\n", path.display())), "{told}");
        }
    }
}
