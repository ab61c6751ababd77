//! Limits of a pool, and what the host, the broker and the template tell each other about them.

use serde::{Deserialize, Serialize};

/// Limits and choices of one pool. Checked in `sandbox.py`; sent to broker and template as TOML.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Every layer must hold, or the pool refuses to start.
    pub strict: bool,
    /// Most live sessions at once.
    pub num_workers: usize,
    /// Workers kept ready ahead of demand.
    pub spares: usize,
    /// Sessions that may wait for a worker.
    pub queue: usize,
    /// Wall seconds of one reset, step or hint.
    pub wall_s_per_call: f64,
    /// CPU seconds of one reset, step or hint.
    pub cpu_s_per_call: f64,
    /// Wall (and CPU) seconds of loading a source.
    pub load_wall_s: f64,
    /// Address space of a worker above that of the template.
    pub memory_bytes: u64,
    /// Longest reply frame.
    pub reply_bytes: usize,
    /// Longest source text.
    pub source_bytes: usize,
    /// Longest action text.
    pub action_bytes: usize,
    /// Turn budget handed to constructors that ask for one.
    pub max_turns: u32,
    /// Further modules the template imports before it locks itself.
    pub imports: Vec<String>,
    /// Folders searched for `imports`.
    pub import_paths: Vec<String>,
    /// Interpreter of the template.
    pub python: String,
    /// File of this extension module, loaded by broker and template.
    pub module_path: String,
    /// Layers left out on purpose, by tests of degraded machines.
    pub without: Vec<String>,
}

impl Limits {
    /// Whether a layer is left out on purpose.
    pub fn lacks(&self, layer: &str) -> bool {
        self.without.iter().any(|name| name == layer)
    }

    /// Hard CPU limit of a whole worker, in seconds: a backstop above the per-call limits.
    pub fn lifetime_cpu_s(&self) -> u64 {
        let calls = f64::from(self.max_turns.saturating_add(4));
        let total = self.load_wall_s + calls * self.cpu_s_per_call + 2.0;
        // Bounded below by two seconds; a float above u64 saturates.
        total.ceil().max(2.0) as u64
    }
}
