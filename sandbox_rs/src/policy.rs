//! The system call table (data in `policies/`) and the filters made of it.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::Deserialize;

use crate::error::{Fault, Result};

#[cfg(target_arch = "x86_64")]
const TABLE: &str = include_str!("../policies/x86_64.toml");

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no system call table for this architecture: write policies/<arch>.toml first");

/// One condition on an argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    index: u8,
    op: String,
    #[serde(default)]
    mask: u64,
    value: u64,
    #[serde(default = "word")]
    bits: u8,
}

fn word() -> u8 {
    32
}

/// One system call of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name, for readers and error texts.
    pub name: String,
    /// Number on this architecture.
    pub nr: i64,
    /// "worker" or "template"; only for `allow`.
    #[serde(default)]
    pub tier: String,
    /// Who needs the call, or what it would open.
    pub reason: String,
    /// Conditions that must all hold.
    #[serde(default)]
    pub args: Vec<Argument>,
}

/// The whole table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Calls that pass.
    pub allow: Vec<Entry>,
    /// Calls that answer EPERM.
    pub deny: Vec<Entry>,
    /// Calls taken away from a worker after it was forked.
    pub seal: Vec<Entry>,
}

/// The compiled filters, built before anything is locked.
pub struct Filters {
    /// What the template and its workers may call at all; anything else answers ENOSYS.
    pub allow: BpfProgram,
    /// Known calls that answer EPERM instead.
    pub deny: BpfProgram,
    /// What a worker loses on top.
    pub seal: BpfProgram,
}

/// Read the table of this architecture.
///
/// # Errors
/// The table does not parse: a fault of the build.
pub fn table() -> Result<Table> {
    toml::from_str(TABLE).map_err(|e| Fault::broken("policy", e.to_string()))
}

/// Compile the three filters.
///
/// # Errors
/// An entry is malformed: a fault of the build.
pub fn filters() -> Result<Filters> {
    let table = table()?;
    let enosys = SeccompAction::Errno(libc::ENOSYS as u32);
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    Ok(Filters {
        allow: compile(&table.allow, enosys, SeccompAction::Allow)?,
        deny: compile(&table.deny, SeccompAction::Allow, eperm.clone())?,
        seal: compile(&table.seal, SeccompAction::Allow, eperm)?,
    })
}

fn compile(
    entries: &[Entry],
    mismatch: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram> {
    let fault = |e: seccompiler::BackendError| Fault::broken("policy", e.to_string());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut whole = Vec::new();
    for entry in entries {
        if entry.args.is_empty() {
            whole.push(entry.nr);
        }
        let list = rules.entry(entry.nr).or_default();
        if !entry.args.is_empty() {
            let conditions = entry
                .args
                .iter()
                .map(|argument| condition(&entry.name, argument))
                .collect::<Result<Vec<_>>>()?;
            list.push(SeccompRule::new(conditions).map_err(fault)?);
        }
    }
    for nr in whole {
        rules.insert(nr, Vec::new()); // an entry without conditions outweighs those with some
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(fault)?;
    SeccompFilter::new(rules, mismatch, matched, arch)
        .and_then(BpfProgram::try_from)
        .map_err(fault)
}

fn condition(name: &str, argument: &Argument) -> Result<SeccompCondition> {
    let op = match argument.op.as_str() {
        "eq" => SeccompCmpOp::Eq,
        "ne" => SeccompCmpOp::Ne,
        "masked" => SeccompCmpOp::MaskedEq(argument.mask),
        other => {
            return Err(Fault::broken(
                "policy",
                format!("{name}: unknown op {other}"),
            ));
        }
    };
    let length = if argument.bits == 64 {
        SeccompCmpArgLen::Qword
    } else {
        SeccompCmpArgLen::Dword
    };
    SeccompCondition::new(argument.index, length, op, argument.value)
        .map_err(|e| Fault::broken("policy", format!("{name}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_a_reason_and_every_filter_compiles() {
        let table = table().expect("the table parses");
        for entry in table.allow.iter().chain(&table.deny).chain(&table.seal) {
            assert!(!entry.reason.is_empty(), "{} lacks a reason", entry.name);
        }
        let filters = filters().expect("the filters compile");
        assert!(filters.allow.len() > filters.seal.len());
    }

    #[test]
    fn what_only_the_template_needs_is_sealed_in_the_worker() {
        let table = table().expect("the table parses");
        for entry in table.allow.iter().filter(|e| e.tier == "template") {
            assert!(
                table.seal.iter().any(|s| s.nr == entry.nr),
                "{} stays open in the worker",
                entry.name
            );
        }
    }

    #[test]
    fn no_call_is_both_allowed_to_workers_and_denied() {
        let table = table().expect("the table parses");
        for entry in &table.deny {
            assert!(
                table.allow.iter().all(|a| a.nr != entry.nr),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn numbers_are_those_of_the_c_library() {
        let known = [
            ("read", libc::SYS_read),
            ("openat", libc::SYS_openat),
            ("clone3", libc::SYS_clone3),
            ("close_range", libc::SYS_close_range),
            ("seccomp", libc::SYS_seccomp),
            ("prlimit64", libc::SYS_prlimit64),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("execveat", libc::SYS_execveat),
            ("ptrace", libc::SYS_ptrace),
        ];
        let table = table().expect("the table parses");
        for (name, nr) in known {
            let found = table
                .allow
                .iter()
                .chain(&table.deny)
                .find(|e| e.name == name);
            assert_eq!(found.map(|e| e.nr), Some(nr), "{name}");
        }
    }
}
