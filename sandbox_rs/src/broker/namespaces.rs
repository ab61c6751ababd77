//! What the broker enters before it starts anything: namespaces, and control groups for workers.

use std::fs;
use std::io::{Error, Result};
use std::time::Duration;

use crate::capability::Report;
use crate::cgroup::{self, Cgroups, PoolName};
use crate::jail::plan::{FIRST_USER, unless_left_out};
use crate::jail::proof;
use crate::jail::sys::{process, seen};
use crate::limits::Limits;

/// Time that removing what dead owners left may take at a start.
const SWEEP: Duration = Duration::from_millis(500);

/// Open the folder of this pool's control groups, if they can be had.
pub(super) fn open_cells(
    limits: &Limits,
    name: &Result<PoolName>,
    report: &mut Report,
) -> Option<Cgroups> {
    let opened = unless_left_out(limits, "cgroup", || {
        let name = name.as_ref().map_err(|e| Error::other(e.to_string()))?;
        cgroup::sweep(SWEEP);
        Cgroups::open(name)
    });
    let detail = opened.as_ref().map_or(String::new(), Cgroups::detail);
    report.note("cgroup", &opened, &detail);
    opened.ok()
}

/// Enter what can be had; returns whether each worker becomes a user of its own.
pub(super) fn enter(limits: &Limits, report: &mut Report) -> bool {
    let is_root = process::identity().0 == 0;
    // Tried first: a child made after `unshare` would be the first of the PID namespace, and its
    // end that of the namespace.
    let freed = unless_left_out(limits, "identity", || try_identity(is_root));
    let mut in_user_namespace = false;
    let pids = unless_left_out(limits, "pid_namespace", || {
        if is_root && process::unshare(libc::CLONE_NEWPID).is_ok() {
            return Ok(());
        }
        // Unprivileged, or root without the capability: a user namespace gives the rights. Where a
        // security module takes them away again, half a step could not be taken back.
        seen::rehearse(enter_user_namespace)
            .map_err(|e| Error::new(e.kind(), format!("in a user namespace: {e}")))?;
        in_user_namespace = true;
        enter_user_namespace()
    });
    report.note(
        "pid_namespace",
        &pids,
        "the broker's death kills everything in it",
    );
    let network = unless_left_out(limits, "network_namespace", || {
        process::unshare(libc::CLONE_NEWNET)?;
        proof::network()
    });
    let detail = "one, shared, no interface is up";
    report.note("network_namespace", &network, detail);
    let ipc = unless_left_out(limits, "ipc_namespace", || {
        process::unshare(libc::CLONE_NEWIPC | libc::CLONE_NEWUTS)?;
        process::name_host("jail"); // uname would tell the host's
        proof::ipc()
    });
    report.note("ipc_namespace", &ipc, "one, shared and empty");
    let own_user = is_root && !in_user_namespace && freed.is_ok();
    let detail = if own_user {
        "one user id per worker, no capabilities"
    } else {
        "no capabilities"
    };
    report.note("identity", &freed, detail);
    own_user
}

/// A user namespace that maps our own user alone, and a PID namespace in it.
fn enter_user_namespace() -> Result<()> {
    let (user, group) = process::identity();
    process::unshare(libc::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    process::unshare(libc::CLONE_NEWPID)
}

/// Whether a worker can be freed of all rights, and root of being root.
fn try_identity(is_root: bool) -> Result<()> {
    if is_root {
        proof::identity(Some(FIRST_USER))
            .map_err(|e| Error::new(e.kind(), format!("workers stay root: {e}")))?;
    }
    proof::identity(None)
}
