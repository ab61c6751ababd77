//! Copies of a live worker: `session.fork()` and templates of one source.
//!
//! The host makes the copy's pipes and sends the worker's ends over its control socket; nothing is
//! ever taken from a worker but bytes. The copy's first packet on its own control socket carries
//! its process id, filled in by the kernel; the parent process id proves that it is a copy.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::Done;
use super::call::Call;
use super::state::{Session, State, TOKEN_WORKER};
use super::worker::{Ends, Worker};
use crate::error::{Fault, Result, Stage};
use crate::jail::sys::{io, pipe, process};
use crate::outcome::{Outcome, Reply};
use crate::protocol::Kind;

/// A copy that was asked for: the parent and the frame for it.
pub(super) struct Asked {
    pub(super) session: u64,
    pub(super) parent: u32,
    pub(super) branch: u32,
    pub(super) frame: Vec<u8>,
}

impl State {
    /// Register the copy of a session; the caller writes the parent's frame. The copy of a session
    /// that is over is over as well: its number and the answer.
    ///
    /// # Errors
    /// The session is not forkable, the pool is full, or descriptors are short.
    pub(super) fn fork(
        &mut self,
        session: u64,
        seed: &str,
    ) -> Result<std::result::Result<Asked, (u64, Reply)>> {
        let parent = match self.worker_of(session)? {
            Ok(id) => id,
            Err(reply) => {
                let copy = self.operation();
                self.sessions.insert(copy, Session::Over(reply.clone()));
                return Ok(Err((copy, reply)));
            }
        };
        let Some(worker) = self.workers.get(&parent) else {
            return Err(Fault::broken("session", "its worker is gone"));
        };
        if worker.ends.control.is_none() {
            let detail = "it cannot be forked; open it with forkable=True";
            return Err(Fault::broken("session", detail));
        }
        let Some(parent_pid) = worker.pid else {
            let detail = "it cannot be forked here: /proc does not show its process id";
            return Err(Fault::broken("session", detail));
        };
        let root = worker.root.unwrap_or(parent);
        let (profile, count) = (
            worker.profile,
            self.workers.get(&root).map_or(0, |w| w.branches),
        );
        if self.live >= self.limits.num_workers || count >= self.limits.branches {
            self.stats.busy += 1;
            return Err(Fault::Full {
                live: self.live,
                branches: count,
            });
        }
        let (requests, request_end) = pipe::pipe().stage("pipe of a branch")?;
        let (reply_end, replies) = pipe::pipe().stage("pipe of a branch")?;
        let (control_end, own) = io::socket_pair(true).stage("socket of a branch")?;
        io::pass_credentials(&control_end).stage("socket of a branch")?;
        let to_parent = Arc::clone(&worker.ends);
        let branch = self.next_worker;
        self.next_worker = self.next_worker.wrapping_add(1).max(1);
        let mut copy = Worker::new(
            Ends {
                requests: request_end,
                replies: reply_end,
                control: Some(control_end),
            },
            profile,
            self.limits.profiles[profile].pids,
        );
        copy.root = Some(root);
        copy.parent = Some(parent);
        copy.parent_pid = Some(parent_pid);
        let number = self.operation();
        copy.session = Some(number);
        self.watch_worker(branch, &copy)?;
        // Last of what can fail: what lies in this socket belongs to the next fork.
        let fds = [requests.as_raw_fd(), replies.as_raw_fd(), own.as_raw_fd()];
        if let Some(control) = &to_parent.control {
            match io::send_with(control.as_raw_fd(), b"F", &fds, false) {
                Err(e)
                    if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
                {
                    let detail = "the worker ended before it could be copied";
                    let reply = Reply::failed(Outcome::Crashed, detail);
                    self.sessions.insert(number, Session::Over(reply.clone()));
                    return Ok(Err((number, reply)));
                }
                sent => sent.stage("sending a branch its ends")?,
            }
        }
        self.workers.insert(branch, copy);
        self.sessions.insert(number, Session::On(branch));
        self.live += 1;
        self.stats.forked += 1;
        if let Some(first) = self.workers.get_mut(&root) {
            first.branches += 1;
        }
        let frame = self.begin(parent, number, Kind::Fork, seed.as_bytes(), None);
        // The copy answers the parent's request under the parent's number, on its own pipe.
        let sequence = self
            .workers
            .get(&parent)
            .map_or(0, |worker| worker.sequence);
        self.begin(branch, number, Kind::LoadCode, b"", None);
        if let Some(worker) = self.workers.get_mut(&branch) {
            worker.sequence = sequence;
            worker.used.bytes_in = 0;
        }
        if let Some(call) = self.workers.get_mut(&parent).and_then(|w| w.call.as_mut()) {
            call.silent = true;
        }
        Ok(Ok(Asked {
            session: number,
            parent,
            branch,
            frame,
        }))
    }

