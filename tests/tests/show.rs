//! `landbox show` tells the owner what a session can reach.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::Place;
use landbox_tests::world::World;

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
