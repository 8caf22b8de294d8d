//! Layers, on both back ends.

use super::stage::{
    Host, Stage, abs, enter, enter_around_a_mount, errno, mount_at, mount_table, rel,
};
use landbox_shared::event::Stage as Step;
use landbox_shared::plan::{Access, LayerMask, Op};
use landbox_shared::policy::{Backend, MaskKind};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

const BACKENDS: [(Backend, &str); 2] = [(Backend::Kernel, "kernel"), (Backend::Fuse, "fuse")];

fn writes_stay_in_the_upper(stage: &Stage, backend: Backend) {
    fs::write(stage.project.join("file"), "real").unwrap();
    fs::write(stage.project.join("gone"), "real").unwrap();
    fs::create_dir(stage.project.join("folder")).unwrap();
    fs::write(stage.project.join("folder/old"), "real").unwrap();
    fs::write(stage.home.join(".profile"), "real").unwrap();
    let home = stage.layer("home", &stage.home, backend);
    let project = stage.layer("project", &stage.project, backend);
    let mut host = Host::arrive();
    let mounted = stage.build([Op::Layer(home), Op::Layer(project)]);

    fs::write(stage.project.join("file"), "session").unwrap();
    fs::remove_file(stage.project.join("gone")).unwrap();
    fs::remove_dir_all(stage.project.join("folder")).unwrap();
    fs::create_dir(stage.project.join("folder")).unwrap();
    fs::write(stage.project.join("folder/new"), "session").unwrap();
    fs::write(stage.home.join(".profile"), "session").unwrap();
    assert_eq!(fs::read_dir(stage.project.join("folder")).unwrap().count(), 1);

    let cat = |host: &mut Host, path: &Path| host.run(&format!("cat '{}'", path.display()));
    assert_eq!(cat(&mut host, &stage.project.join("file")), "real");
    assert_eq!(cat(&mut host, &stage.project.join("gone")), "real");
    assert_eq!(cat(&mut host, &stage.project.join("folder/old")), "real");
    assert_eq!(cat(&mut host, &stage.home.join(".profile")), "real");
    let upper = stage.upper("project");
    assert_eq!(cat(&mut host, &upper.join("file")), "session");
    assert_eq!(cat(&mut host, &upper.join("folder/new")), "session");
    assert_eq!(cat(&mut host, &stage.upper("home").join(".profile")), "session");
    host.run(&format!("test ! -e '{}'", stage.upper("home").join("project/file").display()));

    assert_eq!(mounted.layer_roots.len(), 2);
    for (root, target) in mounted.layer_roots.iter().zip([&stage.home, &stage.project]) {
        let by_descriptor = nix::sys::stat::fstat(root).unwrap();
        let by_path = fs::metadata(target).unwrap();
        assert_eq!(by_descriptor.st_dev, by_path.dev());
        assert_eq!(by_descriptor.st_ino, by_path.ino());
        assert!(mounted.points.contains(&abs(target)));
        let line = mount_at(target.to_str().unwrap());
        for flag in ["nosuid", "nodev"] {
            assert!(line.options.contains(&flag.to_owned()), "{:?}", line.options);
        }
        match backend {
            Backend::Kernel => {
                assert_eq!(line.kind, "overlay");
                assert!(line.super_options.contains(",userxattr"), "{}", line.super_options);
                assert!(line.super_options.contains("volatile"), "{}", line.super_options);
            }
            Backend::Fuse => assert_eq!(line.kind, "fuse.fuse-overlayfs"),
        }
    }
}

#[test]
fn what_is_written_stays_in_the_upper_on_the_kernel() {
    let Some(stage) = enter("layers::what_is_written_stays_in_the_upper_on_the_kernel") else {
        return;
    };
    writes_stay_in_the_upper(&stage, Backend::Kernel);
}

#[test]
fn what_is_written_stays_in_the_upper_on_fuse() {
    let Some(stage) = enter("layers::what_is_written_stays_in_the_upper_on_fuse") else { return };
    writes_stay_in_the_upper(&stage, Backend::Fuse);
}

