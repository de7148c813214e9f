//! The one error of the library's runtime: what a caller can branch on, and what it is about.
//!
//! Trouble comes up from the store, the state backend and the protocol as data ([`Failure`] and the
//! reasons of the protocol). Here it becomes an [`Error`] that names the participant, the
//! checkpoint, the file and the phase, and keeps the first cause.
//!
//! Invariant: absent ([`ErrorKind::NotFound`], and [`ErrorKind::Missing`] of what must be there),
//! unreadable ([`ErrorKind::Denied`],
//! [`ErrorKind::Unavailable`], [`ErrorKind::Corrupt`]) and empty (no error at all) are three
//! different answers.

use std::fmt;
use std::sync::Arc;

use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::CheckpointId;

/// The result of whatever the runtime does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done.
///
/// Cheap to clone: a participant that was fenced or failed gives the same error to every caller.
///
/// ```
/// # fn decide(error: stillpoint::Error) {
/// use stillpoint::ErrorKind;
///
/// match error.kind() {
///     ErrorKind::Fenced => { /* another process owns the participant: stop writing */ }
///     _ if error.is_retryable() => { /* the same call may succeed later */ }
///     _ => { /* somebody has to look at it */ }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    participant: Option<String>,
    checkpoint: Option<CheckpointId>,
    file: Option<String>,
    phase: Option<Phase>,
    alternatives: Vec<CheckpointId>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What a caller can branch on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another process has claimed the participant. Final: stop writing, claim again only if this
    /// process is to be the owner.
    Fenced,
    /// The store or the device is slow, busy or out of reach. Later may do.
    Unavailable,
    /// What was asked for is not there.
    NotFound,
    /// A checkpoint was dropped, because newer ones completed, while it was being read. Not damage:
    /// [`Error::alternatives`] names the ones that are there.
    Subsumed,
    /// Stored or local content is not what was written.
    Corrupt,
    /// A file that a retained checkpoint needs, or a part of the manifest, is gone: damage, like
    /// [`ErrorKind::Corrupt`].
    Missing,
    /// The content is of another format, kind of state or job.
    Incompatible,
    /// The call or the configuration is wrong.
    Invalid,
    /// Not now: something of the same kind is still under way. Later will do.
    Busy,
    /// The checkpoint was aborted; the reason is in the message. The next one may complete, and
    /// takes over what this one has uploaded.
    Aborted,
    /// It is not known, and will not be known here, whether the checkpoint completed: the
    /// participant came to its end while the commit was in doubt. Reading the repository tells.
    InDoubt,
    /// The caller gave up.
    Cancelled,
    /// The time that was allowed is over.
    Deadline,
    /// A device or quota is full.
    NoSpace,
    /// Reading or writing is not allowed.
    Denied,
    /// The store, backend or file system can't do this at all.
    Unsupported,
    /// The state had trouble in the background and can't be trusted: restore it.
    Untrusted,
    /// The state was written to while the cut of a checkpoint was taken, so there is none. A cut for
    /// which the writers are held succeeds.
    WritersNotHeld,
    /// The participant has been closed, or the tokio runtime that its work was done in has ended.
    Closed,
    /// The library has a defect. The participant is unusable; claiming it again is safe.
    Internal,
    /// Anything else; the cause says what.
    Other,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fenced => "fenced",
            Self::Unavailable => "unavailable",
            Self::NotFound => "not found",
            Self::Subsumed => "subsumed meanwhile",
            Self::Corrupt => "corrupt",
            Self::Missing => "missing",
            Self::Incompatible => "incompatible",
            Self::Invalid => "invalid",
            Self::Busy => "busy",
            Self::Aborted => "aborted",
            Self::InDoubt => "in doubt",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline passed",
            Self::NoSpace => "no space",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Untrusted => "untrusted",
            Self::WritersNotHeld => "writers not held",
            Self::Closed => "closed",
            Self::Internal => "internal error",
            Self::Other => "failed",
        })
    }
}

