//! How an operating system's error becomes a [`Failure`]: the one table from its numbers to the
//! kinds that a caller can branch on.
//!
//! What it does not do: say whether a call that failed so has been carried out all the same. That
//! depends on the call, and on where the file lies.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::protocol::answer::{Failure, FailureKind};

/// What failed, with the path it is about, and the system's own words.
pub(crate) fn failed(error: &io::Error, doing: impl Display) -> Failure {
    Failure::new(kind_of(error), format!("{doing}: {error}"))
}

fn kind_of(error: &io::Error) -> FailureKind {
    match Errno::from_io_error(error) {
        Some(errno) => kind_of_number(errno),
        None => kind_of_words(error.kind()),
    }
}

fn kind_of_number(errno: Errno) -> FailureKind {
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
        // Something else lies where a folder or a file was.
        Errno::NOTDIR | Errno::ISDIR | Errno::LOOP => FailureKind::Corrupt,
        Errno::FBIG | Errno::NAMETOOLONG => FailureKind::TooLarge,
        Errno::XDEV => FailureKind::CrossDevice,
        Errno::OPNOTSUPP | Errno::NOSYS => FailureKind::Unsupported,
        _ => FailureKind::Other,
    }
}

/// The standard library's own errors have no number.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the standard library's enum is open; what has no kind of its own is `Other`"
)]
fn kind_of_words(kind: ErrorKind) -> FailureKind {
    match kind {
        ErrorKind::NotFound => FailureKind::NotFound,
        ErrorKind::PermissionDenied => FailureKind::Denied,
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => FailureKind::Corrupt,
        ErrorKind::Unsupported => FailureKind::Unsupported,
        ErrorKind::TimedOut => FailureKind::Unavailable,
        _ => FailureKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_kind_and_their_words() {
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
            (Errno::INTR, FailureKind::Unavailable),
            (Errno::IO, FailureKind::Other),
        ] {
            let error = io::Error::from(errno);
            let failure = failed(&error, "write a");
            assert_eq!(failure.kind, kind, "{errno:?}");
            assert_eq!(failure.cause, format!("write a: {error}"));
        }
        let short = io::Error::from(ErrorKind::UnexpectedEof);
        assert_eq!(failed(&short, "read a").kind, FailureKind::Corrupt);
    }
}
