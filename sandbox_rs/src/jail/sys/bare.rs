//! A clone without anything around it: for measuring only (`crate::probe`).

use std::io::Result;
use std::mem::size_of;

use super::check_long;
use super::process::{CloneArgs, leave};

/// Raw clone3 of this process, an ordinary child with SIGCHLD. The child runs `first` and leaves.
///
/// No hook of libc or Python is called, so `first` may only make system calls.
pub fn clone_once(flags: i32, first: impl FnOnce()) -> Result<i32> {
    let mut args = CloneArgs {
        flags: flags as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: `args` is the version-0 structure and lives through the call; without a stack the
    // child goes on with a copy of this one. The child only makes system calls and leaves, so the
    // locks and caches that a raw clone leaves stale are never touched.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    if pid == 0 {
        first();
        leave(0);
    }
    check_long(pid).map(|pid| pid as i32)
}
