//! Opening what the plan mounts: by canonical path, following no link, before anything is mounted.

use super::layer::of_layer;
use super::system::{fixed, new_tmpfs};
use super::target::Kind;
use super::{At, failure};
use crate::failure::Failure;
use crate::open::{FOLDER, PLACE, open, open_beneath};
use crate::sys::mount::clone_tree;
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{Access, LayerOp, Loss, Op, Plan};
use landbox_shared::policy::{Backend, MaskKind};
use landbox_shared::system::{CONSOLE, DEVICES};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{fstat, makedev};
use std::os::fd::{BorrowedFd, OwnedFd};

/// An operation with what was opened for it.
#[derive(Debug)]
pub(super) enum Ready<'a> {
    /// The host's root, copied.
    Root(OwnedFd),
    /// A fresh `/proc`.
    Proc,
    /// A minimal `/dev`: the host's device nodes by name, copied; the terminal's slave is `console`.
    Dev(Devices),
    /// A new tmpfs, or a copied mount tree. In the session's `own` ones mount points may be made.
    Tree { tree: OwnedFd, target: &'a AbsPath, kind: Kind, access: Access, own: bool },
    /// The next of the layers.
    Layer(&'a LayerOp),
    /// A mask outside the layers.
    Mask(Hidden<'a>),
}

/// A layer with its folders (the real one, the one the session writes to, and the overlay's own), and `/dev/fuse` for a fuse
/// layer.
pub(super) type LayerSource<'a> = (&'a LayerOp, [OwnedFd; 3], Option<OwnedFd>);

/// A mask outside the layers.
pub(super) type Hidden<'a> = (&'a AbsPath, MaskKind, Loss);

/// Device nodes by name.
pub(super) type Devices = Vec<(&'static str, OwnedFd)>;

const FUSE: &str = "/dev/fuse";

/// Opens what each operation of the plan needs, in order; and what the layers need.
pub(super) fn open_all<'a>(
    plan: &'a Plan,
    session: BorrowedFd<'_>,
) -> Result<(Vec<Ready<'a>>, Vec<LayerSource<'a>>), Failure> {
    let mut layers = Vec::new();
    let open = |op: &'a Op| match op {
        Op::Root => copy(&fixed("/")?).map(|(tree, _)| Ready::Root(tree)),
        Op::Proc => Ok(Ready::Proc),
        Op::Dev { console } => open_devices(console.as_ref()).map(Ready::Dev),
        Op::Tmpfs { target, mode, size } => {
            let tree = new_tmpfs(*mode, *size, 0).at(target, "making a tmpfs")?;
            let (kind, access) = (Kind::Folder, Access::ReadWrite);
            Ok(Ready::Tree { tree, target, kind, access, own: true })
        }
        Op::Private { source, target, access } => {
            let (fd, path) = open_own(plan, session, source)?;
            let (tree, kind) = copy_mounts(&fd, &path)?;
            Ok(Ready::Tree { tree, target, kind, access: *access, own: true })
        }
        Op::Bind { source, target, access } => {
            let (tree, kind) = copy(source)?;
            Ok(Ready::Tree { tree, target, kind, access: *access, own: false })
        }
        Op::Layer(layer) => {
            layers.push(open_layer(plan, session, layer).map_err(of_layer)?);
            Ok(Ready::Layer(layer))
        }
        Op::Mask { target, kind, loss } => Ok(Ready::Mask((target, *kind, *loss))),
    };
    let ops = plan.ops.iter().map(open).collect::<Result<_, _>>()?;
    Ok((ops, layers))
}

/// Opens a place beneath the session's folder, and says how it is called.
fn open_own(
    plan: &Plan,
    session: BorrowedFd<'_>,
    path: &RelPath,
) -> Result<(OwnedFd, AbsPath), Failure> {
    let folder = &plan.session_dir;
    let shown = folder
        .join(path.as_bytes())
        .map_err(|_| failure(Errno::ENAMETOOLONG, folder, "a path below this is too long"))?;
    let fd = open_beneath(session, path.as_bytes(), PLACE)
        .at(&shown, "opening a folder of the session")?;
    Ok((fd, shown))
}

/// Copies the mounts at a canonical path of the host.
fn copy(path: &AbsPath) -> Result<(OwnedFd, Kind), Failure> {
    let fd = open(path.as_bytes(), PLACE).at(path, "opening what is to be shown")?;
    copy_mounts(&fd, path)
}

/// A link opened at the end of a path is refused here.
fn copy_mounts(fd: &OwnedFd, path: &AbsPath) -> Result<(OwnedFd, Kind), Failure> {
    let kind = Kind::of(fd, path)?;
    let tree = clone_tree(fd, "").at(path, "copying the mount of what is to be shown")?;
    Ok((tree, kind))
}

fn open_devices(console: Option<&AbsPath>) -> Result<Devices, Failure> {
    let mut nodes = Vec::with_capacity(DEVICES.len() + 1);
    let dev = open("/dev", FOLDER).at(&fixed("/dev")?, "opening the host's devices")?;
    for (name, major, minor) in DEVICES {
        let path = fixed(&format!("/dev/{name}"))?;
        let node = clone_tree(&dev, name).at(&path, "copying a device")?;
        let stat = fstat(&node).at(&path, "reading a device")?;
        let kind = stat.st_mode & libc::S_IFMT;
        if (kind, stat.st_rdev) != (libc::S_IFCHR, makedev(major, minor)) {
            return Err(failure(Errno::ENODEV, &path, "this is not the device of that name"));
        }
        nodes.push((name, node));
    }
    if let Some(path) = console {
        nodes.push((CONSOLE, copy(path)?.0));
    }
    Ok(nodes)
}

fn open_layer<'a>(
    plan: &Plan,
    session: BorrowedFd<'_>,
    layer: &'a LayerOp,
) -> Result<LayerSource<'a>, Failure> {
    let own = |name: &str| {
        let path = RelPath::new(format!("layers/{}/{name}", layer.id))
            .map_err(|_| failure(Errno::EINVAL, &layer.target, "bad layer name"))?;
        open_own(plan, session, &path).and_then(folder)
    };
    let lower = open(layer.target.as_bytes(), PLACE)
        .at(&layer.target, "opening the real folder of a layer")?;
    let (lower, work) = (folder((lower, layer.target.clone()))?, format!("work.{}", plan.launch));
    // Before scratch covers the old `/dev`.
    let fuse = (layer.backend == Backend::Fuse).then(open_fuse).transpose()?;
    Ok((layer, [lower, own("upper")?, own(&work)?], fuse))
}

fn folder((fd, path): (OwnedFd, AbsPath)) -> Result<OwnedFd, Failure> {
    match Kind::of(&fd, &path)? {
        Kind::Folder => Ok(fd),
        Kind::Other => Err(failure(Errno::ENOTDIR, &path, "this is not a folder")),
    }
}

/// The kernel ties the mount to the user namespace of whoever opens this: it must be us, not the monitor.
fn open_fuse() -> Result<OwnedFd, Failure> {
    open(FUSE, OFlag::O_RDWR).at(&fixed(FUSE)?, "opening the fuse device")
}
