//! Other texts of `/proc` that both sides read.

use crate::evidence::{CapSets, TaskStatus};

/// Whether a `uid_map` is the host's own, not that of a namespace inside it: `0 0 4294967295` and nothing else.
pub fn is_initial_map(map: &str) -> bool {
    map.split_whitespace().map(|n| n.parse().ok()).eq([0, 0, u32::MAX].map(Some))
}

/// The identity over everything an id map has on its inner side.
pub fn identity_over(map: &str) -> Option<String> {
    map.lines()
        .map(|line| {
            let mut fields = line.split_whitespace();
            let (inside, count) = (fields.next()?, fields.nth(1)?);
            fields.next().is_none().then(|| format!("{inside} {inside} {count}\n"))
        })
        .collect()
}

/// The number of the process behind a pidfd, from its `fdinfo`; none where it has ended or can't be seen.
pub fn number(fdinfo: &str) -> Option<i32> {
    let number = fdinfo.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    number.filter(|number| *number > 0)
}

/// Reads `/proc/sys/kernel/random/boot_id`.
pub fn boot_id(text: &str) -> Option<[u8; 16]> {
    let digits = text.trim_end().replace('-', "");
    let plain = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)).flatten()
}

/// Reads what evidence needs of `/proc/PID/status`; `None` where a field is missing.
pub fn status(text: &str) -> Option<TaskStatus> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let set = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
    Some(TaskStatus {
        caps: CapSets {
            effective: set("CapEff")?,
            permitted: set("CapPrm")?,
            inheritable: set("CapInh")?,
            bounding: set("CapBnd")?,
            ambient: set("CapAmb")?,
        },
        no_new_privs: field("NoNewPrivs")? == "1",
        seccomp_mode: field("Seccomp")?.parse().ok()?,
        // Kernels before 5.10 do not list it.
        seccomp_filters: field("Seccomp_filters").map_or(Some(0), |n| n.parse().ok())?,
    })
}

/// How many processes want a processor, the reader among them, by the text of `/proc/loadavg`.
pub fn runnable(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_a_processor_is_counted_and_nothing_else() {
        assert_eq!(runnable("0.20 0.18 0.12 3/812 31337\n"), Some(3));
        for text in ["", "0.20 0.18 0.12", "1 2 3 x/4 5"] {
            assert_eq!(runnable(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_hosts_own_map_is_initial() {
        assert!(is_initial_map("         0          0 4294967295\n"));
        for other in ["0 1000 1\n", "0 0 65536\n", "0 0 4294967295\n1 1 1\n", "", "0 0 x"] {
            assert!(!is_initial_map(other), "{other:?}");
        }
    }

    #[test]
    fn only_a_living_process_of_ours_has_a_number() {
        assert_eq!(number("pos:\t0\nPid:\t4711\nNSpid:\t4711\t2\n"), Some(4711));
        for none in ["Pid:\t-1\n", "Pid:\t0\n", "NSpid:\t7\n", "Pid:\tx\n", ""] {
            assert_eq!(number(none), None);
        }
    }

    #[test]
    fn a_full_map_is_the_identity_over_the_callers_own() {
        assert_eq!(identity_over("  0  0 4294967295\n").unwrap(), "0 0 4294967295\n");
        assert_eq!(identity_over("0 1000 1\n1 100000 65536\n").unwrap(), "0 0 1\n1 1 65536\n");
        assert_eq!(identity_over("0 1\n"), None);
        assert_eq!(identity_over("0 1 2 3\n"), None);
    }

    #[test]
    fn a_boot_id_is_sixteen_bytes_or_nothing() {
        let id = boot_id("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!((id[1], id[15]), (0x11, 0xff));
        for bad in ["00112233", "zz112233-4455-6677-8899-aabbccddeeff", "", &"+".repeat(32)] {
            assert_eq!(boot_id(bad), None, "{bad:?}");
        }
    }

    const STATUS: &str = "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000001\n\
        CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn the_status_is_read_field_by_field() {
        let status = status(STATUS).unwrap();
        assert_eq!((status.caps.permitted, status.caps.bounding), (1, 0x1ff_ffff_ffff));
        assert!(status.no_new_privs && !status.caps.is_empty());
        assert_eq!((status.seccomp_mode, status.seccomp_filters), (2, 3));
    }

    #[test]
    fn a_missing_field_is_no_status() {
        for gone in ["CapEff", "NoNewPrivs", "Seccomp:"] {
            let text = STATUS.replace(gone, "Other");
            assert_eq!(super::status(&text), None, "{gone}");
        }
    }
}
