//! System call numbers, from sources other than the tables.

/// The generic table of Linux (asm-generic/unistd.h), which aarch64 uses, for every call named.
#[rustfmt::skip]
pub const AARCH64: &[(&str, u32)] = &[
    ("read", 63), ("write", 64), ("close", 57), ("brk", 214), ("munmap", 215), ("mremap", 216),
    ("mmap", 222), ("mprotect", 226), ("madvise", 233), ("futex", 98), ("clock_gettime", 113),
    ("clock_getres", 114), ("clock_nanosleep", 115), ("pselect6", 72), ("restart_syscall", 128),
    ("getrandom", 278), ("exit_group", 94), ("exit", 93), ("rt_sigaction", 134),
    ("rt_sigreturn", 139), ("rt_sigprocmask", 135), ("sigaltstack", 132), ("sched_yield", 124),
    ("sched_getaffinity", 123), ("getpid", 172), ("getppid", 173), ("gettid", 178), ("getuid",
    174), ("geteuid", 175), ("getgid", 176), ("getegid", 177), ("getrusage", 165), ("uname",
    160), ("fcntl", 25), ("tgkill", 131), ("prctl", 167), ("prlimit64", 261), ("openat", 56),
    ("newfstatat", 79), ("fstat", 80), ("statx", 291), ("faccessat", 48), ("faccessat2", 439),
    ("lseek", 62), ("pread64", 67), ("pwrite64", 68), ("readv", 65), ("writev", 66),
    ("getdents64", 61), ("getcwd", 17), ("readlinkat", 78), ("mkdirat", 34), ("unlinkat", 35),
    ("renameat", 38), ("ftruncate", 46), ("fsync", 82), ("fdatasync", 83), ("dup", 23), ("dup3",
    24), ("ioctl", 29), ("socketpair", 199), ("sendto", 206), ("recvfrom", 207), ("getsockname",
    204), ("shutdown", 210), ("epoll_create1", 20), ("epoll_ctl", 21), ("epoll_pwait", 22),
    ("ppoll", 73), ("clone", 220), ("set_robust_list", 99), ("rseq", 293), ("wait4", 260),
    ("recvmsg", 212), ("close_range", 436), ("landlock_create_ruleset", 444),
    ("landlock_restrict_self", 446), ("seccomp", 277), ("sendmsg", 211), ("pipe2", 59),
    ("clone3", 435), ("setresuid", 147), ("setresgid", 149), ("setgroups", 159), ("capset", 91),
    ("mount", 40), ("umount2", 39), ("unshare", 97), ("chdir", 49), ("landlock_add_rule", 445),
    ("openat2", 437), ("truncate", 45), ("fallocate", 47), ("copy_file_range", 285),
    ("sendfile", 71), ("utimensat", 88), ("umask", 166), ("flock", 32), ("fchdir", 50),
    ("renameat2", 276), ("linkat", 37), ("symlinkat", 36), ("mknodat", 33), ("fchmod", 52),
    ("fchmodat", 53), ("fchmodat2", 452), ("fchown", 55), ("fchownat", 54), ("setxattr", 5),
    ("lsetxattr", 6), ("fsetxattr", 7), ("getxattr", 8), ("lgetxattr", 9), ("fgetxattr", 10),
    ("listxattr", 11), ("llistxattr", 12), ("flistxattr", 13), ("removexattr", 14),
    ("lremovexattr", 15), ("fremovexattr", 16), ("name_to_handle_at", 264),
    ("open_by_handle_at", 265), ("statfs", 43), ("fstatfs", 44), ("sync", 81), ("syncfs", 267),
    ("quotactl", 60), ("acct", 89), ("swapon", 224), ("swapoff", 225), ("chroot", 51),
    ("pivot_root", 41), ("fsopen", 430), ("fsconfig", 431), ("fsmount", 432), ("fspick", 433),
    ("open_tree", 428), ("move_mount", 429), ("mount_setattr", 442), ("memfd_create", 279),
    ("memfd_secret", 447), ("remap_file_pages", 234), ("mlock", 228), ("mlock2", 284),
    ("mlockall", 230), ("pkey_mprotect", 288), ("mbind", 235), ("set_mempolicy", 237),
    ("migrate_pages", 238), ("move_pages", 239), ("splice", 76), ("tee", 77), ("vmsplice", 75),
    ("eventfd2", 19), ("signalfd4", 74), ("timerfd_create", 85), ("socket", 198), ("connect",
    203), ("bind", 200), ("listen", 201), ("accept", 202), ("accept4", 242), ("getpeername",
    205), ("getsockopt", 209), ("setsockopt", 208), ("sendmmsg", 269), ("recvmmsg", 243),
    ("shmget", 194), ("shmat", 196), ("shmctl", 195), ("shmdt", 197), ("semget", 190), ("semop",
    193), ("semctl", 191), ("semtimedop", 192), ("msgget", 186), ("msgsnd", 189), ("msgrcv",
    188), ("msgctl", 187), ("mq_open", 180), ("mq_unlink", 181), ("mq_timedsend", 182),
    ("mq_timedreceive", 183), ("mq_notify", 184), ("mq_getsetattr", 185), ("waitid", 95),
    ("execve", 221), ("execveat", 281), ("kill", 129), ("tkill", 130), ("rt_sigqueueinfo", 138),
    ("rt_tgsigqueueinfo", 240), ("pidfd_open", 434), ("pidfd_send_signal", 424), ("pidfd_getfd",
    438), ("ptrace", 117), ("kcmp", 272), ("process_vm_readv", 270), ("process_vm_writev", 271),
    ("process_madvise", 440), ("process_mrelease", 448), ("setns", 268), ("setuid", 146),
    ("setgid", 144), ("setreuid", 145), ("setregid", 143), ("setfsuid", 151), ("setfsgid", 152),
    ("setsid", 157), ("setpgid", 154), ("sethostname", 161), ("setdomainname", 162),
    ("setrlimit", 164), ("bpf", 280), ("perf_event_open", 241), ("userfaultfd", 282),
    ("io_uring_setup", 425), ("io_uring_enter", 426), ("io_uring_register", 427), ("keyctl",
    219), ("add_key", 217), ("request_key", 218), ("init_module", 105), ("finit_module", 273),
    ("delete_module", 106), ("kexec_load", 104), ("kexec_file_load", 294), ("reboot", 142),
    ("syslog", 116), ("vhangup", 58), ("settimeofday", 170), ("clock_settime", 112),
    ("adjtimex", 171), ("clock_adjtime", 266), ("personality", 92), ("sched_setaffinity", 122),
    ("sched_setscheduler", 119), ("sched_setparam", 118), ("sched_setattr", 274),
    ("setpriority", 140), ("ioprio_set", 30), ("inotify_init1", 26), ("inotify_add_watch", 27),
    ("fanotify_init", 262), ("fanotify_mark", 263), ("timer_create", 107),
];

