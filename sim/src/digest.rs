//! A rolling digest: what two equal runs must agree on.
//!
//! It is the same in every process, build and order of seeds, which the standard library's hasher
//! does not promise.

use std::hash::{Hash, Hasher};

use crate::choice::mix;

/// Takes in whatever can be hashed; equal histories give equal digests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Digest(u64);

impl Digest {
    /// Takes something in.
    pub fn take<T: Hash + ?Sized>(&mut self, item: &T) {
        item.hash(self);
    }

    /// The digest so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        mix(self.0)
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.value()
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut buffer = [0; 8];
            buffer.copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(buffer));
        }
        let mut last = 0;
        for byte in words.remainder() {
            last = (last << 8) | u64::from(*byte);
        }
        self.write_u64(last ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, i: u8) {
        self.write_u64(u64::from(i));
    }

    fn write_u16(&mut self, i: u16) {
        self.write_u64(u64::from(i));
    }

    fn write_u32(&mut self, i: u32) {
        self.write_u64(u64::from(i));
    }

    fn write_u64(&mut self, i: u64) {
        self.0 = (self.0.rotate_left(23) ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, i: usize) {
        self.write_u64(i as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_count() {
        let digest = |items: &[&str]| {
            let mut digest = Digest::default();
            for item in items {
                digest.take(item);
            }
            digest.value()
        };
        assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
        assert_ne!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_ne!(digest(&["ab"]), digest(&["a", "b"]));
    }
}
