//! Counters of a pool. Rust counts, Python logs.

use crate::outcome::{ALL, Outcome};

const LATENCY_SAMPLES: usize = 1 << 16;

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
    /// Spares that died before they were used.
    pub lost_spares: u64,
    outcomes: [u64; ALL.len()],
    latencies: Vec<f64>,
}

impl Stats {
    /// Note one answered call.
    pub fn answered(&mut self, outcome: Outcome, wall_s: f64) {
        self.outcomes[outcome as usize] += 1;
        if self.latencies.len() < LATENCY_SAMPLES {
            self.latencies.push(wall_s);
        }
    }

    /// Name and value of every counter.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("acquired", self.acquired),
            ("busy", self.busy),
            ("killed", self.killed),
            ("started", self.started),
            ("lost_spares", self.lost_spares),
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
}
