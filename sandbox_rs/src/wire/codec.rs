//! The Python class of the codec.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::record::{Array, Envelope, Limits, Record, Rule};
use super::{decode, encode};

type Ranges = Vec<(u64, u64)>;
type Frames<'py> = (Bound<'py, PyBytes>, Bound<'py, PyAny>);

/// Encodes and decodes ordinary messages; `None` leaves one to `transport/codec.py`.
#[pyclass(frozen, module = "spade_async._sandbox_rs")]
pub struct MessageCodec {
    schema: u64,
    header: usize,
    covered: usize,
    items: usize,
    ranges: usize,
    gathered: usize,
    records: Vec<Record>,
    by_class: HashMap<usize, usize>,
    by_kind: HashMap<String, usize>,
}

/// Name, element type, bytes of an element, an array without elements.
type ArrayParts = (Py<PyString>, Py<PyAny>, usize, Py<PyAny>);

#[derive(FromPyObject)]
struct RecordParts {
    #[pyo3(item)]
    kind: String,
    #[pyo3(item)]
    class: Py<PyAny>,
    #[pyo3(item)]
    reliable: bool,
    #[pyo3(item)]
    plain: Vec<(Py<PyString>, Rule)>,
    #[pyo3(item)]
    arrays: Vec<ArrayParts>,
    #[pyo3(item)]
    setters: Vec<Py<PyAny>>,
}

#[pymethods]
impl MessageCodec {
    /// `caps`: schema, header, covered, items, ranges, gathered; see `wire::record::Limits`.
    #[new]
    fn new(
        py: Python<'_>,
        caps: (u64, usize, usize, usize, usize, usize),
        records: Vec<RecordParts>,
        new: Py<PyAny>,
        from_buffer: Py<PyAny>,
    ) -> Self {
        let records: Vec<Record> = records
            .into_iter()
            .map(|parts| Record {
                kind: parts.kind,
                class: parts.class,
                new: new.clone_ref(py),
                reliable: parts.reliable,
                plain: parts.plain,
                arrays: parts
                    .arrays
                    .into_iter()
                    .map(|(name, dtype, item_bytes, empty)| Array {
                        name,
                        dtype,
                        item_bytes,
                        from_buffer: from_buffer.clone_ref(py),
                        empty,
                    })
                    .collect(),
                setters: parts.setters,
            })
            .collect();
        let by_class = records.iter().enumerate();
        let by_class = by_class
            .map(|(at, record)| (record.class.as_ptr() as usize, at))
            .collect();
        let by_kind = records.iter().enumerate();
        let by_kind = by_kind
            .map(|(at, record)| (record.kind.clone(), at))
            .collect();
        let (schema, header, covered, items, ranges, gathered) = caps;
        Self {
            schema,
            header,
            covered,
            items,
            ranges,
            gathered,
            records,
            by_class,
            by_kind,
        }
    }

    /// The frames of an envelope, or None. `sizes` are those of `block`, which is sent as it lies.
    #[pyo3(signature = (envelope, most_bytes, sizes, block))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        envelope: (&str, Bound<'py, PyAny>, u64, u64, Ranges, u64),
        most_bytes: usize,
        sizes: Option<Bound<'py, PyList>>,
        block: Option<Bound<'py, PyAny>>,
    ) -> Option<Frames<'py>> {
        let (sender, message, seq, cumulative, ranges, delivered) = envelope;
        let envelope = Envelope {
            sender,
            seq,
            cumulative,
            ranges,
            delivered,
        };
        let record = if message.is_none() {
            None
        } else {
            let class = message.get_type().as_ptr() as usize;
            Some((&self.records[*self.by_class.get(&class)?], &message))
        };
        let laid_out = match (&sizes, &block) {
            (Some(sizes), Some(block)) => Some((sizes, block)),
            _ => None,
        };
        let limits = self.limits(most_bytes);
        let (header, packed) = encode(py, record, &envelope, laid_out, &limits).ok()?;
        Some((header, block.unwrap_or_else(|| packed.into_any())))
    }

    /// What two frames say, in the order of `codec.Envelope`, or None.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        header: &[u8],
        block: Bound<'py, PyAny>,
        most_bytes: usize,
    ) -> Option<Bound<'py, PyTuple>> {
        let limits = self.limits(most_bytes);
        let find = |kind: &str| self.by_kind.get(kind).map(|at| &self.records[*at]);
        decode(py, find, header, &block, &limits).ok()
    }
}

impl MessageCodec {
    fn limits(&self, frame: usize) -> Limits {
        Limits {
            schema: self.schema,
            header: self.header,
            frame,
            covered: self.covered,
            items: self.items,
            ranges: self.ranges,
            gathered: self.gathered,
        }
    }
}
