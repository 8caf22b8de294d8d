//! How the two overlays are asked for. A folder is named by a descriptor, never by its path: no path goes into an option,
//! and none needs quoting.

use crate::bytes;
use crate::id::LayerId;
use std::ffi::{CStr, CString};

/// An option of a file system.
pub type Setting = (&'static CStr, Value);

/// What an option is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: it is a flag.
    Flag,
    /// A text.
    Text(String),
    /// What a descriptor leads to.
    Descriptor(i32),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Options of every kernel overlay. `redirect_dir=off` would be refused where the kernel always follows redirects.
const KERNEL: [(&CStr, &str); 5] = [
    (c"redirect_dir", "nofollow"),
    (c"metacopy", "off"),
    (c"index", "off"),
    (c"xino", "off"),
    (c"nfs_export", "off"),
];

/// A path that every kernel takes.
fn name(fd: &i32) -> String {
    format!("/proc/self/fd/{fd}")
}

fn names(fds: &[i32]) -> String {
    fds.iter().map(name).collect::<Vec<_>>().join(":")
}

/// A kernel overlay of `lowers`, topmost first; without an upper and a work folder it is read-only. Linux takes the
/// descriptors themselves from 6.13 on, and looks up no name for them.
pub fn kernel(lowers: &[i32], upper_and_work: Option<[i32; 2]>) -> Vec<Setting> {
    let lowers = lowers.iter().map(|fd| (c"lowerdir+", Value::Descriptor(*fd))).collect();
    with_the_rest(lowers, upper_and_work.map(|fds| fds.map(Value::Descriptor)))
}

/// The same for a kernel that wants names.
pub fn kernel_by_name(lowers: &[i32], upper_and_work: Option<[i32; 2]>) -> Vec<Setting> {
    let lowers = vec![(c"lowerdir", Value::Text(names(lowers)))];
    with_the_rest(lowers, upper_and_work.map(|fds| fds.map(|fd| Value::Text(name(&fd)))))
}

fn with_the_rest(lowers: Vec<Setting>, upper_and_work: Option<[Value; 2]>) -> Vec<Setting> {
    let mut options = lowers;
    options.push((c"source", "landbox".into()));
    if let Some([upper, work]) = upper_and_work {
        options.extend([(c"upperdir", upper), (c"workdir", work)]);
        // Marks in attributes that an unprivileged reader sees; and no fsync for every file that is copied up.
        options.extend([(c"userxattr", Value::Flag), (c"volatile", Value::Flag)]);
    }
    options.extend(KERNEL.map(|(key, value)| (key, value.into())));
    options
}

/// The kernel's end of a fuse-overlayfs: those it gives when it mounts by itself. Permissions are checked by the kernel
/// against the ids it reports. `ids` are those of the mounting process, `map` its `uid_map`.
pub fn fuse_mount(device: i32, ids: [u32; 2], map: &str) -> Vec<Setting> {
    let [user, group] = ids.map(|id| Value::Text(id.to_string()));
    let mut options = vec![
        (c"source", "fuse-overlayfs".into()),
        (c"subtype", "fuse-overlayfs".into()),
        (c"fd", Value::Text(device.to_string())),
        (c"rootmode", "40000".into()),
        (c"user_id", user),
        (c"group_id", group),
        (c"default_permissions", Value::Flag),
    ];
    // Where other ids exist inside, they may enter. Elsewhere the flag would shut the caller out: with it the kernel asks
    // who is asking to live in this user namespace, without it, to have the caller's ids.
    let mut counts = map.lines().filter_map(|line| line.split_whitespace().last());
    if counts.next() != Some("1") || counts.next().is_some() {
        options.push((c"allow_other", Value::Flag));
    }
    options
}

/// The program that serves a layer where the kernel's overlay can't. Nothing overrides its place.
const FUSE_PROGRAM: &CStr = c"/usr/bin/fuse-overlayfs";

/// The program's end: its place, options and mount point for descriptors of `/dev/fuse`, the lowers (topmost first), the upper
/// and the work folder. The last one is the session's lock, which it only holds.
pub fn fuse_program(fds: &[i32]) -> Option<Vec<CString>> {
    let [fuse, lowers @ .., upper, work, _lock] = fds else { return None };
    if lowers.is_empty() {
        return None;
    }
    let (lowers, upper, work) = (names(lowers), name(upper), name(work));
    // fsync inside answers at once, as with a volatile kernel overlay: landing makes durable. What a program writes goes to
    // the layer before it is told so: kept back by the kernel until the file is closed, as would be the default, it
    // would be lost with a program that is killed, and a full disk would be told too late.
    let options = format!("lowerdir={lowers},upperdir={upper},workdir={work},fsync=0,writeback=0");
    // libfuse takes this form as "already mounted".
    let (options, mountpoint) = (CString::new(options), CString::new(format!("/dev/fd/{fuse}")));
    let fixed = [FUSE_PROGRAM, c"-f", c"-o"].map(CStr::to_owned);
    Some(fixed.into_iter().chain([options.ok()?, mountpoint.ok()?]).collect())
}

/// What is said where the program of a layer ended by itself; `said` is what it wrote. File names reach that, and the task
/// chose them.
pub fn ended(layer: &LayerId, said: &[u8]) -> String {
    let why = bytes::last_line(said);
    // What it says as it starts is no reason for its end.
    let why = why.filter(|line| !line.starts_with("unknown argument ignored"));
    format!("the daemon of layer {layer} ended: {}", why.as_deref().unwrap_or("without a word"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_daemon_are_its_reason_and_nothing_of_them_steers_a_terminal() {
        let ended = |said: &[u8]| ended(&LayerId::new("home").unwrap(), said);
        assert_eq!(ended(b"one\ntwo \x1b[2J\n"), "the daemon of layer home ended: two ?[2J");
        for silent in [&b""[..], b"unknown argument ignored: lazytime\n"] {
            assert_eq!(ended(silent), "the daemon of layer home ended: without a word");
        }
    }

    fn value<'a>(options: &'a [Setting], key: &CStr) -> Option<&'a Value> {
        options.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    #[test]
    fn options_hold_numbers_alone_and_the_topmost_lower_comes_first() {
        let program = fuse_program(&[9, 3, 4, 5, 6, 7]).unwrap();
        let [.., options, mountpoint] = &*program else { panic!("{program:?}") };
        assert_eq!(mountpoint.to_str(), Ok("/dev/fd/9"));
        assert_eq!(
            options.to_str().unwrap().split(",fsync").next(),
            Some(
                "lowerdir=/proc/self/fd/3:/proc/self/fd/4,upperdir=/proc/self/fd/5,workdir=/proc/self/fd/6"
            )
        );
        assert!(fuse_program(&[9, 5, 6, 7]).is_none());
        let by_name = kernel_by_name(&[3, 4], Some([5, 6]));
        assert_eq!(value(&by_name, c"lowerdir"), Some(&"/proc/self/fd/3:/proc/self/fd/4".into()));
        assert_eq!(value(&by_name, c"workdir"), Some(&"/proc/self/fd/6".into()));
        let kernel = kernel(&[3, 4], Some([5, 6]));
        let lowers: Vec<_> = kernel.iter().filter(|(key, _)| *key == c"lowerdir+").collect();
        assert_eq!(
            lowers.iter().map(|l| &l.1).collect::<Vec<_>>(),
            [&Value::Descriptor(3), &Value::Descriptor(4)]
        );
        assert_eq!(value(&kernel, c"workdir"), Some(&Value::Descriptor(6)));
        assert_eq!(kernel[5..], by_name[4..]);
    }

    #[test]
    fn an_overlay_without_an_upper_is_asked_for_without_its_marks() {
        for options in [kernel(&[3, 4], None), kernel_by_name(&[3, 4], None)] {
            assert_eq!((value(&options, c"upperdir"), value(&options, c"userxattr")), (None, None));
        }
    }

    #[test]
    fn others_may_enter_a_fuse_layer_only_where_they_exist() {
        let allows = |map: &str| value(&fuse_mount(3, [0, 0], map), c"allow_other").is_some();
        assert!(!allows("         0       1000          1\n"));
        assert!(allows("0 0 4294967295\n"));
        assert!(allows("0 1000 1\n1 100000 1\n"));
    }
}
