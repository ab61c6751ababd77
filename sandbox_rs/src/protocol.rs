//! Frames between host and worker, and the reader that never trusts them.
//!
//! A frame is a little-endian u32 length and that many bytes. Request: u32 sequence, u8 kind, body.
//! Reply: u32 sequence, u8 outcome, u8 flags, f64 reward, u32 length of the observation, the
//! observation, then the detail to the end of the frame. Before the reply to a `Load` may come one
//! code frame: u32 sequence, u8 255, the marshalled code; the worker sends it before any of the
//! source has run.

use crate::outcome::{Outcome, Reply};

/// Bytes of a reply besides its texts; the cap of a reply is on the texts.
pub const REPLY_OVERHEAD: usize = 18;
/// Longest detail a worker may send.
pub const DETAIL_BYTES: usize = 4096;

/// What is asked of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Execute a source and construct the environment.
    Load = 0,
    /// Start an episode.
    Reset = 1,
    /// One action.
    Step = 2,
    /// The privileged hint.
    Hint = 3,
    /// `Load` of code that a worker has compiled before.
    LoadCode = 4,
    /// Nothing: answered by the worker's own loop.
    Ping = 5,
    /// Make a copy of this worker; its ends wait on the control socket.
    Fork = 6,
}

impl Kind {
    /// The kind of a code on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        const ALL: [Kind; 7] = [
            Kind::Load,
            Kind::Reset,
            Kind::Step,
            Kind::Hint,
            Kind::LoadCode,
            Kind::Ping,
            Kind::Fork,
        ];
        ALL.get(usize::from(code)).copied()
    }

    /// Whether it executes a source and constructs the environment.
    pub fn loads(self) -> bool {
        matches!(self, Self::Load | Self::LoadCode)
    }
}

/// What arrived is not a frame of the protocol, or not one that may come now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Announced length above the cap.
    #[error("a frame of {0} bytes was announced")]
    TooLong(usize),
    /// Too short or inconsistent.
    #[error("a malformed frame")]
    Malformed,
    /// Not the answer to the call in flight.
    #[error("a reply to call {0}, which is not in flight")]
    Sequence(u32),
    /// An outcome code or text that cannot be.
    #[error("a reply with an impossible {0}")]
    Impossible(&'static str),
}

