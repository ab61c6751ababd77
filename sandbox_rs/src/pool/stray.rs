//! Processes of a family of forks that are no session's: children that its code has forked by
//! itself, and copies that were given up before they showed themselves. They can reach nothing and
//! nobody, but they take part in the family's limits, so they are ended and not left to its end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::State;
use crate::jail::sys::process;

/// How often a family is looked at: who is seen twice is a stray.
const LOOK: Duration = Duration::from_secs(1);
/// Processes of a family that are looked at; its limit of processes is far below.
const MOST: usize = 4096;

impl State {
    /// A family begins: the timer rings for it, and from then on as long as it lives.
    pub(super) fn look_for_strays(&mut self) {
        self.ring_by(Instant::now() + LOOK);
    }

    /// End the strays of all families whose time has come.
    pub(super) fn end_strays(&mut self, now: Instant) {
        let due: Vec<u32> = self
            .workers
            .iter()
            .filter(|(_, w)| w.root.is_none() && w.ends.control.is_some())
            .filter(|(_, w)| w.strays_at.is_none_or(|at| at + LOOK <= now))
            .map(|(&id, _)| id)
            .collect();
        for first in due {
            let found = self.strangers(first);
            let Some(worker) = self.workers.get_mut(&first) else {
                continue;
            };
            worker.strays_at = Some(now);
            let Some((found, family)) = found else {
                worker.strays.clear();
                continue;
            };
            let mut ended = 0;
            for &pid in found.iter().filter(|pid| worker.strays.contains(pid)) {
                let Ok(pidfd) = process::pidfd_open(pid) else {
                    continue;
                };
                // Looked at after the descriptor was opened, so the number means no other by now.
                if process::parent_of(pid).is_some_and(|above| family.contains(&above)) {
                    self.to_kill.push(Arc::new(pidfd));
                    ended += 1;
                }
            }
            worker.strays = found;
            if ended > 0 {
                let name = &self.limits.profiles[worker.profile].name;
                let detail = format!("{ended} processes of a family that are no session's");
                self.stats
                    .event("stray_ended", name, worker.session, detail);
            }
        }
    }

    /// Processes below a family's first that no session of it is, and all of the family. `None`
    /// where that cannot be said: a copy has not shown itself yet, or /proc shows no processes.
    fn strangers(&self, first: u32) -> Option<(HashSet<i32>, HashSet<i32>)> {
        let mut known = HashSet::from([self.workers.get(&first)?.pid?]);
        for worker in self.workers.values().filter(|w| w.root == Some(first)) {
            known.insert(worker.pid?);
        }
        let mut family = known.clone();
        let mut todo: Vec<i32> = known.iter().copied().collect();
        while let Some(pid) = todo.pop() {
            let below = process::children_of(pid);
            todo.extend(below.into_iter().filter(|&pid| family.insert(pid)));
            if family.len() > MOST {
                return None;
            }
        }
        Some((family.difference(&known).copied().collect(), family))
    }
}
