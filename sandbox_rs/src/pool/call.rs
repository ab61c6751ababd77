//! Calls in flight and their deadlines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::State;
use super::worker::Worker;
use crate::jail::sys::{io, pipe, process};
use crate::outcome::{Outcome, Reply};
use crate::protocol::Kind;

/// How often workers that nobody calls are looked at.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// A starved worker's deadline is stretched to at most this many times its length.
const MOST_STRETCH: f64 = 10.0;

/// A call in flight.
pub(super) struct Call {
    pub(super) operation: u64,
    pub(super) kind: Kind,
    pub(super) begun: Instant,
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    pub(super) next_check: Instant,
    /// The source of a `Load`, until its code has come.
    pub(super) source: Option<Arc<str>>,
    /// Whether somebody waits for it; the fork of a parent is answered by its branch.
    pub(super) silent: bool,
    /// What the branch of a silent call has answered while its parent has not: whoever asked for
    /// the fork may call the parent next.
    pub(super) held: Option<Reply>,
    /// Seconds the worker was ready to run but had no CPU, and its counter at the last look.
    pub(super) stolen: Option<(f64, f64)>,
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
        if self.refill_at.is_some_and(|at| at <= now) {
            self.refill();
        }
        self.end_strays(now);
        let broker = self.judge_broker(now);
        let next = self.hold_until.into_iter().chain(self.refill_at);
        let mut next = next.chain(broker).min();
        let mut over = Vec::new();
        for (&id, worker) in &mut self.workers {
            let mut at = worker.closed_until;
            if at.is_some_and(|until| until <= now) {
                if !worker.is_being_read() && !worker.awaits_cause() {
                    over.push((id, worker.closed_reply()));
                    continue;
                }
                // What it wrote before it ended still counts; the thread that reads it is late, and
                // tells when it has met the end. Or the broker is, who knows how it ended.
                worker.closed_until = Some(now + Duration::from_millis(50));
                at = worker.closed_until;
            }
            // One that has ended is not late: whoever reads its pipe is.
            if worker.call.is_some() && worker.exit.is_none() {
                if worker
                    .call
                    .as_ref()
                    .is_some_and(|call| call.next_check <= now)
                    && let Some(reply) = late(worker, now)
                {
                    over.push((id, reply));
                    continue;
                }
                let check = worker.call.as_ref().map(|call| call.next_check);
                at = at.into_iter().chain(check).min();
            }
            if let Some(reply) = worker.ran_between_calls() {
                over.push((id, reply));
                continue;
            }
            if worker.session.is_some() || worker.lingers {
                at = at.into_iter().chain([now + IDLE_LOOK]).min();
            }
            next = next.into_iter().chain(at).min();
        }
        if let Some(when) = next {
            self.ring_by(when);
        }
        for (id, reply) in over {
            self.end(id, reply);
        }
        self.assign();
        self.refill_if_due();
    }

    /// Replace spares whose time has come, or that a hold has delayed.
    fn refill_if_due(&mut self) {
        if self.hold_until.is_none() && self.refill_at.is_none_or(|at| at <= Instant::now()) {
            self.refill();
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
fn late(worker: &mut Worker, now: Instant) -> Option<Reply> {
    let pid = worker.pid;
    let cpu_s = pid
        .and_then(process::cpu_ns_of)
        .zip(worker.cpu_seen)
        .map(|(now, before)| now.saturating_sub(before) as f64 / 1e9);
    // What lies in the pipe was in time: it is the reader who is late.
    let unread = pipe::unread(&worker.ends.replies) > 0;
    let call = worker.call.as_mut()?;
    let (wall_limit, cpu_limit) = (call.wall.as_secs_f64(), call.cpu.as_secs_f64());
    let over_cpu = cpu_s.is_some_and(|cpu| cpu >= cpu_limit);
    let wall_end = call.begun + call.wall;
    let wall = if now >= wall_end {
        own_wall(call, pid, now)
    } else {
        0.0
    };
    if unread || (!over_cpu && wall < wall_limit) {
        let cpu_left = cpu_s.map_or(wall_limit, |cpu| cpu_limit - cpu);
        let wall_left = if now >= wall_end {
            wall_limit - wall
        } else {
            (wall_end - now).as_secs_f64()
        };
        let least = if unread { 0.05 } else { 0.001 };
        let left = cpu_left.min(wall_left).max(least);
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
