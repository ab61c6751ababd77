//! Starting a broker and hearing what holds.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::broker;
use crate::capability::Report;
use crate::error::{Fault, Result, Stage};
use crate::jail::sys::io;
use crate::limits::Limits;

/// How often a start looks whether the pool was closed meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// How long a broker may take beside its templates.
const BROKER_START: Duration = Duration::from_secs(2);

/// A broker that is ready.
pub(super) struct Launched {
    pub(super) control: OwnedFd,
    pub(super) stub: Stub,
    pub(super) report: Report,
}

/// The process that stays until broker, templates and workers are gone.
pub(super) struct Stub(Option<Child>);

impl Stub {
    /// Wait until everything is gone, for a second and a half; then end it by force.
    fn settle(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill(); // its death is the broker's death signal
        let _ = child.wait();
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Start broker and templates, and wait until all are ready.
///
/// # Errors
/// A layer that must hold is missing, or the machinery cannot start.
pub(super) fn launch(limits: &Limits, stop: &AtomicBool) -> Result<Launched> {
    let (control, other) = io::socket_pair(true).stage("socket pair")?;
    let child = broker::command(&limits.python, &limits.module_path, "_broker_main", other)
        .spawn()
        .map_err(|error| Fault::broken("start", not_started(&limits.python, &error)))?;
    let stub = Stub(Some(child));
    let report = handshake(&control, limits, stop)?;
    report.judge(&limits.level)?;
    Ok(Launched {
        control,
        stub,
        report,
    })
}

/// Why the broker's interpreter could not be started; the same error may be that of its streams.
fn not_started(python: &str, error: &std::io::Error) -> String {
    match OpenOptions::new().write(true).open("/dev/null") {
        Err(closed) if closed.kind() == error.kind() && closed.kind() == ErrorKind::NotFound => {
            format!("/dev/null: {closed}; {python:?} cannot start without it: mount a /dev")
        }
        _ => format!("the running interpreter {python:?}: {error}"),
    }
}

/// A text of another process as part of a message: one line, never long.
fn bounded(text: &str) -> String {
    let mut line: String = text.chars().take(600).collect();
    if line.len() < text.len() {
        line.push_str("...");
    }
    line.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Send the limits and wait for the report.
fn handshake(control: &OwnedFd, limits: &Limits, stop: &AtomicBool) -> Result<Report> {
    let text = toml::to_string(limits).map_err(|e| Fault::broken("limits", e.to_string()))?;
    if text.len() > crate::template::PACKET_BYTES - 64 {
        let detail = format!(
            "{} bytes of profiles: use fewer or shorter ones",
            text.len()
        );
        return Err(Fault::broken("limits", detail));
    }
    // A broker that left at once is told from what it says, below.
    let _ = io::send_with(control.as_raw_fd(), text.as_bytes(), &[], true);
    // The broker gives up a template that is not ready, and names it; this is for its own silence.
    let until = Instant::now() + limits.start() + BROKER_START;
    loop {
        let ready = io::poll_readable(&[control.as_raw_fd()], Some(LOOK)).stage("start")?;
        if ready[0] {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Fault::Closed);
        }
        if Instant::now() > until {
            let detail = format!(
                "the broker said nothing within {} s; raise start_s",
                (limits.start() + BROKER_START).as_secs_f64()
            );
            return Err(Fault::broken("start", detail));
        }
    }
    let mut buffer = vec![0; crate::template::PACKET_BYTES];
    let (length, _) = io::recv_with(control.as_raw_fd(), &mut buffer, true).unwrap_or_default();
    let text = String::from_utf8_lossy(buffer.get(1..length).unwrap_or(&[])).into_owned();
    match buffer.first() {
        Some(b'H') if length > 0 => {
            toml::from_str(&text).map_err(|e| Fault::broken("report", e.to_string()))
        }
        _ if length == 0 => Err(Fault::broken(
            "start",
            format!(
                "{} left before it was ready; check sandbox.python",
                limits.python
            ),
        )),
        Some(b'F') => Err(Fault::broken("start", bounded(&text))),
        _ => {
            let detail = format!("{} wrote something that is no packet", limits.python);
            Err(Fault::broken("start", detail))
        }
    }
}
