use super::*;
use crate::host::{Files, Fuse, Mount, UpperSupport};
use landbox_shared::network::{NETWORK_POLICY_VERSION, NetworkPolicy, Zone};
use landbox_shared::policy::{Backend, LayerKind, Mask, MaskKind, Network, SeccompProfile};
use std::os::unix::fs::symlink;
use std::path::Path;

/// A machine made of a temporary folder: home is `h`, the current folder `h/p`.
struct Machine {
    _dir: tempfile::TempDir,
    root: PathBuf,
    facts: Facts,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["h/p/src", "h/.ssh", "h/.local/state/landbox", "h/.config/landbox", "out"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let abs = |path: &str| AbsPath::from_path(&root.join(path)).unwrap();
        let facts = Facts {
            uid: 1000,
            gid: 1000,
            maps_everyone: false,
            home_spelled: root.join("h"),
            home: abs("h"),
            cwd: Some(abs("h/p")),
            kernel: (6, 1),
            mounts: vec![mount("/", "ext4")],
            state_dir: abs("h/.local/state/landbox"),
            config_dir: abs("h/.config/landbox"),
            key_dir: abs("h/.config/landbox"),
            exe: AbsPath::new("/usr/bin/landbox").unwrap(),
            upper: UpperSupport::Yes,
            fuse: Fuse::Yes,
            files: Files::default(),
        };
        Self { _dir: dir, root, facts }
    }

    fn abs(&self, path: &str) -> AbsPath {
        AbsPath::from_path(&self.root.join(path)).unwrap()
    }

    fn write(&self, path: &str) {
        std::fs::write(self.root.join(path), "x").unwrap();
    }

    fn folder(&self, path: &str) {
        std::fs::create_dir_all(self.root.join(path)).unwrap();
    }

    fn mount(&mut self, path: &str, fs_type: &str) {
        let point = self.abs(path);
        self.facts.mounts.push(Mount {
            point,
            device: b"8:1".to_vec(),
            root: b"/".to_vec(),
            fs_type: fs_type.into(),
        });
    }

    fn run(&self, config: &Config, flags: &Flags) -> Result<Resolved> {
        resolve(config, flags, &self.facts, |_| None)
    }

    fn resolve(&self, flags: &Flags) -> Resolved {
        self.run(&config(), flags).unwrap()
    }

    fn refused(&self, flags: &Flags) -> String {
        self.run(&config(), flags).unwrap_err().message
    }

    /// Layers as text, below the machine's folder.
    fn layers(&self, resolved: &Resolved) -> Vec<String> {
        let layer = |l: &landbox_shared::policy::LayerPolicy| {
            let backend = match l.backend {
                Backend::Kernel => "kernel",
                Backend::Fuse => "fuse",
            };
            format!("{} {} {backend}", l.id, self.short(&l.target))
        };
        resolved.policy.layers.iter().map(layer).collect()
    }

    fn short(&self, path: &AbsPath) -> String {
        path.as_path().strip_prefix(&self.root).unwrap().display().to_string()
    }

    fn mask(&self, resolved: &Resolved, path: &str) -> Option<MaskKind> {
        let path = self.abs(path);
        resolved.policy.masks.iter().find(|m| m.path == path).map(|m| m.kind)
    }
}

fn mount(point: &str, fs_type: &str) -> Mount {
    Mount {
        point: AbsPath::new(point).unwrap(),
        device: b"8:1".to_vec(),
        root: b"/".to_vec(),
        fs_type: fs_type.into(),
    }
}

fn config() -> Config {
    Config { command: vec!["sh".into()], sandbox: true, ..Config::default() }
}

fn hide(paths: &[&str]) -> Flags {
    Flags { hide: paths.iter().map(OsString::from).collect(), ..Flags::default() }
}

fn read_only(paths: &[&str]) -> Flags {
    Flags { read_only: paths.iter().map(OsString::from).collect(), ..Flags::default() }
}

fn auth(paths: &[&str]) -> Flags {
    Flags { auth: paths.iter().map(OsString::from).collect(), ..Flags::default() }
}

fn work(dir: &Path) -> Flags {
    Flags { workdir: Some(dir.to_path_buf()), ..Flags::default() }
}

