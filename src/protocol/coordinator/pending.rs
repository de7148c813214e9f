//! A checkpoint on its way: pending until its last acknowledgement, then committing.
//!
//! ```text
//!  PendingCheckpoint --last acknowledgement--> CommittingCheckpoint --Done--> (in the manifest)
//!        |                                            |
//!        v timeout, decline, cancel, ...              v CURRENT refuses it for certain, or a newer
//!     aborted                                         one was in the commit under way
//!                                                   aborted (CommitFailed, Deposed, Subsumed)
//! ```
//!
//! Each acknowledgement is kept as a [`Delta`] against the *newest completed* checkpoint, whatever
//! base it came with: when another checkpoint completes meanwhile, every kept delta is re-expressed
//! ([`Delta::rebase`]). With `n` the newest completed and `b` an older base,
//!
//! ```text
//! born    = added − added since b
//! dropped = (removed − removed since b) ∪ (added since b − added)
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::protocol::file::FileDescription;
use crate::protocol::id::{AttemptId, CheckpointId, FileName, OperatorId, RequestId, SubtaskId};
use crate::protocol::manifest::{Completion, SubtaskDelta};
use crate::protocol::message::Contradiction;
use crate::protocol::time::WallClock;

/// How a snapshot's files differ from the newest completed checkpoint's.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Delta {
    /// Files that the newest completed checkpoint does not hold.
    pub added: BTreeMap<FileName, FileDescription>,
    /// Files of the newest completed checkpoint that the snapshot does not hold.
    pub removed: BTreeSet<FileName>,
}

/// The names of a completed checkpoint's delta for one subtask, kept while an acknowledgement may
/// still come against an older base.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeltaNames {
    /// What it added to the one before.
    pub added: BTreeSet<FileName>,
    /// What it removed.
    pub removed: BTreeSet<FileName>,
}

impl Delta {
    /// Tells the same snapshot against a checkpoint that completed meanwhile.
    ///
    /// # Errors
    /// When a file that the completed one removed is in the snapshot: within a line, what left does
    /// not come back.
    pub fn rebase(&mut self, completed: &DeltaNames) -> Result<(), Contradiction> {
        for name in &completed.removed {
            if !self.removed.remove(name) {
                return Err(Contradiction::ComesBack(*name));
            }
        }
        for name in &completed.added {
            if self.added.remove(name).is_none() {
                self.removed.insert(*name);
            }
        }
        Ok(())
    }

    /// Its names alone.
    #[must_use]
    pub fn names(&self) -> DeltaNames {
        DeltaNames {
            added: self.added.keys().copied().collect(),
            removed: self.removed.clone(),
        }
    }
}

/// A subtask's acknowledgement, taken.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acknowledged {
    /// Its files against the newest completed checkpoint.
    pub delta: Delta,
    /// Those of the added files that a retained checkpoint already holds: they come back with a
    /// restore of an older checkpoint.
    pub returned: BTreeSet<FileName>,
    /// What the user attached.
    pub user_bytes: Vec<u8>,
    /// The names of its column families.
    pub families: Vec<String>,
    /// When the cut was taken.
    pub cut_at: WallClock,
}

/// A checkpoint that waits for acknowledgements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PendingCheckpoint {
    /// Who asked for it.
    pub request: Option<RequestId>,
    /// The base that its triggers named.
    pub base: Option<CheckpointId>,
    /// The subtasks it needs, with their attempts.
    pub plan: BTreeMap<SubtaskId, AttemptId>,
    /// The acknowledgements so far.
    pub acknowledged: BTreeMap<SubtaskId, Acknowledged>,
}

impl PendingCheckpoint {
    /// Whether it still waits for a subtask.
    #[must_use]
    pub fn waits_for(&self, subtask: SubtaskId) -> bool {
        self.plan.contains_key(&subtask) && !self.acknowledged.contains_key(&subtask)
    }

    /// The subtasks it waits for.
    pub fn waiting(&self) -> impl Iterator<Item = SubtaskId> + '_ {
        self.plan
            .keys()
            .copied()
            .filter(|subtask| !self.acknowledged.contains_key(subtask))
    }

    /// Whether every acknowledgement is in.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged.len() == self.plan.len()
    }

    /// Whether any acknowledgement in it names this file as added.
    #[must_use]
    pub fn names(&self, file: FileName) -> bool {
        self.acknowledged
            .values()
            .any(|taken| taken.delta.added.contains_key(&file))
    }

    /// The last acknowledgement is in: from here on nothing but `CURRENT` ends it.
    ///
    /// # Panics
    /// When an acknowledgement is missing.
    #[must_use]
    pub fn commit(self) -> CommittingCheckpoint {
        assert!(
            self.is_acknowledged(),
            "a checkpoint commits before it is acknowledged"
        );
        CommittingCheckpoint { pending: self }
    }
}

