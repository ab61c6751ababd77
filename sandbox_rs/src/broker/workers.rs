//! Workers between their start and their end: their control groups, and what the host is told.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::serve::Broker;
use crate::cgroup::{Cell, Usage};
use crate::jail::sys::process;

/// Room of a worker's control group above the limit that its own allocator meets first.
const HEADROOM_BYTES: u64 = 8 << 20;

/// A worker as the broker knows it.
pub(super) struct Worker {
    id: u32,
    pub(super) pidfd: Option<OwnedFd>,
    cell: Option<Cell>,
}

impl Worker {
    /// A child that no host waits for: it is only collected.
    pub(super) fn nobody() -> Self {
        Self {
            id: 0,
            pidfd: None,
            cell: None,
        }
    }
}

impl Broker {
    pub(super) fn started(&mut self, index: usize, pid: i32, id: u32, mut fds: Vec<OwnedFd>) {
        let forkable = fds.len() == 4;
        if fds.len() < 3 {
            fds.clear(); // room for one
            if self.early.remove(&pid).is_none() {
                if let Ok(pidfd) = process::pidfd_open(pid) {
                    process::kill(&pidfd);
                }
                self.workers.insert(pid, Worker::nobody());
            }
            return self.not_started(id, "the broker is out of descriptors");
        }
        let cell = match self.cell_for(index, pid, forkable) {
            Ok(cell) => cell,
            Err(error) => {
                process::kill(&fds[2]);
                if self.early.remove(&pid).is_none() {
                    self.workers.insert(pid, Worker::nobody());
                }
                return self.not_started(id, &format!("control group: {error}"));
            }
        };
        let mut packet = b"W".to_vec();
        packet.extend_from_slice(&id.to_le_bytes());
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        self.to_host(&packet, &raw);
        // With a PID namespace the kernel ends them with us; a descriptor each would be waste.
        let pidfd = Some(fds.swap_remove(2)).filter(|_| !self.pids);
        let worker = Worker { id, pidfd, cell };
        if let Some(status) = self.early.remove(&pid) {
            return self.ended(worker, status);
        }
        self.workers.insert(pid, worker);
    }

    fn cell_for(
        &mut self,
        index: usize,
        pid: i32,
        forkable: bool,
    ) -> std::io::Result<Option<Cell>> {
        let Some(cells) = &mut self.cells else {
            return Ok(None);
        };
        let profile = &self.slots[index].profile;
        let family = if forkable {
            self.limits.branches + 1
        } else {
            1
        };
        let memory = (profile.memory_bytes + profile.files_bytes).saturating_mul(family.into());
        let cell = cells.take(
            memory.saturating_add(HEADROOM_BYTES),
            profile.pids.max(1).saturating_mul(family),
        )?;
        if let Err(error) = cells.attach(&cell, pid) {
            cells.ended(cell);
            // It may have ended already; that is told as an end, not as a failure.
            return if self.early.contains_key(&pid) || error.raw_os_error() == Some(libc::ESRCH) {
                Ok(None)
            } else {
                Err(error)
            };
        }
        Ok(Some(cell))
    }

    pub(super) fn not_started(&self, id: u32, why: &str) {
        let mut packet = b"E".to_vec();
        packet.extend_from_slice(&id.to_le_bytes());
        packet.extend_from_slice(why.as_bytes());
        self.to_host(&packet, &[]);
    }

    /// Tell the host how many processes of a family were killed for memory so far, because a copy of
    /// it has ended. Where nobody counts that, nothing is said.
    pub(super) fn tell_kills(&self, first: u32, copy: u32) {
        let worker = self.workers.values().find(|worker| worker.id == first);
        let cell = worker.and_then(|worker| worker.cell.as_ref());
        let usage = cell
            .zip(self.cells.as_ref())
            .map(|(cell, cells)| cells.usage(cell));
        if let Some(kills) = usage.and_then(|usage| usage.oom_kills) {
            let mut packet = b"M".to_vec();
            packet.extend_from_slice(&copy.to_le_bytes());
            packet.extend_from_slice(&(kills as u32).to_le_bytes());
            self.to_host(&packet, &[]);
        }
    }

    /// Tell the host: id, status, and whether the memory limit was hit.
    pub(super) fn ended(&mut self, worker: Worker, status: i32) {
        let usage = match (worker.cell, &mut self.cells) {
            (Some(cell), Some(cells)) => cells.ended(cell),
            _ => Usage::default(),
        };
        if worker.id == 0 {
            return;
        }
        let mut packet = b"X".to_vec();
        packet.extend_from_slice(&worker.id.to_le_bytes());
        packet.extend_from_slice(&status.to_le_bytes());
        packet.push(u8::from(usage.oom_kills.is_some_and(|kills| kills > 0)));
        self.to_host(&packet, &[]);
    }
}
