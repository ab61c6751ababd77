//! The synchronous front: the calling thread writes the request and reads the reply itself, so
//! that a step costs two context switches and no more. The I/O thread only watches the deadlines:
//! it kills a worker that is late, which ends the pipe that the thread blocks on.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::state::{Session, State};
use super::worker::Ends;
use super::{Done, Pool};
use crate::error::{Fault, Result};
use crate::jail::sys::pipe;
use crate::protocol::{FrameReader, Kind};

/// Asks whether the caller's process got a signal whose handler raised.
pub type Interrupted<'a> = &'a mut dyn FnMut() -> bool;

thread_local! {
    pub(super) static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A call that a thread drives.
pub(super) struct Flight {
    pub(super) id: u32,
    pub(super) operation: u64,
    pub(super) session: u64,
    pub(super) ends: Arc<Ends>,
    pub(super) frame: Vec<u8>,
    cap: usize,
}

impl Pool {
    /// Open a session and load its source.
    ///
    /// # Errors
    /// The queue is full, the pool is closed or broken, no worker could be started, a signal came.
    pub fn open_now(
        &self,
        source: &str,
        seed: &str,
        profile: usize,
        forkable: bool,
        interrupted: Interrupted<'_>,
    ) -> Result<(u64, Done)> {
        let (session, failed) = self.acquire(source, seed, profile, forkable, interrupted)?;
        if let Some(done) = failed {
            return Ok((session, done));
        }
        let mut state = self.checked()?;
        let source: Arc<str> = source.into();
        let (kind, body) = state.load_request(profile, &source, seed);
        let source = (kind == Kind::Load).then_some(source);
        let flight = Self::flight(&mut state, session, kind, &body, source)?;
        self.after(state);
        let done = match flight {
            Ok(flight) => self.fly(&flight, interrupted),
            Err(reply) => Ok(Ok(reply)),
        };
        Ok((session, self.or_forget(session, done)?))
    }

    /// Open a session and give it a worker, with nothing loaded; what came instead, if so.
    ///
    /// # Errors
    /// As `open_now`.
    pub fn acquire(
        &self,
        source: &str,
        seed: &str,
        profile: usize,
        forkable: bool,
        interrupted: Interrupted<'_>,
    ) -> Result<(u64, Option<Done>)> {
        let mut state = self.checked()?;
        let session = state.open(source, seed, profile, forkable)?;
        loop {
            match state.sessions.get(&session) {
                Some(Session::On(_)) => {
                    self.after(state);
                    return Ok((session, None));
                }
                Some(Session::Waiting) => {}
                Some(Session::Over(reply)) => return Ok((session, Some(Ok(reply.clone())))),
                Some(Session::Lost(detail)) => return Ok((session, Some(Err(detail.clone())))),
                None => {
                    let lost = Err("the session was closed while it waited".to_owned());
                    let done = state.finished.remove(&session).unwrap_or(lost);
                    return Ok((session, Some(done)));
                }
            }
            if let Some(done) = state.finished.remove(&session) {
                return Ok((session, Some(done)));
            }
            drop(self.pause(state)); // a signal's handler may use the pool
            if interrupted() {
                return self.or_forget(session, Err(Fault::Interrupted));
            }
            state = self.shared.lock();
        }
    }

    /// Call a session's worker and wait for the answer.
    ///
    /// # Errors
    /// The pool is closed or broken, the session has a call in flight, a signal came.
    pub fn call_now(
        &self,
        session: u64,
        kind: Kind,
        body: &[u8],
        interrupted: Interrupted<'_>,
    ) -> Result<Done> {
        let mut state = self.checked()?;
        let flight = Self::flight(&mut state, session, kind, body, None)?;
        self.after(state);
        match flight {
            Ok(flight) => self.fly(&flight, interrupted),
            Err(reply) => Ok(Ok(reply)),
        }
    }

    /// One call each on many sessions: all are written before the first is read. Answers come in
    /// the order of the calls.
    ///
    /// # Errors
    /// As `call_now`; a session that cannot be called at all is a fault of its own entry.
    pub fn call_many(
        &self,
        calls: &[(u64, Kind, &[u8])],
        interrupted: Interrupted<'_>,
    ) -> Result<Vec<Done>> {
        let mut state = self.checked()?;
        let mut flights = Vec::with_capacity(calls.len());
        for &(session, kind, body) in calls {
            flights.push(match Self::flight(&mut state, session, kind, body, None) {
                Ok(Ok(flight)) => Ok(flight),
                Ok(Err(reply)) => Err(Ok(reply)),
                Err(fault) => Err(Err(fault.to_string())),
            });
        }
        self.after(state);
        let flying: Vec<&Flight> = flights.iter().flatten().collect();
        self.drive(&flying, interrupted)?;
        let mut answers = Vec::with_capacity(flights.len());
        for flight in &flights {
            answers.push(match flight {
                Ok(flight) => self.landed(flight, interrupted),
                Err(done) => Ok(done.clone()),
            });
        }
        answers.into_iter().collect()
    }

    /// Copy a live session; the copy's number and answer.
    ///
    /// # Errors
    /// The session is not forkable, there is no room, the pool is closed or broken, a signal came.
    pub fn fork_now(
        &self,
        session: u64,
        seed: &str,
        interrupted: Interrupted<'_>,
    ) -> Result<(u64, Done)> {
        let mut state = self.checked()?;
        let asked = match state.fork(session, seed)? {
            Ok(asked) => asked,
            Err((copy, reply)) => {
                self.after(state);
                return Ok((copy, Ok(reply)));
            }
        };
        let number = asked.session;
        let parent = Self::flight_of(&state, asked.parent, session, asked.frame);
        let branch = Self::flight_of(&state, asked.branch, number, Vec::new());
        self.after(state);
        let (Some(parent), Some(branch)) = (parent, branch) else {
            return Ok((number, Err("the branch was lost".to_owned())));
        };
        let done = self.drive(&[&parent, &branch], interrupted);
        let done = done.and_then(|()| self.landed(&branch, interrupted));
        Ok((number, self.or_forget(number, done)?))
    }

    /// A session that a signal kept from being opened is known to nobody: it goes at once.
    fn or_forget<T>(&self, session: u64, done: Result<T>) -> Result<T> {
        if done.is_err() {
            let mut state = self.shared.lock();
            state.release(session);
            state.finished.remove(&session);
            self.after(state);
        }
        done
    }

    fn flight(
        state: &mut State,
        session: u64,
        kind: Kind,
        body: &[u8],
        source: Option<Arc<str>>,
    ) -> Result<std::result::Result<Flight, crate::outcome::Reply>> {
        let id = match state.worker_of(session)? {
            Ok(id) => id,
            Err(reply) => return Ok(Err(reply)),
        };
        let operation = state.operation();
        let frame = state.begin(id, operation, kind, body, source);
        Self::flight_of(state, id, session, frame)
            .map(Ok)
            .ok_or_else(|| Fault::broken("session", "its worker is gone"))
    }

    fn flight_of(state: &State, id: u32, session: u64, frame: Vec<u8>) -> Option<Flight> {
        let worker = state.workers.get(&id)?;
        let call = worker.call.as_ref()?;
        Some(Flight {
            id,
            operation: call.operation,
            session,
            ends: Arc::clone(&worker.ends),
            frame,
            cap: state.cap(call.kind),
        })
    }

    fn fly(&self, flight: &Flight, interrupted: Interrupted<'_>) -> Result<Done> {
        if flight.ends.control.is_some() {
            // Its pipe may outlive it: what it forked by itself holds the other ends too.
            self.drive(&[flight], interrupted)?;
            return self.landed(flight, interrupted);
        }
        self.send(flight, interrupted)?;
        self.receive(flight, interrupted)
    }

    fn send(&self, flight: &Flight, interrupted: Interrupted<'_>) -> Result<()> {
        self.send_from(flight, 0, interrupted)
    }

    /// Write the rest of a frame, waiting while the pipe is full. A worker that does not read is
    /// late before long, and its pipe closed.
    fn send_from(&self, flight: &Flight, from: usize, interrupted: Interrupted<'_>) -> Result<()> {
        let mut rest = &flight.frame[from..];
        while !rest.is_empty() {
            match pipe::write_now(&flight.ends.requests, rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(e) if e.kind() == ErrorKind::Interrupted => self.heed(flight, interrupted)?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    pipe::wait_for_room(&flight.ends.requests, Duration::from_millis(50));
                    self.heed(flight, interrupted)?;
                }
                Err(_) => return Ok(()), // it is dead; reading tells
            }
        }
        Ok(())
    }

    /// Read until the call is answered, by the worker or for it.
    fn receive(&self, flight: &Flight, interrupted: Interrupted<'_>) -> Result<Done> {
        self.pump(flight, interrupted)?;
        self.landed(flight, interrupted)
    }

    /// The answer of a call whose pipe has said all it will.
    fn landed(&self, flight: &Flight, interrupted: Interrupted<'_>) -> Result<Done> {
        let mut state = self.shared.lock();
        loop {
            if let Some(done) = state.finished.remove(&flight.operation) {
                return Ok(done);
            }
            drop(self.pause(state)); // a signal's handler may use the pool
            self.heed(flight, interrupted)?;
            state = self.shared.lock();
        }
    }

    /// Read the pipe until the worker's call is over or the pipe is.
    fn pump(&self, flight: &Flight, interrupted: Interrupted<'_>) -> Result<()> {
        // Taken out and put back: a signal handler of Python may call us again meanwhile.
        let mut scratch = SCRATCH.take();
        if scratch.is_empty() {
            scratch = vec![0; 64 << 10];
        }
        let result = self.pump_with(flight, interrupted, &mut scratch);
        SCRATCH.set(scratch);
        result
    }

    fn pump_with(
        &self,
        flight: &Flight,
        interrupted: Interrupted<'_>,
        scratch: &mut [u8],
    ) -> Result<()> {
        let mut reader = FrameReader::default();
        loop {
            match self.take(flight, &mut reader, scratch) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) => self.heed(flight, interrupted)?,
            }
        }
    }

    /// One read of a worker's pipe, and what follows from it. Whether more is to be read; an error
    /// if a signal came instead.
    pub(super) fn take(
        &self,
        flight: &Flight,
        reader: &mut FrameReader,
        scratch: &mut [u8],
    ) -> std::io::Result<bool> {
        let got = match pipe::read_now(&flight.ends.replies, scratch) {
            Ok(0) => {
                let mut state = self.shared.lock();
                if Self::is_open(&state, flight) {
                    state.closed(flight.id);
                }
                return Ok(false);
            }
            Ok(count) => count,
            Err(e) if e.kind() == ErrorKind::Interrupted => return Err(e),
            Err(_) => return Ok(false),
        };
        let mut bytes = &scratch[..got];
        while !bytes.is_empty() {
            let pushed = reader.push(bytes, flight.cap);
            let used = match &pushed {
                Ok((used, _)) => *used,
                Err(_) => bytes.len(),
            };
            bytes = &bytes[used..];
            let frame = match pushed {
                Ok((_, None)) => break,
                Ok((_, Some(frame))) => Ok(frame),
                Err(bad) => Err(bad),
            };
            let mut state = self.shared.lock();
            if !Self::is_open(&state, flight) {
                return Ok(false);
            }
            let open = match frame {
                Ok(frame) => state.frame(flight.id, &frame, !bytes.is_empty()),
                Err(bad) => {
                    let reply = state.refused(bad);
                    state.end(flight.id, reply);
                    false
                }
            };
            self.after(state);
            if !open {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn is_open(state: &State, flight: &Flight) -> bool {
        let worker = state.workers.get(&flight.id);
        let call = worker.and_then(|worker| worker.call.as_ref());
        call.is_some_and(|call| call.operation == flight.operation)
    }

    /// A signal came: go on, unless its handler raised.
    fn heed(&self, flight: &Flight, interrupted: Interrupted<'_>) -> Result<()> {
        if interrupted() {
            self.give_up(flight);
            return Err(Fault::Interrupted);
        }
        Ok(())
    }

    pub(super) fn give_up(&self, flight: &Flight) {
        let mut state = self.shared.lock();
        state.cancel(flight.session);
        state.finished.remove(&flight.operation);
        self.after(state);
    }

    /// Wait for news, for at most as long as a Ctrl-C may go unnoticed.
    fn pause<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // Answers of others must not be lost on the way.
        if std::mem::take(&mut state.news) {
            self.shared.done.notify_all();
        }
        let patience = Duration::from_millis(50);
        // Counted under the lock: who announces after releasing it sees the count.
        self.shared.waiters.fetch_add(1, Ordering::SeqCst);
        let waited = self.shared.done.wait_timeout(state, patience);
        self.shared.waiters.fetch_sub(1, Ordering::SeqCst);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
}
