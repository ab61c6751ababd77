//! A worker as the host knows it, and the account of what it used.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::Call;
use super::control::exit_reply;
use crate::jail::sys::{io, pipe, process};
use crate::outcome::{Outcome, Reply};
use crate::protocol::FrameReader;

/// The host's ends of a worker's pipes. Shared with a thread that blocks on them.
pub(super) struct Ends {
    pub(super) requests: OwnedFd,
    pub(super) replies: OwnedFd,
    /// Where the ends of branches are sent, for forkable workers.
    pub(super) control: Option<OwnedFd>,
}

/// CPU time between two calls that nobody is suspected for: giving memory back takes some.
const MOST_IDLE: Duration = Duration::from_millis(50);
/// A worker with many threads that was idle for less is not suspected of anything.
const IDLE: Duration = Duration::from_millis(5);
/// Of 50 ms each: a broker that takes longer than all of them is dead or stopped.
const MOST_LOOKS: u32 = 100;

/// What a session has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// Calls answered.
    pub calls: u64,
    /// Wall seconds of them.
    pub wall_s: f64,
    /// Bytes sent to the worker.
    pub bytes_in: u64,
    /// Bytes it sent.
    pub bytes_out: u64,
    /// CPU nanoseconds of the worker since the session began; `None` where they cannot be read.
    pub cpu_ns: Option<u64>,
    /// Highest resident size of the worker, pages shared with the template included.
    pub peak_rss_bytes: Option<u64>,
    /// Pages that are the worker's alone.
    pub private_bytes: Option<u64>,
    /// Page faults without and with input, since the worker was forked.
    pub faults: Option<(u64, u64)>,
}

/// A worker that is or was ready.
pub(super) struct Worker {
    pub(super) ends: Arc<Ends>,
    pub(super) pidfd: Option<Arc<OwnedFd>>,
    pub(super) pid: Option<i32>,
    pub(super) profile: usize,
    pub(super) session: Option<u64>,
    pub(super) sequence: u32,
    pub(super) reader: FrameReader,
    pub(super) unsent: Vec<u8>,
    pub(super) call: Option<Call>,
    /// Its pipe closed; the cause is awaited until then.
    pub(super) closed_until: Option<Instant>,
    /// Looks at whether it had ended, while the cause was awaited.
    looks: u32,
    /// How it ended, while what it wrote before is still being read.
    pub(super) exit: Option<(i32, bool)>,
    /// CPU nanoseconds at the last look, which ended the last call.
    pub(super) cpu_seen: Option<u64>,
    /// When that was.
    looked: Option<Instant>,
    /// In less time its threads cannot have used `MOST_IDLE`.
    idle: Duration,
    cpu_at_start: Option<u64>,
    pub(super) used: Used,
    /// The first of its family, if it is a branch.
    pub(super) root: Option<u32>,
    /// Worker that it was copied from.
    pub(super) parent: Option<u32>,
    /// Process that it was copied from, until it has proved to be that.
    pub(super) parent_pid: Option<i32>,
    /// Live branches of the whole family, for the first of it.
    pub(super) branches: u32,
    /// Its session is over, but branches live in its namespace.
    pub(super) lingers: bool,
    /// Kills for memory in its control group that are accounted for, for the first of a family.
    pub(super) kills_seen: u32,
    /// Processes of its family that were no session's at the last look, and when that was.
    pub(super) strays: HashSet<i32>,
    pub(super) strays_at: Option<Instant>,
}

impl Worker {
    /// A worker of a profile that allows so many threads.
    pub(super) fn new(ends: Ends, profile: usize, threads: u32) -> Self {
        Self {
            idle: (MOST_IDLE / threads.max(1)).max(IDLE),
            ends: Arc::new(ends),
            pidfd: None,
            pid: None,
            profile,
            session: None,
            sequence: 0,
            reader: FrameReader::default(),
            unsent: Vec::new(),
            call: None,
            closed_until: None,
            looks: 0,
            exit: None,
            cpu_seen: None,
            looked: None,
            cpu_at_start: None,
            used: Used::default(),
            root: None,
            parent: None,
            parent_pid: None,
            branches: 0,
            lingers: false,
            kills_seen: 0,
            strays: HashSet::new(),
            strays_at: None,
        }
    }

    /// A session begins: what was used before is the pool's.
    pub(super) fn begin(&mut self, session: u64) {
        self.session = Some(session);
        self.cpu_seen = self.pid.and_then(process::cpu_ns_of);
        self.looked = Some(Instant::now());
        self.cpu_at_start = self.cpu_seen;
    }

