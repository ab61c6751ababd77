//! Completions as the records of `spade_async.types`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyType};

use crate::jail::sys::slots::Slots;
use crate::outcome::{ALL, Reply};
use crate::pool::Done;

struct Records {
    /// Members of the enumeration, in the order of `ALL`.
    outcomes: Vec<Py<PyAny>>,
    reply: Slots,
    report: Slots,
}

static RECORDS: PyOnceLock<Records> = PyOnceLock::new();

/// Say once what replies are made of.
///
/// # Errors
/// An outcome is missing, or a class has other fields.
pub fn use_records(
    outcomes: &Bound<'_, PyDict>,
    reply: &Bound<'_, PyType>,
    report: &Bound<'_, PyType>,
) -> PyResult<()> {
    let py = outcomes.py();
    let member = |name: &str| outcomes.as_any().get_item(name).map(Bound::unbind);
    let records = Records {
        outcomes: ALL
            .iter()
            .map(|one| member(one.as_str()))
            .collect::<PyResult<_>>()?,
        reply: Slots::of(
            reply,
            &[
                "outcome",
                "observation",
                "reward",
                "terminated",
                "truncated",
                "detail",
                "report",
            ],
        )?,
        report: Slots::of(report, &["wall_s", "cpu_s", "reply_bytes"])?,
    };
    let _ = RECORDS.set(py, records); // the same again, by a second import
    Ok(())
}

/// What became of an operation, for Python: a `Reply`, or the text of a fault.
pub struct Completion(Done);

impl From<Done> for Completion {
    fn from(done: Done) -> Self {
        Self(done)
    }
}

impl<'py> IntoPyObject<'py> for Completion {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0 {
            Err(fault) => Ok(PyString::new(py, &fault).into_any()),
            Ok(reply) => record(py, &reply),
        }
    }
}

fn record<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    let Some(records) = RECORDS.get(py) else {
        return Err(PyRuntimeError::new_err("call use_records first"));
    };
    let number = |value: Option<f64>| match value {
        Some(value) => PyFloat::new(py, value).into_any(),
        None => py.None().into_bound(py),
    };
    let flag = |value| PyBool::new(py, value).to_owned().into_any();
    let report = [
        number(Some(reply.wall_s)),
        number(reply.cpu_s),
        PyInt::new(py, reply.reply_bytes).into_any(),
    ];
    let fields = [
        records.outcomes[reply.outcome as usize].bind(py).clone(),
        PyString::new(py, &reply.observation).into_any(),
        number(reply.reward),
        flag(reply.terminated),
        flag(reply.truncated),
        PyString::new(py, &reply.detail).into_any(),
        records.report.fill(py, report)?,
    ];
    records.reply.fill(py, fields)
}
