//! Values as msgpack, each in its shortest form, as the Python library writes them.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use super::Odd;
use super::record::{Array, Limits, Rule};

/// Deepest nesting that is ordinary.
pub const MOST_DEPTH: usize = 32;

/// A number that is not negative.
pub fn unsigned(value: u64, out: &mut Vec<u8>) {
    if value < 1 << 7 {
        out.push(value as u8);
    } else if value < 1 << 8 {
        out.extend_from_slice(&[0xcc, value as u8]);
    } else if value < 1 << 16 {
        out.push(0xcd);
        out.extend_from_slice(&(value as u16).to_be_bytes());
    } else if value < 1 << 32 {
        out.push(0xce);
        out.extend_from_slice(&(value as u32).to_be_bytes());
    } else {
        out.push(0xcf);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

fn signed(value: i64, out: &mut Vec<u8>) {
    if let Ok(value) = u64::try_from(value) {
        unsigned(value, out);
    } else if value >= -(1 << 5) {
        out.push(value as u8);
    } else if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&[0xd0, value as u8]);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xd1);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xd2);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        out.push(0xd3);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Text.
pub fn text(value: &str, out: &mut Vec<u8>) {
    let length = value.len();
    if length < 32 {
        out.push(0xa0 | length as u8);
    } else if length < 1 << 8 {
        out.extend_from_slice(&[0xd9, length as u8]);
    } else if length < 1 << 16 {
        out.push(0xda);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    } else {
        // Longer than any header may be is refused by the caller.
        out.push(0xdb);
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }
    out.extend_from_slice(value.as_bytes());
}

/// The length of a list.
pub fn array_head(length: usize, out: &mut Vec<u8>) {
    head(length, 0x90, 0xdc, out);
}

fn head(length: usize, short: u8, long: u8, out: &mut Vec<u8>) {
    if length < 16 {
        out.push(short | length as u8);
    } else if length < 1 << 16 {
        out.push(long);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    } else {
        out.push(long + 1);
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

/// A plain value that keeps its field's rule; exact types only.
pub fn value(
    found: &Bound<'_, PyAny>,
    rule: &Rule,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Odd> {
    let scalar = if let Ok(found) = found.cast_exact::<PyString>() {
        text(found.to_str()?, out);
        Rule::TEXT
    } else if found.is_none() {
        out.push(0xc0);
        Rule::NONE
    } else if let Ok(found) = found.cast_exact::<PyInt>() {
        match found.extract::<i64>() {
            Ok(number) => signed(number, out),
            Err(_) => unsigned(found.extract()?, out),
        }
        Rule::INT
    } else if let Ok(found) = found.cast_exact::<PyFloat>() {
        out.push(0xcb);
        out.extend_from_slice(&found.extract::<f64>()?.to_be_bytes());
        Rule::FLOAT
    } else if let Ok(found) = found.cast_exact::<PyBool>() {
        out.push(0xc2 | u8::from(found.is_true()));
        Rule::BOOL
    } else {
        return nested(found, rule, depth, out);
    };
    if rule.allows(scalar) {
        Ok(())
    } else {
        Err(Odd)
    }
}

fn nested(
    found: &Bound<'_, PyAny>,
    rule: &Rule,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Odd> {
    if depth >= MOST_DEPTH {
        return Err(Odd);
    }
    if let Ok(found) = found.cast_exact::<PyDict>() {
        let rule = rule.values()?;
        head(found.len(), 0x80, 0xde, out);
        for (key, item) in found.iter() {
            text(
                key.cast_exact::<PyString>().map_err(|_| Odd)?.to_str()?,
                out,
            );
            value(&item, rule, depth + 1, out)?;
        }
        return Ok(());
    }
    let found = found.cast_exact::<PyList>().map_err(|_| Odd)?;
    let rule = rule.items()?;
    array_head(found.len(), out);
    for item in found.iter() {
        value(&item, rule, depth + 1, out)?;
    }
    Ok(())
}

/// The elements of a small array of one dimension, and how many they are.
pub fn array(
    found: &Bound<'_, PyAny>,
    expected: &Array,
    limits: &Limits,
    block: &mut Vec<u8>,
) -> Result<usize, Odd> {
    let py = found.py();
    if !found.get_type().is(expected.empty.bind(py).get_type())
        || !found
            .getattr(pyo3::intern!(py, "dtype"))?
            .is(expected.dtype.bind(py))
        || found
            .getattr(pyo3::intern!(py, "ndim"))?
            .extract::<usize>()?
            != 1
    {
        return Err(Odd);
    }
    let items: usize = found.getattr(pyo3::intern!(py, "size"))?.extract()?;
    if items == 0 {
        return Ok(0);
    }
    if block.len() + items * expected.item_bytes > limits.gathered {
        return Err(Odd);
    }
    let bytes = found.call_method0(pyo3::intern!(py, "tobytes"))?;
    let bytes = bytes.cast_exact::<PyBytes>().map_err(|_| Odd)?.as_bytes();
    if bytes.len() != items * expected.item_bytes {
        return Err(Odd);
    }
    block.extend_from_slice(bytes);
    block.resize(block.len().next_multiple_of(8), 0);
    Ok(items)
}
