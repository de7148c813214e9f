//! How the command ends. One table: the help prints it, the README quotes it.

use stillpoint::{Error, ErrorKind};

/// A status that the process ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    Done,
    CheckFailed,
    Usage,
    NotFound,
    Refused,
    Unavailable,
    Internal,
    Interrupted,
}

impl Exit {
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::CheckFailed,
        Self::Usage,
        Self::NotFound,
        Self::Refused,
        Self::Unavailable,
        Self::Internal,
        Self::Interrupted,
    ];

    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::CheckFailed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unavailable => 5,
            Self::Internal => 6,
            // What a shell makes of SIGINT.
            Self::Interrupted => 130,
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done, and whatever was checked is right",
            Self::CheckFailed => {
                "a check failed: something stored is damaged or missing, or the demo did not match"
            }
            Self::Usage => "wrong usage: arguments, or a directory that is of another kind",
            Self::NotFound => {
                "not there: directory, participant, checkpoint (dropped meanwhile included) or file"
            }
            Self::Refused => {
                "refused: fenced by another holder, in use, or of another format or job"
            }
            Self::Unavailable => {
                "the store or the file system would not: denied, full, slow, broken"
            }
            Self::Internal => "a defect of this program",
            Self::Interrupted => "interrupted from the keyboard",
        }
    }

    /// The table, for the help.
    pub fn table() -> String {
        let rows = Self::ALL
            .iter()
            .map(|exit| format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
        format!("Exit status:\n{}", rows.collect::<String>())
    }

    pub fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Missing => Self::CheckFailed,
            ErrorKind::Invalid => Self::Usage,
            ErrorKind::NotFound | ErrorKind::Subsumed => Self::NotFound,
            ErrorKind::Fenced
            | ErrorKind::Incompatible
            | ErrorKind::Busy
            | ErrorKind::Aborted
            | ErrorKind::InDoubt
            | ErrorKind::Closed => Self::Refused,
            ErrorKind::Cancelled => Self::Interrupted,
            ErrorKind::Unavailable
            | ErrorKind::Deadline
            | ErrorKind::NoSpace
            | ErrorKind::Denied
            | ErrorKind::Unsupported
            | ErrorKind::WritersNotHeld
            | ErrorKind::Other => Self::Unavailable,
            ErrorKind::Untrusted | ErrorKind::Internal => Self::Internal,
            // The library's kinds may come to be more; they are listed above as they do.
            _ => Self::Internal,
        }
    }

    /// The one to end with when several things ended: damage first, then the others as they are
    /// numbered, success last.
    pub fn worst(several: impl IntoIterator<Item = Self>) -> Self {
        several
            .into_iter()
            .filter(|exit| *exit != Self::Done)
            .min_by_key(|exit| exit.code())
            .unwrap_or(Self::Done)
    }
}
