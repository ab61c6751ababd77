//! The broker's loop: requests of the host, answers of templates, deaths of anybody.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::slot::{Slot, Template};
use super::workers::Worker;
use super::{HOST, tell_host};
use crate::capability::Report;
use crate::cgroup::Cgroups;
use crate::jail::sys::{io, process};
use crate::limits::Limits;
use crate::outcome::signal_name;
use crate::template::Class;

/// Everything the broker knows.
pub(super) struct Broker {
    pub(super) limits: Limits,
    text: String,
    flags: String,
    owner: OwnedFd,
    signal: OwnedFd,
    report: Report,
    pub(super) cells: Option<Cgroups>,
    pub(super) pids: bool,
    pub(super) slots: Vec<Slot>,
    pub(super) workers: HashMap<i32, Worker>,
    /// Children that ended before a template told of them.
    pub(super) early: HashMap<i32, i32>,
    /// Templates that run, and how those that ended did.
    templates: HashMap<i32, Option<i32>>,
    told: bool,
    root: bool,
}

impl Broker {
    pub(super) fn start(
        limits: Limits,
        text: String,
        owner: OwnedFd,
        report: Report,
        cells: Option<Cgroups>,
        root: bool,
        pids: bool,
    ) -> Result<Self, String> {
        let flags = format!(
            "{} {}",
            if root { "root" } else { "" },
            if pids { "pids" } else { "" }
        );
        let mut report = report;
        if let Some(many) = limits.profiles.iter().find(|profile| profile.pids > 1) {
            let counted = if cells.is_some() || root {
                Ok(())
            } else {
                let text = format!("profile {}: its threads are in nobody's count", many.name);
                Err(std::io::Error::other(text))
            };
            report.note("pids", &counted, "threads of a worker are counted");
        }
        let slots = limits.profiles.iter().cloned();
        let slots = slots
            .map(|profile| Slot::new(profile, limits.start()))
            .collect();
        let mut broker = Self {
            limits,
            text,
            flags,
            owner,
            // Templates are started before the signal is blocked: a mask would be inherited.
            signal: process::child_signal().map_err(|e| e.to_string())?,
            report,
            cells,
            pids,
            slots,
            workers: HashMap::new(),
            early: HashMap::new(),
            templates: HashMap::new(),
            told: false,
            root,
        };
        for index in 0..broker.slots.len() {
            broker.slots[index].current = Some(broker.spawn(index)?);
        }
        Ok(broker)
    }

    fn spawn(&mut self, index: usize) -> Result<Template, String> {
        let template = self.slots[index].spawn(index, &self.limits, &self.text, &self.flags)?;
        self.templates.insert(template.pid, None);
        Ok(template)
    }

    pub(super) fn serve(mut self, buffer: &mut [u8]) -> Result<(), String> {
        loop {
            let mut fds = vec![HOST, self.signal.as_raw_fd(), self.owner.as_raw_fd()];
            let fixed = fds.len();
            let mut slots = Vec::new();
            for (index, slot) in self.slots.iter().enumerate() {
                for template in slot.all() {
                    fds.push(template.control.as_raw_fd());
                    slots.push(index);
                }
            }
            let ready = io::poll_readable(&fds, self.patience()).map_err(|e| e.to_string())?;
            if ready[2] {
                self.end();
            }
            for (at, &index) in slots.iter().enumerate() {
                if ready[fixed + at] {
                    self.on_template(index, fds[fixed + at], buffer)?;
                }
            }
            if ready[1] {
                process::hush_child_signal(&self.signal);
                self.collect()?;
            }
            if ready[0] {
                self.on_host(buffer);
            }
            self.renew()?;
        }
    }