#[cfg(target_arch = "x86_64")]
macro_rules! from_libc {
    ($prefix:literal, $($name:ident),* $(,)?) => {
        vec![$((
            stringify!($name).strip_prefix($prefix).unwrap_or(stringify!($name)),
            libc::$name as u32,
        )),*]
    };
}

/// The numbers of the C library.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub fn x86_64() -> Vec<(&'static str, u32)> {
    from_libc!["SYS_",
        SYS_read, SYS_write, SYS_close, SYS_brk, SYS_munmap, SYS_mremap, SYS_mmap, SYS_mprotect,
        SYS_madvise, SYS_futex, SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep,
        SYS_pselect6, SYS_restart_syscall, SYS_getrandom, SYS_exit_group, SYS_exit,
        SYS_rt_sigaction, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_sigaltstack,
        SYS_sched_yield, SYS_sched_getaffinity, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid,
        SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getrusage, SYS_uname, SYS_fcntl, SYS_tgkill,
        SYS_prctl, SYS_prlimit64, SYS_openat, SYS_newfstatat, SYS_fstat, SYS_stat, SYS_lstat,
        SYS_statx, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_lseek, SYS_pread64,
        SYS_pwrite64, SYS_readv, SYS_writev, SYS_getdents64, SYS_getcwd, SYS_readlink,
        SYS_readlinkat, SYS_mkdir, SYS_mkdirat, SYS_rmdir, SYS_unlink, SYS_unlinkat, SYS_rename,
        SYS_renameat, SYS_ftruncate, SYS_fsync, SYS_fdatasync, SYS_dup, SYS_dup2, SYS_dup3,
        SYS_ioctl, SYS_socketpair, SYS_sendto, SYS_recvfrom, SYS_getsockname, SYS_shutdown,
        SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait, SYS_poll, SYS_ppoll,
        SYS_clone, SYS_set_robust_list, SYS_rseq, SYS_wait4, SYS_recvmsg, SYS_close_range,
        SYS_landlock_create_ruleset, SYS_landlock_restrict_self, SYS_seccomp, SYS_sendmsg,
        SYS_pipe2, SYS_clone3, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_capset,
        SYS_mount, SYS_umount2, SYS_unshare, SYS_chdir, SYS_landlock_add_rule, SYS_openat2,
        SYS_open, SYS_creat, SYS_truncate, SYS_fallocate, SYS_copy_file_range, SYS_sendfile,
        SYS_utimensat, SYS_utime, SYS_utimes, SYS_futimesat, SYS_umask, SYS_flock, SYS_fchdir,
        SYS_getdents, SYS_renameat2, SYS_link, SYS_linkat, SYS_symlink, SYS_symlinkat,
        SYS_mknod, SYS_mknodat, SYS_chmod, SYS_fchmod, SYS_fchmodat, SYS_fchmodat2, SYS_chown,
        SYS_fchown, SYS_lchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
        SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr,
        SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
        SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_statfs, SYS_fstatfs, SYS_sync,
        SYS_syncfs, SYS_quotactl, SYS_acct, SYS_swapon, SYS_swapoff, SYS_chroot, SYS_pivot_root,
        SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_open_tree, SYS_move_mount,
        SYS_mount_setattr, SYS_memfd_create, SYS_memfd_secret, SYS_remap_file_pages, SYS_mlock,
        SYS_mlock2, SYS_mlockall, SYS_pkey_mprotect, SYS_mbind, SYS_set_mempolicy,
        SYS_migrate_pages, SYS_move_pages, SYS_splice, SYS_tee, SYS_vmsplice, SYS_pipe,
        SYS_eventfd2, SYS_signalfd4, SYS_timerfd_create, SYS_socket, SYS_connect, SYS_bind,
        SYS_listen, SYS_accept, SYS_accept4, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
        SYS_sendmmsg, SYS_recvmmsg, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_semget,
        SYS_semop, SYS_semctl, SYS_semtimedop, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl,
        SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify,
        SYS_mq_getsetattr, SYS_fork, SYS_vfork, SYS_waitid, SYS_execve, SYS_execveat,
        SYS_uselib, SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
        SYS_pidfd_open, SYS_pidfd_send_signal, SYS_pidfd_getfd, SYS_ptrace, SYS_kcmp,
        SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_process_mrelease,
        SYS_setns, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setfsuid,
        SYS_setfsgid, SYS_setsid, SYS_setpgid, SYS_sethostname, SYS_setdomainname,
        SYS_setrlimit, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup,
        SYS_io_uring_enter, SYS_io_uring_register, SYS_keyctl, SYS_add_key, SYS_request_key,
        SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
        SYS_kexec_file_load, SYS_reboot, SYS_syslog, SYS_sysfs, SYS_iopl, SYS_ioperm,
        SYS_vhangup, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
        SYS_personality, SYS_arch_prctl, SYS_modify_ldt, SYS_sched_setaffinity,
        SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_setpriority,
        SYS_ioprio_set, SYS_inotify_init, SYS_inotify_init1, SYS_inotify_add_watch,
        SYS_fanotify_init, SYS_fanotify_mark, SYS_timer_create,
    ]
}

