//! The coordinator's timers: all of them, by name.

use crate::protocol::id::{CheckpointId, FileName, ManifestName, RequestId};
use crate::protocol::timers;

/// What is due at some time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Read the manifest again after trouble.
    Load,
    /// Claim, after the random wait.
    Claim,
    /// Go on with the commit under way.
    Commit,
    /// A commit has been in doubt for as long as a checkpoint may take.
    Doubt,
    /// Start another commit after one that failed.
    NextCommit,
    /// Go on with reading records that others committed.
    Follow,
    /// Go on with writing a full snapshot of the manifest.
    Snapshot,
    /// The interval's next checkpoint.
    Periodic,
    /// The pause is over: requests may be looked at again.
    Pause,
    /// A request has waited for its turn as long as a checkpoint may take.
    Turn(RequestId),
    /// A pending checkpoint expires.
    Expire(CheckpointId),
    /// Delete a file again.
    Delete(FileName),
    /// Go on with the sweep.
    Sweep,
    /// Forget confirmed deletes although nothing else is to commit.
    Forget,
    /// Commit an empty record, so that no standby takes this leader for dead.
    Renew,
    /// Look at `CURRENT`, to learn whether somebody else leads.
    Look,
    /// Tell attempts that did not attach yet of this leader again.
    Lead,
    /// Delete a manifest object again.
    DeleteManifest(ManifestName),
}

/// The armed timers.
pub type Timers = timers::Timers<Timer>;
