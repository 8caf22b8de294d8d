//! The environment of the task.

use crate::host::{INSIDE, LaunchView, is_private};
use crate::policy::environment::of_task;
use landbox_shared::path::AbsPath;
use landbox_shared::policy::Policy;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Where a caller without PATH looks for programs.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The caller's environment as the task gets it, `NAME=value` sorted by name: without what the policy removes, with the
/// bot's variables, Landbox's folder first in `PATH`, and `HOME`, `PWD` and `TMPDIR` that hold inside.
pub fn environment(
    caller: impl IntoIterator<Item = (OsString, OsString)>,
    policy: &Policy,
    view: &LaunchView,
) -> Vec<Vec<u8>> {
    let mut env = of_task(caller, policy);
    for name in [&b"TMPDIR"[..], b"TMP", b"TEMP"] {
        // The host's folder of that name is not there inside; what the bot says is the bot's affair.
        let by_bot = policy.env.iter().any(|(set, _)| set.as_bytes() == name);
        if let Some(value) = env.get_mut(name)
            && !by_bot
            && leads_nowhere(policy, value)
        {
            *value = b"/tmp".to_vec();
        }
    }
    if view.repository_above {
        // Inside, the project is a file system of its own, at which git would stop looking.
        env.entry(b"GIT_DISCOVERY_ACROSS_FILESYSTEM".to_vec()).or_insert_with(|| b"1".to_vec());
    }
    env.insert(b"HOME".to_vec(), view.home.as_bytes().to_vec());
    env.insert(b"PWD".to_vec(), view.pwd.as_bytes().to_vec());
    let mut path = format!("{INSIDE}/bin:").into_bytes();
    path.extend_from_slice(env.get(&b"PATH"[..]).map_or(DEFAULT_PATH, Vec::as_slice));
    env.insert(b"PATH".to_vec(), path);
    env.into_iter()
        .map(|(mut name, value)| {
            name.push(b'=');
            name.extend_from_slice(&value);
            name
        })
        .collect()
}

fn leads_nowhere(policy: &Policy, value: &[u8]) -> bool {
    AbsPath::new(value).is_ok_and(|path| {
        is_private(&path)
            && !matches!(value, b"/tmp" | b"/var/tmp" | b"/dev/shm")
            && !policy.layers.iter().any(|layer| path.is_within(&layer.target))
            && !policy.auth.iter().any(|auth| path.is_within(auth))
    })
}
