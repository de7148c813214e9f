//! Incremental, exactly-once checkpoints of RocksDB state.
//!
//! A service keeps its state in RocksDB and must not lose it: not when the process is killed, not
//! when the machine is gone, not when two processes believe that they own it. Stillpoint stores
//! *checkpoints* of the state, each one consistent instant of it, together with the position of the
//! service's input at that instant. Only files that are new since the last checkpoint are stored.
//! After a crash the state is restored, and the input is read again from that position: every
//! record counts exactly once.
//!
//! # Five lines
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let (checkpoints, local) = (scratch.path().join("checkpoints"), scratch.path().join("orders-7"));
//! use stillpoint::{FileSystem, MemoryState, Repository};
//!
//! let repository = Repository::open(FileSystem::at(&checkpoints)).await?;
//! let claim = repository.claim("orders/7").await?; // fences the previous holder
//! let restored = claim.restore_into(&local).await?; // empty on the first start
//! let state = match restored.user_bytes() {
//!     None => MemoryState::new(),                      // read the input from its beginning
//!     Some(_position) => MemoryState::open(&local)?,   // read the input from this position
//! };
//! let participant = restored.attach(state.clone())?;
//!
//! state.put(b"apples", b"3");
//! let checkpoint = participant.checkpoint("position 1")?; // the cut is taken: here and now
//! state.put(b"apples", b"4"); // after the cut
//! checkpoint.completed().await?; // durable: the input up to position 1 may be forgotten
//! participant.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `rocksdb`, open your database in the restored directory, with your options, and
//! attach `RocksDb::new(Arc::new(db))` instead.
//!
//! # Five words
//!
//! - A *repository* is a place for checkpoints: a directory today. [`Repository`]
//! - A *participant* is one state with its own checkpoints, of one partition for instance; a
//!   repository holds many, by name. One process at a time holds a participant: the last that
//!   claimed it. [`Claim`], [`Participant`]
//! - A *checkpoint* is one instant of the state, with up to a megabyte of the user's own.
//!   [`Checkpoint`]
//! - A *restore* makes a local directory equal to a checkpoint. [`Restored`]
//! - A *file* is what checkpoints consist of. Several may refer to the same one; it is deleted when
//!   none does any more.
//!
//! # When is what safe?
//!
//! | question | answer |
//! |---|---|
//! | What is in a checkpoint? | Everything written before [`Participant::checkpoint`] was called, nothing written after it returned. |
//! | Other threads write meanwhile? | Hold them for the call, with a lock of your own or [`state::WriteGate`]. Nobody is held while files are stored. |
//! | When may the input forget? | Once [`Checkpoint::completed`] answers, up to that checkpoint's position; or ask [`Participant::restorable_position`]. |
//! | Who decides when? | You, by calling [`Participant::checkpoint`]; or the interval in [`Config`], which [`Participant::triggered`] announces. |
//! | The process is killed? | Claim, restore, go on. A checkpoint is there in whole or not at all. |
//! | Another process claims the participant? | None of your checkpoints completes any more. You learn it by the next commit, or by a look at the store every [`look_interval`](CoordinatorConfig::look_interval): from then on every call answers [`ErrorKind::Fenced`]. Stop writing. |
//! | A checkpoint fails? | The next one takes over what it has stored. |
//! | The newest checkpoint is damaged? | An [`ErrorKind::Corrupt`] or [`ErrorKind::Missing`] that names the file and the older checkpoints. Going back is your choice: [`RestoreOptions::fallback`]. |
//! | Who deletes old files? | The holder, beside everything else; nothing waits for it. |
//! | Without tokio? | A [`Runtime`] of the library's own, in which any thread may wait: `runtime.block_on(repository.claim("orders/7"))`. |
//! | Who looks on? | [`Repository::inspect`]: list, explain, verify, restore, without disturbing the holder. |
//!
//! # Layers
//!
//! ```text
//!  runtime     tokio: Repository, Participant          [`runtime`]
//!  storage     BlobStore: directory, memory            [`storage`]
//!  state       StateBackend: RocksDB, memory           [`state`]
//!  protocol    pure state machines, without any IO     [`protocol`]
//! ```
//!
//! The protocol decides everything and does nothing: it has no clock, thread, file, network or
//! randomness. The same machines run here, in a deterministic simulator, and in engines that bring
//! their own runtime.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `std`, `runtime` (default) | everything on this page but RocksDB; without both, the crate is `no_std` and consists of [`protocol`] alone |
//! | `rocksdb` | state in RocksDB; needs a C++ compiler and libclang once |
//! | `cli` | the `stillpoint` command |
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(test, allow(clippy::wildcard_enum_match_arm, clippy::unwrap_used))]
#![forbid(clippy::mem_forget)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(feature = "runtime")]
pub mod config;
#[cfg(feature = "runtime")]
mod durable;
#[cfg(feature = "runtime")]
pub mod error;
#[cfg(feature = "runtime")]
mod executor;
#[cfg(feature = "runtime")]
mod file_locks;
#[cfg(all(test, feature = "runtime"))]
mod listening;
#[cfg(feature = "runtime")]
mod open_roots;
#[cfg(feature = "runtime")]
mod places;
pub mod protocol;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod state;
#[cfg(feature = "runtime")]
pub mod steps;
#[cfg(feature = "runtime")]
pub mod storage;
#[cfg(feature = "runtime")]
mod system;

#[cfg(feature = "runtime")]
pub use config::{Config, CoordinatorConfig};
#[cfg(feature = "runtime")]
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "runtime")]
pub use protocol::id::CheckpointId;
#[cfg(all(feature = "runtime", not(madsim)))]
pub use runtime::Runtime;
#[cfg(feature = "runtime")]
pub use runtime::{
    Checkpoint, CheckpointInfo, CheckpointReport, Claim, CollectReport, Events, Explanation,
    FileInfo, FileStanding, Inspection, ManifestStanding, Participant, ParticipantEvent,
    Repository, RepositoryBuilder, RestoreOptions, RestoreProgress, RestoreReport, Restored,
    VerifyDepth, VerifyReport,
};
#[cfg(feature = "runtime")]
pub use state::MemoryState;
#[cfg(feature = "rocksdb")]
pub use state::RocksDb;
#[cfg(feature = "runtime")]
pub use storage::{FileSystem, Memory};

#[cfg(feature = "rocksdb")]
pub use rocksdb;

/// The code in README compiles, as it stands there.
#[cfg(all(doctest, feature = "rocksdb"))]
#[doc = include_str!("../README.md")]
struct Readme;
