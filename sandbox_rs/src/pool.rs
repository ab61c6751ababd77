//! The host's side: a pool of workers, a thread that owns deadlines, completions for Python.
//!
//! Any thread may submit; the request is written to the worker's socket by the caller itself. The
//! I/O thread reads replies, judges deadlines, kills, and refills the spares. Nothing here blocks
//! on untrusted code.

mod call;
mod control;
mod reply;
mod state;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::broker;
use crate::capability::{self, Report};
use crate::error::{Fault, Result, Stage};
use crate::jail::sys::{io, process};
use crate::limits::Limits;
use crate::outcome::Reply;
use crate::protocol::{Kind, load_body};
use state::{State, TOKEN_CONTROL, TOKEN_TIMER, TOKEN_WAKE, TOKEN_WORKER};

/// What became of an operation: a reply, or the text of a fault of ours.
pub type Done = std::result::Result<Reply, String>;

const START_S: f64 = 60.0;

struct Shared {
    state: Mutex<State>,
    done: Condvar,
    wake: OwnedFd,
    done_fd: OwnedFd,
    stop: AtomicBool,
    epoll: OwnedFd,
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
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stub: Mutex<Option<Child>>,
    report: Report,
}

impl Pool {
    /// Start broker and template, and wait until the template is ready.
    ///
    /// # Errors
    /// A layer that must hold is missing, or the machinery cannot start.
    pub fn start(limits: Limits) -> Result<Self> {
        let (control, other) = io::socket_pair(true).stage("socket pair")?;
        let stub = broker::command(&limits, "_broker_main", other)
            .spawn()
            .stage("starting the broker (sandbox.python)")?;
        let mut stub = Stub(Some(stub));
        let report = handshake(&control, &limits)?;
        report.judge(if limits.strict {
            "strict"
        } else {
            capability::AUTO
        })?;

        let epoll = io::epoll().stage("epoll")?;
        let wake = io::event_fd().stage("eventfd")?;
        let timer = io::timer().stage("timer")?;
        io::watch(&epoll, &wake, TOKEN_WAKE, false, false).stage("epoll")?;
        io::watch(&epoll, &timer, TOKEN_TIMER, false, false).stage("epoll")?;
        io::watch(&epoll, &control, TOKEN_CONTROL, false, false).stage("epoll")?;
        let watcher = epoll.try_clone().stage("epoll")?;
        let mut state = State::new(limits, control, watcher, timer);
        state.refill();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            done: Condvar::new(),
            wake,
            done_fd: io::event_fd().stage("eventfd")?,
            stop: AtomicBool::new(false),
            epoll,
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sandbox-io".to_owned())
            .spawn(move || run(&own))
            .stage("I/O thread")?;
        Ok(Self {
            owner: std::process::id(),
            shared,
            thread: Mutex::new(Some(thread)),
            stub: Mutex::new(stub.0.take()),
            report,
        })
    }

    /// What holds on this machine.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Descriptor that becomes readable when completions wait.
    pub fn done_fd(&self) -> i32 {
        self.shared.done_fd.as_raw_fd()
    }

    fn checked(&self) -> Result<MutexGuard<'_, State>> {
        let caller = std::process::id();
        if caller != self.owner {
            // Before the lock, which may have been held when the owner forked.
            return Err(Fault::WrongProcess {
                owner: self.owner,
                caller,
            });
        }
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
    pub fn open(&self, source: &str, seed_hex: &str) -> Result<u64> {
        let mut state = self.checked()?;
        let operation = state.open(load_body(source, seed_hex))?;
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

    /// End a session; its worker is killed by the I/O thread. Never waits.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn release(&self, session: u64) -> Result<()> {
        let mut state = match self.checked() {
            Ok(state) => state,
            Err(fault @ Fault::WrongProcess { .. }) => return Err(fault),
            Err(_) => return Ok(()),
        };
        state.release(session);
        self.after(state);
        Ok(())
    }

    /// Hand over to the I/O thread what it must do, and completions to whoever waits.
    fn after(&self, mut state: MutexGuard<'_, State>) {
        let kills = !state.to_kill.is_empty();
        let finished = std::mem::take(&mut state.news);
        drop(state);
        if kills {
            io::ring(&self.shared.wake);
        }
        if finished {
            io::ring(&self.shared.done_fd);
            self.shared.done.notify_all();
        }
    }

