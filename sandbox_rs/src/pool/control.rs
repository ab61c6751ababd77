//! Packets between the pool and its broker.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::{State, Waiter};
use super::worker::{Ends, Worker};
use crate::jail::sys::{io, process};
use crate::outcome::{Outcome, Reply, signal_name};
use crate::template::Class;

/// Spares that may die one after another before the pool gives up.
const MOST_LOST: u64 = 64;
/// Workers asked for at once.
const MOST_STARTING: usize = 64;
/// Longest time that a spare's successor is not asked for.
const SOON: Duration = Duration::from_millis(5);
/// Pause after a worker could not be started: what is short may come free.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the cause of a worker's end and the end of its pipe may be apart.
pub(super) const GRACE: Duration = Duration::from_millis(200);

impl State {
    /// Ask the broker for as many workers as are wanted.
    pub(super) fn refill(&mut self) {
        if self.hold_until.is_some() || self.broken.is_some() || self.broker_lost.is_some() {
            return;
        }
        self.refill_at = None;
        for profile in 0..self.spares.len() {
            for class in [Class::MadeToOrder, Class::Forkable, Class::Ahead] {
                let count = self.wanted(profile, class);
                if count == 0 {
                    continue;
                }
                let mut packet = vec![b'S', profile as u8, class as u8];
                packet.extend_from_slice(&self.next_worker.to_le_bytes());
                packet.extend_from_slice(&(count as u32).to_le_bytes());
                // A full socket is no fault: the next event asks again.
                if io::send_with(self.control.as_raw_fd(), &packet, &[], false).is_err() {
                    return;
                }
                if self.starting.is_empty() {
                    self.heard = Instant::now();
                    self.ring_by(self.heard + self.broker_patience());
                }
                for _ in 0..count {
                    self.starting.insert(self.next_worker, (profile, class));
                    self.next_worker = self.next_worker.wrapping_add(1).max(1);
                }
            }
        }
    }

    /// Longest silence of a broker that owes workers: it first gives up a template that is silent,
    /// and says so.
    fn broker_patience(&self) -> Duration {
        2 * self.limits.start()
    }

    /// A broker that owes workers and says nothing is as good as dead; when to look again.
    pub(super) fn judge_broker(&mut self, now: Instant) -> Option<Instant> {
        if self.starting.is_empty() || self.broker_lost.is_some() {
            return None;
        }
        let until = self.heard + self.broker_patience();
        if now < until {
            return Some(until);
        }
        let seconds = self.broker_patience().as_secs_f64();
        self.lose_broker(&format!(
            "ended after it was asked for workers and said nothing for {seconds} s"
        ));
        None
    }

    /// A spare was taken: its successor is asked for when that costs nobody a wait, which is after
    /// the session's first answers, or a little later at the latest.
    pub(super) fn refill_soon(&mut self) {
        let at = Instant::now() + SOON;
        self.refill_at = Some(self.refill_at.map_or(at, |known| known.min(at)));
        self.ring_by(at);
    }

    /// Workers of a kind to ask for now: those who wait can use, and the spares.
    fn wanted(&self, profile: usize, class: Class) -> usize {
        let starting = self.starting.values();
        let starting = starting.filter(|kind| **kind == (profile, class)).count();
        let target = if class == Class::Ahead {
            let spares = self.limits.profiles[profile].spares;
            spares.saturating_sub(self.spares[profile].len())
        } else {
            let room = self.limits.num_workers.saturating_sub(self.live);
            let forkable = class == Class::Forkable;
            let fits = |w: &&Waiter| w.profile == profile && w.forkable == forkable;
            self.waiting.iter().take(room).filter(fits).count()
        };
        target.saturating_sub(starting).min(MOST_STARTING)
    }

    /// Take in everything the broker has sent.
    pub(super) fn control_ready(&mut self, buffer: &mut [u8]) {
        while self.broker_lost.is_none() && self.broken.is_none() {
            let (length, fds) = match io::recv_with(self.control.as_raw_fd(), buffer, false) {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => (0, Vec::new()),
            };
            if length == 0 {
                self.lose_broker("the broker died");
                break;
            }
            self.heard = Instant::now();
            self.packet(&buffer[..length], fds);
        }
        self.assign();
    }

    fn packet(&mut self, packet: &[u8], fds: Vec<OwnedFd>) {
        let id = packet.get(1..5).and_then(|b| b.try_into().ok());
        let id = id.map(u32::from_le_bytes);
        let text = |from: usize| {
            String::from_utf8_lossy(packet.get(from..).unwrap_or_default()).into_owned()
        };
        match (packet[0], id) {
            (b'W', Some(id)) => self.started(id, fds),
            (b'X', Some(id)) if packet.len() == 10 => {
                let status = [packet[5], packet[6], packet[7], packet[8]];
                self.exited(id, i32::from_le_bytes(status), packet[9] != 0);
            }
            (b'E', Some(id)) => self.not_started(id, &text(5)),
            (b'M', Some(id)) if packet.len() == 9 => {
                let kills = [packet[5], packet[6], packet[7], packet[8]];
                self.kills_told(id, u32::from_le_bytes(kills));
            }
            (b'T', _) => self.template_changed(packet.get(1..3), &text(3)),
            (b'F', _) => self.lose_broker(&text(1)),
            _ => self.lose_broker("the broker sent nonsense"),
        }
    }

