//! Proofs that layers hold, by doing what they are to refuse. A layer counts only when its proof
//! passes; the proof of the cgroup is in `cgroup`, those of the filters run in a worker.

use std::ffi::CStr;
use std::fs;
use std::io::{Error, Result};

use super::sys::attempt::FORBIDDEN;
use super::sys::{confine, process, seen};

/// Descriptors that are looked at; a worker may have at most a few more than this open.
const DESCRIPTORS: i32 = 256;

fn claim(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::other(otherwise()))
    }
}

/// In a new network namespace: no interface is up.
///
/// # Errors
/// Those that are.
pub fn network() -> Result<()> {
    let up = seen::interfaces_up()?;
    claim(up.is_empty(), || {
        format!("interfaces are up: {}", up.join(" "))
    })
}

/// In a new IPC namespace: no semaphores of others.
///
/// # Errors
/// What is still to be seen.
pub fn ipc() -> Result<()> {
    let found = seen::semaphore_sets()?;
    claim(found == 0, || {
        format!("{found} semaphore sets of others can be reached")
    })
}

/// In the first process of a PID namespace: it is the first.
///
/// # Errors
/// Its number is another.
pub fn first_process() -> Result<()> {
    let number = seen::process_id();
    claim(number == 1, || {
        format!("the first process has number {number}")
    })
}

/// A worker can become user `id` (if given) and then has no rights left. Tried in a throw-away
/// child.
///
/// # Errors
/// The change is refused, or rights stay.
pub fn identity(id: Option<u32>) -> Result<()> {
    seen::rehearse(|| {
        match id {
            Some(id) => confine::become_user(id)?,
            None => confine::drop_capabilities()?,
        }
        claim(!seen::has_capabilities()?, String::new)?;
        let (user, _) = process::identity();
        claim(id.is_none_or(|id| id == user), String::new)
    })
}

/// Behind an empty root: it holds nothing but `folder`, and nothing can be written.
///
/// # Errors
/// What is there, or that it is writable.
pub fn empty_root(folder: Option<&CStr>) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/")? {
        names.push(entry?.path());
    }
    let known = folder.map(|folder| folder.to_string_lossy().into_owned());
    names.retain(|name| name.to_str() != known.as_deref());
    claim(names.is_empty(), || {
        format!("the root still holds {names:?}")
    })?;
    let refused = fs::write("/spade-proof", "").is_err();
    claim(refused, || "the root is writable".to_owned())
}

/// Behind a limit of `bytes` of address space: so much more cannot be mapped.
///
/// # Errors
/// It can.
pub fn address_space(bytes: u64) -> Result<()> {
    claim(!seen::can_map(bytes), || {
        format!("{bytes} bytes could be mapped")
    })
}

/// After the step of that name.
///
/// # Errors
/// The kernel does not say so.
pub fn no_new_privileges() -> Result<()> {
    let text = "the kernel does not say so";
    claim(seen::has_no_new_privileges(), || text.to_owned())
}

/// In a Landlock domain that grants nothing: the root does not open, for want of permission.
///
/// # Errors
/// What happened instead.
pub fn landlock() -> Result<()> {
    let code = seen::open_error(c"/");
    claim(code == Some(libc::EACCES), || match code {
        None => "the root still opens".to_owned(),
        Some(code) => format!("opening the root fails with error {code}, not EACCES"),
    })
}

/// In a locked, throw-away worker: names of what was not refused, or not as it must be.
///
/// `alone` says that it must be the first process of its namespace, `own_user` that it must not
/// be root.
pub fn failures_of_worker(alone: bool, own_user: bool) -> Vec<String> {
    let is_refused = |code| code == libc::EPERM || code == libc::ENOSYS;
    let passed = FORBIDDEN.iter().filter(|call| !is_refused(call.errno()));
    let mut failures: Vec<String> = passed.map(|call| call.name.to_owned()).collect();
    let mut expect = |holds: bool, name: &str| {
        if !holds {
            failures.push(name.to_owned());
        }
    };
    let opened = seen::open_error(c"/");
    expect(
        opened.is_some_and(|code| is_refused(code) || code == libc::EACCES),
        "open",
    );
    expect(!alone || seen::process_id() == 1, "other_processes");
    expect(!own_user || process::identity().0 != 0, "user_root");
    expect(seen::open_descriptors(DESCRIPTORS) == [0, 1], "descriptors");
    let limit = seen::address_space().ok().flatten();
    expect(limit.is_none_or(|bytes| !seen::can_map(bytes)), "memory");
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_fail_where_nothing_is_locked() {
        assert!(landlock().is_err());
        assert!(empty_root(None).is_err());
        assert!(first_process().is_err());
        let text = network().map_err(|e| e.to_string());
        assert!(text.is_err_and(|text| text.contains("lo")));
        assert!(address_space(1 << 20).is_err());
        assert!(address_space(1 << 60).is_ok());
    }

    #[test]
    fn forbidden_calls_that_nobody_refuses_are_named() {
        let found = failures_of_worker(true, false);
        // An ordinary user is refused some of them by the kernel itself.
        assert!(found.len() > 30, "{found:?}");
        for name in [
            "fork",
            "execve",
            "socket",
            "mmap_execute",
            "open",
            "other_processes",
        ] {
            assert!(found.iter().any(|f| f == name), "{name} in {found:?}");
        }
    }

    #[test]
    fn a_rehearsal_changes_nothing_here_and_keeps_the_error() {
        identity(None).expect("rights can always be given up");
        let (user, _) = process::identity();
        if user == 0 {
            identity(Some(0x7000_0000)).expect("root becomes anybody");
            assert_eq!(process::identity().0, 0);
        } else {
            let code = identity(Some(0x7000_0000)).map_err(|e| e.raw_os_error());
            assert_eq!(code, Err(Some(libc::EPERM)));
        }
    }
}
