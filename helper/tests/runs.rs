//! A plan runs from envelope to exit status.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod play;

use landbox_shared::event::{Event, Status};
use play::{Stage, users};

#[test]
fn a_command_runs_in_its_layer_and_the_real_folder_stays_as_it_was() {
    for uid in users() {
        let stage = Stage::new(uid);
        let script = "id -u; cat file; echo changed > file; echo new > new; exit 7";
        let (output, end) = stage.run(stage.plan(), &["sh", "-c", script]);
        assert_eq!(end, Event::Exited(Status::Code(7)), "{output}");
        assert_eq!(output, format!("{uid}\nreal\n"));
        assert_eq!(std::fs::read(stage.path("project/file")).unwrap(), b"real\n");
        assert!(!stage.path("project/new").exists());
        let upper = stage.path("session/layers/project/upper/new");
        assert_eq!(std::fs::read(upper).unwrap(), b"new\n");
    }
}
