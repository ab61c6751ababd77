//! Requests to and replies from workers. Nothing a worker writes is trusted before it is decoded.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::Call;
use super::control::{GRACE, exit_reply};
use super::state::{Session, State, TOKEN_WORKER};
use crate::jail::sys::{io, pipe};
use crate::outcome::{Outcome, Reply};
use crate::protocol::{
    Bad, DETAIL_BYTES, Kind, REPLY_OVERHEAD, decode_code, decode_reply, encode_request,
};

impl State {
    /// Register a call: its deadlines run from now. Returns the frame to write.
    pub(super) fn begin(
        &mut self,
        id: u32,
        operation: u64,
        kind: Kind,
        body: &[u8],
        source: Option<Arc<str>>,
    ) -> Vec<u8> {
        let (wall, cpu) = if kind.loads() || kind == Kind::Fork {
            (self.limits.load_wall_s, self.limits.load_wall_s)
        } else {
            (self.limits.wall_s_per_call, self.limits.cpu_s_per_call)
        };
        let Some(worker) = self.workers.get_mut(&id) else {
            return Vec::new();
        };
        worker.sequence = worker.sequence.wrapping_add(1);
        let frame = encode_request(worker.sequence, kind, body);
        worker.used.bytes_in += frame.len() as u64;
        let begun = Instant::now();
        let (wall, cpu) = (Duration::from_secs_f64(wall), Duration::from_secs_f64(cpu));
        let next_check = begun + wall.min(cpu); // one thread uses no more CPU than wall time
        worker.call = Some(Call {
            operation,
            kind,
            begun,
            wall,
            cpu,
            next_check,
            source,
            silent: false,
            held: None,
            stolen: None,
        });
        self.ring_by(next_check);
        frame
    }

    /// Longest frame that may come now.
    pub(super) fn cap(&self, kind: Kind) -> usize {
        let reply = self.limits.reply_bytes + REPLY_OVERHEAD + DETAIL_BYTES;
        if kind == Kind::Load {
            reply.max(self.limits.code_bytes() + 5)
        } else {
            reply
        }
    }

