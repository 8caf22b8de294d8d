//! A session whose layer was written through a real overlay, without the helper: for tests of everything after it.

use super::layer::project_of;
use super::review::Review;
use super::select::Selection;
use crate::overlay::prepare;
use crate::seal::Key;
use crate::session::model::{Launch, Phase};
use crate::session::store::{Session, StateDir};
use crate::session::testing::snapshot;
use landbox_shared::id::SessionId;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{Backend, LayerKind, Mask};
use landbox_shared::wire;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who writes the layer, and through what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// An ordinary user in a user namespace, kernel overlay.
    UserKernel,
    /// An ordinary user in a user namespace, fuse-overlayfs.
    UserFuse,
    /// Root without a user namespace, kernel overlay.
    RootKernel,
}

pub(crate) const WORLDS: [World; 3] = [World::UserKernel, World::UserFuse, World::RootKernel];

impl World {
    fn backend(self) -> Backend {
        match self {
            Self::UserFuse => Backend::Fuse,
            Self::UserKernel | Self::RootKernel => Backend::Kernel,
        }
    }

    /// Whether this process can be it.
    pub(crate) fn is_here(self) -> bool {
        match self {
            Self::UserKernel | Self::UserFuse => true,
            Self::RootKernel => rustix::process::geteuid().is_root(),
        }
    }
}

pub(crate) struct Fixture {
    pub dir: tempfile::TempDir,
    pub state: StateDir,
    pub id: SessionId,
    pub project: PathBuf,
    world: World,
    _other: Option<tempfile::TempDir>,
}

impl Fixture {
    /// Makes a project by running `base` in an empty folder, and a session of it that has not run yet.
    pub(crate) fn new(world: World, base: &str) -> Self {
        Self::masked(world, base, Vec::new())
    }

    pub(crate) fn masked(world: World, base: &str, masks: Vec<Mask>) -> Self {
        Self::made(world, base, masks, None)
    }

