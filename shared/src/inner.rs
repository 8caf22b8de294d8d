//! What the helper's own processes (monitor, init, task) say to each other.

use crate::event::Event;
use crate::evidence::Evidence;
use crate::id::LayerId;
use serde::{Deserialize, Serialize};

/// One thing said. The comment names who says it to whom.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Monitor to init: the id maps are written.
    Mapped,
    /// Init to monitor: the task's namespace is made too.
    Isolated,
    /// Init to monitor: this host refuses a second user namespace inside the first.
    OneOnly,
    /// Init to monitor: start a daemon for this layer; beside it /dev/fuse, the lowers, upper and work folder.
    Fuse(LayerId),
    /// Monitor to init: it was executed.
    FuseStarted,
    /// Init to monitor: the network rules stand, start the link, which can shut itself in or can't; beside it the socket
    /// to the packet filter.
    Link(bool),
    /// Init to monitor: tell when the link is ready.
    AwaitLink,
    /// Monitor to init: it is.
    LinkReady,
    /// Init to task: the root with this device and inode number stands.
    Mounted(u64, u64),
    /// Task to init: I am in it, with mounts of my own.
    Entered,
    /// Task to init: all rights are gone; the Landlock ABI that scopes me.
    Confined(u32),
    /// Init to monitor: the boundary stands; the numbers of the mounts that the evidence lists, in its order. Beside it
    /// the open list of mounts, then the root of each layer.
    Ready(Box<Evidence>, Vec<u32>),
    /// Monitor to init, init to task: go.
    Release,
    /// Init to monitor, task to init: how it ended.
    End(Event),
}
