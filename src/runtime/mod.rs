//! Checkpoints for a service: one or many states, no process beside it, on tokio.
//!
//! ```text
//!  Repository ── claim ──> Claim ── restore_into ──> Restored ── attach ──> Participant
//!      |                     └───────────────┬──────────────────────────────────┘
//!   Budget: permits, memory, failures    Driver: Coordinator + Subtask behind a lock,
//!      (shared by all participants)              tasks and a timer beside them
//!                                            |                     |
//!                                        BlobStore            StateBackend
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `repository`, `participant`, `restored`, `checkpoint` | what the user holds |
//! | `threads` | what a program without tokio needs |
//! | `restore` | a local directory made equal to a checkpoint |
//! | `inspect` | looking on as a guest: list, explain, verify, restore, collect |
//! | `core`, `driver`, `effects`, `calls` | the machines, what drives them, what they ask for |
//! | `closing` | a participant's end in good order |
//! | `budget`, `clock`, `name`, `load`, `end`, `progress` | what those share |
//!
//! Invariants: the machines run only under the driver's lock and nothing is awaited there; every
//! call of a store is bounded by a deadline without progress; nothing here touches the file system
//! or starts a thread: that is `storage`'s and `state`'s, on tokio's blocking threads. `threads`
//! alone has tokio start some, and waits by the system's clock, on the caller's thread.

mod budget;
mod calls;
mod checkpoint;
mod clock;
mod closing;
mod core;
mod driver;
mod effects;
mod end;
mod inspect;
mod load;
mod name;
mod participant;
mod progress;
mod repository;
mod restore;
mod restored;
mod side_by_side;
#[cfg(not(madsim))]
mod threads;

pub use checkpoint::Checkpoint;
pub use inspect::{
    CheckpointInfo, CollectReport, Explanation, FileInfo, FileStanding, Inspection,
    ManifestStanding, VerifyDepth, VerifyReport,
};
pub use participant::{Claim, Participant};
pub use progress::{CheckpointReport, Events, ParticipantEvent, RestoreProgress};
pub use repository::{Repository, RepositoryBuilder};
pub use restore::{RestoreOptions, RestoreReport};
pub use restored::Restored;
#[cfg(not(madsim))]
pub use threads::Runtime;