/// A checkpoint whose acknowledgements are all in and whose commit is to come or under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CommittingCheckpoint {
    pending: PendingCheckpoint,
}

impl CommittingCheckpoint {
    /// What it was before.
    #[must_use]
    pub fn pending(&self) -> &PendingCheckpoint {
        &self.pending
    }

    /// Its acknowledgements, to be re-expressed.
    pub fn acknowledged_mut(&mut self) -> &mut BTreeMap<SubtaskId, Acknowledged> {
        &mut self.pending.acknowledged
    }

    /// The change that completes it.
    #[must_use]
    pub fn completion(&self, checkpoint: CheckpointId, parent: Option<CheckpointId>) -> Completion {
        let taken = &self.pending.acknowledged;
        let cut_at = taken
            .values()
            .map(|part| part.cut_at)
            .min()
            .unwrap_or_default();
        let subtasks = taken
            .iter()
            .map(|(subtask, part)| subtask_delta(*subtask, part))
            .collect();
        Completion {
            checkpoint,
            parent,
            cut_at,
            subtasks,
        }
    }

    /// The column families of each of its operators, in order: those of all its subtasks.
    #[must_use]
    pub fn families(&self) -> BTreeMap<OperatorId, BTreeSet<&String>> {
        let mut families: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (subtask, part) in &self.pending.acknowledged {
            let operator = families.entry(subtask.operator).or_default();
            operator.extend(&part.families);
        }
        families
    }

    /// The names of its deltas, subtask by subtask.
    #[must_use]
    pub fn delta_names(&self) -> BTreeMap<SubtaskId, DeltaNames> {
        let taken = &self.pending.acknowledged;
        taken
            .iter()
            .map(|(subtask, part)| (*subtask, part.delta.names()))
            .collect()
    }
}

fn subtask_delta(subtask: SubtaskId, part: &Acknowledged) -> SubtaskDelta {
    let (returned, born) = part
        .delta
        .added
        .values()
        .cloned()
        .partition(|file| part.returned.contains(&file.name));
    SubtaskDelta {
        subtask,
        born,
        returned,
        dropped: part.delta.removed.iter().copied().collect(),
        user_bytes: part.user_bytes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::answer::{Checksum, Digest};
    use crate::protocol::file::FileKind;
    use crate::protocol::id::LocalName;

    fn name(number: u64) -> FileName {
        FileName {
            attempt: AttemptId(1),
            number,
        }
    }

    fn delta(added: &[u64], removed: &[u64]) -> Delta {
        let file = |number| FileDescription {
            name: name(number),
            local: LocalName::new("x").expect("a plain name"),
            kind: FileKind::State,
            digest: Digest {
                size_bytes: 1,
                checksum: Checksum(number),
            },
        };
        Delta {
            added: added
                .iter()
                .map(|number| (name(*number), file(*number)))
                .collect(),
            removed: removed.iter().map(|number| name(*number)).collect(),
        }
    }

    #[test]
    fn a_delta_is_told_against_what_completed_meanwhile() {
        // base {1, 2}; meanwhile completed {2, 3}; the snapshot holds {2, 4}.
        let mut late = delta(&[4], &[1]);
        assert_eq!(late.rebase(&delta(&[3], &[1]).names()), Ok(()));
        assert_eq!(late, delta(&[4], &[3]));
        // base {1}; meanwhile {1, 2}; the snapshot holds {1, 2, 3}.
        let mut late = delta(&[2, 3], &[]);
        assert_eq!(late.rebase(&delta(&[2], &[]).names()), Ok(()));
        assert_eq!(late, delta(&[3], &[]));
    }

    #[test]
    fn what_left_does_not_come_back() {
        // base {1}; meanwhile {2}; the snapshot claims to hold {1}.
        let mut late = delta(&[], &[]);
        let verdict = late.rebase(&delta(&[2], &[1]).names());
        assert_eq!(verdict, Err(Contradiction::ComesBack(name(1))));
    }
}
