//! Masks hold against the task, and against what the host does later.

use super::super::mask;
use super::super::target::World;
use super::stage::{
    Host, Stage, bind, enter, enter_around_a_mount, errno, hide, masked, mount_table, private,
};
use crate::open::{PLACE, open};
use landbox_shared::path::{AbsPath, RelPath};
use landbox_shared::plan::{Access, Loss, Op};
use landbox_shared::policy::{Backend, MaskKind};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

fn masks_in_a_layer_hold(stage: &Stage, backend: Backend) {
    let secrets = stage.project.join("config/secrets");
    fs::create_dir_all(&secrets).unwrap();
    fs::write(secrets.join("key"), "secret").unwrap();
    fs::write(secrets.join("public"), "public").unwrap();
    fs::create_dir(stage.project.join(".ssh")).unwrap();
    fs::write(stage.project.join(".ssh/id"), "secret").unwrap();
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(stage.project.join("plain"), "plain").unwrap();
    let before = fs::metadata(&secrets).unwrap();
    let layer = stage.layer("project", &stage.project, backend);
    let op = masked(
        layer,
        &[
            ("config/secrets/key", MaskKind::File),
            (".ssh", MaskKind::Dir),
            (".env", MaskKind::Missing),
            ("no/such/folder", MaskKind::Missing),
        ],
    );
    let mut host = Host::arrive();
    stage.build([op]);
    let key = secrets.join("key");
    let ssh = stage.project.join(".ssh");
    let env = stage.project.join(".env");

    assert_eq!(fs::read(&key).unwrap(), b"");
    assert_eq!(fs::read(secrets.join("public")).unwrap(), b"public");
    assert_eq!(fs::read_dir(&ssh).unwrap().count(), 0);
    assert_eq!(errno(fs::read(ssh.join("id"))), libc::ENOENT);
    assert_eq!(errno(fs::read(&env)), libc::ENOENT);
    assert!(!stage.project.join("no").exists());
    let after = fs::metadata(&secrets).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));

    // The task tries to take them away.
    assert_ne!(errno(fs::remove_file(&key)), 0);
    assert_ne!(errno(fs::write(&key, "x")), 0);
    assert_ne!(errno(fs::write(ssh.join("id"), "x")), 0);
    assert_ne!(errno(fs::remove_dir(&ssh)), 0);
    assert_ne!(errno(fs::rename(&ssh, stage.project.join("moved"))), 0);
    for _ in 0..2 {
        fs::write(&env, "task").unwrap();
        fs::remove_file(&env).unwrap();
        assert_eq!(errno(fs::read(&env)), libc::ENOENT);
    }

    // The host replaces what is hidden, and makes what was missing.
    let at = |path: &Path| format!("'{}'", path.display());
    host.run(&format!("printf secret2 > {0}.new; mv {0}.new {0}", at(&key)));
    host.run(&format!("rm -r {0}; mkdir {0}; printf secret2 > {0}/id", at(&ssh)));
    host.run(&format!("printf secret2 > {}", at(&env)));
    host.run(&format!(
        "mkdir -p {0}; printf secret2 > {0}/x",
        at(&stage.project.join("no/such/folder"))
    ));
    assert_eq!(fs::read(&key).unwrap(), b"");
    assert_eq!(errno(fs::read(ssh.join("id"))), libc::ENOENT);
    assert_eq!(errno(fs::read(&env)), libc::ENOENT);
    fs::write(&env, "task").unwrap();
    fs::remove_file(&env).unwrap();
    assert_eq!(errno(fs::read(&env)), libc::ENOENT);
    assert_eq!(errno(fs::read(stage.project.join("no/such/folder/x"))), libc::ENOENT);
    let listed: Vec<_> = fs::read_dir(&stage.project)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !listed.contains(&".env".to_owned()) && !listed.contains(&"no".to_owned()),
        "{listed:?}"
    );
    assert_eq!(fs::read(stage.project.join("plain")).unwrap(), b"plain");
    // Nothing of this shows in what the session wrote.
    let upper = stage.upper("project");
    host.run(&format!("test ! -e {}", at(&upper.join("config"))));
    host.run(&format!("test ! -e {}", at(&upper.join(".ssh"))));
}

#[test]
fn masks_in_a_kernel_layer_hold() {
    let Some(stage) = enter("masks::masks_in_a_kernel_layer_hold") else { return };
    masks_in_a_layer_hold(&stage, Backend::Kernel);
}