/// What was being done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// Opening a repository.
    Open,
    /// Becoming the holder of a participant.
    Claim,
    /// Making a local directory equal to a checkpoint.
    Restore,
    /// Taking over the opened state.
    Attach,
    /// The synchronous part of a checkpoint.
    Cut,
    /// Storing a checkpoint's files and committing it.
    Checkpoint,
    /// Shutting a participant down.
    Close,
    /// Reading a repository as a guest.
    Inspect,
    /// Reading stored content to check it.
    Verify,
    /// Deleting what is condemned.
    Collect,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Claim => "claim",
            Self::Restore => "restore",
            Self::Attach => "attach",
            Self::Cut => "cut",
            Self::Checkpoint => "checkpoint",
            Self::Close => "close",
            Self::Inspect => "inspect",
            Self::Verify => "verify",
            Self::Collect => "collect",
        })
    }
}

impl Error {
    /// An error of a kind, in words: lower case, no trailing stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message: message.into(),
                participant: None,
                checkpoint: None,
                file: None,
                phase: None,
                alternatives: Vec::new(),
                source: None,
            }),
        }
    }

    /// What a caller can branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether the same call may succeed later without anybody mending anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.inner.kind {
            ErrorKind::Unavailable
            | ErrorKind::Busy
            | ErrorKind::Aborted
            | ErrorKind::Deadline
            | ErrorKind::NoSpace
            | ErrorKind::WritersNotHeld => true,
            ErrorKind::Fenced
            | ErrorKind::NotFound
            | ErrorKind::Subsumed
            | ErrorKind::Corrupt
            | ErrorKind::Missing
            | ErrorKind::Incompatible
            | ErrorKind::Invalid
            | ErrorKind::InDoubt
            | ErrorKind::Cancelled
            | ErrorKind::Denied
            | ErrorKind::Unsupported
            | ErrorKind::Untrusted
            | ErrorKind::Closed
            | ErrorKind::Internal
            | ErrorKind::Other => false,
        }
    }

    /// The cause in words, without what it is about.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The participant it is about.
    #[must_use]
    pub fn participant(&self) -> Option<&str> {
        self.inner.participant.as_deref()
    }

    /// The checkpoint it is about.
    #[must_use]
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        self.inner.checkpoint
    }

    /// The file or object it is about.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.inner.file.as_deref()
    }

    /// What was being done.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        self.inner.phase
    }

    /// The checkpoints that the caller could ask for instead, the newest last.
    #[must_use]
    pub fn alternatives(&self) -> &[CheckpointId] {
        &self.inner.alternatives
    }

    /// What kind of trouble is behind it, where something is: [`ErrorKind::NoSpace`] of a deadline
    /// that passed because the store is full. The trouble itself is the last of the
    /// [sources](std::error::Error::source).
    ///
    /// ```
    /// use stillpoint::{Error, ErrorKind};
    ///
    /// let full = Error::new(ErrorKind::NoSpace, "quota exceeded");
    /// let late = Error::new(ErrorKind::Deadline, "it took longer than its timeout").with_source(full);
    /// assert_eq!(late.cause_kind(), Some(ErrorKind::NoSpace));
    /// ```
    #[must_use]
    pub fn cause_kind(&self) -> Option<ErrorKind> {
        let mut kind = None;
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<Self>() {
                kind = Some(error.kind());
            } else if let Some(failure) = error.downcast_ref::<Failure>() {
                kind = Some(failure.kind.into());
            }
            source = error.source();
        }
        kind
    }

    /// The error with the participant it is about. The first name given stays.
    #[must_use]
    pub fn with_participant(self, name: &str) -> Self {
        self.change(|inner| {
            inner.participant.get_or_insert_with(|| name.to_owned());
        })
    }

    /// The error with the checkpoint it is about. The first one given stays.
    #[must_use]
    pub fn with_checkpoint(self, checkpoint: CheckpointId) -> Self {
        self.change(|inner| {
            inner.checkpoint.get_or_insert(checkpoint);
        })
    }

    /// The error with the file or object it is about. The first one given stays.
    #[must_use]
    pub fn with_file(self, file: impl fmt::Display) -> Self {
        self.change(|inner| {
            inner.file.get_or_insert_with(|| file.to_string());
        })
    }

    /// The error with what was being done. The first phase given stays.
    #[must_use]
    pub fn with_phase(self, phase: Phase) -> Self {
        self.change(|inner| {
            inner.phase.get_or_insert(phase);
        })
    }

    /// The error with the checkpoints that the caller could ask for instead.
    #[must_use]
    pub fn with_alternatives(self, alternatives: Vec<CheckpointId>) -> Self {
        self.change(|inner| inner.alternatives = alternatives)
    }

    /// The error with its first cause.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.change(|inner| {
            inner.source.get_or_insert_with(|| Arc::new(source));
        })
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind.into(), failure.cause.clone()).with_source(failure)
    }
}

