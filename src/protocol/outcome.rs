//! What a machine says of an event it was given: taken, or ignored and why.
//!
//! A late, doubled or stale message is not an error: networks and restarts make them all the time.
//! It is a fact, with a name, that a driver can count.

use core::fmt;

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "an ignored event is a fact worth counting"]
pub enum Outcome {
    /// The machine took it into account.
    Accepted,
    /// The machine's future is the same as without it.
    Ignored(Ignored),
}

/// Why an event changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Ignored {
    /// It comes from an epoch that has been superseded.
    StaleEpoch,
    /// It comes from an attempt that the manifest does not name (any more).
    UnknownAttempt,
    /// It speaks of a checkpoint that is not pending: aborted, completed, or never triggered.
    UnknownCheckpoint,
    /// It was taken before.
    Duplicate,
    /// It answers a call that nobody waits for.
    UnknownToken,
    /// The machine does not lead (yet, or any more).
    NotLeading,
    /// The machine has come to its end.
    Finished,
    /// It asks for what is already so.
    AlreadySo,
    /// It speaks of a request that is not waiting.
    UnknownRequest,
    /// It was never meant for this kind of machine.
    NotAddressed,
    /// It contradicts itself, or what is known for certain.
    Contradictory,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StaleEpoch => "from a superseded epoch",
            Self::UnknownAttempt => "from an attempt that the manifest does not name",
            Self::UnknownCheckpoint => "about a checkpoint that is not pending",
            Self::Duplicate => "taken before",
            Self::UnknownToken => "answers nothing that was asked",
            Self::NotLeading => "not leading",
            Self::Finished => "at its end",
            Self::AlreadySo => "already so",
            Self::UnknownRequest => "about a request that is not waiting",
            Self::NotAddressed => "for another kind of machine",
            Self::Contradictory => "contradicts what is known",
        })
    }
}
