//! The wire format once more, written from its description and for whole buffers: what the real
//! reader must agree with.

use _sandbox_rs::protocol::DETAIL_BYTES;

/// One frame found in a stream, or why the stream ends there.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The body of a complete frame.
    Frame(&'a [u8]),
    /// A length above the cap was announced.
    TooLong(usize),
    /// The stream ended inside a frame (true) or between two (false).
    End(bool),
}

/// The next frame at `at`, and where the one after it begins.
pub fn next_frame(stream: &[u8], at: usize, cap: usize) -> (Found<'_>, usize) {
    let rest = &stream[at..];
    let [a, b, c, d, body @ ..] = rest else {
        return (Found::End(!rest.is_empty()), stream.len());
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    if length > cap {
        return (Found::TooLong(length), at + 4);
    }
    match body.get(..length) {
        Some(body) => (Found::Frame(body), at + 4 + length),
        None => (Found::End(true), stream.len()),
    }
}

/// The parts of a body that is a valid reply to `sequence`; `None` for every other body.
pub struct Parts<'a> {
    /// Code of the outcome.
    pub outcome: u8,
    /// Bits of the reward, when there is one.
    pub reward: Option<u64>,
    /// The episode ended; the episode was cut.
    pub ends: (bool, bool),
    /// The observation.
    pub text: &'a str,
    /// The detail.
    pub detail: &'a str,
}

/// Read a body as the description of the protocol says.
pub fn parts(body: &[u8], sequence: u32) -> Option<Parts<'_>> {
    let (head, rest) = (body.get(..18)?, body.get(18..)?);
    let number = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| head[from + i]));
    let reward = u64::from(number(6)) | u64::from(number(10)) << 32;
    let (outcome, flags, length) = (head[4], head[5], number(14) as usize);
    let is_finite = (reward >> 52) & 0x7ff != 0x7ff;
    if number(0) != sequence || outcome > 8 || flags > 7 || (flags & 4 != 0 && !is_finite) {
        return None;
    }
    let (text, detail) = (rest.get(..length)?, rest.get(length..)?);
    if detail.len() > DETAIL_BYTES {
        return None;
    }
    Some(Parts {
        outcome,
        reward: (flags & 4 != 0).then_some(reward),
        ends: (flags & 1 != 0, flags & 2 != 0),
        text: std::str::from_utf8(text).ok()?,
        detail: std::str::from_utf8(detail).ok()?,
    })
}

/// The code in a body that is a code frame of call `sequence`.
pub fn code(body: &[u8], sequence: u32) -> Option<&[u8]> {
    match body {
        [a, b, c, d, 255, code @ ..] if u32::from_le_bytes([*a, *b, *c, *d]) == sequence => {
            Some(code)
        }
        _ => None,
    }
}