    /// The parent's word on a fork: only a failure matters, the copy speaks for itself.
    pub(super) fn parent_answered(&mut self, operation: u64, reply: Reply, held: Option<Reply>) {
        if reply.outcome == Outcome::Finished {
            if let Some(held) = held {
                self.finish(operation, Ok(held));
            }
            return;
        }
        if held.is_some() {
            self.finish(operation, Ok(reply.clone()));
        }
        if let Some(&Session::On(branch)) = self.sessions.get(&operation) {
            if let Some(worker) = self.workers.get_mut(&branch) {
                worker.parent_pid = None; // there is no such process
            }
            self.end(branch, reply);
        }
    }

    /// Keep a branch's first answer back while its parent has not answered. Whether it does.
    pub(super) fn parent_is_busy(&mut self, id: u32, operation: u64, reply: &Reply) -> bool {
        let parent = self.workers.get(&id).and_then(|worker| worker.parent);
        let parent = parent.and_then(|parent| self.workers.get_mut(&parent));
        match parent.and_then(|worker| worker.call.as_mut()) {
            Some(call) if call.silent && call.operation == operation => {
                call.held = Some(reply.clone());
                true
            }
            _ => false,
        }
    }

    /// A call that its worker will not answer any more. That of a parent says nothing about the
    /// branch, which has a call of its own.
    pub(super) fn drop_call(&mut self, call: Call, done: Done) {
        match (call.silent, call.held) {
            (false, _) => self.finish(call.operation, done),
            (true, Some(held)) => self.finish(call.operation, Ok(held)),
            (true, None) => {}
        }
    }

    /// End those that live in the namespace of a worker which is gone.
    pub(super) fn end_branches(&mut self, root: u32, detail: &str) {
        let branches = self.workers.iter().filter(|(_, w)| w.root == Some(root));
        for branch in branches.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.end(branch, Reply::failed(Outcome::Crashed, detail));
        }
    }

    /// A copy has ended, which nobody collects but the kernel: ask whether it was killed for memory.
    /// Without an answer it has ended by itself.
    pub(super) fn ask_for_kills(&self, first: u32, branch: u32) {
        let mut packet = vec![b'M'];
        packet.extend_from_slice(&first.to_le_bytes());
        packet.extend_from_slice(&branch.to_le_bytes());
        let _ = io::send_with(self.control.as_raw_fd(), &packet, &[], false);
    }

    /// The answer: so many processes of its family were killed for memory so far.
    pub(super) fn kills_told(&mut self, branch: u32, kills: u32) {
        let Some(worker) = self
            .workers
            .get(&branch)
            .filter(|w| w.closed_until.is_some())
        else {
            return;
        };
        // What it wrote before it ended still counts.
        let unread = worker.call.is_some() && pipe::unread(&worker.ends.replies) > 0;
        let Some(first) = worker.root.and_then(|root| self.workers.get_mut(&root)) else {
            return;
        };
        if kills <= first.kills_seen || unread {
            return; // the grace goes on
        }
        first.kills_seen += 1;
        let detail = "memory: killed by the kernel, the control group of its family was full";
        self.end(branch, Reply::failed(Outcome::OverMemory, detail));
    }

    /// Learn which process a copy is, from what the kernel added to its first packet.
    pub(super) fn identify(&mut self, id: u32, reply: Reply) -> Reply {
        let violation = |text: &str| Reply::failed(Outcome::ProtocolViolation, text);
        let root = self.workers.get(&id).and_then(|worker| worker.root);
        let first = root.and_then(|root| self.workers.get(&root)?.pid);
        let Some(worker) = self.workers.get_mut(&id) else {
            return reply;
        };
        let parent = worker.parent_pid;
        let Some(pid) = worker.ends.control.as_ref().and_then(io::credentials) else {
            return violation("a branch did not show its process id");
        };
        let pidfd = process::pidfd_open(pid).ok();
        // Looked at after the descriptor was opened, so the number cannot mean another by now.
        let (Some(pidfd), Some(above)) = (pidfd, process::parent_of(pid)) else {
            worker.parent_pid = None; // there is no such process any more
            return Reply::failed(Outcome::Crashed, "the branch ended by itself");
        };
        // A copy whose parent has ended meanwhile belongs to the first of its family.
        if Some(above) != parent && Some(above) != first {
            return violation("a branch showed the process id of another");
        }
        worker.parent_pid = None;
        worker.pidfd = Some(Arc::new(pidfd));
        worker.pid = Some(pid);
        let session = worker.session.unwrap_or_default();
        worker.begin(session);
        reply
    }

    /// Nobody blocks on a worker that does not read; its replies are watched in pools whose I/O
    /// thread reads them.
    pub(super) fn watch_worker(&self, id: u32, worker: &Worker) -> Result<()> {
        pipe::set_nonblocking(&worker.ends.requests).stage("pipe")?;
        if self.limits.blocking {
            return Ok(());
        }
        pipe::set_nonblocking(&worker.ends.replies).stage("pipe")?;
        let token = TOKEN_WORKER + 2 * u64::from(id);
        io::watch(&self.epoll, &worker.ends.replies, token).stage("epoll")
    }
}