#[test]
fn home_and_project_get_a_layer_each_outermost_first() {
    let m = Machine::new();
    let inside = m.resolve(&Flags::default());
    assert_eq!(m.layers(&inside), ["home h kernel", "project h/p kernel"]);
    assert_eq!(m.layers(&m.resolve(&work(&m.root.join("h")))), ["project h kernel"]);
    let outside = m.resolve(&work(&m.root.join("out")));
    assert_eq!(m.layers(&outside), ["home h kernel", "project out kernel"]);
    let above = m.resolve(&work(&m.root));
    assert_eq!(m.layers(&above), ["project  kernel", "home h kernel"]);
    assert_eq!(above.policy.layers[0].kind, LayerKind::Project);
}

#[test]
fn a_project_given_through_links_or_dots_is_the_real_folder() {
    let m = Machine::new();
    symlink(m.root.join("h/p"), m.root.join("link")).unwrap();
    for spelling in ["link", "h/./p/../p", "link/src/.."] {
        let resolved = m.resolve(&work(&m.root.join(spelling)));
        assert_eq!(resolved.policy.project, m.abs("h/p"), "{spelling}");
    }
    // A flag is relative to the current folder, a bot's folder must not depend on it.
    assert_eq!(m.resolve(&work(Path::new("src"))).policy.project, m.abs("h/p/src"));
    let mut bot = config();
    let origin = Origin::Flag("workingDir");
    bot.working_dir = Some(Entry { text: "src".into(), origin: origin.clone() });
    assert!(m.run(&bot, &Flags::default()).unwrap_err().message.contains("absolute"));
    bot.working_dir = Some(Entry { text: "~/p/src".into(), origin });
    assert_eq!(m.run(&bot, &Flags::default()).unwrap().policy.project, m.abs("h/p/src"));
}

#[test]
fn system_folders_are_no_project() {
    let m = Machine::new();
    for path in ["/", "/tmp", "/var/tmp", "/proc", "/sys", "/dev", "/usr", "/etc", "/proc/self"] {
        if Path::new(path).is_dir() {
            let message = m.refused(&work(Path::new(path)));
            let fixed = path.starts_with("/proc") && message.contains("of its own");
            assert!(fixed || message.contains("system folder"), "{message}");
        }
    }
    assert!(m.refused(&work(Path::new("/nowhere/at/all"))).contains("no such folder"));
}

#[test]
fn hidden_paths_are_classified_and_both_names_of_a_link_are_masked() {
    let m = Machine::new();
    m.folder("h/dots");
    m.write("h/dots/netrc");
    symlink(m.root.join("h/dots/netrc"), m.root.join("h/.netrc")).unwrap();
    symlink(m.root.join("h/nothing"), m.root.join("h/dangling")).unwrap();
    let r = m.resolve(&hide(&["~/.ssh", "~/.netrc", "~/dangling", "~/p/.env", "../.aws/creds"]));
    for (path, kind) in [
        ("h/.ssh", MaskKind::Dir),
        ("h/.netrc", MaskKind::File),
        ("h/dots/netrc", MaskKind::File),
        ("h/dangling", MaskKind::Missing),
        ("h/nothing", MaskKind::Missing),
        ("h/p/.env", MaskKind::Missing),
        ("h/.aws/creds", MaskKind::Missing),
    ] {
        assert_eq!(m.mask(&r, path), Some(kind), "{path}");
    }
    let missing = |w: &&String| w.contains("it stays hidden if it appears");
    assert_eq!(r.warnings.iter().filter(missing).count(), 3);
}

#[test]
fn landboxs_own_state_and_keys_are_always_masked() {
    let m = Machine::new();
    let r = m.resolve(&Flags::default());
    assert_eq!(m.mask(&r, "h/.local/state/landbox"), Some(MaskKind::Dir));
    assert_eq!(m.mask(&r, "h/.config/landbox"), Some(MaskKind::Dir));
    let inside = m.refused(&work(&m.root.join("h/.local/state/landbox")));
    assert!(inside.contains("Landbox's own folder"), "{inside}");
}

#[test]
fn a_mask_over_home_project_or_the_system_is_refused() {
    let m = Machine::new();
    for (path, wanted) in [
        ("~", "home folder"),
        ("~/", "home folder"),
        ("/", "home folder"),
        (".", "project itself"),
        ("~/p", "project itself"),
        ("/usr", "every program"),
        ("/proc", "of its own"),
        ("/proc/cpuinfo", "of its own"),
        ("/dev", "every program"),
    ] {
        let message = m.refused(&hide(&[path]));
        assert!(message.contains(wanted) && message.starts_with("--hide"), "{path}: {message}");
    }
}

