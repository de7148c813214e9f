//! What has been, and how the specification numbers it: each kind in the order of coming into being.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{CheckpointId, FileName, OperatorId, SubtaskId};

/// What stands under a name in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Object {
    /// A state file, as the specification numbers it.
    File(u64),
    /// The pack of a snapshot.
    Pack(CheckpointId),
}

/// What is under which name, whoever made it.
pub(crate) type Names = BTreeMap<FileName, Object>;

/// What has been.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The specification's numbers of checkpoints.
    pub(crate) checkpoints: BTreeMap<CheckpointId, u64>,
    /// The files of what completed, by checkpoint and subtask.
    pub(crate) cuts: BTreeMap<(u64, u32), BTreeSet<u64>>,
    /// What is under which name.
    pub(crate) names: Names,
    /// Who made each file; file 1 comes first.
    pub(crate) creators: Vec<u64>,
}

/// The subtask with an index; there is one operator.
pub(crate) fn subtask(index: u32) -> SubtaskId {
    SubtaskId {
        operator: OperatorId(0),
        index,
    }
}

impl History {
    /// The specification's number of a checkpoint; 0 for none.
    pub(crate) fn checkpoint_number(&self, code: CheckpointId) -> u64 {
        self.checkpoints.get(&code).copied().unwrap_or(0)
    }

    /// The state file under a name; none if that is a pack.
    pub(crate) fn file(&self, name: FileName) -> Option<u64> {
        match self.names.get(&name) {
            Some(Object::File(number)) => Some(*number),
            Some(Object::Pack(_)) | None => None,
        }
    }

    /// The state files under names.
    pub(crate) fn files<'a>(&self, names: impl IntoIterator<Item = &'a FileName>) -> BTreeSet<u64> {
        let names = names.into_iter();
        names.filter_map(|name| self.file(*name)).collect()
    }
}
