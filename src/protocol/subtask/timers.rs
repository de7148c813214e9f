//! The timers of an attempt: what is tried again.

use crate::protocol::id::{CheckpointId, FileName};

/// What happens when a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The attachment is sent again.
    Attach,
    /// An acknowledgement or decline is sent again.
    Reply(CheckpointId),
    /// An upload is tried again.
    Upload(FileName),
    /// A delete is tried again.
    Delete(FileName),
}
