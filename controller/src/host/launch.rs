//! What a policy meets at one launch: everything that may differ from one launch to the next.

use super::files::{self, Kind, Located};
use super::run::{self, Shown, is_in_run};
use super::{Facts, Mount, is_below, mounts, read, sockets, ssh, storage};
use crate::error::Result;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::{Mask, Policy};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Folders of the host that a session never sees: it gets its own, empty ones.
pub const PRIVATE: &[&str] = &["/tmp", "/var/tmp", "/run", "/dev"];

/// The facts of one launch.
#[derive(Clone, Debug, Default)]
pub struct LaunchView {
    /// What links of `/etc` need from `/run`.
    pub etc: Vec<Shown>,
    /// Where `/etc/resolv.conf` leads.
    pub resolv: Option<Located>,
    /// The policy's folders below `/run`, as they lie now.
    pub run_folders: Vec<Shown>,
    /// Bound sockets that are there and that the caller can reach.
    pub sockets: Vec<AbsPath>,
    /// ssh's included files, where a session would see them as nobody's.
    pub ssh: ssh::SshFiles,
    /// The policy's read-only paths, auth paths and layer targets, with what is there now.
    pub kinds: Vec<(AbsPath, Kind)>,
    /// Where a `/proc` of the host's is mounted besides `/proc` itself (a chroot's, say), with what is there.
    pub procs: Vec<(AbsPath, Kind)>,
    /// Other paths of what the policy masks: its file system is mounted a second time.
    pub mask_aliases: Vec<Mask>,
    /// Masked paths below a read-only or auth path that are links now.
    pub masked_links: Vec<AbsPath>,
    /// Every mount of this namespace.
    pub mounts: Vec<Mount>,
    /// This program, where its file is still there.
    pub exe: Option<AbsPath>,
    /// The canonical `/var/tmp`, unless it is `/tmp` by another name.
    pub var_tmp: Option<AbsPath>,
    /// `HOME` for the task: as the caller wrote it where that leads to the home folder inside too.
    pub home: OsString,
    /// `PWD` for the task: as the caller wrote it where that leads to the project inside too.
    pub pwd: OsString,
    /// Whether the project lies inside a git repository that begins above it.
    pub repository_above: bool,
}

impl LaunchView {
    /// Asks the kernel what `policy` meets now.
    pub fn gather(policy: &Policy, facts: &Facts) -> Result<Self> {
        let files = &facts.files;
        let mut run_folders: Vec<Shown> =
            policy.run_folders.iter().flat_map(|p| run::shown_again(files, p.as_path())).collect();
        run_folders.sort();
        run_folders.dedup();
        let kinds = policy
            .read_only
            .iter()
            .chain(&policy.auth)
            .chain(policy.layers.iter().map(|layer| &layer.target))
            .map(|path| (path.clone(), files::kind_of(path.as_path())))
            .collect();
        let mask_aliases = policy
            .masks
            .iter()
            .flat_map(|mask| {
                let alias = |path| Mask { path, kind: mask.kind };
                mounts::aliases(&facts.mounts, &mask.path).into_iter().map(alias)
            })
            // Where the caller may not look, a session may not either.
            .filter(|mask| files::kind_of(mask.path.as_path()) != Kind::Denied)
            .collect();
        let procs = facts
            .mounts
            .iter()
            .filter(|mount| mount.fs_type == "proc" && !is_below(&mount.point, "/proc"))
            .map(|mount| (mount.point.clone(), files::kind_of(mount.point.as_path())))
            .collect();
        let real = || policy.read_only.iter().chain(&policy.auth);
        let masked_links = policy
            .masks
            .iter()
            .map(|mask| &mask.path)
            .filter(|path| real().any(|real| path.is_within(real)))
            .filter(|path| files::kind_of(path.as_path()) == Kind::Link)
            .cloned()
            .collect();
        let spelled = |text: Option<OsString>, wanted: &AbsPath| {
            text.filter(|text| leads_inside(facts, text, wanted))
                .unwrap_or_else(|| wanted.as_path().into())
        };
        Ok(Self {
            etc: run::needed_by_etc(files),
            resolv: files.locate(Path::new("/etc/resolv.conf")),
            run_folders,
            sockets: reachable_sockets(facts)?,
            // With every id mapped, root's files are root's inside too.
            ssh: if facts.maps_everyone { ssh::SshFiles::default() } else { ssh::gather(files) },
            kinds,
            procs,
            mask_aliases,
            masked_links,
            mounts: facts.mounts.clone(),
            exe: Some(facts.exe.clone()).filter(|exe| files::kind_of(exe.as_path()) == Kind::File),
            var_tmp: files
                .locate(Path::new("/var/tmp"))
                .filter(|at| at.kind == Kind::Dir && at.path.as_bytes() != b"/tmp")
                .map(|at| at.path),
            home: spelled(Some(facts.home_spelled.clone().into_os_string()), &policy.home),
            pwd: spelled(std::env::var_os("PWD"), &policy.project),
            repository_above: repository_above(policy.project.as_path()),
        })
    }
}

