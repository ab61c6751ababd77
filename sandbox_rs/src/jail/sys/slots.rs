//! Objects of Python classes with slots, made field by field without their constructors.
//!
//! The constructor of a frozen record sets each field by way of `object.__setattr__`; the slots
//! themselves take a fraction of that, and a reply of the jail has ten.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// A class with slots and the descriptors of its fields, in the order they are filled.
pub struct Slots {
    kind: Py<PyType>,
    fields: Vec<Py<PyAny>>,
    set: ffi::descrsetfunc,
}

impl Slots {
    /// Look at a class.
    ///
    /// # Errors
    /// A field is no slot of it, or it has a `__new__` or layout of its own kind.
    pub fn of(kind: &Bound<'_, PyType>, fields: &[&str]) -> PyResult<Self> {
        let py = kind.py();
        let member = py.import("types")?.getattr("MemberDescriptorType")?;
        let member = member.cast_into::<PyType>()?;
        let refuse = |what: &str| {
            let text = format!("{kind}: {what}; a record is a dataclass with slots");
            Err(PyTypeError::new_err(text))
        };
        if !kind.getattr("__base__")?.is(py.get_type::<PyAny>()) {
            return refuse("it has a base class");
        }
        let mut found = Vec::with_capacity(fields.len());
        for field in fields {
            let slot = kind.getattr(*field)?;
            if !slot.get_type().is(&member) || !slot.getattr("__objclass__")?.is(kind) {
                return refuse(&format!("{field} is no slot"));
            }
            found.push(slot.unbind());
        }
        // SAFETY: takes a type that is alive and a number of the table of slots.
        let set = unsafe { ffi::PyType_GetSlot(member.as_type_ptr(), ffi::Py_tp_descr_set) };
        if set.is_null() {
            return refuse("its slots cannot be set");
        }
        Ok(Self {
            kind: kind.clone().unbind(),
            fields: found,
            // SAFETY: not null, and what that slot of a type holds is a function of this form.
            set: unsafe { std::mem::transmute::<*mut std::ffi::c_void, ffi::descrsetfunc>(set) },
        })
    }

    /// A new object with these values.
    ///
    /// # Errors
    /// No memory.
    pub fn fill<'py, const N: usize>(
        &self,
        py: Python<'py>,
        values: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        assert_eq!(self.fields.len(), N, "one value per field");
        let kind = self.kind.bind(py);
        // SAFETY: the class is alive and directly below `object`, whose own `__new__` allocates so;
        // the result is a new reference or null with an error set.
        let object = unsafe {
            let made = ffi::PyType_GenericAlloc(kind.as_type_ptr(), 0);
            Bound::from_owned_ptr_or_err(py, made)?
        };
        for (slot, value) in self.fields.iter().zip(&values) {
            // SAFETY: `set` is the setter of descriptors of this type, `slot` one of them, and
            // `object` of the class that it belongs to; all live through the call.
            let code = unsafe { (self.set)(slot.as_ptr(), object.as_ptr(), value.as_ptr()) };
            if code != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(object)
    }
}
