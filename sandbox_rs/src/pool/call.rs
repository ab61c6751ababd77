//! Workers, their calls in flight, and the deadlines of those calls.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::State;
use crate::jail::sys::{io, process};
use crate::outcome::{Outcome, Reply};
use crate::protocol::{FrameReader, Kind};

/// A starved worker's deadline is stretched to at most this many times its length.
const MOST_STRETCH: f64 = 10.0;

/// A call in flight.
pub(super) struct Call {
    pub(super) operation: u64,
    pub(super) kind: Kind,
    pub(super) begun: Instant,
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    pub(super) cpu_before: Option<u64>,
    pub(super) next_check: Instant,
    /// Seconds the worker was ready to run but had no CPU, and its counter at the last look.
    pub(super) stolen: Option<(f64, f64)>,
}

/// A worker that is or was ready.
pub(super) struct Worker {
    pub(super) socket: OwnedFd,
    pub(super) pidfd: Arc<OwnedFd>,
    pub(super) pid: Option<i32>,
    pub(super) session: Option<u64>,
    pub(super) sequence: u32,
    pub(super) reader: FrameReader,
    pub(super) unsent: Vec<u8>,
    pub(super) call: Option<Call>,
    /// Its socket closed; the cause is awaited until then.
    pub(super) closed_until: Option<Instant>,
}

impl Worker {
    pub(super) fn new(socket: OwnedFd, pidfd: OwnedFd, pid: Option<i32>) -> Self {
        Self {
            socket,
            pidfd: Arc::new(pidfd),
            pid,
            session: None,
            sequence: 0,
            reader: FrameReader::default(),
            unsent: Vec::new(),
            call: None,
            closed_until: None,
        }
    }
}

impl State {
    /// Judge every deadline that has passed, and set the timer for the next.
    pub(super) fn timer_rang(&mut self) {
        io::hush(&self.timer);
        self.rings_at = None;
        let now = Instant::now();
        if self.hold_until.is_some_and(|until| until <= now) {
            self.hold_until = None;
        }
        let mut next = self.hold_until;
        let mut over = Vec::new();
        for (&id, worker) in &mut self.workers {
            let mut at = worker.closed_until;
            if at.is_some_and(|until| until <= now) {
                let detail = "the worker closed its socket";
                over.push((id, Reply::failed(Outcome::ProtocolViolation, detail)));
                continue;
            }
            if let Some(call) = &mut worker.call {
                if call.next_check <= now {
                    match late(call, worker.pid, now) {
                        Some(reply) => {
                            over.push((id, reply));
                            continue;
                        }
                        None => debug_assert!(call.next_check > now),
                    }
                }
                at = Some(at.map_or(call.next_check, |at| at.min(call.next_check)));
            }
            next = match (next, at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        if let Some(when) = next {
            self.ring_by(when);
        }
        for (id, reply) in over {
            self.end(id, reply);
        }
        self.assign();
    }
}

/// CPU seconds since a reading.
pub(super) fn used(pid: Option<i32>, before: Option<u64>) -> Option<f64> {
    let now = pid.and_then(process::cpu_ns_of)?;
    Some(now.saturating_sub(before?) as f64 / 1e9)
}

/// Seconds a process has waited for a CPU while it could have run.
fn waited(pid: Option<i32>) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid?)).ok()?;
    let nanoseconds: f64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// Wall seconds that count against the deadline: on a full machine a worker may wait for a CPU, and
/// that time is not its own. Looked at only when the plain deadline has passed.
fn own_wall(call: &mut Call, pid: Option<i32>, now: Instant) -> f64 {
    let wall = now.saturating_duration_since(call.begun).as_secs_f64();
    let Some(counter) = waited(pid) else {
        return wall;
    };
    // The first look cannot tell this call's waiting from that of earlier calls, so it may forgive
    // too much, at most one deadline's worth.
    let (so_far, last) = call.stolen.unwrap_or((0.0, (counter - wall).max(0.0)));
    let stolen = so_far + (counter - last).max(0.0);
    call.stolen = Some((stolen, counter));
    (wall - stolen).max(wall / MOST_STRETCH)
}

/// The reply if a deadline has passed; otherwise sets the time of the next look.
fn late(call: &mut Call, pid: Option<i32>, now: Instant) -> Option<Reply> {
    let cpu_s = used(pid, call.cpu_before);
    let (wall_limit, cpu_limit) = (call.wall.as_secs_f64(), call.cpu.as_secs_f64());
    let over_cpu = cpu_s.is_some_and(|cpu| cpu >= cpu_limit);
    let wall_end = call.begun + call.wall;
    let wall = if now >= wall_end {
        own_wall(call, pid, now)
    } else {
        0.0
    };
    if !over_cpu && wall < wall_limit {
        let cpu_left = cpu_s.map_or(wall_limit, |cpu| cpu_limit - cpu);
        let wall_left = if now >= wall_end {
            wall_limit - wall
        } else {
            (wall_end - now).as_secs_f64()
        };
        let left = cpu_left.min(wall_left).max(0.001);
        call.next_check = now + Duration::from_secs_f64(left);
        return None;
    }
    let detail = match cpu_s {
        Some(cpu) if over_cpu => format!("cpu: {cpu:.3} s used, limit {cpu_limit} s"),
        Some(cpu) => {
            format!(
                "wall: {wall:.3} s passed, limit {wall_limit} s ({cpu:.3} s of them on the CPU)"
            )
        }
        None => format!("wall: {wall:.3} s passed, limit {wall_limit} s"),
    };
    let mut reply = Reply::failed(Outcome::TimedOut, detail);
    reply.cpu_s = cpu_s;
    Some(reply)
}
