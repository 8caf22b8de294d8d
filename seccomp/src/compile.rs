//! From the table to BPF.
#![forbid(unsafe_code)]

mod shorten;

use crate::table::{self, Needed, Rule, When};
use crate::{Arch, Error, Program};
use libc::sock_filter;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// The base profile for `arch`. All of the programs are needed.
pub fn base(arch: Arch) -> Result<Vec<Program>, Error> {
    compile(table::BASE, arch)
}

/// The restricted profile for `arch`: the base profile and what a network policy needs to hold. All of the programs are
/// needed.
pub fn restricted(arch: Arch) -> Result<Vec<Program>, Error> {
    let rules: Vec<Rule> = table::BASE.iter().chain(table::RESTRICTED).copied().collect();
    compile(&rules, arch)
}

/// The monitor's own profile for `arch`.
pub fn monitor(arch: Arch) -> Result<Vec<Program>, Error> {
    only(table::MONITOR, arch)
}

/// The monitor's own profile for `arch` where it reads what a packet filter counted, by the socket `netlink`.
///
/// Its user made the namespace that owns the packet filter, so the kernel would let it change the rules, too. Every change
/// has to come in a batch: the packet begins and ends with a message of its own, and a message takes at least 20 bytes.
/// So on that socket nothing is sent that is as long as three of them, and requests for lists are shorter. (The other
/// parts of the kernel behind such a socket decide nothing about what passes.)
pub fn recorder(arch: Arch, netlink: u32) -> Result<Vec<Program>, Error> {
    let calls = [table::MONITOR, table::RECORDER].concat();
    let sendto = table::RECORDER.iter().filter_map(|call| call.on(arch));
    let sendmsg = table::KEEPERS.iter().filter(|call| call.call == "sendmsg");
    let number = i64::from;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in sendmsg.filter_map(|call| call.on(arch)) {
        rules.insert(number(call), vec![all_of(0, SeccompCmpOp::Eq, &[netlink])?]);
    }
    for call in sendto {
        let other = all_of(0, SeccompCmpOp::Ne, &[netlink])?;
        let long = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ge, BATCH);
        let long = long.and_then(|long| SeccompRule::new(vec![long])).map_err(Error::Compile)?;
        rules.insert(number(call), vec![other, long]);
    }
    // First, because the other one lets no further program be installed.
    let short = program(rules, SeccompAction::Allow, SeccompAction::KillProcess, arch)?;
    Ok([vec![short], only(&calls, arch)?].concat())
}

/// Bytes of the shortest packet that changes a packet filter.
const BATCH: u64 = 3 * 20;

/// Init's own profile for `arch`, for the time when the task runs.
pub fn init(arch: Arch) -> Result<Vec<Program>, Error> {
    only(table::INIT, arch)
}

/// These calls and what every keeper needs pass; any other, and a foreign architecture, ends the process.
fn only(needed: &[Needed], arch: Arch) -> Result<Vec<Program>, Error> {
    let numbers = needed.iter().chain(table::KEEPERS).filter_map(|call| call.on(arch));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        numbers.map(|number| (i64::from(number), Vec::new())).collect();
    let prctl = needed.iter().filter(|call| call.call == "prctl");
    for call in prctl.filter_map(|call| call.on(arch)) {
        let death = libc::PR_SET_PDEATHSIG.unsigned_abs();
        rules.insert(i64::from(call), vec![all_of(0, SeccompCmpOp::Eq, &[death])?]);
    }
    program(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch).map(|one| vec![one])
}

fn compile(rules: &[Rule], arch: Arch) -> Result<Vec<Program>, Error> {
    let mut by_errno: BTreeMap<i32, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        by_errno.entry(rule.errno).or_default().push(rule);
    }
    let mut programs = Vec::new();
    for (errno, rules) in by_errno {
        programs.push(one_answer(&rules, errno, arch)?);
    }
    match arch {
        Arch::X86_64 => programs.first_mut().map_or((), refuse_x32),
        Arch::Aarch64 => {}
    }
    Ok(programs)
}