    fn lose_broker(&mut self, why: &str) {
        self.broker_lost.get_or_insert_with(|| why.to_owned());
    }

    fn template_changed(&mut self, what: Option<&[u8]>, detail: &str) {
        let Some(&[profile, what]) = what else { return };
        let index = usize::from(profile);
        let Some(profile) = self.limits.profiles.get(index) else {
            return;
        };
        let kind = match what {
            b'L' => {
                self.code.forget(index);
                "template_died"
            }
            b'D' => {
                self.stats.template_restarts += 1;
                "template_restarted"
            }
            _ => {
                self.code.forget(index);
                self.stats.template_rotations += 1;
                "template_rotated"
            }
        };
        self.stats.event(kind, &profile.name, None, detail);
        if what == b'R' {
            // Spares of the old template are used up first: they are as good.
            self.refill();
        }
    }

    fn started(&mut self, id: u32, fds: Vec<OwnedFd>) {
        let Some((profile, class)) = self.starting.get(&id).copied() else {
            return;
        };
        let forkable = class == Class::Forkable;
        let mut fds = fds.into_iter();
        let ends = (fds.next(), fds.next(), fds.next(), fds.next());
        let (Some(requests), Some(replies), Some(pidfd), control) = ends else {
            // The kernel drops descriptors that find no room here: the process is out of them.
            return self.not_started(id, "too many open files in this process; raise ulimit -n");
        };
        if forkable && control.is_none() {
            return self.not_started(id, "too many open files in this process; raise ulimit -n");
        }
        self.starting.remove(&id);
        let mut worker = Worker::new(
            Ends {
                requests,
                replies,
                control,
            },
            profile,
            self.limits.profiles[profile].pids,
        );
        worker.pid = pid_of(&pidfd);
        worker.pidfd = Some(Arc::new(pidfd));
        if let Err(error) = self.watch_worker(id, &worker) {
            self.to_kill.extend(worker.pidfd);
            return self.not_started(id, &error.to_string());
        }
        self.stats.started += 1;
        self.workers.insert(id, worker);
        if !forkable {
            self.spares[profile].push_back(id);
            self.assign();
            // Who waited may have been given another one meanwhile.
            let most = self.limits.profiles[profile].spares;
            if self.spares[profile].len() > most {
                self.retire(id);
            }
            return;
        }
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|waiter| waiter.forkable && waiter.profile == profile);
        let at = at.filter(|_| self.live < self.limits.num_workers);
        match at.and_then(|at| self.waiting.remove(at)) {
            Some(waiter) => self.grant(id, waiter),
            None => self.retire(id), // who waited has left, or a fork has taken the place
        }
    }

    fn exited(&mut self, id: u32, status: i32, over_memory: bool) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        // What it wrote before it ended still counts: read it first.
        if !self.limits.blocking {
            let mut scratch = vec![0; 64 << 10];
            self.read(id, &mut scratch);
        } else if worker.call.is_some() && worker.closed_until.is_none() {
            // A thread reads this pipe and may hold bytes of it that it has not brought here yet:
            // it tells when it has met the end (`closed`). Should it not, the timer does.
            return self.await_end(id, status, over_memory);
        }
        if !self.workers.contains_key(&id) {
            return;
        }
        self.end(id, exit_reply(status, over_memory));
        if self.stats.lost_spares > MOST_LOST && self.stats.lost_spares > self.stats.acquired {
            self.fail("workers die before they are used; see capabilities");
        }
    }

    /// A worker has ended in a call; what ended it is kept until its pipe is read to the end.
    fn await_end(&mut self, id: u32, status: i32, over_memory: bool) {
        let until = Instant::now() + GRACE;
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.exit = Some((status, over_memory));
            worker.closed_until = Some(until);
            self.ring_by(until);
        }
    }

    /// A worker could not be made: the oldest waiter is told, the others go on waiting.
    fn not_started(&mut self, id: u32, detail: &str) {
        let kind = self.starting.remove(&id);
        let until = Instant::now() + PAUSE;
        self.hold_until = Some(until);
        self.ring_by(until);
        self.stats.event("start_failed", "", None, detail);
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|w| {
            kind.is_none_or(|(profile, class)| {
                profile == w.profile && w.forkable == (class == Class::Forkable)
            })
        });
        if let Some(waiter) = at.and_then(|at| self.waiting.remove(at)) {
            self.sessions.remove(&waiter.session);
            let text = format!("no worker could be started: {detail}");
            self.finish(waiter.session, Err(text));
        }
    }
}

/// What the end of a worker means for its call.
pub(super) fn exit_reply(status: i32, over_memory: bool) -> Reply {
    if over_memory {
        let detail = "memory: killed by the kernel, its control group was full";
        return Reply::failed(Outcome::OverMemory, detail);
    }
    match status {
        s if s == -libc::SIGSYS => Reply::failed(Outcome::RefusedCall, "killed by SIGSYS"),
        s if s < 0 => Reply::failed(Outcome::Crashed, format!("killed by {}", signal_name(-s))),
        s => Reply::failed(Outcome::Crashed, format!("left by itself with code {s}")),
    }
}

/// Process id behind a pidfd as this process sees it; `None` without a matching /proc.
fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    process::pid_behind(pidfd).or_else(|| pid_in_proc(pidfd))
}

fn pid_in_proc(pidfd: &OwnedFd) -> Option<i32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok().filter(|&pid| pid > 0)
}
