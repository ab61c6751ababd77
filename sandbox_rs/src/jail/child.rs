//! What a fresh worker does before it reads its first untrusted byte. No allocation of note, no
//! logging; a step that fails ends the worker, which the host sees as a spare that died.

use std::io::Result;
use std::os::fd::RawFd;

use super::plan::Plan;
use super::sys::{confine, process};

/// Descriptor of the worker's socket; the only one it has.
pub const SOCKET: RawFd = 0;

/// Lock this worker for good.
///
/// # Errors
/// The step that failed; the caller must leave.
pub fn lock_worker(plan: &Plan, socket: RawFd, id: u32) -> Result<()> {
    // One descriptor and no other: the template's control socket, older siblings' ends and
    // pidfds are all copies here, and close-on-exec means nothing without an exec.
    confine::duplicate_to(socket, SOCKET)?;
    confine::close_from(SOCKET + 1)?;
    // Signals are ignored by a namespace's first process, so only the hard limit counts.
    confine::limit(libc::RLIMIT_CPU, plan.cpu_s)?;
    if plan.own_user {
        confine::become_user(Plan::user_of(id))?;
    } else {
        confine::drop_capabilities()?;
    }
    if plan.die_with_parent {
        process::die_with_parent()?; // after the change of user, which clears it
    }
    confine::install_filter(&plan.filters.seal)
}
