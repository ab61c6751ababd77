//! Version 2 gives controllers to children only: handing them down, and what is in the way.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use super::files;
use super::place::Version;

/// Hand the controllers of a version 2 cgroup down to its children.
///
/// # Errors
/// What is in the way, and what to do about it.
pub fn hand_down(folder: &Path) -> Result<()> {
    let words = |file: &str| -> Result<Vec<String>> {
        let text = files::text(folder, file)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let (there, handed) = (
        words("cgroup.controllers")?,
        words("cgroup.subtree_control")?,
    );
    for (controller, needed) in [("memory", true), ("pids", false)] {
        if handed.iter().any(|word| word == controller) {
            continue;
        }
        if !there.iter().any(|word| word == controller) {
            if needed {
                let list = there.join(" ");
                let text = format!("{}: has only \"{list}\"", folder.display());
                return Err(Error::other(text));
            }
            continue;
        }
        let word = format!("+{controller}");
        if let Err(error) = files::set(folder, "cgroup.subtree_control", &word)
            && needed
        {
            return Err(error);
        }
    }
    Ok(())
}

/// What a user can do about an error in a place.
pub(super) fn remedy(version: Version, error: &Error) -> &'static str {
    match (version, error.kind()) {
        (Version::V2, ErrorKind::ResourceBusy) => {
            " (processes live in it: start the program in a leaf of a delegated cgroup)"
        }
        (_, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            " (not delegated to this user)"
        }
        _ => "",
    }
}