#[test]
fn any_name_a_folder_may_have_can_carry_a_layer() {
    let Some(stage) = enter("layers::any_name_a_folder_may_have_can_carry_a_layer") else { return };
    let names: [&[u8]; 8] = [
        b"two words",
        b"a:b",
        b"a,b=c,userxattr",
        b"back\\slash\\",
        b"new\nline",
        b"not utf-8 \xff\xfe",
        b"\"quoted\" 'name'",
        b"caf\xc3\xa9 [x] $HOME",
    ];
    let mut ops = Vec::new();
    for (number, name) in names.iter().enumerate() {
        for (backend, id) in BACKENDS {
            let folder = stage.home.join(id).join(OsStr::from_bytes(name));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("file"), "real").unwrap();
            let mut layer = stage.layer(&format!("{id}-{number}"), &folder, backend);
            fs::write(folder.join(OsStr::from_bytes(name)), "secret").unwrap();
            layer
                .masks
                .push(LayerMask { path: rel(OsStr::from_bytes(name)), kind: MaskKind::File });
            ops.push(Op::Layer(layer));
        }
    }
    stage.build(ops);
    for name in names {
        for (_, id) in BACKENDS {
            let folder = stage.home.join(id).join(OsStr::from_bytes(name));
            assert_eq!(fs::read(folder.join("file")).unwrap(), b"real");
            assert_eq!(fs::read(folder.join(OsStr::from_bytes(name))).unwrap(), b"");
            fs::write(folder.join("file"), "session").unwrap();
            assert_eq!(fs::read(folder.join("file")).unwrap(), b"session");
        }
    }
}

#[test]
fn the_project_may_be_the_home() {
    let Some(stage) = enter("layers::the_project_may_be_the_home") else { return };
    let layer = stage.layer("project", &stage.home, Backend::Kernel);
    stage.build([Op::Layer(layer)]);
    fs::write(stage.home.join("x"), "session").unwrap();
    assert_eq!(fs::read(stage.home.join("x")).unwrap(), b"session");
}

#[test]
fn a_project_below_tmp_gets_its_mount_point_in_the_private_tree() {
    let Some(stage) = enter("layers::a_project_below_tmp_gets_its_mount_point_in_the_private_tree")
    else {
        return;
    };
    let name =
        format!("landbox-mount-{}", stage.home.parent().unwrap().file_name().unwrap().display());
    let project = Path::new("/tmp").join(name).join("deep/project");
    fs::create_dir_all(&project).unwrap();
    fs::write(project.join("file"), "real").unwrap();
    let layer = stage.layer("project", &project, Backend::Kernel);
    let mut host = Host::arrive();
    stage.build([Op::Layer(layer)]);
    assert_eq!(fs::read(project.join("file")).unwrap(), b"real");
    fs::write(project.join("file"), "session").unwrap();
    assert_eq!(fs::read_dir("/tmp").unwrap().count(), 1);
    assert_eq!(host.run(&format!("cat '{}'", project.join("file").display())), "real");
    let top = project.parent().unwrap().parent().unwrap();
    host.run(&format!("rm -r '{}'", top.display()));
}

#[test]
fn the_kernel_back_end_names_a_folder_that_contains_other_mounts() {
    let Some(stage) = enter_around_a_mount(
        "layers::the_kernel_back_end_names_a_folder_that_contains_other_mounts",
    ) else {
        return;
    };
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    let failure = stage.try_build([stage.basics(), vec![Op::Layer(layer)]].concat()).unwrap_err();
    assert_eq!((failure.stage, failure.errno), (Step::Layer, libc::EINVAL));
    assert_eq!(failure.path, abs(&stage.project).as_bytes());
    assert!(failure.detail.contains("other file systems are mounted below"), "{failure}");
}

