//! Putting programs on the calling thread: the one file of this crate with `unsafe`.
#![allow(unsafe_code)]

use crate::{Error, Program};
use std::io;

/// Installs every program on the calling thread, in order; what it forks and executes inherits them. The thread must
/// have set `no_new_privs` before. After an error some may be on: the caller ends.
pub fn install(programs: &[Program]) -> Result<(), Error> {
    // SAFETY: PR_GET_NO_NEW_PRIVS takes no pointer and changes nothing; the other arguments must be 0 and are.
    // JUSTIFICATION: the standard library has no prctl.
    let no_new_privs = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
    if no_new_privs != 1 {
        return Err(Error::NoNewPrivs);
    }
    programs.iter().try_for_each(one)
}

fn one(program: &Program) -> Result<(), Error> {
    let length = u16::try_from(program.len()).map_err(|_| Error::Size(program.len()))?;
    if length == 0 {
        return Err(Error::Size(0));
    }
    // The kernel only reads the program; the type of the field is the C interface's.
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` and the array it points to live until the call has returned, its length is that of the array,
    // and the kernel copies both.
    // JUSTIFICATION: no safe interface takes a program that seccompiler did not make.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(Error::Install(io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arch, base};

    /// Filters and no_new_privs belong to a thread: each test takes one of its own and lets it end.
    fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|s| s.spawn(work).join().unwrap())
    }

    fn no_new_privs() {
        // SAFETY: no pointers; the effect is confined to the calling thread.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    }

    fn errno(result: i64) -> i32 {
        if result == -1 { io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
    }

    #[test]
    fn without_no_new_privs_nothing_is_installed() {
        let result = on_a_thread(|| install(&base(Arch::host().unwrap()).unwrap()));
        assert!(matches!(result, Err(Error::NoNewPrivs)), "{result:?}");
    }

    #[test]
    fn an_empty_program_is_refused() {
        let result = on_a_thread(|| {
            no_new_privs();
            install(&[Program::new()])
        });
        assert!(matches!(result, Err(Error::Size(0))), "{result:?}");
    }

    #[test]
    fn the_kernel_takes_the_programs_and_obeys() {
        on_a_thread(|| {
            no_new_privs();
            install(&base(Arch::host().unwrap()).unwrap()).unwrap();
            let upper = 0xdead_beef_0000_0000u64;
            // SAFETY: the filter answers before the kernel looks at the arguments; none would be a valid pointer.
            let sti = unsafe { libc::syscall(libc::SYS_ioctl, -1, upper | libc::TIOCSTI, 0) };
            assert_eq!(errno(sti), libc::EPERM);
            // SAFETY: as above.
            let keyctl = unsafe { libc::syscall(libc::SYS_keyctl, 0, -3, 0) };
            assert_eq!(errno(keyctl), libc::EPERM);
            // SAFETY: an ioctl on a closed descriptor; refused by the kernel itself, which shows that it passed.
            let other = unsafe { libc::syscall(libc::SYS_ioctl, -1, libc::TIOCGWINSZ, 0) };
            assert_eq!(errno(other), libc::EBADF);
        });
    }
}
