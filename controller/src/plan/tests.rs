use super::*;
use crate::host::files::Hop;
use crate::host::{Located, Mount, Shown, ssh::SshFiles};
use landbox_shared::bytes;
use landbox_shared::id::LayerId;
use landbox_shared::plan::Loss;
use landbox_shared::policy::{
    LayerKind, LayerPolicy, Mask, MaskKind, Network, POLICY_VERSION, SeccompProfile,
};

fn abs(path: &str) -> AbsPath {
    AbsPath::new(path).unwrap()
}

fn layer(id: &str, kind: LayerKind, target: &str, backend: Backend) -> LayerPolicy {
    LayerPolicy { id: LayerId::new(id).unwrap(), kind, target: abs(target), backend }
}

fn policy() -> Policy {
    Policy {
        version: POLICY_VERSION,
        uid: 1000,
        gid: 1000,
        home: abs("/home/u"),
        project: abs("/home/u/p"),
        layers: vec![
            layer("home", LayerKind::Home, "/home/u", Backend::Kernel),
            layer("project", LayerKind::Project, "/home/u/p", Backend::Kernel),
        ],
        masks: Vec::new(),
        read_only: Vec::new(),
        auth: Vec::new(),
        credentials: Vec::new(),
        run_folders: Vec::new(),
        network: Network::Host,
        seccomp: SeccompProfile::Base,
        env: Vec::new(),
        env_removed: vec!["SSH_AUTH_SOCK".into(), "TMUX*".into()],
    }
}

fn view(policy: &Policy) -> LaunchView {
    let dir = |path: &AbsPath| (path.clone(), FileKind::Dir);
    LaunchView {
        kinds: policy
            .layers
            .iter()
            .map(|l| &l.target)
            .chain(&policy.read_only)
            .chain(&policy.auth)
            .map(dir)
            .collect(),
        exe: Some(abs("/opt/landbox")),
        var_tmp: Some(abs("/var/tmp")),
        home: "/home/u".into(),
        pwd: "/home/u/p".into(),
        ..LaunchView::default()
    }
}

fn mask(path: &str, kind: MaskKind) -> Mask {
    Mask { path: abs(path), kind }
}

/// Operations in a form that fits a line each.
fn lines(policy: &Policy, view: &LaunchView) -> Vec<String> {
    compile(policy, None, view).unwrap().ops.iter().map(line).collect()
}

fn line(op: &Op) -> String {
    let access = |access: &Access| match access {
        Access::ReadOnly => "ro",
        Access::ReadWrite => "rw",
    };
    match op {
        Op::Root => "root".into(),
        Op::Proc => "proc".into(),
        Op::Dev { console } => {
            format!("dev {}", console.as_ref().map_or("-".into(), |c| c.to_string()))
        }
        Op::Tmpfs { target, mode, .. } => format!("tmpfs {target} {mode:o}"),
        Op::Private { source, target, access: a } => {
            format!("private {} {target} {}", bytes::escape(source.as_bytes()), access(a))
        }
        Op::Layer(l) => {
            let masks: Vec<_> = l.masks.iter().map(|m| m.path.to_string()).collect();
            format!("layer {} {} [{}]", l.id, l.target, masks.join(" "))
        }
        Op::Bind { source, target, access: a } if source == target => {
            format!("bind {source} {}", access(a))
        }
        Op::Bind { source, target, access: a } => {
            format!("bind {source} on {target} {}", access(a))
        }
        Op::Mask { target, kind, loss: Loss::EndsSession } => format!("mask {target} {kind:?}"),
        Op::Mask { target, kind, loss: Loss::Tolerated } => {
            format!("mask {target} {kind:?} or not")
        }
    }
}

