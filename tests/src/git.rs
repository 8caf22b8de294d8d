//! Git on the host, as the owner of a place: with the place's home, and nothing of the machine's own settings.

use crate::place::Place;
use crate::world::World;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// Files and links of a tree, with what a git patch can say of them; of their modes, these `bits`.
pub fn in_a_patch(root: &Path, bits: u32) -> BTreeMap<Vec<u8>, (String, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap().into_os_string();
                all.insert(name, ("link".into(), target.as_bytes().to_vec()));
            } else {
                let executable = format!("{:o}", meta.mode() & bits);
                all.insert(name, (executable, fs::read(&path).unwrap()));
            }
        }
    }
    all
}

impl Place {
    /// Runs git in a folder.
    pub fn git_output(&self, dir: &Path, args: &[&str]) -> Output {
        let (uid, gid) = self.world.ids();
        let mut git = Command::new("git");
        git.args(args).current_dir(dir).env_clear().env("HOME", &self.home).uid(uid).gid(gid);
        git.env("PATH", "/usr/bin:/bin").env("GIT_CONFIG_NOSYSTEM", "1");
        git.output().unwrap()
    }

    /// What git says in a folder; it must succeed.
    #[track_caller]
    pub fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        let out = self.git_output(dir, args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// What git says in the project; it must succeed.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.project, args)
    }

    /// A place whose project is a repository with one commit; `config` is what the owner's `.gitconfig` says.
    #[track_caller]
    pub fn repository(world: World, config: &str, init: &[&str]) -> Self {
        let place = Self::new(world);
        place.write(place.home.join(".gitconfig"), config);
        place.git(&[&["init", "-q"], init].concat());
        place.git(&["add", "-A"]);
        place.git(&["commit", "-qm", "first"]);
        place
    }
}
