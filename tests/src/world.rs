//! Who runs a session, and which overlay writes its layers.

use std::path::PathBuf;

/// The user a session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// An ordinary user.
    User,
    /// Root.
    Root,
}

/// The overlay back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The kernel's.
    Kernel,
    /// fuse-overlayfs.
    Fuse,
}

/// One of the worlds that a promise must hold in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// Whose session.
    pub who: Who,
    /// On which overlay.
    pub overlay: Overlay,
}

impl World {
    /// An ordinary user on the kernel's overlay: the usual one.
    pub const USUAL: Self = Self { who: Who::User, overlay: Overlay::Kernel };

    /// The value of `--overlay`.
    pub fn overlay_name(self) -> &'static str {
        match self.overlay {
            Overlay::Kernel => "kernel",
            Overlay::Fuse => "fuse",
        }
    }

    /// User and group id of the session.
    pub fn ids(self) -> (u32, u32) {
        match self.who {
            Who::User => (number("LANDBOX_TEST_UID"), number("LANDBOX_TEST_GID")),
            Who::Root => {
                assert!(is_root(), "this test runs a session of root: start tests/run.sh as root");
                (0, 0)
            }
        }
    }
}

/// Whether the tests themselves run as root.
pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn set(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the suite by tests/run.sh suite [FILTER..]")
    })
}

fn number(name: &str) -> u32 {
    set(name).parse().unwrap_or_else(|_| panic!("{name} is not a number"))
}

/// The folder that holds every test's place; reachable for every user.
pub fn base() -> PathBuf {
    set("LANDBOX_TEST_BASE").into()
}

/// The folder of the programs under test and the prober.
pub fn bin(name: &str) -> PathBuf {
    let path = PathBuf::from(set("LANDBOX_TEST_BIN")).join(name);
    assert!(path.exists(), "{} is missing: start the suite by tests/run.sh", path.display());
    path
}

/// Whether the programs under test are those that packages installed.
pub fn is_installed() -> bool {
    bin("landbox").is_symlink()
}

/// With what rights the helper runs for an ordinary user, in the word of the documents.
pub fn helper_rights() -> &'static str {
    let capable = is_installed() && std::env::var_os("LANDBOX_TEST_KEY").is_some();
    if capable { "capable" } else { "unprivileged" }
}

/// Makes a test of each function in each of the worlds named: `worlds! { [user_kernel, user_fuse] fn name(world) {..} }`.
#[macro_export]
macro_rules! worlds {
    ($([$($world:ident),+] fn $name:ident($w:ident) $body:block)+) => {
        $(
            mod $name {
                #[allow(unused_imports)]
                use super::*;

                fn promise($w: $crate::world::World) $body

                $(
                    #[test]
                    fn $world() {
                        promise($crate::world::$world());
                    }
                )+
            }
        )+
    };
}

/// An ordinary user, kernel overlay.
pub fn user_kernel() -> World {
    World::USUAL
}

/// An ordinary user, fuse-overlayfs.
pub fn user_fuse() -> World {
    World { who: Who::User, overlay: Overlay::Fuse }
}

/// Root, kernel overlay.
pub fn root_kernel() -> World {
    World { who: Who::Root, overlay: Overlay::Kernel }
}

/// Root, fuse-overlayfs.
pub fn root_fuse() -> World {
    World { who: Who::Root, overlay: Overlay::Fuse }
}
