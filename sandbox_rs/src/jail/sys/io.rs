//! Sockets, descriptor passing, epoll, timers.

use std::io::{Error, ErrorKind, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::check;

/// Longest wait for receivers to take descriptors out.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connected pair of unix sockets; both ends close on exec.
pub fn socket_pair(packets: bool) -> Result<(OwnedFd, OwnedFd)> {
    let kind = if packets {
        libc::SOCK_SEQPACKET
    } else {
        libc::SOCK_STREAM
    };
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors the call writes.
    check(unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            kind | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )
    })?;
    Ok((own(fds[0]), own(fds[1])))
}

/// Take ownership of a descriptor the kernel has just made for us.
pub(super) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that a call has just returned and nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Take ownership of an inherited descriptor by number, once, at the start of an exec'd program.
pub fn adopt(fd: RawFd) -> OwnedFd {
    own(fd)
}

/// Packets received here carry the process id of their sender, filled in by the kernel.
pub fn pass_credentials(fd: &OwnedFd) -> Result<()> {
    let one: libc::c_int = 1;
    // SAFETY: pointer and length name one integer that lives through the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Process id of the sender of the one packet that waits, in this process's namespace.
/// Descriptors in it are refused: there is no room for them, so the kernel drops them.
pub fn credentials(fd: &OwnedFd) -> Option<i32> {
    let mut bytes = [0u8; 8];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    #[repr(C, align(8))]
    struct Room([u8; 32]); // one header and one ucred, exactly
    let mut room = Room([0; 32]);
    // SAFETY: an all-zero msghdr is valid; it points to buffers that live through the call, and
    // the kernel writes well-formed control messages within msg_controllen.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = room.0.len() as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        if libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) <= 0 {
            return None;
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_CREDENTIALS {
            return None;
        }
        let sender: libc::ucred = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
        (sender.pid > 0).then_some(sender.pid)
    }
}

/// Blocking read of a raw descriptor, for the worker's own loop.
pub fn read(fd: RawFd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: pointer and length come from one slice that lives through the call.
        let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(got) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Blocking write of all bytes to a raw descriptor.
pub fn write_all(fd: RawFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length come from one slice that lives through the call.
        let sent = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(sent) {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => {
                let error = Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// End a connection in both directions, whoever else holds a copy of it.
pub fn hang_up(fd: &OwnedFd) {
    // SAFETY: takes numbers; failing means the connection has already ended.
    let _ = unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Room for the control message of up to four descriptors, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Send one packet with descriptors.
pub fn send_with(fd: RawFd, bytes: &[u8], fds: &[RawFd], wait: bool) -> Result<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; 64]);
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    let payload = size_of_val(fds);
    if !fds.is_empty() {
        assert!(fds.len() <= 4, "room for four descriptors");
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: pure arithmetic on a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload as u32) } as _;
        // SAFETY: `control` is aligned and larger than CMSG_SPACE of four descriptors (40 bytes),
        // so the header and its data lie inside it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload as u32) as _;
            ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(header), payload);
        }
    }
    let begun = Instant::now();
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: `message` points to buffers that live through the call.
        let sent = unsafe { libc::sendmsg(fd, &raw const message, flags) };
        if sent >= 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        if error.raw_os_error() == Some(libc::ETOOMANYREFS) && begun.elapsed() < PATIENCE {
            // More descriptors of this user are on their way than one process may have open: the
            // receivers, which are ours, take them out before long.
            std::thread::sleep(Duration::from_micros(200));
        } else if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receive one packet and its descriptors (close on exec). Length 0 is the end.