/// A request as one buffer.
pub fn encode_request(sequence: u32, kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(9 + body.len());
    frame.extend_from_slice(&(5 + body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&sequence.to_le_bytes());
    frame.push(kind as u8);
    frame.extend_from_slice(body);
    frame
}

/// Body of a load: the seed in hexadecimal, a newline, the source or its code.
pub fn load_body(source: &[u8], seed_hex: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(seed_hex.len() + 1 + source.len());
    body.extend_from_slice(seed_hex.as_bytes());
    body.push(b'\n');
    body.extend_from_slice(source);
    body
}

/// Mark of a code frame, where a reply has its outcome.
pub const CODE: u8 = 255;

/// Compiled code as one frame.
pub fn encode_code(sequence: u32, code: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(9 + code.len());
    frame.extend_from_slice(&(5 + code.len() as u32).to_le_bytes());
    frame.extend_from_slice(&sequence.to_le_bytes());
    frame.push(CODE);
    frame.extend_from_slice(code);
    frame
}

/// The code in a frame that claims to belong to call `sequence`; `None` if it is a reply.
pub fn decode_code(frame: &[u8], sequence: u32) -> Option<&[u8]> {
    let (head, code) = frame.split_at_checked(5)?;
    (head[..4] == sequence.to_le_bytes() && head[4] == CODE).then_some(code)
}

/// A reply as one buffer.
pub fn encode_reply(sequence: u32, reply: &Reply) -> Vec<u8> {
    let ends = u8::from(reply.terminated) | u8::from(reply.truncated) << 1;
    let mut frame = Vec::new();
    put_reply(
        &mut frame,
        sequence,
        reply.outcome,
        ends,
        reply.reward,
        &reply.observation,
        &reply.detail,
    );
    frame
}

/// Make a buffer hold a reply and nothing else. `ends` has bit 0 for terminated, 1 for truncated.
pub fn put_reply(
    frame: &mut Vec<u8>,
    sequence: u32,
    outcome: Outcome,
    ends: u8,
    reward: Option<f64>,
    text: &str,
    detail: &str,
) {
    let length = REPLY_OVERHEAD + text.len() + detail.len();
    frame.clear();
    frame.reserve(4 + length);
    frame.extend_from_slice(&(length as u32).to_le_bytes());
    frame.extend_from_slice(&sequence.to_le_bytes());
    frame.push(outcome as u8);
    frame.push(ends | u8::from(reward.is_some()) << 2);
    frame.extend_from_slice(&reward.unwrap_or(0.0).to_le_bytes());
    frame.extend_from_slice(&(text.len() as u32).to_le_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame.extend_from_slice(detail.as_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// Read a reply that claims to answer call `sequence`.
///
/// # Errors
/// Anything that is not exactly such a reply.
pub fn decode_reply(frame: &[u8], sequence: u32) -> Result<Reply, Bad> {
    if frame.len() < REPLY_OVERHEAD {
        return Err(Bad::Malformed);
    }
    let got = u32_at(frame, 0).ok_or(Bad::Malformed)?;
    if got != sequence {
        return Err(Bad::Sequence(got));
    }
    let outcome = Outcome::from_code(frame[4]).ok_or(Bad::Impossible("outcome"))?;
    let flags = frame[5];
    let reward: [u8; 8] = frame[6..14].try_into().map_err(|_| Bad::Malformed)?;
    let reward = f64::from_le_bytes(reward);
    let length = u32_at(frame, 14).ok_or(Bad::Malformed)? as usize;
    let rest = &frame[REPLY_OVERHEAD..];
    if flags > 7 || length > rest.len() {
        return Err(Bad::Malformed);
    }
    let (text, detail) = rest.split_at(length);
    if detail.len() > DETAIL_BYTES {
        return Err(Bad::Impossible("detail"));
    }
    if flags & 4 != 0 && !reward.is_finite() {
        return Err(Bad::Impossible("reward"));
    }
    let utf8 = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
    Ok(Reply {
        outcome,
        observation: utf8(text).map_err(|_| Bad::Impossible("text"))?,
        reward: (flags & 4 != 0).then_some(reward),
        terminated: flags & 1 != 0,
        truncated: flags & 2 != 0,
        detail: utf8(detail).map_err(|_| Bad::Impossible("detail"))?,
        wall_s: 0.0,
        cpu_s: None,
        reply_bytes: frame.len() + 4,
    })
}

/// Collects one frame at a time from a stream; checks the length before it allocates.
#[derive(Debug, Default)]
pub struct FrameReader {
    header: [u8; 4],
    have: usize,
    body: Vec<u8>,
    length: usize,
}

impl FrameReader {
    /// Take in bytes. Returns how many were used and the frame if it is complete; what comes after
    /// a complete frame is left to the caller.
    ///
    /// # Errors
    /// A length above `cap`.
    pub fn push(&mut self, bytes: &[u8], cap: usize) -> Result<(usize, Option<Vec<u8>>), Bad> {
        let mut used = 0;
        if self.have == 4 && self.length > cap {
            return Err(Bad::TooLong(self.length)); // a reader that has refused goes on refusing
        }
        while self.have < 4 {
            let Some(&byte) = bytes.get(used) else {
                return Ok((used, None));
            };
            self.header[self.have] = byte;
            self.have += 1;
            used += 1;
            if self.have == 4 {
                self.length = u32::from_le_bytes(self.header) as usize;
                if self.length > cap {
                    return Err(Bad::TooLong(self.length));
                }
                self.body = Vec::with_capacity(self.length);
            }
        }
        let take = (self.length - self.body.len()).min(bytes.len() - used);
        self.body.extend_from_slice(&bytes[used..used + take]);
        used += take;
        if self.body.len() < self.length {
            return Ok((used, None));
        }
        self.have = 0;
        Ok((used, Some(std::mem::take(&mut self.body))))
    }

    /// Whether a frame has begun and is not complete.
    pub fn is_partial(&self) -> bool {
        self.have > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Reply {
        Reply {
            observation: "näh".to_owned(),
            reward: Some(0.5),
            terminated: true,
            detail: "d".to_owned(),
            ..Reply::failed(Outcome::Finished, "")
        }
    }

    #[test]
    fn a_reply_survives_any_cut_of_the_stream() {
        let frame = encode_reply(7, &sample());
        for cut in 0..=frame.len() {
            let mut reader = FrameReader::default();
            let mut whole = None;
            for part in [&frame[..cut], &frame[cut..]] {
                let (used, body) = reader.push(part, 1000).expect("within the cap");
                assert_eq!(used, part.len());
                whole = whole.or(body);
            }
            let reply = decode_reply(&whole.expect("complete"), 7).expect("well-formed");
            assert_eq!(reply.observation, "näh");
            assert_eq!(reply.reward, Some(0.5));
            assert!(reply.terminated && !reply.truncated);
        }
    }

    #[test]
    fn a_truncated_or_altered_frame_is_never_read_as_something_else() {
        let frame = encode_reply(7, &sample());
        for end in 4..frame.len() {
            if let Ok(reply) = decode_reply(&frame[4..end], 7) {
                assert!(reply.detail.is_empty()); // only the detail has no length of its own
            }
        }
        assert_eq!(decode_reply(&frame[4..], 8), Err(Bad::Sequence(7)));
        for at in 4..frame.len() {
            for value in [0u8, 0x7f, 0xff] {
                let mut altered = frame.clone();
                altered[at] = value;
                if let Ok(reply) = decode_reply(&altered[4..], 7) {
                    assert!(reply.reward.is_none_or(f64::is_finite));
                }
            }
        }
    }

    #[test]
    fn an_announced_length_above_the_cap_is_refused_before_it_is_allocated() {
        let mut reader = FrameReader::default();
        assert_eq!(
            reader.push(&u32::MAX.to_le_bytes(), 64),
            Err(Bad::TooLong(u32::MAX as usize))
        );
    }
}
