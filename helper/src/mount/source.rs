//! Opening what the plan mounts: by canonical path, following no link, before anything is mounted.

use super::system::fixed;
use super::target::{Kind, Origin};
use super::{At, failure};
use crate::sys::mount::clone_tree;
use landbox_shared::event::{Failure, Stage};
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{Access, LayerOp, Loss, Op, Plan};
use landbox_shared::policy::{Backend, MaskKind};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{fstat, makedev};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// An operation with what was opened for it.
#[derive(Debug)]
pub(super) enum Ready<'a> {
    /// The host's root, copied.
    Root(OwnedFd),
    /// A fresh `/proc`.
    Proc,
    /// A minimal `/dev`: the host's device nodes by name, copied; the terminal's slave is `console`.
    Dev(Devices),
    /// An empty tmpfs: where, mode, size.
    Tmpfs(&'a AbsPath, u32, u64),
    /// A copied mount tree.
    Bind { tree: OwnedFd, target: &'a AbsPath, access: Access, origin: Origin },
    /// A layer.
    Layer(&'a LayerOp, LayerSource),
    /// A mask outside the layers.
    Mask(Hidden<'a>),
}

/// A mask outside the layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden<'a> {
    pub target: &'a AbsPath,
    pub kind: MaskKind,
    pub loss: Loss,
}

/// The folders of a layer.
#[derive(Debug)]
pub(super) struct LayerSource {
    /// The real folder.
    pub lower: OwnedFd,
    /// Where the session writes.
    pub upper: OwnedFd,
    /// The overlay's own.
    pub work: OwnedFd,
    /// `/dev/fuse`, for a fuse layer.
    pub fuse: Option<OwnedFd>,
}

/// Device nodes by name.
pub(super) type Devices = Vec<(&'static str, OwnedFd)>;

/// Where the terminal's slave shows.
pub(super) const CONSOLE: &str = "console";

/// Name and device number of what a minimal `/dev` holds.
const DEVICES: [(&str, u64, u64); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Opens what each operation of the plan needs, in order.
pub(super) fn open_all<'a>(
    plan: &'a Plan,
    session: BorrowedFd<'_>,
) -> Result<Vec<Ready<'a>>, Failure> {
    let open = |op: &'a Op| match op {
        Op::Root => copy(&fixed("/")?).map(Ready::Root),
        Op::Proc => Ok(Ready::Proc),
        Op::Dev { console } => open_devices(console.as_ref()).map(Ready::Dev),
        Op::Tmpfs { target, mode, size } => Ok(Ready::Tmpfs(target, *mode, *size)),
        Op::Private { source, target, access } => {
            let path = below(&plan.session_dir, source)?;
            let fd =
                open_beneath(session, source.as_bytes()).at(&path, "opening a session's own")?;
            let tree = copy_mounts(&fd, &path)?;
            Ok(Ready::Bind { tree, target, access: *access, origin: Origin::Session })
        }
        Op::Bind { source, target, access } => {
            let tree = copy(source)?;
            Ok(Ready::Bind { tree, target, access: *access, origin: Origin::Host })
        }
        Op::Layer(layer) => open_layer(plan, session, layer)
            .map(|source| Ready::Layer(layer, source))
            .map_err(|failure| Failure { stage: Stage::Layer, ..failure }),
        Op::Mask { target, kind, loss } => {
            Ok(Ready::Mask(Hidden { target, kind: *kind, loss: *loss }))
        }
    };
    plan.ops.iter().map(open).collect()
}

fn below(folder: &AbsPath, rest: &RelPath) -> Result<AbsPath, Failure> {
    folder
        .join(rest.as_bytes())
        .map_err(|_| failure(Errno::ENAMETOOLONG, Some(folder), "a path below this is too long"))
}

fn how(resolve: ResolveFlag) -> OpenHow {
    OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(resolve | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS)
}

/// Opens a canonical path of the host as a place.
fn open(path: &AbsPath) -> nix::Result<OwnedFd> {
    openat2(AT_FDCWD, path.as_bytes(), how(ResolveFlag::empty()))
}

/// Opens a place below a folder, never outside it and through no link; a link at the end is opened itself.
pub(super) fn open_beneath(folder: BorrowedFd<'_>, path: &[u8]) -> nix::Result<OwnedFd> {
    openat2(folder, path, how(ResolveFlag::RESOLVE_BENEATH))
}

/// Copies the mounts at a canonical path of the host.
fn copy(path: &AbsPath) -> Result<OwnedFd, Failure> {
    let fd = open(path).at(path, "opening what is to be shown")?;
    copy_mounts(&fd, path)
}

/// A link opened at the end of a path is refused here.
fn copy_mounts(fd: &OwnedFd, path: &AbsPath) -> Result<OwnedFd, Failure> {
    Kind::of(fd.as_fd(), path)?;
    clone_tree(fd.as_fd(), Path::new("")).at(path, "copying the mount of what is to be shown")
}

fn open_devices(console: Option<&AbsPath>) -> Result<Devices, Failure> {
    let mut nodes = Vec::with_capacity(DEVICES.len());
    for (name, major, minor) in DEVICES {
        let path = fixed(&format!("/dev/{name}"))?;
        let node = copy(&path)?;
        let stat = fstat(&node).at(&path, "reading a device")?;
        let kind = stat.st_mode & libc::S_IFMT;
        if (kind, stat.st_rdev) != (libc::S_IFCHR, makedev(major, minor)) {
            return Err(failure(Errno::ENODEV, Some(&path), "this is not the device of that name"));
        }
        nodes.push((name, node));
    }
    if let Some(path) = console {
        nodes.push((CONSOLE, copy(path)?));
    }
    Ok(nodes)
}

fn open_layer(
    plan: &Plan,
    session: BorrowedFd<'_>,
    layer: &LayerOp,
) -> Result<LayerSource, Failure> {
    let own = |name: String| {
        let path = RelPath::new(format!("layers/{}/{name}", layer.id))
            .map_err(|_| failure(Errno::EINVAL, Some(&layer.target), "bad layer name"))?;
        let shown = below(&plan.session_dir, &path)?;
        let fd = open_beneath(session, path.as_bytes()).at(&shown, "opening a layer's folder")?;
        folder(fd, &shown)
    };
    let lower = open(&layer.target).at(&layer.target, "opening the real folder of a layer")?;
    // Before scratch covers the old `/dev`.
    let fuse = (layer.backend == Backend::Fuse).then(open_fuse).transpose()?;
    Ok(LayerSource {
        lower: folder(lower, &layer.target)?,
        upper: own("upper".to_owned())?,
        work: own(format!("work.{}", plan.launch))?,
        fuse,
    })
}

fn folder(fd: OwnedFd, path: &AbsPath) -> Result<OwnedFd, Failure> {
    match Kind::of(fd.as_fd(), path)? {
        Kind::Folder => Ok(fd),
        Kind::Other => Err(failure(Errno::ENOTDIR, Some(path), "this is not a folder")),
    }
}

/// The kernel ties the mount to the user namespace of whoever opens this: it must be us, not the monitor.
fn open_fuse() -> Result<OwnedFd, Failure> {
    let path = fixed("/dev/fuse")?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDWR | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, path.as_bytes(), how).at(&path, "opening the fuse device")
}
