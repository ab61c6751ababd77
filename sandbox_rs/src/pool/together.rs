//! Several calls driven by one thread, none of which may hold up another; and calls whose pipes
//! somebody else may hold open, so that only a look at the state tells their end.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::Pool;
use super::direct::{Flight, Interrupted, SCRATCH};
use crate::error::{Fault, Result, Stage};
use crate::jail::sys::{io, pipe};
use crate::protocol::FrameReader;

/// How long the end of a call by others may go unseen.
const LOOK: Duration = Duration::from_millis(50);
/// How long one call may hold up the reading of those behind it.
const QUICK: Duration = Duration::from_millis(2);

/// A flight under way.
struct Leg<'a> {
    flight: &'a Flight,
    rest: &'a [u8],
    reader: FrameReader,
    open: bool,
}

impl Pool {
    /// Write all requests and read all answers, in whatever order the workers are ready.
    ///
    /// # Errors
    /// A signal came: the workers of the unfinished calls are ended.
    pub(super) fn drive(&self, flights: &[&Flight], interrupted: Interrupted<'_>) -> Result<()> {
        let mut legs: Vec<Leg<'_>> = flights
            .iter()
            .map(|flight| Leg {
                flight,
                rest: &flight.frame,
                reader: FrameReader::default(),
                open: true,
            })
            .collect();
        // Taken out and put back: a signal handler of Python may call us again meanwhile.
        let mut scratch = SCRATCH.take();
        if scratch.is_empty() {
            scratch = vec![0; 64 << 10];
        }
        let mut result = Ok(());
        for leg in &mut legs {
            leg.write();
        }
        // Where nothing is left to write, one read after the other does for those who are quick:
        // while we wait for one all others are served. The first that is not ends that.
        if legs.iter().all(|leg| leg.rest.is_empty()) {
            for leg in &mut legs {
                let ends = [(leg.flight.ends.replies.as_raw_fd(), false)];
                if !matches!(io::poll_ends(&ends, QUICK).as_deref(), Ok([true])) {
                    break;
                }
                let more = self.take(leg.flight, &mut leg.reader, &mut scratch);
                leg.open = more.unwrap_or(true);
            }
        }
        while result.is_ok() && legs.iter().any(|leg| leg.open) {
            result = self.round(&mut legs, &mut scratch, interrupted);
        }
        SCRATCH.set(scratch);
        if result.is_err() {
            let mut state = self.shared.lock();
            for leg in &legs {
                if Self::is_open(&state, leg.flight) {
                    state.cancel(leg.flight.session);
                }
                state.finished.remove(&leg.flight.operation);
            }
            self.after(state);
        }
        result
    }

    fn round(
        &self,
        legs: &mut [Leg<'_>],
        scratch: &mut [u8],
        interrupted: Interrupted<'_>,
    ) -> Result<()> {
        let mut ends = Vec::with_capacity(2 * legs.len());
        for leg in legs.iter().filter(|leg| leg.open) {
            ends.push((leg.flight.ends.replies.as_raw_fd(), false));
            if !leg.rest.is_empty() {
                ends.push((leg.flight.ends.requests.as_raw_fd(), true));
            }
        }
        let ready = match io::poll_ends(&ends, LOOK) {
            Ok(ready) => ready,
            Err(error) if error.kind() == ErrorKind::Interrupted => vec![false; ends.len()],
            Err(error) => return Err(error).stage("poll"),
        };
        if !ready.contains(&true) {
            if interrupted() {
                return Err(Fault::Interrupted);
            }
            let state = self.shared.lock();
            for leg in legs.iter_mut() {
                leg.open = leg.open && Self::is_open(&state, leg.flight);
            }
            return Ok(());
        }
        let mut ready = ready.into_iter();
        for leg in legs.iter_mut().filter(|leg| leg.open) {
            let readable = ready.next() == Some(true);
            if !leg.rest.is_empty() && ready.next() == Some(true) {
                leg.write();
            }
            if readable {
                // A signal that comes now is seen at the next wait.
                let more = self.take(leg.flight, &mut leg.reader, scratch);
                leg.open = more.unwrap_or(true);
            }
        }
        Ok(())
    }
}

impl Leg<'_> {
    /// Write what the pipe takes at once.
    fn write(&mut self) {
        match pipe::write_now(&self.flight.ends.requests, self.rest) {
            Ok(sent) => self.rest = &self.rest[sent..],
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => self.rest = &[], // it is dead; reading tells
        }
    }
}
