//! A hash for keys that are addresses or small numbers: a multiplication per word.
//!
//! Maps with it are looked up and never walked through, so nothing that anybody sees depends on it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map that is only ever looked up.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A set that is only ever asked.
pub type FastSet<T> = HashSet<T, BuildHasherDefault<FastHasher>>;

#[derive(Clone, Copy, Debug, Default)]
pub struct FastHasher(u64);

/// An odd number without a pattern, so that its multiples are spread over all bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl FastHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_i64(&mut self, number: i64) {
        self.mix(number.cast_unsigned());
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        // Tables look at the lowest bits and at the highest.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found() {
        let mut map: FastMap<(usize, Vec<u32>), usize> = FastMap::default();
        for number in 0..1000 {
            map.insert((number, vec![3, number as u32]), number);
        }
        assert!((0..1000).all(|number| map.get(&(number, vec![3, number as u32])) == Some(&number)));
    }
}
