//! Shorter programs that decide the same. Each start pays for every instruction: the kernel translates them, and runs them
//! once for every call number there is, to remember which of these always pass.

use super::op;
use crate::Program;
use libc::{BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_RET, sock_filter};

/// What seccompiler begins with: the architecture is looked at, a foreign one ends the process, the number is loaded.
const HEAD: usize = 4;

/// Takes out what is never reached: seccompiler writes a call without conditions in five instructions, of which two
/// decide. No jump leads over such a call, only within the conditions of one.
pub(super) fn shorten(program: &[sock_filter]) -> Program {
    let mut short = Program::with_capacity(program.len());
    let mut rest = program;
    while let Some((first, others)) = rest.split_first() {
        short.push(*first);
        rest = others;
        if let [over, past, answer, _unreached, after @ ..] = others
            && is(first, BPF_JMP | BPF_JEQ | BPF_K)
            && (first.jt, first.jf) == (0, 1)
            && is_jump(over, 1)
            && is_jump(past, 2)
            && is(answer, BPF_RET | BPF_K)
        {
            short.push(*answer);
            rest = after;
        }
    }
    short
}

/// One program of two: the second decides from call number `middle` on.
pub(super) fn join(middle: u32, low: Program, high: &[sock_filter]) -> Program {
    let body = high.get(HEAD..).unwrap_or_default();
    let mut joined = low;
    // As many instructions as a program can have fit.
    let past = u32::try_from(joined.len().saturating_sub(HEAD)).unwrap_or(u32::MAX);
    let look = [
        sock_filter { code: op(BPF_JMP | BPF_JGE | BPF_K), jt: 0, jf: 1, k: middle },
        sock_filter { code: op(BPF_JMP | BPF_JA), jt: 0, jf: 0, k: past },
    ];
    joined.splice(HEAD..HEAD, look);
    joined.extend_from_slice(body);
    joined
}

fn is(instruction: &sock_filter, code: u32) -> bool {
    instruction.code == op(code)
}

fn is_jump(instruction: &sock_filter, distance: u32) -> bool {
    is(instruction, BPF_JMP | BPF_JA) && instruction.k == distance
}
