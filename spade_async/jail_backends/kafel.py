"""The filter that nsjail installs, written in its language Kafel.

It is in force from before the interpreter is executed, so it must let the interpreter start: what
the native seal takes away after that (opening files, mapping libraries) stays allowed here and is
bounded by what is mounted and by a limit of zero descriptors. What is not listed answers ENOSYS.
"""

from __future__ import annotations

import platform

from spade_async.errors import SandboxError

SERVE = (
    "read", "write", "writev", "close", "brk", "munmap", "mremap", "futex", "clock_gettime",
    "clock_getres", "clock_nanosleep", "restart_syscall", "pselect6", "getrandom", "exit_group",
    "exit",
    "rt_sigaction", "rt_sigreturn", "rt_sigprocmask", "sigaltstack", "sched_yield", "getpid",
    "gettid", "getuid", "geteuid", "getgid", "getegid", "getppid", "getrusage",
    "sched_getaffinity", "newuname", "set_robust_list",
)  # fmt: skip
"""What untrusted code uses in the native jail too."""

START = (
    "execve", "openat", "newfstatat", "newfstat", "lseek", "pread64", "readlinkat", "getdents64",
    "faccessat", "getcwd", "set_tid_address", "readv",
)  # fmt: skip
"""What the interpreter needs to start: it executes, finds, reads and maps its own files."""

START_X86_64 = ("open", "newstat", "newlstat", "readlink", "access", "arch_prctl")
"""The same by older calls."""

# Calls that Kafel has no name for, by their number, which these architectures share.
NUMBERED = {"x86_64": (334,), "aarch64": (293,)}
"""rseq: registered by newer C libraries."""

CHECKED = (
    # Never writable and executable, never shared, never executable without a file behind it.
    "mmap(addr, len, prot, flags) "
    "{ (prot & 6) != 6 && (flags & 1) == 0 && ((prot & 4) == 0 || (flags & 32) == 0) }",
    "mprotect(addr, len, prot) { (prot & 4) == 0 }",
    "madvise(addr, len, advice) { advice == 4 || advice == 8 || advice == 14 }",
    "fcntl(fd, cmd) { cmd == 1 || cmd == 2 || cmd == 3 }",
    "ioctl(fd, cmd) { cmd == 0x5401 || cmd == 0x5451 }",  # TCGETS, FIOCLEX
    "tgkill(group, thread, number) { number == 6 || number == 0 }",
    "prctl(option) { option == 15 || option == 16 || option == 1398164801 }",  # names
    "prlimit64(pid) { pid == 0 }",  # the trusted start limits itself; hard limits only sink
)
"""Calls whose arguments decide."""

DENIED = (
    "openat2", "mkdirat", "unlinkat", "renameat2", "linkat", "symlinkat", "mknodat", "fchmodat",
    "fchownat", "truncate", "fallocate", "chdir", "chroot", "pivot_root", "mount", "memfd_create",
    "pipe2", "dup", "dup3", "socket", "socketpair", "connect", "bind", "listen", "accept4",
    "sendto", "recvfrom", "sendmsg", "recvmsg", "shmget", "semget", "msgget", "mq_open", "clone",
    "execveat", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "ptrace",
    "process_vm_readv", "process_vm_writev", "unshare", "setns", "setuid", "setgid", "setsid",
    "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "init_module",
    "finit_module", "reboot", "syslog", "personality", "sched_setaffinity", "sched_setscheduler",
    "setpriority", "inotify_init1", "fanotify_init", "seccomp", "capset",
)  # fmt: skip
"""Answered with EPERM, so that Python raises PermissionError."""

DENIED_X86_64 = ("fork", "vfork", "mkdir", "rmdir", "unlink", "rename", "link", "symlink", "mknod",
                 "chmod", "chown", "creat", "pipe", "dup2", "accept")  # fmt: skip


def policy(machine: str | None = None) -> str:
    """The policy for one architecture.

    Raises:
        SandboxError: there is no table for it.
    """
    machine = machine or platform.machine()
    if machine not in NUMBERED:
        raise SandboxError(
            f"backend nsjail has no filter for {machine}: use backend native, or x86_64 or aarch64"
        )
    older = machine == "x86_64"
    numbered = [f"SYSCALL[{number}]" for number in NUMBERED[machine]]
    allowed = [*SERVE, *START, *(START_X86_64 if older else ()), *numbered, *CHECKED]
    denied = [*DENIED, *(DENIED_X86_64 if older else ())]
    return (
        f"POLICY jail {{ ALLOW {{ {', '.join(allowed)} }}, ERRNO(1) {{ {', '.join(denied)} }} }} "
        "USE jail DEFAULT ERRNO(38)"
    )
