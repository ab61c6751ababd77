//! The tables as data.

use std::collections::BTreeMap;

use _sandbox_rs::policy::{Arch, Table, table};

use super::numbers::AARCH64;

const TIERS: [&str; 7] = [
    "compute",
    "files",
    "asyncio",
    "threads",
    "fork",
    "template",
    "template_files",
];

fn read(arch: Arch) -> Table {
    table(arch).expect("the table parses")
}

fn numbers_of(table: &Table) -> BTreeMap<&str, u32> {
    let mut numbers = BTreeMap::new();
    for entry in table.allow.iter().chain(&table.deny) {
        let old = numbers.insert(&entry.name[..], entry.nr);
        assert!(
            old.is_none_or(|nr| nr == entry.nr),
            "{}: two numbers",
            entry.name
        );
    }
    let names: BTreeMap<_, _> = numbers.iter().map(|(name, nr)| (nr, name)).collect();
    assert_eq!(names.len(), numbers.len(), "two names have one number");
    numbers
}

#[test]
fn every_entry_has_a_reason_and_a_known_tier() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let table = read(arch);
        for entry in &table.allow {
            assert!(entry.reason.len() > 5, "{} lacks a reason", entry.name);
            assert!(
                TIERS.contains(&&entry.tier[..]),
                "{}: {}",
                entry.name,
                entry.tier
            );
            assert!(
                entry.errno.is_none(),
                "{}: errno belongs under deny",
                entry.name
            );
        }
        for entry in &table.deny {
            assert!(entry.reason.len() > 4, "{} lacks a reason", entry.name);
            assert!(
                entry.tier.is_empty() && entry.args.is_empty(),
                "{}",
                entry.name
            );
            let is_once = table.deny.iter().filter(|e| e.nr == entry.nr).count() == 1;
            assert!(is_once, "{} is listed twice", entry.name);
            let is_allowed = table.allow.iter().any(|e| e.nr == entry.nr);
            assert!(
                entry.errno.is_some() || !is_allowed,
                "{} is in both lists",
                entry.name
            );
        }
    }
}

#[test]
fn no_tier_of_workers_has_a_dangerous_call() {
    let dangerous = [
        "execve",
        "execveat",
        "ptrace",
        "bpf",
        "io_uring_setup",
        "keyctl",
        "mount",
        "unshare",
        "setns",
        "process_vm_writev",
        "userfaultfd",
        "perf_event_open",
        "socket",
        "kill",
        "tkill",
        "pidfd_open",
        "memfd_create",
        "pkey_mprotect",
        "symlinkat",
        "linkat",
        "mknodat",
        "fchmodat",
        "setxattr",
        "sendmsg",
        "clone3",
        "personality",
        "open_by_handle_at",
    ];
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let table = read(arch);
        for name in dangerous {
            let entries = table.about(name);
            assert!(!entries.is_empty(), "{name} is not in the table");
            let is_kept = entries.iter().any(|e| TIERS[..5].contains(&&e.tier[..]));
            assert!(!is_kept, "{name} stays open in a worker");
        }
    }
}

#[test]
fn both_architectures_say_the_same() {
    let (x86, arm) = (read(Arch::X86_64), read(Arch::Aarch64));
    let rows = |entries: &[_sandbox_rs::policy::Entry]| -> Vec<String> {
        let on_arm = |name: &str| AARCH64.iter().any(|(known, _)| *known == name);
        let kept = entries.iter().filter(|e| on_arm(&e.name));
        kept.map(|e| {
            format!(
                "{} {} {} {:?} {:?}",
                e.name, e.tier, e.reason, e.args, e.errno
            )
        })
        .collect()
    };
    assert_eq!(rows(&x86.allow), rows(&arm.allow));
    assert_eq!(rows(&x86.deny), rows(&arm.deny));
    let names: Vec<_> = x86.constants.keys().collect();
    assert_eq!(names, arm.constants.keys().collect::<Vec<_>>());
}

#[test]
fn numbers_of_aarch64_are_those_of_the_generic_table() {
    let table = read(Arch::Aarch64);
    let typed: BTreeMap<_, _> = AARCH64.iter().copied().collect();
    assert_eq!(typed.len(), AARCH64.len());
    assert_eq!(numbers_of(&table), typed);
    let constants = &table.constants;
    // The open flags that differ from x86-64 (arch/arm64/include/uapi/asm/fcntl.h).
    assert_eq!(constants["O_DIRECTORY"], 0o40_000);
    assert_eq!(constants["O_NOFOLLOW"], 0o100_000);
    assert_eq!(constants["O_DIRECT"], 0o200_000);
    assert_eq!(constants["O_LARGEFILE"], 0o400_000);
    let mut others = read(Arch::X86_64).constants;
    for name in ["O_DIRECTORY", "O_NOFOLLOW", "O_DIRECT", "O_LARGEFILE"] {
        others.remove(name);
    }
    assert!(others.iter().all(|(name, value)| constants[name] == *value));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn numbers_and_values_of_x86_64_are_those_of_the_c_library() {
    let table = read(Arch::X86_64);
    let known: BTreeMap<_, _> = super::numbers::x86_64().into_iter().collect();
    assert_eq!(numbers_of(&table), known);
    let values: BTreeMap<_, _> = super::numbers::x86_64_values().into_iter().collect();
    let constants: BTreeMap<_, _> = table.constants.iter().map(|(k, v)| (&k[..], *v)).collect();
    assert_eq!(constants, values);
}
