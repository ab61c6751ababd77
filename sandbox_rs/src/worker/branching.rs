//! A worker copies itself when the host asks for it.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::{Handlers, in_runner};
use crate::jail::child::{FORKS, lock_branch};
use crate::jail::plan::Plan;
use crate::jail::sys::{io, process};
use crate::limits::Limits;
use crate::outcome::{Outcome, Reply};

/// Between two tries at a clone that was refused for want of processes.
const PAUSE: Duration = Duration::from_millis(2);

/// Copy this worker: the host has sent the copy's ends. Both sides answer on their own pipe.
pub(super) fn fork(
    py: Python<'_>,
    handlers: &Handlers,
    plan: &Plan,
    limits: &Limits,
    seed: &[u8],
) -> Result<Reply> {
    let mut byte = [0; 1];
    let (_, fds) = io::recv_with(FORKS, &mut byte, true)?;
    let Ok([requests, replies, control]) = <[OwnedFd; 3]>::try_from(fds) else {
        return Err(Error::other("its ends did not arrive"));
    };
    let cloned = patiently(limits.load_wall_s, limits.branches, || {
        process::clone_branch(plan.thread_id_address)
    });
    if cloned? {
        let raw = [&requests, &replies, &control].map(AsRawFd::as_raw_fd);
        if lock_branch(plan, raw[0], raw[1], raw[2]).is_err() {
            process::leave(71);
        }
        // Their numbers mean something else by now.
        std::mem::forget((requests, replies, control));
        // The kernel adds our process id as the host sees it.
        io::write_all(FORKS, b"B")?;
        if !seed.is_empty() {
            let text = std::str::from_utf8(seed).unwrap_or("0");
            if let Err(error) = handlers.branch.call1(py, (text,)) {
                return Ok(in_runner(py, &error));
            }
        }
    }
    Ok(Reply::failed(Outcome::Finished, ""))
}

/// Try to clone while the family has all its processes: one that was closed a moment ago counts
/// until the kernel has taken it away.
///
/// # Errors
/// The clone was refused; for want of processes only after half of the time that the host gives a
/// fork, so that the answer comes before the end of the worker does.
fn patiently(
    load_wall_s: f64,
    branches: u32,
    mut clone: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let patience_s = load_wall_s / 2.0;
    let begun = Instant::now();
    loop {
        match clone() {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                if begun.elapsed().as_secs_f64() >= patience_s {
                    let text = format!(
                        "the family had all its processes (branches = {branches}, what they made \
                         counts) for {patience_s} s, half of load_wall_s: {error}; close some or \
                         raise branches"
                    );
                    return Err(Error::new(error.kind(), text));
                }
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<bool> {
        Err(Error::from_raw_os_error(libc::EAGAIN))
    }

    #[test]
    fn a_refused_clone_is_tried_for_half_of_the_load_time_and_the_error_says_so() {
        let begun = Instant::now();
        let error = patiently(0.25, 3, refused).expect_err("never a process");
        assert!(begun.elapsed() >= Duration::from_millis(125));
        let text = error.to_string();
        assert!(text.contains("for 0.125 s, half of load_wall_s"), "{text}");
        assert!(text.contains("branches = 3"), "{text}");
        assert!(text.contains("temporarily unavailable"), "{text}");
    }

    #[test]
    fn a_clone_that_is_let_through_late_succeeds_however_often_it_was_refused() {
        let mut tries = 0;
        let done = patiently(3600.0, 3, || {
            tries += 1;
            if tries <= 250 { refused() } else { Ok(true) }
        });
        assert!(done.expect("let through"));
    }

    #[test]
    fn any_other_refusal_is_final() {
        let mut tries = 0;
        let error = patiently(3600.0, 3, || {
            tries += 1;
            Err(Error::from_raw_os_error(libc::ENOMEM))
        });
        assert_eq!(
            error.expect_err("refused").raw_os_error(),
            Some(libc::ENOMEM)
        );
        assert_eq!(tries, 1);
    }
}