/// Whether git, started in `project`, finds its repository in a folder above: on the same file system, as it demands.
fn repository_above(project: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    let own = device(project);
    let begins = |path: &Path| std::fs::symlink_metadata(path.join(".git")).is_ok();
    !begins(project)
        && project.ancestors().skip(1).take_while(|path| device(path) == own).any(begins)
}

/// Whether `text` is a spelling of `wanted` that holds inside: no link on the way lies in a folder that is private.
fn leads_inside(facts: &Facts, text: &std::ffi::OsStr, wanted: &AbsPath) -> bool {
    // `..` after a link, or a doubled slash, would be a PWD that shells refuse.
    let Ok(spelled) = AbsPath::new(text.as_bytes()) else { return false };
    facts
        .files
        .locate(spelled.as_path())
        .is_some_and(|at| at.path == *wanted && !at.hops.iter().any(|hop| is_private(&hop.link)))
}

/// Whether the host's `path` is replaced by a private folder inside.
pub fn is_private(path: &AbsPath) -> bool {
    PRIVATE.iter().any(|private| is_below(path, private))
}

fn reachable_sockets(facts: &Facts) -> Result<Vec<AbsPath>> {
    let mut found = sockets::places(&read("/proc/net/unix")?);
    // A socket bound in another network namespace is in no table of ours, but a mount of one shows itself.
    let is_local =
        |m: &&Mount| m.root != b"/" && !storage::may_hang(&m.fs_type) && !is_in_run(&m.point);
    found.extend(facts.mounts.iter().filter(is_local).map(|m| m.point.to_path_buf()));
    let can_connect = |path: &AbsPath| files::may_write(path.as_path(), facts.uid);
    // Paths that may lead through links.
    let mut found: Vec<AbsPath> = found
        .iter()
        .filter_map(|path| facts.files.locate(path))
        .filter(|at| at.kind == Kind::Socket)
        .map(|at| at.path)
        .filter(can_connect)
        .collect();
    let aliases: Vec<AbsPath> = found
        .iter()
        .flat_map(|path| mounts::aliases(&facts.mounts, path))
        .filter(|path| files::kind_of(path.as_path()) == Kind::Socket)
        .collect();
    found.extend(aliases);
    found.sort();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_spelling_is_kept_only_where_it_leads_to_the_same_folder_inside() {
        let facts = Facts::gather().unwrap();
        let real = std::fs::canonicalize("/usr/bin").unwrap();
        let real = AbsPath::from_path(&real).unwrap();
        let holds = |text: &str| leads_inside(&facts, OsStr::new(text), &real);
        assert!(holds(&real.to_string()));
        // Through a link of the root, where the host has one.
        assert_eq!(holds("/bin"), std::fs::canonicalize("/bin").unwrap() == real.as_path());
        assert!(!holds("/usr"));
        assert!(!holds("/usr/./bin"));
        assert!(!holds("usr/bin"));
        // Through a link in a folder that is private inside.
        let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/usr/bin", &link).unwrap();
        assert!(!holds(link.to_str().unwrap()));
    }

    #[test]
    fn private_folders_count_whole_components() {
        let private = |path: &str| is_private(&AbsPath::new(path).unwrap());
        assert!(
            private("/tmp") && private("/run/x") && private("/dev/shm") && private("/var/tmp/y")
        );
        assert!(!private("/tmpfiles") && !private("/var") && !private("/runner/x"));
    }
}
