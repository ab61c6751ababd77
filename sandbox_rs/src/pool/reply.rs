//! Bytes from and to workers. Nothing a worker writes is trusted before it is decoded.

use std::io::ErrorKind;
use std::time::Instant;

use super::call::used;
use super::state::{GRACE, State, TOKEN_WORKER};
use crate::jail::sys::io;
use crate::outcome::{Outcome, Reply};
use crate::protocol::{Bad, DETAIL_BYTES, Kind, REPLY_OVERHEAD, decode_reply};

impl State {
    /// A worker's socket can be read, or written again.
    pub(super) fn worker_ready(
        &mut self,
        id: u32,
        readable: bool,
        writable: bool,
        scratch: &mut [u8],
    ) {
        if writable {
            self.send_rest(id);
        }
        if !readable {
            return;
        }
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let got = match io::recv_now(&worker.socket, scratch) {
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => 0,
        };
        if got == 0 {
            if worker.closed_until.is_none() {
                let until = Instant::now() + GRACE;
                worker.closed_until = Some(until);
                // Level-triggered: a closed socket would ring for ever.
                io::unwatch(&self.epoll, &worker.socket);
                self.ring_by(until);
            }
            return;
        }
        let cap = self.limits.reply_bytes + REPLY_OVERHEAD + DETAIL_BYTES;
        let bytes = &scratch[..got];
        let outcome = match (&worker.call, worker.reader.push(bytes, cap)) {
            (None, _) => Err(Reply::failed(
                Outcome::ProtocolViolation,
                "bytes without a call",
            )),
            (Some(_), Err(Bad::TooLong(length))) if length < 1 << 28 => {
                let detail = format!("reply of {length} bytes, limit {}", self.limits.reply_bytes);
                Err(Reply::failed(Outcome::OverOutput, detail))
            }
            (Some(_), Err(bad)) => Err(Reply::failed(Outcome::ProtocolViolation, bad.to_string())),
            (Some(_), Ok((_, None))) => return,
            (Some(_), Ok((used, Some(frame)))) => decode_reply(&frame, worker.sequence)
                .map(|reply| (reply, used < got))
                .map_err(|bad| Reply::failed(Outcome::ProtocolViolation, bad.to_string())),
        };
        match outcome {
            Err(reply) => self.end(id, reply),
            Ok((reply, more)) => self.answered(id, reply, more),
        }
    }

    fn answered(&mut self, id: u32, mut reply: Reply, more: bool) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let Some(call) = worker.call.take() else {
            return;
        };
        reply.wall_s = call.begun.elapsed().as_secs_f64();
        reply.cpu_s = used(worker.pid, call.cpu_before);
        if reply.outcome == Outcome::Finished && (call.kind == Kind::Step) != reply.reward.is_some()
        {
            let detail = "a reply that does not fit the call";
            reply = Reply::failed(Outcome::ProtocolViolation, detail);
        }
        let fatal = (call.kind == Kind::Load && reply.outcome != Outcome::Finished)
            || matches!(
                reply.outcome,
                Outcome::OverMemory | Outcome::ProtocolViolation
            );
        self.finish(call.operation, Ok(reply.clone()));
        if more {
            self.end(
                id,
                Reply::failed(Outcome::ProtocolViolation, "bytes after the reply"),
            );
        } else if fatal {
            self.end(id, reply);
        }
    }

    fn send_rest(&mut self, id: u32) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if let Ok(sent) = io::send_now(&worker.socket, &worker.unsent) {
            worker.unsent.drain(..sent);
        }
        if worker.unsent.is_empty() {
            let token = TOKEN_WORKER + u64::from(id);
            let _ = io::watch(&self.epoll, &worker.socket, token, false, true);
        }
    }
}