const HEAD: [&str; 7] = [
    "root",
    "proc",
    "dev -",
    "private tmp /tmp rw",
    "private vartmp /var/tmp rw",
    "tmpfs /run 755",
    "tmpfs /dev/shm 1777",
];
const LAYERS: [&str; 2] = ["layer home /home/u []", "layer project /home/u/p []"];
const TAIL: [&str; 3] = [
    "bind /opt/landbox on /run/landbox/bin/landbox ro",
    "bind /opt/landbox on /run/landbox/bin/botmux ro",
    "private outbox /run/landbox/outbox rw",
];

/// What lies between the fixed head and the fixed tail.
fn middle(policy: &Policy, view: &LaunchView) -> Vec<String> {
    let lines = lines(policy, view);
    assert_eq!(lines[..HEAD.len()], HEAD);
    assert_eq!(lines[lines.len() - TAIL.len()..], TAIL);
    lines[HEAD.len()..lines.len() - TAIL.len()].to_vec()
}

#[test]
fn a_plain_session_is_the_fixed_list_in_the_fixed_order() {
    let policy = policy();
    assert_eq!(middle(&policy, &view(&policy)), LAYERS);
    let plan = compile(&policy, Some(abs("/dev/pts/7")), &view(&policy)).unwrap();
    assert_eq!(plan.ops[2], Op::Dev { console: Some(abs("/dev/pts/7")) });
    let dirs: Vec<_> = plan.private_dirs.iter().map(|(p, m)| format!("{p} {m:o}")).collect();
    assert_eq!(dirs, ["tmp 1777", "vartmp 1777", "outbox 700"]);
    assert!(plan.private_files.is_empty() && plan.warnings.is_empty());
}

#[test]
fn masks_are_made_by_the_nearest_layer_else_on_top_of_everything() {
    let mut policy = policy();
    policy.masks = vec![
        mask("/etc/secret", MaskKind::Missing),
        mask("/home/u/.ssh", MaskKind::Dir),
        mask("/home/u/p/.env", MaskKind::Missing),
        mask("/home/u/pp", MaskKind::File),
        mask("/run/secrets", MaskKind::Dir),
        mask("/srv/data", MaskKind::Dir),
        mask("/tmp/x", MaskKind::Missing),
        mask("/var/tmp/x", MaskKind::File),
    ];
    assert_eq!(
        middle(&policy, &view(&policy)),
        [
            "layer home /home/u [.ssh pp]",
            "layer project /home/u/p [.env]",
            "mask /etc/secret Missing",
            "mask /srv/data Dir",
        ]
    );
}

#[test]
fn every_other_proc_of_the_host_is_hidden_wherever_it_shows() {
    let mut policy = policy();
    policy.read_only = vec![abs("/srv/jails")];
    policy.masks =
        vec![mask("/home/u/chroot/proc/sys", MaskKind::Dir), mask("/opt/x", MaskKind::Dir)];
    let mut at = view(&policy);
    at.procs = vec![
        (abs("/home/u/chroot/proc"), FileKind::Dir),
        (abs("/srv/jails/a/proc"), FileKind::Dir),
        (abs("/etc/mtab"), FileKind::File),
        (abs("/opt/x/proc"), FileKind::Dir),
        (abs("/gone"), FileKind::Missing),
    ];
    assert_eq!(
        middle(&policy, &at),
        [
            "layer home /home/u [chroot/proc]",
            LAYERS[1],
            "bind /srv/jails ro",
            "mask /etc/mtab File or not",
            "mask /opt/x Dir",
            "mask /srv/jails/a/proc Dir or not",
        ]
    );
}

#[test]
fn the_deepest_rule_wins_whatever_the_order_of_the_lists() {
    let mut policy = policy();
    policy.read_only = vec![abs("/data/ref/tokens/fixed"), abs("/data/ref"), abs("/home/u/ref")];
    policy.auth = vec![abs("/data/ref/tokens"), abs("/home/u/ref/cache")];
    let forward = middle(&policy, &view(&policy));
    assert_eq!(
        forward[2..],
        [
            "bind /data/ref ro",
            "bind /data/ref/tokens rw",
            "bind /home/u/ref ro",
            "bind /data/ref/tokens/fixed ro",
            "bind /home/u/ref/cache rw",
        ]
    );
    policy.read_only.reverse();
    policy.auth.reverse();
    assert_eq!(middle(&policy, &view(&policy)), forward);
}