#[test]
fn patterns_are_refused_unless_something_has_that_very_name() {
    let m = Machine::new();
    for pattern in ["~/p/**/.env", "*.pem", "secret?", "~/x/[ab]", "~/.ssh/ ", " x"] {
        assert!(m.run(&config(), &hide(&[pattern])).is_err(), "{pattern}");
    }
    for literal in ["a*b", "[id]", "what?", "end ", "co:lo,n\\ \n"] {
        m.write(&format!("h/p/{literal}"));
        let r = m.resolve(&hide(&[literal]));
        assert_eq!(m.mask(&r, &format!("h/p/{literal}")), Some(MaskKind::File), "{literal}");
    }
}

#[test]
fn non_utf8_paths_are_masked_byte_for_byte() {
    use std::os::unix::ffi::OsStringExt;
    let m = Machine::new();
    let name = OsString::from_vec(b"\xff\xfe.bin".to_vec());
    std::fs::write(m.root.join("h/p").join(&name), "x").unwrap();
    let r = m.resolve(&Flags { hide: vec![name], ..Flags::default() });
    assert!(r.policy.masks.iter().any(|mask| mask.path.as_bytes().ends_with(b"\xff\xfe.bin")));
}

#[test]
fn a_read_only_path_that_covers_home_or_project_is_ignored_with_a_warning() {
    let m = Machine::new();
    symlink(m.root.join("h"), m.root.join("to-home")).unwrap();
    let root = m.root.to_str().unwrap();
    let covering = ["~", ".", "..", root, &format!("{root}/to-home/"), "~/p/../p"];
    let r = m.resolve(&read_only(&covering));
    assert!(r.policy.read_only.is_empty());
    assert_eq!(r.warnings.iter().filter(|w| w.contains("ignored")).count(), covering.len());
    let r = m.resolve(&read_only(&["src", "~/nothing-here", "~/.ssh"]));
    assert_eq!(r.policy.read_only, [m.abs("h/p/src"), m.abs("h/.ssh")]);
    assert!(r.warnings.is_empty(), "{:?}", r.warnings);
}

#[test]
fn masks_beat_read_only_and_read_only_beats_auth() {
    let m = Machine::new();
    m.folder("out/ref/tokens");
    let flags = |hidden: &str, ro: &str, rw: &str| Flags {
        hide: vec![m.root.join(hidden).into()],
        read_only: vec![m.root.join(ro).into()],
        auth: vec![m.root.join(rw).into()],
        ..Flags::default()
    };
    let r = m.resolve(&flags("out", "out/ref", "out/ref/tokens"));
    assert!(r.policy.read_only.is_empty() && r.policy.auth.is_empty());
    assert_eq!(r.warnings.iter().filter(|w| w.contains("which wins")).count(), 2);
    let r = m.resolve(&flags("h/.ssh", "out/ref", "out/ref"));
    assert_eq!(r.policy.read_only, [m.abs("out/ref")]);
    assert!(r.policy.auth.is_empty());
    let r = m.resolve(&flags("h/.ssh", "out/ref", "out/ref/tokens"));
    assert_eq!(r.policy.auth, [m.abs("out/ref/tokens")]);
}

#[test]
fn the_real_home_or_project_is_never_shared() {
    let m = Machine::new();
    for path in ["~", ".", "..", "/"] {
        assert!(m.refused(&auth(&[path])).contains("real home folder or project"), "{path}");
    }
    let r = m.resolve(&auth(&["~/missing-token", "~/.ssh"]));
    assert_eq!(r.policy.auth, [m.abs("h/.ssh")]);
    assert!(r.warnings[0].contains("make it first"));
}

