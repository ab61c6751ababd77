//! Measuring probes: what kernel and machine give at best, timed natively at both ends.
//!
//! Used by the benches only, never by the pool. The limits that the jail is held against are
//! measured here in the same run: F, a raw clone of a warm interpreter up to its first byte, and R,
//! a round trip over two pipes. Both ends are exec'd interpreters that load this module by its
//! file, as the template is, so their page tables are those of a real template.

use std::io::{Error, PipeReader, PipeWriter, Result};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use crate::jail::sys::{bare, io, process};

const REQUESTS: RawFd = 0;
const REPLIES: RawFd = 1;
/// Bytes of a no-op in each direction.
const NOOP_BYTES: usize = 64;

/// Serve clones of this interpreter. Never returns.
///
/// In: a byte per request. Out: nanoseconds from just before the clone to the child's first byte,
/// and nanoseconds until the child was collected, both u64 in little-endian order.
pub fn template() -> ! {
    let served = serve_clones();
    process::leave(i32::from(served.is_err()))
}

fn serve_clones() -> Result<()> {
    if process::identity().0 != 0 {
        process::unshare(libc::CLONE_NEWUSER)?; // gives the right to the namespace below
    }
    let (reader, writer) = std::io::pipe()?;
    let mut request = [0; 1];
    while io::read(REQUESTS, &mut request)? == 1 {
        let (first, whole) = clone_timed(&reader, &writer)?;
        let mut reply = first.to_le_bytes().to_vec();
        reply.extend_from_slice(&whole.to_le_bytes());
        io::write_all(REPLIES, &reply)?;
    }
    Ok(())
}

fn clone_timed(reader: &PipeReader, writer: &PipeWriter) -> Result<(u64, u64)> {
    let mut byte = [0; 1];
    let begun = Instant::now();
    bare::clone_once(libc::CLONE_NEWPID, || {
        // A failure shows in the parent, which then waits for the byte in vain and is ended.
        let _ = io::write_all(writer.as_raw_fd(), b"x");
    })?;
    let got = io::read(reader.as_raw_fd(), &mut byte)?;
    let first = begun.elapsed();
    if got != 1 {
        return Err(Error::other("the clone said nothing"));
    }
    process::collect(true);
    Ok((first.as_nanos() as u64, begun.elapsed().as_nanos() as u64))
}

/// Send every no-op back. Never returns.
pub fn echo() -> ! {
    let mut buffer = [0; NOOP_BYTES];
    loop {
        match io::read(REQUESTS, &mut buffer) {
            Ok(count) if count > 0 && io::write_all(REPLIES, &buffer[..count]).is_ok() => {}
            _ => process::leave(0),
        }
    }
}

/// Nanoseconds of each of `count` no-op round trips with a process that runs `echo`.
///
/// # Errors
/// The other end is gone.
pub fn round_trips(requests: RawFd, replies: RawFd, count: usize) -> Result<Vec<u64>> {
    let mut buffer = [0; NOOP_BYTES];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        io::write_all(requests, &buffer)?;
        if io::read(replies, &mut buffer)? != NOOP_BYTES {
            return Err(Error::other("the other end of the pipe is gone"));
        }
        times.push(begun.elapsed().as_nanos() as u64);
    }
    Ok(times)
}
