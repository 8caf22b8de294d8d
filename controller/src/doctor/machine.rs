//! Kernel, user namespaces, `/proc`, Landlock, the helper, git.

use super::{Check, Status, from_failure, has_program, quote, sudo};
use crate::host::Mount;
use crate::host::helper::{self, Helper};
use crate::launch::UNMASK_PROC;
use landbox_shared::evidence::HelperMode;
use std::path::Path;
use std::process::{Command, Stdio};

/// The first kernel whose overlay an ordinary user can mount.
const OVERLAY: (u32, u32) = (5, 11);
/// The first kernel with everything the helper needs (`openat2`, `clone3`, pidfds).
const OLDEST: (u32, u32) = (5, 6);
/// The first kernel whose Landlock keeps signals and abstract sockets inside.
const SCOPES: (u32, u32) = (6, 12);
/// The Landlock ABI of [`SCOPES`].
const SCOPES_ABI: u64 = 6;

pub(super) fn kernel(version: (u32, u32)) -> Check {
    let (major, minor) = version;
    let found = format!("Linux {major}.{minor}");
    if version < OLDEST {
        let cost = "no session can be run; Landbox needs Linux 5.6 or newer";
        Check::bad("kernel", Status::Failed, found, cost, None)
    } else if version < OVERLAY {
        let cost = "its overlay needs root; sessions use fuse-overlayfs, which is slower";
        Check::bad("kernel", Status::Warning, found, cost, None)
    } else {
        Check::ok("kernel", found)
    }
}

pub(super) fn helper() -> Check {
    const ID: &str = "helper";
    let helper = match helper::find() {
        Ok(helper) => helper,
        Err(failure) => return from_failure(ID, failure),
    };
    let path = &helper.path;
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).output();
    let said = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let ours = env!("CARGO_PKG_VERSION");
    let shown = crate::session::store::show(path);
    match said {
        Ok(said) if said.split_whitespace().any(|word| word == ours) => {
            Check::ok(ID, format!("{shown}, version {ours}, {}", chosen(&helper)))
        }
        Ok(said) => Check::bad(
            ID,
            Status::Failed,
            format!("{shown} says \"{}\"", crate::ui::text::visible(said.as_bytes())),
            format!("no session can be run: this is landbox {ours}"),
            Some("cargo build --release".into()),
        ),
        Err(e) => Check::bad(
            ID,
            Status::Failed,
            format!("{shown} can't be run: {e}"),
            "no session can be run",
            Some(format!("{}chmod 755 {}", sudo(), quote(path))),
        ),
    }
}

/// Why this one, and with what rights it runs.
fn chosen(helper: &Helper) -> String {
    let why = if helper.packaged { "the packaged one" } else { "beside landbox" };
    let mode = match (rustix::process::geteuid().is_root(), helper.is_capable()) {
        (true, _) => HelperMode::Root,
        (false, true) => HelperMode::Capable,
        (false, false) => HelperMode::Unprivileged,
    };
    format!("{why}, {}", mode.words())
}

