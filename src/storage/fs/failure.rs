//! The file system's errors as failures with a kind and a path, and which of them are certain.
//!
//! A file system may lie behind a server. If the server's first answer is lost, the client sends the
//! request again, and what is heard is the answer to the second: which speaks of what it finds then,
//! not of what the first one did. So an error is certain only for a reason that holds although the
//! same request was carried out a moment before.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::protocol::answer::Failure;
use crate::storage::step::Stop;
use crate::system::failed;

/// A failure of the kind that an error is, in the error's words, with what was tried and where.
pub(super) fn failure(
    error: impl Into<io::Error>,
    tried: impl fmt::Display,
    path: &Path,
) -> Failure {
    failed(&error.into(), format_args!("{tried} {}", path.display()))
}

/// What an error of a call is answered with that gives a file its name, replaces one or removes one.
pub(super) fn not_carried_out(errno: Errno, failure: Failure) -> Stop {
    match why_certain(errno) {
        Some(_) => Stop::Failed(failure),
        None => Stop::Unknown(failure),
    }
}

/// Why an error of a rename, a link or an unlink says that nothing was changed, nor will be; `None`
/// if it does not say so.
///
/// The reasons that rest on an order are those of a server that is asked twice: of a rename that was
/// carried out it finds the old name gone, and answers `ENOENT` before anything that stands below
/// the line.
fn why_certain(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::XDEV => "found here, before anything is sent",
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => "nobody there knows such a call",
        Errno::NAMETOOLONG => "there can be no such name",
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            "asked for before a name is looked up: the first request would have heard it as well"
        }
        // ---- the old name has been found ----
        Errno::ISDIR => {
            "a directory bears the name, and is not replaced or removed by a file's call"
        }
        Errno::NOSPC | Errno::DQUOT => {
            "no room for the entry: after a first success none is asked for"
        }
        Errno::MLINK => "the links are counted before another is made",
        // ENOENT: of a rename and of an unlink it is what a second request finds after the first was
        // carried out.
        // EEXIST: so it is of a link, and of a rename that does not overwrite. Who names a file
        // looks whether it is its own, or answers that the name is taken.
        // ENOMEM, EMFILE: memory may be short for the answer, when the request is done.
        // EIO, EINTR, EAGAIN, ETIMEDOUT, ESTALE, ENOTCONN, EBUSY and whatever else there is: the
        // request may have been carried out, or be on its way.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::answer::FailureKind;

    #[test]
    fn a_failure_names_what_was_tried_and_where() {
        let failure = failure(Errno::NOENT, "open", Path::new("/checkpoints/shared/7/1"));
        assert_eq!(failure.kind, FailureKind::NotFound);
        let words = io::Error::from(Errno::NOENT).to_string();
        assert_eq!(
            failure.cause,
            format!("open /checkpoints/shared/7/1: {words}")
        );
    }

    #[test]
    fn what_a_second_request_may_find_is_no_certainty() {
        for errno in [
            Errno::NOENT,
            Errno::EXIST,
            Errno::NOTDIR,
            Errno::NOTEMPTY,
            Errno::LOOP,
            Errno::IO,
            Errno::INTR,
            Errno::AGAIN,
            Errno::BUSY,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::STALE,
            Errno::TIMEDOUT,
            Errno::NOTCONN,
            Errno::CONNRESET,
        ] {
            assert_eq!(why_certain(errno), None, "{errno:?}");
        }
        for errno in [
            Errno::XDEV,
            Errno::NOSYS,
            Errno::OPNOTSUPP,
            Errno::INVAL,
            Errno::NAMETOOLONG,
            Errno::ACCESS,
            Errno::PERM,
            Errno::ROFS,
            Errno::ISDIR,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::MLINK,
        ] {
            assert!(why_certain(errno).is_some(), "{errno:?}");
        }
    }
}
