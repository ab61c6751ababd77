//! Whether somebody still answers for a pool's folder: its broker holds a lock on it for life.
//!
//! The numbers in a name do not always tell that a pool is over: the stub's may be another's by
//! now, and those of another PID namespace mean nothing here. A lock ends with whoever holds it,
//! however that ends, and every process that sees the folder sees the lock.

use std::fs::{self, File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::files;

/// Longest time in which a new folder is locked: only a sweep may be in the way, for a moment.
const PATIENCE: Duration = Duration::from_millis(500);

/// Make a folder and hold it until the result is dropped, by every process that has it.
///
/// # Errors
/// It is there already, or cannot be made or locked.
pub(super) fn make(folder: &Path) -> Result<File> {
    let until = Instant::now() + PATIENCE;
    loop {
        fs::create_dir(folder).map_err(|e| files::named(folder, &e))?;
        match hold(folder, until) {
            Ok(Some(held)) => return Ok(held),
            Ok(None) => {} // a sweep came between the two and took it for a leaving
            Err(error) => {
                let _ = fs::remove_dir(folder);
                return Err(files::named(folder, &error));
            }
        }
    }
}

/// Lock a folder that was made a moment ago; `None` if it is gone.
fn hold(folder: &Path, until: Instant) -> Result<Option<File>> {
    let held = match File::open(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    loop {
        match held.try_lock_shared() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(Error::other("another process holds a lock on it"));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let still = fs::metadata(folder).is_ok_and(|now| {
        held.metadata()
            .is_ok_and(|then| (now.dev(), now.ino()) == (then.dev(), then.ino()))
    });
    Ok(still.then_some(held))
}

/// Take a folder that nobody holds, so that nobody else removes it meanwhile; `None` if somebody
/// holds it, or it cannot be told.
pub(super) fn claim(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    file.try_lock().is_ok().then_some(file)
}