#[test]
fn masks_in_a_fuse_layer_hold() {
    let Some(stage) = enter("masks::masks_in_a_fuse_layer_hold") else { return };
    masks_in_a_layer_hold(&stage, Backend::Fuse);
}

#[test]
fn a_folder_with_masks_below_can_be_changed_and_removed_like_any_other() {
    let Some(stage) =
        enter("masks::a_folder_with_masks_below_can_be_changed_and_removed_like_any_other")
    else {
        return;
    };
    fs::create_dir(stage.project.join("a")).unwrap();
    fs::write(stage.project.join("a/file"), "real").unwrap();
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    stage.build([masked(layer, &[("a/missing", MaskKind::Missing)])]);
    fs::write(stage.project.join("a/file"), "session").unwrap();
    fs::write(stage.project.join("a/new"), "session").unwrap();
    fs::remove_dir_all(stage.project.join("a")).unwrap();
    assert!(!stage.project.join("a").exists());
    fs::create_dir(stage.project.join("a")).unwrap();
    assert_eq!(fs::read_dir(stage.project.join("a")).unwrap().count(), 0);
}

/// Other tests run meanwhile, so the clock on the wall says little.
fn processor_time() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let sum = usage.user_time() + usage.system_time();
    Duration::from_micros(u64::try_from(sum.tv_sec() * 1_000_000 + sum.tv_usec()).unwrap())
}

#[test]
fn three_thousand_missing_masks_are_quick_and_cost_no_mount() {
    let Some(stage) = enter("masks::three_thousand_missing_masks_are_quick_and_cost_no_mount")
    else {
        return;
    };
    let names: Vec<String> =
        (0..3000).map(|number| format!("folder-{}/x/missing-{number}", number % 300)).collect();
    for number in 0..300 {
        fs::create_dir_all(stage.project.join(format!("folder-{number}/x"))).unwrap();
    }
    let masks: Vec<(&str, MaskKind)> =
        names.iter().map(|name| (name.as_str(), MaskKind::Missing)).collect();
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    let before = processor_time();
    let mounted = stage.build([masked(layer, &masks)]);
    let took = processor_time() - before;
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert!(mounted.points.len() < 30, "{}", mounted.points.len());
}

#[test]
fn masks_outside_the_layers_hold_when_the_host_replaces_or_makes_the_path() {
    let Some(stage) =
        enter("masks::masks_outside_the_layers_hold_when_the_host_replaces_or_makes_the_path")
    else {
        return;
    };
    let outside = stage.home.join("outside");
    fs::create_dir_all(outside.join("deep/keys")).unwrap();
    for name in ["secret", "plain", "deep/keys/id", "deep/plain"] {
        fs::write(outside.join(name), "text").unwrap();
    }
    let mut host = Host::arrive();
    let mounted = stage.build([
        hide(&outside.join("secret"), MaskKind::File),
        hide(&outside.join("later"), MaskKind::Missing),
        hide(&outside.join("not/yet/there"), MaskKind::Missing),
        hide(&outside.join("deep/keys"), MaskKind::Dir),
    ]);
    let hidden = || {
        assert_eq!(fs::read(outside.join("secret")).unwrap(), b"");
        assert_eq!(errno(fs::read(outside.join("later"))), libc::ENOENT);
        assert_eq!(errno(fs::read(outside.join("not/yet/there"))), libc::ENOENT);
        assert_eq!(fs::read_dir(outside.join("deep/keys")).unwrap().count(), 0);
        assert_eq!(fs::read(outside.join("plain")).unwrap(), b"text");
        assert_eq!(fs::read(outside.join("deep/plain")).unwrap(), b"text");
        for name in ["secret", "later", "deep/keys/x", "plain"] {
            assert_eq!(errno(fs::write(outside.join(name), "x")), libc::EROFS, "{name}");
        }
    };
    hidden();
    let at = outside.display();
    host.run(&format!(
        "printf new > '{at}/n'; mv '{at}/n' '{at}/secret'; printf new > '{at}/later'"
    ));
    host.run(&format!("mkdir -p '{at}/not/yet'; printf new > '{at}/not/yet/there'"));
    host.run(&format!(
        "rm -r '{at}/deep/keys'; mkdir '{at}/deep/keys'; printf new > '{at}/deep/keys/id'"
    ));
    hidden();
    let overlays = mount_table().iter().filter(|line| line.kind == "overlay").count();
    assert_eq!(overlays, 2, "one a folder, however many masks");
    for folder in [&outside, &outside.join("deep")] {
        assert!(mounted.points.contains(&super::stage::abs(folder)));
    }
}

