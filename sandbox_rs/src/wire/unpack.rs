//! Values from msgpack. Nothing is taken for granted: what is not ordinary is left to Python.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString};

use super::Odd;
use super::pack::MOST_DEPTH;
use super::record::{Limits, Rule};

/// A sequence number is below this.
const MOST_SEQ: u64 = 1 << 62;

/// A place in a header.
pub struct Reader<'a> {
    left: &'a [u8],
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    /// At the beginning.
    pub fn new(bytes: &'a [u8], limits: &'a Limits) -> Self {
        Self {
            left: bytes,
            limits,
        }
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Odd> {
        let (first, left) = self.left.split_first().ok_or(Odd)?;
        self.left = left;
        Ok(*first)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Odd> {
        let (first, left) = self.left.split_first_chunk().ok_or(Odd)?;
        self.left = left;
        Ok(*first)
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), Odd> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(Odd)
        }
    }

    /// Text that is UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Odd> {
        let first = self.byte()?;
        self.text_after(first)?.ok_or(Odd)
    }

    fn text_after(&mut self, first: u8) -> Result<Option<&'a str>, Odd> {
        let length = match first {
            0xa0..=0xbf => usize::from(first & 0x1f),
            0xd9 => usize::from(self.byte()?),
            0xda => usize::from(u16::from_be_bytes(self.bytes()?)),
            0xdb => u32::from_be_bytes(self.bytes()?) as usize,
            _ => return Ok(None),
        };
        let (text, left) = self.left.split_at_checked(length).ok_or(Odd)?;
        self.left = left;
        std::str::from_utf8(text).map(Some).map_err(|_| Odd)
    }

    /// A number that is not negative.
    pub fn unsigned(&mut self) -> Result<u64, Odd> {
        Ok(match self.byte()? {
            small @ 0..=0x7f => u64::from(small),
            0xcc => u64::from(self.byte()?),
            0xcd => u64::from(u16::from_be_bytes(self.bytes()?)),
            0xce => u64::from(u32::from_be_bytes(self.bytes()?)),
            0xcf => u64::from_be_bytes(self.bytes()?),
            _ => return Err(Odd),
        })
    }

    /// A number that can be a message's.
    pub fn seq(&mut self) -> Result<u64, Odd> {
        let seq = self.unsigned()?;
        if seq < MOST_SEQ { Ok(seq) } else { Err(Odd) }
    }

    /// The length of a list; there are at least as many bytes.
    pub fn array_head(&mut self) -> Result<usize, Odd> {
        let first = self.byte()?;
        self.head_after(first, 0x90, 0xdc)?.ok_or(Odd)
    }

    fn head_after(&mut self, first: u8, short: u8, long: u8) -> Result<Option<usize>, Odd> {
        let length = if first & 0xf0 == short {
            usize::from(first & 0x0f)
        } else if first == long {
            usize::from(u16::from_be_bytes(self.bytes()?))
        } else if first == long + 1 {
            u32::from_be_bytes(self.bytes()?) as usize
        } else {
            return Ok(None);
        };
        // No memory is taken for items that cannot be there.
        if length > self.limits.items || length > self.left.len() {
            return Err(Odd);
        }
        Ok(Some(length))
    }

    /// Acknowledged numbers, first and last.
    pub fn ranges(&mut self) -> Result<Ranges, Odd> {
        let length = self.array_head()?;
        if length % 2 != 0 || length > 2 * self.limits.ranges {
            return Err(Odd);
        }
        let mut pairs = Vec::with_capacity(length / 2);
        for _ in 0..length / 2 {
            let (first, last) = (self.seq()?, self.seq()?);
            if first > last {
                return Err(Odd);
            }
            pairs.push((first, last));
        }
        Ok(Ranges(pairs))
    }

    /// A plain value that keeps its field's rule.
    pub fn value<'py>(
        &mut self,
        py: Python<'py>,
        rule: &Rule,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Odd> {
        let first = self.byte()?;
        if let Some(text) = self.text_after(first)? {
            return self.scalar(PyString::new(py, text).into_any(), Rule::TEXT, rule);
        }
        let whole = |number: i64| PyInt::new(py, number).into_any();
        let (scalar, made) = match first {
            0..=0x7f | 0xe0..=0xff => (Rule::INT, whole(i64::from(first as i8))),
            0xc0 => (Rule::NONE, py.None().into_bound(py)),
            0xc2 | 0xc3 => {
                let truth = (first == 0xc3).into_pyobject(py).map_err(|_| Odd)?;
                (Rule::BOOL, truth.to_owned().into_any())
            }
            0xca => {
                let number = f64::from(f32::from_be_bytes(self.bytes()?));
                (Rule::FLOAT, PyFloat::new(py, number).into_any())
            }
            0xcb => {
                let number = f64::from_be_bytes(self.bytes()?);
                (Rule::FLOAT, PyFloat::new(py, number).into_any())
            }
            0xcc => (Rule::INT, whole(i64::from(self.byte()?))),
            0xcd => (
                Rule::INT,
                whole(i64::from(u16::from_be_bytes(self.bytes()?))),
            ),
            0xce => (
                Rule::INT,
                whole(i64::from(u32::from_be_bytes(self.bytes()?))),
            ),
            0xcf => {
                let number = u64::from_be_bytes(self.bytes()?);
                (Rule::INT, PyInt::new(py, number).into_any())
            }
            0xd0 => (
                Rule::INT,
                whole(i64::from(i8::from_be_bytes(self.bytes()?))),
            ),
            0xd1 => (
                Rule::INT,
                whole(i64::from(i16::from_be_bytes(self.bytes()?))),
            ),
            0xd2 => (
                Rule::INT,
                whole(i64::from(i32::from_be_bytes(self.bytes()?))),
            ),
            0xd3 => (Rule::INT, whole(i64::from_be_bytes(self.bytes()?))),
            _ => return self.nested(py, first, rule, depth),
        };
        self.scalar(made, scalar, rule)
    }

    fn scalar<'py>(
        &self,
        made: Bound<'py, PyAny>,
        scalar: u8,
        rule: &Rule,
    ) -> Result<Bound<'py, PyAny>, Odd> {
        if rule.allows(scalar) {
            Ok(made)
        } else {
            Err(Odd)
        }
    }

    fn nested<'py>(
        &mut self,
        py: Python<'py>,
        first: u8,
        rule: &Rule,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, Odd> {
        if depth >= MOST_DEPTH {
            return Err(Odd);
        }
        if let Some(length) = self.head_after(first, 0x90, 0xdc)? {
            let rule = rule.items()?;
            let made = PyList::empty(py);
            for _ in 0..length {
                made.append(self.value(py, rule, depth + 1)?)?;
            }
            return Ok(made.into_any());
        }
        let length = self.head_after(first, 0x80, 0xde)?.ok_or(Odd)?;
        let rule = rule.values()?;
        let made = PyDict::new(py);
        for _ in 0..length {
            let key = self.text()?;
            made.set_item(key, self.value(py, rule, depth + 1)?)?;
        }
        Ok(made.into_any())
    }
}

/// A tuple of pairs in Python.
pub struct Ranges(Vec<(u64, u64)>);

impl<'py> IntoPyObject<'py> for Ranges {
    type Target = pyo3::types::PyTuple;
    type Output = Bound<'py, Self::Target>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        pyo3::types::PyTuple::new(py, self.0)
    }
}
