//! What the pool knows, behind one lock: workers, sessions, calls in flight, deadlines.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Done;
use super::call::{Call, Worker, used};
use crate::error::{Fault, Result};
use crate::jail::sys::{io, process};
use crate::limits::Limits;
use crate::outcome::Reply;
use crate::protocol::{Kind, encode_request};
use crate::stats::Stats;

pub(super) const TOKEN_WAKE: u64 = 0;
pub(super) const TOKEN_TIMER: u64 = 1;
pub(super) const TOKEN_CONTROL: u64 = 2;
/// Token of worker 0.
pub(super) const TOKEN_WORKER: u64 = 16;

/// Pause after a worker could not be started: what is short may come free.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the broker may take to tell why a worker's socket closed.
pub(super) const GRACE: Duration = Duration::from_millis(200);

enum Session {
    Waiting,
    On(u32),
    Over(Reply),
}

/// Everything the pool knows.
pub(super) struct State {
    pub(super) limits: Limits,
    pub(super) control: OwnedFd,
    pub(super) epoll: OwnedFd,
    pub(super) timer: OwnedFd,
    pub(super) rings_at: Option<Instant>,
    pub(super) workers: HashMap<u32, Worker>,
    pub(super) spares: VecDeque<u32>,
    pub(super) starting: usize,
    /// After a failed start none is asked for until then.
    pub(super) hold_until: Option<Instant>,
    pub(super) next_worker: u32,
    sessions: HashMap<u64, Session>,
    waiting: VecDeque<(u64, Vec<u8>)>,
    live: usize,
    next_operation: u64,
    pub(super) finished: HashMap<u64, Done>,
    /// Something was finished since the last look.
    pub(super) news: bool,
    pub(super) to_kill: Vec<Arc<OwnedFd>>,
    pub(super) stats: Stats,
    pub(super) broken: Option<String>,
}

