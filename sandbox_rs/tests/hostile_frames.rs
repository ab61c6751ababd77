//! Every frame of a worker is hostile: a million of them, good, damaged, cut, doubled, oversized,
//! random, in pieces of random size, against the reader and the decoder of the host.
//!
//! `SPADE_HOSTILE_SEED` and `SPADE_HOSTILE_FRAMES` change seed and amount for longer hunts.

#[path = "hostile/allocator.rs"]
mod allocator;
#[path = "hostile/generator.rs"]
mod generator;
#[path = "hostile/random.rs"]
mod random;
#[path = "hostile/reference.rs"]
mod reference;

use _sandbox_rs::protocol::{
    Bad, DETAIL_BYTES, FrameReader, REPLY_OVERHEAD, decode_code, decode_reply, encode_reply,
};
use allocator::peak_of;
use generator::DAMAGES;
use random::Random;
use reference::Found;

const SEED: u64 = 0x5bad_e000_0004;
const FRAMES: usize = 1_000_000;
/// Bytes a call may allocate beyond what it was given or returns.
const SLACK: usize = 256;

/// Verdicts so far: frames read as replies, frames refused, streams refused for a length.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    code: usize,
    refused: usize,
    too_long: usize,
    cut: usize,
    sibling: usize,
}

impl Tally {
    fn frames(&self) -> usize {
        self.accepted + self.code + self.refused + self.too_long + self.cut + self.sibling
    }
}

