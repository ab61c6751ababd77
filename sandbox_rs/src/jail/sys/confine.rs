//! What takes rights away: limits, identity, capabilities, Landlock, the empty root, filters.

use std::ffi::{CStr, CString};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::io::own;
use super::{check, check_long};

/// Close every descriptor from `first` on.
pub fn close_from(first: RawFd) -> Result<()> {
    // SAFETY: takes numbers; callers own nothing from `first` on that is used later.
    check_long(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Make `from` descriptor `to` as well.
pub fn duplicate_to(from: RawFd, to: RawFd) -> Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::dup3(from, to, 0) }).map(drop)
}

#[cfg(target_arch = "x86_64")]
const SETRLIMIT: libc::c_long = libc::SYS_setrlimit;
/// Not named by the libc crate.
#[cfg(target_arch = "aarch64")]
const SETRLIMIT: libc::c_long = 164;

/// Set soft and hard limit of a resource.
///
/// By the old call, which the filters can tell from reading limits by its number alone; the C
/// library would take prlimit64.
pub fn limit(resource: libc::__rlimit_resource_t, value: u64) -> Result<()> {
    let both = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: `both` lives through the call.
    check_long(unsafe { libc::syscall(SETRLIMIT, resource, &raw const both) }).map(drop)
}

/// Raise the soft limit of open files to the hard one.
pub fn raise_open_files() -> Result<()> {
    let mut both = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `both` lives through the calls and has room for what the first one writes.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut both))?;
        both.rlim_cur = both.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const both)).map(drop)
    }
}

/// Become user and group `id` for good, with no further groups. Clears all capabilities.
pub fn become_user(id: u32) -> Result<()> {
    // SAFETY: an empty list of groups needs no pointer; the process has one thread, so the raw
    // calls, which change the calling thread alone, change the process.
    unsafe {
        check_long(libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()))?;
        check_long(libc::syscall(libc::SYS_setresgid, id, id, id))?;
        check_long(libc::syscall(libc::SYS_setresuid, id, id, id))?;
    }
    Ok(())
}

/// Drop every capability.
pub fn drop_capabilities() -> Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let none = [[0u32; 3]; 2];
    // SAFETY: version 3 reads two triples, which `none` holds; both live through the call.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })
        .map(drop)
}

/// No program run later gains rights.
pub fn no_new_privileges() -> Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Version of Landlock the kernel offers.
pub fn landlock_version() -> Result<u32> {
    const VERSION: u32 = 1;
    let none = ptr::null::<u8>();
    // SAFETY: with the version flag the kernel reads no attributes.
    check_long(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) })
        .map(|version| version as u32)
}

/// Rights of Landlock over files, by the ABI that brought them.
mod rights {
    pub const WRITE_FILE: u64 = 1 << 1;
    pub const READ_FILE: u64 = 1 << 2;
    pub const READ_DIR: u64 = 1 << 3;
    pub const REMOVE_DIR: u64 = 1 << 4;
    pub const REMOVE_FILE: u64 = 1 << 5;
    pub const MAKE_DIR: u64 = 1 << 7;
    pub const MAKE_REG: u64 = 1 << 8;
    pub const REFER: u64 = 1 << 13;
    pub const TRUNCATE: u64 = 1 << 14;
    /// Regular files and folders: no device, socket, pipe, symbolic link or program.
    pub const SCRATCH: u64 = WRITE_FILE
        | READ_FILE
        | READ_DIR
        | REMOVE_DIR
        | REMOVE_FILE
        | MAKE_DIR
        | MAKE_REG
        | REFER
        | TRUNCATE;
}

/// Enter a Landlock domain that grants nothing: no file, no TCP port, no signal outwards.
pub fn landlock_nothing(version: u32) -> Result<()> {
    landlock(version, None)
}

/// The same, but regular files and folders may be made, read, written and removed below `folder`.
pub fn landlock_below(version: u32, folder: &CStr) -> Result<()> {
    landlock(version, Some(folder))
}