#[test]
fn fuse_takes_a_folder_that_contains_other_mounts() {
    let Some(stage) =
        enter_around_a_mount("layers::fuse_takes_a_folder_that_contains_other_mounts")
    else {
        return;
    };
    let file = stage.project.join("inner/file");
    fs::write(&file, "real").unwrap();
    let layer = stage.layer("project", &stage.project, Backend::Fuse);
    let mut host = Host::arrive();
    stage.build([Op::Layer(layer)]);
    assert_eq!(fs::read(&file).unwrap(), b"real");
    fs::write(&file, "session").unwrap();
    assert_eq!(host.run(&format!("cat '{}'", file.display())), "real");
}

#[test]
fn a_layer_that_cannot_be_mounted_is_named() {
    let Some(stage) = enter("layers::a_layer_that_cannot_be_mounted_is_named") else { return };
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    fs::remove_dir(stage.session.join("layers/project/work.1")).unwrap();
    let failure = stage.try_build([stage.basics(), vec![Op::Layer(layer)]].concat()).unwrap_err();
    assert_eq!((failure.stage, failure.errno), (Step::Layer, libc::ENOENT));
    assert!(failure.path.ends_with(b"layers/project/work.1"));

    let on_overlay = stage.layer("home", Path::new("/proc"), Backend::Kernel);
    let failure =
        stage.try_build([stage.basics(), vec![Op::Layer(on_overlay)]].concat()).unwrap_err();
    assert_eq!((failure.stage, failure.path.as_slice()), (Step::Layer, &b"/proc"[..]));
    assert_ne!(failure.errno, 0);
}

#[test]
fn binds_below_a_layer_leave_nothing_in_the_upper() {
    let Some(stage) = enter("layers::binds_below_a_layer_leave_nothing_in_the_upper") else {
        return;
    };
    for name in ["auth", "docs"] {
        fs::create_dir_all(stage.home.join(".config").join(name)).unwrap();
    }
    let layer = stage.layer("home", &stage.home, Backend::Kernel);
    let auth = stage.home.join(".config/auth");
    let docs = stage.home.join(".config/docs");
    let mut host = Host::arrive();
    stage.build([
        Op::Layer(layer),
        super::stage::bind(&auth, Access::ReadWrite),
        super::stage::bind(&docs, Access::ReadOnly),
    ]);
    fs::write(auth.join("token"), "new").unwrap();
    assert_eq!(errno(fs::write(docs.join("x"), "x")), libc::EROFS);
    assert_eq!(host.run(&format!("cat '{}'", auth.join("token").display())), "new");
    assert_eq!(host.run(&format!("ls -A '{}'", stage.upper("home").display())), "");
}

#[test]
fn a_fuse_layer_is_gone_with_its_process() {
    let Some(stage) = enter("layers::a_fuse_layer_is_gone_with_its_process") else { return };
    fs::write(stage.project.join("file"), "real").unwrap();
    let layer = stage.layer("project", &stage.project, Backend::Fuse);
    stage.build([Op::Layer(layer)]);
    assert_eq!(fs::read(stage.project.join("file")).unwrap(), b"real");
    for process in stage.fuse_processes.borrow_mut().iter_mut() {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(errno(fs::read(stage.project.join("file"))), libc::ENOTCONN);
}

#[test]
fn device_nodes_and_sockets_of_the_host_do_not_work_through_a_layer() {
    let Some(stage) =
        enter("layers::device_nodes_and_sockets_of_the_host_do_not_work_through_a_layer")
    else {
        return;
    };
    let path = stage.project.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    stage.build([Op::Layer(layer)]);
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    assert_eq!(errno(std::os::unix::net::UnixStream::connect(&path)), libc::ECONNREFUSED);
}

#[test]
fn there_is_one_mount_a_layer() {
    let Some(stage) = enter("layers::there_is_one_mount_a_layer") else { return };
    let layer = stage.layer("project", &stage.project, Backend::Kernel);
    stage.build([Op::Layer(layer)]);
    let overlays = mount_table().iter().filter(|line| line.kind == "overlay").count();
    assert_eq!(overlays, 1);
}