    /// How long the loop may sleep: until a template is to be started or replaced.
    fn patience(&self) -> Option<Duration> {
        let times = self
            .slots
            .iter()
            .flat_map(|s| [s.start_at, s.old_at(), s.overdue_at()]);
        let next = times.flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Start templates whose time has come, and successors of those that are old.
    fn renew(&mut self) -> Result<(), String> {
        let now = Instant::now();
        for index in 0..self.slots.len() {
            self.slots[index].end_overdue(now);
            if self.slots[index].start_at.is_some_and(|at| at <= now) {
                self.slots[index].start_at = None;
                self.slots[index].current = Some(self.spawn(index)?);
            }
            if self.slots[index].is_old(now) {
                self.slots[index].next = Some(self.spawn(index)?);
            }
        }
        Ok(())
    }

    fn on_host(&mut self, buffer: &mut [u8]) {
        let length = io::recv_with(HOST, buffer, true).map_or(0, |(length, _)| length);
        let number = |at: usize| {
            u32::from_le_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]])
        };
        match (length, buffer[0]) {
            (11, b'S') => {}
            (9, b'M') => return self.tell_kills(number(1), number(5)),
            _ => self.end(),
        }
        let (first, count) = (number(3), number(7));
        let bounded = self.cells.is_some() || self.root;
        let alone = self.report.holds("worker_pid_namespace");
        if buffer[2] == Class::Forkable as u8 && !(bounded && alone) {
            // Else what it forks could outlive it, or be without number.
            let why = "a forkable session needs a PID namespace of its own and a limit of \
                       processes (a control group, or its own user: run as root)";
            for id in first..first.saturating_add(count) {
                self.not_started(id, why);
            }
            return;
        }
        if let Some(slot) = self.slots.get_mut(usize::from(buffer[1])) {
            slot.queue
                .extend((first..first.saturating_add(count)).map(|id| (id, buffer[2])));
            slot.pass_on();
        }
    }

    fn on_template(&mut self, index: usize, fd: RawFd, buffer: &mut [u8]) -> Result<(), String> {
        let (length, fds) = io::recv_with(fd, buffer, true).unwrap_or_default();
        let packet = &buffer[..length];
        let id = packet.get(1..5).and_then(|b| b.try_into().ok());
        let id = id.map(u32::from_le_bytes);
        match (packet.first(), id) {
            (None, _) => self.template_gone(index, fd),
            (Some(b'H'), _) => self.ready(index, fd, &packet[1..]),
            (Some(b'W'), Some(id)) if length == 9 => {
                let pid = i32::from_le_bytes([packet[5], packet[6], packet[7], packet[8]]);
                self.slots[index].answered(fd, id, true);
                self.started(index, pid, id, fds);
                self.slots[index].pass_on();
                Ok(())
            }
            // The worker of the template's self-test, which nobody asked for.
            (Some(b'P'), _) if length == 9 => {
                let pid = i32::from_le_bytes([packet[5], packet[6], packet[7], packet[8]]);
                if self.early.remove(&pid).is_none() {
                    self.workers.insert(pid, Worker::nobody());
                }
                Ok(())
            }
            (Some(b'E'), Some(id)) => {
                self.slots[index].answered(fd, id, false);
                self.to_host(packet, &[]);
                self.slots[index].pass_on();
                Ok(())
            }
            _ => {
                let text = String::from_utf8_lossy(&packet[1..]).into_owned();
                Err(format!(
                    "profile {}: {text}",
                    self.slots[index].profile.name
                ))
            }
        }
    }

    fn ready(&mut self, index: usize, fd: RawFd, text: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
        let found: Report = toml::from_str(text).map_err(|e| e.to_string())?;
        if let Some(template) = self.slots[index].by_control(fd) {
            template.ready = true;
        }
        if !self.told {
            self.report.merge(&found, &self.slots[index].profile.name);
            if self
                .slots
                .iter()
                .all(|s| s.current.as_ref().is_some_and(|t| t.ready))
            {
                self.told = true;
                let text = toml::to_string(&self.report).map_err(|e| e.to_string())?;
                let mut packet = b"H".to_vec();
                packet.extend_from_slice(text.as_bytes());
                self.to_host(&packet, &[]);
            }
            return Ok(());
        }
        if let Some(lost) = found
            .layers
            .iter()
            .find(|l| !l.ok && self.report.holds(&l.name))
        {
            return Err(format!(
                "a new template lacks the layer {}: {}",
                lost.name, lost.detail
            ));
        }
        let successor = self.slots[index].next.as_ref();
        let rotated = successor.is_some_and(|t| t.control.as_raw_fd() == fd);
        if rotated {
            self.slots[index].promote();
        }
        let (what, text): (u8, &[u8]) = if rotated {
            (b'R', b"the old one had served its time")
        } else {
            (b'D', b"")
        };
        let mut packet = vec![index as u8, what];
        packet.extend_from_slice(text);
        tell_host(b'T', &packet);
        self.slots[index].pass_on();
        Ok(())
    }

    /// A template closed its socket: it died, or it was told to leave.
    fn template_gone(&mut self, index: usize, fd: RawFd) -> Result<(), String> {
        if self.slots[index].by_control(fd).is_none() {
            return Ok(()); // it was let go in this very round
        }
        if self
            .slots
            .iter()
            .flat_map(Slot::all)
            .all(|t| t.pending.is_empty())
        {
            self.early.clear(); // nobody is left who could announce them
        }
        let slot = &mut self.slots[index];
        let is = |t: &Template| t.control.as_raw_fd() == fd;
        if slot.leaving.iter().any(is) {
            slot.leaving.retain(|t| !is(t));
            return Ok(());
        }
        if slot.next.as_ref().is_some_and(is) {
            return slot.successor_died(); // the old one goes on meanwhile
        }
        let pid = slot.current.as_ref().map_or(0, |template| template.pid);
        self.collect()?;
        let why = match self.templates.remove(&pid).flatten() {
            Some(status) if status < 0 => format!("killed by {}", signal_name(-status)),
            Some(status) => format!("left with code {status}"),
            None => "its socket closed".to_owned(),
        };
        let slot = &mut self.slots[index];
        if !self.told {
            return Err(slot.never_ready(&why));
        }
        slot.died(&why)?;
        let mut packet = vec![index as u8, b'L'];
        packet.extend_from_slice(why.as_bytes());
        tell_host(b'T', &packet);
        Ok(())
    }

    fn collect(&mut self) -> Result<(), String> {
        while let Some(process::Ended { pid, status }) = process::collect(false) {
            if let Some(worker) = self.workers.remove(&pid) {
                self.ended(worker, status);
            } else if let Some(end) = self.templates.get_mut(&pid) {
                *end = Some(status);
            } else if self.early.len() < 4096 {
                self.early.insert(pid, status);
            }
        }
        // Those that left as they were told have no slot any more.
        let slots = &self.slots;
        self.templates.retain(|&pid, end| {
            end.is_none() || slots.iter().flat_map(Slot::all).any(|t| t.pid == pid)
        });
        Ok(())
    }

    pub(super) fn to_host(&self, packet: &[u8], fds: &[RawFd]) {
        if io::send_with(HOST, packet, fds, true).is_err() {
            self.end();
        }
    }

    /// The host is gone or has closed: leave nothing behind.
    fn end(&self) -> ! {
        if !self.pids {
            // No kernel rule helps here; templates and workers also ask for a death signal.
            for worker in self.workers.values() {
                if let Some(pidfd) = &worker.pidfd {
                    process::kill(pidfd);
                }
            }
            for template in self.slots.iter().flat_map(Slot::all) {
                if let Ok(pidfd) = process::pidfd_open(template.pid) {
                    process::kill(&pidfd);
                }
            }
        }
        process::leave(0)
    }
}