pub fn recv_with(fd: RawFd, buffer: &mut [u8], wait: bool) -> Result<(usize, Vec<OwnedFd>)> {
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control([0; 64]);
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    let got = loop {
        // SAFETY: `message` points to buffers that live through the call.
        let got = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
        if let Ok(count) = usize::try_from(got) {
            break count;
        }
        let error = Error::last_os_error();
        // A peer that left with requests unread resets the connection: told once, and what it had
        // said before can still be received.
        let goes_on = [ErrorKind::Interrupted, ErrorKind::ConnectionReset];
        if !goes_on.contains(&error.kind()) {
            return Err(error);
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel wrote well-formed control messages within msg_controllen; each SCM_RIGHTS
    // message holds whole descriptors that now belong to us alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    fds.push(own(ptr::read_unaligned(data.add(i))));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((got, fds))
}

/// Wait until one of the descriptors is readable or hung up; `None` waits for ever.
pub fn poll_readable(fds: &[RawFd], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let millis = timeout.map_or(-1, |t| i32::try_from(t.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: pointer and length come from one vector that lives through the call.
    match check(unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, millis) }) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(list.iter().map(|entry| entry.revents != 0).collect()),
    }
}

/// Wait until one of these can be read (or, if so marked, written) or is hung up. Unlike
/// `poll_readable` it ends with `Interrupted` when a signal comes.
pub fn poll_ends(ends: &[(RawFd, bool)], timeout: Duration) -> Result<Vec<bool>> {
    let entry = |&(fd, write)| libc::pollfd {
        fd,
        events: if write { libc::POLLOUT } else { libc::POLLIN },
        revents: 0,
    };
    let mut list: Vec<libc::pollfd> = ends.iter().map(entry).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: pointer and length come from one vector that lives through the call.
    check(unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, millis) })?;
    Ok(list.iter().map(|entry| entry.revents != 0).collect())
}

/// A new epoll instance.
pub fn epoll() -> Result<OwnedFd> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(own)
}

/// Watch a descriptor for input, under a token.
pub fn watch(epoll: &OwnedFd, fd: &OwnedFd, token: u64) -> Result<()> {
    add(epoll, fd, token, libc::EPOLLIN)
}

/// Watch a descriptor for room to write, under a token.
pub fn watch_room(epoll: &OwnedFd, fd: &OwnedFd, token: u64) -> Result<()> {
    add(epoll, fd, token, libc::EPOLLOUT)
}

fn add(epoll: &OwnedFd, fd: &OwnedFd, token: u64, events: libc::c_int) -> Result<()> {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: token,
    };
    let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: `event` lives through the call.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Stop watching a descriptor.
pub fn unwatch(epoll: &OwnedFd, fd: &OwnedFd) {
    let none = ptr::null_mut();
    // SAFETY: the kernel ignores the event of a removal.
    let _ =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), none) };
}

/// Wait for events; (token, readable or hung up, writable).
pub fn wait_events(epoll: RawFd) -> Result<Vec<(u64, bool, bool)>> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    // SAFETY: `events` has room for the 64 entries announced.
    let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 64, -1) };
    let count = match check(count) {
        Err(error) if error.kind() == ErrorKind::Interrupted => 0,
        other => other? as usize,
    };
    let readable = (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32;
    Ok(events[..count]
        .iter()
        .map(|e| {
            let (bits, token) = (e.events, e.u64);
            (
                token,
                bits & readable != 0,
                bits & libc::EPOLLOUT as u32 != 0,
            )
        })
        .collect())
}

/// A counter that wakes whoever polls it.
pub fn event_fd() -> Result<OwnedFd> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(own)
}

/// Add one to an event counter.
pub fn ring(fd: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the buffer holds eight bytes. A full counter already wakes the reader.
    let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), 8) };
}

/// Empty an event counter or a timer.
pub fn hush(fd: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: the buffer holds eight bytes. Nothing to read is fine.
    let _ = unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
}

/// A monotonic timer.
pub fn timer() -> Result<OwnedFd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: takes no pointer.
    check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).map(own)
}

/// Let the timer ring once after `delay`.
pub fn arm(timer: &OwnedFd, delay: Duration) -> Result<()> {
    let delay = delay.max(Duration::from_micros(1)); // zero would disarm it
    let spec = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: libc::timespec {
            tv_sec: delay.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(delay.subsec_nanos()),
        },
    };
    // SAFETY: `spec` lives through the call; no old value is asked for.
    check(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const spec, ptr::null_mut()) })
        .map(drop)
}

/// Process id of the other end's creator.
pub fn peer_pid(fd: RawFd) -> Result<i32> {
    // SAFETY: an all-zero ucred is valid, and the length names its size.
    unsafe {
        let mut cred: libc::ucred = zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        check(libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut length,
        ))?;
        Ok(cred.pid)
    }
}
