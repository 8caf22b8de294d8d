//! Where landings may keep things on a project's own file system, when the state folder is on another.

use landbox_shared::path::AbsPath;

/// What the folder is called that is made in a project whose owner may write nowhere else.
pub const INSIDE: &str = ".landbox";

/// In the order in which they are tried: the repository's `.git`, where git looks at nothing it does not know; a folder
/// of ours beside the project; and, where its owner may write nowhere else, one in it that tells git to ignore it.
pub fn outside(project: &AbsPath, uid: u32) -> Vec<AbsPath> {
    let beside = project.parent().map(|parent| parent.join(format!(".landbox-{uid}")));
    [Some(project.join(".git/landbox")), beside, Some(project.join(INSIDE))]
        .into_iter()
        .filter_map(|place| place?.ok())
        .collect()
}
