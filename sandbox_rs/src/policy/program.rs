//! Verdicts about calls, compiled to the kernel's filter language.
//!
//! A search tree over the numbers leads to short chains of comparisons. A comparison with a plain
//! verdict is one instruction, where seccompiler's compiler takes five: installing a program costs
//! time per instruction, and calls whose arguments are looked at run it each time.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, sock_filter};

use super::{Arch, Test};
use crate::error::{Fault, Result};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Pass,
    /// It answers an error number.
    Refuse(u16),
    /// It runs if all tests of one list pass, else it answers an error number.
    If(Vec<Vec<Test>>, u16),
}

impl Verdict {
    /// The verdict where a call also passes under `tests`; none means always.
    pub fn or(self, tests: Vec<Test>) -> Self {
        match self {
            Self::Pass => Self::Pass,
            _ if tests.is_empty() => Self::Pass,
            Self::Refuse(errno) => Self::If(vec![tests], errno),
            Self::If(mut lists, errno) => {
                if !lists.contains(&tests) {
                    lists.push(tests);
                }
                Self::If(lists, errno)
            }
        }
    }
}

const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Byte offsets in the kernel's description of the call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The bit that marks a number of the x32 convention, which passes a check of the architecture.
const X32: u32 = 1 << 30;
/// Numbers in one chain: few where calls run the program, so that they are found soon; more in a
/// seal, where each part of a tree has returns of its own to install.
const CHAIN: usize = 10;
const SEAL_CHAIN: usize = 40;

/// The program a template installs: what is not in `verdicts` answers ENOSYS, and a call by the
/// conventions of another architecture ends the process.
pub fn allow_list(arch: Arch, verdicts: &BTreeMap<u32, Verdict>) -> Result<BpfProgram> {
    let kill = plain(RETURN, libc::SECCOMP_RET_KILL_PROCESS);
    let mut program = vec![
        plain(LOAD_WORD, ARCHITECTURE),
        jump(JUMP_EQUAL, audit_number(arch), 1, 0)?,
        kill.clone(),
        plain(LOAD_WORD, NUMBER),
    ];
    if arch == Arch::X86_64 {
        program.extend([jump(JUMP_BITS, X32, 0, 1)?, kill]);
    }
    let unknown = Verdict::Refuse(libc::ENOSYS as u16);
    program.extend(tree(&verdicts.iter().collect::<Vec<_>>(), &unknown, CHAIN)?);
    checked(program)
}

/// The program a worker adds: what is not in `verdicts` is left to the filters that already hold.
/// They end a process that calls by another architecture, and the strictest filter decides.
pub fn seal(verdicts: &BTreeMap<u32, Verdict>) -> Result<BpfProgram> {
    let mut program = vec![plain(LOAD_WORD, NUMBER)];
    let verdicts: Vec<_> = verdicts.iter().collect();
    program.extend(tree(&verdicts, &Verdict::Pass, SEAL_CHAIN)?);
    checked(program)
}

fn audit_number(arch: Arch) -> u32 {
    const LITTLE_ENDIAN_64: u32 = 0xc000_0000;
    LITTLE_ENDIAN_64
        | match arch {
            Arch::X86_64 => 62,
            Arch::Aarch64 => 183,
        }
}

fn checked(program: BpfProgram) -> Result<BpfProgram> {
    const MOST: usize = 4096;
    if program.len() > MOST {
        return Err(fault("the table makes more than 4096 instructions"));
    }
    Ok(program)
}

/// Search for the number in the accumulator.
fn tree(verdicts: &[(&u32, &Verdict)], other: &Verdict, longest: usize) -> Result<BpfProgram> {
    if verdicts.len() <= longest {
        return chain(verdicts, other);
    }
    let (left, right) = verdicts.split_at(verdicts.len() / 2);
    let first_right = *right[0].0;
    let (left, right) = (tree(left, other, longest)?, tree(right, other, longest)?);
    let mut program = match u8::try_from(left.len()) {
        Ok(length) => vec![jump(JUMP_AT_LEAST, first_right, length, 0)?],
        Err(_) => vec![
            jump(JUMP_AT_LEAST, first_right, 0, 1)?,
            plain(JUMP, left.len() as u32),
        ],
    };
    program.extend(left);
    program.extend(right);
    Ok(program)
}

/// Compare with each number. Those with tests come first, each followed by its own code; then one
/// instruction per plain verdict, and the returns they share.
fn chain(verdicts: &[(&u32, &Verdict)], other: &Verdict) -> Result<BpfProgram> {
    let mut program = Vec::new();
    let mut simple = Vec::new();
    for (nr, verdict) in verdicts {
        if let Verdict::If(lists, errno) = verdict {
            let code = alternatives(lists, *errno)?;
            program.push(jump(JUMP_EQUAL, **nr, 0, code.len())?);
            program.extend(code);
        } else {
            simple.push((**nr, verdict_code(verdict)));
        }
    }
    let mut returns = vec![verdict_code(other)];
    for (_, code) in &simple {
        if !returns.contains(code) {
            returns.push(*code);
        }
    }
    let num_simple = simple.len();
    for (place, (nr, code)) in simple.into_iter().enumerate() {
        let target = returns.iter().position(|known| *known == code).unwrap_or(0);
        let distance = num_simple - place - 1 + target;
        program.push(jump(JUMP_EQUAL, nr, distance, 0)?);
    }
    program.extend(returns.into_iter().map(|code| plain(RETURN, code)));
    Ok(program)
}

fn verdict_code(verdict: &Verdict) -> u32 {
    match verdict {
        Verdict::Pass => libc::SECCOMP_RET_ALLOW,
        Verdict::Refuse(errno) | Verdict::If(_, errno) => {
            libc::SECCOMP_RET_ERRNO | u32::from(*errno)
        }
    }
}

/// Pass if all tests of one list hold.
fn alternatives(lists: &[Vec<Test>], errno: u16) -> Result<BpfProgram> {
    let mut program = Vec::new();
    for tests in lists {
        let mut code = vec![plain(RETURN, libc::SECCOMP_RET_ALLOW)];
        for test in tests.iter().rev() {
            code = [word_test(test, code.len())?, code].concat();
        }
        program.extend(code);
    }
    program.push(plain(RETURN, libc::SECCOMP_RET_ERRNO | u32::from(errno)));
    Ok(program)
}

/// Fall through if the word passes, else skip the `rest` instructions that follow.
fn word_test(test: &Test, rest: usize) -> Result<BpfProgram> {
    let mut code = vec![plain(LOAD_WORD, test.offset)];
    if test.mask != u32::MAX {
        code.push(plain(AND, test.mask));
    }
    for (place, value) in test.is.iter().enumerate() {
        let left = test.is.len() - place - 1;
        let otherwise = if left == 0 { rest } else { 0 };
        code.push(jump(JUMP_EQUAL, *value, left, otherwise)?);
    }
    Ok(code)
}

fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(
    code: u16,
    k: u32,
    then: impl TryInto<u8>,
    otherwise: impl TryInto<u8>,
) -> Result<sock_filter> {
    let too_far = "conditions of one call are too long: a jump spans at most 255 instructions";
    Ok(sock_filter {
        code,
        jt: then.try_into().map_err(|_| fault(too_far))?,
        jf: otherwise.try_into().map_err(|_| fault(too_far))?,
        k,
    })
}

fn fault(text: &str) -> Fault {
    Fault::broken("policy", text)
}
