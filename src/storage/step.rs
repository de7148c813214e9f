//! The four answers as a `Result` inside the stores, so that `?` ends a call early.

use crate::protocol::answer::{Answer, Failure};

/// What ends a call early: every answer but `Done`.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused,
    Failed(Failure),
    Unknown(Failure),
}

/// A step of a call, which may end it.
pub(crate) type Step<T> = Result<T, Stop>;

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The answer of a call whose steps have ended so.
pub(crate) fn answer<T>(step: Step<T>) -> Answer<T> {
    match step {
        Ok(value) => Answer::Done(value),
        Err(Stop::Refused) => Answer::Refused,
        Err(Stop::Failed(failure)) => Answer::Failed(failure),
        Err(Stop::Unknown(failure)) => Answer::Unknown(failure),
    }
}

/// Another call's answer as a step of this one.
pub(crate) fn step<T>(answer: Answer<T>) -> Step<T> {
    match answer {
        Answer::Done(value) => Ok(value),
        Answer::Refused => Err(Stop::Refused),
        Answer::Failed(failure) => Err(Stop::Failed(failure)),
        Answer::Unknown(failure) => Err(Stop::Unknown(failure)),
    }
}
