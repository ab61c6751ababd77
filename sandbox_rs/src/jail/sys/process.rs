//! Processes: fork, namespaced clone, pidfds, waiting, clocks.

use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use super::io::own;
use super::{check, check_long};

/// Plain fork. Only for the exec'd broker, which has one thread and returns to no caller.
pub fn fork() -> Result<i32> {
    // SAFETY: the only caller is the exec'd broker program: one thread, so no lock can be held.
    check(unsafe { libc::fork() })
}

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Forks between the first process that counted and this one.
pub fn num_forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Count forks of this process from now on, in the children; the count of this process.
pub fn count_forks() -> u64 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic number, which is right in a forked child.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    num_forks()
}

/// Leave the process at once, without running any handler.
pub fn leave(code: i32) -> ! {
    // SAFETY: takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Enter new namespaces.
pub fn unshare(flags: i32) -> Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Name the host of this UTS namespace.
pub fn name_host(name: &str) {
    // SAFETY: pointer and length come from one string that lives through the calls. Failing leaves
    // the host's name to be seen, which is no secret worth a refusal.
    unsafe {
        libc::sethostname(name.as_ptr().cast(), name.len());
        libc::setdomainname(name.as_ptr().cast(), name.len());
    }
}

/// New session: no controlling terminal, and no share in the signals of the owner's group.
pub fn new_session() {
    // SAFETY: takes no pointer. Failing means we already lead a group, which is as good.
    let _ = unsafe { libc::setsid() };
}

/// Die by `SIGKILL` when the parent dies.
pub fn die_with_parent() -> Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes one number.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(drop)
}

/// Parent process id; 0 when it lives in an outer namespace.
pub fn parent_pid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getppid() }
}

/// Effective user and group id.
pub fn identity() -> (u32, u32) {
    // SAFETY: take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Address where libc caches the thread id, so that a raw clone can keep it right.
pub fn thread_id_address() -> u64 {
    const PR_GET_TID_ADDRESS: i32 = 40;
    let mut address: *mut libc::c_int = std::ptr::null_mut();
    // SAFETY: the call writes one pointer to `address`.
    let code = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut address, 0, 0, 0) };
    if code == 0 { address as u64 } else { 0 }
}

/// What a clone returned.
pub enum Cloned {
    /// In the parent: process id and pidfd of the child.
    Parent(i32, OwnedFd),
    /// In the child.
    Child,
}

/// The kernel's version-0 structure of clone3.
#[repr(C)]
#[derive(Default)]
pub(super) struct CloneArgs {
    pub(super) flags: u64,
    pub(super) pidfd: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    pub(super) exit_signal: u64,
    pub(super) stack: u64,
    pub(super) stack_size: u64,
    pub(super) tls: u64,
}

/// Clone the interpreter: the child becomes a sibling, in its own PID namespace if `flags` say so.
///
/// `modern` uses clone3; without it, or where a container refuses it with ENOSYS, the old call.
pub fn clone_interpreter(flags: i32, thread_id_address: u64, modern: bool) -> Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: (flags | libc::CLONE_PARENT | libc::CLONE_PIDFD) as u64,
        pidfd: (&raw mut pidfd) as u64,
        ..CloneArgs::default()
    };
    if thread_id_address != 0 {
        args.flags |= (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
        args.child_tid = thread_id_address;
    }
    // SAFETY: the interpreter is attached, as PyOS_BeforeFork wants; the process has one thread.
    unsafe { pyo3::ffi::PyOS_BeforeFork() };
    let mut pid = if modern {
        // SAFETY: `args` is the version-0 structure and lives through the call; without a stack the
        // child goes on with a copy of this one, as after fork.
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) }
    } else {
        -1
    };
    let refused = !modern || Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
    if pid < 0 && refused {
        // SAFETY: as above; the old call writes the pidfd through its third argument, and takes
        // the thread id's address as its fourth (x86-64) or fifth (elsewhere).
        pid = unsafe {
            let tid = args.child_tid;
            libc::syscall(libc::SYS_clone, args.flags, 0, args.pidfd, tid, tid)
        };
    }
    if pid == 0 {
        // SAFETY: this is the child of a fork whose parent called PyOS_BeforeFork.
        unsafe { pyo3::ffi::PyOS_AfterFork_Child() };
        return Ok(Cloned::Child);
    }
    let error = Error::last_os_error();
    // SAFETY: this is the parent that called PyOS_BeforeFork; also right when the clone failed.
    unsafe { pyo3::ffi::PyOS_AfterFork_Parent() };
    if pid < 0 {
        return Err(error);
    }
    Ok(Cloned::Parent(pid as i32, own(pidfd)))
}