#[test]
fn nothing_reopens_a_mask() {
    let mut policy = policy();
    policy.masks =
        vec![mask("/home/u/.ssh", MaskKind::Dir), mask("/home/u/ref/key", MaskKind::File)];
    policy.read_only = vec![abs("/home/u/.ssh"), abs("/home/u/ref")];
    policy.auth = vec![abs("/home/u/.ssh/agent")];
    let mut at = view(&policy);
    // The same folder shown at a second place by a link below /run.
    at.run_folders = vec![
        Shown { source: abs("/home/u/ref"), target: abs("/run/user/1000/fnm/x") },
        Shown { source: abs("/home/u/.ssh"), target: abs("/run/user/1000/ssh") },
    ];
    assert_eq!(
        middle(&policy, &at),
        [
            "bind /home/u/ref on /run/user/1000/fnm/x ro",
            "layer home /home/u [.ssh ref/key]",
            "layer project /home/u/p []",
            "bind /home/u/ref ro",
            "mask /home/u/ref/key File",
            "mask /run/user/1000/fnm/x/key File",
        ]
    );
    let warnings = compile(&policy, None, &at).unwrap().warnings;
    assert_eq!(warnings, ["/run/user/1000/ssh is needed inside, but it is hidden"]);
}

#[test]
fn a_masked_link_in_a_real_folder_is_left_to_its_masked_target() {
    let mut policy = policy();
    policy.masks = vec![mask("/home/u/a/link", MaskKind::File), mask("/home/u/t", MaskKind::File)];
    policy.auth = vec![abs("/home/u/a")];
    let mut at = view(&policy);
    at.masked_links = vec![abs("/home/u/a/link")];
    assert_eq!(
        middle(&policy, &at),
        ["layer home /home/u [a/link t]", LAYERS[1], "bind /home/u/a rw"]
    );
}

#[test]
fn what_etc_and_the_search_path_need_from_run_comes_before_the_layers() {
    let mut policy = policy();
    policy.project = abs("/run/user/1000/p");
    policy.layers[1].target = abs("/run/user/1000/p");
    let mut at = view(&policy);
    let resolv = abs("/run/systemd/resolve/stub-resolv.conf");
    at.etc = vec![Shown { source: resolv.clone(), target: resolv }];
    let bin = abs("/run/user/1000/fnm/bin");
    at.run_folders = vec![Shown { source: bin.clone(), target: bin }];
    assert_eq!(
        middle(&policy, &at),
        [
            "bind /run/systemd/resolve/stub-resolv.conf ro",
            "bind /run/user/1000/fnm/bin ro",
            "layer home /home/u []",
            "layer project /run/user/1000/p []",
        ]
    );
}

#[test]
fn host_sockets_are_masked_unless_a_layer_or_the_owner_covers_them() {
    let mut policy = policy();
    policy.auth = vec![abs("/home/u/shared"), abs("/run/docker.sock"), abs("/srv/a")];
    policy.read_only = vec![abs("/home/u/ro"), abs("/srv/a/ro")];
    policy.masks = vec![mask("/srv/hidden", MaskKind::Dir)];
    let mut at = view(&policy);
    at.sockets = [
        "/home/u/.cache/agent.sock",
        "/home/u/ro/sock",
        "/home/u/shared/sock",
        "/run/docker.sock",
        "/run/user/1000/bus",
        "/srv/a/ro/sock",
        "/srv/app.sock",
        "/srv/hidden/sock",
        "/tmp/.X11-unix/X0",
        "/var/lib/db/sock",
    ]
    .map(abs)
    .to_vec();
    let plan = compile(&policy, None, &at).unwrap();
    let masks: Vec<String> =
        plan.ops.iter().filter(|op| matches!(op, Op::Mask { .. })).map(line).collect();
    assert_eq!(
        masks,
        [
            "mask /home/u/ro/sock File or not",
            "mask /srv/a/ro/sock File or not",
            "mask /srv/app.sock File or not",
            "mask /srv/hidden Dir",
            "mask /var/lib/db/sock File or not",
        ]
    );
    assert_eq!(plan.reachable_sockets, [abs("/home/u/shared/sock"), abs("/run/docker.sock")]);
}