/// What the administrator lets unprivileged users do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// `user.max_user_namespaces`.
    max_user_namespaces: Option<u64>,
    /// Debian's `kernel.unprivileged_userns_clone` is 0.
    clone_forbidden: bool,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns` is on.
    pub(super) apparmor_restricts: bool,
    /// The packaged helper, whose file capability gets round the last two, is what is used.
    packaged: bool,
}

impl Settings {
    pub(super) fn read() -> Self {
        let number =
            |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
        Self {
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            clone_forbidden: number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0),
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                .is_some_and(|value| value != 0),
            packaged: helper::find().is_ok_and(|helper| helper.is_capable()),
        }
    }
}

pub(super) fn user_namespaces(uid: u32, settings: &Settings) -> Check {
    const ID: &str = "user_namespaces";
    let helped = uid == 0 || settings.packaged;
    if settings.max_user_namespaces == Some(0) {
        return Check::bad(
            ID,
            Status::Failed,
            "user.max_user_namespaces is 0: nobody can make one, not even root",
            "no session can be run",
            Some(format!("{}sysctl -w user.max_user_namespaces=15000", sudo())),
        );
    }
    if settings.clone_forbidden && !helped {
        return Check::bad(
            ID,
            Status::Failed,
            "kernel.unprivileged_userns_clone is 0: only root can make one",
            "no session can be run, except with the packaged helper",
            Some(format!("{}sysctl -w kernel.unprivileged_userns_clone=1", sudo())),
        );
    }
    if settings.apparmor_restricts && !helped {
        return Check::bad(
            ID,
            Status::Warning,
            "kernel.apparmor_restrict_unprivileged_userns is on: those of ordinary users have no rights",
            "sessions need a profile for the helper, or the packaged helper",
            apparmor_fix(),
        );
    }
    Check::ok(ID, "allowed")
}

/// The command that gives the helper a profile that may make user namespaces.
pub(super) fn apparmor_fix() -> Option<String> {
    let helper = helper::find().ok()?;
    let path =
        helper.path.to_str().filter(|path| !path.contains(['"', '\'', '\n', '*', '{', '[']))?;
    let file = "/etc/apparmor.d/landbox-helper";
    Some(format!(
        "printf '%s\\n' 'abi <abi/4.0>,' 'include <tunables/global>' \
         'profile landbox-helper \"{path}\" flags=(unconfined) {{ userns, }}' | \
         {s}tee {file} && {s}apparmor_parser -r {file}",
        s = sudo()
    ))
}

/// Mount points in a proc that hide nothing: the kernel keeps these folders empty for a file system of its own.
const EMPTY_BY_DESIGN: &[&str] = &["sys/fs/binfmt_misc", "fs/nfsd", "openprom", "xen"];

/// What is mounted over parts of the proc at `place`.
fn covering(mounts: &[Mount], place: &str) -> Vec<String> {
    let points = mounts.iter().map(|mount| mount.point.to_string());
    let hides = |point: &String| {
        let part = point.strip_prefix(place).and_then(|rest| rest.strip_prefix('/'));
        part.is_some_and(|part| !EMPTY_BY_DESIGN.contains(&part))
    };
    points.filter(hides).collect()
}

pub(super) fn proc_mounts(mounts: &[Mount]) -> Check {
    const ID: &str = "proc";
    let covered = covering(mounts, "/proc");
    let Some(first) = covered.first() else { return Check::ok(ID, "nothing in it is covered") };
    let found = match covered.len() {
        1 => format!("{first} is covered by a mount"),
        n => format!("{first} and {} more are covered by mounts", n - 1),
    };
    // One whole proc is enough for the kernel, wherever it is mounted: LXC puts one aside where containers may be nested.
    let whole = |mount: &&Mount| {
        let point = mount.point.to_string();
        mount.fs_type == "proc" && mount.root == b"/" && covering(mounts, &point).is_empty()
    };
    if let Some(mount) = mounts.iter().find(whole) {
        return Check::ok(ID, format!("{found}, but a whole one is at {}", mount.point));
    }
    // What a container manager hides, the kernel does not show again in a fresh /proc.
    Check::bad(
        ID,
        Status::Failed,
        found,
        "no session can be run: the kernel refuses it a /proc of its own",
        Some(UNMASK_PROC.into()),
    )
}

/// `abi` as a session saw it; without a session, the kernel's version must do.
pub(super) fn landlock(kernel: (u32, u32), abi: Option<u64>) -> Check {
    const ID: &str = "landlock";
    let (works, found) = match abi {
        Some(0) => (false, "the kernel has none, or it is off".to_owned()),
        Some(abi) => (abi >= SCOPES_ABI, format!("ABI {abi}")),
        None => {
            let (major, minor) = kernel;
            (kernel >= SCOPES, format!("Linux {major}.{minor}, not tried"))
        }
    };
    if works {
        return Check::ok(ID, found);
    }
    let cost = "abstract sockets and signals are held back by the namespaces alone, and with the host's network \
                its abstract sockets can be reached";
    // A new enough kernel has it, unless it was left out of the list of security modules at boot.
    let fix = (kernel >= SCOPES).then(|| {
        "add landlock to the lsm= list of the kernel's command line (cat /sys/kernel/security/lsm), and reboot"
            .to_owned()
    });
    Check::bad(ID, Status::Warning, found, cost, fix)
}

pub(super) fn git() -> Check {
    const ID: &str = "git";
    let output = Command::new("git").arg("--version").stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            Check::ok(ID, crate::ui::text::visible(said.trim().as_bytes()))
        }
        Ok(_) | Err(_) => Check::bad(
            ID,
            Status::Warning,
            "not found",
            "ignored files that git tracks can't be told from build output; `git apply` of a patch needs it too",
            has_program("apt-get").then(|| format!("{}apt-get install -y git", sudo())),
        ),
    }
}

/// Whether a path exists, for [`super::storage`] too.
pub(super) fn exists(path: &str) -> bool {
    Path::new(path).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use landbox_shared::path::AbsPath;

    #[test]
    fn each_restriction_of_user_namespaces_is_told_apart() {
        let check = |uid, settings: Settings| user_namespaces(uid, &settings);
        let free = Settings { max_user_namespaces: Some(1000), ..Settings::default() };
        assert_eq!(check(1000, free).status, Status::Ok);
        let none = Settings { max_user_namespaces: Some(0), ..free };
        for uid in [0, 1000] {
            let check = check(uid, none);
            assert_eq!(check.status, Status::Failed);
            assert!(check.fix.unwrap().contains("user.max_user_namespaces"));
        }
        let debian = Settings { clone_forbidden: true, ..free };
        assert!(check(1000, debian).fix.unwrap().contains("unprivileged_userns_clone=1"));
        assert_eq!(check(0, debian).status, Status::Ok);
        assert_eq!(check(1000, Settings { packaged: true, ..debian }).status, Status::Ok);
        let ubuntu = Settings { apparmor_restricts: true, ..free };
        assert_eq!(check(1000, ubuntu).status, Status::Warning);
        assert_eq!(check(1000, Settings { packaged: true, ..ubuntu }).status, Status::Ok);
    }

    #[test]
    fn a_masked_proc_fails_and_its_own_empty_folders_do_not() {
        let at = |points: &[&str]| {
            let mounts: Vec<Mount> = points
                .iter()
                .map(|p| Mount {
                    point: AbsPath::new(*p).unwrap(),
                    device: b"8:1".to_vec(),
                    root: b"/".to_vec(),
                    fs_type: "tmpfs".into(),
                })
                .collect();
            proc_mounts(&mounts)
        };
        assert_eq!(
            at(&["/", "/proc", "/proc/sys/fs/binfmt_misc", "/procession"]).status,
            Status::Ok
        );
        let masked = at(&["/proc/kcore", "/proc/timer_list"]);
        assert_eq!(masked.status, Status::Failed);
        assert!(masked.found.contains("/proc/kcore and 1 more"));
        assert!(masked.fix.is_some());
    }

    #[test]
    fn one_whole_proc_is_enough_wherever_it_is() {
        let at = |mounts: &[(&str, &str, &[u8])]| {
            let mount = |(point, fs_type, root): &(&str, &str, &[u8])| Mount {
                point: AbsPath::new(*point).unwrap(),
                device: b"0:65".to_vec(),
                root: root.to_vec(),
                fs_type: (*fs_type).into(),
            };
            proc_mounts(&mounts.iter().map(mount).collect::<Vec<_>>())
        };
        let masked: [(&str, &str, &[u8]); 2] =
            [("/proc", "proc", b"/"), ("/proc/sys", "proc", b"/sys")];
        let aside: (&str, &str, &[u8]) = ("/dev/.lxc/proc", "proc", b"/");
        assert_eq!(at(&masked).status, Status::Failed);
        let check = at(&[&masked[..], &[aside]].concat());
        assert_eq!(check.status, Status::Ok);
        assert!(check.found.ends_with("a whole one is at /dev/.lxc/proc"), "{}", check.found);
        let covered = ("/dev/.lxc/proc/kcore", "tmpfs", &b"/"[..]);
        assert_eq!(at(&[&masked[..], &[aside, covered]].concat()).status, Status::Failed);
    }

    #[test]
    fn old_kernels_are_told_what_they_cost() {
        assert_eq!(kernel((6, 18)).status, Status::Ok);
        assert_eq!(kernel((5, 10)).status, Status::Warning);
        assert_eq!(kernel((4, 19)).status, Status::Failed);
        assert_eq!(landlock((6, 18), Some(7)).status, Status::Ok);
        assert_eq!(landlock((6, 18), Some(0)).status, Status::Warning);
        assert_eq!(landlock((6, 1), Some(2)).status, Status::Warning);
        assert_eq!(landlock((6, 12), None).status, Status::Ok);
    }
}