impl From<FailureKind> for ErrorKind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::NotFound => Self::NotFound,
            FailureKind::Denied | FailureKind::ReadOnly => Self::Denied,
            FailureKind::NoSpace => Self::NoSpace,
            FailureKind::Exhausted | FailureKind::Unavailable => Self::Unavailable,
            FailureKind::Deadline => Self::Deadline,
            FailureKind::Corrupt => Self::Corrupt,
            FailureKind::TooLarge => Self::Invalid,
            FailureKind::CrossDevice | FailureKind::Unsupported => Self::Unsupported,
            FailureKind::Cancelled => Self::Cancelled,
            FailureKind::Untrusted => Self::Untrusted,
            FailureKind::WritersNotHeld => Self::WritersNotHeld,
            FailureKind::Other => Self::Other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.inner;
        if let Some(phase) = inner.phase {
            write!(f, "{phase}")?;
            if let Some(participant) = &inner.participant {
                write!(f, " of {participant:?}")?;
            }
            f.write_str(": ")?;
        } else if let Some(participant) = &inner.participant {
            write!(f, "{participant:?}: ")?;
        }
        if let Some(checkpoint) = inner.checkpoint {
            write!(f, "{checkpoint}: ")?;
        }
        if let Some(file) = &inner.file {
            write!(f, "{file}: ")?;
        }
        write!(f, "{}: {}", inner.kind, inner.message)?;
        if let Some((first, rest)) = inner.alternatives.split_first() {
            write!(f, " (there are checkpoints {}", first.0)?;
            for checkpoint in rest {
                write!(f, ", {}", checkpoint.0)?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.inner.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn names_what_it_is_about_and_keeps_the_first_cause() {
        let error = Error::from(Failure::new(FailureKind::NoSpace, "shared/3/9: quota"))
            .with_phase(Phase::Checkpoint)
            .with_participant("orders/7")
            .with_checkpoint(CheckpointId(4))
            .with_phase(Phase::Close)
            .with_file("shared/3/9");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.is_retryable());
        assert_eq!(error.phase(), Some(Phase::Checkpoint));
        assert_eq!(
            error.to_string(),
            "checkpoint of \"orders/7\": checkpoint 4: shared/3/9: no space: shared/3/9: quota"
        );
        assert_eq!(
            error.source().map(ToString::to_string),
            Some("no space: shared/3/9: quota".to_owned())
        );
    }

    #[test]
    fn names_the_alternatives() {
        let error = Error::new(ErrorKind::Subsumed, "dropped while it was read")
            .with_checkpoint(CheckpointId(3))
            .with_alternatives(vec![CheckpointId(5), CheckpointId(6)]);
        assert_eq!(
            error.to_string(),
            "checkpoint 3: subsumed meanwhile: dropped while it was read (there are checkpoints 5, 6)"
        );
    }
}
