//! The worker's own loop: read a request, call the runner, write the reply.
//!
//! Native on purpose: untrusted code that replaces `json`, `os.write` or `builtins` cannot reach
//! it, and changes at most what the runner says about its own episode.

mod branching;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::jail::child::{REPLIES, REQUESTS};
use crate::jail::plan::Plan;
use crate::jail::proof;
use crate::jail::sys::{io, process};
use crate::limits::Limits;
use crate::outcome::{Outcome, Reply};
use crate::protocol::{DETAIL_BYTES, FrameReader, Kind, encode_code, encode_reply, encode_request};
use crate::step::{Stepped, Stepping};
use crate::template::Class;

/// Room for the reply of a step; a longer one makes its own.
const ANSWER_BYTES: usize = 512;

/// The runner's functions, in the order of its `prepare`.
pub struct Handlers {
    load: Py<PyAny>,
    reset: Py<PyAny>,
    step: Py<PyAny>,
    hint: Py<PyAny>,
    compile: Py<PyAny>,
    load_code: Py<PyAny>,
    trial: Py<PyAny>,
    branch: Py<PyAny>,
    stepping: Stepping,
}

impl Handlers {
    /// Take them out of the tuple that `prepare` returns.
    ///
    /// # Errors
    /// It is shorter.
    pub fn new(tuple: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let get = |at: usize| tuple.get_item(at).map(Bound::unbind);
        Ok(Self {
            load: get(0)?,
            reset: get(1)?,
            step: get(2)?,
            hint: get(3)?,
            compile: get(4)?,
            load_code: get(5)?,
            trial: get(6)?,
            branch: get(7)?,
            stepping: Stepping::new(&tuple.get_item(8)?)?,
        })
    }
}

/// Serve until the host closes the pipe. Never returns.
///
/// `buffer` is the template's: it is there, so that a worker touches what it reads and no more.
pub fn serve(
    py: Python<'_>,
    handlers: &Handlers,
    limits: &Limits,
    plan: &Plan,
    class: Class,
    buffer: &mut [u8],
) -> ! {
    if class == Class::Forkable {
        process::ignore_children(); // branches that end leave no zombies
    }
    // Touches the pages that an episode touches, before anybody waits for it.
    let warms_up = class == Class::Ahead && limits.warm_spares;
    if warms_up && handlers.trial.call0(py).is_err() {
        process::leave(72);
    }
    let most_bytes = limits
        .source_bytes
        .max(limits.action_bytes)
        .max(limits.code_bytes());
    let cap = most_bytes.saturating_add(1 << 20);
    let mut reader = FrameReader::default();
    // Its first page is copied now, and not while somebody waits for the first answer.
    buffer[..1].fill(std::hint::black_box(0));
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    if warms_up {
        rehearse(py, handlers, &mut reader, limits);
    }
    loop {
        let long; // a request that came in pieces
        let frame = match read_frame(&mut reader, buffer, cap) {
            Ok(end) => &buffer[4..end],
            Err(whole) => {
                long = whole;
                &long
            }
        };
        let sequence = frame.get(..4).and_then(|b| b.try_into().ok());
        let kind = frame.get(4).copied().and_then(Kind::from_code);
        let (Some(sequence), Some(kind)) = (sequence.map(u32::from_le_bytes), kind) else {
            process::leave(70)
        };
        let body = &frame[5..];
        let reply = match kind {
            Kind::Ping => Reply::failed(Outcome::Finished, ""), // all that it tells is being here
            Kind::Fork => match branching::fork(py, handlers, plan, limits, body) {
                Ok(reply) => reply,
                Err(error) => Reply::failed(Outcome::Exception, format!("fork: {error}")),
            },
            Kind::Step => {
                let most = limits.reply_bytes;
                match handlers.stepping.run(py, sequence, body, most, &mut answer) {
                    Stepped::Replied => {
                        if io::write_all(REPLIES, &answer).is_err() {
                            process::leave(0)
                        }
                        continue;
                    }
                    Stepped::Judged(value) => settle(py, value, limits),
                    Stepped::NotRunning => call(py, handlers, sequence, kind, body, limits),
                }
            }
            _ => call(py, handlers, sequence, kind, body, limits),
        };
        if io::write_all(REPLIES, &encode_reply(sequence, &reply)).is_err() {
            process::leave(0)
        }
    }
}

/// Go once through what answers a request, so that the first one finds its pages touched.
fn rehearse(py: Python<'_>, handlers: &Handlers, reader: &mut FrameReader, limits: &Limits) {
    let request = encode_request(0, Kind::Ping, b"");
    let _ = reader.push(&request, request.len());
    let reply = call(py, handlers, 0, Kind::Ping, b"", limits);
    std::hint::black_box(encode_reply(0, &reply));
}

