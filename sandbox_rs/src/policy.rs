//! The system call table (data in `policies/`) and the filters made of it.
//!
//! Three programs, each compiled before anything is locked. The template installs `allow` once, its
//! workers inherit it; a worker adds `seal` (or `seal_fork`), which must be short, because the
//! kernel takes time per instruction to install it. An inherited filter costs a worker nothing.

mod condition;
mod program;

use std::collections::BTreeMap;

use seccompiler::BpfProgram;
use serde::Deserialize;

use crate::error::{Fault, Result};
pub use condition::{Condition, Test, Value};
pub use program::Verdict;

/// Groups of calls that a profile may add to `compute`, which every worker has.
pub const TIERS: [&str; 4] = ["compute", "files", "asyncio", "threads"];
/// What a forkable worker keeps.
const FORK: &str = "fork";
/// What the template alone needs, and what it needs for workers with files.
const TEMPLATE: [&str; 2] = ["template", "template_files"];

/// An architecture that has a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// x86-64, with numbers of the x32 convention refused.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The one this program is compiled for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The one this program is compiled for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    fn text(self) -> &'static str {
        match self {
            Self::X86_64 => include_str!("../policies/x86_64.toml"),
            Self::Aarch64 => include_str!("../policies/aarch64.toml"),
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("no system call table for this architecture: write policies/<arch>.toml first");

/// One system call of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name, for readers and error texts.
    pub name: String,
    /// Number on this architecture.
    pub nr: u32,
    /// Who may call it; empty under `deny`.
    #[serde(default)]
    pub tier: String,
    /// Who needs the call, or what it would open.
    pub reason: String,
    /// Conditions that must all hold.
    #[serde(default)]
    pub args: Vec<Condition>,
    /// Answer where it is refused, if not EPERM; only under `deny`.
    #[serde(default)]
    pub errno: Option<String>,
}

/// The whole table of an architecture.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Named values of conditions.
    pub constants: BTreeMap<String, u32>,
    /// Calls that pass, by tier.
    pub allow: Vec<Entry>,
    /// Calls that no tier has, or that are refused with another error number than EPERM.
    pub deny: Vec<Entry>,
}

/// The compiled filters, built before anything is locked.
pub struct Filters {
    /// What the template and its workers may call at all. Listed calls are refused with EPERM, all
    /// others with ENOSYS; a foreign architecture ends the process.
    pub allow: BpfProgram,
    /// What a worker loses on top.
    pub seal: BpfProgram,
    /// What a forkable worker loses on top.
    pub seal_fork: BpfProgram,
}

/// Read the table of an architecture.
///
/// # Errors
/// The table does not parse: a fault of the build.
pub fn table(arch: Arch) -> Result<Table> {
    toml::from_str(arch.text()).map_err(|e| Fault::broken("policy", e.to_string()))
}

/// Compile the filters of a profile that adds `tiers` to `compute`, for this machine.
///
/// # Errors
/// A tier is unknown: the fault names the known ones. An entry is malformed: a fault of the build.
pub fn filters(tiers: &[String]) -> Result<Filters> {
    filters_on(Arch::NATIVE, tiers)
}

/// The same for any architecture with a table.
///
/// # Errors
/// As [`filters`].
pub fn filters_on(arch: Arch, tiers: &[String]) -> Result<Filters> {
    if let Some(unknown) = tiers.iter().find(|tier| !TIERS.contains(&tier.as_str())) {
        let known = TIERS.join(", ");
        let text = format!("unknown tier {unknown:?} of a profile: choose among {known}");
        return Err(Fault::broken("policy", text));
    }
    let table = table(arch)?;
    let worker: Vec<&str> = TIERS
        .into_iter()
        .filter(|&tier| tier == TIERS[0] || tiers.iter().any(|chosen| chosen == tier))
        .collect();
    let forkable = [&worker[..], &[FORK]].concat();
    let has_files = worker.contains(&TIERS[1]);
    let wide = [&forkable[..], &TEMPLATE[..1 + usize::from(has_files)]].concat();

    let all = table.verdicts(&wide)?;
    let seal = |kept: &[&str]| -> Result<BpfProgram> {
        let mut lost = table.verdicts(kept)?;
        lost.retain(|nr, verdict| all.get(nr) != Some(verdict));
        program::seal(&lost)
    };
    Ok(Filters {
        allow: program::allow_list(arch, &all)?,
        seal: seal(&worker)?,
        seal_fork: seal(&forkable)?,
    })
}

impl Table {
    /// Everything the table says about a call; empty when it is unknown and answers ENOSYS.
    pub fn about(&self, name: &str) -> Vec<&Entry> {
        let entries = self.allow.iter().chain(&self.deny);
        entries.filter(|entry| entry.name == name).collect()
    }

    /// What becomes of each listed call where the given tiers hold.
    ///
    /// # Errors
    /// An entry is malformed: a fault of the build.
    pub fn verdicts(&self, tiers: &[&str]) -> Result<BTreeMap<u32, Verdict>> {
        let mut verdicts = BTreeMap::new();
        for entry in self.allow.iter().chain(&self.deny) {
            verdicts.insert(entry.nr, Verdict::Refuse(self.refusal(entry)?));
        }
        for entry in &self.allow {
            if !tiers.contains(&entry.tier.as_str()) {
                continue;
            }
            let mut tests = Vec::new();
            for condition in &entry.args {
                let found = condition.tests(&self.constants);
                tests.extend(found.map_err(|text| malformed(entry, &text))?);
            }
            let verdict = verdicts.remove(&entry.nr).unwrap_or(Verdict::Pass);
            verdicts.insert(entry.nr, verdict.or(tests));
        }
        Ok(verdicts)
    }

    fn refusal(&self, entry: &Entry) -> Result<u16> {
        let listed = self.deny.iter().find(|denied| denied.nr == entry.nr);
        match listed.and_then(|denied| denied.errno.as_deref()) {
            None | Some("EPERM") => Ok(libc::EPERM as u16),
            Some("ENOSYS") => Ok(libc::ENOSYS as u16),
            Some(other) => Err(malformed(entry, &format!("unknown errno {other}"))),
        }
    }
}

fn malformed(entry: &Entry, text: &str) -> Fault {
    Fault::broken("policy", format!("{}: {text}", entry.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tier_is_named_with_the_known_ones() {
        let tiers = ["files".to_owned(), "network".to_owned()];
        let Err(fault) = filters(&tiers) else {
            panic!("the tier does not exist")
        };
        let text = fault.to_string();
        assert!(text.contains("\"network\""), "{text}");
        assert!(text.contains("compute, files, asyncio, threads"), "{text}");
    }

    #[test]
    fn the_table_explains_a_call() {
        let table = table(Arch::NATIVE).expect("the table parses");
        let clone: Vec<_> = table.about("clone").iter().map(|e| &e.tier[..]).collect();
        assert_eq!(clone, ["threads", "fork", "template"]);
        assert!(table.about("no_such_call").is_empty());
    }
}
