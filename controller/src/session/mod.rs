//! Sessions on disk. The session's folder is the truth; any index over it is rebuildable.

pub mod document;
pub mod model;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
