//! The template: a Python interpreter with everything imported that locks itself, then forks one
//! worker per request of the broker. Runs trusted code only.
//!
//! Packets on descriptor 0. In: profile and flags, a newline, the limits as TOML; then `S` + class +
//! id per worker. Out: `P` + id 0 + pid of the self-test's worker, `H` + report as TOML when ready,
//! `W` + id + pid with the worker's pipes and pidfd (and control socket, if forkable), `E` + id +
//! text when a fork failed, `F` + text when the template cannot serve at all.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::capability::Report;
use crate::jail::child::lock_worker;
use crate::jail::plan::{FilesPlan, Plan, first_user, lock_template, most_descriptors};
use crate::jail::sys::{arenas, heap, io, pipe, process, text};
use crate::limits::{Limits, Profile};
use crate::policy;
use crate::worker::{self, Handlers};

const CONTROL: i32 = 0;
/// Longest packet of the control sockets.
pub const PACKET_BYTES: usize = 64 << 10;
/// What a worker is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Somebody waits for it.
    MadeToOrder = 0,
    /// The same, and it may copy itself.
    Forkable = 1,
    /// It is kept ready, and may warm itself up before it is used.
    Ahead = 2,
}

impl Class {
    /// The class of a code on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::MadeToOrder, Self::Forkable, Self::Ahead]
            .get(usize::from(code))
            .copied()
    }
}

/// Run as the template. Never returns.
pub fn main(py: Python<'_>) -> ! {
    let text = match run(py) {
        Ok(()) => process::leave(0),
        Err(text) => text,
    };
    let mut packet = b"F".to_vec();
    packet.extend_from_slice(text.as_bytes());
    packet.truncate(4096);
    let _ = io::send_with(CONTROL, &packet, &[], true);
    process::leave(1)
}

fn run(py: Python<'_>) -> Result<(), String> {
    process::die_with_parent().map_err(|e| e.to_string())?;
    process::unblock_signals(); // the broker's mask was inherited
    let mut buffer = vec![0; PACKET_BYTES];
    let (length, _) = io::recv_with(CONTROL, &mut buffer, true).map_err(|e| e.to_string())?;
    let text = std::str::from_utf8(&buffer[..length]).map_err(|e| e.to_string())?;
    let (flags, text) = text.split_once('\n').ok_or("no flags before the limits")?;
    let limits: Limits = toml::from_str(text).map_err(|e| e.to_string())?;
    let index = flags
        .split(' ')
        .next()
        .and_then(|word| word.parse::<usize>().ok());
    let profile = index.and_then(|i| limits.profiles.get(i));
    let profile = profile.ok_or("no such profile")?.clone();
    arenas::own();
    let handlers =
        prepare(py, &limits, &profile).map_err(|e| format!("the runner cannot start: {e}"))?;
    let filters = policy::filters(&profile.tiers).map_err(|e| e.to_string())?;

    let mut plan = Plan {
        cpu_s: limits.lifetime_cpu_s(),
        first_user: (flags.contains("root") && !limits.lacks("identity"))
            .then(first_user)
            .flatten(),
        die_with_parent: !flags.contains("pids"),
        clone_flags: if limits.lacks("worker_pid_namespace") {
            0
        } else {
            libc::CLONE_NEWPID
        },
        clone3: !limits.lacks("clone3"),
        thread_id_address: process::thread_id_address(),
        filters,
        files: (profile.files_bytes > 0)
            .then(|| FilesPlan::new(profile.files_bytes, profile.files_inodes))
            .transpose()
            .map_err(|e| e.to_string())?,
        pids: profile.pids.into(),
        memory_bytes: profile.memory_bytes,
        branches: limits.branches.into(),
        landlock: None,
    };
    heap::plug();
    arenas::settle();
    text::settle();
    let mut report = Report::default();
    lock_template(&limits, &mut plan, own_bytes()?, &mut report);
    // Without the layers of its files no worker of this profile is made, not even to test it.
    if report.holds("seccomp") && (plan.files.is_none() || report.holds("files")) {
        self_test(&mut plan, &mut report)?;
    }
    let mut packet = b"H".to_vec();
    let text = toml::to_string(&report).map_err(|e| e.to_string())?;
    packet.extend_from_slice(text.as_bytes());
    io::send_with(CONTROL, &packet, &[], true).map_err(|e| e.to_string())?;
    serve(py, &handlers, &plan, &limits, &mut buffer)
}

fn prepare(py: Python<'_>, limits: &Limits, profile: &Profile) -> PyResult<Handlers> {
    let code = CString::new(crate::runner::SOURCE)?;
    let module = PyModule::from_code(py, &code, c"<runner>", c"spade_runner")?;
    let arguments = (&profile.imports, &profile.import_paths, limits.max_turns);
    let options = PyDict::new(py);
    options.set_item("profile", &profile.name)?;
    options.set_item("tiers", &profile.tiers)?;
    options.set_item("virtual_clock", profile.virtual_clock)?;
    let said = PyDict::new(py);
    said.set_item("pids", profile.pids)?;
    said.set_item("branches", limits.branches)?;
    said.set_item("descriptors", most_descriptors(profile.files_bytes > 0))?;
    said.set_item("files_bytes", profile.files_bytes)?;
    said.set_item("files_inodes", profile.files_inodes)?;
    options.set_item("limits", said)?;
    let named = PyDict::new(py);
    named.set_item("options", options)?;
    let handlers = module.getattr("prepare")?.call(arguments, Some(&named))?;
    Handlers::new(&handlers.cast_into::<PyTuple>()?)
}

