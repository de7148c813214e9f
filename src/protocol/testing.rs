//! What the protocol's tests share.

use proptest::test_runner::{Config, RngSeed};

/// Cases from a fixed seed; set `PROPTEST_RNG_SEED` for others. A failure prints its case shrunk,
/// and nothing is written to disk.
pub(crate) fn config(cases: u32) -> Config {
    let chosen = std::env::var("PROPTEST_RNG_SEED").ok();
    let seed = chosen.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

/// A small deterministic source of choices (splitmix64).
pub(crate) struct Choices(pub u64);

impl Choices {
    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them, if there is any.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let index = self.below(items.len().max(1) as u64);
        items.get(usize::try_from(index).ok()?).copied()
    }
}
