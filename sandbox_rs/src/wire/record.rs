//! What a record looks like, as `spade_async/transport/fields.py` reads it from its annotations.

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::Odd;

/// Caps and version, all of them named in `transport/codec.py`.
pub struct Limits {
    /// Version of all records.
    pub schema: u64,
    /// Most bytes of a header.
    pub header: usize,
    /// Most bytes of a frame, `link.max_message_bytes`.
    pub frame: usize,
    /// Largest block that the checksum covers.
    pub covered: usize,
    /// Most items in one list or dict.
    pub items: usize,
    /// Most ranges of acknowledged numbers.
    pub ranges: usize,
    /// Most bytes of arrays that are packed here.
    pub gathered: usize,
}

/// All of an envelope but its message.
pub struct Envelope<'a> {
    /// Incarnation of the sender.
    pub sender: &'a str,
    /// Number of the message, 0 of an unreliable one.
    pub seq: u64,
    /// Everything up to this number is acknowledged.
    pub cumulative: u64,
    /// Further acknowledged numbers, first and last.
    pub ranges: Vec<(u64, u64)>,
    /// Everything up to this number came.
    pub delivered: u64,
}

/// What a plain field may hold.
pub struct Rule {
    /// Any of the bits below.
    pub scalars: u8,
    /// A list whose items keep this rule.
    pub list: Option<Box<Rule>>,
    /// A dict with text for keys whose values keep this rule.
    pub dict: Option<Box<Rule>>,
    /// Any plain value, to any depth.
    pub anything: bool,
}

impl Rule {
    /// None.
    pub const NONE: u8 = 1;
    /// A truth value.
    pub const BOOL: u8 = 2;
    /// A whole number.
    pub const INT: u8 = 4;
    /// A number.
    pub const FLOAT: u8 = 8;
    /// Text.
    pub const TEXT: u8 = 16;

    /// Whether a scalar may stand here.
    pub fn allows(&self, scalar: u8) -> bool {
        self.anything || self.scalars & scalar != 0
    }

    /// The rule for items of a list that stands here.
    pub fn items(&self) -> Result<&Rule, Odd> {
        self.inner(self.list.as_deref())
    }

    /// The rule for values of a dict that stands here.
    pub fn values(&self) -> Result<&Rule, Odd> {
        self.inner(self.dict.as_deref())
    }

    fn inner<'a>(&'a self, inner: Option<&'a Rule>) -> Result<&'a Rule, Odd> {
        if self.anything {
            Ok(self)
        } else {
            inner.ok_or(Odd)
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Rule {
    type Error = PyErr;

    /// From (scalars, rule of items or None, rule of values or None, anything).
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let inner = |at: usize| -> PyResult<Option<Box<Rule>>> {
            Ok(object
                .get_item(at)?
                .extract::<Option<Rule>>()?
                .map(Box::new))
        };
        Ok(Self {
            scalars: object.get_item(0)?.extract()?,
            list: inner(1)?,
            dict: inner(2)?,
            anything: object.get_item(3)?.extract()?,
        })
    }
}

/// An array field.
pub struct Array {
    /// Its name.
    pub name: Py<PyString>,
    /// Its element type, the very object that honest arrays have.
    pub dtype: Py<PyAny>,
    /// Bytes of an element.
    pub item_bytes: usize,
    /// `numpy.frombuffer`.
    pub from_buffer: Py<PyAny>,
    /// A read-only array without elements.
    pub empty: Py<PyAny>,
}

impl Array {
    /// The array of `items` elements at `offset` of a block.
    pub fn view<'py>(
        &self,
        py: Python<'py>,
        block: &Bound<'py, PyAny>,
        items: usize,
        offset: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if items == 0 {
            return Ok(self.empty.bind(py).clone());
        }
        self.from_buffer
            .bind(py)
            .call1((block, self.dtype.bind(py), items, offset))
    }
}

/// One kind of message.
pub struct Record {
    /// Name of its class.
    pub kind: String,
    /// The class.
    pub class: Py<PyAny>,
    /// `object.__new__`.
    pub new: Py<PyAny>,
    /// Whether it has a sequence number.
    pub reliable: bool,
    /// Plain fields in order.
    pub plain: Vec<(Py<PyString>, Rule)>,
    /// Array fields in order.
    pub arrays: Vec<Array>,
    /// What sets each field of a new one, plain ones first: the class is frozen.
    pub setters: Vec<Py<PyAny>>,
}

impl Record {
    /// A new one whose fields are not set yet.
    pub fn blank<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.new.bind(py).call1((self.class.bind(py),))
    }
}
