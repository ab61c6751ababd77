//! Maps from numbers that the pool counts itself: nobody can choose them to collide, so one
//! multiplication is hash enough. Every step looks up half a dozen.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by worker, session or operation.
pub type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Spreads a number over the bits of a hash.
#[derive(Debug, Default, Clone, Copy)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 over the golden ratio: its high bits differ for numbers that follow each other.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
