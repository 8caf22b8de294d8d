//! Opening, listing, finding and writing session folders.

pub(crate) use super::files::DISCARDED;
use super::files::{has_file, read_json, read_state, starting};
pub use super::files::{write_json, write_new};
pub use super::locks::{Attendance, NamesLock, SessionLock};
use super::locks::{lock_file, lock_in_time};
use super::model::{MODEL_VERSION, Phase, Snapshot, State};
use crate::error::{Context, Failure, Kind, Result};
use crate::ui::text::visible;
use landbox_shared::id::SessionId;
use landbox_shared::path::AbsPath;
use landbox_shared::wire;
use rustix::fs;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Of a snapshot that is not as it was made.
const CHANGED: &str = "its snapshot was changed after it was frozen";

/// Landbox's state folder.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

/// One session: its folder, what was frozen, and where it stands.
#[derive(Clone, Debug)]
pub struct Session {
    /// The canonical session folder.
    pub dir: PathBuf,
    /// The frozen half.
    pub snapshot: Snapshot,
    /// The changing half.
    pub state: State,
}

/// Every session folder there is.
#[derive(Debug)]
pub struct Listing {
    /// Those that can be read.
    pub sessions: Vec<Session>,
    /// Those that can't, with the reason.
    pub broken: Vec<(PathBuf, Failure)>,
}

/// Nobody's session is meant by a directory that has none; who is inside of a project may mean one of that.
fn none_here(sessions: &[Session], here: Option<&AbsPath>) -> Failure {
    let failure = Failure::new(Kind::Usage, "there is no session of this directory");
    let around = |s: &&Session| {
        here.is_some_and(|here| here.as_path().starts_with(s.snapshot.policy.project.as_path()))
    };
    // Of the innermost project the newest, which is listed first.
    let depth = |s: &&Session| std::cmp::Reverse(s.snapshot.policy.project.as_bytes().len());
    let failure = match sessions.iter().filter(around).min_by_key(depth) {
        Some(session) => {
            let (id, project) = (&session.snapshot.id, &session.snapshot.policy.project);
            failure.hint(format!("{id} is the newest of {project}, which this directory is in"))
        }
        None => failure,
    };
    failure.hint("landbox ls lists every session")
}

impl StateDir {
    /// The folder that the environment names, or the default below `home`. As the base directory rules say, a relative
    /// `XDG_STATE_HOME` is ignored.
    pub fn locate(home: &Path) -> PathBuf {
        let named = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let state_home = || named("XDG_STATE_HOME").filter(|dir| dir.is_absolute());
        named("LANDBOX_STATE_DIR")
            .or_else(|| state_home().map(|dir| dir.join("landbox")))
            .unwrap_or_else(|| home.join(".local/state/landbox"))
    }