#[test]
fn a_folder_that_holds_other_mounts_is_masked_too() {
    let Some(stage) = enter("masks::a_folder_that_holds_other_mounts_is_masked_too") else {
        return;
    };
    let outside = stage.home.join("outside");
    let shown = outside.join("shown");
    fs::create_dir_all(&shown).unwrap();
    fs::write(shown.join("x"), "text").unwrap();
    fs::write(outside.join("secret"), "text").unwrap();
    fs::write(outside.join("plain"), "text").unwrap();
    std::os::unix::fs::symlink("plain", outside.join("link")).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o750)).unwrap();
    let mut host = Host::arrive();
    // Our own bind lies below the folder, so an overlay would lose it.
    stage.build([
        bind(&shown, Access::ReadOnly),
        hide(&outside.join("secret"), MaskKind::File),
        hide(&outside.join("later"), MaskKind::Missing),
    ]);
    let at = outside.display();
    host.run(&format!(
        "printf new > '{at}/later'; printf new > '{at}/n'; mv '{at}/n' '{at}/secret'"
    ));
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"");
    assert_eq!(errno(fs::read(outside.join("later"))), libc::ENOENT);
    assert_eq!(fs::read(shown.join("x")).unwrap(), b"text");
    assert_eq!(fs::read(outside.join("link")).unwrap(), b"text");
    assert_eq!(errno(fs::write(outside.join("later"), "x")), libc::EROFS);
    assert_eq!(errno(fs::write(outside.join("plain"), "x")), libc::EROFS);
    assert_eq!(fs::metadata(&outside).unwrap().mode() & 0o7777, 0o750);
}

#[test]
fn a_folder_on_which_the_kernel_refuses_an_overlay_is_masked_too() {
    let Some(stage) = enter_around_a_mount(
        "masks::a_folder_on_which_the_kernel_refuses_an_overlay_is_masked_too",
    ) else {
        return;
    };
    fs::write(stage.project.join("secret"), "text").unwrap();
    fs::write(stage.project.join("inner/file"), "text").unwrap();
    let mut host = Host::arrive();
    stage.build([
        hide(&stage.project.join("secret"), MaskKind::File),
        hide(&stage.project.join("later"), MaskKind::Missing),
        hide(&stage.project.join("inner/later"), MaskKind::Missing),
    ]);
    let at = stage.project.display();
    host.run(&format!(
        "printf new > '{at}/later'; printf new > '{at}/n'; mv '{at}/n' '{at}/secret'"
    ));
    host.run(&format!("printf new > '{at}/inner/later'"));
    assert_eq!(fs::read(stage.project.join("secret")).unwrap(), b"");
    assert_eq!(errno(fs::read(stage.project.join("later"))), libc::ENOENT);
    assert_eq!(errno(fs::read(stage.project.join("inner/later"))), libc::ENOENT);
    assert_eq!(fs::read(stage.project.join("inner/file")).unwrap(), b"text");
}

#[test]
fn a_missing_name_below_the_root_stays_hidden() {
    let Some(stage) = enter("masks::a_missing_name_below_the_root_stays_hidden") else { return };
    let name = Path::new("/landbox-no-such-folder/secret");
    let project = stage.layer("project", &stage.project, Backend::Kernel);
    fs::write(stage.project.join("secret"), "text").unwrap();
    let mounted = stage.build([
        masked(project, &[("secret", MaskKind::File)]),
        hide(name, MaskKind::Missing),
        hide(Path::new("/mnt"), MaskKind::Dir),
        private("outbox", "/run/landbox/outbox"),
    ]);
    assert!(!name.exists());
    assert_eq!(fs::read_dir("/mnt").unwrap().count(), 0);
    assert!(mounted.points.iter().any(|point| point.as_bytes() == b"/mnt"));
    assert_eq!(fs::read(stage.project.join("secret")).unwrap(), b"");
    assert_eq!(errno(fs::write(stage.project.join("secret"), "x")), libc::EROFS);
    for written in ["/dev/null", "/tmp/x", "/run/landbox/outbox/x"] {
        fs::write(written, "x").unwrap();
    }
    assert_eq!(errno(fs::create_dir(name.parent().unwrap())), libc::EROFS);
    assert!(fs::read("/etc/passwd").is_ok());
    assert_eq!(errno(fs::write("/etc/landbox-test", "x")), libc::EROFS);
    fs::write(stage.project.join("x"), "x").unwrap();
    assert_eq!(mounted.points[0].to_string(), "/");
    for line in mount_table().iter().filter(|line| !line.point.starts_with("/dev")) {
        assert!(line.options.contains(&"nosuid".to_owned()), "{}", line.point);
        assert!(line.options.contains(&"nodev".to_owned()), "{}", line.point);
    }
}

