//! What a participant reports while it works: events, the account of each checkpoint, and how far a
//! restore has come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::error::Error;
use crate::protocol::id::CheckpointId;
use crate::storage::Progress;

/// Events that wait for a slow listener; older ones are dropped for it.
pub(super) const EVENTS_MAX: usize = 1024;
/// Events that are kept for who listens only later: a handful comes up when a participant is claimed
/// and restored.
const LASTING_MAX: usize = 64;

/// Something that happened at a participant. Losing events loses nothing else.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ParticipantEvent {
    /// A checkpoint has begun; its cut is still to be taken.
    Triggered {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Whether the interval asked for it.
        periodic: bool,
    },
    /// A checkpoint's cut was taken.
    Cut {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// How long the cut took: the caller's writers were held for so long.
        held: Duration,
    },
    /// A file was stored.
    Uploaded {
        /// The checkpoint that it was stored for.
        checkpoint: CheckpointId,
        /// Its length.
        size_bytes: u64,
    },
    /// A checkpoint is complete and durable.
    Completed(CheckpointReport),
    /// A checkpoint ended without completing; the error says why.
    Aborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        error: Error,
    },
    /// A checkpoint was dropped because newer ones completed.
    Subsumed {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A condemned file was deleted.
    Deleted {
        /// Its name in the store.
        file: String,
    },
    /// It is not known whether a commit was done; it is repeated until it is known.
    InDoubt {
        /// The checkpoints that it completes.
        checkpoints: Vec<CheckpointId>,
        /// What the store said last.
        error: Error,
    },
    /// More consecutive checkpoints failed than the configuration tolerates.
    TooManyFailures {
        /// How many.
        failures: u32,
        /// The reason of the first.
        error: Error,
    },
    /// A call of the store failed, or nobody knows what came of it; it is tried again. Told as it
    /// happens, and as long as more calls fail, again at growing intervals.
    StoreTrouble {
        /// What went wrong last.
        error: Error,
    },
    /// Something that is stored was damaged and could be done without.
    Warned {
        /// What, in words.
        warning: String,
    },
    /// An older checkpoint was restored, although newer ones are retained: what was done after it
    /// is done again, or is lost.
    FellBack {
        /// The restored one.
        restored: CheckpointId,
        /// The newer ones, oldest first.
        passed_over: Vec<CheckpointId>,
    },
    /// Objects that this library did not write lie in the participant's directory; they stay.
    Unparsable {
        /// Their names.
        names: Vec<String>,
    },
    /// The participant has come to its end: fenced, failed or closed.
    Ended {
        /// Which of them.
        error: Error,
    },
}

/// The account of a completed checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Whether the interval asked for it.
    pub periodic: bool,
    /// From the trigger to the commit.
    pub duration: Duration,
    /// How long the cut took: the caller's writers were held for so long.
    pub held: Duration,
    /// The length of all its files.
    pub state_bytes: u64,
    /// Its files.
    pub files: usize,
    /// Files that were stored for it.
    pub uploaded_files: usize,
    /// The length of the files that were stored for it.
    pub uploaded_bytes: u64,
    /// Files that were stored before and are referred to again.
    pub reused_files: usize,
}

impl ParticipantEvent {
    /// Whether it says that something stored was damaged, or that something was passed over: to be
    /// told also to who listens only later.
    fn is_lasting(&self) -> bool {
        matches!(self, Self::Warned { .. } | Self::FellBack { .. })
    }
}

/// Where a participant's events go.
pub(super) struct Reporter {
    /// Those that last, the first [`LASTING_MAX`] of them.
    lasting: Mutex<Vec<ParticipantEvent>>,
    sender: broadcast::Sender<ParticipantEvent>,
}

impl Reporter {
    pub(super) fn new() -> Self {
        Self {
            lasting: Mutex::default(),
            sender: broadcast::Sender::new(EVENTS_MAX),
        }
    }

    /// Nobody has to listen.
    pub(super) fn report(&self, event: ParticipantEvent) {
        // Held until it is sent, so that whoever begins to listen is told once.
        let mut lasting = self.lasting.lock();
        if event.is_lasting() && lasting.len() < LASTING_MAX {
            lasting.push(event.clone());
        }
        let _ = self.sender.send(event);
    }

    pub(super) fn listen(&self) -> Events {
        let lasting = self.lasting.lock();
        Events {
            earlier: lasting.clone().into(),
            receiver: self.sender.subscribe(),
        }
    }
}

/// A listener to a participant's events.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{Memory, MemoryState, ParticipantEvent, Repository};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("orders-7")).await?;
/// let participant = restored.attach(MemoryState::new())?;
///
/// let mut events = participant.events();
/// participant.checkpoint("offset 17")?.completed().await?;
/// let mut uploaded_bytes = 0;
/// while let Some(event) = events.next().await {
///     match event {
///         ParticipantEvent::Uploaded { size_bytes, .. } => uploaded_bytes += size_bytes,
///         ParticipantEvent::Completed(report) => {
///             assert_eq!(report.uploaded_bytes, uploaded_bytes);
///             break;
///         }
///         _ => {} // there are others, and there may come to be more
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    /// What was to be noticed before this began to listen.
    earlier: VecDeque<ParticipantEvent>,
    receiver: broadcast::Receiver<ParticipantEvent>,
}

impl Events {
    /// The next event; `None` once the participant is gone. A listener that falls far behind
    /// misses the oldest ones.
    ///
    /// Cancel safe: dropped, it has taken no event.
    pub async fn next(&mut self) -> Option<ParticipantEvent> {
        if let Some(event) = self.earlier.pop_front() {
            return Some(event);
        }
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "a listener fell behind");
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// The next event that is there already.
    pub fn try_next(&mut self) -> Option<ParticipantEvent> {
        if let Some(event) = self.earlier.pop_front() {
            return Some(event);
        }
        loop {
            match self.receiver.try_recv() {
                Ok(event) => return Some(event),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(
                    broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed,
                ) => return None,
            }
        }
    }
}

/// How far a restore has come. Clones share the counts.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{Memory, MemoryState, Repository, RestoreOptions, RestoreProgress};
///
/// let repository = Repository::open(Memory::new()).await?;
/// let claim = repository.claim("orders/7").await?;
/// let restored = claim.restore_into(directory.path().join("here")).await?;
/// let participant = restored.attach(MemoryState::new())?;
/// let taken = participant.checkpoint("offset 17")?.completed().await?;
///
/// let progress = RestoreProgress::default();
/// let options = RestoreOptions::new().progress(progress.clone()); // shown from another task, say
/// let inspection = repository.inspect("orders/7").await?;
/// let there = directory.path().join("there");
/// inspection.restore(taken.checkpoint, there, &options).await?;
/// assert_eq!(progress.fetched_bytes(), progress.total_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RestoreProgress {
    total_bytes: Arc<AtomicU64>,
    /// One for each try of a file.
    moved: Arc<Mutex<Vec<Progress>>>,
}

impl RestoreProgress {
    /// The bytes to be fetched; 0 until that is known.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// The bytes fetched so far, over all tries.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.moved.lock().iter().map(Progress::bytes).sum()
    }

    pub(super) fn expect(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    pub(super) fn one_more(&self) -> Progress {
        let progress = Progress::default();
        self.moved.lock().push(progress.clone());
        progress
    }
}
