//! What the protocol's reasons are called as errors.

use crate::error::{Error, ErrorKind};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::coordinator::{AbortReason, Broken, CoordinatorError, RefusalReason};
use crate::protocol::id::{Epoch, FileName, SubtaskId};

pub(super) fn fenced(by: Epoch) -> Error {
    let cause = format!("another holder has claimed it, in {by}: stop writing");
    Error::new(ErrorKind::Fenced, cause)
}

/// `broken` says why the holder's life ended, if that is known by then.
pub(super) fn unknown(broken: Option<Broken>) -> Error {
    let cause = "its holder's life ended while its commit was in doubt: it may be complete";
    match broken {
        None => Error::new(ErrorKind::InDoubt, cause),
        Some(broken) => Error::new(ErrorKind::InDoubt, format!("{cause}; {broken}"))
            .with_file(broken.name)
            .with_source(self::broken(broken)),
    }
}

/// What the holder's life rests on can't be relied on any more.
pub(super) fn broken(broken: Broken) -> Error {
    let Broken { name, failure } = broken;
    let kind = if failure.kind == FailureKind::NotFound {
        // It was there.
        ErrorKind::Missing
    } else {
        failure.kind.into()
    };
    Error::new(kind, failure.cause.clone())
        .with_file(name)
        .with_source(failure)
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "it has been closed")
}

pub(super) fn abandoned() -> Error {
    Error::new(ErrorKind::Closed, "it was dropped")
}

pub(super) fn without_runtime() -> Error {
    Error::new(ErrorKind::Closed, "its tokio runtime has ended")
}

pub(super) fn failed(error: CoordinatorError) -> Error {
    match error {
        CoordinatorError::Load(error) => super::load::error(error),
        CoordinatorError::Claim(failure) => Error::from(failure),
        CoordinatorError::Close(failure) => {
            let cause = format!("closed, and the store does not say so: {}", failure.cause);
            Error::new(failure.kind.into(), cause).with_source(failure)
        }
        CoordinatorError::Broken(broken) => self::broken(broken),
    }
}

pub(super) fn aborted(reason: &AbortReason) -> Error {
    let of = |subtask: &SubtaskId| {
        // A participant has one subtask, which its user need not know of.
        if *subtask == super::core::SUBTASK {
            String::new()
        } else {
            format!("{subtask}: ")
        }
    };
    match reason {
        AbortReason::Expired => Error::new(ErrorKind::Deadline, "it took longer than its timeout"),
        AbortReason::Declined(subtask, failure) => {
            let cause = format!("{}{}", of(subtask), failure.cause);
            Error::new(failure.kind.into(), cause).with_source(failure.clone())
        }
        AbortReason::Contradiction(subtask, contradiction) => {
            let cause = format!("{}{contradiction}", of(subtask));
            Error::new(ErrorKind::Internal, cause).with_source(*contradiction)
        }
        AbortReason::Subsumed => Error::new(ErrorKind::Aborted, "a newer one completed"),
        AbortReason::AttemptEnded(_) => Error::new(ErrorKind::Aborted, "its attempt ended"),
        AbortReason::Cancelled => Error::new(ErrorKind::Cancelled, "the caller gave it up"),
        AbortReason::Closed => closed(),
        AbortReason::CommitFailed(failure) => Error::from(failure.clone()),
        AbortReason::Deposed(by) => fenced(*by),
        AbortReason::Broken(broken) => self::broken(broken.clone()),
    }
}

/// The error of a checkpoint that took too long, with what went wrong of its uploads meanwhile: the
/// time is only the last of the reasons (FLINK-29969).
pub(super) fn expired_for(error: Error, trouble: Option<&(FileName, Failure)>) -> Error {
    match trouble {
        Some((file, failure)) if error.kind() == ErrorKind::Deadline => {
            let cause = format!("{}: {failure}", error.message());
            Error::new(ErrorKind::Deadline, cause)
                .with_file(file)
                .with_source(failure.clone())
        }
        Some(_) | None => error,
    }
}

pub(super) fn refused(reason: RefusalReason) -> Error {
    let busy = |cause| Error::new(ErrorKind::Busy, cause);
    match reason {
        RefusalReason::TooManyRequests => busy("too many checkpoints wait for their turn"),
        RefusalReason::MinimumPause => busy("the pause since the last checkpoint is not over"),
        RefusalReason::TooManyPending => busy("as many checkpoints are under way as may be"),
        RefusalReason::NotAllRunning => busy("its state is not attached yet"),
        RefusalReason::Expired => {
            let cause = "its turn has not come within the timeout";
            Error::new(ErrorKind::Deadline, cause)
        }
        RefusalReason::NotReady => busy("ids are being reserved"),
        RefusalReason::NoSuchCheckpoint(checkpoint, retained) => {
            Error::new(ErrorKind::NotFound, "it is not retained")
                .with_checkpoint(checkpoint)
                .with_alternatives(retained)
        }
        RefusalReason::NoSuchPin => Error::new(ErrorKind::NotFound, "there is no such pin"),
        RefusalReason::AlreadyPinned => {
            Error::new(ErrorKind::Invalid, "its owner has pinned it already")
        }
        RefusalReason::TooManyPins => busy("as many pins as may be"),
        RefusalReason::Unsupported => Error::new(ErrorKind::Unsupported, "there is no such kind"),
        RefusalReason::OtherParallelism {
            operator,
            recorded,
            asked,
        } => {
            let cause = format!(
                "{operator} has {recorded} subtasks, not {asked}: it can't be rescaled yet"
            );
            Error::new(ErrorKind::Unsupported, cause)
        }
        RefusalReason::NotLeading => busy("it does not lead"),
        RefusalReason::Closing => closed(),
        RefusalReason::Cancelled => Error::new(ErrorKind::Cancelled, "the caller gave it up"),
        RefusalReason::TooLarge(failure) => Error::from(failure),
        RefusalReason::Invalid(cause) => Error::new(ErrorKind::Invalid, cause),
    }
}
