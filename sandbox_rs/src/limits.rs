//! Limits of a pool, and what the host, the broker and the templates tell each other about them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits and choices of one pool. Checked in `sandbox_policy.py`; sent to broker and templates as
/// TOML.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Name of the level that must hold: see `capability`.
    pub level: String,
    /// Calls block the calling thread, which reads and writes the worker's pipes itself; otherwise
    /// the I/O thread does, and completions are drained.
    pub blocking: bool,
    /// Most live sessions at once.
    pub num_workers: usize,
    /// Sessions that may wait for a worker.
    pub queue: usize,
    /// Wall seconds of one reset, step or hint.
    pub wall_s_per_call: f64,
    /// CPU seconds of one reset, step or hint.
    pub cpu_s_per_call: f64,
    /// Wall (and CPU) seconds of loading a source.
    pub load_wall_s: f64,
    /// Seconds in which a template is ready, and in which a worker that was asked for is there.
    pub start_s: f64,
    /// Longest reply frame.
    pub reply_bytes: usize,
    /// Longest source text.
    pub source_bytes: usize,
    /// Longest action text.
    pub action_bytes: usize,
    /// Turn budget handed to constructors that ask for one.
    pub max_turns: u32,
    /// Spares run a trusted episode before they are used.
    pub warm_spares: bool,
    /// Bytes of sources and compiled code kept by the host; 0 compiles every time.
    pub code_cache_bytes: usize,
    /// Most live branches of one forkable session.
    pub branches: u32,
    /// Interpreter of the broker.
    pub python: String,
    /// File of this extension module, loaded by broker and templates.
    pub module_path: String,
    /// Layers left out on purpose, by tests of degraded machines.
    pub without: Vec<String>,
    /// One template each; the first is the default.
    pub profiles: Vec<Profile>,
}

/// What one template imports and what its workers may do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name, for readers.
    pub name: String,
    /// Interpreter of the template.
    pub python: String,
    /// Further modules the template imports before it locks itself.
    pub imports: Vec<String>,
    /// Folders searched for `imports`.
    pub import_paths: Vec<String>,
    /// Groups of system calls beyond the base: see `policies/`.
    pub tiers: Vec<String>,
    /// Size of the episode's own file system; 0 means no writable path.
    pub files_bytes: u64,
    /// Files and folders it can hold.
    pub files_inodes: u64,
    /// Memory of a worker above that of the template.
    pub memory_bytes: u64,
    /// Processes and threads of a worker.
    pub pids: u32,
    /// Whether the clock of the environment is a fixed one.
    pub virtual_clock: bool,
    /// Workers kept ready ahead of demand.
    pub spares: usize,
    /// Workers after which the template is replaced; 0 means never.
    pub rotate_after: u64,
    /// Seconds after which the template is replaced; 0 means never.
    pub rotate_after_s: f64,
}

impl Limits {
    /// Whether a layer is left out on purpose.
    pub fn lacks(&self, layer: &str) -> bool {
        self.without.iter().any(|name| name == layer)
    }

    /// Longest start of a template, and longest wait for its answer.
    pub fn start(&self) -> Duration {
        Duration::from_secs_f64(self.start_s)
    }

    /// Hard CPU limit of a whole worker, in seconds: a backstop above the per-call limits.
    pub fn lifetime_cpu_s(&self) -> u64 {
        let calls = f64::from(self.max_turns.saturating_add(4));
        let total = self.load_wall_s + calls * self.cpu_s_per_call + 2.0;
        // Bounded below by two seconds; a float above u64 saturates.
        total.ceil().max(2.0) as u64
    }

    /// Add the memory limit of a profile to what is said about its breach, once.
    pub fn name_memory(&self, profile: usize, detail: &mut String) {
        const MARK: &str = "; limit ";
        if let Some(profile) = self.profiles.get(profile)
            && !detail.contains(MARK)
        {
            *detail = format!("{detail}{MARK}{} bytes", profile.memory_bytes);
        }
    }

    /// Longest compiled form of a source: marshalled code is a few times its text.
    pub fn code_bytes(&self) -> usize {
        self.source_bytes.saturating_mul(16).saturating_add(1 << 20)
    }
}
