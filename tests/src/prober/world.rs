//! Everything that is not a path: mounts, namespaces, processes, sockets, devices, the kernel's own switches.

use crate::Log;
use crate::files::{into_fifo, open, open_write, reopened, write_every_way};
use crate::sys::{Arg, address, c, call, in_child, n, words};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const AT: i64 = libc::AT_FDCWD as i64;

fn io<T>(result: std::io::Result<T>) -> Result<i64, i32> {
    result.map(|_| 0).map_err(|e| e.raw_os_error().unwrap_or(-1))
}

fn mount(source: &str, target: &Path, kind: &str, flags: u64) -> Result<i64, i32> {
    let (source, target, kind) = (c(source), c(target), c(kind));
    let args = vec![Arg::S(&source), Arg::S(&target), Arg::S(&kind), n(flags.cast_signed()), n(0)];
    call(libc::SYS_mount, args)
}

/// Changing the mounts, as oneself.
pub(crate) fn mounts(log: &mut Log, targets: &[PathBuf]) {
    let points = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = points.lines().filter_map(|l| l.split(' ').nth(4)).map(PathBuf::from);
    for point in points.chain(targets.iter().cloned()) {
        let on = point.to_string_lossy().into_owned();
        let path = c(&point);
        log.add("umount", &on, call(libc::SYS_umount2, vec![Arg::S(&path), n(2)]));
        let remount = libc::MS_REMOUNT | libc::MS_BIND;
        log.add("remount writable", &on, mount("none", &point, "", remount));
        let tree = call(libc::SYS_open_tree, vec![n(AT), Arg::S(&path), n(1)]);
        log.add("clone the mount", &on, tree);
        // struct mount_attr: set, clear (read-only), propagation, user namespace.
        let mut attributes = words(&[0, 1, 0, 0]);
        let args = vec![n(AT), Arg::S(&path), n(0x8000), Arg::M(&mut attributes), n(32)];
        log.add("clear read-only", &on, call(442, args));
        // FSCONFIG_CMD_RECONFIGURE of the file system itself, without its flag for read-only.
        let picked = call(libc::SYS_fspick, vec![n(AT), Arg::S(&path), n(1)]);
        let again = |fd: i64| call(libc::SYS_fsconfig, vec![n(fd), n(7), n(0), n(0), n(0)]);
        log.add("reconfigure the file system", &on, picked.and_then(again));
        let (here, there) = (c(""), c("/tmp"));
        let tree = open(&point, libc::O_PATH);
        log.add(
            "move the mount",
            &on,
            tree.and_then(|tree| {
                let args = vec![n(tree.as_raw_fd()), Arg::S(&here), n(AT), Arg::S(&there), n(4)];
                call(libc::SYS_move_mount, args)
            }),
        );
        log.add("mount over", &on, mount("none", &point, "tmpfs", 0));
        log.add("bind over", &on, mount("/tmp", &point, "", libc::MS_BIND));
        log.add("make shared", &on, mount("none", &point, "", libc::MS_SHARED));
        // In a child: where they work, the paths that follow would mean something else.
        let chroot = in_child(|| call(libc::SYS_chroot, vec![Arg::S(&path)]).err().unwrap_or(0));
        log.add_number("chroot", &on, chroot);
        let pivot = in_child(|| {
            call(libc::SYS_pivot_root, vec![Arg::S(&path), Arg::S(&path)]).err().unwrap_or(0)
        });
        log.add_number("pivot_root", &on, pivot);
    }
    let kind = c("tmpfs");
    log.add("fsopen", "tmpfs", call(libc::SYS_fsopen, vec![Arg::S(&kind), n(0)]));
}

