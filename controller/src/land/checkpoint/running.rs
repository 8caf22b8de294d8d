//! Going back with a session that runs: by way of what it sees, so that it sees it, and each path only as long as it is what
//! it was when it was looked at.
//!
//! Its home stays as it is: a command that loses its own notes while it runs has no use for what it sees, and what was said
//! to it is not unsaid.

use super::folder::Folder;
use super::model::{Layers, Manifest, Picture};
use super::{Rewound, asked, keep_present, laid_out};
use crate::error::Result;
use crate::land::live;
use crate::session::store::Session;
use landbox_shared::policy::LayerKind;
use std::collections::BTreeMap;

/// Whether a layer goes back while its session runs.
fn goes_back(session: &Session, picture: &Picture) -> bool {
    let mut layers = session.snapshot.policy.layers.iter();
    layers.find(|layer| layer.id == picture.layer).is_some_and(|layer| match layer.kind {
        LayerKind::Project | LayerKind::Worktree | LayerKind::Mount => true,
        LayerKind::Home => false,
    })
}

/// What the layers held that go back while their session runs.
pub(super) fn without_home(session: &Session, layers: &Layers) -> Layers {
    parted(session, layers, true)
}

fn parted(session: &Session, layers: &Layers, goes: bool) -> Layers {
    let pictures = layers.pictures.iter().filter(|one| goes_back(session, one) == goes);
    Layers { looked: layers.looked, pictures: pictures.cloned().collect() }
}

pub(super) fn rewind(session: &Session, folder: &Folder, manifest: &Manifest) -> Result<Rewound> {
    let present = asked(session, folder, true)?;
    let back = manifest.head.summary();
    let stays = [&present, &manifest.layers].map(|layers| parted(session, layers, false));
    let home_stays = !stays[0].holds_same(&stays[1]);
    let wanted = without_home(session, &manifest.layers);
    if without_home(session, &present).holds_same(&wanted) {
        return Ok(Rewound { home_stays, ..Rewound::nothing(back) });
    }
    let mut views = Vec::new();
    for picture in wanted.pictures {
        let mut layers = session.snapshot.policy.layers.iter();
        views.extend(layers.find(|layer| layer.id == picture.layer));
    }
    let (before, _) = keep_present(folder, present, &back)?;
    let (mut left, mut moved) = (BTreeMap::new(), false);
    for layer in views {
        let restored =
            live::go_back(session, layer, || laid_out(session, layer, folder, manifest))?;
        moved |= !restored.done.is_empty();
        left.extend(restored.left);
    }
    Ok(Rewound { back, before: Some(before), left, moved, home_stays })
}
