//! Manifest objects as bytes: `postcard` in a [frame](super::frame).
//!
//! Invariant: a value has one encoding. A decoded object is encoded again and compared with what
//! was read, so that lists out of order, doubled keys and padded numbers are refused wherever they
//! stand.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{Kind, begin, seal, unframe};
use super::validate::ManifestDamage;
use super::{Facts, Manifest, Record};
use crate::protocol::answer::Checksum;

/// Why bytes are no object of the expected kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There are no bytes at all.
    #[error("it is empty")]
    Empty,
    /// It does not begin as an object of this protocol does.
    #[error("it is no object of this protocol")]
    Magic,
    /// It is shorter than it says.
    #[error("it is cut short: {found_bytes} bytes of {needed_bytes}")]
    Truncated {
        /// How long it should be.
        needed_bytes: u64,
        /// How long it is.
        found_bytes: u64,
    },
    /// It is longer than it says.
    #[error("{extra_bytes} bytes follow its end")]
    Trailing {
        /// How much longer.
        extra_bytes: u64,
    },
    /// It is longer than the limits allow.
    #[error("it has {found_bytes} bytes, more than the limit of {limit_bytes}")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
        /// Its length.
        found_bytes: u64,
    },
    /// Its content is not what was written.
    #[error("its checksum is {computed}, not {stored}")]
    Checksum {
        /// What it says.
        stored: Checksum,
        /// What it has.
        computed: Checksum,
    },
    /// A newer release wrote it.
    #[error("it has format {found}; this release reads up to {newest_known}")]
    NewerFormat {
        /// Its format version.
        found: u16,
        /// The newest that this release reads.
        newest_known: u16,
    },
    /// No release wrote such a format.
    #[error("it has format {found}, which never was")]
    UnknownFormat {
        /// Its format version.
        found: u16,
    },
    /// It is another kind of object.
    #[error("it is an object of kind {found}, not {expected}")]
    Kind {
        /// What was expected.
        expected: Kind,
        /// The kind's number in the object.
        found: u8,
    },
    /// Its body can't be read.
    #[error("its body is wrong at byte {offset}: {reason}")]
    Body {
        /// Where in the body reading ended.
        offset: usize,
        /// What is wrong there.
        reason: String,
    },
    /// Its body is not the one encoding of what it says.
    #[error("its body is not in canonical form at byte {offset}")]
    NotCanonical {
        /// Where in the body the encodings differ.
        offset: usize,
    },
    /// What it says can't be.
    #[error("it contradicts itself: {0}")]
    Contradiction(String),
}

/// Encodes a value in a frame of its kind.
pub(super) fn encode<T: Serialize>(kind: Kind, value: &T) -> Vec<u8> {
    let mut object = Vec::new();
    begin(&mut object, kind);
    match postcard::to_extend(value, object) {
        Ok(mut object) => {
            seal(&mut object);
            object
        }
        Err(error) => panic!("{kind} can't be encoded: {error}"),
    }
}

/// Decodes a value from a frame of its kind.
pub(super) fn decode<T: Serialize + DeserializeOwned>(
    kind: Kind,
    object: &[u8],
) -> Result<T, DecodeError> {
    let body = unframe(kind, object)?;
    let mut deserializer = postcard::Deserializer::from_bytes(body);
    let value = T::deserialize(&mut deserializer);
    let rest = deserializer.finalize().unwrap_or_default().len();
    let offset = body.len() - rest;
    let value = value.map_err(|error| DecodeError::Body {
        offset,
        reason: error.to_string(),
    })?;
    if rest != 0 {
        let reason = "more follows".to_string();
        return Err(DecodeError::Body { offset, reason });
    }
    let mut offset = 0;
    let compared = Compared {
        body,
        offset: &mut offset,
    };
    let same = postcard::serialize_with_flavor(&value, compared).unwrap_or(false);
    if !same {
        return Err(DecodeError::NotCanonical { offset });
    }
    Ok(value)
}

/// Compares what is encoded with what was read, without keeping it.
struct Compared<'a> {
    body: &'a [u8],
    /// How far both are the same.
    offset: &'a mut usize,
}

impl Flavor for Compared<'_> {
    type Output = bool;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if self.body[*self.offset..].starts_with(bytes) {
            *self.offset += bytes.len();
            Ok(())
        } else {
            Err(postcard::Error::SerializeBufferFull)
        }
    }

    fn finalize(self) -> postcard::Result<bool> {
        Ok(*self.offset == self.body.len())
    }
}

impl Record {
    /// The record as an object of the store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(Kind::Record, self)
    }

    /// Reads a record. Whether it fits a manifest, [`Manifest::apply`] says.
    ///
    /// # Errors
    /// When the bytes are no record.
    pub fn decode(object: &[u8]) -> Result<Self, DecodeError> {
        decode(Kind::Record, object)
    }
}

impl Manifest {
    /// The whole manifest as an object of the store.
    #[must_use]
    pub fn encode_snapshot(&self) -> Vec<u8> {
        encode(Kind::Snapshot, &self.facts)
    }

    /// Reads a whole manifest and checks every invariant of it.
    ///
    /// # Errors
    /// When the bytes are no manifest, or one that can't be.
    pub fn decode_snapshot(object: &[u8]) -> Result<Self, DecodeError> {
        let facts: Facts = decode(Kind::Snapshot, object)?;
        let attempts = facts.attempts.iter();
        let subtasks: BTreeMap<_, _> = attempts
            .map(|(subtask, attempt)| (*attempt, *subtask))
            .collect();
        let manifest = Self { facts, subtasks };
        let contradiction = |damage: ManifestDamage| DecodeError::Contradiction(damage.to_string());
        manifest.validate().map_err(contradiction)?;
        Ok(manifest)
    }
}
