//! The file system's errors as failures with a kind and a path.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::protocol::answer::{Failure, FailureKind};

/// A failure of the kind that an error is, in the error's words, with what was tried and where.
pub(super) fn failure(
    error: impl Into<io::Error>,
    tried: impl fmt::Display,
    path: &Path,
) -> Failure {
    let error = error.into();
    Failure::new(
        kind_of(&error),
        format!("{tried} {}: {error}", path.display()),
    )
}

fn kind_of(error: &io::Error) -> FailureKind {
    let Some(errno) = Errno::from_io_error(error) else {
        return if error.kind() == io::ErrorKind::UnexpectedEof {
            FailureKind::Corrupt
        } else {
            FailureKind::Other
        };
    };
    match errno {
        Errno::NOENT => FailureKind::NotFound,
        Errno::ACCESS | Errno::PERM => FailureKind::Denied,
        Errno::NOSPC | Errno::DQUOT => FailureKind::NoSpace,
        Errno::ROFS => FailureKind::ReadOnly,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOLCK => FailureKind::Exhausted,
        Errno::AGAIN
        | Errno::INTR
        | Errno::BUSY
        | Errno::TIMEDOUT
        | Errno::STALE
        | Errno::NOTCONN => FailureKind::Unavailable,
        // Something else lies where a folder or an object was.
        Errno::NOTDIR | Errno::ISDIR | Errno::LOOP => FailureKind::Corrupt,
        Errno::FBIG | Errno::NAMETOOLONG => FailureKind::TooLarge,
        Errno::XDEV => FailureKind::CrossDevice,
        Errno::OPNOTSUPP | Errno::NOSYS => FailureKind::Unsupported,
        _ => FailureKind::Other,
    }
}

/// Whether a rename or link that ended so has certainly not been done. An input or output error,
/// or a server that went silent, says nothing about it.
pub(super) fn is_certainly_not_done(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::EXIST
            | Errno::NOTEMPTY
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NOSPC
            | Errno::DQUOT
            | Errno::ROFS
            | Errno::NOMEM
            | Errno::XDEV
            | Errno::MLINK
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::OPNOTSUPP
            | Errno::NOSYS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_kind_their_words_and_their_path() {
        for (errno, kind) in [
            (Errno::NOENT, FailureKind::NotFound),
            (Errno::ACCESS, FailureKind::Denied),
            (Errno::PERM, FailureKind::Denied),
            (Errno::NOSPC, FailureKind::NoSpace),
            (Errno::DQUOT, FailureKind::NoSpace),
            (Errno::ROFS, FailureKind::ReadOnly),
            (Errno::MFILE, FailureKind::Exhausted),
            (Errno::NFILE, FailureKind::Exhausted),
            (Errno::XDEV, FailureKind::CrossDevice),
            (Errno::FBIG, FailureKind::TooLarge),
            (Errno::NOTDIR, FailureKind::Corrupt),
            (Errno::LOOP, FailureKind::Corrupt),
            (Errno::STALE, FailureKind::Unavailable),
            (Errno::IO, FailureKind::Other),
        ] {
            let failure = failure(errno, "write", Path::new("/checkpoints/shared/7/1"));
            assert_eq!(failure.kind, kind, "{errno:?}");
            let words = io::Error::from(errno).to_string();
            assert_eq!(
                failure.cause,
                format!("write /checkpoints/shared/7/1: {words}")
            );
        }
    }

    #[test]
    fn an_input_output_error_of_a_rename_is_no_certainty() {
        assert!(!is_certainly_not_done(Errno::IO));
        assert!(!is_certainly_not_done(Errno::STALE));
        assert!(!is_certainly_not_done(Errno::TIMEDOUT));
        assert!(is_certainly_not_done(Errno::NOSPC));
        assert!(is_certainly_not_done(Errno::XDEV));
    }
}