/// New and other people's namespaces; what works is used for another round of mounts and writes.
pub(crate) fn namespaces(log: &mut Log, targets: &[PathBuf], scratch: &Path) {
    let kinds = [
        ("user", libc::CLONE_NEWUSER),
        ("mnt", libc::CLONE_NEWNS),
        ("net", libc::CLONE_NEWNET),
        ("pid", libc::CLONE_NEWPID),
        ("ipc", libc::CLONE_NEWIPC),
        ("uts", libc::CLONE_NEWUTS),
        ("cgroup", libc::CLONE_NEWCGROUP),
    ];
    for (kind, flag) in kinds {
        let code = in_child(|| call(libc::SYS_unshare, vec![n(flag)]).err().unwrap_or(0));
        log.add_number("unshare", kind, code);
        for process in ["1", "2"] {
            let path = format!("/proc/{process}/ns/{kind}");
            let code = in_child(|| {
                open(&path, libc::O_RDONLY)
                    .and_then(|fd| call(libc::SYS_setns, vec![n(fd.as_raw_fd()), n(0)]))
                    .err()
                    .unwrap_or(0)
            });
            log.add_number("setns", &path, code);
        }
    }
    let both = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let nested = scratch.join("nested.json");
    let _ = fs::create_dir_all(scratch);
    // Open before the nested world mounts something over its path.
    let Ok(mut report) = fs::File::create(&nested) else {
        log.add_number("scratch folder", &scratch.to_string_lossy(), -1);
        return;
    };
    let code = in_child(|| {
        let uid = rustix::process::getuid().as_raw();
        if let Err(errno) = call(libc::SYS_unshare, vec![n(both)]) {
            return errno;
        }
        let _ = fs::write("/proc/self/setgroups", "deny");
        let _ = fs::write("/proc/self/uid_map", format!("0 {uid} 1"));
        let mut inner = Log::default();
        for target in targets {
            // A copy of the mount made here is ours to change, unless the kernel locked its flags.
            let copy = scratch.join("copy");
            let _ = fs::create_dir_all(&copy);
            let folder =
                if target.is_dir() { target.as_path() } else { target.parent().unwrap_or(target) };
            let on = target.to_string_lossy().into_owned();
            let bound = mount(&folder.to_string_lossy(), &copy, "", libc::MS_BIND);
            inner.add("bind a copy", &on, bound);
            let flags = libc::MS_BIND | libc::MS_REMOUNT;
            inner.add("remount the copy writable", &on, mount("none", &copy, "", flags));
            inner.add("write in the copy", &on, open_write(copy.join("pwned-copy"), 0o101));
            write_every_way(&mut inner, target, &scratch.join("inner"));
        }
        mounts(&mut inner, targets);
        let text = serde_json::to_vec(&inner.attempts).unwrap_or_default();
        i32::from(std::io::Write::write_all(&mut report, &text).is_err())
    });
    log.add_number("nested user and mount namespace", "", code);
    let text = fs::read(&nested).unwrap_or_default();
    let inner: Vec<landbox_tests::probe::Attempt> =
        serde_json::from_slice(&text).unwrap_or_default();
    for mut attempt in inner {
        attempt.way = format!("nested: {}", attempt.way);
        log.attempts.push(attempt);
    }
}

/// Signals, tracing and memory of every process there is, and of the numbers given.
pub(crate) fn processes(log: &mut Log, others: &[i32], host_pid_namespace: &str) {
    let mine = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if mine.to_string_lossy() == host_pid_namespace {
        // Then number 1 is the machine's own init: say so instead of attacking it.
        log.add("process namespace", "the host's", Ok(0));
        return;
    }
    let here = fs::read_dir("/proc").into_iter().flatten().flatten();
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let parent = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get());
    let mut pids: Vec<i32> =
        here.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect();
    pids.extend(others);
    // Not those between init and this program: they belong to the task, which may do what it likes with them.
    pids.retain(|pid| *pid == 1 || (*pid != me && *pid != parent && others.contains(pid)));
    for pid in pids {
        let on = pid.to_string();
        log.add("signal 0", &on, call(libc::SYS_kill, vec![n(pid), n(0)]));
        for signal in [libc::SIGTERM, libc::SIGSTOP, libc::SIGKILL] {
            log.add(
                &format!("signal {signal}"),
                &on,
                call(libc::SYS_kill, vec![n(pid), n(signal)]),
            );
        }
        log.add("ptrace", &on, call(libc::SYS_ptrace, vec![n(0x4206), n(pid), n(0), n(0)]));
        log.add(
            "pidfd",
            &on,
            call(libc::SYS_pidfd_open, vec![n(pid), n(0)])
                .and_then(|pidfd| call(libc::SYS_pidfd_getfd, vec![n(pidfd), n(0), n(0)])),
        );
        let here = *b"mark";
        let mut local = words(&[address(&here).cast_unsigned(), 4]);
        let mut remote = words(&[0x1000, 4]);
        let args = vec![n(pid), Arg::M(&mut local), n(1), Arg::M(&mut remote), n(1), n(0)];
        log.add("process_vm_readv", &on, call(libc::SYS_process_vm_readv, args));
        let args = vec![n(pid), Arg::M(&mut local), n(1), Arg::M(&mut remote), n(1), n(0)];
        log.add("process_vm_writev", &on, call(libc::SYS_process_vm_writev, args));
        let all = libc::CLONE_NEWNS | libc::CLONE_NEWUSER;
        let code = in_child(|| {
            call(libc::SYS_pidfd_open, vec![n(pid), n(0)])
                .and_then(|pidfd| call(libc::SYS_setns, vec![n(pidfd), n(all)]))
                .err()
                .unwrap_or(0)
        });
        log.add_number("enter by descriptor", &on, code);
        for (way, file, flags) in [
            ("write its memory", "mem", libc::O_RDWR),
            ("read its memory", "mem", libc::O_RDONLY),
            ("read its environment", "environ", libc::O_RDONLY),
            ("reach its program", "exe", libc::O_RDONLY),
            ("reach its root", "root/etc/passwd", libc::O_RDONLY),
            ("reach its folder", "cwd", libc::O_RDONLY),
            ("reach a descriptor", "fd/3", libc::O_RDONLY),
        ] {
            log.add(
                way,
                &on,
                open(format!("/proc/{pid}/{file}"), flags).and_then(|fd| {
                    // Opening `environ` of a stranger works; reading it does not.
                    let mut byte = [0];
                    match file {
                        "environ" => {
                            call(libc::SYS_read, vec![n(fd.as_raw_fd()), Arg::M(&mut byte), n(1)])
                                .and_then(
                                    |read| if read == 0 { Err(libc::ENODATA) } else { Ok(read) },
                                )
                        }
                        _ => Ok(0),
                    }
                }),
            );
        }
        for (file, text) in [("oom_score_adj", "1000"), ("comm", "pwned"), ("uid_map", "0 0 1")] {
            log.add(
                &format!("write its {file}"),
                &on,
                io(fs::write(format!("/proc/{pid}/{file}"), text)),
            );
        }
        log.add("set its limits", &on, {
            let mut limit = words(&[0, 0]);
            call(libc::SYS_prlimit64, vec![n(pid), n(7), Arg::M(&mut limit), n(0)])
        });
    }
    log.add("signal all", "-1", call(libc::SYS_kill, vec![n(-1), n(0)]));
}

