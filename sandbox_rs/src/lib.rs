//! The jail of spade-async.
//!
//! The host process never forks. It execs a single-threaded *broker* (`broker`), which starts a
//! *template* (`template`): a Python interpreter with everything imported that locks itself and
//! forks one *worker* (`worker`) per episode. The host (`pool`) talks to each worker over one
//! socket; what becomes of untrusted code is an `outcome`, our own faults are an `error`.
//!
//! `wire` is no part of the jail: the codec of the link between a run's own processes.
#![deny(unsafe_code)]

pub mod broker;
pub mod capability;
pub mod cgroup;
pub mod error;
pub mod jail;
pub mod limits;
pub mod outcome;
pub mod policy;
pub mod pool;
pub mod probe;
pub mod protocol;
pub mod python;
pub mod runner;
pub mod stats;
pub mod step;
pub mod template;
pub mod wire;
pub mod worker;