#[test]
fn sshs_included_files_are_the_users_own_copies() {
    let policy = policy();
    let mut at = view(&policy);
    at.ssh = SshFiles {
        folder: Some(abs("/etc/ssh/ssh_config.d")),
        copies: vec![(b"10-x.conf".to_vec(), b"Host *\n".to_vec())],
        others: vec![(abs("/etc/crypto/openssh.config"), b"Ciphers x\n".to_vec())],
    };
    assert_eq!(
        middle(&policy, &at)[..2],
        [
            "private files/ssh_config.d /etc/ssh/ssh_config.d ro",
            "private files/ssh-0 /etc/crypto/openssh.config ro",
        ]
    );
    let plan = compile(&policy, None, &at).unwrap();
    let files: Vec<_> = plan.private_files.iter().map(|f| f.path.to_string()).collect();
    assert_eq!(files, ["files/ssh_config.d/10-x.conf", "files/ssh-0"]);
}

#[test]
fn a_resume_that_meets_another_machine_is_refused_before_anything_is_mounted() {
    let policy = policy();
    let mut at = view(&policy);
    at.mounts = vec![Mount {
        point: abs("/home/u/p/vol"),
        device: b"8:1".to_vec(),
        root: b"/".to_vec(),
        fs_type: "ext4".into(),
    }];
    let failure = compile(&policy, None, &at).unwrap_err();
    assert_eq!(failure.kind, Kind::Unavailable);
    assert!(failure.message.starts_with("/home/u/p/vol was mounted below /home/u"));
    at = view(&policy);
    at.kinds[1].1 = FileKind::Missing;
    assert!(
        compile(&policy, None, &at).unwrap_err().message.contains("/home/u/p of layer project")
    );
}

#[test]
fn a_layer_of_a_mount_is_not_laid_over_the_folder_that_lay_under_it() {
    let mut policy = policy();
    policy.layers.push(layer("mount-1", LayerKind::Mount, "/home/u/p/vol", Backend::Kernel));
    let failure = compile(&policy, None, &view(&policy)).unwrap_err();
    assert_eq!(failure.kind, Kind::Refused);
    assert!(failure.message.contains("nothing is mounted at /home/u/p/vol"), "{failure}");
}

#[test]
fn more_masks_than_the_limit_are_refused_with_the_limit() {
    let mut policy = policy();
    let many = |folder: &str| {
        (0..9000).map(|i| mask(&format!("{folder}/{i}"), MaskKind::Missing)).collect::<Vec<_>>()
    };
    policy.masks = many("/srv");
    assert!(compile(&policy, None, &view(&policy)).unwrap_err().message.contains("8192"));
    policy.masks = many("/home/u/p");
    assert!(compile(&policy, None, &view(&policy)).unwrap_err().message.contains("8192"));
}

#[test]
fn missing_read_only_paths_are_left_out_and_missing_auth_paths_are_said() {
    let mut policy = policy();
    policy.read_only = vec![abs("/data/gone")];
    policy.auth = vec![abs("/data/token")];
    let mut at = view(&policy);
    for (_, kind) in &mut at.kinds[2..] {
        *kind = FileKind::Missing;
    }
    assert_eq!(middle(&policy, &at), LAYERS);
    assert_eq!(
        compile(&policy, None, &at).unwrap().warnings,
        ["/data/token is to be shared, but it is gone"]
    );
}

