//! The broker: a small exec'd program with one thread that owns lifetimes.
//!
//! It is the first process of an outer PID namespace where there is one, so that its death kills
//! template and workers by kernel rule. It dies when the host's socket closes or when the host's
//! pidfd says that the host is gone (a forked child of the host keeps the socket open).
//!
//! Packets from the host (descriptor 0): the limits as TOML, then `S` + first id + count.
//! To the host: `H` + report, `W` + id with socket and pidfd, `X` + id + status of an ended worker,
//! `E` + id + text of a failed fork, `F` + text when nothing can be served.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};

use crate::capability::Report;
use crate::jail::plan::unless_left_out;
use crate::jail::sys::{confine, io, process};
use crate::limits::Limits;
use crate::template::PACKET_BYTES;

const HOST: RawFd = 0;

/// Program text that loads this extension by its file and calls one function of it.
pub const BOOTSTRAP: &str = "import sys, importlib.util as u\n\
spec = u.spec_from_file_location('_sandbox_rs', sys.argv[1])\n\
module = u.module_from_spec(spec)\n\
spec.loader.exec_module(module)\n\
getattr(module, sys.argv[2])()\n";

/// The command that runs `function` of this extension in a bare interpreter, clean environment.
pub fn command(limits: &Limits, function: &str, control: OwnedFd) -> Command {
    let mut command = Command::new(&limits.python);
    command
        .args(["-S", "-s", "-P", "-B", "-X", "utf8", "-c", BOOTSTRAP])
        .args([limits.module_path.as_str(), function])
        .env_clear()
        .env("PYTHONHASHSEED", "0")
        .env("LC_ALL", "C.UTF-8")
        .env("OMP_NUM_THREADS", "1")
        .env("OPENBLAS_NUM_THREADS", "1")
        .env("PYTHON_DISABLE_REMOTE_DEBUG", "1")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Run as the broker. Never returns.
pub fn main() -> ! {
    if let Err(text) = run() {
        let mut packet = b"F".to_vec();
        packet.extend_from_slice(text.as_bytes());
        packet.truncate(4096);
        let _ = io::send_with(HOST, &packet, &[], true);
    }
    process::leave(1)
}

fn run() -> Result<(), String> {
    process::new_session();
    std::env::set_current_dir("/").map_err(|e| format!("/: {e}"))?;
    confine::close_from(3).map_err(|e| format!("closing descriptors: {e}"))?;
    let owner = io::peer_pid(HOST).map_err(|e| format!("owner: {e}"))?;
    let owner_fd = process::pidfd_open(owner).map_err(|e| format!("owner: {e}"))?;
    if process::parent_pid() != owner {
        process::leave(0); // the owner died before it could be watched
    }
    let mut buffer = vec![0; PACKET_BYTES];
    let (length, _) = io::recv_with(HOST, &mut buffer, true).map_err(|e| e.to_string())?;
    let text = std::str::from_utf8(&buffer[..length])
        .map_err(|e| e.to_string())?
        .to_owned();
    let limits: Limits = toml::from_str(&text).map_err(|e| e.to_string())?;

    let mut report = Report::default();
    let root = enter_namespaces(&limits, &mut report);
    let pids = report.holds("pid_namespace");
    if process::fork().map_err(|e| format!("fork: {e}"))? != 0 {
        // The stub stays behind so that the host can wait until everything is gone.
        drop(owner_fd);
        let _ = confine::close_from(0);
        process::collect(true);
        process::leave(0);
    }
    process::die_with_parent().map_err(|e| format!("death signal: {e}"))?;
    let (control, other) = io::socket_pair(true).map_err(|e| e.to_string())?;
    let template = command(&limits, "_template_main", other)
        .spawn()
        .map_err(|e| format!("starting {}: {e}", limits.python))?;
    let flags = format!(
        "{} {}\n",
        if root { "root" } else { "" },
        if pids { "pids" } else { "" }
    );
    io::send_with(control.as_raw_fd(), (flags + &text).as_bytes(), &[], true)
        .map_err(|e| e.to_string())?;
    let signal = process::child_signal().map_err(|e| e.to_string())?;
    let broker = Broker {
        control,
        owner: owner_fd,
        signal,
        template,
        report,
        pids,
        workers: HashMap::new(),
        early: HashMap::new(),
    };
    broker.serve(&mut buffer)
}

/// Enter what can be had; returns whether workers can become other users.
fn enter_namespaces(limits: &Limits, report: &mut Report) -> bool {
    let (user, group) = process::identity();
    let mut root = user == 0;
    let mut pids = unless_left_out(limits, "pid_namespace", || {
        if root {
            process::unshare(libc::CLONE_NEWPID)
        } else {
            Err(std::io::Error::other(""))
        }
    });
    if pids.is_err() && !limits.lacks("pid_namespace") {
        // Unprivileged, or root without the capability: a user namespace gives the rights.
        let entered = process::unshare(libc::CLONE_NEWUSER).and_then(|()| {
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        });
        pids = entered.and_then(|()| process::unshare(libc::CLONE_NEWPID));
        root = root && pids.is_err();
    }
    report.note(
        "pid_namespace",
        &pids,
        "the broker's death kills everything in it",
    );
    for (name, flag) in [
        ("network_namespace", libc::CLONE_NEWNET),
        ("ipc_namespace", libc::CLONE_NEWIPC | libc::CLONE_NEWUTS),
    ] {
        let entered = unless_left_out(limits, name, || process::unshare(flag));
        report.note(name, &entered, "one, shared and empty");
    }
    let identity = unless_left_out(limits, "identity", || Ok(()));
    let detail = if root {
        "one user id per worker"
    } else {
        "no capabilities"
    };
    report.note("identity", &identity, detail);
    root
}

struct Broker {
    control: OwnedFd,
    owner: OwnedFd,
    signal: OwnedFd,
    template: Child,
    report: Report,
    pids: bool,
    workers: HashMap<i32, (u32, Option<OwnedFd>)>,
    /// Workers that ended before the template told of them.
    early: HashMap<i32, i32>,
}

impl Broker {
    fn serve(mut self, buffer: &mut [u8]) -> Result<(), String> {
        self.collect()?;
        loop {
            let fds = [
                HOST,
                self.control.as_raw_fd(),
                self.signal.as_raw_fd(),
                self.owner.as_raw_fd(),
            ];
            let ready = io::poll_readable(&fds, None).map_err(|e| e.to_string())?;
            if ready[3] {
                self.end();
            }
            if ready[1] {
                self.on_template(buffer)?;
            }
            if ready[2] {
                process::hush_child_signal(&self.signal);
                self.collect()?;
            }
            if ready[0] {
                self.on_host(buffer)?;
            }
        }
    }

    fn on_host(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        let length = io::recv_with(HOST, buffer, true).map_or(0, |(length, _)| length);
        if length != 9 || buffer[0] != b'S' {
            self.end();
        }
        let number = |at: usize| {
            u32::from_le_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]])
        };
        let (first, count) = (number(1), number(5));
        for id in first..first.saturating_add(count) {
            let mut packet = b"S".to_vec();
            packet.extend_from_slice(&id.to_le_bytes());
            io::send_with(self.control.as_raw_fd(), &packet, &[], true)
                .map_err(|e| format!("template: {e}"))?;
        }
        Ok(())
    }

    fn on_template(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        let (length, fds) = io::recv_with(self.control.as_raw_fd(), buffer, true)
            .map_err(|e| format!("template: {e}"))?;
        let packet = &buffer[..length];
        match packet.first() {
            None => self.collect().and(Err("the template is gone".to_owned())),
            Some(b'H') => self.ready(&packet[1..]),
            Some(b'W') if length == 9 && fds.len() == 2 => {
                let mut pid = [0; 4];
                pid.copy_from_slice(&packet[5..9]);
                let mut id = [0; 4];
                id.copy_from_slice(&packet[1..5]);
                self.started(i32::from_le_bytes(pid), u32::from_le_bytes(id), fds)
            }
            _ => self.to_host(packet, &[]), // E and F
        }
    }

    fn ready(&mut self, text: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
        let more: Report = toml::from_str(text).map_err(|e| e.to_string())?;
        self.report.layers.extend(more.layers);
        self.collect()?; // the self-test's worker, which has no id
        self.early.clear();
        let mut packet = b"H".to_vec();
        let text = toml::to_string(&self.report).map_err(|e| e.to_string())?;
        packet.extend_from_slice(text.as_bytes());
        self.to_host(&packet, &[])
    }

    fn started(&mut self, pid: i32, id: u32, mut fds: Vec<OwnedFd>) -> Result<(), String> {
        let mut packet = b"W".to_vec();
        packet.extend_from_slice(&id.to_le_bytes());
        let raw = [fds[0].as_raw_fd(), fds[1].as_raw_fd()];
        self.to_host(&packet, &raw)?;
        if let Some(status) = self.early.remove(&pid) {
            return self.ended(id, status);
        }
        // With a PID namespace the kernel ends them with us; a descriptor each would be waste.
        let pidfd = fds.pop().filter(|_| !self.pids);
        self.workers.insert(pid, (id, pidfd));
        Ok(())
    }

    fn ended(&self, id: u32, status: i32) -> Result<(), String> {
        let mut packet = b"X".to_vec();
        packet.extend_from_slice(&id.to_le_bytes());
        packet.extend_from_slice(&status.to_le_bytes());
        self.to_host(&packet, &[])
    }

    fn collect(&mut self) -> Result<(), String> {
        while let Some(process::Ended { pid, status }) = process::collect(false) {
            if pid == self.template.id() as i32 {
                let text = if status < 0 { "signal" } else { "code" };
                return Err(format!("the template left with {text} {}", status.abs()));
            }
            if let Some((id, _)) = self.workers.remove(&pid) {
                self.ended(id, status)?;
            } else if self.early.len() < 4096 {
                self.early.insert(pid, status);
            }
        }
        Ok(())
    }

    fn to_host(&self, packet: &[u8], fds: &[RawFd]) -> Result<(), String> {
        if io::send_with(HOST, packet, fds, true).is_err() {
            self.end();
        }
        Ok(())
    }

    /// The host is gone or has closed: leave nothing behind.
    fn end(&self) -> ! {
        if !self.pids {
            // No kernel rule helps here; template and workers also ask for a death signal.
            for (_, pidfd) in self.workers.values() {
                let Some(pidfd) = pidfd else { continue };
                process::kill(pidfd);
            }
            if let Ok(template) = process::pidfd_open(self.template.id() as i32) {
                process::kill(&template);
            }
        }
        process::leave(0)
    }
}
