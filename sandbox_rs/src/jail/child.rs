//! What a fresh worker does before it reads its first untrusted byte. No allocation of note, no
//! logging; a step that fails ends the worker, which the host sees as a spare that died.

use std::io::Result;
use std::os::fd::RawFd;

use super::plan::{Plan, SCRATCH};
use super::sys::{confine, process};

/// Requests arrive here.
pub const REQUESTS: RawFd = 0;
/// Replies leave here.
pub const REPLIES: RawFd = 1;
/// A forkable worker is handed the pipes of its forks here.
pub const FORKS: RawFd = 2;
/// Lock this worker for good. It keeps the ends given, as descriptors 0, 1 and, if it may fork, 2.
///
/// # Errors
/// The step that failed; the caller must leave.
pub fn lock_worker(
    plan: &Plan,
    requests: RawFd,
    replies: RawFd,
    control: Option<RawFd>,
    id: u32,
) -> Result<()> {
    let first_free = keep_only(requests, replies, control)?;
    confine::close_from(first_free)?;
    lock(plan, id, control.is_some())
}

/// Lock a copy of a locked worker. It keeps its own ends, and may no longer signal its siblings.
///
/// # Errors
/// The step that failed; the caller must leave.
pub fn lock_branch(plan: &Plan, requests: RawFd, replies: RawFd, control: RawFd) -> Result<()> {
    let first_free = keep_only(requests, replies, Some(control))?;
    confine::close_from(first_free)?;
    match plan.landlock {
        Some(version) => confine::landlock_scope(version),
        None => Ok(()),
    }
}

/// Give the ends their numbers; returns the first number that is to be closed.
///
/// The template's control socket, older siblings' ends and pidfds are all copies here, and
/// close-on-exec means nothing without an exec.
fn keep_only(requests: RawFd, replies: RawFd, control: Option<RawFd>) -> Result<RawFd> {
    let mut ends = [requests, replies, control.unwrap_or(replies)];
    let used = if control.is_some() { 3 } else { 2 };
    let above = ends.iter().copied().fold(FORKS, RawFd::max) + 1;
    for (end, scratch) in ends[..used].iter_mut().zip(above..) {
        if *end <= FORKS {
            // An end that has a number which another one is about to get moves out of the way.
            confine::duplicate_to(*end, scratch)?;
            *end = scratch;
        }
    }
    for (end, number) in ends[..used].iter().zip(REQUESTS..) {
        confine::duplicate_to(*end, number)?;
    }
    Ok(used as RawFd)
}

fn lock(plan: &Plan, id: u32, forkable: bool) -> Result<()> {
    // Signals are ignored by a namespace's first process, so only the hard limit counts.
    confine::limit(libc::RLIMIT_CPU, plan.cpu_s)?;
    if let Some(most) = plan.most_processes(forkable) {
        confine::limit(libc::RLIMIT_NPROC, most)?;
    }
    if let Some(files) = &plan.files {
        // Into the mount namespace that the clone made; Landlock refuses mounts from then on.
        confine::mount_scratch(SCRATCH, &files.options)?;
        if let Some(version) = plan.landlock {
            confine::landlock_below(version, SCRATCH)?;
        }
    }
    match plan.user_of(id) {
        Some(user) => confine::become_user(user)?,
        None => confine::drop_capabilities()?,
    }
    if plan.die_with_parent {
        process::die_with_parent()?; // after the change of user, which clears it
    }
    let filters = &plan.filters;
    confine::install_filter(if forkable {
        &filters.seal_fork
    } else {
        &filters.seal
    })
}
