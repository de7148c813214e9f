//! Incremental, exactly-once checkpoints of RocksDB state.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(test, allow(clippy::wildcard_enum_match_arm, clippy::unwrap_used))]
#![forbid(clippy::mem_forget)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(feature = "runtime")]
pub mod config;
#[cfg(feature = "runtime")]
pub mod error;
pub mod protocol;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod state;
#[cfg(feature = "runtime")]
pub mod storage;

#[cfg(feature = "runtime")]
pub use config::Config;
#[cfg(feature = "runtime")]
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "runtime")]
pub use runtime::{
    Checkpoint, CheckpointInfo, CheckpointReport, Claim, CollectReport, Events, Explanation,
    FileInfo, FileStanding, Inspection, Participant, ParticipantEvent, Repository,
    RepositoryBuilder, RestoreOptions, RestoreProgress, RestoreReport, Restored, VerifyDepth,
    VerifyReport,
};
#[cfg(feature = "runtime")]
pub use state::MemoryState;
#[cfg(feature = "rocksdb")]
pub use state::RocksDb;
#[cfg(feature = "runtime")]
pub use storage::{FileSystem, Memory};

#[cfg(feature = "rocksdb")]
pub use rocksdb;
