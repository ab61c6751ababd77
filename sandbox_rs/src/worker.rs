//! The worker's own loop: read a request, call the runner, write the reply.
//!
//! Native on purpose: untrusted code that replaces `json`, `os.write` or `builtins` cannot reach
//! it, and changes at most what the runner says about its own episode.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::jail::child::SOCKET;
use crate::jail::sys::{confine, io, process};
use crate::limits::Limits;
use crate::outcome::{Outcome, Reply};
use crate::protocol::{DETAIL_BYTES, Kind, encode_reply};

/// Serve until the host closes the socket. Never returns.
pub fn serve(py: Python<'_>, handlers: &Bound<'_, PyTuple>, limits: &Limits) -> ! {
    let cap = limits.source_bytes.max(limits.action_bytes) + (1 << 20);
    loop {
        let Some(frame) = read_frame(cap) else {
            process::leave(0)
        };
        let (Some(sequence), Some(kind)) = (
            frame
                .get(..4)
                .and_then(|b| b.try_into().ok())
                .map(u32::from_le_bytes),
            frame.get(4).copied().and_then(Kind::from_code),
        ) else {
            process::leave(70)
        };
        let reply = call(py, handlers, kind, &frame[5..], limits.reply_bytes);
        if io::write_all(SOCKET, &encode_reply(sequence, &reply)).is_err() {
            process::leave(0)
        }
    }
}

fn read_frame(cap: usize) -> Option<Vec<u8>> {
    let mut header = [0; 4];
    fill(&mut header)?;
    let length = u32::from_le_bytes(header) as usize;
    if length > cap {
        return None;
    }
    let mut frame = vec![0; length];
    fill(&mut frame)?;
    Some(frame)
}

fn fill(buffer: &mut [u8]) -> Option<()> {
    let mut have = 0;
    while have < buffer.len() {
        match io::read(SOCKET, &mut buffer[have..]) {
            Ok(0) | Err(_) => return None,
            Ok(count) => have += count,
        }
    }
    Some(())
}

fn call(
    py: Python<'_>,
    handlers: &Bound<'_, PyTuple>,
    kind: Kind,
    body: &[u8],
    reply_bytes: usize,
) -> Reply {
    let answer = invoke(py, handlers, kind, body).and_then(|value| extract(&value));
    let mut reply = answer.unwrap_or_else(|error| {
        let name = error
            .get_type(py)
            .name()
            .map_or_else(|_| "error".into(), |n| n.to_string());
        Reply::failed(Outcome::Exception, format!("in runner: {name}"))
    });
    if reply.reward.is_some_and(|reward| !reward.is_finite()) {
        reply = Reply::failed(Outcome::BadValue, "reward is not finite");
    }
    if reply.observation.len() > reply_bytes {
        let detail = format!(
            "reply of {} bytes, limit {reply_bytes}",
            reply.observation.len()
        );
        reply = Reply::failed(Outcome::OverOutput, detail);
    }
    let mut end = reply.detail.len().min(DETAIL_BYTES);
    while !reply.detail.is_char_boundary(end) {
        end -= 1;
    }
    reply.detail.truncate(end);
    reply
}

fn invoke<'py>(
    py: Python<'py>,
    handlers: &Bound<'py, PyTuple>,
    kind: Kind,
    body: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let text = |bytes: &[u8]| -> PyResult<Bound<'py, PyString>> {
        let text = std::str::from_utf8(bytes).map_err(|_| PyValueError::new_err("not UTF-8"))?;
        Ok(PyString::new(py, text))
    };
    let handler = handlers.get_item(kind as usize)?;
    match kind {
        Kind::Hint => handler.call0(),
        Kind::Reset | Kind::Step => handler.call1((text(body)?,)),
        Kind::Load => {
            let cut = body.iter().position(|&b| b == b'\n').unwrap_or(body.len());
            let source = body.get(cut + 1..).unwrap_or(&[]);
            handler.call1((text(source)?, text(&body[..cut])?))
        }
    }
}

fn extract(value: &Bound<'_, PyAny>) -> PyResult<Reply> {
    type Raw = (u8, String, Option<f64>, bool, bool, String);
    let (code, observation, reward, terminated, truncated, detail): Raw = value.extract()?;
    let outcome = Outcome::from_code(code).unwrap_or(Outcome::BadValue);
    Ok(Reply {
        observation,
        reward,
        terminated,
        truncated,
        ..Reply::failed(outcome, detail)
    })
}

/// In a throw-away worker: try what must be refused and report what passed. Never returns.
pub fn self_test() -> ! {
    let names = [
        "openat",
        "socket",
        "execve",
        "ptrace",
        "kill",
        "unshare",
        "clone3",
        "clone",
        "seccomp",
        "bpf",
        "io_uring_setup",
        "mprotect",
        "mmap",
    ];
    let passed: Vec<_> = names
        .into_iter()
        .filter(|name| confine::attempt(name) == 0)
        .collect();
    let _ = io::write_all(SOCKET, format!("{}\n", passed.join(" ")).as_bytes());
    process::leave(0)
}
