//! Where cgroups of ours may go: below our own cgroup in each hierarchy that is mounted.

use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};

/// Version of the memory controller's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Folders in which a pool's folder may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which files to expect there.
    pub version: Version,
    /// Parent of the memory cgroups (and of all, in version 2).
    pub memory: PathBuf,
    /// Parent of the pids cgroups, in version 1 and if that hierarchy is mounted.
    pub pids: Option<PathBuf>,
}

impl Place {
    /// Every place worth trying, best first.
    ///
    /// # Errors
    /// /proc does not show our mounts or cgroups.
    pub fn all() -> Result<Vec<Self>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        Ok(places(&mounts, &own))
    }
}

/// The places that the text of /proc/self/mountinfo and of /proc/self/cgroup speak of.
pub fn places(mounts: &str, own: &str) -> Vec<Place> {
    let mut found = Vec::new();
    if let Some((top, folder)) = folder(mounts, own, None) {
        // Our own cgroup first; then its parent, which a manager that puts its services into a
        // subgroup has handed over too.
        let parent = folder.parent().filter(|parent| parent.starts_with(&top));
        let parent = parent.map(Path::to_path_buf);
        for memory in [Some(folder), parent].into_iter().flatten() {
            found.push(Place {
                version: Version::V2,
                memory,
                pids: None,
            });
        }
    }
    if let Some((_, memory)) = folder(mounts, own, Some("memory")) {
        found.push(Place {
            version: Version::V1,
            memory,
            pids: folder(mounts, own, Some("pids")).map(|(_, folder)| folder),
        });
    }
    found
}

/// Mount point of a hierarchy (of version 1 if a controller is named) and our own folder in it.
fn folder(mounts: &str, own: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let hit = match controller {
            None => names.is_empty(),
            Some(name) => names.split(',').any(|word| word == name),
        };
        hit.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, PathBuf::from(unescaped(left.next()?)));
        let mut right = right.split(' ');
        let kind = right.next()?;
        let hit = match controller {
            None => kind == "cgroup2",
            Some(name) => {
                let options = right.nth(1)?;
                kind == "cgroup" && options.split(',').any(|word| word == name)
            }
        };
        // Only what lies below the mounted part can be reached; "/.." means outside.
        let below = Path::new(path).strip_prefix(unescaped(root)).ok()?;
        (hit && !path.starts_with("/..")).then(|| (point.clone(), joined(&point, below)))
    })
}

/// `point/below`, without the slash at the end that joining nothing would leave.
fn joined(point: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        point.to_path_buf()
    } else {
        point.join(below)
    }
}

/// mountinfo writes blanks and the like as octal.
fn unescaped(text: &str) -> String {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}