#[test]
fn the_environment_holds_inside() {
    let mut policy = policy();
    policy.env = vec![("MODEL".into(), "x=y".into()), ("LANG".into(), "C".into())];
    let caller = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/elsewhere"),
        ("LANG", "de_DE.UTF-8"),
        ("SSH_AUTH_SOCK", "/run/user/1000/agent"),
        ("TMUX_PANE", "%1"),
        ("TMPDIR", "/run/user/1000/tmp"),
        ("TMP", "/home/u/tmp"),
        ("TEMP", "/tmp"),
    ]
    .map(|(name, value)| (name.into(), value.into()));
    let text = |env: Vec<Vec<u8>>| -> Vec<String> {
        env.into_iter().map(|v| String::from_utf8(v).unwrap()).collect()
    };
    assert_eq!(
        text(environment(caller, &policy, &view(&policy))),
        [
            "HOME=/home/u",
            "LANG=C",
            "MODEL=x=y",
            "PATH=/run/landbox/bin:/usr/bin:/bin",
            "PWD=/home/u/p",
            "TEMP=/tmp",
            "TMP=/home/u/tmp",
            "TMPDIR=/tmp",
        ]
    );
    policy.env = vec![("PATH".into(), "/opt/bin".into())];
    let env = text(environment([], &policy, &view(&policy)));
    assert!(env.contains(&"PATH=/run/landbox/bin:/opt/bin".to_owned()), "{env:?}");
    let mut view = view(&policy);
    view.repository_above = true;
    let env = text(environment([], &policy, &view));
    assert!(env.contains(&"GIT_DISCOVERY_ACROSS_FILESYSTEM=1".to_owned()), "{env:?}");
}

/// What a session sees at `path`: the host's path that shows there, or `None` where it is hidden or private.
fn seen(ops: &[Op], path: &AbsPath) -> Option<AbsPath> {
    let mut view = None;
    for op in ops {
        match op {
            Op::Root => view = Some(path.clone()),
            Op::Proc | Op::Dev { .. } => {}
            Op::Tmpfs { target, .. } | Op::Private { target, .. } | Op::Mask { target, .. } => {
                if path.is_within(target) {
                    view = None;
                }
            }
            Op::Bind { source, target, .. } => {
                if path == target {
                    view = Some(source.clone());
                } else if let Some(rest) = path.relative_to(target) {
                    view = Some(source.join(rest.as_bytes()).unwrap());
                }
            }
            Op::Layer(layer) => {
                if path.is_within(&layer.target) {
                    let rest = path.relative_to(&layer.target);
                    let hidden = |m: &landbox_shared::plan::LayerMask| {
                        rest.as_ref().is_some_and(|rest| rest.is_within(&m.path))
                    };
                    view = (!layer.masks.iter().any(hidden)).then(|| path.clone());
                }
            }
        }
    }
    view
}

mod property {
    use super::*;
    use proptest::prelude::*;

    /// Every path of one to three parts below a few roots.
    fn universe() -> Vec<AbsPath> {
        let mut all = Vec::new();
        for root in ["/home/u", "/home/u/p", "/srv", "/tmp", "/run", "/home"] {
            for a in ["a", "b"] {
                all.push(abs(&format!("{root}/{a}")));
                for b in ["a", "b"] {
                    all.push(abs(&format!("{root}/{a}/{b}")));
                    all.push(abs(&format!("{root}/{a}/{b}/a")));
                }
            }
        }
        all
    }

