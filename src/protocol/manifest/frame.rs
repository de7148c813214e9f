//! The frame around every durable object that this protocol writes.
//!
//! ```text
//! offset  bytes
//!  0       8     magic
//!  8       2     format version, little-endian
//! 10       1     kind
//! 11       1     0
//! 12       8     length of the body, little-endian
//! 20       n     body
//! 20+n     8     CRC-64/NVME of all before, little-endian
//! ```
//!
//! The frame itself is the same for ever; the format version speaks of the body. So a reader can
//! tell a newer object, which it refuses by name, from a damaged one.
//!
//! Invariant: an object decodes only if it is exactly as long as it says, to the byte.

use alloc::vec::Vec;

use crc::{CRC_64_NVME, Crc, Table};

use super::codec::DecodeError;
use crate::protocol::answer::Checksum;

/// The first bytes of every framed object. Not text, so that no text is taken for one.
const MAGIC: [u8; 8] = *b"\xd5STILLPT";
/// The format version that this crate writes.
pub const FORMAT_VERSION: u16 = 1;
/// What the frame adds to a body.
pub const FRAME_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;

const HEADER_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 8;

static CRC_64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// What kind of object a frame holds. Numbers are the format's and never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// `CURRENT`.
    Current = 1,
    /// A record of the manifest.
    Record = 2,
    /// A whole manifest.
    Snapshot = 3,
    /// A pack of a state backend.
    Pack = 4,
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Current => "CURRENT",
            Self::Record => "a manifest record",
            Self::Snapshot => "a manifest snapshot",
            Self::Pack => "a pack",
        })
    }
}

/// The CRC-64/NVME of some bytes.
#[must_use]
pub fn checksum(bytes: &[u8]) -> Checksum {
    Checksum(CRC_64.checksum(bytes))
}

/// Puts a body into its frame.
#[must_use]
pub fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(body.len() + FRAME_BYTES);
    begin(&mut object, kind);
    object.extend_from_slice(body);
    finish(object)
}

/// Writes a header whose length is filled in by [`finish`].
pub(super) fn begin(object: &mut Vec<u8>, kind: Kind) {
    object.extend_from_slice(&MAGIC);
    object.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    object.extend_from_slice(&[kind as u8, 0]);
    object.extend_from_slice(&[0; 8]);
}

pub(super) fn finish(mut object: Vec<u8>) -> Vec<u8> {
    let length = (object.len() - HEADER_BYTES) as u64;
    object[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&object);
    object.extend_from_slice(&checksum.0.to_le_bytes());
    object
}

/// Takes a body out of its frame, checking everything.
///
/// # Errors
/// Why it is no whole, undamaged object of this kind and of a format version that is known.
pub fn unframe(kind: Kind, object: &[u8]) -> Result<&[u8], DecodeError> {
    if object.is_empty() {
        return Err(DecodeError::Empty);
    }
    let truncated = |needed_bytes| DecodeError::Truncated {
        needed_bytes,
        found_bytes: object.len() as u64,
    };
    if object.get(..MAGIC.len()) != Some(&MAGIC) {
        if MAGIC.starts_with(object) {
            return Err(truncated(FRAME_BYTES as u64));
        }
        return Err(DecodeError::Magic);
    }
    let Some((header, rest)) = object.split_first_chunk::<HEADER_BYTES>() else {
        return Err(truncated(FRAME_BYTES as u64));
    };
    let mut length = [0; 8];
    length.copy_from_slice(&header[12..]);
    let length = u64::from_le_bytes(length);
    let needed = length.saturating_add(FRAME_BYTES as u64);
    let found = object.len() as u64;
    if found < needed {
        return Err(truncated(needed));
    }
    if found > needed {
        return Err(DecodeError::Trailing {
            extra_bytes: found - needed,
        });
    }
    let Some((body, stored)) = rest.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(truncated(needed));
    };
    let stored = Checksum(u64::from_le_bytes(*stored));
    let computed = checksum(&object[..object.len() - CHECKSUM_BYTES]);
    if stored != computed {
        return Err(DecodeError::Checksum { stored, computed });
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    if version > FORMAT_VERSION {
        return Err(DecodeError::NewerFormat {
            found: version,
            newest_known: FORMAT_VERSION,
        });
    }
    if version == 0 {
        return Err(DecodeError::UnknownFormat { found: version });
    }
    if header[10] != kind as u8 || header[11] != 0 {
        return Err(DecodeError::Kind {
            expected: kind,
            found: header[10],
        });
    }
    Ok(body)
}
