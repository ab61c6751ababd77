//! Counters and events of a pool. Rust counts, Python logs.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::outcome::{ALL, Outcome};

const LATENCY_SAMPLES: usize = 1 << 16;
const EVENTS: usize = 4096;

/// Something worth a line in a log or a mark in a plot.
#[derive(Debug, Clone)]
pub struct Event {
    /// Unix time in seconds.
    pub at: f64,
    /// Stable name.
    pub kind: &'static str,
    /// Profile concerned, or "".
    pub profile: String,
    /// Session concerned, if any.
    pub session: Option<u64>,
    /// What was seen.
    pub detail: String,
}

/// What a pool has done so far.
#[derive(Debug, Default)]
pub struct Stats {
    /// Sessions that got a worker.
    pub acquired: u64,
    /// Sessions refused because the queue was full.
    pub busy: u64,
    /// Workers killed by the host, at the end of a session or for a limit.
    pub killed: u64,
    /// Workers started.
    pub started: u64,
    /// Copies of live sessions.
    pub forked: u64,
    /// Spares that died before they were used.
    pub lost_spares: u64,
    /// Loads that found their source compiled.
    pub code_hits: u64,
    /// Loads that did not.
    pub code_misses: u64,
    /// Brokers started after the first.
    pub broker_restarts: u64,
    /// Templates started because one died.
    pub template_restarts: u64,
    /// Templates started because one was old.
    pub template_rotations: u64,
    /// Events dropped because nobody took them.
    pub events_dropped: u64,
    outcomes: [u64; ALL.len()],
    latencies: Vec<f64>,
    events: VecDeque<Event>,
}

impl Stats {
    /// Note one answered call.
    pub fn answered(&mut self, outcome: Outcome, wall_s: f64) {
        self.outcomes[outcome as usize] += 1;
        if self.latencies.len() < LATENCY_SAMPLES {
            self.latencies.push(wall_s);
        }
    }

    /// Note an event; the oldest gives way when 4,096 wait.
    pub fn event(
        &mut self,
        kind: &'static str,
        profile: &str,
        session: Option<u64>,
        detail: impl Into<String>,
    ) {
        if self.events.len() >= EVENTS {
            self.events.pop_front();
            self.events_dropped += 1;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        self.events.push_back(Event {
            at: at.map_or(0.0, |d| d.as_secs_f64()),
            kind,
            profile: profile.to_owned(),
            session,
            detail: detail.into(),
        });
    }

    /// Name and value of every counter.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("acquired", self.acquired),
            ("busy", self.busy),
            ("killed", self.killed),
            ("started", self.started),
            ("forked", self.forked),
            ("lost_spares", self.lost_spares),
            ("code_hits", self.code_hits),
            ("code_misses", self.code_misses),
            ("broker_restarts", self.broker_restarts),
            ("template_restarts", self.template_restarts),
            ("template_rotations", self.template_rotations),
            ("events_dropped", self.events_dropped),
        ];
        for outcome in ALL {
            all.push((outcome.as_str(), self.outcomes[outcome as usize]));
        }
        all
    }

    /// Wall seconds per call since the last drain; at most 65,536 are kept.
    pub fn drain_latencies(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.latencies)
    }

    /// Events since the last drain.
    pub fn drain_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events).into()
    }
}