    /// With the project on another file system than the session.
    pub(crate) fn elsewhere(world: World, base: &str) -> Self {
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(other.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self::made(world, base, Vec::new(), Some(other))
    }

    fn made(world: World, base: &str, masks: Vec<Mask>, other: Option<tempfile::TempDir>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let project = root.join("project");
        let project = match &other {
            None => project,
            Some(other) => other.path().canonicalize().unwrap().join("project"),
        };
        fs::create_dir(&project).unwrap();
        // By whom it belongs to: a change of owner takes set-id bits away.
        let user = world != World::RootKernel && rustix::process::geteuid().is_root();
        if user {
            sh(project.parent().unwrap(), "chown 1000:1000 project");
        }
        shell(user, &project, base);
        let state = StateDir::open(&root.join("state")).unwrap();
        let mut snapshot = snapshot("aaaaaaaaaa", None);
        snapshot.policy.project = AbsPath::from_path(&project).unwrap();
        snapshot.policy.layers.retain(|l| l.kind == LayerKind::Project);
        snapshot.policy.layers[0].target = snapshot.policy.project.clone();
        snapshot.policy.layers[0].backend = world.backend();
        snapshot.policy.masks = masks
            .into_iter()
            .map(|m| Mask {
                path: snapshot.policy.project.join(&m.path.as_bytes()[1..]).unwrap(),
                kind: m.kind,
            })
            .collect();
        snapshot.policy_digest = wire::policy_digest(&snapshot.policy).unwrap();
        let id = snapshot.id.clone();
        state.create(snapshot).unwrap();
        Self { dir, state, id, project, world, _other: other }
    }

    pub(crate) fn session(&self) -> Session {
        self.state.load(&self.id).unwrap()
    }

    /// Runs a shell script in the merged view, as one more launch of the session. Gives a listing of the merged view
    /// at its end.
    pub(crate) fn run(&self, script: &str) -> Vec<String> {
        self.launch(script, true)
    }

    /// Like [`Fixture::run`], for a merged view that is no good to list.
    pub(crate) fn task(&self, script: &str) {
        self.launch(script, false);
    }

    fn launch(&self, script: &str, look: bool) -> Vec<String> {
        // Clear of the clock's grain: what was made before is older than the launch.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut session = self.session();
        let layer = project_of(&session).unwrap().clone();
        let number = u32::try_from(session.state.launches.len()).unwrap() + 1;
        session.state.launches.push(Launch {
            number,
            started_at: String::new(),
            ended_at: None,
            exit: None,
            failure: None,
            boundary: None,
            epochs: prepare::epochs(&session.snapshot.policy, &[]),
        });
        session.state.state = Phase::Exited;
        session.save_state().unwrap();
        let upper = session.upper(&layer.id);
        let work = self.dir.path().join("overlay");
        fs::create_dir(&work).unwrap();
        let moved = work.join("upper");
        if upper.exists() {
            fs::rename(&upper, &moved).unwrap();
        } else {
            fs::create_dir_all(upper.parent().unwrap()).unwrap();
            let real = self.project.display();
            sh(
                &work,
                &format!(
                    "mkdir upper; chmod --reference={real} upper; chown --reference={real} upper"
                ),
            );
        }
        let user = self.world != World::RootKernel && rustix::process::geteuid().is_root();
        fs::create_dir(work.join("work")).unwrap();
        fs::create_dir(work.join("merged")).unwrap();
        fs::write(work.join("task"), script).unwrap();
        if user {
            sh(&work, "chown 1000:1000 . work merged task");
        }
        let dirs = format!("lowerdir={},upperdir=upper,workdir=work", self.project.display());
        let mount = match self.world.backend() {
            Backend::Kernel => format!(
                "mount -t overlay overlay -o {dirs},userxattr,volatile,redirect_dir=nofollow,\
                 metacopy=off,index=off,xino=off merged"
            ),
            Backend::Fuse => format!("fuse-overlayfs -o {dirs},fsync=0,writeback=0 merged"),
        };
        // fuse-overlayfs 1.10 may go on showing what a folder held that was removed and made again; what it wrote, and
        // shows after a remount, is right.
        let again = match self.world.backend() {
            Backend::Kernel => String::new(),
            Backend::Fuse => format!("umount merged; {mount};"),
        };
        let inside = format!(
            "set -e; {mount}; cd merged; umask 022; sh -e ../task; cd ..; {again} {}; umount merged",
            if look { "cp -a merged snap" } else { "mkdir snap" }
        );
        let mut command = Command::new(if user { "setpriv" } else { "unshare" });
        if user {
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "unshare"]);
        }
        let namespaces = if self.world == World::RootKernel { "-m" } else { "-Urm" };
        command.args([namespaces, "--propagation", "private", "sh", "-c", &inside]);
        let out = command.current_dir(&work).output().unwrap();
        assert!(out.status.success(), "{:?}: {}", self.world, String::from_utf8_lossy(&out.stderr));
        fs::rename(&moved, &upper).unwrap();
        let listing = list(&work.join("snap"));
        // The work folder holds folders of mode 000.
        crate::overlay::remove::remove_tree(&work).unwrap();
        listing
    }

    /// The owner's signing key.
    pub(crate) fn key(&self) -> Key {
        Key::load(&self.dir.path().join("config")).unwrap()
    }

    pub(crate) fn review(&self) -> Review {
        Review::of(&self.session(), None, Selection::default()).unwrap()
    }

    /// The changes, one a line: kind, types, modes, path, targets.
    pub(crate) fn lines(&self) -> Vec<String> {
        let review = self.review();
        let card = review.card(&self.session()).unwrap();
        let value = serde_json::to_value(&card).unwrap();
        let text = |v: &serde_json::Value| match v.as_str() {
            Some(text) => text.to_owned(),
            None if v.is_null() => "-".to_owned(),
            None => v.to_string(),
        };
        let lines = value["changes"].as_array().unwrap().iter().map(|c| {
            let mut line = format!(
                "{} {}:{} -> {}:{} {}",
                text(&c["kind"]),
                text(&c["old_type"]),
                text(&c["old_mode"]),
                text(&c["new_type"]),
                text(&c["new_mode"]),
                text(&c["path"]),
            );
            for key in ["old_path", "old_target", "new_target"] {
                if !c[key].is_null() {
                    line += &format!(" {key}={}", text(&c[key]));
                }
            }
            for (key, usual) in [("state", "clean"), ("group", "project"), ("landable", "true")] {
                if text(&c[key]) != usual {
                    line += &format!(" {key}={}", text(&c[key]));
                }
            }
            line
        });
        lines.collect()
    }

    pub(crate) fn patch(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.review().write_patch(&mut out).unwrap();
        out
    }

    /// Gives to the user what root has landed for them.
    pub(crate) fn give_back(&self) {
        if self.world != World::RootKernel && rustix::process::geteuid().is_root() {
            sh(&self.project, "chown -hR 1000:1000 .");
        }
    }

    /// A listing of the real project.
    pub(crate) fn real(&self) -> Vec<String> {
        list(&self.project)
    }
}

/// Runs a shell script in a folder.
pub(crate) fn sh(dir: &Path, script: &str) {
    shell(false, dir, script);
}

fn shell(as_user: bool, dir: &Path, script: &str) {
    let script = format!("umask 022; {script}");
    let mut command = Command::new(if as_user { "setpriv" } else { "bash" });
    if as_user {
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "bash"]);
    }
    let out = command.args(["-ec", &script]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Everything below a folder that a landing carries: type, mode, name, and content or target.
pub(crate) fn list(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = landbox_shared::bytes::escape(
                path.strip_prefix(root).unwrap().as_os_str().as_bytes(),
            );
            let mode = meta.mode() & 0o7777;
            out.push(if meta.is_dir() {
                todo.push(path);
                format!("{name} d {mode:o}")
            } else if meta.is_symlink() {
                format!("{name} l {:?}", fs::read_link(&path).unwrap())
            } else if meta.is_file() {
                let bytes = fs::read(&path).unwrap();
                format!("{name} f {mode:o} {}", landbox_shared::bytes::escape(&bytes))
            } else {
                format!("{name} s {mode:o}")
            });
        }
    }
    out.sort();
    out
}

impl Fixture {
    /// The patch without one path.
    pub(crate) fn patch_without(&self, left_out: &str) -> Vec<u8> {
        let mut review = self.review();
        review.forget(left_out);
        let mut out = Vec::new();
        review.write_patch(&mut out).unwrap();
        out
    }
}