#[test]
fn a_mask_below_an_auth_path_leaves_the_rest_writable() {
    let Some(stage) = enter("masks::a_mask_below_an_auth_path_leaves_the_rest_writable") else {
        return;
    };
    let auth = stage.home.join("auth");
    fs::create_dir(&auth).unwrap();
    fs::write(auth.join("secret"), "text").unwrap();
    fs::write(auth.join("token"), "text").unwrap();
    let home = stage.layer("home", &stage.home, Backend::Kernel);
    let mounted = stage.build([
        Op::Layer(home),
        bind(&auth, Access::ReadWrite),
        hide(&auth.join("secret"), MaskKind::File),
    ]);
    assert_eq!(fs::read(auth.join("secret")).unwrap(), b"");
    assert_eq!(errno(fs::write(auth.join("secret"), "x")), libc::EROFS);
    fs::write(auth.join("token"), "new").unwrap();
    assert_eq!(mounted.points.last(), Some(&super::stage::abs(&auth.join("secret"))));
}

#[test]
fn a_mask_on_a_private_mount_that_holds_nothing_needs_nothing() {
    let Some(stage) = enter("masks::a_mask_on_a_private_mount_that_holds_nothing_needs_nothing")
    else {
        return;
    };
    let mounted = stage.build([hide(Path::new("/tmp/secret"), MaskKind::File)]);
    assert!(!Path::new("/tmp/secret").exists());
    assert!(mounted.points.iter().all(|point| point.as_bytes() != b"/tmp/secret"));
}

#[test]
fn what_may_be_lost_is_kept_apart_and_left_out_where_it_is_gone_already() {
    let Some(stage) =
        enter("masks::what_may_be_lost_is_kept_apart_and_left_out_where_it_is_gone_already")
    else {
        return;
    };
    let service = stage.home.join("service");
    fs::create_dir(&service).unwrap();
    fs::create_dir(stage.home.join("other")).unwrap();
    for name in ["service/there", "other/there", "other/secret"] {
        fs::write(stage.home.join(name), "text").unwrap();
    }
    let tolerated = |path: &Path| Op::Mask {
        target: super::stage::abs(path),
        kind: MaskKind::File,
        loss: Loss::Tolerated,
    };
    let mounted = stage.build([
        tolerated(Path::new("/landbox-no-such-socket")),
        tolerated(&stage.home.join("gone/sock")),
        tolerated(&service.join("gone")),
        tolerated(&service.join("there")),
        tolerated(&stage.home.join("other/there")),
        hide(&stage.home.join("other/secret"), MaskKind::File),
    ]);
    for name in ["service/there", "other/there", "other/secret"] {
        assert_eq!(fs::read(stage.home.join(name)).unwrap(), b"", "{name}");
    }
    assert_eq!(mounted.points[0].to_string(), "/");
    assert_eq!(mounted.points.last(), Some(&super::stage::abs(&stage.home.join("other"))));
    assert!(!mounted.points.contains(&super::stage::abs(&service)));
    let table = mount_table();
    assert!(table.iter().any(|line| Path::new(&line.point) == service));
    assert!(!table.iter().any(|line| Path::new(&line.point) == stage.home));
    assert_ne!(mount_table()[0].kind, "tmpfs", "the root was not copied");
}

#[test]
fn paths_in_a_folder_of_roots_are_masked_for_anybody() {
    let Some(stage) = enter("masks::paths_in_a_folder_of_roots_are_masked_for_anybody") else {
        return;
    };
    let before = fs::metadata("/etc").unwrap();
    let groups = fs::read("/etc/group").unwrap();
    let later = Path::new("/etc/landbox-no-such-secret");
    let closed = Path::new("/var/cache/ldconfig/aux-cache");
    stage.build([
        hide(Path::new("/etc/passwd"), MaskKind::File),
        hide(later, MaskKind::Missing),
        // Closed to an ordinary user.
        hide(Path::new("/root/no/such/secret"), MaskKind::Missing),
        hide(closed, MaskKind::File),
    ]);
    assert_ne!(errno(fs::read("/root/no/such/secret")), 0);
    assert!(fs::read(closed).map_or(true, |bytes| bytes.is_empty()));
    assert_eq!(fs::read("/etc/passwd").unwrap(), b"");
    assert_eq!(fs::read("/etc/group").unwrap(), groups);
    assert_eq!(errno(fs::read(later)), libc::ENOENT);
    assert_eq!(errno(fs::write(later, "x")), libc::EROFS);
    assert_eq!(fs::metadata("/etc").unwrap().mode(), before.mode());
}

