//! How an operating system's error becomes a [`Failure`].

use std::fmt::Display;
use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::protocol::answer::{Failure, FailureKind};

/// What failed, with the path it is about, and the system's own words.
pub(crate) fn failed(error: &io::Error, doing: impl Display) -> Failure {
    Failure::new(kind(error), format!("{doing}: {error}"))
}

fn kind(error: &io::Error) -> FailureKind {
    // The numbers that `ErrorKind` has no stable name for.
    if let Some(number) = error.raw_os_error() {
        match Errno::from_raw_os_error(number) {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => return FailureKind::Exhausted,
            Errno::OPNOTSUPP | Errno::NOSYS => return FailureKind::Unsupported,
            _ => {}
        }
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the standard library's enum is open; what has no kind of its own is `Other`"
    )]
    match error.kind() {
        ErrorKind::NotFound => FailureKind::NotFound,
        ErrorKind::PermissionDenied => FailureKind::Denied,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FailureKind::NoSpace,
        ErrorKind::ReadOnlyFilesystem => FailureKind::ReadOnly,
        ErrorKind::FileTooLarge => FailureKind::TooLarge,
        ErrorKind::CrossesDevices => FailureKind::CrossDevice,
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => FailureKind::Corrupt,
        ErrorKind::Unsupported => FailureKind::Unsupported,
        ErrorKind::TimedOut | ErrorKind::ResourceBusy => FailureKind::Unavailable,
        _ => FailureKind::Other,
    }
}
