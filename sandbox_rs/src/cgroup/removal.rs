//! Taking our folders away again: a pool's own at its end, those of dead owners at a start.

use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files;
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

/// Remove what pools of owners that are gone have left, and nothing else; how many folders went.
///
/// A folder whose owner may live, or whose name is not exactly one of ours, stays.
pub fn sweep(within: Duration) -> usize {
    let deadline = Instant::now() + within;
    let mut removed = 0;
    for base in bases().unwrap_or_default() {
        for folder in children(&base) {
            let name = folder.file_name().and_then(|name| name.to_str());
            let ours = name.and_then(PoolName::parse);
            if ours.is_some_and(|name| name.is_orphan()) && clear(&folder, deadline).is_ok() {
                removed += 1;
            }
        }
    }
    removed
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