fn number_from(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn a_million_hostile_frames_are_read_exactly_or_refused() {
    let seed = number_from("SPADE_HOSTILE_SEED", SEED);
    let frames = number_from("SPADE_HOSTILE_FRAMES", FRAMES as u64) as usize;
    let mut random = Random(seed);
    let mut tally = Tally::default();
    let mut seen = [0_usize; DAMAGES.len()];
    let mut sibling = FrameReader::default();
    let begun = std::time::Instant::now();
    let held = allocator::held();
    while tally.frames() < frames {
        let cap = random.pick(&[18, 19, 64, 700, 4 << 10, 9000, (64 << 10) + REPLY_OVERHEAD]);
        let sequence = random.pick(&[1, 2, 7, 0x0101_0101, u32::MAX - 1]);
        let mut stream = Vec::new();
        for _ in 0..=random.below(12) {
            let damage = random.below(DAMAGES.len());
            seen[damage] += 1;
            stream.extend(generator::damaged(&mut random, damage, sequence, cap));
        }
        if random.one_in(3) {
            swap_two_pieces(&mut random, &mut stream);
        }
        serve(&mut random, &stream, sequence, cap, &mut tally);
        good_frame(&mut random, &mut sibling, &mut tally);
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(sibling);
    assert_eq!(
        allocator::held(),
        held,
        "bytes are still held after the last stream"
    );
    assert!(seen.iter().all(|&count| count > frames / 100), "{seen:?}");
    assert!(
        tally.accepted > frames / 10 && tally.refused > frames / 10,
        "{tally:?}"
    );
    assert!(
        tally.too_long.min(tally.cut).min(tally.code) > frames / 150,
        "{tally:?}"
    );
    eprintln!(
        "seed {seed:#x}: {} frames in {seconds:.1} s ({:.0} per second): {tally:?}",
        tally.frames(),
        tally.frames() as f64 / seconds
    );
}

/// Exchange two stretches of the stream, as two threads that write at once would.
fn swap_two_pieces(random: &mut Random, stream: &mut [u8]) {
    let length = random.below(stream.len() / 2 + 1).min(64);
    let (first, second) = stream.split_at_mut(stream.len() / 2);
    let (a, b) = (
        random.below(first.len() - length + 1),
        random.below(second.len() - length + 1),
    );
    first[a..a + length].swap_with_slice(&mut second[b..b + length]);
}

/// Feed a stream as the host does: piece by piece, until something is refused.
fn serve(random: &mut Random, stream: &[u8], sequence: u32, cap: usize, tally: &mut Tally) {
    let mut reader = FrameReader::default();
    let (mut at, mut frame_at) = (0, 0);
    let largest = random.pick(&[1, 2, 5, 30, 200, 4096, 64 << 10]);
    let mut end = 0;
    loop {
        if at == end {
            if end == stream.len() {
                break;
            }
            end = (end + 1 + random.below(largest)).min(stream.len());
        }
        let piece = &stream[at..end];
        let (pushed, peak) = peak_of(|| reader.push(piece, cap));
        assert!(peak <= cap + SLACK, "{peak} bytes held for a cap of {cap}");
        let (expected, next) = reference::next_frame(stream, frame_at, cap);
        match pushed {
            Err(bad) => {
                let Found::TooLong(length) = expected else {
                    panic!("{bad} instead of {expected:?}");
                };
                assert_eq!(bad, Bad::TooLong(length));
                let again = peak_of(|| reader.push(piece, cap));
                assert_eq!(
                    again,
                    (Err(bad), 0),
                    "a reader that has refused goes on refusing"
                );
                tally.too_long += 1;
                return;
            }
            Ok((used, None)) => {
                assert_eq!(
                    used,
                    piece.len(),
                    "bytes were left although no frame is complete"
                );
                at += used;
                assert!(
                    !matches!(expected, Found::Frame(_)) || at < next,
                    "a frame was missed"
                );
            }
            Ok((used, Some(body))) => {
                at += used;
                let Found::Frame(bytes) = expected else {
                    panic!("a frame of {} bytes instead of {expected:?}", body.len());
                };
                assert_eq!((at, body.as_slice()), (next, bytes));
                assert!(!reader.is_partial());
                frame_at = next;
                judge(&body, sequence, tally);
            }
        }
    }
    let (rest, _) = reference::next_frame(stream, frame_at, cap);
    assert_eq!(rest, Found::End(reader.is_partial()));
    tally.cut += usize::from(reader.is_partial());
}

/// The decoder accepts a body if and only if the description of the protocol does, as the same.
fn judge(body: &[u8], sequence: u32, tally: &mut Tally) {
    let (code, peak) = peak_of(|| decode_code(body, sequence));
    assert_eq!((code, peak), (reference::code(body, sequence), 0));
    let (reply, peak) = peak_of(|| decode_reply(body, sequence));
    if code.is_some() {
        assert!(
            reply.is_err(),
            "one frame is read both as code and as a reply"
        );
        tally.code += 1;
        return;
    }
    assert!(
        peak <= body.len() + SLACK,
        "{peak} bytes for a body of {}",
        body.len()
    );
    match (reply, reference::parts(body, sequence)) {
        (Err(_), None) => tally.refused += 1,
        (Ok(reply), Some(parts)) => {
            assert_eq!(reply.outcome as u8, parts.outcome);
            assert_eq!(reply.reward.map(f64::to_bits), parts.reward);
            assert!(reply.reward.is_none_or(f64::is_finite));
            assert_eq!((reply.terminated, reply.truncated), parts.ends);
            assert_eq!(
                (reply.observation.as_str(), reply.detail.as_str()),
                (parts.text, parts.detail)
            );
            assert!(reply.detail.len() <= DETAIL_BYTES);
            let texts = reply.observation.len() + reply.detail.len();
            assert_eq!(texts + REPLY_OVERHEAD, body.len());
            assert_eq!(reply.reply_bytes, body.len() + 4);
            tally.accepted += 1;
        }
        (Err(bad), Some(_)) => panic!("a valid reply was refused: {bad}: {:?}", start(body)),
        (Ok(reply), None) => panic!(
            "an invalid reply was read: {:?} {:?}",
            reply.outcome,
            start(body)
        ),
    }
}

/// The first bytes of a body, for messages.
fn start(body: &[u8]) -> &[u8] {
    &body[..body.len().min(64)]
}

/// Another worker, whose connection goes on beside all the broken ones, is read exactly.
fn good_frame(random: &mut Random, reader: &mut FrameReader, tally: &mut Tally) {
    let cap = 700;
    let sequence = tally.sibling as u32;
    let reply = generator::good(random, cap);
    let frame = encode_reply(sequence, &reply);
    let cut = random.below(frame.len());
    assert_eq!(reader.push(&frame[..cut], cap), Ok((cut, None)));
    assert_eq!(reader.is_partial(), cut > 0);
    let (used, body) = reader.push(&frame[cut..], cap).expect("within the cap");
    assert_eq!(used, frame.len() - cut);
    let got = decode_reply(&body.expect("complete"), sequence).expect("well-formed");
    assert_eq!(got.reward.map(f64::to_bits), reply.reward.map(f64::to_bits));
    assert_eq!(
        (got.observation, got.detail),
        (reply.observation, reply.detail)
    );
    tally.sibling += 1;
}