#[test]
fn nested_mounts_get_layers_and_push_their_surroundings_to_fuse() {
    let mut m = Machine::new();
    m.folder("h/data/deep");
    m.folder("h/p/vol");
    m.folder("h/proc");
    m.folder("h/sys");
    m.mount("h/data", "ext4");
    m.mount("h/data/deep", "xfs");
    m.mount("h/p/vol", "btrfs");
    m.mount("h/proc", "proc");
    m.mount("h/sys", "sysfs");
    let r = m.resolve(&Flags::default());
    assert_eq!(
        m.layers(&r),
        [
            "home h fuse",
            "mount-1 h/data fuse",
            "project h/p fuse",
            "mount-2 h/data/deep kernel",
            "mount-3 h/p/vol kernel",
        ]
    );
    assert_eq!(r.policy.read_only, [m.abs("h/sys")]);
    assert!(r.warnings.iter().any(|w| w.contains("sysfs mount")));
    assert!(r.warnings.iter().any(|w| w.contains("the host's processes and is hidden")));
    // Hidden and read-only mounts need no layer.
    let flags = Flags { hide: vec!["~/data".into()], ..read_only(&["~/p/vol"]) };
    assert_eq!(m.layers(&m.resolve(&flags)), ["home h fuse", "project h/p fuse"]);
}

#[test]
fn a_project_that_is_a_mount_of_its_own_keeps_the_kernels_overlay() {
    let mut m = Machine::new();
    m.mount("h/p", "ext4");
    assert_eq!(m.layers(&m.resolve(&Flags::default())), ["home h fuse", "project h/p kernel"]);
}

#[test]
fn the_back_end_follows_the_choice_and_the_machine() {
    let mut m = Machine::new();
    let flags = |text: &str| Flags { overlay: Some(text.into()), ..Flags::default() };
    let both = |kind: &str| [format!("home h {kind}"), format!("project h/p {kind}")];
    assert_eq!(m.layers(&m.resolve(&flags("fuse"))), both("fuse"));
    assert_eq!(m.layers(&m.resolve(&flags("kernel"))), both("kernel"));
    assert!(m.refused(&flags("overlay2")).contains("auto, kernel or fuse"));

    m.facts.kernel = (5, 10);
    assert_eq!(m.layers(&m.resolve(&flags("auto"))), both("fuse"));
    assert!(m.refused(&flags("kernel")).contains("older than 5.11"));
    m.facts.kernel = (6, 1);
    m.facts.upper = UpperSupport::No("/state lies on nfs".into());
    assert_eq!(m.layers(&m.resolve(&flags("auto"))), both("fuse"));
    m.facts.fuse = Fuse::NoProgram;
    let failure = m.run(&config(), &flags("auto")).unwrap_err();
    assert_eq!(failure.kind, Kind::Unavailable);
    assert!(failure.message.contains("lies on nfs") && failure.message.contains("not installed"));
    assert!(failure.hints.iter().any(|h| h.contains("doctor --fix")));
    m.facts.upper = UpperSupport::Yes;
    assert!(m.refused(&flags("fuse")).contains("not installed"));
    m.mount("h/p/src", "vfat");
    assert!(m.refused(&flags("kernel")).contains("is mounted below it"));
}

#[test]
fn a_home_that_contains_a_mount_needs_fuse_and_so_does_a_lower_the_kernel_refuses() {
    let mut m = Machine::new();
    m.folder("h/stick");
    m.mount("h/stick", "vfat");
    m.facts.fuse = Fuse::NoProgram;
    assert!(m.refused(&Flags::default()).contains("stick is mounted below it"));
    m.facts.fuse = Fuse::Yes;
    assert_eq!(
        m.layers(&m.resolve(&Flags::default())),
        ["home h fuse", "project h/p kernel", "mount-1 h/stick fuse"]
    );
}

#[test]
fn the_common_folder_of_a_linked_worktree_gets_a_layer() {
    let m = Machine::new();
    for folder in ["objects", "refs", "worktrees/p"] {
        m.folder(&format!("out/main/.git/{folder}"));
    }
    m.write("out/main/.git/HEAD");
    let admin = m.root.join("out/main/.git/worktrees/p");
    std::fs::write(m.root.join("h/p/.git"), format!("gitdir: {}\n", admin.display())).unwrap();
    std::fs::write(admin.join("commondir"), "../..\n").unwrap();
    let back = format!("{}\n", m.root.join("h/p/.git").display());
    std::fs::write(admin.join("gitdir"), back).unwrap();
    assert_eq!(
        m.layers(&m.resolve(&Flags::default())),
        ["home h kernel", "project h/p kernel", "worktree out/main/.git kernel"]
    );
    let shut = m.resolve(&hide(&[m.root.join("out/main").to_str().unwrap()]));
    assert_eq!(shut.policy.layers.len(), 2);
    assert!(shut.warnings.iter().any(|w| w.contains("commits inside will fail")));
}

