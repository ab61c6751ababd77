//! The steps that lock the template for good, in order; its workers inherit them.

use std::io::{Error, Result};

use super::sys::{confine, process};
use crate::capability::Report;
use crate::limits::Limits;
use crate::policy::Filters;

/// User id of the first worker when the pool runs as root; worker n gets the n-th after it.
const FIRST_USER: u32 = 0x7000_0000;
const NUM_USERS: u32 = 1 << 20;

/// What a worker needs to lock itself; made before the template is locked.
pub struct Plan {
    /// Compiled filters.
    pub filters: Filters,
    /// Hard CPU limit of a worker.
    pub cpu_s: u64,
    /// Whether each worker becomes a user of its own.
    pub own_user: bool,
    /// Whether the broker's death does not already kill by kernel rule.
    pub die_with_parent: bool,
    /// Namespace flags of a worker's clone.
    pub clone_flags: i32,
    /// Whether clone3 may be tried.
    pub clone3: bool,
    /// Where libc keeps the thread id.
    pub thread_id_address: u64,
}

impl Plan {
    /// User id of a worker.
    pub fn user_of(id: u32) -> u32 {
        FIRST_USER + id % NUM_USERS
    }
}

/// Run a step unless a test leaves it out.
pub fn unless_left_out<T>(
    limits: &Limits,
    layer: &str,
    step: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if limits.lacks(layer) {
        return Err(Error::other("left out on purpose"));
    }
    step()
}

/// Lock the calling process for good. Every layer that fails is noted, none is skipped silently.
pub fn lock_template(limits: &Limits, filters: &Filters, template_bytes: u64, report: &mut Report) {
    // An own mount namespace first: it needs capabilities and calls that later steps take away.
    let root = unless_left_out(limits, "empty_root", || {
        process::unshare(libc::CLONE_NEWNS)?;
        confine::empty_root()
    });
    report.note(
        "empty_root",
        &root,
        "the root is an empty read-only file system",
    );

    let rlimits = unless_left_out(limits, "rlimits", || {
        confine::limit(libc::RLIMIT_CORE, 0)?;
        confine::limit(libc::RLIMIT_FSIZE, 0)?;
        confine::limit(libc::RLIMIT_NOFILE, 32)?;
        confine::limit(libc::RLIMIT_MEMLOCK, 0)?;
        confine::limit(libc::RLIMIT_MSGQUEUE, 0)?;
        confine::limit(
            libc::RLIMIT_AS,
            template_bytes.saturating_add(limits.memory_bytes),
        )
    });
    let detail = format!(
        "address space {} bytes above the template",
        limits.memory_bytes
    );
    report.note("rlimits", &rlimits, &detail);

    let privileges = unless_left_out(limits, "no_new_privs", confine::no_new_privileges);
    report.note("no_new_privs", &privileges, "");

    // Before the filter, which refuses the calls of Landlock.
    let landlock = unless_left_out(limits, "landlock", || {
        let version = confine::landlock_version()?;
        confine::landlock_nothing(version).map(|()| version)
    });
    let detail = landlock
        .as_ref()
        .map_or(String::new(), |version| format!("ABI {version}"));
    report.note("landlock", &landlock, &detail);

    // Last, because everything above needs more calls than it leaves. The newest filter decides
    // between two refusals, so EPERM for known calls goes on top of ENOSYS for the rest.
    let seccomp = unless_left_out(limits, "seccomp", || {
        confine::install_filter(&filters.allow)?;
        confine::install_filter(&filters.deny)
    });
    report.note("seccomp", &seccomp, "allow-list inherited, seal per worker");
}
