//! Incremental, exactly-once checkpoints of RocksDB state.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(test, allow(clippy::wildcard_enum_match_arm, clippy::unwrap_used))]
#![forbid(clippy::mem_forget)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod protocol;
#[cfg(feature = "runtime")]
pub mod state;
#[cfg(feature = "runtime")]
pub mod storage;

#[cfg(feature = "rocksdb")]
pub use rocksdb;
