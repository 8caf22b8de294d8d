//! The parts every session has, and binds.

use super::stage::{
    Host, Stage, abs, bind, enter, errno, mount_at, mount_table, private, rel, tmpfs,
};
use landbox_shared::event::Stage as Step;
use landbox_shared::path::AbsPath;
use landbox_shared::plan::{Access, Op};
use landbox_shared::system::PROC_READ_ONLY;
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

#[test]
fn the_root_is_read_only_and_nothing_sets_user_ids() {
    let Some(stage) = enter("tree::the_root_is_read_only_and_nothing_sets_user_ids") else {
        return;
    };
    let mounted = stage.build([]);
    assert_eq!(std::env::current_dir().unwrap(), Path::new("/"));
    assert_eq!(errno(fs::write("/etc/landbox-test", "x")), libc::EROFS);
    assert_eq!(errno(fs::write(stage.home.join("x"), "x")), libc::EROFS);
    for line in mount_table() {
        let device = line.point.starts_with("/dev/");
        assert!(line.options.contains(&"nosuid".to_owned()), "{} {:?}", line.point, line.options);
        assert!(device || line.options.contains(&"nodev".to_owned()), "{}", line.point);
        assert!(line.tags.is_empty(), "{} {:?}", line.point, line.tags);
    }
    let points: Vec<String> = mounted.points.iter().map(ToString::to_string).collect();
    for point in ["/", "/proc", "/proc/sys", "/dev", "/dev/pts", "/dev/null", "/tmp", "/run"] {
        assert!(points.contains(&point.to_owned()), "{point} {points:?}");
        mount_at(point);
    }
    let table: Vec<String> = mount_table().into_iter().map(|line| line.point).collect();
    assert!(!table.iter().any(|point| point.contains("mask-")), "{table:?}");
}

#[test]
fn the_writable_parts_of_proc_are_read_only() {
    let Some(stage) = enter("tree::the_writable_parts_of_proc_are_read_only") else { return };
    stage.build([]);
    assert_eq!(std::process::id(), 1);
    assert!(fs::read_link("/proc/self").unwrap() == Path::new("1"));
    let pattern = fs::OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern");
    assert!([libc::EROFS, libc::EACCES].contains(&errno(pattern)));
    for name in PROC_READ_ONLY {
        let point = format!("/proc/{name}");
        if Path::new(&point).exists() {
            assert!(mount_at(&point).options.contains(&"ro".to_owned()), "{point}");
        }
    }
}

#[test]
fn dev_is_minimal_and_works() {
    let Some(stage) = enter("tree::dev_is_minimal_and_works") else { return };
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = ptsname_r(&master).unwrap();
    let mut ops = stage.basics();
    ops[2] = Op::Dev { console: Some(AbsPath::new(slave.as_bytes()).unwrap()) };
    stage.try_build(ops).unwrap();
    let mut names: Vec<String> = fs::read_dir("/dev")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "console", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero",
    ];
    assert_eq!(names, expected);
    fs::write("/dev/null", "x").unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert_eq!(
        errno(fs::set_permissions("/dev/null", fs::Permissions::from_mode(0o0))),
        libc::EROFS
    );
    assert_eq!(errno(fs::write("/dev/x", "x")), libc::EROFS);
    fs::write("/dev/shm/x", "x").unwrap();
    fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    assert!(fs::metadata("/dev/pts/0").is_err());
    assert!(fs::metadata("/dev/console").unwrap().file_type().is_char_device());
    let mut console = fs::OpenOptions::new().write(true).open("/dev/console").unwrap();
    std::io::Write::write_all(&mut console, b"hello\n").unwrap();
}

#[test]
fn private_folders_are_the_sessions_and_take_mount_points() {
    let Some(stage) = enter("tree::private_folders_are_the_sessions_and_take_mount_points") else {
        return;
    };
    let library = stage.home.join("library");
    fs::create_dir(&library).unwrap();
    fs::write(library.join("a"), "a").unwrap();
    let file = stage.home.join("resolv");
    fs::write(&file, "nameserver 192.0.2.1").unwrap();
    let at = |source: &Path, target: &str| Op::Bind {
        source: abs(source),
        target: AbsPath::new(target).unwrap(),
        access: Access::ReadOnly,
    };
    let mounted = stage.build([
        private("outbox", "/run/landbox/outbox"),
        at(&library, "/run/user/bin"),
        at(&file, "/run/systemd/resolve/stub-resolv.conf"),
    ]);
    fs::write("/run/landbox/outbox/x", "x").unwrap();
    assert_eq!(fs::read("/run/user/bin/a").unwrap(), b"a");
    assert_eq!(errno(fs::write("/run/user/bin/a", "b")), libc::EROFS);
    assert_eq!(fs::read("/run/systemd/resolve/stub-resolv.conf").unwrap(), b"nameserver 192.0.2.1");
    assert_eq!(fs::metadata("/tmp").unwrap().mode() & 0o7777, 0o1777);
    fs::write("/tmp/x", "x").unwrap();
    assert_eq!(fs::read(stage.session.join("tmp/x")).unwrap(), b"x");
    assert!(mounted.points.contains(&AbsPath::new("/run/user/bin").unwrap()));
}

