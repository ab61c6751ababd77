//! Packets between the pool and its broker.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};

use super::call::Worker;
use super::state::{State, TOKEN_WORKER};
use crate::jail::sys::io;
use crate::outcome::{Outcome, Reply, signal_name};

/// Spares that may die one after another before the pool gives up.
const MOST_LOST: u64 = 64;

impl State {
    /// Ask the broker for as many workers as are wanted.
    pub(super) fn refill(&mut self) {
        let count = self.wanted();
        if count == 0 || self.broken.is_some() {
            return;
        }
        let mut packet = b"S".to_vec();
        packet.extend_from_slice(&self.next_worker.to_le_bytes());
        packet.extend_from_slice(&(count as u32).to_le_bytes());
        // A full socket is no fault: the next event asks again.
        if io::send_with(self.control.as_raw_fd(), &packet, &[], false).is_ok() {
            self.next_worker = self.next_worker.wrapping_add(count as u32).max(1);
            self.starting += count;
        }
    }

    /// Take in everything the broker has sent.
    pub(super) fn control_ready(&mut self, buffer: &mut [u8]) {
        loop {
            let (length, fds) = match io::recv_with(self.control.as_raw_fd(), buffer, false) {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return self.fail(&format!("broker: {error}")),
            };
            let id = buffer
                .get(1..5)
                .filter(|_| length >= 5)
                .and_then(|b| b.try_into().ok());
            let id = id.map(u32::from_le_bytes);
            match (buffer[0], id) {
                _ if length == 0 => return self.fail("the broker died; start a new pool"),
                (b'W', Some(id)) => self.started(id, fds),
                (b'X', Some(id)) if length == 9 => {
                    let status = [buffer[5], buffer[6], buffer[7], buffer[8]];
                    self.exited(id, i32::from_le_bytes(status));
                }
                (b'E', Some(_)) => {
                    let detail = String::from_utf8_lossy(&buffer[5..length]).into_owned();
                    self.not_started(&detail);
                }
                _ => {
                    let detail = String::from_utf8_lossy(&buffer[1..length]).into_owned();
                    return self.fail(&format!("broker: {detail}"));
                }
            }
        }
        self.assign();
    }

    fn started(&mut self, id: u32, fds: Vec<OwnedFd>) {
        let Ok([socket, pidfd]) = <[OwnedFd; 2]>::try_from(fds) else {
            // The kernel drops descriptors that find no room here: the process is out of them.
            return self.not_started("too many open files in this process");
        };
        self.starting = self.starting.saturating_sub(1);
        let pid = pid_of(&pidfd);
        let token = TOKEN_WORKER + u64::from(id);
        if let Err(error) = io::watch(&self.epoll, &socket, token, false, false) {
            return self.fail(&format!("epoll: {error}"));
        }
        self.stats.started += 1;
        self.workers.insert(id, Worker::new(socket, pidfd, pid));
        self.spares.push_back(id);
        self.assign();
    }

    fn exited(&mut self, id: u32, status: i32) {
        if !self.workers.contains_key(&id) {
            return;
        }
        // What it wrote before it ended still counts: read it first.
        let mut scratch = vec![0; 64 << 10];
        self.worker_ready(id, true, false, &mut scratch);
        if !self.workers.contains_key(&id) {
            return;
        }
        let reply = match status {
            s if s == -libc::SIGSYS => Reply::failed(Outcome::RefusedCall, "killed by SIGSYS"),
            s if s < 0 => Reply::failed(Outcome::Crashed, format!("killed by {}", signal_name(-s))),
            s => Reply::failed(Outcome::Crashed, format!("left by itself with code {s}")),
        };
        self.end(id, reply);
        if self.stats.lost_spares > MOST_LOST && self.stats.lost_spares > self.stats.acquired {
            self.fail("workers die before they are used; see capabilities");
        }
    }
}

/// Process id behind a pidfd as this process sees it; `None` without a matching /proc.
fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok().filter(|&pid| pid > 0)
}
