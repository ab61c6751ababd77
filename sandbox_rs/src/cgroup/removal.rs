//! Taking our folders away again: a pool's own at its end, those of dead owners at a start.

use std::collections::BTreeSet;
use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files;
use super::hold;
use super::name::PoolName;
use super::place::Place;
use crate::jail::sys::process;

/// Remove the folders of one pool, killing what is still in them; for whoever outlives its broker.
///
/// Returns within `within`, whatever happens. A pool that has none is no error.
///
/// # Errors
/// A folder could not be removed in time, or /proc cannot be read.
pub fn remove_pool(name: &PoolName, within: Duration) -> Result<()> {
    let deadline = Instant::now() + within;
    let mut done = Ok(());
    for folder in pool_folders(name)? {
        done = done.and(clear(&folder, deadline));
    }
    done
}

/// Most folders beside our own that are looked into.
const MOST_NEIGHBOURS: usize = 256;

/// Remove what pools that are over have left, and nothing else; how many folders went.
///
/// Looked for below our own cgroups, below their parents and below their siblings: a pool that was
/// killed may have lived in a session, a service or a job that nobody enters again. A folder that
/// somebody holds whose owner may live, or whose name is not exactly one of ours, stays.
pub fn sweep(within: Duration) -> usize {
    let deadline = Instant::now() + within;
    let bases = bases().unwrap_or_default();
    let around: BTreeSet<_> = bases.iter().flat_map(|base| neighbours(base)).collect();
    let mut removed = 0;
    for folder in around.iter().flat_map(|base| children(base)) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(PoolName::parse) else {
            continue;
        };
        // Kept until the folder is gone. An older program's pool has no lock while it lives.
        let claimed = name.is_locked().then(|| hold::claim(&folder)).flatten();
        if (claimed.is_some() || name.is_orphan()) && clear(&folder, deadline).is_ok() {
            removed += 1;
        }
    }
    removed
}

/// A cgroup, its parent, and the other children of that.
fn neighbours(base: &Path) -> Vec<PathBuf> {
    let mut around = vec![base.to_path_buf()];
    // Above the mounted part is no cgroup.
    let parent = base.parent().filter(|p| p.join("cgroup.procs").exists());
    if let Some(parent) = parent {
        around.push(parent.to_path_buf());
        around.extend(children(parent).into_iter().take(MOST_NEIGHBOURS));
    }
    around
}

/// The folders that a pool of this name would have.
fn pool_folders(name: &PoolName) -> Result<Vec<PathBuf>> {
    let name = name.to_string();
    Ok(bases()?.into_iter().map(|base| base.join(&name)).collect())
}

/// Every folder in which pools' folders may lie.
fn bases() -> Result<Vec<PathBuf>> {
    let places = Place::all()?;
    let folders = places
        .into_iter()
        .flat_map(|place| [Some(place.memory), place.pids]);
    Ok(folders.flatten().collect())
}

/// Folders directly in `folder`.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // Cgroup file systems have no links; `file_type` would not follow one.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Remove a pool's folder with the cells in it, trying again until the deadline.
pub(super) fn clear(folder: &Path, deadline: Instant) -> Result<()> {
    let mut pause = Duration::from_millis(1);
    loop {
        let mut done = Ok(());
        for cell in children(folder) {
            done = done.and(files::remove(&cell));
        }
        done = done.and_then(|()| files::remove(folder));
        if done.is_ok() || Instant::now() >= deadline {
            return done;
        }
        // Something lives there. It is a worker of a pool that has ended, or is ending.
        children(folder).iter().for_each(|cell| end_processes(cell));
        std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kill what is in a cgroup.
fn end_processes(cell: &Path) {
    if files::set(cell, "cgroup.kill", "1").is_ok() {
        return;
    }
    let members = || -> Vec<i32> {
        let text = files::text(cell, "cgroup.procs").unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    for pid in members().into_iter().filter(|&pid| pid > 0) {
        let Ok(pidfd) = process::pidfd_open(pid) else {
            continue;
        };
        // Still in there with the descriptor open: the number has not passed to someone else.
        if members().contains(&pid) {
            process::kill(&pidfd);
        }
    }
}
