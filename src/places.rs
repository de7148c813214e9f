//! Names in directories that more than one layer has to know. None of the layers beside each other may
//! ask the other.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a repository in which its participants' folders are.
pub(crate) const PARTICIPANTS: &str = "participants";
/// The folder in a state's directory that is this library's own.
pub(crate) const STATE_FOLDER: &str = ".stillpoint";
/// The file in it by which a directory is known for a state's.
pub(crate) const STATE_MARK: &str = "OURS";
/// Made by `mkfs` at the top of a file system, and nobody's.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// The directories that a path, which may be absent yet, lies in, the nearest first: without links, and
/// with the path itself if it is there.
pub(crate) fn around(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path
        .ancestors()
        .find_map(|above| fs::canonicalize(above).ok());
    let there = there.unwrap_or_default();
    there.ancestors().map(Path::to_owned).collect()
}

fn is_state(directory: &Path) -> bool {
    directory.join(STATE_FOLDER).join(STATE_MARK).is_file()
}

/// The directory of a state that a path is, or lies in.
pub(crate) fn state_around(path: &Path) -> Option<PathBuf> {
    around(path).into_iter().find(|above| is_state(above))
}

/// The directory of a state that another directory lies in.
pub(crate) fn state_above(directory: &Path) -> Option<PathBuf> {
    let itself = usize::from(directory.exists());
    let mut above = around(directory).into_iter().skip(itself);
    above.find(|above| is_state(above))
}
