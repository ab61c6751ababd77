//! One cgroup for one worker at a time: its limits, its counters, its way back to fresh.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use super::files::{self, Kept};
use super::place::Version;

/// Charge that may linger in an emptied cgroup; more is asked back before it is used again.
const RESIDUE_BYTES: u64 = 1 << 20;

/// What a cell has seen since it was taken. A figure this kernel does not give is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processes the kernel killed for memory.
    pub oom_kills: Option<u64>,
    /// Most memory charged at once, kernel memory included.
    pub peak_bytes: Option<u64>,
    /// Forks and threads refused for the pids limit.
    pub pids_hits: Option<u64>,
}

/// The folders of a cell.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) version: Version,
    pub(super) memory: PathBuf,
    /// In version 1, if that hierarchy is used.
    pub(super) pids: Option<PathBuf>,
}

/// A cgroup with its limits set, for one worker. Made by `Cgroups::take`.
#[derive(Debug)]
pub struct Cell {
    folders: Folders,
    limits: (u64, u32),
    /// `cgroup.procs` of each hierarchy: attaching is one write each.
    procs: Vec<Kept>,
    current: Kept,
    /// Version 2 sets the peak back through this one descriptor alone.
    peak: Kept,
    kills: Kept,
    hits: Option<Kept>,
    /// Kills and refused forks before it was taken: these cannot be set back.
    before: (u64, u64),
}

impl Folders {
    /// Memory, then pids.
    fn all(&self) -> impl Iterator<Item = &Path> {
        let folders = [Some(&self.memory), self.pids.as_ref()];
        folders.into_iter().flatten().map(PathBuf::as_path)
    }

    fn of_pids(&self) -> Option<&Path> {
        match self.version {
            Version::V1 => self.pids.as_deref(),
            Version::V2 => Some(&self.memory),
        }
    }

    /// Write the limits: memory with kernel memory, no swap, processes and threads.
    fn limit(&self, (bytes, pids): (u64, u32)) -> Result<()> {
        files::limit_memory(self.version, &self.memory, bytes)?;
        let Some(folder) = self.of_pids() else {
            return Ok(());
        };
        match files::set(folder, "pids.max", &pids.to_string()) {
            // Version 2 without the pids controller.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn make(&self, limits: (u64, u32)) -> Result<()> {
        for folder in self.all() {
            fs::create_dir(folder).map_err(|e| files::named(folder, &e))?;
        }
        self.limit(limits)
    }

    fn remove(&self) -> Result<()> {
        let mut done = Ok(());
        for folder in self.all() {
            done = done.and(files::remove(folder)); // the second also when the first stays
        }
        done
    }
}

impl Cell {
    /// Make the folders, set the limits, open what is used often.
    pub(super) fn make(folders: Folders, limits: (u64, u32)) -> Result<Self> {
        if let Err(error) = folders.make(limits) {
            let _ = folders.remove();
            return Err(error);
        }
        Ok(Self::open(folders, limits))
    }

    /// A cell whose folders are there, with these limits.
    pub(super) fn open(folders: Folders, limits: (u64, u32)) -> Self {
        let (version, memory) = (folders.version, &folders.memory);
        let procs = folders.all().map(|f| Kept::new(f, "cgroup.procs", true));
        let hits = folders.of_pids();
        Self {
            procs: procs.collect(),
            current: Kept::new(memory, files::current(version), false),
            peak: Kept::new(memory, files::peak(version), true),
            kills: Kept::new(memory, files::kills(version), false),
            hits: hits.map(|folder| Kept::new(folder, "pids.events", false)),
            limits,
            before: (0, 0),
            folders,
        }
    }

    /// The folder of the memory cgroup.
    pub fn path(&self) -> &Path {
        &self.folders.memory
    }

    /// Move a process in, with all its threads.
    pub(super) fn attach(&self, pid: i32) -> Result<()> {
        let text = pid.to_string();
        self.procs.iter().try_for_each(|file| file.write(&text))
    }

    /// What happened since it was taken.
    pub(super) fn usage(&self) -> Usage {
        let hits = self.hits.as_ref().and_then(|file| file.count("max"));
        let kills = self.kills.count("oom_kill");
        Usage {
            oom_kills: kills.map(|now| now.saturating_sub(self.before.0)),
            peak_bytes: self.peak.number().ok(),
            pids_hits: hits.map(|now| now.saturating_sub(self.before.1)),
        }
    }

    /// The last reading: what comes later counts for the next worker.
    pub(super) fn finish(&mut self) -> Usage {
        let usage = self.usage();
        self.before.0 += usage.oom_kills.unwrap_or(0);
        self.before.1 += usage.pids_hits.unwrap_or(0);
        usage
    }

    /// Make it fresh for the next worker.
    ///
    /// # Errors
    /// It cannot be: a process is still in it, a charge does not drain, or this kernel does not
    /// set the peak back. The caller makes another one instead.
    pub(super) fn renew(&mut self, limits: (u64, u32)) -> Result<()> {
        // Opened anew: version 1 goes on showing an open file its first list for a second.
        if !files::text(&self.folders.memory, "cgroup.procs")?.is_empty() {
            return Err(Error::other("a process is still in it"));
        }
        if limits != self.limits {
            self.limits = limits;
            self.folders.limit(limits)?;
        }
        if self.current.number()? > RESIDUE_BYTES {
            files::reclaim(self.folders.version, &self.folders.memory);
            let left = self.current.number()?;
            if left > RESIDUE_BYTES {
                return Err(Error::other(format!("{left} bytes do not drain")));
            }
        }
        if self.folders.version == Version::V2 && !self.peak.is_open() {
            return Err(Error::other("its peak cannot be set back"));
        }
        self.peak.write("0")
    }

    /// Remove the folders; those already gone are no error.
    pub(super) fn remove(&self) -> Result<()> {
        self.folders.remove()
    }
}
