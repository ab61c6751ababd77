//! The compiled programs, run by an interpreter over every number and the arguments that matter.

use _sandbox_rs::policy::{Arch, Filters, filters_on};

use super::spec::{Arguments, ENOSYS, NONSENSE, Spec};

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL: u32 = 0x8000_0000;

const COMBINATIONS: [&[&str]; 8] = [
    &[],
    &["files"],
    &["asyncio"],
    &["threads"],
    &["files", "asyncio"],
    &["files", "threads"],
    &["asyncio", "threads"],
    &["files", "asyncio", "threads"],
];

fn audit(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 0xc000_003e,
        Arch::Aarch64 => 0xc000_00b7,
    }
}

/// Run a program of the kernel's filter language on one call.
fn run(program: &[seccompiler::sock_filter], arch: u32, nr: u32, args: &Arguments) -> u32 {
    let word = |offset: u32| match offset {
        0 => nr,
        4 => arch,
        16.. => (args[(offset as usize - 16) / 8] >> (8 * (offset % 8))) as u32,
        _ => panic!("reads the instruction pointer"),
    };
    let (mut at, mut value) = (0, 0u32);
    loop {
        let step = &program[at];
        at += 1;
        let is_met = match step.code {
            0x20 => {
                value = word(step.k);
                continue;
            }
            0x54 => {
                value &= step.k;
                continue;
            }
            0x05 => {
                at += step.k as usize;
                continue;
            }
            0x06 => return step.k,
            0x15 => value == step.k,
            0x35 => value >= step.k,
            0x45 => value & step.k != 0,
            other => panic!("unknown instruction {other:#x}"),
        };
        at += usize::from(if is_met { step.jt } else { step.jf });
    }
}

/// What the kernel does with the answers of two filters: the stricter one, else the newer one.
fn stacked(older: u32, newer: u32) -> u32 {
    let rank = |answer: u32| match answer {
        KILL => 2,
        ALLOW => 0,
        _ => 1,
    };
    if rank(older) > rank(newer) {
        older
    } else {
        newer
    }
}

fn build(arch: Arch, tiers: &[&str]) -> Filters {
    let tiers: Vec<_> = tiers.iter().map(|&t| t.to_owned()).collect();
    filters_on(arch, &tiers).expect("the filters compile")
}

#[test]
fn every_number_and_argument_gets_the_answer_of_the_table() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        for tiers in COMBINATIONS {
            let filters = build(arch, tiers);
            for fork in [false, true] {
                let more = [tiers, if fork { &["fork"][..] } else { &[] }].concat();
                let spec = Spec::new(arch, &more);
                let seal = if fork {
                    &filters.seal_fork
                } else {
                    &filters.seal
                };
                let mut num_cases = 0;
                let mut check = |nr: u32, args: &Arguments| {
                    let answer = stacked(
                        run(&filters.allow, audit(arch), nr, args),
                        run(seal, audit(arch), nr, args),
                    );
                    let expected = spec.refusal(nr, args).map_or(ALLOW, |e| ERRNO | e);
                    assert_eq!(answer, expected, "{arch:?} {more:?} {nr} {args:x?}");
                    num_cases += 1;
                };
                for nr in (0..2048).chain([u32::MAX >> 1 & !(1 << 30), 1 << 31]) {
                    check(nr, &NONSENSE);
                    check(nr, &[0; 6]);
                }
                for entry in &spec.table.allow {
                    for args in spec.near(entry) {
                        check(entry.nr, &args);
                    }
                }
                assert!(num_cases > 8000, "{num_cases}");
            }
        }
    }
}

#[test]
fn the_template_keeps_what_it_needs_until_the_seal() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        for tiers in COMBINATIONS {
            let filters = build(arch, tiers);
            let template = [tiers, &["fork", "template"]].concat();
            let spec = Spec::new(arch, &template);
            for entry in &spec.table.allow {
                if entry.tier == "template_files" {
                    let answer = run(&filters.allow, audit(arch), entry.nr, &NONSENSE);
                    assert_eq!(answer == ALLOW, tiers.contains(&"files"), "{}", entry.name);
                    continue;
                }
                for args in spec.near(entry) {
                    let answer = run(&filters.allow, audit(arch), entry.nr, &args);
                    let expected = spec.refusal(entry.nr, &args).map_or(ALLOW, |e| ERRNO | e);
                    assert_eq!(
                        answer, expected,
                        "{arch:?} {tiers:?} {} {args:x?}",
                        entry.name
                    );
                }
            }
        }
    }
}

#[test]
fn a_foreign_convention_ends_the_process() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let filters = build(arch, COMBINATIONS[7]);
        for other in [
            0x4000_0003,
            0x4000_0028,
            0xc000_003e,
            0xc000_00b7,
            0,
            u32::MAX,
        ] {
            if other == audit(arch) {
                continue;
            }
            for nr in 0..512 {
                assert_eq!(
                    run(&filters.allow, other, nr, &[0; 6]),
                    KILL,
                    "{other:x} {nr}"
                );
            }
        }
        for nr in (0..1024).chain([0x3fff_ffff, 0xbfff_ffff]) {
            let marked = nr | 1 << 30; // x32; Arm has no such convention and does not know the call
            let expected = if arch == Arch::X86_64 {
                KILL
            } else {
                ERRNO | ENOSYS
            };
            assert_eq!(run(&filters.allow, audit(arch), marked, &[0; 6]), expected);
        }
    }
}

#[test]
fn the_seal_is_short() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let lengths = COMBINATIONS.map(|tiers| {
            let filters = build(arch, tiers);
            [&filters.allow, &filters.seal, &filters.seal_fork].map(Vec::len)
        });
        for (tiers, [allow, seal, seal_fork]) in COMBINATIONS.iter().zip(lengths) {
            eprintln!("{arch:?} {tiers:?}: allow {allow}, seal {seal}, seal_fork {seal_fork}");
            // Installing it takes time per instruction, once per worker.
            assert!(
                seal <= 100 && seal_fork <= 100,
                "{tiers:?}: {seal}, {seal_fork}"
            );
            assert!(allow < 1000, "{tiers:?}: {allow}");
        }
    }
}
