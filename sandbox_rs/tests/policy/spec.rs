//! What the tables mean, written a second time in the plainest way, for the tests to compare with.

use std::collections::BTreeMap;

use _sandbox_rs::policy::{Arch, Condition, Entry, Table, Value, table};

pub const EPERM: u32 = 1;
pub const ENOSYS: u32 = 38;
pub type Arguments = [u64; 6];
/// Arguments that no call can use: bad pointers, bad descriptors, unknown flags.
pub const NONSENSE: Arguments = [u64::MAX; 6];

pub struct Spec {
    pub table: Table,
    pub tiers: Vec<String>,
    by_number: BTreeMap<u32, Vec<Entry>>,
}

impl Spec {
    /// A worker with these tiers besides `compute`; "fork" among them for a forkable one.
    pub fn new(arch: Arch, more: &[&str]) -> Self {
        let table = table(arch).expect("the table parses");
        let tiers = ["compute"].iter().chain(more).map(|&t| t.to_owned());
        let mut by_number: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        for entry in table.allow.iter().chain(&table.deny) {
            by_number.entry(entry.nr).or_default().push(entry.clone());
        }
        Self {
            tiers: tiers.collect(),
            by_number,
            table,
        }
    }

    /// Error number a worker gets from the filters; `None` when the call passes.
    pub fn refusal(&self, nr: u32, args: &Arguments) -> Option<u32> {
        let Some(entries) = self.by_number.get(&nr) else {
            return Some(ENOSYS);
        };
        let mut held = entries.iter().filter(|e| self.tiers.contains(&e.tier));
        if held.any(|e| e.args.iter().all(|c| self.holds(c, args))) {
            return None;
        }
        match entries.iter().find_map(|e| e.errno.as_deref()) {
            Some("ENOSYS") => Some(ENOSYS),
            _ => Some(EPERM),
        }
    }

    fn holds(&self, condition: &Condition, args: &Arguments) -> bool {
        let whole = args[condition.index as usize];
        let word = whole as u32;
        if condition.null {
            return whole == 0;
        }
        if !condition.is.is_empty() {
            let word = word & !self.bits(&condition.ignoring);
            return condition.is.iter().any(|value| self.number(value) == word);
        }
        let set = self.bits(&condition.all_of);
        let is_within =
            condition.only.is_empty() || word & !(self.bits(&condition.only) | set) == 0;
        word & set == set && word & self.bits(&condition.none_of) == 0 && is_within
    }

    fn bits(&self, values: &[Value]) -> u32 {
        values.iter().fold(0, |bits, v| bits | self.number(v))
    }

    fn number(&self, value: &Value) -> u32 {
        match value {
            Value::Number(number) => *number,
            Value::Name(name) => self.table.constants[name],
        }
    }

    /// Arguments that meet the conditions of an entry and are nonsense otherwise.
    pub fn meeting(&self, entry: &Entry) -> Arguments {
        let mut args = NONSENSE;
        for condition in &entry.args {
            let set = self.bits(&condition.all_of);
            let word = condition.is.first().map_or(set, |v| self.number(v));
            args[condition.index as usize] = u64::from(word);
        }
        args
    }

    /// The same, once for each value of an `is` list.
    pub fn each_meeting(&self, entry: &Entry) -> Vec<Arguments> {
        let base = self.meeting(entry);
        let mut all = vec![base];
        for condition in &entry.args {
            for value in &condition.is {
                let mut args = base;
                args[condition.index as usize] = u64::from(self.number(value));
                all.push(args);
            }
        }
        all
    }

    /// Those arguments with one argument changed: every bit flipped alone, and the extremes.
    pub fn near(&self, entry: &Entry) -> Vec<Arguments> {
        let mut all = self.each_meeting(entry);
        for base in all.clone() {
            for condition in &entry.args {
                let index = condition.index as usize;
                let flips = (0..64).map(|bit| base[index] ^ 1 << bit);
                for changed in flips.chain([0, u64::MAX, u64::from(u32::MAX)]) {
                    let mut args = base;
                    args[index] = changed;
                    all.push(args);
                }
            }
        }
        all
    }
}