impl State {
    pub(super) fn new(limits: Limits, control: OwnedFd, epoll: OwnedFd, timer: OwnedFd) -> Self {
        Self {
            limits,
            control,
            epoll,
            timer,
            rings_at: None,
            workers: HashMap::new(),
            spares: VecDeque::new(),
            starting: 0,
            hold_until: None,
            next_worker: 1,
            sessions: HashMap::new(),
            waiting: VecDeque::new(),
            live: 0,
            next_operation: 1,
            finished: HashMap::new(),
            news: false,
            to_kill: Vec::new(),
            stats: Stats::default(),
            broken: None,
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.stats.counters();
        all.push(("live", self.live as u64));
        all.push(("spare", self.spares.len() as u64));
        all.push(("waiting", self.waiting.len() as u64));
        all
    }

    /// Workers to ask the broker for now.
    pub(super) fn wanted(&self) -> usize {
        if self.hold_until.is_some() {
            return 0;
        }
        let room = self.limits.num_workers.saturating_sub(self.live);
        let target = self.limits.spares.max(1) + self.waiting.len().min(room);
        target
            .saturating_sub(self.spares.len() + self.starting)
            .min(64)
    }

    pub(super) fn open(&mut self, body: Vec<u8>) -> Result<u64> {
        if self.waiting.len() >= self.limits.queue && !self.can_start() {
            self.stats.busy += 1;
            return Err(Fault::Busy {
                waiting: self.waiting.len(),
            });
        }
        let operation = self.operation();
        self.sessions.insert(operation, Session::Waiting);
        self.waiting.push_back((operation, body));
        self.assign();
        Ok(operation)
    }

    fn can_start(&self) -> bool {
        self.waiting.is_empty() && self.live < self.limits.num_workers && !self.spares.is_empty()
    }

    fn operation(&mut self) -> u64 {
        self.next_operation += 1;
        self.next_operation
    }

    /// Give spares to those who wait, oldest first.
    pub(super) fn assign(&mut self) {
        while self.live < self.limits.num_workers && !self.waiting.is_empty() {
            let Some(id) = self.spares.pop_front() else {
                break;
            };
            let Some((session, body)) = self.waiting.pop_front() else {
                break;
            };
            let Some(worker) = self.workers.get_mut(&id) else {
                continue;
            };
            worker.session = Some(session);
            self.sessions.insert(session, Session::On(id));
            self.live += 1;
            self.stats.acquired += 1;
            self.send(id, session, Kind::Load, &body);
        }
        self.refill();
    }

    pub(super) fn call(&mut self, session: u64, kind: Kind, body: &[u8]) -> Result<u64> {
        let id = match self.sessions.get(&session) {
            Some(Session::On(id)) => *id,
            Some(Session::Over(reply)) => {
                let reply = reply.clone();
                let operation = self.operation();
                self.finish(operation, Ok(reply));
                return Ok(operation);
            }
            Some(Session::Waiting) | None => {
                return Err(Fault::broken("session", "it is not open; enter it first"));
            }
        };
        if self
            .workers
            .get(&id)
            .is_some_and(|worker| worker.call.is_some())
        {
            let detail = "a call is in flight; await it before the next";
            return Err(Fault::broken("session", detail));
        }
        let operation = self.operation();
        self.send(id, operation, kind, body);
        Ok(operation)
    }

    fn send(&mut self, id: u32, operation: u64, kind: Kind, body: &[u8]) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.sequence += 1;
        let frame = encode_request(worker.sequence, kind, body);
        let (wall, cpu) = if kind == Kind::Load {
            (self.limits.load_wall_s, self.limits.load_wall_s)
        } else {
            (self.limits.wall_s_per_call, self.limits.cpu_s_per_call)
        };
        let begun = Instant::now();
        let (wall, cpu) = (Duration::from_secs_f64(wall), Duration::from_secs_f64(cpu));
        let next_check = begun + wall.min(cpu); // one thread uses no more CPU than wall time
        let cpu_before = worker.pid.and_then(process::cpu_ns_of);
        worker.call = Some(Call {
            operation,
            kind,
            begun,
            wall,
            cpu,
            cpu_before,
            next_check,
            stolen: None,
        });
        match io::send_now(&worker.socket, &frame) {
            Ok(sent) if sent == frame.len() => {}
            Ok(sent) => self.send_later(id, frame[sent..].to_vec()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.send_later(id, frame),
            Err(_) => {} // it is dead; the I/O thread sees the end of its socket
        }
        self.ring_by(next_check);
    }

    fn send_later(&mut self, id: u32, bytes: Vec<u8>) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.unsent = bytes;
            let token = TOKEN_WORKER + u64::from(id);
            let _ = io::watch(&self.epoll, &worker.socket, token, true, true);
        }
    }

    pub(super) fn ring_by(&mut self, when: Instant) {
        if self.rings_at.is_none_or(|at| when < at) {
            self.rings_at = Some(when);
            let delay = when.saturating_duration_since(Instant::now());
            if let Err(error) = io::arm(&self.timer, delay) {
                self.fail(&format!("timer: {error}"));
            }
        }
    }

    pub(super) fn release(&mut self, session: u64) {
        match self.sessions.remove(&session) {
            Some(Session::On(id)) => self.retire(id),
            Some(Session::Waiting) => self.waiting.retain(|(waiter, _)| *waiter != session),
            Some(Session::Over(_)) | None => {}
        }
        self.assign();
    }

    /// Kill a worker and forget it; its session, if any, is already dealt with.
    fn retire(&mut self, id: u32) {
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        if worker.session.is_some() {
            self.live -= 1;
        } else {
            self.spares.retain(|&spare| spare != id);
        }
        self.stats.killed += 1;
        self.to_kill.push(worker.pidfd);
        if let Some(call) = worker.call {
            self.finish(
                call.operation,
                Err("the session was closed during the call".to_owned()),
            );
        }
    }

    pub(super) fn finish(&mut self, operation: u64, done: Done) {
        if let Ok(reply) = &done {
            self.stats.answered(reply.outcome, reply.wall_s);
        }
        self.finished.insert(operation, done);
        self.news = true;
    }

    /// The worker is done for: answer its call and all later ones of its session with `reply`.
    pub(super) fn end(&mut self, id: u32, mut reply: Reply) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if let Some(call) = worker.call.take() {
            reply.wall_s = call.begun.elapsed().as_secs_f64();
            reply.cpu_s = reply.cpu_s.or_else(|| used(worker.pid, call.cpu_before));
            self.finish(call.operation, Ok(reply.clone()));
        }
        if let Some(session) = self.workers.get(&id).and_then(|worker| worker.session) {
            self.sessions.insert(session, Session::Over(reply));
        } else {
            self.stats.lost_spares += 1;
        }
        self.retire(id);
        self.assign();
    }

    /// Nothing more can be served: end every call with a fault.
    pub(super) fn fail(&mut self, detail: &str) {
        self.broken.get_or_insert_with(|| detail.to_owned());
        let ids: Vec<u32> = self.workers.keys().copied().collect();
        for id in ids {
            if let Some(call) = self
                .workers
                .get_mut(&id)
                .and_then(|worker| worker.call.take())
            {
                self.finish(call.operation, Err(detail.to_owned()));
            }
            self.retire(id);
        }
        for (operation, _) in std::mem::take(&mut self.waiting) {
            self.finish(operation, Err(detail.to_owned()));
        }
    }

    /// A worker could not be made: the oldest waiter is told, the others go on waiting.
    pub(super) fn not_started(&mut self, detail: &str) {
        self.starting = self.starting.saturating_sub(1);
        let until = Instant::now() + PAUSE;
        self.hold_until = Some(until);
        self.ring_by(until);
        if let Some((operation, _)) = self.waiting.pop_front() {
            self.sessions.remove(&operation);
            self.finish(
                operation,
                Err(format!("no worker could be started: {detail}")),
            );
        }
    }
}