/// A domain within the one that holds, so that nothing outside this process can be signalled.
///
/// The kernel nests at most 16; a deeper one stays in its parent's, where the filter still refuses
/// every call that signals others.
pub fn landlock_scope(version: u32) -> Result<()> {
    if version < 6 {
        return Ok(());
    }
    match landlock(version, None) {
        Err(error) if error.raw_os_error() == Some(libc::E2BIG) => Ok(()),
        other => other,
    }
}

fn landlock(version: u32, folder: Option<&CStr>) -> Result<()> {
    #[repr(C)]
    struct Attributes {
        access_fs: u64,
        access_net: u64,
        scoped: u64,
    }
    #[repr(C, packed)]
    struct Beneath {
        access: u64,
        parent: RawFd,
    }
    const PATH_BENEATH: u32 = 1;
    let num_fs = match version {
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    let attributes = Attributes {
        access_fs: (1 << num_fs) - 1,
        access_net: if version >= 4 { 3 } else { 0 },
        scoped: if version >= 6 { 3 } else { 0 },
    };
    let size = match version {
        ..=3 => 8usize,
        4 | 5 => 16,
        _ => 24,
    };
    // SAFETY: `attributes` holds `size` bytes and lives through the call; the ruleset descriptor
    // is owned at once.
    let ruleset = unsafe {
        let call = libc::SYS_landlock_create_ruleset;
        own(check_long(libc::syscall(call, &raw const attributes, size, 0u32))? as RawFd)
    };
    if let Some(folder) = folder {
        let parent = open_folder(folder)?;
        let rule = Beneath {
            access: rights::SCRATCH & attributes.access_fs,
            parent: parent.as_raw_fd(),
        };
        // SAFETY: `rule` is the packed structure of a path rule and lives through the call.
        check_long(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                PATH_BENEATH,
                &raw const rule,
                0u32,
            )
        })?;
    }
    // SAFETY: takes numbers.
    check_long(unsafe {
        libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32)
    })
    .map(drop)
}

/// Open a folder of our own for reading; never follows a link in its last part.
fn open_folder(folder: &CStr) -> Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `folder` is a C string that lives through the call; the descriptor is owned at once.
    check(unsafe { libc::open(folder.as_ptr(), flags) }).map(own)
}

/// Install a system call filter on top of those that hold.
pub fn install_filter(program: &seccompiler::BpfProgram) -> Result<()> {
    seccompiler::apply_filter(program).map_err(|error| match error {
        seccompiler::Error::Prctl(source) | seccompiler::Error::Seccomp(source) => source,
        other => Error::other(other.to_string()),
    })
}

/// Make an empty read-only file system the root of this process's own mount namespace; `folder`,
/// an absolute path, is the one empty folder in it, for a mount.
pub fn empty_root(folder: Option<&CStr>) -> Result<()> {
    let place = ["/tmp", "/mnt", "/var", "/proc"]
        .into_iter()
        .find(|path| std::path::Path::new(path).is_dir())
        .ok_or_else(|| Error::other("no folder to mount on"))?;
    let text = |s: &str| CString::new(s).map_err(Error::other);
    let (root, place, tmpfs) = (text("/")?, text(place)?, text("tmpfs")?);
    let (options, dot, none) = (text("size=4k,mode=555")?, text(".")?, ptr::null());
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all strings live through the calls; a null data pointer means no options.
    unsafe {
        // No mount of ours may travel back to the host's namespace.
        check(libc::mount(
            none,
            root.as_ptr(),
            none,
            libc::MS_REC | libc::MS_PRIVATE,
            ptr::null(),
        ))?;
        check(libc::mount(
            tmpfs.as_ptr(),
            place.as_ptr(),
            tmpfs.as_ptr(),
            flags,
            options.as_ptr().cast(),
        ))?;
        check(libc::chdir(place.as_ptr()))?;
        check_long(libc::syscall(
            libc::SYS_pivot_root,
            dot.as_ptr(),
            dot.as_ptr(),
        ))?;
        check(libc::umount2(dot.as_ptr(), libc::MNT_DETACH))?;
        check(libc::chdir(root.as_ptr()))?;
        if let Some(folder) = folder {
            check(libc::mkdir(folder.as_ptr(), 0o555))?;
        }
        let again = flags | libc::MS_REMOUNT | libc::MS_RDONLY;
        check(libc::mount(none, root.as_ptr(), none, again, ptr::null()))?;
    }
    Ok(())
}

