//! What was signed when a session started, to be held against what its snapshot says now.

use super::{Key, trusted};
use crate::session::store::Session;
use landbox_shared::wire;
use std::path::Path;

/// Whether every launch that got a boundary was signed for this session and this very policy, by the owner's key or one
/// that its `trusted.d` still names. The command a session began with is not part of the policy.
pub fn holds(session: &Session, key: &Key, config_dir: &Path) -> bool {
    let known = trusted(config_dir).unwrap_or_default();
    let keys = || known.iter().map(|(key, _)| *key).chain([key.public()]);
    let started = session.state.launches.iter().filter(|launch| launch.boundary.is_some());
    started.map(|launch| launch.number).all(|number| {
        let path = session.dir.join("launches").join(number.to_string()).join("envelope");
        let Ok(envelope) = std::fs::read(path) else { return false };
        let Ok(inspected) = wire::inspect(&envelope) else { return false };
        let by = |id: &wire::KeyId| keys().find(|key| wire::KeyId::of(key) == *id);
        wire::open(&envelope, &inspected.binding, by).is_ok_and(|opened| {
            let plan = opened.plan;
            plan.session == session.snapshot.id
                && plan.launch == number
                && plan.policy_digest == session.snapshot.policy_digest
        })
    })
}