/// One filter of seccompiler: these rules answer `errno`, a foreign architecture ends the process, all else passes.
fn one_answer(rules: &[&Rule], errno: i32, arch: Arch) -> Result<Program, Error> {
    let mut by_number: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for rule in rules {
        let one = match rule.when {
            When::Always => continue,
            When::Low32 { argument, value } => all_of(argument, SeccompCmpOp::Eq, &[value]),
            When::Low32Not { argument, values } => all_of(argument, SeccompCmpOp::Ne, values),
            When::Masked { argument, mask, value } => {
                all_of(argument, SeccompCmpOp::MaskedEq(u64::from(mask)), &[value])
            }
            When::Bit { argument, bit } => {
                all_of(argument, SeccompCmpOp::MaskedEq(u64::from(bit)), &[bit])
            }
        };
        by_number.entry(i64::from(rule.number.on(arch))).or_default().push(one?);
    }
    // Last, because an empty chain is how seccompiler says "always": it must also win over conditions on the same call.
    for rule in rules.iter().filter(|rule| matches!(rule.when, When::Always)) {
        by_number.insert(i64::from(rule.number.on(arch)), Vec::new());
    }
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    program(by_number, SeccompAction::Allow, refused, arch)
}

/// The low half of an argument compares so with every one of `values`.
fn all_of(argument: u8, compares: SeccompCmpOp, values: &[u32]) -> Result<SeccompRule, Error> {
    let length = SeccompCmpArgLen::Dword;
    let one = |value: &u32| {
        SeccompCondition::new(argument, length.clone(), compares.clone(), u64::from(*value))
    };
    let conditions: Result<_, _> = values.iter().map(one).collect();
    conditions.and_then(SeccompRule::new).map_err(Error::Compile)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
    arch: Arch,
) -> Result<Program, Error> {
    let one = |rules| {
        let program = as_written(rules, otherwise.clone(), matched.clone(), arch)?;
        Ok(shorten::shorten(&program))
    };
    let middle = rules.keys().nth(rules.len() / 2).copied();
    match middle.map(u32::try_from) {
        Some(Ok(middle)) if rules.len() >= LONG => {
            let below = |number: &i64| *number < i64::from(middle);
            let (low, high) = rules.into_iter().partition(|(number, _)| below(number));
            Ok(shorten::join(middle, one(low)?, &one(high)?))
        }
        Some(_) | None => one(rules),
    }
}

/// The program as seccompiler makes it.
fn as_written(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
    arch: Arch,
) -> Result<Program, Error> {
    let target = match arch {
        Arch::X86_64 => TargetArch::x86_64,
        Arch::Aarch64 => TargetArch::aarch64,
    };
    let filter = SeccompFilter::new(rules, otherwise, matched, target);
    let program = filter.and_then(BpfProgram::try_from).map_err(Error::Compile)?;
    let own =
        |i: &seccompiler::sock_filter| sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    Ok(program.iter().map(own).collect())
}

/// From so many calls on, a program looks first which half of them a call is in.
const LONG: usize = 8;

/// Adds the three instructions seccompiler can't say: a call number with the x32 bit answers ENOSYS. They come behind its
/// look at the architecture, which ends a foreign one: the first return. (A program of its own would cost each start as
/// much as all the rules.)
fn refuse_x32(program: &mut Program) {
    use libc::{BPF_ABS, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let statement = |code: u32, k| sock_filter { code: op(code), jt: 0, jf: 0, k };
    let at = program.iter().position(|i| i.code == op(BPF_RET | BPF_K)).map_or(0, |at| at + 1);
    let refuse = [
        // Offset 0 of seccomp_data is the call number.
        statement(BPF_LD | BPF_W | BPF_ABS, 0),
        sock_filter { code: op(BPF_JMP | BPF_JSET | BPF_K), jt: 0, jf: 1, k: table::X32_BIT },
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ];
    program.splice(at..at, refuse);
}

/// libc types the instruction codes wider than the field that carries them.
fn op(code: u32) -> u16 {
    u16::try_from(code).expect("BPF instruction codes are below 256")
}

#[cfg(test)]
mod restricted_tests;
#[cfg(test)]
mod tests;
