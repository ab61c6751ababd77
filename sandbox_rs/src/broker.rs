//! The broker: a small exec'd program with one thread that owns lifetimes.
//!
//! It is the first process of an outer PID namespace where there is one, so that its death kills
//! templates and workers by kernel rule. It dies when the host's socket closes or when the host's
//! pidfd says that the host is gone (a forked child of the host keeps the socket open).
//!
//! Packets from the host (descriptor 0): the limits as TOML, then `S`, profile, class, first id,
//! count. To the host: `H` and the report; `W`, id and the worker's pipes and pidfd; `X`, id, status
//! and cause of an ended worker; `E`, id and text of a failed fork; `T`, profile, what and text of a
//! replaced template; `F` and text when nothing can be served.

mod namespaces;
mod serve;
mod slot;
mod workers;

use std::os::fd::{OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::capability::Report;
use crate::cgroup::{self, PoolName};
use crate::jail::proof;
use crate::jail::sys::{confine, io, process};
use crate::limits::Limits;
use crate::template::PACKET_BYTES;

pub(crate) const HOST: RawFd = 0;

/// Program text that loads this extension by its file and calls one function of it.
pub const BOOTSTRAP: &str = "import sys, os\n\
text = 'F%s is Python %d.%d: at least 3.11 is needed; name another in sandbox.python'\n\
text %= (sys.executable,) + sys.version_info[:2]\n\
sys.version_info < (3, 11) and (os.write(0, text.encode()), os._exit(1))\n\
import importlib.util as u\n\
spec = u.spec_from_file_location('_sandbox_rs', sys.argv[1])\n\
module = u.module_from_spec(spec)\n\
spec.loader.exec_module(module)\n\
getattr(module, sys.argv[2])()\n";

/// The command that runs `function` of this extension in a bare interpreter, clean environment.
pub fn command(python: &str, module_path: &str, function: &str, control: OwnedFd) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-S", "-s", "-B", "-X", "utf8", "-c", BOOTSTRAP])
        .args([module_path, function])
        .env_clear()
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONSAFEPATH", "1") // the option for it is unknown to older ones, which say so
        .env("LD_BIND_NOW", "1") // else each worker looks up the symbols it uses, for itself
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
        tell_host(b'F', text.as_bytes());
    }
    process::leave(1)
}

/// Send one packet to the host; a host that is gone is noticed elsewhere.
pub(crate) fn tell_host(kind: u8, text: &[u8]) {
    let mut packet = vec![kind];
    packet.extend_from_slice(&text[..text.len().min(4096)]);
    let _ = io::send_with(HOST, &packet, &[], true);
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
    // Before the namespaces: names of the folders count processes as the owner does.
    let name = PoolName::new(owner as u32, std::process::id());
    let cells = namespaces::open_cells(&limits, &name, &mut report);
    let root = namespaces::enter(&limits, &mut report);
    let pids = report.holds("pid_namespace");
    if process::fork().map_err(|e| format!("fork: {e}"))? != 0 {
        // The stub stays behind so that the host can wait until everything is gone, and so that
        // somebody is left to remove the control groups whoever dies how.
        drop((owner_fd, cells));
        let _ = confine::close_from(0);
        process::collect(true);
        if let Ok(name) = name {
            let _ = cgroup::remove_pool(&name, Duration::from_secs(1)); // else the next sweep does
        }
        process::leave(0);
    }
    process::die_with_parent().map_err(|e| format!("death signal: {e}"))?;
    if pids {
        proof::first_process().map_err(|e| format!("PID namespace: {e}"))?;
    }
    serve::Broker::start(limits, text, owner_fd, report, cells, root, pids)?.serve(&mut buffer)
}
