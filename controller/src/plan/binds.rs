//! Real paths that are shown inside: what links and executables need from `/run`, read-only paths, auth paths.

use super::resolver::Resolver;
use crate::host::{Kind as FileKind, LaunchView};
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Access, Op};
use landbox_shared::policy::Policy;

/// Why a real path is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Name resolution and executables below `/run`.
    Needed,
    /// The owner wants it read-only.
    ReadOnly,
    /// The owner shares the real thing.
    Auth,
}

/// One real path and where it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) role: Role,
    pub(super) source: AbsPath,
    pub(super) target: AbsPath,
}

impl Binding {
    pub(super) fn op(&self) -> Op {
        let access = match self.role {
            Role::Needed | Role::ReadOnly => Access::ReadOnly,
            Role::Auth => Access::ReadWrite,
        };
        Op::Bind { source: self.source.clone(), target: self.target.clone(), access }
    }

    /// Where the host's `path` shows through this binding.
    pub(super) fn shows(&self, path: &AbsPath) -> Option<AbsPath> {
        if *path == self.source {
            return Some(self.target.clone());
        }
        // Too long a path can't be opened, and so not reached.
        self.target.join(path.relative_to(&self.source)?.as_bytes()).ok()
    }
}

/// Decides what is bound, needed paths first, then by depth.
pub(super) fn decide(
    policy: &Policy,
    view: &LaunchView,
    resolver: Option<&Resolver>,
    warnings: &mut Vec<String>,
) -> Vec<Binding> {
    let masked = |path: &AbsPath| policy.masks.iter().any(|mask| path.is_within(&mask.path));
    let mut needed: Vec<Binding> = Vec::new();
    for shown in view.etc.iter().chain(&view.run_folders) {
        if resolver.is_some_and(|resolver| resolver.replaces(&shown.source)) {
            continue;
        }
        if masked(&shown.source) || masked(&shown.target) {
            warnings.push(format!("{} is needed inside, but it is hidden", shown.target));
        } else if !needed.iter().any(|n| n.target == shown.target) {
            let (source, target) = (shown.source.clone(), shown.target.clone());
            needed.push(Binding { role: Role::Needed, source, target });
        }
    }
    needed.sort_by(|a, b| (a.target.depth(), &a.target).cmp(&(b.target.depth(), &b.target)));
    let mut rules: Vec<Binding> = Vec::new();
    let paths = policy.read_only.iter().map(|p| (Role::ReadOnly, p));
    for (role, path) in paths.chain(policy.auth.iter().map(|p| (Role::Auth, p))) {
        let kind = view.kinds.iter().find(|(known, _)| known == path).map(|(_, kind)| *kind);
        let is_there = !matches!(kind, None | Some(FileKind::Missing | FileKind::Denied));
        if is_there && !masked(path) {
            rules.push(Binding { role, source: path.clone(), target: path.clone() });
        } else if role == Role::Auth && !is_there {
            warnings.push(format!("{path} is to be shared, but it is gone"));
        }
    }
    rules.sort_by(|a, b| (a.target.depth(), &a.target).cmp(&(b.target.depth(), &b.target)));
    needed.extend(rules);
    needed
}
