//! Looking from inside whether a layer holds: each function does, or asks for, what the layer is
//! to refuse. No policy here; a layer's caller says what must be seen.

use std::ffi::CStr;
use std::io::{Error, Result};
use std::mem::zeroed;
use std::ptr;

use super::io::own;
use super::{check, check_long, process};

/// Error number of opening a path for reading; `None` if it opens.
pub fn open_error(path: &CStr) -> Option<i32> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path lives through the call; the descriptor is owned at once.
    let opened = check(unsafe { libc::open(path.as_ptr(), flags) }).map(own);
    opened.err().and_then(|error| error.raw_os_error())
}

/// Whether programs run later can gain no rights.
pub fn has_no_new_privileges() -> bool {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// Soft limit of the address space; `None` if there is none.
pub fn address_space() -> Result<Option<u64>> {
    let mut both = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `both` has room for what the call writes.
    check(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut both) })?;
    Ok((both.rlim_cur != libc::RLIM_INFINITY).then_some(both.rlim_cur))
}

/// Whether so much fresh memory can be mapped; it is given back untouched.
pub fn can_map(bytes: u64) -> bool {
    let Ok(length) = usize::try_from(bytes) else {
        return false;
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at a place of the kernel's choice, unmapped whole and never touched.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), length, access, kind, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, length) == 0
    }
}

/// Which of the first `count` descriptors are open.
pub fn open_descriptors(count: i32) -> Vec<i32> {
    // SAFETY: takes numbers.
    let is_open = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    (0..count).filter(is_open).collect()
}

/// Own process id, in the innermost namespace.
pub fn process_id() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// Whether this process has any capability, or could take one up.
pub fn has_capabilities() -> Result<bool> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let mut header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: version 3 writes two triples, for which there is room.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    let [effective, permitted] = [0, 1].map(|at| sets[0][at] | sets[1][at]);
    Ok(effective | permitted != 0)
}

/// Names of the network interfaces that are up.
pub fn interfaces_up() -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the list is read between the call that made it and the one that frees it; every
    // entry has a name that ends in a null byte.
    unsafe {
        check(libc::getifaddrs(&raw mut first))?;
        let mut at = first;
        while let Some(entry) = at.as_ref() {
            let name = CStr::from_ptr(entry.ifa_name)
                .to_string_lossy()
                .into_owned();
            if entry.ifa_flags & libc::IFF_UP as u32 != 0 && !names.contains(&name) {
                names.push(name);
            }
            at = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(names)
}

/// Number of System V semaphore sets that can be reached.
pub fn semaphore_sets() -> Result<i32> {
    // SAFETY: an all-zero structure is valid, and the call fills in no more than its size.
    unsafe {
        let mut info: libc::seminfo = zeroed();
        match check(libc::semctl(0, 0, libc::SEM_INFO, &raw mut info)) {
            Ok(_) => Ok(info.semusz), // with this command: the sets that there are
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// Do `steps` in a throw-away child; its first error. For steps that cannot be undone.
///
/// # Errors
/// What failed in the child, by its error number; the child could not be made or was killed.
pub fn rehearse(steps: impl FnOnce() -> Result<()>) -> Result<()> {
    // SAFETY: the caller is an exec'd program with one thread, so no lock can be held by another.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        let code = match steps() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(255) & 255,
        };
        process::leave(code);
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` has room for the one integer the call writes.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, 255) => Err(Error::other("a rehearsal saw what must not be")),
        (true, code) => Err(Error::from_raw_os_error(code)),
        (false, _) => Err(Error::other(format!(
            "a rehearsal was killed by signal {}",
            libc::WTERMSIG(status)
        ))),
    }
}
