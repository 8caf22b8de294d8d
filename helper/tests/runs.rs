//! A plan runs from envelope to exit status.

#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

mod play;

use landbox_shared::event::{Event, Status};
use landbox_shared::path::RelPath;
use landbox_shared::plan::{LayerMask, Loss, Op};
use landbox_shared::policy::{Backend, MaskKind};
use play::{Stage, abs, users};

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

#[test]
fn masks_and_writes_are_the_same_to_a_command_on_either_back_end() {
    for (uid, backend) in users()
        .into_iter()
        .flat_map(|uid| [Backend::Kernel, Backend::Fuse].map(|backend| (uid, backend)))
    {
        let stage = Stage::new(uid);
        stage.own_folder(&stage.path("project/.ssh"));
        stage.own_file("project/.ssh/id", b"secret\n");
        stage.own_file("project/.env", b"secret\n");
        let mut plan = stage.plan();
        for op in &mut plan.ops {
            if let Op::Layer(layer) = op {
                layer.backend = backend;
                let masks =
                    [(".ssh", MaskKind::Dir), (".env", MaskKind::File), ("no", MaskKind::Missing)];
                layer.masks = masks
                    .map(|(path, kind)| LayerMask { path: RelPath::new(path).unwrap(), kind })
                    .to_vec();
            }
        }
        plan.ops.push(Op::Mask {
            target: abs("/etc/passwd"),
            kind: MaskKind::File,
            loss: Loss::EndsSession,
        });
        let script = "ls -A .ssh; cat .env /etc/passwd file; echo x > no; rm no; mkdir new; echo new > new/x
                      rm -r .ssh 2>/dev/null || echo kept; rm file; echo other > file; stat -c %u file";
        let (output, end) = stage.run(plan, &["sh", "-c", script]);
        assert_eq!(end, Event::Exited(Status::Code(0)), "{backend:?} {output}");
        assert_eq!(output, format!("real\nkept\n{uid}\n"), "{backend:?}");
        assert_eq!(std::fs::read(stage.path("project/file")).unwrap(), b"real\n");
        let upper = stage.path("session/layers/project/upper");
        assert_eq!(std::fs::read(upper.join("file")).unwrap(), b"other\n");
        assert_eq!(std::fs::read(upper.join("new/x")).unwrap(), b"new\n");
        for hidden in [".ssh", ".env"] {
            assert!(!upper.join(hidden).exists(), "{backend:?} {hidden}");
        }
    }
}
