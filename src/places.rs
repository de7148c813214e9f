//! Names in directories that more than one layer has to know. None of the layers beside each other may
//! ask the other.

/// The folder of a repository in which its participants' folders are.
pub(crate) const PARTICIPANTS: &str = "participants";
/// The folder in a state's directory that is this library's own.
pub(crate) const STATE_FOLDER: &str = ".stillpoint";
/// The file in it by which a directory is known for a state's.
pub(crate) const STATE_MARK: &str = "OURS";
/// Made by `mkfs` at the top of a file system, and nobody's.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";
