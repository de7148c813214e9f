//! Contracts that a store or a state backend of anybody's can be held to, by seeds.
//!
//! ```text
//!  seed -> steps -> Lossy (lost requests, lost answers, kills) -> the implementation
//!            |                                                        |
//!            +--> what may be there now  <------- compared -----------+
//! ```
//!
//! [`store`] is for implementations of [`BlobStore`](stillpoint::storage::BlobStore), [`backend`]
//! for those of [`StateBackend`](stillpoint::state::StateBackend); [`models`] are the simulator's
//! own two stores behind the first of these traits.
//!
//! Invariant: a step that fails names its seed, its number, and the command that repeats it. The
//! same seed asks the same things in the same order, whatever is answered; how far a killed call
//! came is the implementation's and its threads' affair.
//!
//! What a power cut or a full disk leaves, an implementation's own tests must show.

pub mod backend;
mod lossy;
pub mod models;
mod states;
pub mod store;

use std::fmt;
use std::ops::Range;

use crate::reproduce::provenance;

/// The seeds that are tried where nobody says which.
pub const SEEDS: Range<u64> = 0..50;

/// Where one seed is asked for, instead of all.
pub const SEED_VARIABLE: &str = "STILLPOINT_SEED";

/// What was found wrong, and how to see it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The seed.
    pub seed: u64,
    /// The step, counted from 0.
    pub step: u32,
    /// What was done, what was answered, and what should have been.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, step, what } = self;
        let provenance = provenance();
        write!(
            f,
            "seed {seed}, step {step}: {what}\n{provenance}\n{}",
            command(*seed)
        )
    }
}

impl std::error::Error for Broken {}

/// The command that tries this seed again: the program itself, whose features nobody has to guess,
/// and of a test its name, which is its thread's.
#[must_use]
pub fn command(seed: u64) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main");
    let test = test.map_or(String::new(), |name| format!(" --exact {name}"));
    format!("{SEED_VARIABLE}={seed} {}{test}", program.display())
}

/// These seeds, or the one that is asked for.
///
/// # Panics
/// When what is asked for is no number.
#[must_use]
pub fn asked_for(seeds: Range<u64>) -> Range<u64> {
    match std::env::var(SEED_VARIABLE) {
        Err(_) => seeds,
        Ok(text) => match text.parse::<u64>() {
            Ok(seed) => seed..seed.saturating_add(1),
            Err(error) => panic!("{SEED_VARIABLE}={text}: {error}"),
        },
    }
}

/// Bytes that differ wherever `number` does, if there are at least eight.
fn content(number: usize, size: usize) -> Vec<u8> {
    let mut word = number as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = crate::choice::mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    bytes.truncate(size);
    bytes
}
