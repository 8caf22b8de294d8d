//! What the system-call filters refuse, and what they must not.

use crate::Log;
use crate::sys::{Arg, c, call, in_child, n, words};

const X32: i64 = 0x4000_0000;

/// Every line of the base profile, and neighbours that have to pass.
pub(crate) fn calls(log: &mut Log) {
    let upper = 0x1234_5678_0000_0000;
    for (name, request) in [("TIOCSTI", libc::TIOCSTI), ("TIOCLINUX", libc::TIOCLINUX)] {
        let request = request.cast_signed();
        let mut byte = *b"X";
        let result = call(libc::SYS_ioctl, vec![n(0), n(request), Arg::M(&mut byte)]);
        log.add("ioctl", name, result);
        let result = call(libc::SYS_ioctl, vec![n(0), n(upper | request), Arg::M(&mut byte)]);
        log.add("ioctl with upper bits", name, result);
    }
    let mut size = [0; 8];
    let result = call(libc::SYS_ioctl, vec![n(-1), n(0x5413), Arg::M(&mut size)]);
    log.add("ioctl", "TIOCGWINSZ on no descriptor", result);
    log.add("keyctl", "session keyring", call(libc::SYS_keyctl, vec![n(0), n(-3), n(1)]));
    let (kind, name) = (c("user"), c("landbox-probe"));
    let mut payload = *b"x";
    let args = vec![Arg::S(&kind), Arg::S(&name), Arg::M(&mut payload), n(1), n(-3)];
    log.add("add_key", "session keyring", call(libc::SYS_add_key, args));
    let args = vec![Arg::S(&kind), Arg::S(&name), n(0), n(0)];
    log.add("request_key", "session keyring", call(libc::SYS_request_key, args));
    for (name, number) in
        [("getpid", libc::SYS_getpid), ("ioctl", libc::SYS_ioctl), ("execve", 520)]
    {
        log.add("x32", name, call(X32 | number, vec![n(-1), n(0x5413), n(0)]));
    }
    // Tracers skip a call by giving it the number -1: refused, but no reason to die.
    log.add("number -1", "", call(-1, vec![]));
    #[cfg(target_arch = "x86_64")]
    {
        let ended = in_child(|| if crate::sys::int80_getpid() > 0 { 0 } else { libc::ENOSYS });
        log.add_number("int 0x80", "getpid", ended);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = in_child;
    // Not of the base profile; the restricted one will refuse it. Bad arguments: EINVAL or EFAULT means it got through.
    log.add("io_uring_setup", "", call(libc::SYS_io_uring_setup, vec![n(0), n(0)]));
}

/// Every line of the restricted profile, and neighbours that have to pass or that the kernel refuses by itself.
pub(crate) fn restricted(log: &mut Log) {
    sockets(log);
    namespaces(log);
    log.add("io_uring_setup", "", call(libc::SYS_io_uring_setup, vec![n(0), n(0)]));
    log.add("io_uring_enter", "", call(libc::SYS_io_uring_enter, vec![n(-1), n(0), n(0), n(0)]));
    log.add("io_uring_register", "", call(libc::SYS_io_uring_register, vec![n(-1), n(0), n(0)]));
    let me = i64::from(std::process::id());
    let own = call(libc::SYS_pidfd_open, vec![n(me), n(0)])
        .and_then(|pidfd| call(libc::SYS_pidfd_getfd, vec![n(pidfd), n(0), n(0)]));
    log.add("pidfd_getfd", "its own", own);
    // BPF_OBJ_GET of a path that is not there: ENOENT means it got through.
    let path = c("/sys/fs/bpf/landbox-probe");
    let mut object = words(&[path.as_ptr() as u64, 0, 0]);
    log.add("bpf", "pinned object", call(libc::SYS_bpf, vec![n(7), Arg::M(&mut object), n(16)]));
    #[cfg(target_arch = "x86_64")]
    {
        log.add("x32", "socket", call(X32 | libc::SYS_socket, vec![n(1), n(1), n(0)]));
        log.add("x32", "unshare", call(X32 | libc::SYS_unshare, vec![n(libc::CLONE_NEWUSER)]));
        let ended = in_child(|| if crate::sys::int80_getpid() > 0 { 0 } else { libc::ENOSYS });
        log.add_number("int 0x80", "getpid", ended);
    }
}

fn sockets(log: &mut Log) {
    let upper = 0x1234_5678_0000_0000;
    let streams = libc::SOCK_STREAM;
    for family in (0..=46).filter(|f| ![libc::AF_INET, libc::AF_INET6].contains(f)) {
        for kind in [streams, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            let result = call(libc::SYS_socket, vec![n(family), n(kind), n(0)]);
            log.add("socket", &format!("family {family}, type {kind}"), result);
        }
        let args = vec![n(upper | i64::from(family)), n(streams), n(0)];
        log.add("socket", &format!("family {family}, upper bits"), call(libc::SYS_socket, args));
    }
    for (name, family) in [("inet", libc::AF_INET), ("inet6", libc::AF_INET6)] {
        for kind in [streams, libc::SOCK_DGRAM] {
            let result = call(libc::SYS_socket, vec![n(family), n(kind), n(0)]);
            log.add("internet socket", &format!("{name} {kind}"), result);
        }
        let args = vec![n(family), n(libc::SOCK_RAW), n(libc::IPPROTO_ICMP)];
        log.add("raw socket", name, call(libc::SYS_socket, args));
        // Without privilege, `SO_BINDTODEVICE` works and `SO_MARK` does not.
        let mark = call(libc::SYS_socket, vec![n(family), n(streams), n(0)]).and_then(|fd| {
            let mut value = 1i32.to_ne_bytes();
            let args = vec![n(fd), n(libc::SOL_SOCKET), n(libc::SO_MARK), Arg::M(&mut value), n(4)];
            call(libc::SYS_setsockopt, args)
        });
        log.add("mark", name, mark);
        // struct ifreq: a name, then flags 0: takes the interface down.
        for link in ["lo", "tap0"] {
            let down =
                call(libc::SYS_socket, vec![n(family), n(libc::SOCK_DGRAM), n(0)]).and_then(|fd| {
                    let mut request = [0; 40];
                    request[..link.len()].copy_from_slice(link.as_bytes());
                    call(libc::SYS_ioctl, vec![n(fd), n(0x8914), Arg::M(&mut request)])
                });
            log.add("take down", &format!("{link} {name}"), down);
        }
    }
    let mut pair = |way, family: i64, kind: i32| {
        let mut made = [0; 8];
        let args = vec![n(family), n(kind), n(0), Arg::M(&mut made)];
        log.add(way, &format!("family {family}, type {kind:#x}"), call(libc::SYS_socketpair, args));
    };
    for flags in [0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
        for kind in [streams, libc::SOCK_SEQPACKET] {
            pair("joined sockets", 1, kind | flags);
        }
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            pair("socketpair", 1, kind | flags);
            pair("socketpair", upper | 1, kind | flags);
        }
    }
    // TIPC joins sockets, too; elsewhere the kernel would say EOPNOTSUPP.
    for family in [i64::from(libc::AF_INET), i64::from(libc::AF_TIPC)] {
        pair("socketpair", family, streams);
    }
    let tun = c("/dev/net/tun");
    let args = vec![n(libc::AT_FDCWD), Arg::S(&tun), n(libc::O_RDWR), n(0)];
    log.add("open", "the tunnel device", call(libc::SYS_openat, args));
}

