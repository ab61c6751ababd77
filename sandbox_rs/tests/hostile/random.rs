//! A small seeded generator (splitmix64): the same seed gives the same frames on every machine.

/// State of the generator.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1; the small bias does not matter here.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Whether one of `times` equal chances came up.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// That many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(count + 8);
        while all.len() < count {
            all.extend_from_slice(&self.next().to_le_bytes());
        }
        all.truncate(count);
        all
    }
}
