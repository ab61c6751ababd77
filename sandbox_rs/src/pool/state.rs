//! What the pool knows, behind one lock: workers, sessions, calls in flight, deadlines.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use super::Done;
use super::code::CodeCache;
use super::numbered::Numbered;
use super::worker::Worker;
use crate::capability::Report;
use crate::error::{Fault, Result};
use crate::limits::Limits;
use crate::outcome::Reply;
use crate::protocol::Kind;
use crate::stats::Stats;
use crate::template::Class;

pub(super) const TOKEN_WAKE: u64 = 0;
pub(super) const TOKEN_TIMER: u64 = 1;
pub(super) const TOKEN_CONTROL: u64 = 2;
/// Token of worker 0's replies; the next is that of its requests.
pub(super) const TOKEN_WORKER: u64 = 16;

/// A session, by its number.
pub(super) enum Session {
    /// No worker is free.
    Waiting,
    /// It has a worker.
    On(u32),
    /// Its worker is dead: every call is answered so.
    Over(Reply),
    /// Its worker went with the broker, or was cancelled: a fault of ours.
    Lost(String),
}

/// Somebody who waits for a worker.
pub(super) struct Waiter {
    pub(super) session: u64,
    pub(super) profile: usize,
    pub(super) forkable: bool,
    pub(super) source: Arc<str>,
    pub(super) seed: String,
}

/// Everything the pool knows.
pub(super) struct State {
    pub(super) limits: Limits,
    pub(super) control: OwnedFd,
    pub(super) epoll: OwnedFd,
    pub(super) timer: OwnedFd,
    pub(super) report: Report,
    pub(super) rings_at: Option<Instant>,
    pub(super) workers: Numbered<u32, Worker>,
    /// Ready workers, by profile.
    pub(super) spares: Vec<VecDeque<u32>>,
    /// Asked for: profile and class.
    pub(super) starting: Numbered<u32, (usize, Class)>,
    /// When spares that were taken are to be replaced.
    pub(super) refill_at: Option<Instant>,
    /// After a failed start none is asked for until then.
    pub(super) hold_until: Option<Instant>,
    pub(super) next_worker: u32,
    /// When the broker was asked for workers while it owed none, or has last sent anything.
    pub(super) heard: Instant,
    pub(super) sessions: Numbered<u64, Session>,
    pub(super) waiting: VecDeque<Waiter>,
    pub(super) code: CodeCache,
    pub(super) live: usize,
    next_operation: u64,
    pub(super) finished: Numbered<u64, Done>,
    /// Something was finished since the last look.
    pub(super) news: bool,
    pub(super) to_kill: Vec<Arc<OwnedFd>>,
    pub(super) stats: Stats,
    pub(super) broken: Option<String>,
    /// The broker is gone: the I/O thread is to start another.
    pub(super) broker_lost: Option<String>,
}