/// Sockets of the host, by path and by abstract name, and FIFOs.
pub(crate) fn sockets(log: &mut Log, paths: &[PathBuf], names: &[String], fifos: &[PathBuf]) {
    for path in paths {
        let on = path.to_string_lossy().into_owned();
        log.add("connect", &on, io(UnixStream::connect(path)));
        let datagram = UnixDatagram::unbound().and_then(|s| s.send_to(b"PWNED", path));
        log.add("send a datagram", &on, io(datagram));
    }
    for name in names {
        let connect =
            SocketAddr::from_abstract_name(name).and_then(|a| UnixStream::connect_addr(&a));
        log.add("connect", &format!("@{name}"), io(connect));
    }
    for path in fifos {
        log.add("write into a FIFO", &path.to_string_lossy(), into_fifo(path));
    }
    // Their own kind has to go on working.
    let pair = UnixStream::pair().map(drop);
    log.add("socketpair", "", io(pair));
    let own = Path::new("/tmp/probe.sock");
    let _ = fs::remove_file(own);
    let served =
        std::os::unix::net::UnixListener::bind(own).and_then(|_l| UnixStream::connect(own));
    log.add("own socket below /tmp", "", io(served));
}

/// The kernel's switches and the machine's devices.
pub(crate) fn kernel(log: &mut Log) {
    // Where one of these works, the machine is not hurt: what is written is what was read.
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/fs/binfmt_misc/status",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/user/max_user_namespaces",
        "/proc/irq/default_smp_affinity",
        "/proc/acpi/wakeup",
        "/proc/sysrq-trigger",
        "/proc/mtrr",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
        "/dev/kmsg",
    ] {
        let text = match path {
            "/proc/sysrq-trigger" | "/dev/kmsg" | "/sys/fs/cgroup/cgroup.procs" => "h".to_owned(),
            _ => fs::read_to_string(path).unwrap_or_default(),
        };
        log.add(
            "write",
            path,
            open(path, libc::O_WRONLY).and_then(|fd| {
                let mut text = text.into_bytes();
                let length = i64::try_from(text.len()).unwrap_or(0);
                call(libc::SYS_write, vec![n(fd.as_raw_fd()), Arg::M(&mut text), n(length)])
            }),
        );
    }
    for path in ["/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/proc/kmsg"] {
        log.add("open", path, open(path, libc::O_RDONLY).map(|_| 0));
    }
    // The host's own nodes, shown one by one: with the mode they have, so that where it works nothing is hurt.
    for path in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"] {
        let node = c(path);
        let args = || vec![n(AT), Arg::S(&node)];
        let with = |more: Vec<Arg<'static>>| args().into_iter().chain(more).collect();
        log.add("chmod a device", path, call(libc::SYS_fchmodat, with(vec![n(0o666)])));
        log.add("touch a device", path, call(libc::SYS_utimensat, with(vec![n(0), n(0)])));
        log.add("remove a device", path, call(libc::SYS_unlinkat, with(vec![n(0)])));
    }
    programs(log);
    // A device of the machine, made anew: the first disk, by its own number.
    let disks = fs::read_to_string("/proc/partitions").unwrap_or_default();
    for line in disks.lines().skip(2) {
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(major)), Some(Ok(minor))) = (fields.next(), fields.next()) else { continue };
        let node = c("/tmp/disk");
        let mode = libc::S_IFBLK | 0o666;
        let device = (major << 8 | minor).cast_signed();
        let made = call(libc::SYS_mknodat, vec![n(AT), Arg::S(&node), n(mode), n(device)]);
        log.add(
            "make and open a disk",
            line.trim(),
            made.and_then(|_| open("/tmp/disk", libc::O_RDONLY).map(|_| 0)),
        );
    }
    let name = c("pwned");
    log.add("sethostname", "", call(libc::SYS_sethostname, vec![Arg::S(&name), n(5)]));
    log.add("setdomainname", "", call(libc::SYS_setdomainname, vec![Arg::S(&name), n(5)]));
    log.add("delete_module", "", call(libc::SYS_delete_module, vec![Arg::S(&name), n(0)]));
    log.add("init_module", "", call(libc::SYS_init_module, vec![n(0), n(0), Arg::S(&name)]));
    log.add("kexec_load", "", call(libc::SYS_kexec_load, vec![n(0), n(0), n(0), n(0)]));
    log.add("clear the kernel log", "", call(libc::SYS_syslog, vec![n(5), n(0), n(0)]));
    let mut time = words(&[0, 0]);
    log.add("settimeofday", "", call(libc::SYS_settimeofday, vec![Arg::M(&mut time), n(0)]));
    #[cfg(target_arch = "x86_64")]
    log.add("iopl", "", call(libc::SYS_iopl, vec![n(3)]));
    for (way, id) in [("setuid", libc::SYS_setuid), ("setgid", libc::SYS_setgid)] {
        let root = rustix::process::getuid().is_root();
        // Root to somebody else, somebody to root: neither has the capability.
        log.add(way, if root { "1" } else { "0" }, call(id, vec![n(i64::from(root))]));
    }
    log.add("setgroups", "0", {
        let mut group = 0u32.to_ne_bytes();
        call(libc::SYS_setgroups, vec![n(1), Arg::M(&mut group)])
    });
}

