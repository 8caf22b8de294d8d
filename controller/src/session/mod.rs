//! Sessions on disk. The session's folder is the truth; any index over it is rebuildable.

pub mod model;
pub mod store;
