//! What the broker enters before it starts anything: namespaces, and control groups for workers.

use std::fs;
use std::io::{Error, Result};
use std::time::Duration;

use crate::capability::Report;
use crate::cgroup::{self, Cgroups, PoolName};
use crate::jail::plan::unless_left_out;
use crate::jail::sys::process;
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

/// Enter what can be had; returns whether workers can become other users.
pub(super) fn enter(limits: &Limits, report: &mut Report) -> bool {
    let (user, group) = process::identity();
    let mut root = user == 0;
    let mut pids = unless_left_out(limits, "pid_namespace", || {
        if root {
            process::unshare(libc::CLONE_NEWPID)
        } else {
            Err(Error::other(""))
        }
    });
    if pids.is_err() && !limits.lacks("pid_namespace") {
        // Unprivileged, or root without the capability: a user namespace gives the rights.
        let entered = process::unshare(libc::CLONE_NEWUSER).and_then(|()| {
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        });
        pids = entered.and_then(|()| process::unshare(libc::CLONE_NEWPID));
        root = root && pids.is_err();
    }
    report.note(
        "pid_namespace",
        &pids,
        "the broker's death kills everything in it",
    );
    for (name, flag) in [
        ("network_namespace", libc::CLONE_NEWNET),
        ("ipc_namespace", libc::CLONE_NEWIPC | libc::CLONE_NEWUTS),
    ] {
        let entered = unless_left_out(limits, name, || process::unshare(flag));
        if entered.is_ok() && flag & libc::CLONE_NEWUTS != 0 {
            process::name_host("jail"); // uname would tell the host's
        }
        report.note(name, &entered, "one, shared and empty");
    }
    let identity = unless_left_out(limits, "identity", || Ok(()));
    let detail = if root {
        "one user id per worker"
    } else {
        "no capabilities"
    };
    report.note("identity", &identity, detail);
    root
}
