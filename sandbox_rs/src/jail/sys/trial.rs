//! Throw-away children that try a limit from inside, for probes at start and for tests.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::{check, io, process};

/// A child that waits for leave to touch memory, and then for leave to end.
#[derive(Debug)]
pub struct Toucher {
    /// Process id as the caller sees it.
    pub pid: i32,
    pidfd: OwnedFd,
    gate: OwnedFd,
}

/// Longest wait for a step of the child.
const PATIENCE: Duration = Duration::from_secs(20);

impl Toucher {
    /// Fork a child that will touch `bytes` of fresh memory.
    ///
    /// # Errors
    /// No pipe, process or descriptor is to be had.
    pub fn start(bytes: usize) -> Result<Self> {
        let (gate, inner) = io::socket_pair(false)?;
        // SAFETY: the child makes only plain system calls on its copies and leaves without
        // returning, so no lock that another thread held can matter.
        let pid = check(unsafe { libc::fork() })?;
        if pid == 0 {
            touch(&gate, &inner, bytes);
        }
        let pidfd = process::pidfd_open(pid)?;
        Ok(Self { pid, pidfd, gate })
    }

    /// Let it touch; true once it has, false if it was killed meanwhile.
    ///
    /// # Errors
    /// It neither answered nor ended.
    pub fn touch(&self) -> Result<bool> {
        io::write_all(self.gate.as_raw_fd(), b"t")?;
        // Both: another child that was forked meanwhile may hold the far end open.
        let fds = [self.gate.as_raw_fd(), self.pidfd.as_raw_fd()];
        let ready = io::poll_readable(&fds, Some(PATIENCE))?;
        if ready[0] {
            return Ok(io::read(fds[0], &mut [0]).unwrap_or(0) == 1);
        }
        if !ready[1] {
            let text = "the child neither touched its memory nor was killed";
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        Ok(false)
    }

    /// End and collect it; its exit code, or minus the signal that killed it.
    ///
    /// # Errors
    /// It is not our child any more.
    pub fn end(self) -> Result<i32> {
        io::hang_up(&self.gate);
        if !io::poll_readable(&[self.pidfd.as_raw_fd()], Some(PATIENCE))?[0] {
            process::kill(&self.pidfd);
        }
        let mut status = 0;
        loop {
            // SAFETY: `status` has room for the one integer the call writes.
            match check(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) if libc::WIFSIGNALED(status) => return Ok(-libc::WTERMSIG(status)),
                Ok(_) => return Ok(libc::WEXITSTATUS(status)),
            }
        }
    }
}

/// The child: wait, touch, say so, wait for the end. Exit code 1 when memory is refused.
fn touch(gate: &OwnedFd, inner: &OwnedFd, bytes: usize) -> ! {
    // SAFETY: closes the parent's end by number, so that its closing is seen here; this process
    // never uses or drops it. The mapping is fresh, ours, and written within its length only.
    unsafe {
        libc::close(gate.as_raw_fd());
        let fd = inner.as_raw_fd();
        if !matches!(io::read(fd, &mut [0]), Ok(1)) {
            process::leave(0);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0);
        if start == libc::MAP_FAILED {
            process::leave(1);
        }
        for at in (0..bytes).step_by(4096) {
            start.cast::<u8>().add(at).write_volatile(1);
        }
        let _ = io::write_all(fd, b"d");
        let _ = io::read(fd, &mut [0]);
    }
    process::leave(0)
}

/// A child that tries to fork `count` children of its own at once; how many forks were refused.
///
/// # Errors
/// The first child cannot be made or collected.
pub fn refused_forks(count: u8, ready: impl FnOnce(i32) -> Result<()>) -> Result<i32> {
    let (gate, inner) = io::socket_pair(false)?;
    // SAFETY: as in `Toucher::start`.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        let _ = io::read(inner.as_raw_fd(), &mut [0]);
        let mut refused = 0;
        for _ in 0..count {
            // SAFETY: the grandchild leaves at once; it stays a zombie and so keeps counting.
            match unsafe { libc::fork() } {
                0 => process::leave(0),
                child if child < 0 => refused += 1,
                _ => {}
            }
        }
        process::leave(refused)
    }
    ready(pid)?;
    io::write_all(gate.as_raw_fd(), b"f")?;
    let pidfd = process::pidfd_open(pid)?;
    Toucher { pid, pidfd, gate }.end()
}
