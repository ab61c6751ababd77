//! Memory (and pids) limits by cgroup: one small cgroup per live worker, pooled.
//!
//! Version 2 where its memory controller can be had, else version 1, else an error that says why;
//! then the rlimits of the worker hold alone. Everything lies in one folder per pool below our own
//! cgroup, so that whoever outlives the pool can find and remove it by name.

mod cell;
mod delegation;
mod files;
mod hold;
mod name;
mod place;
mod removal;
#[cfg(test)]
mod tree_tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use cell::{Cell, Usage};
pub use delegation::hand_down;
pub use name::PoolName;
pub use place::{Place, Version, places};
pub use removal::{remove_pool, sweep};

use crate::jail::sys::confine;
use crate::jail::sys::trial::Toucher;
use cell::Folders;

/// Limit and appetite of the throw-away child that proves the limit.
const PROBE_BYTES: (u64, usize) = (4 << 20, 12 << 20);
/// Longest time `close` takes.
const CLOSE: Duration = Duration::from_secs(1);

/// The cgroups of one pool.
#[derive(Debug)]
pub struct Cgroups {
    place: Place,
    /// The pool's folder in each hierarchy: memory, and pids in version 1.
    memory: PathBuf,
    pids: Option<PathBuf>,
    /// Locks on these folders: while we have them no sweep takes them for leavings.
    held: Vec<File>,
    /// Oldest first: charges of kernel memory drain a little after a worker's end.
    free: VecDeque<Cell>,
    made: u32,
}

impl Cgroups {
    /// Make the pool's folder where that works, and prove that the limit bites there: a throw-away
    /// child that touches three times its limit must be killed, and counted.
    ///
    /// About 5 ms. Forks, so meant for a process with one thread and no other children to collect.
    ///
    /// # Errors
    /// No place works; the text says why for each and what to do.
    pub fn open(name: &PoolName) -> Result<Self> {
        Self::open_in(Place::all()?, name)
    }

    /// The same, in the first of the given places that works.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_in(places: Vec<Place>, name: &PoolName) -> Result<Self> {
        // Six descriptors per cell are held where that many are allowed.
        let _ = confine::raise_open_files();
        let mut reasons = Vec::new();
        for place in places {
            let version = place.version;
            let tried = Self::make(place, name).and_then(|mut made| match made.prove() {
                Ok(()) => Ok(made),
                Err(error) => made.close().and(Err(error)),
            });
            match tried {
                Ok(made) => return Ok(made),
                Err(error) => {
                    let label = label(version);
                    reasons.push(format!(
                        "{label}: {error}{}",
                        delegation::remedy(version, &error)
                    ));
                }
            }
        }
        if reasons.is_empty() {
            reasons.push("no cgroup file system with a memory controller is mounted".to_owned());
        }
        Err(Error::new(ErrorKind::Unsupported, reasons.join("; ")))
    }

    /// Make the pool's folders without trying them.
    ///
    /// # Errors
    /// What stood in the way, with the path.
    pub fn make(place: Place, name: &PoolName) -> Result<Self> {
        let name = name.to_string();
        let memory = place.memory.join(&name);
        if place.version == Version::V2 {
            delegation::hand_down(&place.memory)?;
        }
        let mut made = Self {
            pids: None,
            memory,
            held: Vec::new(),
            free: VecDeque::new(),
            made: 0,
            place,
        };
        made.held.push(hold::make(&made.memory)?);
        if made.place.version == Version::V2
            && let Err(error) = delegation::hand_down(&made.memory)
        {
            return made.close().and(Err(error));
        }
        // Worth having, but memory is what this is for.
        if let Some(parent) = &made.place.pids {
            let folder = parent.join(&name);
            if let Ok(held) = hold::make(&folder) {
                made.held.push(held);
                made.pids = Some(folder);
            }
        }
        Ok(made)
    }

    fn prove(&mut self) -> Result<()> {
        let cell = self.take(PROBE_BYTES.0, 1)?;
        let child = Toucher::start(PROBE_BYTES.1)?;
        let touched = self.attach(&cell, child.pid).and_then(|()| child.touch());
        let status = child.end()?;
        let usage = self.ended(cell);
        if touched? || status != -libc::SIGKILL {
            let text = format!("the limit does not bite: {usage:?}, status {status}");
            return Err(Error::other(text));
        }
        if usage.oom_kills == Some(0) {
            return Err(Error::other("a kill for memory was not counted"));
        }
        Ok(())
    }

    /// "v1" or "v2".
    pub fn version(&self) -> &'static str {
        label(self.place.version)
    }

    /// What holds, in words for the report.
    pub fn detail(&self) -> String {
        let pids = match (&self.pids, self.place.version) {
            (None, Version::V1) => "memory",
            _ => "memory and pids",
        };
        format!(
            "{} {pids} below {}",
            self.version(),
            self.place.memory.display()
        )
    }

    /// A cgroup with these limits and counters at zero: a used one made fresh, or a new one.
    ///
    /// # Errors
    /// None can be made; the text names the file.
    pub fn take(&mut self, memory_bytes: u64, pids: u32) -> Result<Cell> {
        let limits = (memory_bytes, pids);
        while let Some(mut cell) = self.free.pop_front() {
            if cell.renew(limits).is_ok() {
                return Ok(cell);
            }
            let _ = cell.remove(); // what stays goes with the pool's folder
        }
        self.made += 1;
        let number = self.made.to_string();
        let folders = Folders {
            version: self.place.version,
            memory: self.memory.join(&number),
            pids: self.pids.as_ref().map(|folder| folder.join(&number)),
        };
        Cell::make(folders, limits)
    }

    /// Move a process into a cell. `pid` counts in the PID namespace of the caller.
    ///
    /// What the process has touched before stays charged where it was.
    ///
    /// # Errors
    /// It has already ended (ESRCH), or may not be moved.
    pub fn attach(&self, cell: &Cell, pid: i32) -> Result<()> {
        cell.attach(pid)
    }

    /// What the worker in a cell has used so far.
    pub fn usage(&self, cell: &Cell) -> Usage {
        cell.usage()
    }

    /// Read the counters of a worker that was collected, and keep its cell for the next.
    pub fn ended(&mut self, mut cell: Cell) -> Usage {
        let usage = cell.finish();
        self.free.push_back(cell);
        usage
    }

    /// Remove everything, killing what is still inside. Returns within about a second.
    ///
    /// # Errors
    /// What could not be removed in that time.
    pub fn close(self) -> Result<()> {
        let deadline = Instant::now() + CLOSE;
        drop(self.free);
        let mut done = Ok(());
        for folder in [Some(&self.memory), self.pids.as_ref()]
            .into_iter()
            .flatten()
        {
            done = done.and(removal::clear(folder, deadline));
        }
        done
    }
}

fn label(version: Version) -> &'static str {
    match version {
        Version::V1 => "v1",
        Version::V2 => "v2",
    }
}
