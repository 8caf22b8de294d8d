//! What a terminal shows after a session, as a real terminal program (tmux) draws it.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_tests::world::{self, World};
use landbox_tests::{Place, procs};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A tmux server of the session's user, ended with the test.
struct Screen<'a> {
    place: &'a Place,
    socket: String,
}

impl<'a> Screen<'a> {
    fn new(place: &'a Place, line: &str) -> Self {
        let this = Self { place, socket: place.root().join("outside/tmux").display().to_string() };
        let done =
            this.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "20", line]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        this
    }

    fn tmux(&self, args: &[&str]) -> std::process::Output {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket]).args(args).current_dir(&self.place.project);
        command.env_clear().env("HOME", &self.place.home).env("LANG", "C.UTF-8");
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("SHELL", "/bin/sh");
        let (uid, gid) = self.place.world.ids();
        if world::is_root() {
            command.uid(uid).gid(gid);
        }
        command.output().unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn shown(script: &str) -> Vec<String> {
    let place = Place::new(World::USUAL);
    place.write(place.project.join("script"), script);
    let landbox = world::bin("landbox").display().to_string();
    let screen = Screen::new(&place, &format!("{landbox} run -- sh script; echo after; sleep 60"));
    let text = procs::wait_for("the end of the session", 30, || {
        Some(screen.text()).filter(|text| text.contains("after"))
    });
    text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_closing_line_comes_below_what_the_session_printed_also_after_an_editor() {
    let lines = shown(
        "echo one; printf '\\033[?1049heditor\\033[?1049l'; for i in two three four; do echo $i; done",
    );
    assert_eq!(lines[..4], ["one", "two", "three", "four"], "{lines:?}");
    assert!(lines[4].starts_with("landbox: "), "{lines:?}");
    assert_eq!(lines[5], "after", "{lines:?}");
}

#[test]
fn a_program_that_dies_in_the_alternate_screen_does_not_leave_it_on() {
    let lines = shown("echo one; printf '\\033[?1049h\\033[2Jeditor'");
    assert!(lines.iter().any(|line| line == "one"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("editor")), "{lines:?}");
}