/// Copy a sealed worker: an ordinary child of it, in its namespace. Whether this is the child.
pub fn clone_branch(thread_id_address: u64) -> Result<bool> {
    let mut flags = libc::SIGCHLD;
    if thread_id_address != 0 {
        flags |= libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    }
    // SAFETY: the interpreter is attached, as PyOS_BeforeFork wants. Other threads of the worker
    // are not copied; a profile with threads says so.
    unsafe { pyo3::ffi::PyOS_BeforeFork() };
    // SAFETY: without a stack the child goes on with a copy of this one, as after fork; the thread
    // id's address is the fourth argument on x86-64 and the fifth elsewhere, so it fills both.
    let pid = unsafe {
        let tid = thread_id_address;
        libc::syscall(libc::SYS_clone, flags as u64, 0, 0, tid, tid)
    };
    if pid == 0 {
        // SAFETY: this is the child of a fork whose parent called PyOS_BeforeFork.
        unsafe { pyo3::ffi::PyOS_AfterFork_Child() };
        return Ok(true);
    }
    let error = Error::last_os_error();
    // SAFETY: this is the parent that called PyOS_BeforeFork; also right when the clone failed.
    unsafe { pyo3::ffi::PyOS_AfterFork_Parent() };
    if pid < 0 { Err(error) } else { Ok(false) }
}

/// Children that end are collected by the kernel.
pub fn ignore_children() {
    // SAFETY: SIG_IGN is a valid disposition of SIGCHLD.
    let _ = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Parent of a process, as this process sees both.
pub fn parent_of(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may hold anything, come the state and the parent.
    text.rsplit(')').next()?.split(' ').nth(2)?.parse().ok()
}

/// Children of a process's first thread that have not been collected; none where /proc does not
/// tell them.
pub fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// A pidfd of a process.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: takes two numbers.
    check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).map(|fd| own(fd as RawFd))
}

/// Process id behind a pidfd as this process sees it, where the kernel tells it in one call (6.13).
pub fn pid_behind(pidfd: &OwnedFd) -> Option<i32> {
    const PIDFD_GET_INFO: libc::c_ulong = 0xC040_FF0B; // version 0: 64 bytes
    const PID: usize = 4; // after two words of 64 bits, in words of 32
    let mut info = [0u32; 16];
    // SAFETY: the call reads and writes the 64 bytes that its number announces.
    let code = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, info.as_mut_ptr()) };
    (code == 0).then(|| info[PID] as i32).filter(|&pid| pid > 0)
}

/// Kill the process behind a pidfd. A process that is gone is no error.
pub fn kill(pidfd: &OwnedFd) {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no signal information is passed; failing means the process is already gone.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            none,
            0,
        )
    };
}

/// A child that ended: process id, and exit code or signal.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Process id in the namespace of the caller.
    pub pid: i32,
    /// Exit code, or minus the signal number.
    pub status: i32,
}

/// Collect one ended child; `None` when none has ended (or, if waiting, when there is no child).
pub fn collect(wait: bool) -> Option<Ended> {
    let mut status = 0;
    let flags = libc::__WALL | if wait { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` has room for the one integer the call writes.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        if pid < 0 && Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
            continue;
        }
        let status = if libc::WIFSIGNALED(status) {
            -libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        };
        return (pid > 0).then_some(Ended { pid, status });
    }
}

/// A descriptor that becomes readable when a child ends. Blocks SIGCHLD for the process.
pub fn child_signal() -> Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is used and lives through the calls.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            std::ptr::null_mut(),
        ))?;
        check(libc::signalfd(
            -1,
            &raw const set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))
        .map(own)
    }
}

/// Read away what `child_signal` reported.
pub fn hush_child_signal(fd: &OwnedFd) {
    let mut buffer = [0u8; 128 * 8];
    // SAFETY: pointer and length come from one array.
    let _ = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
}

/// Unblock all signals: a program exec'd by the broker must not inherit its mask.
pub fn unblock_signals() {
    // SAFETY: the set is initialised before it is used and lives through the call.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// CPU nanoseconds a process has used, read from outside.
pub fn cpu_ns_of(pid: i32) -> Option<u64> {
    let clock = (!pid << 3) | 2; // CPUCLOCK_SCHED of a process, as clock_getcpuclockid builds it
    cpu_ns(clock)
}

fn cpu_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the one timespec the call writes.
    let code = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (code == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
