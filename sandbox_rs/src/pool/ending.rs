//! How workers and sessions end: given up, cancelled, dead by their own doing, lost by ours.

use std::collections::VecDeque;
use std::time::Instant;

use super::Done;
use super::state::{Session, State};
use super::worker::Worker;
use crate::outcome::{Outcome, Reply};

impl State {
    pub(super) fn release(&mut self, session: u64) {
        match self.sessions.remove(&session) {
            Some(Session::On(id)) => {
                let calls = |worker: &Worker| worker.call.as_ref().is_some_and(|c| !c.silent);
                if self.workers.get(&id).is_some_and(calls) {
                    // What it does now would go on unseen if it stayed for its branches.
                    self.retire_family(id, "the session it was forked from was closed in a call");
                } else {
                    self.retire(id);
                }
            }
            Some(Session::Waiting) => {
                self.waiting.retain(|w| w.session != session);
                let detail = "the session was closed while it waited";
                self.finish(session, Err(detail.to_owned()));
            }
            Some(Session::Over(_) | Session::Lost(_)) | None => {}
        }
        self.assign();
        if self.refill_at.is_some() {
            self.refill();
        }
    }

    /// End a session's worker now, whatever it does; a call in flight is a fault.
    pub(super) fn cancel(&mut self, session: u64) {
        let detail = "the session was cancelled; open a new one";
        match self.sessions.get(&session) {
            Some(&Session::On(id)) => {
                if let Some(call) = self.workers.get_mut(&id).and_then(|w| w.call.take()) {
                    self.drop_call(call, Err(detail.to_owned()));
                }
                self.retire_family(id, "the session it was forked from was cancelled");
            }
            Some(Session::Waiting) => {
                self.waiting.retain(|w| w.session != session);
                self.finish(session, Err(detail.to_owned()));
            }
            _ => return,
        }
        self.sessions
            .insert(session, Session::Lost(detail.to_owned()));
        self.assign();
    }

    /// A worker is gone by our doing: its call is a fault.
    fn lose(&mut self, id: u32, detail: &str) {
        if let Some(worker) = self.workers.get_mut(&id)
            && let Some(call) = worker.call.take()
        {
            self.drop_call(call, Err(detail.to_owned()));
        }
        self.retire(id);
    }

    /// Kill a worker and all that live in its namespace.
    fn retire_family(&mut self, id: u32, detail: &str) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.branches = 0;
        }
        self.retire(id);
        self.end_branches(id, detail);
    }

    /// Kill a worker and forget it; its session, if any, is already dealt with. The first of a
    /// family whose branches live stays: its death would be theirs.
    pub(super) fn retire(&mut self, id: u32) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if worker.session.take().is_some() {
            self.live -= 1;
        } else if !worker.lingers {
            let profile = worker.profile;
            self.spares[profile].retain(|&spare| spare != id);
        }
        if worker.branches > 0 {
            worker.lingers = true;
            return;
        }
        // A copy that was not waited for: it can be killed if it has shown itself by now. Else its
        // closed pipes end it, or at the latest the end of its family's first.
        if worker.root.is_some() && worker.pidfd.is_none() && worker.parent_pid.is_some() {
            let _ = self.identify(id, Reply::failed(Outcome::Finished, ""));
        }
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        self.stats.killed += 1;
        self.to_kill.extend(worker.pidfd);
        if let Some(call) = worker.call {
            let detail = "the session was closed during the call";
            self.drop_call(call, Err(detail.to_owned()));
        }
        if let Some(root) = worker.root
            && let Some(first) = self.workers.get_mut(&root)
        {
            first.branches = first.branches.saturating_sub(1);
            if first.branches == 0 && first.lingers {
                self.retire(root);
            }
        }
    }

    pub(super) fn finish(&mut self, operation: u64, done: Done) {
        if let Ok(reply) = &done {
            self.stats.answered(reply.outcome, reply.wall_s);
        }
        self.finished.insert(operation, done);
        self.news = true;
    }

    /// The answer of a session that is over, given once more: no call was made, so none is counted.
    pub(super) fn repeat(&mut self, operation: u64, reply: Reply) {
        self.finished.insert(operation, Ok(reply));
        self.news = true;
    }

    /// The worker is done for: answer its call and all later ones of its session with `reply`, and
    /// those of its branches, which end with it.
    pub(super) fn end(&mut self, id: u32, mut reply: Reply) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let profile = worker.profile;
        if reply.outcome == Outcome::OverMemory {
            self.limits.name_memory(profile, &mut reply.detail);
        }
        if let Some(call) = worker.call.take() {
            let now = Instant::now();
            reply.wall_s = (now - call.begun).as_secs_f64();
            reply.cpu_s = worker.look(now).or(reply.cpu_s);
            self.drop_call(call, Ok(reply.clone()));
        }
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.branches = 0;
        // A copy that has not shown itself cannot be killed alone: its family's first can. One whose
        // pipe is closed has ended, whoever killed it, and its family is innocent.
        let is_hidden = worker.pidfd.is_none() && worker.parent_pid.is_some();
        let has_ended = worker.closed_until.is_some();
        let unknown = worker.root.filter(|_| is_hidden && !has_ended);
        match worker.session {
            Some(session) => {
                let name = self.limits.profiles[profile].name.clone();
                let kind = reply.outcome.as_str();
                self.stats
                    .event(kind, &name, Some(session), reply.detail.clone());
                self.sessions.insert(session, Session::Over(reply));
            }
            None if worker.lingers => {}
            None => self.stats.lost_spares += 1,
        }
        self.retire(id);
        self.end_branches(id, "the session it was forked from ended");
        if let Some(root) = unknown {
            let detail = "a branch of it did not show itself";
            self.end(root, Reply::failed(Outcome::ProtocolViolation, detail));
        }
        self.assign();
    }

    /// The broker is gone and all workers with it: their calls and sessions are faults of ours.
    /// Those who wait go on waiting for the next broker.
    pub(super) fn lose_workers(&mut self, detail: &str) {
        let detail = format!("{detail}; its sessions are lost, open new ones");
        let ids: Vec<u32> = self.workers.keys().copied().collect();
        for id in ids {
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.branches = 0;
                if let Some(session) = worker.session {
                    self.sessions.insert(session, Session::Lost(detail.clone()));
                }
            }
            self.lose(id, &detail);
        }
        self.spares.iter_mut().for_each(VecDeque::clear);
        self.starting.clear();
    }

    /// Nothing more can be served: end every call with a fault.
    pub(super) fn fail(&mut self, detail: &str) {
        if self.broken.is_none() {
            self.stats.event("broken", "", None, detail);
        }
        self.shut(detail);
    }

    /// The same at the pool's own end.
    pub(super) fn shut(&mut self, detail: &str) {
        self.broken.get_or_insert_with(|| detail.to_owned());
        self.lose_workers(detail);
        for waiter in std::mem::take(&mut self.waiting) {
            self.finish(waiter.session, Err(detail.to_owned()));
        }
    }
}
