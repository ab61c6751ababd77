//! Messages of the link in their ordinary form, between Python records and bytes.
//!
//! The format, its caps and every refusal with its words are those of
//! `spade_async/transport/codec.py`. What is here does the ordinary case at a fraction of the time
//! and answers "not ordinary" (`None` in Python) for anything else: a value of a subclass, text
//! that is not UTF-8, an array of two dimensions, a damaged frame. Python then does the whole work
//! and says what is wrong. So nothing may be accepted here that Python would refuse.

mod codec;
mod pack;
mod record;
mod unpack;

pub use codec::MessageCodec;

use record::{Envelope, Limits, Record};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// Why a message is left to Python: it is not in the ordinary form.
pub struct Odd;

impl From<PyErr> for Odd {
    fn from(_: PyErr) -> Self {
        Self
    }
}

/// Bytes of the checksum in front of a header.
const CHECKSUM_BYTES: usize = 4;

/// CRC-32 of a header after its checksum, and of a block that is small enough.
fn checksum(body: &[u8], block: &[u8], limits: &Limits) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    if block.len() <= limits.covered {
        hasher.update(block);
    }
    hasher.finalize()
}

/// Header and block of a message.
///
/// `laid_out` are the sizes of a block that is sent as it lies, and the block (a memoryview); without
/// them the arrays are packed here, if they are small.
fn encode<'py>(
    py: Python<'py>,
    record: Option<(&Record, &Bound<'py, PyAny>)>,
    envelope: &Envelope<'_>,
    laid_out: Option<(&Bound<'py, PyList>, &Bound<'py, PyAny>)>,
    limits: &Limits,
) -> Result<(Bound<'py, PyBytes>, Bound<'py, PyBytes>), Odd> {
    let mut out = Vec::with_capacity(768);
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    out.push(0x99);
    pack::text(record.map_or("", |(record, _)| &record.kind), &mut out);
    pack::unsigned(limits.schema, &mut out);
    pack::text(envelope.sender, &mut out);
    pack::unsigned(envelope.seq, &mut out);
    pack::unsigned(envelope.cumulative, &mut out);
    pack::array_head(2 * envelope.ranges.len(), &mut out);
    for (first, last) in &envelope.ranges {
        pack::unsigned(*first, &mut out);
        pack::unsigned(*last, &mut out);
    }
    let mut block = Vec::new();
    let mut block_len = 0;
    match record {
        None => out.extend_from_slice(&[0x90, 0x90]),
        Some((record, message)) => {
            pack::array_head(record.plain.len(), &mut out);
            for (name, rule) in &record.plain {
                pack::value(&message.getattr(name.bind(py))?, rule, 0, &mut out)?;
            }
            pack::array_head(record.arrays.len(), &mut out);
            if let Some((sizes, given)) = laid_out {
                for size in sizes.iter() {
                    pack::unsigned(size.extract()?, &mut out);
                }
                block_len = given.len()?;
            } else {
                for array in &record.arrays {
                    let found = message.getattr(array.name.bind(py))?;
                    let items = pack::array(&found, array, limits, &mut block)?;
                    pack::unsigned(items as u64, &mut out);
                }
                block_len = block.len();
            }
        }
    }
    pack::unsigned(envelope.delivered, &mut out);
    if out.len() > limits.header || out.len() > limits.frame || block_len > limits.frame {
        return Err(Odd);
    }
    let body = &out[CHECKSUM_BYTES..];
    let sum = match laid_out {
        Some((_, given)) if block_len <= limits.covered => {
            let bytes = given.call_method0(pyo3::intern!(py, "tobytes"))?;
            let bytes = bytes.cast_exact::<PyBytes>().map_err(|_| Odd)?;
            checksum(body, bytes.as_bytes(), limits)
        }
        Some(_) => crc32fast::hash(body),
        None => checksum(body, &block, limits),
    };
    out[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    Ok((PyBytes::new(py, &out), PyBytes::new(py, &block)))
}

/// What a header says, with the record of its message: (sender, message, seq, cumulative, ranges,
/// delivered).
fn decode<'a, 'py>(
    py: Python<'py>,
    find: impl Fn(&str) -> Option<&'a Record>,
    header: &[u8],
    block: &Bound<'py, PyAny>,
    limits: &Limits,
) -> Result<Bound<'py, PyTuple>, Odd> {
    let (in_block, block_len) = match block.cast_exact::<PyBytes>() {
        Ok(bytes) => (bytes.as_bytes(), bytes.as_bytes().len()),
        Err(_) => (&[][..], block.len()?),
    };
    let covers_block = block_len <= limits.covered;
    if (covers_block && in_block.len() != block_len)
        || header.len() <= CHECKSUM_BYTES
        || header.len() > limits.header
        || header.len() > limits.frame
        || block_len > limits.frame
    {
        return Err(Odd);
    }
    let (told, body) = header.split_at(CHECKSUM_BYTES);
    let covered = if covers_block { in_block } else { &[] };
    let sum = checksum(body, covered, limits);
    if told != sum.to_le_bytes() {
        return Err(Odd);
    }
    let mut reader = unpack::Reader::new(body, limits);
    if reader.byte()? != 0x99 {
        return Err(Odd);
    }
    let kind = reader.text()?;
    if reader.unsigned()? != limits.schema {
        return Err(Odd);
    }
    let sender = reader.text()?;
    let seq = reader.seq()?;
    let cumulative = reader.seq()?;
    let ranges = reader.ranges()?;
    if sender.len() > 255 {
        return Err(Odd);
    }
    let message = if kind.is_empty() {
        if reader.array_head()? != 0 || reader.array_head()? != 0 || block_len != 0 || seq != 0 {
            return Err(Odd);
        }
        py.None().into_bound(py)
    } else {
        let record = find(kind).ok_or(Odd)?;
        if record.reliable != (seq != 0) || reader.array_head()? != record.plain.len() {
            return Err(Odd);
        }
        let made = record.blank(py)?;
        for (set, (_, rule)) in record.setters.iter().zip(&record.plain) {
            set.bind(py).call1((&made, reader.value(py, rule, 0)?))?;
        }
        if reader.array_head()? != record.arrays.len() {
            return Err(Odd);
        }
        // Nobody may write to what a sender keeps; bytes cannot be written to anyway.
        let readable = if block.is_exact_instance_of::<PyBytes>() {
            block.clone()
        } else {
            block.call_method0("toreadonly")?
        };
        let mut end = 0_usize;
        for (set, array) in record.setters[record.plain.len()..]
            .iter()
            .zip(&record.arrays)
        {
            let items = usize::try_from(reader.unsigned()?).map_err(|_| Odd)?;
            let bytes = items.checked_mul(array.item_bytes).ok_or(Odd)?;
            if bytes > block_len - end {
                return Err(Odd);
            }
            let found = array.view(py, &readable, items, end)?;
            set.bind(py).call1((&made, found))?;
            end += bytes.next_multiple_of(8);
            if end > block_len {
                return Err(Odd);
            }
        }
        if end != block_len {
            return Err(Odd);
        }
        made
    };
    let delivered = reader.seq()?;
    reader.end()?;
    Ok((sender, message, seq, cumulative, ranges, delivered).into_pyobject(py)?)
}
