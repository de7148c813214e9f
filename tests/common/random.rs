//! Random numbers that a seed repeats (SplitMix64, Steele, Lea and Flood 2014).

/// The environment variable that sets another seed.
const SEED: &str = "STILLPOINT_SEED";

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = self.below(of.len() as u64);
        &of[usize::try_from(index).unwrap()]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            items.swap(last, other);
        }
    }
}

/// The seed to use: the given one, unless the environment has another.
pub fn seed(usual: u64) -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{SEED}={text} is not a number")),
        Err(_) => usual,
    }
}