    /// Wait for one operation for at most `patience`.
    ///
    /// # Errors
    /// The caller is another process.
    pub fn wait(&self, operation: u64, patience: Duration) -> Result<Option<Done>> {
        let caller = std::process::id();
        if caller != self.owner {
            return Err(Fault::WrongProcess {
                owner: self.owner,
                caller,
            });
        }
        let until = Instant::now() + patience;
        let mut state = self.shared.lock();
        loop {
            if let Some(done) = state.finished.remove(&operation) {
                return Ok(Some(done));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.shared.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All completions since the last drain.
    pub fn drain(&self) -> HashMap<u64, Done> {
        io::hush(&self.shared.done_fd);
        std::mem::take(&mut self.shared.lock().finished)
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.shared.lock().counters()
    }

    /// Wall seconds per call since the last drain.
    pub fn drain_latencies(&self) -> Vec<f64> {
        self.shared.lock().stats.drain_latencies()
    }

    /// End everything and wait until no process is left, for at most about two seconds.
    pub fn close(&self) {
        if std::process::id() != self.owner || self.shared.stop.swap(true, Ordering::SeqCst) {
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
            .stub
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(Stub(stub));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

/// The process that stays until broker, template and workers are gone.
struct Stub(Option<Child>);

impl Drop for Stub {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill(); // its death is the broker's death signal
        let _ = child.wait();
    }
}

/// Send the limits and wait for the report.
fn handshake(control: &OwnedFd, limits: &Limits) -> Result<Report> {
    let text = toml::to_string(limits).map_err(|e| Fault::broken("limits", e.to_string()))?;
    // A broker that left at once is told from what it says, below.
    let _ = io::send_with(control.as_raw_fd(), text.as_bytes(), &[], true);
    let mut buffer = vec![0; crate::template::PACKET_BYTES];
    let patience = Some(Duration::from_secs_f64(START_S));
    let ready = io::poll_readable(&[control.as_raw_fd()], patience).stage("start")?;
    if !ready[0] {
        let detail = format!("the template was not ready within {START_S} s");
        return Err(Fault::broken("start", detail));
    }
    let (length, _) = io::recv_with(control.as_raw_fd(), &mut buffer, true).unwrap_or_default();
    let text = String::from_utf8_lossy(buffer.get(1..length).unwrap_or(&[])).into_owned();
    match buffer.first() {
        Some(b'H') if length > 0 => {
            toml::from_str(&text).map_err(|e| Fault::broken("report", e.to_string()))
        }
        _ if length == 0 => Err(Fault::broken(
            "start",
            format!(
                "{} left before it was ready; check sandbox.python",
                limits.python
            ),
        )),
        _ => Err(Fault::broken("start", text)),
    }
}

/// The I/O thread.
fn run(shared: &Shared) {
    let mut scratch = vec![0; 64 << 10];
    while !shared.stop.load(Ordering::SeqCst) {
        let events = match io::wait_events(shared.epoll.as_raw_fd()) {
            Ok(events) => events,
            Err(error) => {
                shared.lock().fail(&format!("epoll: {error}"));
                Vec::new()
            }
        };
        let mut state = shared.lock();
        for (token, readable, writable) in events {
            match token {
                TOKEN_WAKE => io::hush(&shared.wake),
                TOKEN_TIMER => state.timer_rang(),
                TOKEN_CONTROL => state.control_ready(&mut scratch),
                _ => state.worker_ready(
                    (token - TOKEN_WORKER) as u32,
                    readable,
                    writable,
                    &mut scratch,
                ),
            }
        }
        let kills = std::mem::take(&mut state.to_kill);
        let finished = std::mem::take(&mut state.news);
        let broken = state.broken.is_some();
        drop(state);
        if finished {
            io::ring(&shared.done_fd);
            shared.done.notify_all();
        }
        for pidfd in kills {
            process::kill(&pidfd); // outside the lock: the victim may take the CPU from us
        }
        if broken {
            break;
        }
    }
    let mut state = shared.lock();
    state.fail("sandbox pool was closed while the call was in flight");
    for pidfd in std::mem::take(&mut state.to_kill) {
        process::kill(&pidfd);
    }
    drop(state);
    io::ring(&shared.done_fd);
    shared.done.notify_all();
}
