//! The host's side: a pool of workers, a thread that owns deadlines, completions for Python.
//!
//! Any thread may submit. In a blocking pool the calling thread talks to the worker itself
//! (`direct`); in the other the I/O thread reads replies and completions are drained. In both it
//! judges deadlines, kills, refills the spares, and starts a new broker when the old one dies.
//! Nothing here blocks on untrusted code except the thread whose call it is.

mod branch;
mod call;
mod code;
mod control;
mod direct;
mod ending;
mod io_thread;
mod launch;
mod numbered;
mod reply;
mod state;
mod stray;
mod together;
mod worker;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::capability::Report;
use crate::error::{Fault, Result, Stage};
use crate::jail::sys::{io, process};
use crate::limits::Limits;
use crate::outcome::Reply;
use crate::protocol::Kind;
use crate::stats::Event;
pub use direct::Interrupted;
use launch::{Stub, launch};
pub use numbered::Numbered;
use state::{State, TOKEN_CONTROL, TOKEN_TIMER, TOKEN_WAKE};
pub use worker::Used;

/// What became of an operation: a reply, or the text of a fault of ours.
pub type Done = std::result::Result<Reply, String>;

struct Shared {
    state: Mutex<State>,
    done: Condvar,
    wake: OwnedFd,
    done_fd: OwnedFd,
    stop: AtomicBool,
    epoll: OwnedFd,
    /// Threads that wait for news.
    waiters: AtomicUsize,
    stub: Mutex<Option<Stub>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held is a fault of ours that has already been reported.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running pool.
pub struct Pool {
    owner: u32,
    /// Forks between the first process and this one when the pool was started.
    forks: u64,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Pool {
    /// Start broker and templates, and wait until all are ready.
    ///
    /// # Errors
    /// A layer that must hold is missing, or the machinery cannot start.
    pub fn start(limits: Limits) -> Result<Self> {
        let forks = process::count_forks();
        let stop = AtomicBool::new(false);
        let launched = launch(&limits, &stop)?;
        let epoll = io::epoll().stage("epoll")?;
        let wake = io::event_fd().stage("eventfd")?;
        let timer = io::timer().stage("timer")?;
        io::watch(&epoll, &wake, TOKEN_WAKE).stage("epoll")?;
        io::watch(&epoll, &timer, TOKEN_TIMER).stage("epoll")?;
        io::watch(&epoll, &launched.control, TOKEN_CONTROL).stage("epoll")?;
        let watcher = epoll.try_clone().stage("epoll")?;
        let mut state = State::new(limits, launched.control, launched.report, watcher, timer);
        state.refill();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            done: Condvar::new(),
            wake,
            done_fd: io::event_fd().stage("eventfd")?,
            stop,
            epoll,
            waiters: AtomicUsize::new(0),
            stub: Mutex::new(Some(launched.stub)),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sandbox-io".to_owned())
            .spawn(move || io_thread::run(&own))
            .stage("I/O thread")?;
        Ok(Self {
            owner: std::process::id(),
            forks,
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// What holds on this machine.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn report(&self) -> Result<Report> {
        self.own()?;
        Ok(self.shared.lock().report.clone())
    }

    /// Descriptor that becomes readable when completions wait.
    pub fn done_fd(&self) -> i32 {
        self.shared.done_fd.as_raw_fd()
    }

    fn own(&self) -> Result<()> {
        if process::num_forks() == self.forks {
            return Ok(());
        }
        Err(Fault::WrongProcess {
            owner: self.owner,
            caller: std::process::id(),
        })
    }

    fn checked(&self) -> Result<MutexGuard<'_, State>> {
        self.own()?; // before the lock, which may have been held when the owner forked
        let state = self.shared.lock();
        match &state.broken {
            Some(detail) => Err(Fault::broken("pool", detail.clone())),
            None if self.shared.stop.load(Ordering::Relaxed) => Err(Fault::Closed),
            None => Ok(state),
        }
    }

    /// Ask for a worker and load a source in it. The session is named by the operation.
    ///
    /// # Errors
    /// The queue is full, or the pool is closed or broken.
    pub fn open(&self, source: &str, seed: &str, profile: usize, forkable: bool) -> Result<u64> {
        let mut state = self.checked()?;
        let operation = state.open(source, seed, profile, forkable)?;
        self.after(state);
        Ok(operation)
    }

    /// Call a session's worker.
    ///
    /// # Errors
    /// The pool is closed or broken, or the session has a call in flight.
    pub fn call(&self, session: u64, kind: Kind, body: &[u8]) -> Result<u64> {
        let mut state = self.checked()?;
        let operation = state.call(session, kind, body)?;
        self.after(state);
        Ok(operation)
    }

    /// Copy a live session. The copy is named by the operation.
    ///
    /// # Errors
    /// The session is not forkable, there is no room, the pool is closed or broken.
    pub fn fork(&self, session: u64, seed: &str) -> Result<u64> {
        let mut state = self.checked()?;
        let operation = match state.fork(session, seed)? {
            Ok(asked) => {
                state.write(asked.parent, asked.frame);
                asked.session
            }
            Err((copy, reply)) => {
                state.repeat(copy, reply);
                copy
            }
        };
        self.after(state);
        Ok(operation)
    }

    /// End a session; its worker is killed by the I/O thread. Never waits.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn release(&self, session: u64) -> Result<()> {
        self.settle(|state| state.release(session))
    }

    /// End a session's worker now, whatever it does; a call in flight is a fault.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn cancel(&self, session: u64) -> Result<()> {
        self.settle(|state| state.cancel(session))
    }

