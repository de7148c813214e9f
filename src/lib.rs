//! Incremental, exactly-once checkpoints of RocksDB state.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(clippy::mem_forget)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod protocol;
#[cfg(feature = "runtime")]
pub mod storage;
