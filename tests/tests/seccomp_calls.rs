//! Every line of the filter's table, tried from inside a session.
#![allow(clippy::unwrap_used)] // the lint knows test functions, not the functions they share

use landbox_seccomp::Arch;
use landbox_seccomp::table::BASE;
use landbox_tests::probe::Attempt;
use landbox_tests::{Place, World, world, worlds};
use std::process::Command;

fn inside(world: World) -> Vec<Attempt> {
    Place::new(world).prober(["calls"]).output().ok().json()
}

fn outside() -> Vec<Attempt> {
    let out = Command::new(world::bin("prober")).arg("calls").output().unwrap();
    serde_json::from_slice(&out.stdout).unwrap()
}

fn answer(attempts: &[Attempt], way: &str, on: &str) -> i32 {
    let found = attempts.iter().find(|a| a.way == way && a.on == on);
    found.unwrap_or_else(|| panic!("{way} {on} was not tried: {attempts:#?}")).errno
}

worlds! {
    [user_kernel, root_kernel]
    fn every_line_of_the_table_is_refused(world) {
        let attempts = inside(world);
        for rule in BASE {
            let tried: Vec<_> = attempts
                .iter()
                .filter(|a| a.way.starts_with(rule.call) && !a.on.starts_with("TIOCGWINSZ"))
                .collect();
            assert!(!tried.is_empty(), "{} was not tried", rule.call);
            assert!(tried.iter().all(|a| a.errno == rule.errno), "{rule:?}: {tried:#?}");
        }
    }

    [user_kernel, root_kernel]
    fn bits_the_kernel_does_not_read_do_not_pass_the_filter(world) {
        let attempts = inside(world);
        for request in ["TIOCSTI", "TIOCLINUX"] {
            assert_eq!(answer(&attempts, "ioctl with upper bits", request), libc::EPERM);
        }
    }

    [user_kernel, root_kernel]
    fn the_32_bit_entry_ends_the_process(world) {
        if Arch::host() == Some(Arch::X86_64) {
            assert_eq!(answer(&inside(world), "int 0x80", "getpid"), -libc::SIGSYS);
        }
    }

    [user_kernel, root_kernel]
    fn x32_calls_do_not_exist(world) {
        let attempts = inside(world);
        for call in ["getpid", "ioctl", "execve"] {
            assert_eq!(answer(&attempts, "x32", call), libc::ENOSYS);
        }
    }

    [user_kernel]
    fn calls_that_are_not_in_the_table_answer_as_they_do_outside(world) {
        let (inside, outside) = (inside(world), outside());
        for (way, on) in
            [("ioctl", "TIOCGWINSZ on no descriptor"), ("number -1", ""), ("io_uring_setup", "")]
        {
            assert_eq!(answer(&inside, way, on), answer(&outside, way, on), "{way}");
        }
    }
}