/// Mount an empty file system in memory on `folder`: no program, device or set-uid file works in
/// it and no symbolic link is followed. `options` are those of tmpfs: size, nr_inodes, mode.
pub fn mount_scratch(folder: &CStr, options: &CStr) -> Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_NOATIME;
    // SAFETY: all strings live through the call.
    check(unsafe {
        libc::mount(
            c"tmpfs".as_ptr(),
            folder.as_ptr(),
            c"tmpfs".as_ptr(),
            flags | MS_NOSYMFOLLOW,
            options.as_ptr().cast(),
        )
    })
    .map(drop)
}

/// Refuses to follow symbolic links; Linux 5.10.
const MS_NOSYMFOLLOW: libc::c_ulong = 256;

/// Unmount what `mount_scratch` mounted.
pub fn unmount(folder: &CStr) -> Result<()> {
    // SAFETY: `folder` is a C string that lives through the call.
    check(unsafe { libc::umount2(folder.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Whether the file system at `folder` has every flag that `mount_scratch` asks for; an older
/// kernel drops the ones it does not know.
pub fn is_scratch(folder: &CStr) -> Result<bool> {
    const ST_NOSYMFOLLOW: libc::c_ulong = 0x2000;
    // SAFETY: an all-zero structure is valid, the call fills it, both live through the call.
    let flags = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(folder.as_ptr(), &raw mut found))?;
        found.f_flag
    };
    let all = libc::ST_NOSUID | libc::ST_NODEV | libc::ST_NOEXEC | ST_NOSYMFOLLOW;
    Ok(flags & all == all)
}

/// Raw attempts of a locked worker, for the self-test: the error number of each, 0 if it passed.
pub fn attempt(name: &str) -> i32 {
    let path = c"/";
    // SAFETY: each call either takes numbers or a string that lives through it; those that could
    // harm us (fork, exec) are made only in a throw-away worker, with arguments that do nothing.
    let code = unsafe {
        match name {
            "openat" => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), 0),
            "socket" => libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
            "execve" => libc::syscall(
                libc::SYS_execve,
                path.as_ptr(),
                ptr::null::<u8>(),
                ptr::null::<u8>(),
            ),
            "ptrace" => libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0),
            "kill" => libc::syscall(libc::SYS_kill, i32::MAX, 0),
            "unshare" => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
            "clone3" => libc::syscall(libc::SYS_clone3, ptr::null::<u8>(), 0),
            "clone" => libc::syscall(
                libc::SYS_clone,
                libc::CLONE_NEWNS | libc::CLONE_FS,
                0,
                0,
                0,
                0,
            ),
            "seccomp" => libc::syscall(libc::SYS_seccomp, 2, 0, 0),
            "bpf" => libc::syscall(libc::SYS_bpf, 0, 0, 0),
            "io_uring_setup" => libc::syscall(libc::SYS_io_uring_setup, 0, 0),
            "mprotect" => libc::syscall(libc::SYS_mprotect, 0, 0, libc::PROT_EXEC),
            "mmap" => libc::syscall(
                libc::SYS_mmap,
                0,
                4096,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            ),
            _ => return libc::EINVAL,
        }
    };
    if code < 0 {
        Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EINVAL)
    } else {
        0
    }
}

/// Keep a descriptor open for good (the worker's socket, owned by its number from here on).
pub fn keep(fd: OwnedFd) -> RawFd {
    use std::os::fd::IntoRawFd;
    fd.into_raw_fd()
}