#[test]
fn an_auth_path_is_the_real_thing_and_a_read_only_path_is_not_writable_below_mounts_either() {
    let Some(stage) = enter(
        "tree::an_auth_path_is_the_real_thing_and_a_read_only_path_is_not_writable_below_mounts_either",
    ) else {
        return;
    };
    let (auth, docs) = (stage.home.join("auth"), stage.home.join("docs"));
    fs::create_dir_all(docs.join("inner")).unwrap();
    fs::write(&auth, "old").unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(docs.join("inner"))
        .status();
    assert!(mount.unwrap().success());
    let mut host = Host::arrive();
    stage.build([bind(&auth, Access::ReadWrite), bind(&docs, Access::ReadOnly)]);
    fs::write(&auth, "new").unwrap();
    assert_eq!(host.run(&format!("cat {}", auth.display())), "new");
    assert_eq!(errno(fs::write(docs.join("inner/x"), "x")), libc::EROFS);
}

#[test]
fn a_mount_point_is_never_made_on_a_real_file_system() {
    let Some(stage) = enter("tree::a_mount_point_is_never_made_on_a_real_file_system") else {
        return;
    };
    let target = stage.home.join("missing");
    let mut ops = stage.basics();
    ops.push(Op::Tmpfs { target: abs(&target), mode: 0o755, size: 4096 });
    let failure = stage.try_build(ops).unwrap_err();
    assert_eq!((failure.stage, failure.errno), (Step::Mount, libc::ENOENT));
    assert_eq!(failure.path, abs(&target).as_bytes());
    assert!(!target.exists());
}

#[test]
fn a_file_and_a_folder_do_not_cover_each_other() {
    let Some(stage) = enter("tree::a_file_and_a_folder_do_not_cover_each_other") else { return };
    let (file, folder) = (stage.home.join("file"), stage.home.join("folder"));
    fs::write(&file, "").unwrap();
    fs::create_dir(&folder).unwrap();
    let mut ops = stage.basics();
    ops.push(Op::Bind { source: abs(&file), target: abs(&folder), access: Access::ReadOnly });
    let failure = stage.try_build(ops).unwrap_err();
    assert_eq!((failure.stage, failure.errno), (Step::Mount, libc::EISDIR));
}

fn a_link_does_not_move_a_mount(stage: &Stage, to: &str) {
    symlink(to, stage.session.join("tmp/link")).unwrap();
    let mut ops = stage.basics();
    ops.push(tmpfs("/tmp/link/inner"));
    let failure = stage.try_build(ops).unwrap_err();
    assert_eq!((failure.stage, failure.path.as_slice()), (Step::Mount, &b"/tmp/link/inner"[..]));
}

#[test]
fn a_link_the_session_left_does_not_move_a_mount() {
    let Some(stage) = enter("tree::a_link_the_session_left_does_not_move_a_mount") else { return };
    a_link_does_not_move_a_mount(&stage, "../run");
}

#[test]
fn a_link_the_session_left_leads_no_mount_out_of_the_root() {
    let Some(stage) = enter("tree::a_link_the_session_left_leads_no_mount_out_of_the_root") else {
        return;
    };
    a_link_does_not_move_a_mount(&stage, "/run");
}

#[test]
fn a_source_is_never_opened_through_a_link() {
    let Some(stage) = enter("tree::a_source_is_never_opened_through_a_link") else { return };
    symlink("/etc", stage.session.join("evil")).unwrap();
    for source in ["evil", "evil/passwd"] {
        let mut ops = stage.basics();
        ops.push(Op::Private {
            source: rel(source),
            target: AbsPath::new("/run/x").unwrap(),
            access: Access::ReadOnly,
        });
        assert_eq!(stage.try_build(ops).unwrap_err().stage, Step::Mount);
    }
    let link = stage.home.join("link");
    symlink("/etc", &link).unwrap();
    let mut ops = stage.basics();
    ops.push(bind(&link.join("passwd"), Access::ReadOnly));
    assert_eq!(stage.try_build(ops).unwrap_err().errno, libc::ELOOP);
}
