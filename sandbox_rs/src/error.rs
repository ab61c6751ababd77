//! Our own faults. What untrusted code does is never here: see `outcome`.

use std::io;

use thiserror::Error;

/// A fault of the jail itself.
#[derive(Debug, Error)]
pub enum Fault {
    /// The bounded queue of waiting sessions is full.
    #[error(
        "sandbox queue is full: {waiting} sessions already wait; raise sandbox.queue or open fewer at once"
    )]
    Busy {
        /// Sessions that wait now.
        waiting: usize,
    },
    /// No room for another copy of a session.
    #[error(
        "no room for a branch: {live} sessions live and {branches} branches of this one; raise \
         num_workers (in a configuration sandbox.workers) or branches, or close some"
    )]
    Full {
        /// Sessions that live now.
        live: usize,
        /// Branches of this session's family.
        branches: u32,
    },
    /// The caller's own signal handler raised.
    #[error("interrupted")]
    Interrupted,
    /// The pool was closed.
    #[error("sandbox pool is closed; start a new one")]
    Closed,
    /// Used from a process that did not start it.
    #[error(
        "sandbox pool of process {owner} used from process {caller}: a forked child must start its own pool"
    )]
    WrongProcess {
        /// Process that started the pool.
        owner: u32,
        /// Process that called.
        caller: u32,
    },
    /// A layer the policy demands is missing.
    #[error("sandbox layer {layer} is missing: {detail}; {remedy}")]
    MissingLayer {
        /// Name of the layer.
        layer: String,
        /// What was seen.
        detail: String,
        /// What to do.
        remedy: String,
    },
    /// The broker or the template could not start, or died.
    #[error("sandbox {stage}: {detail}")]
    Broken {
        /// Where it failed.
        stage: String,
        /// What was seen.
        detail: String,
    },
    /// A system call of ours failed.
    #[error("sandbox {stage}: {source}")]
    Os {
        /// What was being done.
        stage: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Result of our own work.
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A failure of the machinery with a free text.
    pub fn broken(stage: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Broken {
            stage: stage.into(),
            detail: detail.into(),
        }
    }
}

/// Name the stage of a failed system call.
pub trait Stage<T> {
    /// Turn an I/O error into a `Fault` that names what was being done.
    ///
    /// # Errors
    /// The same failure, with its stage.
    fn stage(self, stage: &'static str) -> Result<T>;
}

impl<T> Stage<T> for io::Result<T> {
    fn stage(self, stage: &'static str) -> Result<T> {
        self.map_err(|source| Fault::Os { stage, source })
    }
}
