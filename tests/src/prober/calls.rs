//! What the system-call filters refuse, and what they must not.

use crate::Log;
use crate::sys::{Arg, c, call, in_child, n};

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