/// The file that a process runs, through its magic link: that of one that has ended is no longer busy. Opened, not changed.
fn programs(log: &mut Log) {
    let parent = rustix::process::getppid().map_or(1, |p| p.as_raw_nonzero().get());
    for (way, process) in
        [("its own", "self"), ("init's", "1"), ("its parent's", &parent.to_string())]
    {
        let path = format!("/proc/{process}/exe");
        log.add("open a program for writing", way, open(path, libc::O_WRONLY).map(|_| 0));
    }
    let mut ended = Command::new("cat");
    ended.stdin(Stdio::piped()).stdout(Stdio::null());
    let program =
        ended.spawn().map_err(|e| e.raw_os_error().unwrap_or(-1)).and_then(|mut child| {
            let program = open(format!("/proc/{}/exe", child.id()), libc::O_PATH);
            drop(child.stdin.take());
            let _ = child.wait();
            program
        });
    let opened = program.and_then(|fd| {
        open(format!("/proc/self/fd/{}", fd.as_raw_fd()), libc::O_WRONLY).map(|_| 0)
    });
    log.add("open a program for writing", "that of one that has ended", opened);
}

/// Places of the real machine that no test may hurt, even where the boundary fails: opened and made, not changed.
pub(crate) fn gently(log: &mut Log, places: &[PathBuf]) {
    for place in places {
        let on = place.to_string_lossy().into_owned();
        if !place.is_dir() {
            log.add("open for writing, gently", &on, open(place, libc::O_WRONLY).map(|_| 0));
            continue;
        }
        let new = place.join(format!("landbox-probe-{}", std::process::id()));
        let made = open(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL).map(|_| 0);
        if made.is_ok() {
            let _ = fs::remove_file(&new);
        }
        log.add("create a file, gently", &on, made);
    }
}

/// Descriptors 0 to 2 opened again, and every descriptor above them used.
pub(crate) fn descriptors(log: &mut Log) {
    for fd in 0..3 {
        log.add("open again for writing", &fd.to_string(), reopened(fd));
    }
    for fd in (3..64).chain([100, 200, 512, 1023, 1024, 2048, 4095]) {
        let mut mark = *b"PWNED\n";
        let result = call(libc::SYS_write, vec![n(fd), Arg::M(&mut mark), n(6)]);
        let open = call(libc::SYS_fcntl, vec![n(fd), n(libc::F_GETFD), n(0)]).is_ok();
        if open {
            log.add("inherited descriptor", &fd.to_string(), result);
        }
    }
}