fn namespaces(log: &mut Log) {
    let kinds = [
        ("user", libc::CLONE_NEWUSER),
        ("net", libc::CLONE_NEWNET),
        ("mnt", libc::CLONE_NEWNS),
        ("pid", libc::CLONE_NEWPID),
        ("ipc", libc::CLONE_NEWIPC),
        ("uts", libc::CLONE_NEWUTS),
        ("cgroup", libc::CLONE_NEWCGROUP),
    ];
    for (kind, flag) in kinds {
        let alone = in_child(|| call(libc::SYS_unshare, vec![n(flag)]).err().unwrap_or(0));
        log.add_number("unshare", kind, alone);
        let both = i64::from(flag | libc::CLONE_NEWUSER);
        for (way, flags) in [("clone", i64::from(flag)), ("clone with a user namespace", both)] {
            log.add(way, kind, crate::sys::clone(flags));
            log.add(way, &format!("{kind}, upper bits"), crate::sys::clone(flags | 1 << 40));
        }
        let path = c(format!("/proc/self/ns/{kind}"));
        let args = vec![n(libc::AT_FDCWD), Arg::S(&path), n(libc::O_RDONLY), n(0)];
        let entered =
            call(libc::SYS_openat, args).and_then(|fd| call(libc::SYS_setns, vec![n(fd), n(0)]));
        log.add("setns", kind, entered);
    }
    log.add("unshare", "time", call(libc::SYS_unshare, vec![n(0x80)]));
    let nothing = call(libc::SYS_unshare, vec![n(0)]);
    log.add("unshare", "nothing", nothing);
    log.add("plain clone", "", crate::sys::clone(0));
    // struct clone_args of a plain fork; a size of 0 would be EINVAL, so ENOSYS is the filter's.
    log.add("clone3", "", call(libc::SYS_clone3, vec![n(0), n(0)]));
}
