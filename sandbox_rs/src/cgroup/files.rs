//! The files of both interfaces: names, limits, numbers.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::place::Version;

/// An error with the path it is about, of the same kind.
pub(super) fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Write `text` to an existing file of a cgroup.
pub(super) fn set(folder: &Path, file: &str, text: &str) -> Result<()> {
    let path = folder.join(file);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| Error::new(e.kind(), format!("{} = {text}: {e}", path.display())))
}

/// The text of a file of a cgroup.
pub(super) fn text(folder: &Path, file: &str) -> Result<String> {
    let path = folder.join(file);
    fs::read_to_string(&path).map_err(|e| named(&path, &e))
}

/// A file of a cgroup that is used often: held open, or opened each time when descriptors are few.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    file: Option<File>,
}

impl Kept {
    /// Hold `file` of a folder open, for writing too if it is `writable`.
    pub(super) fn new(folder: &Path, file: &str, writable: bool) -> Self {
        let path = folder.join(file);
        let file = OpenOptions::new().read(true).write(writable).open(&path);
        let file = file.ok();
        Self { path, file }
    }

    /// Whether it is held open.
    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Its text from the start; up to a kilobyte.
    fn text(&self) -> Result<String> {
        let mut buffer = [0; 1024];
        let opened;
        let file = match &self.file {
            Some(file) => file,
            None => {
                opened = File::open(&self.path).map_err(|e| named(&self.path, &e))?;
                &opened
            }
        };
        let length = file.read_at(&mut buffer, 0)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// The one number in it.
    pub(super) fn number(&self) -> Result<u64> {
        let text = self.text()?;
        let number = text.trim().parse();
        number.map_err(|_| Error::other(format!("{}: {text:?}", self.path.display())))
    }

    /// The number behind `key`; `None` if this kernel has no such line.
    pub(super) fn count(&self, key: &str) -> Option<u64> {
        count_in(&self.text().ok()?, key)
    }

    /// Write a text. The error is the kernel's own.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        let mut opened;
        let mut held;
        let file: &mut dyn Write = match &self.file {
            Some(file) => {
                held = file;
                &mut held
            }
            None => {
                opened = OpenOptions::new().write(true).open(&self.path)?;
                &mut opened
            }
        };
        file.write_all(text.as_bytes())
    }
}

/// The number behind `key` in a file of keys and numbers; `None` if this kernel has no such line.
pub(super) fn count(folder: &Path, file: &str, key: &str) -> Option<u64> {
    count_in(&text(folder, file).ok()?, key)
}

fn count_in(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        if name == key {
            number.parse().ok()
        } else {
            None
        }
    })
}

/// File that counts kills for memory.
pub(super) fn kills(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.oom_control",
        Version::V2 => "memory.events",
    }
}

/// File with the highest charge.
pub(super) fn peak(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.max_usage_in_bytes",
        Version::V2 => "memory.peak",
    }
}

/// File with the present charge.
pub(super) fn current(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.usage_in_bytes",
        Version::V2 => "memory.current",
    }
}

/// Set the memory limit of a cgroup, and leave it no swap.
pub(super) fn limit_memory(version: Version, folder: &Path, bytes: u64) -> Result<()> {
    let text = bytes.to_string();
    let missing_is_fine = |done: Result<()>| match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    match version {
        Version::V2 => {
            set(folder, "memory.max", &text)?;
            missing_is_fine(set(folder, "memory.swap.max", "0"))?;
            missing_is_fine(set(folder, "memory.oom.group", "1"))
        }
        Version::V1 => {
            const BOTH: &str = "memory.memsw.limit_in_bytes";
            // The limit of memory and swap together may never be below that of memory alone.
            if set(folder, "memory.limit_in_bytes", &text).is_err() {
                set(folder, BOTH, &text)?;
                set(folder, "memory.limit_in_bytes", &text)?;
            }
            match set(folder, BOTH, &text) {
                // Swap is not accounted here: keep out of it.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    missing_is_fine(set(folder, "memory.swappiness", "0"))?;
                }
                other => other?,
            }
            // Inherited where someone switched it off: a worker at its limit would sleep for ever.
            if count(folder, "memory.oom_control", "oom_kill_disable") == Some(1) {
                set(folder, "memory.oom_control", "0")?;
            }
            Ok(())
        }
    }
}

/// Ask the kernel to give back what an empty cgroup is still charged for. Best effort.
pub(super) fn reclaim(version: Version, folder: &Path) {
    let _ = match version {
        Version::V1 => set(folder, "memory.force_empty", "0"),
        Version::V2 => set(folder, "memory.reclaim", "1G"),
    };
}

/// Remove a folder; one that is already gone is no error.
pub(super) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(named(folder, &error)),
        _ => Ok(()),
    }
}