impl State {
    pub(super) fn new(
        limits: Limits,
        control: OwnedFd,
        report: Report,
        epoll: OwnedFd,
        timer: OwnedFd,
    ) -> Self {
        let spares = limits.profiles.iter().map(|_| VecDeque::new()).collect();
        let code = CodeCache::new(limits.code_cache_bytes);
        Self {
            limits,
            control,
            epoll,
            timer,
            report,
            rings_at: None,
            workers: Numbered::default(),
            spares,
            starting: Numbered::default(),
            refill_at: None,
            hold_until: None,
            next_worker: 1,
            heard: Instant::now(),
            sessions: Numbered::default(),
            waiting: VecDeque::new(),
            code,
            live: 0,
            next_operation: 1,
            finished: Numbered::default(),
            news: false,
            to_kill: Vec::new(),
            stats: Stats::default(),
            broken: None,
            broker_lost: None,
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.stats.counters();
        let spare: usize = self.spares.iter().map(VecDeque::len).sum();
        all.push(("live", self.live as u64));
        all.push(("spare", spare as u64));
        all.push(("waiting", self.waiting.len() as u64));
        all
    }

    pub(super) fn operation(&mut self) -> u64 {
        self.next_operation += 1;
        self.next_operation
    }

    /// Queue a session; it gets its worker now if one is free.
    pub(super) fn open(
        &mut self,
        source: &str,
        seed: &str,
        profile: usize,
        forkable: bool,
    ) -> Result<u64> {
        if profile >= self.limits.profiles.len() {
            return Err(Fault::broken("session", format!("no profile {profile}")));
        }
        let free = self.waiting.is_empty()
            && self.live < self.limits.num_workers
            && !forkable
            && !self.spares[profile].is_empty();
        if self.waiting.len() >= self.limits.queue && !free {
            self.stats.busy += 1;
            let waiting = self.waiting.len();
            self.stats
                .event("busy", "", None, format!("{waiting} sessions wait"));
            return Err(Fault::Busy { waiting });
        }
        let session = self.operation();
        self.sessions.insert(session, Session::Waiting);
        self.waiting.push_back(Waiter {
            session,
            profile,
            forkable,
            source: source.into(),
            seed: seed.to_owned(),
        });
        self.assign();
        Ok(session)
    }

    /// Give spares to those who wait, oldest first. One whose kind is not ready lets others pass,
    /// but keeps a place: else they could pass for ever.
    pub(super) fn assign(&mut self) {
        let mut at = 0;
        while self.live + at < self.limits.num_workers && at < self.waiting.len() {
            let waiter = &self.waiting[at];
            let taken = if waiter.forkable {
                None // those come made to order: see `started`
            } else {
                self.spares[waiter.profile].pop_front()
            };
            match taken {
                Some(id) => {
                    if let Some(waiter) = self.waiting.remove(at) {
                        self.grant(id, waiter);
                        self.refill_soon();
                    }
                }
                None => at += 1,
            }
        }
        if !self.waiting.is_empty() {
            self.refill();
        }
    }

    /// A worker for somebody who waited.
    pub(super) fn grant(&mut self, id: u32, waiter: Waiter) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.begin(waiter.session);
        let may_fork = worker.ends.control.is_some();
        if may_fork {
            self.look_for_strays();
        }
        self.sessions.insert(waiter.session, Session::On(id));
        self.live += 1;
        self.stats.acquired += 1;
        if self.limits.blocking {
            self.news = true; // its own thread goes on
        } else {
            let (kind, body) = self.load_request(waiter.profile, &waiter.source, &waiter.seed);
            let source = (kind == Kind::Load).then_some(waiter.source);
            let frame = self.begin(id, waiter.session, kind, &body, source);
            self.write(id, frame);
        }
    }

    /// How a source is loaded: as code if a worker has compiled it before.
    pub(super) fn load_request(
        &mut self,
        profile: usize,
        source: &Arc<str>,
        seed: &str,
    ) -> (Kind, Vec<u8>) {
        use crate::protocol::load_body;
        match self.code.get(profile, source) {
            Some(code) => {
                self.stats.code_hits += 1;
                (Kind::LoadCode, load_body(&code, seed))
            }
            None => {
                self.stats.code_misses += 1;
                (Kind::Load, load_body(source.as_bytes(), seed))
            }
        }
    }

    /// The worker of a session, or the answer that needs none.
    pub(super) fn worker_of(&mut self, session: u64) -> Result<std::result::Result<u32, Reply>> {
        let id = match self.sessions.get(&session) {
            Some(Session::On(id)) => *id,
            Some(Session::Over(reply)) => return Ok(Err(reply.clone())),
            Some(Session::Lost(detail)) => return Err(Fault::broken("session", detail.clone())),
            Some(Session::Waiting) | None => {
                return Err(Fault::broken("session", "it is not open; enter it first"));
            }
        };
        let Some(worker) = self.workers.get(&id) else {
            return Err(Fault::broken("session", "its worker is gone"));
        };
        if worker.call.is_some() {
            let detail = "a call is in flight; await it before the next";
            return Err(Fault::broken("session", detail));
        }
        if let Some(reply) = worker.ran_between_calls() {
            self.end(id, reply.clone());
            return Ok(Err(reply));
        }
        Ok(Ok(id))
    }

    /// A call whose completion is drained.
    pub(super) fn call(&mut self, session: u64, kind: Kind, body: &[u8]) -> Result<u64> {
        let id = match self.worker_of(session)? {
            Ok(id) => id,
            Err(reply) => {
                let operation = self.operation();
                self.repeat(operation, reply);
                return Ok(operation);
            }
        };
        let operation = self.operation();
        let frame = self.begin(id, operation, kind, body, None);
        self.write(id, frame);
        Ok(operation)
    }
}
