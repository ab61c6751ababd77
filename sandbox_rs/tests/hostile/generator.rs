//! What a worker might write: good replies, and replies broken in every way we could think of.

use _sandbox_rs::outcome::{ALL, Reply};
use _sandbox_rs::protocol::{DETAIL_BYTES, REPLY_OVERHEAD, encode_code, encode_reply};

use crate::random::Random;

/// Names of the kinds of damage, in the order of the numbers that `damaged` takes.
pub const DAMAGES: [&str; 18] = [
    "none",
    "cut short",
    "length altered",
    "bits flipped",
    "random body",
    "random stream",
    "doubled",
    "sequence altered",
    "text length altered",
    "impossible reward",
    "broken UTF-8",
    "detail too long",
    "impossible outcome",
    "impossible flags",
    "spliced from two",
    "oversized",
    "code",
    "code altered",
];

/// A well-formed reply to call `sequence`; mostly short, sometimes as long as `cap` allows.
pub fn good(random: &mut Random, cap: usize) -> Reply {
    let room = cap - REPLY_OVERHEAD;
    let most = if random.one_in(64) {
        room
    } else {
        room.min(96)
    };
    let text = text(random, most);
    let most = (room - text.len()).min(DETAIL_BYTES);
    let most = if random.one_in(64) {
        most
    } else {
        most.min(40)
    };
    Reply {
        observation: text,
        detail: self::text(random, most),
        reward: random.one_in(2).then(|| finite(random)),
        terminated: random.one_in(2),
        truncated: random.one_in(2),
        ..Reply::failed(random.pick(&ALL), "")
    }
}

fn finite(random: &mut Random) -> f64 {
    let any = f64::from_bits(random.next());
    if any.is_finite() { any } else { -0.0 }
}

/// At most `most` bytes of UTF-8, with characters of every length.
fn text(random: &mut Random, most: usize) -> String {
    let length = random.below(most + 1);
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let character = random.pick(&['a', ' ', '\0', '\n', 'ä', '€', '\u{10ffff}', '\u{feff}']);
        if text.len() + character.len_utf8() > length {
            text.push('z');
        } else {
            text.push(character);
        }
    }
    text
}

/// Bytes on the wire for call `sequence`, damaged in way number `damage`.
pub fn damaged(random: &mut Random, damage: usize, sequence: u32, cap: usize) -> Vec<u8> {
    let reply = good(random, cap);
    let mut frame = encode_reply(sequence, &reply);
    let last = frame.len() - 1;
    match DAMAGES[damage] {
        "none" => {}
        "cut short" => frame.truncate(random.below(last + 1)),
        "length altered" => {
            let length = frame.len() - 4;
            let other = random.pick(&[0, 1, 17, 18, length - 1, length + 1, cap, cap + 1]);
            let other = if random.one_in(4) {
                random.next() as u32
            } else {
                other as u32
            };
            frame[..4].copy_from_slice(&other.to_le_bytes());
        }
        "bits flipped" => {
            for _ in 0..=random.below(4) {
                frame[4 + random.below(last - 3)] ^= 1 << random.below(8);
            }
        }
        "random body" => {
            let length = random.below(cap.min(128) + 1);
            frame = framed(&random.bytes(length));
        }
        "random stream" => {
            let length = random.below(64);
            frame = random.bytes(length);
        }
        "doubled" => frame.extend_from_within(..),
        "sequence altered" => {
            let other = random.pick(&[0, 1, sequence.wrapping_sub(1), sequence + 1, u32::MAX]);
            frame[4..8].copy_from_slice(&other.to_le_bytes());
        }
        "text length altered" => {
            let rest = (frame.len() - 4 - REPLY_OVERHEAD) as u32;
            let other = random.pick(&[0, rest, rest + 1, rest / 2, u32::MAX, 1 << 31, rest + 18]);
            frame[18..22].copy_from_slice(&other.to_le_bytes());
        }
        "impossible reward" => {
            frame[9] |= 4;
            let quiet = random.next() | 0x7ff0 << 48; // all exponent bits: infinite or no number
            frame[10..18].copy_from_slice(&quiet.to_le_bytes());
        }
        "broken UTF-8" => {
            if frame.len() > 22 {
                let at = 22 + random.below(frame.len() - 22);
                frame[at] = random.pick(&[0x80, 0xbf, 0xc0, 0xed, 0xf5, 0xff]);
            }
        }
        "detail too long" => {
            let detail =
                vec![b'd'; random.pick(&[DETAIL_BYTES, DETAIL_BYTES + 1, 2 * DETAIL_BYTES])];
            let text = &reply.observation.as_bytes()[..reply.observation.len().min(8)];
            let mut body = frame[4..18].to_vec();
            body.extend_from_slice(&(text.len() as u32).to_le_bytes());
            body.extend_from_slice(text);
            body.extend_from_slice(&detail);
            frame = framed(&body);
        }
        "impossible outcome" => frame[8] = 9 + random.below(247) as u8,
        "impossible flags" => frame[9] = 8 + random.below(248) as u8,
        "spliced from two" => {
            let other = encode_reply(sequence, &good(random, cap));
            frame.truncate(random.below(last + 1));
            frame.extend_from_slice(&other[random.below(other.len())..]);
        }
        "oversized" => {
            let length = random.pick(&[cap + 1, cap + 4096, 1 << 28, 1 << 31, u32::MAX as usize]);
            frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
        }
        "code" => frame = encode_code(sequence, &any_code(random, cap)),
        "code altered" => {
            frame = encode_code(sequence, &any_code(random, cap));
            let last = frame.len() - 1;
            frame[4 + random.below(last.min(8) - 3)] ^= 1 << random.below(8);
        }
        other => unreachable!("{other}"),
    }
    frame
}

/// Marshalled code as far as the host knows: bytes.
fn any_code(random: &mut Random, cap: usize) -> Vec<u8> {
    let most = cap - 5;
    let most = if random.one_in(64) {
        most
    } else {
        most.min(80)
    };
    let length = random.below(most + 1);
    random.bytes(length)
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}
