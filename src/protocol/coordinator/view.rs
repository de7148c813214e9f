//! A coordinator seen from outside: for invariants, for the abstraction to the specification, and
//! for people who ask what waits for what.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::pending::{CommittingCheckpoint, PendingCheckpoint};
use super::timers::{Timer, Timers};
use super::{AttemptState, Coordinator, CoordinatorConfig, Phase};
use crate::protocol::commit::Commit;
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, SubtaskId};
use crate::protocol::manifest::{Current, Manifest};

/// What can be seen of a coordinator.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Where it is in its life.
    pub phase: Phase,
    /// The epoch it leads in; 0 before it does.
    pub epoch: Epoch,
    /// The manifest as the store confirmed it.
    pub manifest: Option<&'a Manifest>,
    /// The `CURRENT` that the next commit builds on.
    pub current: Option<&'a Current>,
    /// The commit under way.
    pub commit: Option<&'a Commit>,
    /// The checkpoint that it completes.
    pub completes: Option<CheckpointId>,
    /// Checkpoints that wait for acknowledgements.
    pub pending: &'a BTreeMap<CheckpointId, PendingCheckpoint>,
    /// Checkpoints that wait for their commit.
    pub committing: &'a BTreeMap<CheckpointId, CommittingCheckpoint>,
    /// The attempts that the manifest names.
    pub attempts: &'a BTreeMap<AttemptId, AttemptState>,
    /// Files that attempts which are over had staged, not condemned yet.
    pub orphans: &'a BTreeSet<FileName>,
    /// The armed timers.
    pub timers: &'a Timers,
    /// Whether nothing is left to delete or forget, as far as this leader knows.
    pub cleaner_idle: bool,
    /// The next checkpoint id it would use.
    pub next_checkpoint: CheckpointId,
    /// How it was configured.
    pub config: &'a CoordinatorConfig,
}

/// What waits for what.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Waiting {
    /// The manifest is being read.
    Load(String),
    /// `CURRENT` is being created.
    Create,
    /// The random wait before a claim.
    ClaimDelay,
    /// A commit waits for the store.
    Commit {
        /// What it waits for.
        step: &'static str,
        /// Checkpoints that wait for it.
        checkpoints: Vec<CheckpointId>,
        /// What the store said when its outcome came into doubt.
        doubt: Option<String>,
    },
    /// The next commit waits, after one that failed.
    CommitPause,
    /// Records that guests committed are being read.
    Follow,
    /// A checkpoint waits for subtasks.
    Acknowledgements {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The subtasks.
        subtasks: Vec<SubtaskId>,
    },
    /// Attempts have not attached or do not run.
    Attempts(Vec<AttemptId>),
    /// Requests wait for their turn.
    Queue(usize),
    /// The store does not delete a file.
    Delete(String),
}

/// Names, in words.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            fmt::Display::fmt(name, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(what) => write!(f, "the coordinator waits for {what}"),
            Self::Create => f.write_str("the coordinator waits for CURRENT to be created"),
            Self::ClaimDelay => f.write_str("the coordinator waits before it claims"),
            Self::Commit {
                step,
                checkpoints,
                doubt,
            } => {
                if checkpoints.is_empty() {
                    write!(f, "the coordinator waits for {step}")?;
                } else {
                    let verb = if checkpoints.len() == 1 {
                        "waits"
                    } else {
                        "wait"
                    };
                    write!(f, "{} {verb} for {step}", Listed(checkpoints))?;
                }
                doubt
                    .as_ref()
                    .map_or(Ok(()), |doubt| write!(f, "; in doubt: {doubt}"))
            }
            Self::CommitPause => f.write_str("the next commit waits after one that failed"),
            Self::Follow => f.write_str("records of guests are being read"),
            Self::Acknowledgements {
                checkpoint,
                subtasks,
            } => {
                write!(f, "{checkpoint} waits for {}", Listed(subtasks))
            }
            Self::Attempts(attempts) => {
                write!(f, "triggers wait for {} to run", Listed(attempts))
            }
            Self::Queue(requests) => write!(f, "{requests} requests wait for their turn"),
            Self::Delete(what) => f.write_str(what),
        }
    }
}

impl Coordinator {
    /// What can be seen of it.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            phase: self.phase,
            epoch: self.epoch,
            manifest: self.confirmed.as_ref().map(|confirmed| &confirmed.manifest),
            current: self.confirmed.as_ref().map(|confirmed| &confirmed.current),
            commit: self.commits.under_way(),
            completes: self.commits.completes(),
            pending: &self.pending,
            committing: &self.committing,
            attempts: &self.attempts,
            orphans: self.garbage.orphans(),
            timers: &self.timers,
            cleaner_idle: self.cleaner_is_idle(),
            next_checkpoint: self.next_checkpoint,
            config: &self.config,
        }
    }

    /// What a commit under way condemns is in the manifest only once it is confirmed.
    fn cleaner_is_idle(&self) -> bool {
        let released = self.confirmed.as_ref().is_some_and(|confirmed| {
            !confirmed.manifest.released().is_empty() || !confirmed.manifest.tombstones().is_empty()
        });
        !released
            && self.commits.under_way().is_none()
            && self.deletes.is_idle()
            && self.snapshot.is_idle()
            && self.manifest_deletes.is_idle()
            && !self.garbage.looks()
    }

    /// What waits for what, in words; `None` when nothing waits.
    #[must_use]
    pub fn pending_reason(&self) -> Option<Waiting> {
        match self.phase {
            Phase::Loading => return Some(Waiting::Load(self.load_reason())),
            Phase::Creating => return Some(Waiting::Create),
            Phase::Waiting => return Some(Waiting::ClaimDelay),
            Phase::Claiming | Phase::Leading | Phase::Closing => {}
            Phase::Closed | Phase::Deposed(_) | Phase::Failed => return None,
        }
        if let Some(commit) = self.commits.under_way() {
            return Some(Waiting::Commit {
                step: commit.waits_for(),
                checkpoints: self.committing.keys().copied().collect(),
                doubt: commit.doubt().map(ToString::to_string),
            });
        }
        if self.follow.is_some() {
            return Some(Waiting::Follow);
        }
        if self.timers.is_armed(Timer::NextCommit) {
            return Some(Waiting::CommitPause);
        }
        if let Some((checkpoint, pending)) = self.pending.first_key_value() {
            let subtasks = pending.waiting().collect();
            return Some(Waiting::Acknowledgements {
                checkpoint: *checkpoint,
                subtasks,
            });
        }
        let idle: Vec<_> = self
            .attempts
            .iter()
            .filter(|(_, state)| !(state.attached && state.running))
            .map(|(attempt, _)| *attempt)
            .collect();
        if !idle.is_empty() {
            return Some(Waiting::Attempts(idle));
        }
        if self.queue.len() > 0 {
            return Some(Waiting::Queue(self.queue.len()));
        }
        self.deletes.refused().map(|(file, tries, failure)| {
            let said = failure.map_or_else(|| "refused".to_string(), ToString::to_string);
            Waiting::Delete(alloc::format!(
                "{file} is not deleted after at least {tries} tries: {said}"
            ))
        })
    }
}