#[test]
fn a_layer_over_folders_of_roots_carries_masks_for_anybody() {
    let Some(stage) = enter("masks::a_layer_over_folders_of_roots_carries_masks_for_anybody")
    else {
        return;
    };
    let etc = Path::new("/etc");
    let groups = fs::read("/etc/group").unwrap();
    let masks = [("passwd", MaskKind::File), ("apt", MaskKind::Dir), ("apt2/x", MaskKind::Missing)];
    stage.build([masked(stage.layer("mount-1", etc, Backend::Kernel), &masks)]);
    assert_eq!(fs::read("/etc/passwd").unwrap(), b"");
    assert_eq!(fs::read("/etc/group").unwrap(), groups);
    if etc.join("apt").exists() {
        assert_eq!(fs::read_dir("/etc/apt").unwrap().count(), 0);
    }
}

#[test]
fn masks_that_follow_each_other_deeper_and_deeper_all_hold() {
    let Some(stage) = enter("masks::masks_that_follow_each_other_deeper_and_deeper_all_hold")
    else {
        return;
    };
    let outside = stage.home.join("outside");
    let mut folder = outside.clone();
    let mut masks = Vec::new();
    for depth in 0..5 {
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("secret"), "text").unwrap();
        fs::write(folder.join("plain"), "text").unwrap();
        masks.push(hide(&folder.join("secret"), MaskKind::File));
        masks.push(hide(&folder.join("later"), MaskKind::Missing));
        folder.push(format!("level-{depth}"));
    }
    let mut host = Host::arrive();
    stage.build(masks);
    host.run(&format!(
        "for d in $(find '{}' -type d); do echo x > $d/later; done",
        outside.display()
    ));
    let mut folder = outside;
    for depth in 0..5 {
        assert_eq!(fs::read(folder.join("secret")).unwrap(), b"", "{depth}");
        assert_eq!(fs::read(folder.join("plain")).unwrap(), b"text", "{depth}");
        assert_eq!(errno(fs::read(folder.join("later"))), libc::ENOENT, "{depth}");
        folder.push(format!("level-{depth}"));
    }
}

#[test]
fn a_masked_path_that_is_gone_is_passed_over_only_where_it_stays_hidden_or_may_be_lost() {
    let folder = std::env::temp_dir().join(format!("landbox-gone-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let place = || open(&folder, PLACE).unwrap();
    let mut world = World::new(place(), place(), AbsPath::new("/").unwrap());
    fs::write(folder.join("file"), "").unwrap();
    for path in ["gone", "gone/below", "file/below"] {
        let path = RelPath::new(path).unwrap();
        let mut cover = |loss, hidden| {
            let masks = [(path.clone(), (MaskKind::File, loss))].into();
            let covered =
                mask::cover(&mut world, &place(), &AbsPath::new("/f").unwrap(), &masks, hidden);
            covered.map_err(|failure| failure.errno)
        };
        cover(Loss::EndsSession, true).unwrap();
        cover(Loss::Tolerated, false).unwrap();
        assert!(
            [libc::ENOENT, libc::ENOTDIR].contains(&cover(Loss::EndsSession, false).unwrap_err())
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn nothing_can_be_undone_from_a_namespace_inside() {
    let Some(stage) = enter("masks::nothing_can_be_undone_from_a_namespace_inside") else { return };
    let outside = stage.home.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "text").unwrap();
    fs::create_dir(stage.project.join(".ssh")).unwrap();
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    let mounted = stage.build([
        masked(layer, &[(".ssh", MaskKind::Dir)]),
        hide(&outside.join("secret"), MaskKind::File),
    ]);
    // As the task, if it got every capability in a user namespace of its own.
    for point in &mounted.points {
        for attempt in ["umount", "umount -l", "mount -o remount,bind,rw,suid,dev"] {
            let script = format!("{attempt} \"$0\"; test $? -ne 0");
            let status = std::process::Command::new("unshare")
                .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
                .arg(point.as_path())
                .stderr(std::process::Stdio::null())
                .status()
                .unwrap();
            assert!(status.success(), "{attempt} {point}");
        }
    }
}
