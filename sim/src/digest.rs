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
        in_words(bytes, |word| self.write_u64(word));
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

/// 128 bits of whatever can be hashed, to tell states apart.
///
/// Of `n` different states, two have the same bits with a probability of about `n^2 / 2^129`: for a
/// hundred million states less than one in 10^22, if the bits were random.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(u64, u64);

impl Fingerprint {
    /// The bits of one thing.
    #[must_use]
    pub fn of<T: Hash + ?Sized>(item: &T) -> u128 {
        let mut fingerprint = Self::default();
        item.hash(&mut fingerprint);
        fingerprint.value()
    }

    /// The bits so far.
    #[must_use]
    pub fn value(&self) -> u128 {
        (u128::from(mix(self.0)) << 64) | u128::from(mix(self.1 ^ self.0.rotate_left(32)))
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        mix(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        in_words(bytes, |word| self.write_u64(word));
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
        let turned = i.wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.1 =
            (self.1.rotate_left(29) ^ turned ^ (turned >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    }

    fn write_usize(&mut self, i: usize) {
        self.write_u64(i as u64);
    }
}

/// Bytes as words, with their length in the last one.
fn in_words(bytes: &[u8], mut take: impl FnMut(u64)) {
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut buffer = [0; 8];
        buffer.copy_from_slice(word);
        take(u64::from_le_bytes(buffer));
    }
    let mut last = 0;
    for byte in words.remainder() {
        last = (last << 8) | u64::from(*byte);
    }
    take(last ^ ((bytes.len() as u64) << 56));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_tell_near_things_apart() {
        let mut seen = std::collections::BTreeSet::new();
        for a in 0..300_u64 {
            for b in 0..300_u64 {
                assert!(seen.insert(Fingerprint::of(&(a, b, vec![a as u8; 3]))));
            }
        }
        // Each half alone tells them apart as well.
        let low: std::collections::BTreeSet<_> = seen.iter().map(|bits| *bits as u64).collect();
        assert_eq!(low.len(), seen.len());
    }

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
