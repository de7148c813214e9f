//! Whether a state's directory is anybody's at the moment.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test ends at the first surprise"
)]

use std::path::Path;

use stillpoint::protocol::id::RootId;
use stillpoint::state::{DirectoryError, Existing, Owner, StateDirectory};

/// Whether nobody has the directory, which is somebody's.
pub fn is_free(state: &Path) -> bool {
    let nobody = Owner {
        root: RootId(0),
        participant: String::new(),
    };
    // Who has it is asked before whose it is.
    match StateDirectory::take(state, &nobody, Existing::Refused) {
        Err(DirectoryError::InUse { .. }) => false,
        Err(DirectoryError::AnotherOwner { .. }) => true,
        other => panic!("{other:?}"),
    }
}