    fn some(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<AbsPath>> {
        proptest::collection::vec(proptest::sample::select(universe()), count)
    }

    proptest! {
        #[test]
        fn no_rule_and_no_order_shows_what_is_hidden(
            hidden in some(0..4),
            read_only in some(0..4),
            auth in some(0..4),
            shown in some(0..3),
        ) {
            let mut policy = policy();
            policy.masks = hidden.iter().map(|p| Mask { path: p.clone(), kind: MaskKind::Dir }).collect();
            policy.read_only = read_only;
            policy.auth = auth.into_iter().filter(|p| !policy.read_only.contains(p)).collect();
            let mut at = view(&policy);
            at.run_folders = shown
                .iter()
                .enumerate()
                .map(|(i, p)| Shown { source: p.clone(), target: abs(&format!("/run/x{i}")) })
                .collect();
            let ops = compile(&policy, None, &at).unwrap().ops;
            let mut paths = universe();
            for i in 0..3 {
                paths.extend(universe().iter().map(|p| abs(&format!("/run/x{i}{p}"))));
                paths.extend(["", "/a", "/b", "/a/a", "/b/a"].map(|p| abs(&format!("/run/x{i}{p}"))));
            }
            for path in paths {
                if let Some(real) = seen(&ops, &path) {
                    let mask = policy.masks.iter().find(|m| real.is_within(&m.path));
                    prop_assert!(mask.is_none(), "{path} shows {real} hidden by {mask:?}\n{ops:#?}");
                }
            }
        }

        #[test]
        fn the_deepest_of_the_other_rules_decides(
            read_only in some(0..4),
            auth in some(0..4),
        ) {
            let mut policy = policy();
            policy.read_only = read_only;
            policy.auth = auth.into_iter().filter(|p| !policy.read_only.contains(p)).collect();
            let ops = compile(&policy, None, &view(&policy)).unwrap().ops;
            let rules = || policy.read_only.iter().map(|p| (p, Access::ReadOnly))
                .chain(policy.auth.iter().map(|p| (p, Access::ReadWrite)));
            for path in universe() {
                let wanted = rules().filter(|(rule, _)| path.is_within(rule))
                    .max_by_key(|(rule, _)| rule.depth()).map(|(_, access)| access);
                let made = ops.iter().rev().find_map(|op| match op {
                    Op::Bind { target, access, .. } => path.is_within(target).then_some(*access),
                    Op::Root | Op::Proc | Op::Dev { .. } | Op::Tmpfs { .. } | Op::Private { .. }
                    | Op::Layer(_) | Op::Mask { .. } => None,
                });
                prop_assert_eq!(made, wanted, "{}", path);
            }
        }
    }
}

/// A policy whose network is filtered, and a machine whose `/etc/resolv.conf` leads to `path` by `hops`.
fn filtered(
    servers: &[&str],
    path: &str,
    kind: FileKind,
    hops: &[(&str, &str)],
) -> (Policy, LaunchView) {
    use landbox_shared::network::{NETWORK_POLICY_VERSION, NetworkPolicy, Zone};
    let mut policy = policy();
    policy.network = Network::Policy(NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: Zone::Block,
        private: Zone::Block,
        dns_servers: servers.iter().map(|server| server.parse().unwrap()).collect(),
        proxy_mode: None,
    });
    let hop = |(link, walked): &(&str, &str)| Hop {
        link: abs(link),
        walked: (!walked.is_empty()).then(|| abs(walked)),
    };
    let mut view = view(&policy);
    view.resolv = Some(Located {
        path: abs(path),
        kind,
        links: Vec::new(),
        hops: hops.iter().map(hop).collect(),
    });
    (policy, view)
}

const STUB: &str = "/run/systemd/resolve/stub-resolv.conf";