    fn settle(&self, what: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = match self.checked() {
            Ok(state) => state,
            Err(fault @ Fault::WrongProcess { .. }) => return Err(fault),
            Err(_) => return Ok(()),
        };
        what(&mut state);
        self.after(state);
        Ok(())
    }

    /// What a session has used so far; `None` when it has no worker any more.
    ///
    /// # Errors
    /// The pool is closed or broken.
    pub fn used(&self, session: u64) -> Result<Option<Used>> {
        let state = self.checked()?;
        Ok(match state.sessions.get(&session) {
            Some(state::Session::On(id)) => state.workers.get(id).and_then(worker::Worker::account),
            _ => None,
        })
    }

    /// Hand over to the I/O thread what it must do, and completions to whoever waits.
    fn after(&self, mut state: MutexGuard<'_, State>) {
        let kills = !state.to_kill.is_empty();
        let finished = std::mem::take(&mut state.news);
        let blocking = state.limits.blocking;
        drop(state);
        if kills {
            io::ring(&self.shared.wake);
        }
        if finished {
            self.shared.announce(blocking);
        }
    }

    /// All completions since the last drain.
    ///
    /// # Errors
    /// The caller is another process: the lock may have been held when it was forked.
    pub fn drain(&self) -> Result<Numbered<u64, Done>> {
        self.own()?;
        io::hush(&self.shared.done_fd);
        Ok(std::mem::take(&mut self.shared.lock().finished))
    }

    /// Counters and gauges.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn stats(&self) -> Result<Vec<(&'static str, u64)>> {
        self.own()?;
        Ok(self.shared.lock().counters())
    }

    /// Wall seconds per call since the last drain.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn drain_latencies(&self) -> Result<Vec<f64>> {
        self.own()?;
        Ok(self.shared.lock().stats.drain_latencies())
    }

    /// Events since the last drain.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn drain_events(&self) -> Result<Vec<Event>> {
        self.own()?;
        Ok(self.shared.lock().stats.drain_events())
    }

    /// End everything and wait until no process is left, for at most about two seconds.
    pub fn close(&self) {
        if self.own().is_err() || self.shared.stop.swap(true, Ordering::SeqCst) {
            return;
        }
        io::ring(&self.shared.wake);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join(); // a panic there has been printed by its own hook
        }
        io::hang_up(&self.shared.lock().control); // the broker ends and takes all with it
        let stub = self
            .shared
            .stub
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(stub);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}