/// One whole request: up to where it lies in the buffer, behind its length, or by itself if it came
/// in pieces. Leaves when there will be none.
fn read_frame(
    reader: &mut FrameReader,
    buffer: &mut [u8],
    cap: usize,
) -> std::result::Result<usize, Vec<u8>> {
    loop {
        let Ok(count @ 1..) = io::read(REQUESTS, buffer) else {
            process::leave(0)
        };
        if let (false, Some(head)) = (reader.is_partial(), buffer[..count].first_chunk()) {
            let length = u32::from_le_bytes(*head) as usize;
            if length <= cap && count == 4 + length {
                return Ok(count);
            }
        }
        // The host sends the next request after the reply to this one: nothing follows a frame.
        match reader.push(&buffer[..count], cap) {
            Ok((_, Some(frame))) => return Err(frame),
            Ok((_, None)) => {}
            Err(_) => process::leave(70),
        }
    }
}

fn in_runner(py: Python<'_>, error: &PyErr) -> Reply {
    let name = error
        .get_type(py)
        .name()
        .map_or_else(|_| "error".into(), |n| n.to_string());
    Reply::failed(Outcome::Exception, format!("in runner: {name}"))
}

fn call(
    py: Python<'_>,
    handlers: &Handlers,
    sequence: u32,
    kind: Kind,
    body: &[u8],
    limits: &Limits,
) -> Reply {
    let answer = invoke(py, handlers, sequence, kind, body, limits);
    settle(py, answer, limits)
}

/// The reply that the runner's tuple stands for, within the limits.
fn settle(py: Python<'_>, answer: PyResult<Bound<'_, PyAny>>, limits: &Limits) -> Reply {
    let answer = answer.and_then(|value| extract(&value));
    let mut reply = answer.unwrap_or_else(|error| in_runner(py, &error));
    if reply.reward.is_some_and(|reward| !reward.is_finite()) {
        reply = Reply::failed(Outcome::BadValue, "reward is not finite");
    }
    if reply.observation.len() > limits.reply_bytes {
        let detail = format!(
            "reply of {} bytes, limit {}",
            reply.observation.len(),
            limits.reply_bytes
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
    handlers: &Handlers,
    sequence: u32,
    kind: Kind,
    body: &[u8],
    limits: &Limits,
) -> PyResult<Bound<'py, PyAny>> {
    let text = |bytes: &[u8]| -> PyResult<Bound<'py, PyString>> {
        let text = std::str::from_utf8(bytes).map_err(|_| PyValueError::new_err("not UTF-8"))?;
        Ok(PyString::new(py, text))
    };
    match kind {
        Kind::Step => handlers.step.bind(py).call1((text(body)?,)),
        Kind::Reset => handlers.reset.bind(py).call1((text(body)?,)),
        Kind::Hint => handlers.hint.bind(py).call0(),
        Kind::Ping | Kind::Fork => Ok(finished(py)?.into_any()),
        Kind::Load | Kind::LoadCode => {
            let cut = body.iter().position(|&b| b == b'\n').unwrap_or(body.len());
            let (seed, rest) = (text(&body[..cut])?, body.get(cut + 1..).unwrap_or(&[]));
            if kind == Kind::LoadCode {
                let code = PyBytes::new(py, rest);
                return handlers.load_code.bind(py).call1((code, seed));
            }
            if limits.code_cache_bytes == 0 {
                return handlers.load.bind(py).call1((text(rest)?, seed));
            }
            let compiled = handlers.compile.bind(py).call1((text(rest)?,))?;
            let Ok(code) = compiled.cast::<PyBytes>() else {
                return Ok(compiled); // a failed reply
            };
            // Sent before any of the source has run, so that what the host keeps is the compiler's
            // work and not the source's.
            if code.as_bytes().len() <= limits.code_bytes()
                && io::write_all(REPLIES, &encode_code(sequence, code.as_bytes())).is_err()
            {
                process::leave(0)
            }
            handlers.load_code.bind(py).call1((code, seed))
        }
    }
}

fn finished(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    (Outcome::Finished as u8, "", py.None(), false, false, "").into_pyobject(py)
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

/// In a throw-away worker: try what must be refused and report what was not. Never returns.
pub fn self_test(plan: &Plan) -> ! {
    let alone = plan.clone_flags & libc::CLONE_NEWPID != 0;
    let failures = proof::failures_of_worker(alone, plan.first_user.is_some());
    let _ = io::write_all(REPLIES, format!("{}\n", failures.join(" ")).as_bytes());
    process::leave(0)
}
