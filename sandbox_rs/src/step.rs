//! A step in the worker, by the short way: the environment is called from here, and a value of the
//! plain kind that nearly every step gives is made a reply without running any of the runner's
//! code. Over hundreds of live workers each line of memory that is touched is one that is cold.
//!
//! The rules are those of the runner's `judge`; what is not plain is handed to it.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};

use crate::jail::sys::object;
use crate::outcome::Outcome;
use crate::protocol::put_reply;

/// What the runner gives for steps: `prepare`'s last item.
pub struct Stepping {
    /// Holds the environment while an episode runs, else None.
    live: Py<PyList>,
    /// Makes a reply of what `step` returned.
    judge: Py<PyAny>,
    /// Makes a reply of what `step` raised.
    raised: Py<PyAny>,
    name: Py<PyString>,
}

/// What became of a step.
pub enum Stepped<'py> {
    /// Its reply is in the buffer.
    Replied,
    /// The runner's reply, or what went wrong in the runner.
    Judged(PyResult<Bound<'py, PyAny>>),
    /// No episode runs, or the request is none: the runner says what is wrong.
    NotRunning,
}

impl Stepping {
    /// Take it out of the runner's tuple.
    ///
    /// # Errors
    /// It is something else.
    pub fn new(parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        let parts = parts.cast::<PyTuple>()?;
        Ok(Self {
            live: parts.get_item(0)?.cast_into::<PyList>()?.unbind(),
            judge: parts.get_item(1)?.unbind(),
            raised: parts.get_item(2)?.unbind(),
            name: PyString::intern(parts.py(), "step").unbind(),
        })
    }

    /// Play one action; `frame` is emptied, and holds the reply if that was plain and no longer
    /// than `reply_bytes`.
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        sequence: u32,
        action: &[u8],
        reply_bytes: usize,
        frame: &mut Vec<u8>,
    ) -> Stepped<'py> {
        // The environment may have got hold of the list: anything can be in it, or nothing.
        let Ok(environment) = self.live.bind(py).get_item(0) else {
            return Stepped::NotRunning;
        };
        let Ok(action) = std::str::from_utf8(action) else {
            return Stepped::NotRunning;
        };
        if environment.is_none() {
            return Stepped::NotRunning;
        }
        let action = PyString::new(py, action);
        match object::call_method(&environment, self.name.bind(py), action.as_any()) {
            Ok(value) if put_plain(&value, sequence, reply_bytes, frame) => Stepped::Replied,
            Ok(value) => Stepped::Judged(self.judge.bind(py).call1((value,))),
            Err(error) => Stepped::Judged(self.raised.bind(py).call1((error,))),
        }
    }
}

/// Write the reply for a plain value: a tuple of str, finite float, False, False and dict, all of
/// exactly these types, the text without lone surrogates. Whether it was one.
fn put_plain(
    value: &Bound<'_, PyAny>,
    sequence: u32,
    reply_bytes: usize,
    frame: &mut Vec<u8>,
) -> bool {
    let Ok(five) = value.cast_exact::<PyTuple>() else {
        return false;
    };
    if five.len() != 5 {
        return false;
    }
    let item = |at: usize| five.get_borrowed_item(at).ok();
    let (Some(text), Some(reward), Some(end)) = (item(0), item(1), item(2)) else {
        return false;
    };
    let (Some(cut), Some(info)) = (item(3), item(4)) else {
        return false;
    };
    let no = PyBool::new(value.py(), false);
    let (Ok(text), Ok(reward)) = (
        text.cast_exact::<PyString>(),
        reward.cast_exact::<PyFloat>(),
    ) else {
        return false;
    };
    if !end.is(&*no) || !cut.is(&*no) || info.cast_exact::<PyDict>().is_err() {
        return false;
    }
    let reward = reward.value();
    let Ok(text) = text.to_str() else {
        return false;
    };
    if !reward.is_finite() || text.len() > reply_bytes {
        return false;
    }
    // As the runner: -0.0 becomes 0.0.
    put_reply(
        frame,
        sequence,
        Outcome::Finished,
        0,
        Some(reward + 0.0),
        text,
        "",
    );
    true
}
