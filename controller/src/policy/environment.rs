//! Which of the caller's environment variables a session gets.

use landbox_shared::policy::Policy;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Names removed, each with what it would give away. A trailing `*` stands for any ending.
pub(super) const REMOVED: &[&str] = &[
    // Sockets of the host: agents that sign or run things on the owner's behalf.
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DBUS_STARTER_ADDRESS",
    "DBUS_STARTER_BUS_TYPE",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    // The desktop.
    "WAYLAND_DISPLAY",
    "WAYLAND_SOCKET",
    "DISPLAY",
    "XAUTHORITY",
    "PULSE_SERVER",
    "SESSION_MANAGER",
    // Terminal multiplexers and editors that take commands from inside.
    "TMUX*",
    "STY",
    "ZELLIJ*",
    "KITTY_LISTEN_ON",
    "WEZTERM_UNIX_SOCKET",
    "NVIM",
    "NVIM_LISTEN_ADDRESS",
    "VSCODE_IPC_HOOK*",
    "VSCODE_GIT_IPC*",
    "VSCODE_GIT_ASKPASS*",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "EMACS_SOCKET_NAME",
    // The terminal of another pseudo-terminal.
    "SSH_TTY",
    "GPG_TTY",
    // Set by a CLI for its children: with it, the same CLI thinks it was started by itself.
    "CLAUDECODE",
    "CLAUDE_CODE_SSE_PORT",
    // Landbox's own, and the host program's credentials.
    "LANDBOX_*",
    "LARK_APP_ID",
    "LARK_APP_SECRET",
];

/// Whether `name` is one of `removed`, where a trailing `*` stands for any ending.
pub fn is_removed(name: &[u8], removed: &[String]) -> bool {
    removed.iter().any(|rule| match rule.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == rule.as_bytes(),
    })
}

/// The caller's variables without what the policy removes, and the bot's over them.
pub fn of_task(
    caller: impl IntoIterator<Item = (OsString, OsString)>,
    policy: &Policy,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut env: BTreeMap<Vec<u8>, Vec<u8>> = caller
        .into_iter()
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .filter(|(name, _)| !is_removed(name, &policy.env_removed))
        .collect();
    let own = policy.env.iter().cloned();
    env.extend(own.map(|(name, value)| (name.into_bytes(), value.into_bytes())));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_multiplexers_and_our_own_secrets_are_removed_and_the_rest_stays() {
        let rules: Vec<String> = REMOVED.iter().map(|r| (*r).to_owned()).collect();
        for name in [
            "SSH_AUTH_SOCK",
            "TMUX",
            "TMUX_PANE",
            "ZELLIJ_SESSION_NAME",
            "LANDBOX_STATE_DIR",
            "VSCODE_IPC_HOOK_CLI",
        ] {
            assert!(is_removed(name.as_bytes(), &rules), "{name}");
        }
        for name in ["PATH", "HOME", "HTTPS_PROXY", "TERM", "DISPLAY_NAME", "ANTHROPIC_API_KEY"] {
            assert!(!is_removed(name.as_bytes(), &rules), "{name}");
        }
    }
}
