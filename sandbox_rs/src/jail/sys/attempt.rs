//! Raw calls that a locked worker must be refused, for the self-test.

use std::io::Error;

use super::process;

/// A call with arguments that do nothing of note where it is not refused.
pub struct Attempt {
    /// Name in the report.
    pub name: &'static str,
    number: libc::c_long,
    arguments: [libc::c_long; 6],
}

const fn call(name: &'static str, number: libc::c_long, first: [libc::c_long; 3]) -> Attempt {
    let [a, b, c] = first;
    Attempt {
        name,
        number,
        arguments: [a, b, c, 0, 0, 0],
    }
}

const NEW_NAMES: libc::c_long = libc::CLONE_NEWUTS as libc::c_long;
const EXECUTE: libc::c_long = libc::PROT_EXEC as libc::c_long;
const PRIVATE: libc::c_long = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as libc::c_long;

/// Forbidden in every profile. Most would fail for another reason too, with another error number:
/// only the filter's own counts as a refusal.
pub const FORBIDDEN: &[Attempt] = &[
    call(
        "socket",
        libc::SYS_socket,
        [libc::AF_INET as i64, libc::SOCK_STREAM as i64, 0],
    ),
    call(
        "socket_unix",
        libc::SYS_socket,
        [libc::AF_UNIX as i64, libc::SOCK_DGRAM as i64, 0],
    ),
    call("connect", libc::SYS_connect, [-1, 0, 0]),
    call("bind", libc::SYS_bind, [-1, 0, 0]),
    call("execve", libc::SYS_execve, [0, 0, 0]),
    call("execveat", libc::SYS_execveat, [-1, 0, 0]),
    call("fork", libc::SYS_clone, [libc::SIGCHLD as i64, 0, 0]),
    call(
        "clone",
        libc::SYS_clone,
        [NEW_NAMES | libc::SIGCHLD as i64, 0, 0],
    ),
    call("clone3", libc::SYS_clone3, [0, 0, 0]),
    call("unshare", libc::SYS_unshare, [0, 0, 0]),
    call("setns", libc::SYS_setns, [-1, 0, 0]),
    call("ptrace", libc::SYS_ptrace, [-1, 0, 0]),
    call("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0]),
    call("process_vm_writev", libc::SYS_process_vm_writev, [1, 0, 0]),
    call("kill", libc::SYS_kill, [i32::MAX as i64, 0, 0]),
    call("tkill", libc::SYS_tkill, [i32::MAX as i64, 0, 0]),
    call("pidfd_open", libc::SYS_pidfd_open, [1, 0, 0]),
    call("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, 0, 0]),
    call("mount", libc::SYS_mount, [0, 0, 0]),
    call("umount2", libc::SYS_umount2, [0, 0, 0]),
    call("pivot_root", libc::SYS_pivot_root, [0, 0, 0]),
    call("chroot", libc::SYS_chroot, [0, 0, 0]),
    call("open_by_handle_at", libc::SYS_open_by_handle_at, [-1, 0, 0]),
    call("memfd_create", libc::SYS_memfd_create, [0, 0, 0]),
    call("shmget", libc::SYS_shmget, [-1, 0, 0]),
    call("msgget", libc::SYS_msgget, [-1, 0, 0]),
    call("semget", libc::SYS_semget, [-1, 0, 0]),
    call("mq_open", libc::SYS_mq_open, [0, 0, 0]),
    call("bpf", libc::SYS_bpf, [0, 0, 0]),
    call("io_uring_setup", libc::SYS_io_uring_setup, [0, 0, 0]),
    call("userfaultfd", libc::SYS_userfaultfd, [-1, 0, 0]),
    call("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0]),
    call("keyctl", libc::SYS_keyctl, [-1, 0, 0]),
    call("add_key", libc::SYS_add_key, [0, 0, 0]),
    call("seccomp", libc::SYS_seccomp, [2, 0, 0]),
    call(
        "landlock_create_ruleset",
        libc::SYS_landlock_create_ruleset,
        [0, 0, 1],
    ),
    call("setresuid", libc::SYS_setresuid, [-1, -1, -1]),
    call("setresgid", libc::SYS_setresgid, [-1, -1, -1]),
    call("capset", libc::SYS_capset, [0, 0, 0]),
    call("personality", libc::SYS_personality, [0xffff_ffff, 0, 0]),
    call(
        "prctl_dumpable",
        libc::SYS_prctl,
        [libc::PR_SET_DUMPABLE as i64, 1, 0],
    ),
    call("mprotect_execute", libc::SYS_mprotect, [0, 0, EXECUTE]),
    Attempt {
        name: "mmap_execute",
        number: libc::SYS_mmap,
        arguments: [0, 4096, EXECUTE, PRIVATE, -1, 0],
    },
];

impl Attempt {
    /// Make the call in a throw-away process; its error number, 0 if it passed.
    pub fn errno(&self) -> i32 {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: every pointer is null or every descriptor -1, so nothing is read or written
        // where the call is not refused; what could take effect harms this process at most, which
        // its caller throws away, and a child of a fork that passed leaves at once.
        let code = unsafe { libc::syscall(self.number, a, b, c, d, e, f) };
        if code == 0 && self.number == libc::SYS_clone {
            process::leave(0);
        }
        if code >= 0 {
            return 0;
        }
        let error = Error::last_os_error().raw_os_error();
        error.unwrap_or(libc::EINVAL)
    }
}