    /// CPU seconds since the last look, which this becomes; `at` is now.
    pub(super) fn look(&mut self, at: Instant) -> Option<f64> {
        let now = self.pid.and_then(process::cpu_ns_of)?;
        let before = self.cpu_seen.replace(now);
        self.looked = Some(at);
        self.used.cpu_ns = self.cpu_at_start.map(|start| now.saturating_sub(start));
        Some(now.saturating_sub(before?) as f64 / 1e9)
    }

    /// The reply for a worker that computes while nobody has asked it anything: it has answered
    /// before it was done, or a thread of it goes on.
    pub(super) fn ran_between_calls(&self) -> Option<Reply> {
        // Not looked at when there was no time for it: the look would cost every step something.
        if self.call.is_some() || self.looked.is_none_or(|at| at.elapsed() < self.idle) {
            return None;
        }
        let now = self.pid.and_then(process::cpu_ns_of)?;
        let spent = now.saturating_sub(self.cpu_seen?);
        let held = self.session.is_some() || self.lingers;
        (held && Duration::from_nanos(spent) > MOST_IDLE && !self.has_ended()).then(|| {
            let detail = format!("ran {:.3} s between calls", spent as f64 / 1e9);
            Reply::failed(Outcome::ProtocolViolation, detail)
        })
    }

    /// Whether its process has ended; nobody may have noticed yet.
    fn has_ended(&self) -> bool {
        let fd = self.pidfd.as_ref().map(|fd| fd.as_raw_fd());
        let ready = fd.map(|fd| io::poll_readable(&[fd], Some(Duration::ZERO)));
        matches!(ready, Some(Ok(ready)) if ready[0])
    }

    /// What it used, with what the kernel tells now; `None` when it has ended.
    pub(super) fn account(&self) -> Option<Used> {
        let used = self.read_account();
        // Asked last: the number of a process that has ended may mean another one.
        (!self.has_ended()).then_some(used)
    }

    fn read_account(&self) -> Used {
        let mut used = self.used;
        let Some(pid) = self.pid else { return used };
        let now = process::cpu_ns_of(pid);
        let since = now.zip(self.cpu_at_start);
        used.cpu_ns = since.map_or(used.cpu_ns, |(now, start)| Some(now.saturating_sub(start)));
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let kib = |text: &str, key: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().trim_end_matches("kB").trim().parse().ok()
        };
        if let Some(status) = read("status") {
            used.peak_rss_bytes = kib(&status, "VmHWM:").map(|k| k * 1024);
        }
        if let Some(maps) = read("smaps_rollup") {
            let dirty = kib(&maps, "Private_Dirty:").zip(kib(&maps, "Private_Clean:"));
            used.private_bytes = dirty.map(|(dirty, clean)| (dirty + clean) * 1024);
        }
        if let Some(stat) = read("stat") {
            // After the name, which may hold anything, come state, ppid and so on.
            let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
            let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
            used.faults = number(8).zip(number(10));
        }
        used
    }

    /// Whether a thread is still on its way to the end of its pipe, after it has ended in a call. What
    /// that thread took out and has not brought yet is in nobody's count, so that an empty pipe is no
    /// proof; but one that nobody can write any more has an end which the thread will meet.
    pub(super) fn is_being_read(&self) -> bool {
        let replies = &self.ends.replies;
        let meets_the_end = self.exit.is_some() && self.call.is_some() && pipe::is_ended(replies);
        meets_the_end || pipe::unread(replies) > 0
    }

    /// Whether it has ended and the broker, who collects it, has yet to say how.
    pub(super) fn awaits_cause(&mut self) -> bool {
        if self.exit.is_some() || self.root.is_some() || self.looks >= MOST_LOOKS {
            return false;
        }
        let has_ended = self.pidfd.as_ref().is_some_and(|pidfd| {
            io::poll_readable(&[pidfd.as_raw_fd()], Some(Duration::ZERO)).is_ok_and(|r| r == [true])
        });
        self.looks += 1;
        has_ended
    }

    /// What its closed pipe means when nobody tells the cause.
    pub(super) fn closed_reply(&self) -> Reply {
        if let Some((status, over_memory)) = self.exit {
            return exit_reply(status, over_memory);
        }
        if self.root.is_some() {
            return Reply::failed(Outcome::Crashed, "the branch ended by itself");
        }
        Reply::failed(Outcome::ProtocolViolation, "the worker closed its pipe")
    }
}
