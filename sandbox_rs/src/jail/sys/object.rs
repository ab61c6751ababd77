//! One call of an object that is not trusted.

use std::ptr::null_mut;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// `object.name(argument)`; the exception as a value, with its traceback.
///
/// Unlike a `PyErr` nothing is read into the exception's type: whatever untrusted code raises, it
/// becomes no panic of ours.
///
/// # Errors
/// What it raised.
pub fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    argument: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>, Bound<'py, PyAny>> {
    let py = object.py();
    let (object, name, argument) = (object.as_ptr(), name.as_ptr(), argument.as_ptr());
    let end = null_mut::<pyo3::ffi::PyObject>();
    // SAFETY: the interpreter is attached and the three objects live through the call, whose list
    // of arguments ends in a null. A null result means that an error is set: then fetching gives a
    // type, and normalizing an exception object, both new references, the traceback too if any.
    unsafe {
        let value = pyo3::ffi::PyObject_CallMethodObjArgs(object, name, argument, end);
        if let Some(value) = Bound::from_owned_ptr_or_opt(py, value) {
            return Ok(value);
        }
        let (mut kind, mut error, mut trace) = (null_mut(), null_mut(), null_mut());
        pyo3::ffi::PyErr_Fetch(&raw mut kind, &raw mut error, &raw mut trace);
        pyo3::ffi::PyErr_NormalizeException(&raw mut kind, &raw mut error, &raw mut trace);
        if !trace.is_null() {
            let _ = pyo3::ffi::PyException_SetTraceback(error, trace);
        }
        drop(Bound::from_owned_ptr_or_opt(py, kind));
        drop(Bound::from_owned_ptr_or_opt(py, trace));
        let error = Bound::from_owned_ptr_or_opt(py, error);
        Err(error.unwrap_or_else(|| py.None().into_bound(py)))
    }
}