    /// Opens the state folder, making it if it is missing. Owner and mode are checked: other users' folders are refused.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_absolute() {
            return Err(Failure::new(
                Kind::Usage,
                format!("the state folder must be an absolute path, not {}", show(path)),
            )
            .hint("set LANDBOX_STATE_DIR to an absolute path"));
        }
        own_folder(path)
            .context(|| format!("can't make the state folder {}", show(path)))
            .map_err(|failure| failure.hint("LANDBOX_STATE_DIR=DIR names another place for it"))?;
        let root = path
            .canonicalize()
            .context(|| format!("can't resolve the state folder {}", show(path)))?;
        let meta = std::fs::symlink_metadata(&root)
            .context(|| format!("can't read the state folder {}", show(&root)))?;
        let uid = rustix::process::geteuid().as_raw();
        if meta.uid() != uid {
            let owner = meta.uid();
            return Err(Failure::new(
                Kind::Refused,
                format!(
                    "the state folder {} belongs to uid {owner}, not to you ({uid})",
                    show(&root)
                ),
            )
            .hint("set LANDBOX_STATE_DIR to a folder of your own"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(Failure::new(
                Kind::Refused,
                format!("the state folder {} is open to other users", show(&root)),
            )
            .hint(format!("chmod 700 {}", show(&root))));
        }
        let this = Self { root };
        own_folder(&this.sessions_dir()).context(|| "can't make the sessions folder".into())?;
        Ok(this)
    }

    /// The canonical state folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder the sessions lie in.
    pub fn sessions_dir(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// Every session, newest first.
    pub fn sessions(&self) -> Result<Listing> {
        let dir = self.sessions_dir();
        let mut found = Vec::new();
        let mut broken = Vec::new();
        let entries = std::fs::read_dir(&dir)
            .context(|| format!("can't list the sessions in {}", show(&dir)))?;
        for entry in entries {
            let entry = entry.context(|| format!("can't list the sessions in {}", show(&dir)))?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(SessionId::new) else { continue };
            match self.load(&id) {
                Ok(session) => found.push(session),
                Err(failure) => broken.push((entry.path(), failure)),
            }
        }
        found.sort_by(|a, b| {
            (&b.snapshot.created_at, &b.snapshot.id).cmp(&(&a.snapshot.created_at, &a.snapshot.id))
        });
        Ok(Listing { sessions: found, broken })
    }

    /// Reads one session. A snapshot whose policy does not fit its digest is refused.
    pub fn load(&self, id: &SessionId) -> Result<Session> {
        let dir = self.sessions_dir().join(id.as_str());
        Self::read(id, &dir).map_err(|failure| {
            let layers = show(&dir.join("layers"));
            failure
                .hint(format!("what it wrote is kept in {layers}, as the overlay left it"))
                .hint(format!("landbox discard {id} removes all of it"))
        })
    }

    fn read(id: &SessionId, dir: &Path) -> Result<Session> {
        let snapshot: Snapshot = read_json(&dir.join("snapshot.json"))?;
        let state = read_state(dir, &snapshot)?;
        let refuse = |why: &str| Err(Failure::new(Kind::Refused, format!("session {id}: {why}")));
        for lock in ["controller", "lock"] {
            // Without it nobody could tell whether the session runs.
            if !std::fs::symlink_metadata(dir.join(lock)).is_ok_and(|meta| meta.is_file()) {
                return refuse(&format!("its file {lock} is missing"));
            }
        }
        if snapshot.version != MODEL_VERSION || state.version != MODEL_VERSION {
            return refuse("it was made by another version of landbox");
        }
        if snapshot.id != *id {
            return refuse("its snapshot names another session");
        }
        match wire::policy_digest(&snapshot.policy) {
            Ok(digest) if digest == snapshot.policy_digest => {}
            _ => return refuse(CHANGED),
        }
        if snapshot.digest.is_some() && snapshot.digest != snapshot.own_digest() {
            return refuse(CHANGED);
        }
        // With layers it has a boundary, without any it had none: what was written is never taken for a real file.
        if snapshot.isolated == snapshot.policy.layers.is_empty() {
            return refuse(CHANGED);
        }
        Ok(Session { dir: dir.to_owned(), snapshot, state })
    }

    /// Finds the session meant by `selector`: exact id, else exact name (the newest of that name that is not discarded,
    /// else the newest), else a unique prefix of an id or name; without one, the newest session of `project`.
    pub fn find(&self, selector: Option<&str>, project: Option<&AbsPath>) -> Result<Session> {
        let Listing { sessions, mut broken } = self.sessions()?;
        let Some(selector) = selector else {
            let is_here = |s: &&Session| Some(&s.snapshot.policy.project) == project;
            return match sessions.iter().find(is_here) {
                Some(newest) => Ok(newest.clone()),
                None => Err(none_here(&sessions, project)),
            };
        };
        let is_it = |path: &Path| path.file_name() == Some(OsStr::new(selector));
        if let Some(at) = broken.iter().position(|(path, _)| is_it(path)) {
            return Err(broken.swap_remove(at).1);
        }
        if let Some(exact) = sessions.iter().find(|s| s.snapshot.id.as_str() == selector) {
            return Ok(exact.clone());
        }
        let named = |s: &&Session| s.snapshot.name.as_deref() == Some(selector);
        if let Some(live) =
            sessions.iter().filter(named).find(|s| s.state.landing.discarded_at.is_none())
        {
            return Ok(live.clone());
        }
        if let Some(any) = sessions.iter().find(named) {
            return Ok(any.clone());
        }
        let starts = |s: &&Session| {
            s.snapshot.id.as_str().starts_with(selector)
                || s.snapshot.name.as_deref().is_some_and(|n| n.starts_with(selector))
        };
        let mut matching = sessions.iter().filter(starts);
        let shown = visible(selector.as_bytes());
        match (matching.next(), matching.next()) {
            (Some(one), None) if !selector.is_empty() => Ok(one.clone()),
            (Some(_), Some(_)) => {
                Err(Failure::new(Kind::Usage, format!("more than one session starts with {shown}"))
                    .hint("landbox ls lists every session"))
            }
            _ => {
                let failure = Failure::new(Kind::Usage, format!("there is no session {shown}"));
                // The name of one that can't be read is not known.
                let unread =
                    broken.iter().map(|(_, why)| format!("it may be this one: {}", why.message));
                Err(unread
                    .take(3)
                    .fold(failure, Failure::hint)
                    .hint("landbox ls lists every session"))
            }
        }
    }

    /// The folder of a session that can't be read, if `selector` is its exact id.
    pub fn broken(&self, selector: &str) -> Option<(SessionId, PathBuf)> {
        let id = SessionId::new(selector)?;
        let dir = self.sessions_dir().join(id.as_str());
        let is_dir = std::fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir());
        (is_dir && self.load(&id).is_err()).then_some((id, dir))
    }

    /// Removes the folder of a session that can't be read, if its locks prove that it does not run.
    pub fn remove_broken(&self, id: &SessionId, dir: &Path) -> Result<()> {
        let by_hand = || format!("chmod -R u+rwX {0} && rm -r {0} removes it by hand", show(dir));
        let lock = |name: &str, take: fn(&Path) -> Result<Option<OwnedFd>>| -> Result<OwnedFd> {
            let found = take(&dir.join(name)).map_err(|failure| {
                let why = "nothing proves that the session does not run";
                Failure::new(Kind::Refused, format!("{why}: {failure}")).hint(by_hand())
            })?;
            found.ok_or_else(|| {
                Failure::new(Kind::Refused, format!("session {id} is still running"))
                    .hint("end it first")
            })
        };
        let _held = (lock("controller", lock_file)?, lock("lock", lock_in_time)?);
        self.remove_folder(id, dir)
    }

    /// Makes the folder of a new session: snapshot and locks. Its state is written down with its first boundary, before
    /// anything runs. Nothing is left behind on failure.
    pub fn create(&self, snapshot: Snapshot) -> Result<Session> {
        self.start(snapshot).map(|(session, _)| session)
    }

    /// Like [`StateDir::create`], with the new session attended from the first moment it can be seen.
    pub fn start(&self, mut snapshot: Snapshot) -> Result<(Session, Attendance)> {
        snapshot.digest = snapshot.own_digest();
        let dir = self.sessions_dir().join(snapshot.id.as_str());
        // Built under a name that is no session id and renamed, so that a half-made session is never seen as one.
        let staging = self.sessions_dir().join(format!(".new-{}", snapshot.id));
        let make = || -> Result<Attendance> {
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&staging)
                .context(|| format!("can't make the session folder {}", show(&staging)))?;
            for name in ["controller", "lock"] {
                std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(staging.join(name))
                    .context(|| "can't make the session lock".into())?;
            }
            let attendance = lock_file(&staging.join("controller"))?
                .ok_or_else(|| Failure::new(Kind::Failed, "the new session is locked already"))?;
            write_new(&staging.join("snapshot.json"), &snapshot, 0o400)?;
            std::fs::rename(&staging, &dir)
                .context(|| format!("can't make the session folder {}", show(&dir)))?;
            Ok(Attendance(attendance))
        };
        let result = make();
        if result.is_err() {
            let _ = std::fs::remove_dir_all(&staging);
        }
        let attendance = result?;
        Ok((Session { dir, snapshot, state: starting() }, attendance))
    }

    /// Removes a session's folder. The caller holds its lock, or made it and never started it.
    pub fn remove(&self, session: &Session) -> Result<()> {
        self.remove_folder(&session.snapshot.id, &session.dir)
    }

    fn remove_folder(&self, id: &SessionId, dir: &Path) -> Result<()> {
        let what = || format!("can't remove {}", show(dir));
        // Out of sight in one step: a removal that is cut short leaves no half session, only something to sweep.
        let gone = self.sessions_dir().join(format!(".gone-{id}"));
        std::fs::rename(dir, &gone).context(what)?;
        crate::overlay::remove::remove_tree(&gone).context(what)
    }

    /// What an interrupted start or removal left: folders that are no sessions and that nobody attends.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>> {
        let dir = self.sessions_dir();
        let what = || format!("can't list {}", show(&dir));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir).context(what)? {
            let entry = entry.context(what)?;
            let name = entry.file_name();
            let name = name.as_bytes();
            let attended = || match lock_file(&entry.path().join("controller")) {
                Ok(lock) => lock.is_none(),
                // Without the file it is younger than an instant, or was cut short in that instant.
                Err(_) => entry
                    .metadata()
                    .and_then(|meta| meta.modified())
                    .is_ok_and(|at| at.elapsed().is_ok_and(|age| age.as_secs() < 60)),
            };
            if name.starts_with(b".gone-") || (name.starts_with(b".new-") && !attended()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

impl Session {
    /// Whether nothing ever ran in it: its start was cut short.
    pub fn has_never_started(&self) -> bool {
        self.snapshot.isolated
            && self.state.state == Phase::Starting
            && self.state.launches.iter().all(|launch| launch.boundary.is_none())
    }

    /// Replaces `state.json` atomically. Not synced: the exit path syncs nothing, and `gc` and `land` wait for it.
    pub fn save_state(&self) -> Result<()> {
        write_json(&self.dir.join("state.json"), &self.state, 0o600)
    }

    /// Writes a change down in what lies there now: the controller of a running session and whoever lands it meanwhile
    /// each write their own part.
    pub fn amend(&mut self, change: impl FnOnce(&mut State)) -> Result<()> {
        let _lock = self.lock_state()?;
        self.state = read_state(&self.dir, &self.snapshot)?;
        change(&mut self.state);
        self.save_state()
    }

    /// Like [`Session::save_state`] for who runs the session: what others wrote down of landings meanwhile stays.
    pub fn save_run(&mut self) -> Result<()> {
        let _lock = self.lock_state()?;
        // The first has nothing to keep.
        if has_file(&self.dir, "state.json") {
            self.state.landing = read_state(&self.dir, &self.snapshot)?.landing;
        }
        self.save_state()
    }

    /// Begins to write the session's documents to the disk, and waits for nothing. The file system would let a new file's
    /// first bytes wait for half a minute.
    pub fn write_out(&self) {
        for name in ["snapshot.json", "state.json"] {
            if let Ok(file) = std::fs::File::open(self.dir.join(name)) {
                let _ = fs::fadvise(&file, 0, None, fs::Advice::DontNeed);
            }
        }
    }

    /// The upper folder of a layer.
    pub fn upper(&self, layer: &landbox_shared::id::LayerId) -> PathBuf {
        self.dir.join("layers").join(layer.as_str()).join("upper")
    }
}

/// A path for messages.
pub fn show(path: &Path) -> String {
    visible(path.as_os_str().as_bytes())
}

/// Makes a folder for the caller alone, and its parents, unless there is one. Asking first costs less: to make a name, the
/// kernel locks the folder around it, also where it is there, and a hundred starts at once would wait for each other.
pub(crate) fn own_folder(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing::snapshot;

    fn state() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        (dir, state)
    }

    #[test]
    fn a_session_is_running_as_long_as_its_controller_or_its_helper_lives() {
        let (_dir, state) = state();
        let (session, attendance) = state.start(snapshot("aaaaaaaaaa", None)).unwrap();
        assert!(session.is_running().unwrap());
        assert!(session.attend().unwrap().is_none());
        drop(attendance);
        assert!(!session.is_running().unwrap());
        let helper = session.try_lock().unwrap();
        assert!(session.is_running().unwrap());
        drop(helper);
        assert!(session.attend().unwrap().is_some());
    }

    #[test]
    fn only_what_nobody_attends_is_left_over() {
        let (_dir, state) = state();
        let (session, attendance) = state.start(snapshot("aaaaaaaaaa", None)).unwrap();
        let staging = state.sessions_dir().join(".new-aaaaaaaaaa");
        std::fs::rename(&session.dir, &staging).unwrap();
        std::fs::create_dir(state.sessions_dir().join(".new-bbbbbbbbbb")).unwrap();
        std::fs::create_dir(state.sessions_dir().join(".gone-cccccccccc")).unwrap();
        let names = |list: Vec<PathBuf>| {
            let mut names: Vec<_> =
                list.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(state.leftovers().unwrap()), [".gone-cccccccccc"]);
        drop(attendance);
        assert_eq!(names(state.leftovers().unwrap()), [".gone-cccccccccc", ".new-aaaaaaaaaa"]);
    }

    #[test]
    fn a_removed_session_leaves_nothing() {
        let (_dir, state) = state();
        let session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        state.remove(&session).unwrap();
        assert_eq!(std::fs::read_dir(state.sessions_dir()).unwrap().count(), 0);
    }

    #[test]
    fn a_session_without_a_state_has_never_started_unless_there_is_evidence_of_a_boundary() {
        let (_dir, state) = state();
        let session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        let id = &session.snapshot.id;
        assert!(state.load(id).unwrap().has_never_started());
        let launch = session.dir.join("launches/1");
        std::fs::create_dir_all(&launch).unwrap();
        assert!(state.load(id).unwrap().has_never_started());
        std::fs::write(launch.join("evidence"), "").unwrap();
        assert_eq!(state.load(id).unwrap().state.state, Phase::Failed);
        session.clone().save_run().unwrap();
        assert_eq!(state.load(id).unwrap().state.state, Phase::Starting);
    }

    #[test]
    fn a_state_that_never_reached_the_disk_is_told_from_the_folder_and_no_other_is_guessed_at() {
        let (_dir, state) = state();
        let session = state.create(snapshot("aaaaaaaaaa", None)).unwrap();
        let id = &session.snapshot.id;
        for number in ["1", "2", "10"] {
            std::fs::create_dir_all(session.dir.join("launches").join(number)).unwrap();
        }
        let receipts = state.root().join("receipts");
        std::fs::create_dir(&receipts).unwrap();
        for name in ["aaaaaaaaaa-1-land.json", "aaaaaaaaaa-3-undo.json", "bbbbbbbbbb-7-land.json"] {
            std::fs::write(receipts.join(name), "").unwrap();
        }
        let path = session.dir.join("state.json");
        for lost in [&b""[..], &[0; 512]] {
            std::fs::write(&path, lost).unwrap();
            let found = state.load(id).unwrap().state;
            let launches: Vec<_> = found.launches.iter().map(|launch| launch.number).collect();
            assert_eq!((launches, found.landing.count), (vec![1, 2, 10], 3));
            assert_eq!(found.state, Phase::Failed);
            assert!(found.launches.iter().all(|launch| launch.epochs.is_empty()));
        }
        for written in ["{", "{\"version\": 2}", "\0{"] {
            std::fs::write(&path, written).unwrap();
            assert!(state.load(id).is_err(), "{written:?}");
        }
    }

    #[test]
    fn a_tampered_snapshot_is_refused() {
        let (_dir, state) = state();
        let snapshot = Snapshot { packaged_helper: true, ..snapshot("aaaaaaaaaa", Some("s")) };
        let session = state.create(snapshot).unwrap();
        let path = session.dir.join("snapshot.json");
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [
            ("\"network\": \"none\"", "\"network\": \"host\""),
            ("\"isolated\": true", "\"isolated\": false"),
            ("\"id\": \"aaaaaaaaaa\"", "\"id\": \"bbbbbbbbbb\""),
            ("\"version\": 1", "\"version\": 2"),
            ("\"home\": \"/home/u\"", "\"home\": \"/home/v\""),
            ("\"name\": \"s\"", "\"name\": \"t\""),
            ("\"command\": [\"true\"", "\"command\": [\"false\""),
            ("\"packaged_helper\": true", "\"packaged_helper\": false"),
            ("\"checkpoints\": \"manual\"", "\"checkpoints\": \"turn\""),
            ("\"created_at\": \"2026", "\"created_at\": \"2025"),
            ("\"digest\": \"sha256:", "\"digest\": \"sha256:00"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, changed).unwrap();
            let failure = state.load(&session.snapshot.id).unwrap_err();
            let is_nonsense = failure.message.contains("can't understand");
            assert!(is_nonsense || failure.kind == Kind::Refused, "{to}: {failure}");
            assert_eq!(state.find(Some("aaaaaaaaaa"), None).unwrap_err().message, failure.message);
            // By its name it can't be known.
            let unknown = state.find(Some("s"), None).unwrap_err();
            assert!(
                unknown.hints.iter().any(|hint| hint.contains(&failure.message)),
                "{unknown:?}"
            );
        }
    }
}
