//! Why a state's directory is refused.

use std::path::PathBuf;

use super::{OURS, OWN_FOLDER, Owner};
use crate::protocol::answer::Failure;

/// Why a directory can't be filled. Nothing in it was touched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It holds something and is not marked as ours.
    #[error(
        "{} is neither empty nor marked as ours: it holds {found:?}; name an empty or absent directory; \
         the database of a participant that has no checkpoint yet can be adopted \
         (RestoreOptions::adopt_existing)",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something that it holds.
        found: String,
    },
    /// It belongs to another participant, or to one of another repository.
    #[error(
        "{} belongs to {found}, not to {wanted}: name another directory; if the state in it is the \
         latter's all the same, move it to one without {OWN_FOLDER:?}; if nobody needs it, let it be removed \
         (RestoreOptions::replace_foreign_state)",
        path.display()
    )]
    AnotherOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: Owner,
        /// Who was to have it.
        wanted: Owner,
    },
    /// It is marked as ours, but not so that it could be told whose it is.
    #[error(
        "whose {} is, can't be told, since its mark {} can't be understood: {cause}; name another \
         directory, or let what is there be removed (RestoreOptions::replace_foreign_state)",
        path.display(),
        path.join(OWN_FOLDER).join(OURS).display()
    )]
    UnreadableMark {
        /// The directory.
        path: PathBuf,
        /// What is wrong with the mark.
        cause: String,
    },
    /// It is the participant's, but holds what is in no checkpoint and was not made by a state that
    /// began here: it may be the only copy.
    #[error("{} holds {found:?}, {why}: {advice}", path.display())]
    Unexplained {
        /// The directory.
        path: PathBuf,
        /// Something that it holds.
        found: String,
        /// What is known of it.
        why: String,
        /// What can be done.
        advice: &'static str,
    },
    /// Its database is to be adopted, and something lies beside it that is not the database's: that is
    /// in no checkpoint, and a later restore would remove it.
    #[error(
        "{} can't be adopted: it holds {found:?}, which is no file of a RocksDB, and whatever is in no checkpoint \
         is removed by a later restore; move it elsewhere",
        path.display()
    )]
    Mixed {
        /// The directory.
        path: PathBuf,
        /// What lies beside the database.
        found: String,
    },
    /// The root of a repository that is open in this process lies in it, or it in that.
    #[error(
        "{} and the repository {} lie in each other: a restore would remove what is stored; name another directory",
        path.display(),
        root.display()
    )]
    Repository {
        /// The directory.
        path: PathBuf,
        /// The repository's root.
        root: PathBuf,
    },
    /// It lies in the directory of another state.
    #[error(
        "{} lies in {}, the directory of another state: a restore of that removes what is not in its \
         checkpoint; name another directory",
        path.display(),
        state.display()
    )]
    Inside {
        /// The directory.
        path: PathBuf,
        /// The other state's.
        state: PathBuf,
    },
    /// Its state is open, or another restore fills it.
    #[error("{} is in use: {by}", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// By what, as far as the system tells.
        by: String,
    },
    /// It, or its way, is something else than a directory.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Trouble with the file system.
    #[error(transparent)]
    Failed(#[from] Failure),
}
