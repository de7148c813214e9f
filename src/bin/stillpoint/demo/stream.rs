//! The generated stream, and the truth about it: which key each event counts, and what the state
//! must be at a position.
//!
//! The same seed gives the same stream, from any position on, so a worker that was killed replays
//! it from where its restored checkpoint stands. Most events fall into a window of keys that moves
//! over all of them, as sessions or recent users do; few fall anywhere.

use serde::{Deserialize, Serialize};

/// The share of the keys that the window spans, as a divisor.
const WINDOW_DIVISOR: u64 = 20;
/// Of a hundred events so many fall anywhere.
const ANYWHERE_PERCENT: u64 = 5;

/// What an event counts, for every event.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub struct Stream {
    pub seed: u64,
    pub keys: u64,
    pub events: u64,
    pub value_bytes: usize,
}

impl Stream {
    /// The key that the event at a position counts.
    pub fn key_at(&self, position: u64) -> u64 {
        let random = mix(self.seed ^ mix(position));
        let (kind, random) = (random % 100, random / 100);
        if kind < ANYWHERE_PERCENT {
            return random % self.keys;
        }
        let window = (self.keys / WINDOW_DIVISOR).max(1);
        let begins = u128::from(position) * u128::from(self.keys) / u128::from(self.events);
        // Less than `keys`, since the position is below `events`.
        let begins = u64::try_from(begins).unwrap_or(0);
        (begins + random % window) % self.keys
    }

    /// The key as it stands in the state.
    pub fn key(key: u64) -> Vec<u8> {
        format!("key-{key:012}").into_bytes()
    }

    /// The value of a key that has been counted so often: the count, then bytes that follow from
    /// key and count, so that no value can be taken for another's.
    pub fn value(&self, key: u64, count: u64) -> Vec<u8> {
        let mut value = count.to_le_bytes().to_vec();
        let mut random = mix(key ^ mix(count));
        while value.len() < self.value_bytes {
            value.extend(random.to_le_bytes());
            random = mix(random);
        }
        value.truncate(self.value_bytes);
        value
    }

    /// The count in a value.
    pub fn count(value: &[u8]) -> Option<u64> {
        let (count, _) = value.split_first_chunk()?;
        Some(u64::from_le_bytes(*count))
    }
}

/// Scatters a number over all 64 bits (splitmix64, Steele, Lea and Flood 2014).
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A key and its value.
pub type Pair = (Box<[u8]>, Box<[u8]>);

/// How often each key has been counted before a position. Made from the stream alone.
pub struct Truth {
    stream: Stream,
    position: u64,
    counts: Vec<u64>,
}

/// How a state differs from the truth.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Difference {
    /// Keys of the truth.
    pub keys: u64,
    /// Keys that the state lacks.
    pub missing: u64,
    /// Keys that the state has and the truth has not.
    pub unexpected: u64,
    /// Keys with another value.
    pub different: u64,
}

impl Difference {
    pub fn is_none(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.different == 0
    }
}

impl Truth {
    pub fn new(stream: Stream) -> Self {
        let keys = usize::try_from(stream.keys).unwrap_or(usize::MAX);
        Self {
            stream,
            position: 0,
            counts: vec![0; keys],
        }
    }

    /// Counts up to a position, anew if it lies before the last one.
    pub fn go_to(&mut self, position: u64) {
        if position < self.position {
            *self = Self::new(self.stream);
        }
        for at in self.position..position {
            let key = usize::try_from(self.stream.key_at(at));
            if let Some(count) = key.ok().and_then(|key| self.counts.get_mut(key)) {
                *count += 1;
            }
        }
        self.position = position;
    }

    /// Compares a state, given pair by pair in the order of its keys, with the truth.
    pub fn compare<E>(
        &self,
        state: impl Iterator<Item = Result<Pair, E>>,
    ) -> Result<Difference, E> {
        let mut difference = Difference {
            keys: self.stream.keys,
            ..Difference::default()
        };
        let mut expected = (0_u64..).zip(&self.counts).peekable();
        for pair in state {
            let (key, value) = pair?;
            // Keys are as long as each other: their order is that of the numbers.
            while expected
                .peek()
                .is_some_and(|(number, _)| *Stream::key(*number) < *key)
            {
                expected.next();
                difference.missing += 1;
            }
            match expected.next_if(|(number, _)| *Stream::key(*number) == *key) {
                Some((number, count)) if *self.stream.value(number, *count) == *value => {}
                Some(_) => difference.different += 1,
                None => difference.unexpected += 1,
            }
        }
        difference.missing += u64::try_from(expected.count()).unwrap_or(u64::MAX);
        Ok(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream {
        seed: 7,
        keys: 100,
        events: 5_000,
        value_bytes: 40,
    };

    fn state(position: u64) -> Vec<Pair> {
        let mut counts = vec![0; 100];
        for at in 0..position {
            counts[usize::try_from(STREAM.key_at(at)).expect("small")] += 1;
        }
        let pairs = (0_u64..).zip(counts);
        pairs
            .map(|(key, count)| (Stream::key(key).into(), STREAM.value(key, count).into()))
            .collect()
    }

    fn difference(pairs: Vec<Pair>, position: u64) -> Difference {
        let mut truth = Truth::new(STREAM);
        truth.go_to(position);
        truth
            .compare(pairs.into_iter().map(Ok::<_, ()>))
            .expect("no pair fails")
    }

    #[test]
    fn every_difference_is_found() {
        assert!(difference(state(3_000), 3_000).is_none());
        let late = difference(state(3_000), 3_001);
        assert_eq!((late.missing, late.unexpected, late.different), (0, 0, 1));
        let mut changed = state(3_000);
        changed.remove(50);
        changed.remove(99 - 1);
        changed.insert(
            10,
            (
                b"key-000000000009x".as_slice().into(),
                b"".as_slice().into(),
            ),
        );
        changed[0].1[39] ^= 1;
        let found = difference(changed, 3_000);
        assert_eq!(
            (found.missing, found.unexpected, found.different),
            (2, 1, 1)
        );
    }

    #[test]
    fn truth_goes_back_as_well() {
        let mut truth = Truth::new(STREAM);
        truth.go_to(4_000);
        truth.go_to(1_000);
        let pairs = state(1_000).into_iter().map(Ok::<_, ()>);
        assert_eq!(
            truth.compare(pairs).map(|difference| difference.is_none()),
            Ok(true)
        );
    }

    #[test]
    fn all_keys_are_counted_in_the_end() {
        let mut truth = Truth::new(STREAM);
        truth.go_to(STREAM.events);
        assert!(
            truth.counts.iter().all(|count| *count > 0),
            "{:?}",
            truth.counts
        );
    }
}