/// Size of this process's address space.
fn own_bytes() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/statm")
        .map_err(|e| format!("/proc/self/statm: {e}; the jail needs a /proc: mount it"))?;
    let pages = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<u64>().ok());
    pages
        .map(|count| count * 4096)
        .ok_or_else(|| "statm: no size".to_owned())
}

/// Fork a throw-away worker that tries what must be refused. Finds out about PID namespaces too.
fn self_test(plan: &mut Plan, report: &mut Report) -> Result<(), String> {
    let mut child = fork(plan, 0, Class::MadeToOrder);
    if child.is_err() && plan.clone_flags != 0 {
        let why = child
            .as_ref()
            .map(|_| ())
            .map_err(|e| std::io::Error::other(e.to_string()));
        report.note("worker_pid_namespace", &why, "");
        plan.clone_flags = 0;
        child = fork(plan, 0, Class::MadeToOrder);
    } else if plan.clone_flags == 0 {
        let why: std::io::Result<()> = Err(std::io::Error::other("left out on purpose"));
        report.note("worker_pid_namespace", &why, "");
    } else {
        report.note(
            "worker_pid_namespace",
            &Ok(()),
            "each worker is alone in its own",
        );
    }
    let child = child.map_err(|e| format!("the first fork failed: {e}"))?;
    let Some(child) = child else {
        worker::self_test(plan)
    };
    let mut packet = b"P\0\0\0\0".to_vec();
    packet.extend_from_slice(&child.pid.to_le_bytes());
    io::send_with(CONTROL, &packet, &[], true).map_err(|e| e.to_string())?;
    let mut text = [0; 2048];
    let replies = child.fds[1].as_raw_fd();
    let answered = io::poll_readable(&[replies], Some(Duration::from_secs(5)));
    let _ = io::poll_readable(&[child.fds[2].as_raw_fd()], Some(Duration::from_secs(5)));
    let length = match answered {
        Ok(ready) if ready[0] => io::read(replies, &mut text).unwrap_or(0),
        _ => 0,
    };
    let passed = String::from_utf8_lossy(&text[..length]).trim().to_owned();
    let verdict = match (length, passed.is_empty()) {
        (0, _) => Err(std::io::Error::other("the worker could not lock itself")),
        (_, true) => Ok(()),
        (_, false) => Err(std::io::Error::other(format!("not refused: {passed}"))),
    };
    let detail = "a worker tried what is forbidden, and its filter refused it";
    report.note("self_test", &verdict, detail);
    Ok(())
}

struct Forked {
    pid: i32,
    /// Where requests are written, replies are read, its pidfd, and its control socket if any.
    fds: Vec<OwnedFd>,
}

/// Fork and lock a worker; `None` in the worker itself.
fn fork(plan: &Plan, id: u32, class: Class) -> std::io::Result<Option<Forked>> {
    let (requests, request_end) = pipe::pipe()?;
    let (reply_end, replies) = pipe::pipe()?;
    let control = (class == Class::Forkable)
        .then(|| io::socket_pair(true))
        .transpose()?;
    let flags = plan.worker_flags();
    match process::clone_interpreter(flags, plan.thread_id_address, plan.clone3)? {
        process::Cloned::Parent(pid, pidfd) => {
            let mut fds = vec![request_end, reply_end, pidfd];
            fds.extend(control.map(|(host, _)| host));
            Ok(Some(Forked { pid, fds }))
        }
        process::Cloned::Child => {
            let own = control.as_ref().map(|(_, own)| own.as_raw_fd());
            if lock_worker(plan, requests.as_raw_fd(), replies.as_raw_fd(), own, id).is_err() {
                process::leave(71);
            }
            // Their numbers mean something else by now.
            std::mem::forget((requests, request_end, reply_end, replies, control));
            Ok(None)
        }
    }
}

fn serve(
    py: Python<'_>,
    handlers: &Handlers,
    plan: &Plan,
    limits: &Limits,
    buffer: &mut [u8],
) -> Result<(), String> {
    loop {
        let (length, _) = io::recv_with(CONTROL, buffer, true).map_err(|e| e.to_string())?;
        if length == 0 {
            return Ok(()); // the broker is gone, or has a younger template
        }
        let id = buffer.get(2..length).and_then(|b| b.try_into().ok());
        let class = Class::from_code(buffer[1]);
        let (Some(id), Some(class)) = (id.map(u32::from_le_bytes), class) else {
            return Err("a malformed request of the broker".to_owned());
        };
        let sent = match fork(plan, id, class) {
            Ok(None) => worker::serve(py, handlers, limits, plan, class, buffer),
            Ok(Some(forked)) => {
                let mut packet = b"W".to_vec();
                packet.extend_from_slice(&id.to_le_bytes());
                packet.extend_from_slice(&forked.pid.to_le_bytes());
                let fds: Vec<_> = forked.fds.iter().map(AsRawFd::as_raw_fd).collect();
                io::send_with(CONTROL, &packet, &fds, true)
            }
            Err(error) => {
                let mut packet = b"E".to_vec();
                packet.extend_from_slice(&id.to_le_bytes());
                packet.extend_from_slice(error.to_string().as_bytes());
                io::send_with(CONTROL, &packet, &[], true)
            }
        };
        sent.map_err(|e| e.to_string())?;
    }
}
