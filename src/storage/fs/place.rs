//! Whether a repository may be in a directory: looked at before anything is done there.
//!
//! | the directory is | |
//! |---|---|
//! | absent or empty | yes |
//! | a repository: it holds `participants` | yes |
//! | anything else: one participant's part, a state, somebody's home | no |
//! | in the directory of a state, which a restore may empty | no |
//!
//! What can't be read, opening it will say.

use std::fs;
use std::path::Path;

use crate::places::{LOST_AND_FOUND, PARTICIPANTS, state_around};

/// What the store keeps beside the participants, and what file systems put into a directory.
const OWN_NAMES: [&str; 3] = [PARTICIPANTS, ".tmp", LOST_AND_FOUND];
/// Names that are looked at: a repository shows itself within a few.
const LOOKED_AT_MAX: usize = 10_000;

/// Says why no repository may be in a directory.
pub(super) fn check(root: &Path) -> Result<(), String> {
    if let Some(state) = state_around(root) {
        return Err(format!(
            "it lies in {}, the directory of a state: a restore removes what is not in the checkpoint",
            state.display()
        ));
    }
    let Ok(entries) = fs::read_dir(root) else {
        return Ok(());
    };
    let mut names: Vec<_> = entries
        .take(LOOKED_AT_MAX)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort_unstable();
    let holds = |wanted: &str| names.iter().any(|name| name == wanted);
    if holds(PARTICIPANTS) {
        return Ok(());
    }
    let is_own = |name: &String| OWN_NAMES.contains(&name.as_str());
    let Some(foreign) = names.iter().find(|name| !is_own(name)) else {
        return Ok(());
    };
    if holds("CURRENT") && holds("manifest") {
        return Err(format!(
            "it is the directory of one participant; the repository's holds {PARTICIPANTS:?}"
        ));
    }
    Err(format!(
        "it holds {foreign:?} and no {PARTICIPANTS:?}; a new repository begins in an absent or empty directory"
    ))
}
