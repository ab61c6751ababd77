//! Names of our folders: whose pool it is, and whether that owner is still there.

use std::fmt;
use std::fs;
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;

use crate::jail::sys::process;

/// Last word of the names of pools that hold a lock on their folder.
const LOCKED: &str = "-locked";

/// Name of a pool's folder, `spade-<pid>-<start time>-<PID namespace>-<number>-locked`.
///
/// Without the last word it is a pool of an older program, which holds no lock on its folder. A
/// process id alone is used again; with its start time (clock ticks since boot) it names one
/// process for ever. The PID namespace says in whose counting the id is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolName {
    pid: u32,
    start: u64,
    space: u64,
    number: u32,
    is_locked: bool,
}

impl PoolName {
    /// Name of pool `number` of process `owner`.
    ///
    /// Call it in the PID namespace of the owner, while the owner lives. `number` tells pools of
    /// one owner apart: the process id of the pool's stub, whose end is the pool's.
    ///
    /// # Errors
    /// There is no such process, or /proc does not show it.
    pub fn new(owner: u32, number: u32) -> Result<Self> {
        let (_, start) = state_of(owner)?;
        let space = own_space()?;
        Ok(Self {
            pid: owner,
            start,
            space,
            number,
            is_locked: true,
        })
    }

    /// Whether its pool holds a lock on the folder as long as it lives (`hold`).
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// The name that `text` spells, if it is exactly one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let (numbers, is_locked) = match text.strip_suffix(LOCKED) {
            Some(numbers) => (numbers, true),
            None => (text, false),
        };
        let mut parts = numbers.strip_prefix("spade-")?.split('-');
        let name = Self {
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
            space: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
            is_locked,
        };
        (name.to_string() == text).then_some(name)
    }

    /// Whether the owner or its stub is certainly gone, at once after its end. In doubt (hidden by
    /// the mount options of /proc, counted in another PID namespace, a number that somebody else
    /// has by now) it is not: then the lock of `hold` tells.
    pub fn is_orphan(&self) -> bool {
        if !own_space().is_ok_and(|space| space == self.space) {
            return false;
        }
        // The number is the process id of the pool's stub, which outlives broker and workers.
        let stub = i32::try_from(self.number).map(process::pidfd_open);
        if let Ok(Err(error)) = stub
            && error.raw_os_error() == Some(libc::ESRCH)
        {
            return true;
        }
        match state_of(self.pid) {
            Ok((state, start)) => start != self.start || state == b'Z' || state == b'X',
            Err(_) => {
                let Ok(pid) = i32::try_from(self.pid) else {
                    return false;
                };
                let seen = process::pidfd_open(pid).err();
                seen.is_some_and(|error| error.raw_os_error() == Some(libc::ESRCH))
            }
        }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            start,
            space,
            number,
            is_locked,
        } = self;
        let locked = if *is_locked { LOCKED } else { "" };
        write!(f, "spade-{pid}-{start}-{space}-{number}{locked}")
    }
}

/// Number of the PID namespace that the caller lives in.
fn own_space() -> Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|about| about.ino())
}

/// State letter and start time of a process.
fn state_of(pid: u32) -> Result<(u8, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program stands in brackets and may hold anything, brackets too.
    let mut words = text
        .rsplit_once(") ")
        .map_or("", |(_, rest)| rest)
        .split(' ');
    let state = words.next().and_then(|word| word.bytes().next());
    let start = words.nth(18).and_then(|word| word.parse().ok());
    state
        .zip(start)
        .ok_or_else(|| Error::other(format!("/proc/{pid}/stat: no start time in {text:?}")))
}