#[test]
fn with_a_network_policy_the_name_servers_are_the_policys_wherever_the_hosts_are_named() {
    let servers = ["9.9.9.9", "2606:4700::53"];
    let etc = [("/etc/resolv.conf", "/etc/resolv.conf")];
    let twice = [etc[0], ("/run/first.conf", "/run/first.conf")];
    for (path, kind, hops, wanted) in [
        ("/etc/resolv.conf", FileKind::File, &[][..], "/etc/resolv.conf"),
        (STUB, FileKind::File, &etc, STUB),
        (STUB, FileKind::Missing, &etc, STUB),
        (STUB, FileKind::Missing, &twice, "/run/first.conf"),
        ("/tmp/x/resolv.conf", FileKind::Missing, &etc, "/tmp/x/resolv.conf"),
        ("/usr/share/resolv.conf", FileKind::File, &etc, "/usr/share/resolv.conf"),
    ] {
        let (policy, mut view) = filtered(&servers, path, kind, hops);
        if path == STUB {
            // What the host's own file would need is not shown.
            view.etc = vec![Shown { source: abs(STUB), target: abs(STUB) }];
        }
        let plan = compile(&policy, None, &view).unwrap();
        let ops: Vec<String> = plan.ops.iter().map(line).collect();
        let own = format!("private files/resolv.conf {wanted} ro");
        assert_eq!(ops.iter().filter(|op| op.contains("resolv")).collect::<Vec<_>>(), [&own]);
        let before = ops.iter().position(|op| *op == own)
            < ops.iter().position(|op| op.starts_with("layer"));
        assert_eq!(before, wanted.starts_with("/run") || wanted.starts_with("/tmp"));
        let file = &plan.private_files[0];
        assert_eq!(file.bytes, b"nameserver 9.9.9.9\nnameserver 2606:4700::53\n");
    }
}

#[test]
fn a_place_that_cannot_be_made_is_an_error_unless_there_is_no_name_server() {
    let refused = |servers: &[&str], path: &str, kind, hops: &[(&str, &str)]| {
        let (policy, view) = filtered(servers, path, kind, hops);
        compile(&policy, None, &view).err().map(|failure| failure.message)
    };
    let missing = "/etc/resolv.conf";
    assert_eq!(refused(&["9.9.9.9"], missing, FileKind::Missing, &[]), None);
    assert_eq!(refused(&[], missing, FileKind::Missing, &[]), None);
    assert!(refused(&[], missing, FileKind::Dir, &[]).is_some());
    for elsewhere in ["/home/u/r", "/etc/resolvconf/r"] {
        let message = refused(&["9.9.9.9"], elsewhere, FileKind::Missing, &[]).unwrap();
        assert!(message.contains("9.9.9.9"), "{message}");
        assert_eq!(refused(&[], elsewhere, FileKind::Missing, &[]), None);
    }
    let up = [("/run/link", "")];
    assert!(refused(&["9.9.9.9"], STUB, FileKind::File, &up).unwrap().contains(".."));
}

#[test]
fn where_the_host_has_no_list_a_mask_makes_the_place_before_anything_else_in_etc() {
    let (policy, mut view) = filtered(&["9.9.9.9"], "/etc/resolv.conf", FileKind::Missing, &[]);
    view.ssh.folder = Some(abs("/etc/ssh/ssh_config.d"));
    let ops = lines(&policy, &view);
    let etc: Vec<_> = ops.iter().filter(|op| op.contains("/etc/")).take(3).collect();
    assert!(etc[0].starts_with("mask") && etc[0].contains("/etc/resolv.conf"), "{etc:?}");
    assert_eq!(etc[1], "private files/resolv.conf /etc/resolv.conf ro");
    assert!(etc[2].contains("/etc/ssh/ssh_config.d"), "{etc:?}");
    let (policy, view) = filtered(&[], "/etc/resolv.conf", FileKind::Missing, &[]);
    assert!(!lines(&policy, &view).iter().any(|op| op.contains("resolv")));
}

#[test]
fn without_a_network_policy_the_hosts_name_servers_stay() {
    for network in [Network::Host, Network::None] {
        let (mut policy, mut view) = filtered(&["9.9.9.9"], STUB, FileKind::File, &[]);
        policy.network = network;
        view.etc = vec![Shown { source: abs(STUB), target: abs(STUB) }];
        let ops = lines(&policy, &view);
        let resolv: Vec<_> = ops.iter().filter(|op| op.contains("resolv")).collect();
        assert_eq!(resolv, [&format!("bind {STUB} ro")]);
    }
}