    /// Write a request without blocking; what does not fit is written when there is room.
    pub(super) fn write(&mut self, id: u32, frame: Vec<u8>) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let sent = match pipe::write_now(&worker.ends.requests, &frame) {
            Ok(sent) => sent,
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return, // it is dead; the I/O thread sees the end of its pipe
        };
        if sent < frame.len() {
            worker.unsent = frame[sent..].to_vec();
            let token = TOKEN_WORKER + 2 * u64::from(id) + 1;
            let _ = io::watch_room(&self.epoll, &worker.ends.requests, token);
        }
    }

    /// There is room in a worker's request pipe again, or it is closed.
    pub(super) fn write_rest(&mut self, id: u32) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        match pipe::write_now(&worker.ends.requests, &worker.unsent) {
            Ok(sent) => drop(worker.unsent.drain(..sent)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => worker.unsent.clear(),
        }
        if worker.unsent.is_empty() {
            io::unwatch(&self.epoll, &worker.ends.requests);
        }
    }

    /// A worker's reply pipe can be read.
    pub(super) fn read(&mut self, id: u32, scratch: &mut [u8]) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let got = match pipe::read_now(&worker.ends.replies, scratch) {
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => 0,
        };
        if got == 0 {
            // Level-triggered: a closed pipe would ring for ever.
            io::unwatch(&self.epoll, &worker.ends.replies);
            return self.closed(id);
        }
        let mut bytes = &scratch[..got];
        while !bytes.is_empty() {
            let Some(worker) = self.workers.get_mut(&id) else {
                return;
            };
            let Some(kind) = worker.call.as_ref().map(|call| call.kind) else {
                let detail = "bytes without a call";
                return self.end(id, Reply::failed(Outcome::ProtocolViolation, detail));
            };
            let mut reader = std::mem::take(&mut worker.reader);
            let cap = self.cap(kind);
            let pushed = reader.push(bytes, cap);
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.reader = reader;
            }
            match pushed {
                Err(bad) => return self.end(id, self.refused(bad)),
                Ok((_, None)) => return,
                Ok((used, Some(frame))) => {
                    bytes = &bytes[used..];
                    self.frame(id, &frame, !bytes.is_empty());
                }
            }
        }
    }

    /// The reply for a frame that is too long or none.
    pub(super) fn refused(&self, bad: Bad) -> Reply {
        match bad {
            Bad::TooLong(length) if length < 1 << 28 => Reply::failed(
                Outcome::OverOutput,
                format!("reply of {length} bytes, limit {}", self.limits.reply_bytes),
            ),
            bad => Reply::failed(Outcome::ProtocolViolation, bad.to_string()),
        }
    }

    /// The pipe is read to its end; the cause may be known already, or still be on its way.
    pub(super) fn closed(&mut self, id: u32) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if let Some((status, over_memory)) = worker.exit {
            return self.end(id, exit_reply(status, over_memory));
        }
        if worker.closed_until.is_none() {
            let until = Instant::now() + GRACE;
            worker.closed_until = Some(until);
            let first = worker.root;
            self.ring_by(until);
            if let Some(first) = first {
                self.ask_for_kills(first, id);
            }
        }
    }

    /// A whole frame of a worker with a call in flight. Whether that call is still open.
    pub(super) fn frame(&mut self, id: u32, frame: &[u8], more: bool) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else {
            return false;
        };
        worker.used.bytes_out += frame.len() as u64 + 4;
        let (sequence, profile) = (worker.sequence, worker.profile);
        if let Some(code) = decode_code(frame, sequence) {
            let source = worker.call.as_mut().and_then(|call| call.source.take());
            if let Some(source) = source {
                self.code.put(profile, &source, code.to_vec());
                return true;
            }
        }
        match decode_reply(frame, sequence) {
            Ok(reply) => self.answered(id, reply, more),
            Err(bad) => self.end(
                id,
                Reply::failed(Outcome::ProtocolViolation, bad.to_string()),
            ),
        }
        false
    }

    fn answered(&mut self, id: u32, mut reply: Reply, more: bool) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let Some(call) = worker.call.take() else {
            return;
        };
        let now = Instant::now();
        reply.wall_s = (now - call.begun).as_secs_f64();
        reply.cpu_s = worker.look(now);
        worker.used.calls += 1;
        worker.used.wall_s += reply.wall_s;
        if reply.outcome == Outcome::OverMemory {
            self.limits.name_memory(worker.profile, &mut reply.detail);
        }
        if let Some(detail) = misfit(call.kind, &reply) {
            reply = Reply::failed(Outcome::ProtocolViolation, detail);
        } else if reply.observation.len() > self.limits.reply_bytes {
            let limit = self.limits.reply_bytes;
            let detail = format!("reply of {} bytes, limit {limit}", reply.observation.len());
            reply = Reply::failed(Outcome::OverOutput, detail);
        }
        if call.silent {
            return self.parent_answered(call.operation, reply, call.held);
        }
        let loaded = call.kind.loads();
        if loaded && reply.outcome == Outcome::Finished && worker.parent_pid.is_some() {
            reply = self.identify(id, reply);
        }
        let fatal = (loaded && reply.outcome != Outcome::Finished)
            || matches!(
                reply.outcome,
                Outcome::OverMemory | Outcome::ProtocolViolation
            );
        if fatal {
            // First what ends it, so that whoever takes the answer finds the session over.
            if let Some(session) = self.workers.get(&id).and_then(|worker| worker.session) {
                self.sessions.insert(session, Session::Over(reply.clone()));
            }
        }
        if call.kind == Kind::Reset && self.refill_at.is_some() {
            self.refill(); // the session has had its first answers
        }
        let end = if more {
            let detail = "bytes after the reply";
            Some(Reply::failed(Outcome::ProtocolViolation, detail))
        } else {
            fatal.then(|| reply.clone())
        };
        if !(loaded && self.parent_is_busy(id, call.operation, &reply)) {
            self.finish(call.operation, Ok(reply));
        }
        if let Some(end) = end {
            self.end(id, end);
        }
    }
}

/// What is wrong with a well-formed reply as the answer to this kind of call, if anything is.
fn misfit(kind: Kind, reply: &Reply) -> Option<&'static str> {
    let flags = reply.terminated || reply.truncated;
    let text = !reply.observation.is_empty();
    match kind {
        _ if reply.outcome != Outcome::Finished => {
            (flags || text || reply.reward.is_some()).then_some("a failure that carries values")
        }
        Kind::Step => reply.reward.is_none().then_some("a step without a reward"),
        Kind::Reset | Kind::Hint => {
            (flags || reply.reward.is_some()).then_some("a text that carries a reward or an end")
        }
        Kind::Load | Kind::LoadCode | Kind::Ping | Kind::Fork => {
            (flags || text || reply.reward.is_some()).then_some("an answer that carries values")
        }
    }
}
