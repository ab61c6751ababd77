//! Pipes between host and workers.

use std::io::{Error, ErrorKind, Result};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::check;
use super::io::own;

/// A pipe: read end and write end; both close on exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors the call writes.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((own(fds[0]), own(fds[1])))
}

/// Calls on this descriptor answer `WouldBlock` instead of waiting.
pub fn set_nonblocking(fd: &OwnedFd) -> Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }).map(drop)
}

/// Flag of a write that sends no SIGPIPE, since Linux 6.18.
const RWF_NOSIGNAL: libc::c_int = 0x100;
/// Whether the kernel knows it.
static NO_SIGNAL: AtomicBool = AtomicBool::new(true);

/// One write to a pipe; it waits unless the descriptor is non-blocking. A pipe whose reader is
/// gone is an error and never a signal, whatever the program around us does with SIGPIPE.
pub fn write_now(fd: &OwnedFd, bytes: &[u8]) -> Result<usize> {
    if NO_SIGNAL.load(Ordering::Relaxed) {
        let unknown = [libc::EOPNOTSUPP, libc::EINVAL, libc::ENOSYS, libc::EPERM];
        match write_unsignalled(fd, bytes) {
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(|code| unknown.contains(&code)) =>
            {
                NO_SIGNAL.store(false, Ordering::Relaxed);
            }
            done => return done,
        }
    }
    write_masked(fd, bytes)
}

/// The same with the kernel's own flag: one call instead of two or six.
fn write_unsignalled(fd: &OwnedFd, bytes: &[u8]) -> Result<usize> {
    let part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: one part, which lives through the call and is only read; the offset -1 is none.
    let sent = unsafe { libc::pwritev2(fd.as_raw_fd(), &raw const part, 1, -1, RWF_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| Error::last_os_error())
}

/// The same on any kernel: the signal is held back for the time of the write, unless the program
/// ignores it.
fn write_masked(fd: &OwnedFd, bytes: &[u8]) -> Result<usize> {
    // SAFETY: all structures are initialised by the calls that fill them and live through those
    // that read them; pointer and length of the write come from one slice.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut action);
        let ignored = action.sa_sigaction == libc::SIG_IGN;
        let mut pipe: libc::sigset_t = zeroed();
        let mut before: libc::sigset_t = zeroed();
        let mut pending: libc::sigset_t = zeroed();
        if !ignored {
            libc::sigemptyset(&raw mut pipe);
            libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
            libc::sigpending(&raw mut pending);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        }
        let sent = libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
        let result = usize::try_from(sent).map_err(|_| Error::last_os_error());
        if !ignored {
            let broken = matches!(&result, Err(e) if e.kind() == ErrorKind::BrokenPipe);
            if broken && libc::sigismember(&raw const pending, libc::SIGPIPE) == 0 {
                let now: libc::timespec = zeroed();
                libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const now);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        }
        result
    }
}

/// Wait until a pipe has room, is closed, a signal comes, or the time is over.
pub fn wait_for_room(fd: &OwnedFd, most: Duration) {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `entry` lives through the call. However it ends, the next write tells.
    let _ = unsafe { libc::poll(&raw mut entry, 1, most.as_millis() as libc::c_int) };
}

/// One read; it waits unless the descriptor is non-blocking. 0 at the end of the stream.
pub fn read_now(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: pointer and length come from one slice that lives through the call.
    let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| Error::last_os_error())
}

/// Bytes that wait to be read.
pub fn unread(fd: &OwnedFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the call writes one integer to `count`.
    let code = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if code == 0 { count.max(0) as usize } else { 0 }
}

/// Whether nobody is left who could write to a pipe; something may still lie in it.
pub fn is_ended(fd: &OwnedFd) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: 0, // the end is always told
        revents: 0,
    };
    // SAFETY: `entry` lives through the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    ready == 1 && entry.revents & libc::POLLHUP != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_ended_when_nobody_can_write_whatever_lies_in_it() {
        let (reader, writer) = pipe().expect("a pipe");
        let other = writer.try_clone().expect("a copy");
        assert_eq!(write_now(&writer, b"four").expect("room"), 4);
        drop(writer);
        assert!(!is_ended(&reader), "somebody still can");
        drop(other);
        assert!(is_ended(&reader));
        assert_eq!(read_now(&reader, &mut [0; 8]).expect("bytes"), 4);
        assert!(is_ended(&reader));
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_no_signal_either_way() {
        // SAFETY: the kernel's own default; nobody else in this program writes to a closed pipe.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        for write in [write_now, write_masked] {
            let (reader, writer) = pipe().expect("a pipe");
            assert_eq!(write(&writer, b"four").expect("room"), 4);
            assert_eq!(unread(&reader), 4);
            drop(reader);
            let error = write(&writer, b"four").expect_err("nobody reads");
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            let (_reader, writer) = pipe().expect("a pipe");
            set_nonblocking(&writer).expect("a flag");
            assert!(write(&writer, &[0; 1 << 17]).expect("a part") < 1 << 17);
            let error = write(&writer, b"more").expect_err("it is full");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        // SAFETY: what was there before.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
