//! What a store can answer: done, refused, failed, or unknown.
//!
//! ```text
//!             the effect is ...        what follows
//! Done        there, durably           go on
//! Refused     not there: a condition   judge by reading
//! Failed      certainly not there      try again or give up
//! Unknown     perhaps there, or later  repeat until one of the others; delete nothing
//! ```
//!
//! Unknown is not failure (FLINK-22494, FLINK-28265): the request may still be on its way.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

/// The answer to one call of a store or a state backend.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Answer<T> {
    /// The effect is there and durable.
    Done(T),
    /// The call's condition did not hold: the name exists, or the compared tag differs.
    Refused,
    /// The effect is certainly not there and will not come.
    Failed(Failure),
    /// Nothing is known: the effect may be there, or may still come.
    Unknown(Failure),
}

impl<T> Answer<T> {
    /// The same answer with another value in `Done`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Done(value) => Answer::Done(change(value)),
            Self::Refused => Answer::Refused,
            Self::Failed(failure) => Answer::Failed(failure),
            Self::Unknown(failure) => Answer::Unknown(failure),
        }
    }
}

/// Trouble in the environment: what kind, and the first cause in words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What a caller can branch on.
    pub kind: FailureKind,
    /// The first cause, as the environment worded it, with the object or path it is about.
    pub cause: String,
}

impl Failure {
    /// A failure with its cause.
    pub fn new(kind: FailureKind, cause: impl Into<String>) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.cause)
    }
}

impl core::error::Error for Failure {}

/// The kinds of trouble that a caller can tell apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// The object or file is not there.
    NotFound,
    /// The object or file is there and may not be read or written.
    Denied,
    /// The device or quota is full.
    NoSpace,
    /// A file system that may only be read.
    ReadOnly,
    /// Too many open files, requests or connections; later may do.
    Exhausted,
    /// The store was slow, busy or out of reach; later may do.
    Unavailable,
    /// The call made no progress for longer than its deadline.
    Deadline,
    /// The content is not what was written: length, checksum or format differ.
    Corrupt,
    /// The object is larger than the store or the caller takes.
    TooLarge,
    /// The other side of a link or rename lies on another device.
    CrossDevice,
    /// The store or backend can't do this at all.
    Unsupported,
    /// The state's database has had a background error: what it holds may have lost its
    /// consistency, so nothing more is taken from it. It must be restored.
    Untrusted,
    /// The state was written to while its cut was taken: the caller's writers were not held.
    WritersNotHeld,
    /// The caller gave up.
    Cancelled,
    /// Anything else; the cause says what.
    Other,
}

impl FailureKind {
    /// Whether the same call may succeed later without anybody mending anything.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Self::Exhausted
            | Self::Unavailable
            | Self::Deadline
            | Self::NoSpace
            | Self::WritersNotHeld => true,
            Self::NotFound
            | Self::Denied
            | Self::ReadOnly
            | Self::Corrupt
            | Self::TooLarge
            | Self::CrossDevice
            | Self::Unsupported
            | Self::Untrusted
            | Self::Cancelled
            | Self::Other => false,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "not found",
            Self::Denied => "denied",
            Self::NoSpace => "no space",
            Self::ReadOnly => "read-only",
            Self::Exhausted => "exhausted",
            Self::Unavailable => "unavailable",
            Self::Deadline => "deadline passed",
            Self::Corrupt => "corrupt",
            Self::TooLarge => "too large",
            Self::CrossDevice => "on another device",
            Self::Unsupported => "unsupported",
            Self::Untrusted => "not to be trusted",
            Self::WritersNotHeld => "writers not held",
            Self::Cancelled => "cancelled",
            Self::Other => "failed",
        })
    }
}

/// What identifies the content of `CURRENT` to a compare-and-swap: an etag of an object store, a
/// checksum of a file. Opaque to the protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(pub String);

/// The size and checksum of a whole object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Digest {
    /// Length in bytes.
    pub size_bytes: u64,
    /// CRC-64/NVME of the content, the checksum that object stores verify themselves.
    pub checksum: Checksum,
}

/// A CRC-64/NVME.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Checksum(pub u64);

// Eight plain bytes: a variable-length integer would take ten.
impl Serialize for Checksum {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_le_bytes().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <[u8; 8]>::deserialize(deserializer).map(|bytes| Self(u64::from_le_bytes(bytes)))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