/// Its named values, and those it does not name, from the kernel's headers.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub fn x86_64_values() -> Vec<(&'static str, u32)> {
    let mut values = from_libc!["",
        PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_GROWSDOWN, MAP_LOCKED, MAP_HUGETLB,
        MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_POPULATE_READ,
        MADV_POPULATE_WRITE, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_CLOCK_REALTIME, F_GETFD,
        F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, SIGKILL, SIGCHLD, PR_SET_PDEATHSIG,
        PR_SET_NAME, PR_GET_NAME, PR_SET_NO_NEW_PRIVS, SECCOMP_SET_MODE_FILTER, CLONE_VM,
        CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD, CLONE_SYSVSEM, CLONE_SETTLS,
        CLONE_PARENT_SETTID, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, O_WRONLY, O_RDWR,
        O_CREAT, O_EXCL, O_NOCTTY, O_TRUNC, O_APPEND, O_NONBLOCK, O_ASYNC, O_DIRECT,
        O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, TCGETS, FIONBIO, FIOCLEX, AF_UNIX, SOCK_STREAM,
        SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_PEEK, MSG_DONTWAIT, MSG_WAITALL, MSG_NOSIGNAL,
    ];
    let private = libc::FUTEX_PRIVATE_FLAG as u32;
    values.extend([
        ("FUTEX_WAIT_PRIVATE", private | libc::FUTEX_WAIT as u32),
        ("FUTEX_WAKE_PRIVATE", private | libc::FUTEX_WAKE as u32),
        ("FUTEX_REQUEUE_PRIVATE", private | libc::FUTEX_REQUEUE as u32),
        ("FUTEX_CMP_REQUEUE_PRIVATE", private | libc::FUTEX_CMP_REQUEUE as u32),
        ("FUTEX_WAKE_OP_PRIVATE", private | libc::FUTEX_WAKE_OP as u32),
        ("FUTEX_WAIT_BITSET_PRIVATE", private | libc::FUTEX_WAIT_BITSET as u32),
        ("FUTEX_WAKE_BITSET_PRIVATE", private | libc::FUTEX_WAKE_BITSET as u32),
        ("CLONE_DETACHED", 0x0040_0000),
        ("PR_SET_VMA", 0x5356_4d41),
        ("O_LARGEFILE", 0o100_000), // the C library calls it 0 where files are large anyway
    ]);
    values
}