#[test]
fn login_files_are_named_at_their_declared_place() {
    let m = Machine::new();
    let mut bot = config();
    bot.cli = crate::config::known::by_id("claude-code");
    let files = |bot: &Config, flags: &Flags, env: Option<&str>| {
        let env = env.map(OsString::from);
        let r = resolve(bot, flags, &m.facts, |name| {
            env.clone().filter(|_| name == "CLAUDE_CONFIG_DIR")
        })
        .unwrap();
        let shown = r.policy.credentials.iter().map(|p| m.short(p)).collect::<Vec<_>>();
        (shown.join(" "), r.warnings)
    };
    let plain = Flags::default();
    assert_eq!(files(&bot, &plain, None).0, "h/.claude/.credentials.json");
    let moved = m.root.join("h/other");
    assert_eq!(files(&bot, &plain, moved.to_str()).0, "h/other/.credentials.json");
    let (none, warnings) = files(&bot, &plain, m.root.join("out").to_str());
    assert_eq!(none, "");
    assert!(warnings[0].contains("--auth"), "{warnings:?}");
    // A mask beats it, and a folder that is shared as it is needs no keeping in step.
    assert_eq!(files(&bot, &hide(&["~/.claude"]), None).0, "");
    m.folder("h/.claude");
    assert_eq!(files(&bot, &auth(&["~/.claude"]), None).0, "");
    // The file may be a link of a dotfile manager, the folder is canonical.
    m.write("h/dot-credentials");
    let link = m.root.join("h/.claude/.credentials.json");
    symlink(m.root.join("h/dot-credentials"), link).unwrap();
    assert_eq!(files(&bot, &plain, None).0, "h/.claude/.credentials.json");
}

#[test]
fn a_network_policy_brings_its_filter_and_the_flag_decides_over_the_bot() {
    let m = Machine::new();
    let flags = |choice| Flags { network: Some(choice), ..Flags::default() };
    let decided = |config: &Config, flags: &Flags| {
        let policy = m.run(config, flags).unwrap().policy;
        (policy.network, policy.seccomp)
    };
    let base = SeccompProfile::Base;
    assert_eq!(decided(&config(), &flags(NetworkChoice::Host)), (Network::Host, base));
    assert_eq!(decided(&config(), &flags(NetworkChoice::None)), (Network::None, base));
    let inner = NetworkPolicy {
        version: NETWORK_POLICY_VERSION,
        public: Zone::Block,
        private: Zone::Allowlist(Vec::new()),
        dns_servers: vec!["10.0.2.9".parse().unwrap()],
        proxy_mode: None,
    };
    let choice = NetworkChoice::Policy(Box::new(inner.clone()), Origin::Flag("--network"));
    let wanted = (Network::Policy(inner), SeccompProfile::Restricted);
    assert_eq!(decided(&config(), &flags(choice.clone())), wanted);
    let bot = Config { network: choice, ..config() };
    assert_eq!(decided(&bot, &Flags::default()), wanted);
    let warned = m.run(&bot, &Flags::default()).unwrap().warnings;
    assert!(warned.iter().any(|w| w.starts_with("--network: dnsServers[0]")), "{warned:?}");
    assert_eq!(decided(&bot, &flags(NetworkChoice::None)), (Network::None, base));
    let open = m.run(&bot, &flags(NetworkChoice::Host)).unwrap();
    assert!(open.warnings.iter().any(|w| w.contains("does not count")), "{:?}", open.warnings);
}

#[test]
fn thousands_of_hidden_paths_resolve_quickly() {
    let m = Machine::new();
    let long = "d".repeat(60);
    let paths: Vec<OsString> = (0..3000).map(|i| format!("{long}/{i:04}/.env").into()).collect();
    let start = std::time::Instant::now();
    let r = m.resolve(&Flags { hide: paths, ..Flags::default() });
    assert_eq!(r.policy.masks.len(), 3002);
    assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_mask_keeps_no_path_below_another() {
    let m = Machine::new();
    m.write("h/.ssh/id");
    let r = m.resolve(&hide(&["~/.ssh/id", "~/.ssh", "~/.ssh/later"]));
    let ssh: Vec<&Mask> =
        r.policy.masks.iter().filter(|x| x.path.is_within(&m.abs("h/.ssh"))).collect();
    assert_eq!(ssh.len(), 1);
}
