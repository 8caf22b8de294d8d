//! A home, a project and a state folder for one test, owned by the session's user, and removed with it.

use crate::run::Run;
use crate::world::{self, Who, World};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// One test's own piece of the file system.
#[derive(Debug)]
pub struct Place {
    /// Who runs the sessions and on which overlay.
    pub world: World,
    /// The home folder.
    pub home: PathBuf,
    /// The project, below the home.
    pub project: PathBuf,
    /// A folder of the user's outside the home.
    pub outside: PathBuf,
    dir: TempDir,
}

impl Place {
    /// A home with a few files, a project with a few files, nothing of Landbox's.
    pub fn new(world: World) -> Self {
        let base = world::base();
        fs::create_dir_all(&base).unwrap();
        let dir = tempfile::Builder::new().prefix("t-").tempdir_in(base).unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let [home, outside] = ["home", "outside"].map(|name| dir.path().join(name));
        let project = home.join("project");
        let place = Self { world, home, project, outside, dir };
        for folder in [&place.home, &place.outside, &place.project] {
            place.mkdir(folder);
        }
        place.take_enrolled_key();
        place.write(place.home.join(".profile"), "# the owner's\n");
        place.write(place.home.join(".config/tool/settings.json"), "{}\n");
        place.write(place.home.join(".ssh/id_ed25519"), "PRIVATE KEY of nobody\n");
        place.write(place.outside.join("data.txt"), "outside\n");
        place.write(place.project.join("README.md"), "# Project\n\nOne line.\n");
        place.write(place.project.join("src/main.py"), "print('hello')\n");
        place.write(place.project.join("src/deep/er/file.txt"), "deep\n");
        place.symlink("src/main.py", place.project.join("link"));
        place
    }

    /// Makes another folder the home, where a session can be started as in the first.
    pub fn move_home(&mut self, home: PathBuf) {
        self.home = home;
        self.take_enrolled_key();
    }

    /// Where only keys that root enrolled count, `LANDBOX_TEST_KEY` is the configuration folder that holds one.
    fn take_enrolled_key(&self) {
        let Some(from) = std::env::var_os("LANDBOX_TEST_KEY") else { return };
        if self.world.who == Who::Root {
            return;
        }
        let keys = self.home.join(".config/landbox/keys");
        self.mkdir(&keys);
        let key = keys.join("signing.key");
        self.write(&key, fs::read(Path::new(&from).join("keys/signing.key")).unwrap());
        fs::set_permissions(&keys, PermissionsExt::from_mode(0o700)).unwrap();
        fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// The folder that holds all of it.
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Where sessions are kept: the default place.
    pub fn state(&self) -> PathBuf {
        self.home.join(".local/state/landbox")
    }

    fn own(&self, path: &Path) {
        let (uid, gid) = self.world.ids();
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    }

    /// Makes a folder and its parents, owned by the session's user.
    pub fn mkdir(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        for ancestor in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            let ours = ancestor.starts_with(self.root()) || ancestor.starts_with(&self.home);
            if ours && !ancestor.exists() {
                fs::create_dir(ancestor).unwrap();
                self.own(ancestor);
            }
        }
    }

    /// Writes a file, making its folders.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = path.as_ref();
        self.mkdir(path.parent().unwrap());
        fs::write(path, content).unwrap();
        let (uid, gid) = self.world.ids();
        chown(path, Some(uid), Some(gid)).unwrap();
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) {
        symlink(target, path.as_ref()).unwrap();
        self.own(path.as_ref());
    }

    /// `landbox ARG..`, not started yet.
    pub fn landbox<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Run {
        Run::new(self, args)
    }

    /// `landbox run OPTION.. -- CMD..` on the overlay of this world.
    pub fn session<O: AsRef<OsStr>, C: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item = O>,
        command: impl IntoIterator<Item = C>,
    ) -> Run {
        let mut run = self.landbox(["run", "--overlay", self.world.overlay_name()]);
        run.args(options);
        run.args(["--"]);
        run.args(command);
        run
    }

    /// A session without options that runs a shell script.
    pub fn sh(&self, script: &str) -> Run {
        self.session::<&str, _>([], ["sh", "-c", script])
    }

    /// A session that runs the prober.
    pub fn prober<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Run {
        let mut run = self.session::<&str, _>([], [world::bin("prober")]);
        run.args(args);
        run
    }

    /// The document of `landbox ARG.. --json`, which must succeed.
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let mut run = self.landbox(args);
        run.args(["--json"]);
        run.output().ok().json()
    }

    /// Every path of the project with its mode, and what it holds.
    pub fn tree(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut todo = vec![self.project.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let holds = if meta.is_symlink() {
                    fs::read_link(&path).unwrap().into_os_string().into_vec()
                } else if meta.is_dir() {
                    todo.push(path.clone());
                    Vec::new()
                } else {
                    fs::read(&path).unwrap()
                };
                found.push((path, meta.mode(), holds));
            }
        }
        found.sort();
        found
    }

    /// Paths of the project group of the newest session's changeset, with their kinds, sorted.
    pub fn changes(&self) -> Vec<(String, String)> {
        let card = self.json(["diff"]);
        let changes = card["changes"].as_array().unwrap_or_else(|| panic!("no changes in {card}"));
        let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
        let mut paths: Vec<_> =
            changes.iter().map(|c| (text(c, "path"), text(c, "kind"))).collect();
        paths.sort();
        paths
    }

    /// Folders of the sessions there are.
    pub fn sessions(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state().join("sessions")).into_iter().flatten();
        entries.map(|e| e.unwrap().path()).collect()
    }
}
