//! The frame around every object of the manifest.
//!
//! ```text
//! offset  bytes
//!  0       8     magic
//!  8       2     format version, little-endian
//! 10       1     kind
//! 11       1     0
//! 12       8     length of the body, little-endian
//! 20       8     CRC-64/NVME of the 20 bytes before and the body, little-endian
//! 28       n     body
//! ```
//!
//! The checksum stands before the body: behind it, the CRC of every whole object would be the same
//! number, and a store whose tags are checksums could not tell one `CURRENT` from another.
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
pub const FRAME_BYTES: usize = 28;

const LENGTH_AT: usize = 12;
const CHECKSUM_AT: usize = 20;

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
    /// A pack: everything of one snapshot that is not a state file.
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
    seal(&mut object);
    object
}

/// Writes a header whose length and checksum are filled in by [`seal`].
pub(super) fn begin(object: &mut Vec<u8>, kind: Kind) {
    object.extend_from_slice(&MAGIC);
    object.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    object.extend_from_slice(&[kind as u8, 0]);
    object.resize(FRAME_BYTES, 0);
}

/// Fills in the length and the checksum.
pub(super) fn seal(object: &mut [u8]) {
    let length = (object.len() - FRAME_BYTES) as u64;
    object[LENGTH_AT..CHECKSUM_AT].copy_from_slice(&length.to_le_bytes());
    let sealed = sum(object);
    object[CHECKSUM_AT..FRAME_BYTES].copy_from_slice(&sealed.0.to_le_bytes());
}

fn sum(object: &[u8]) -> Checksum {
    let mut digest = CRC_64.digest();
    digest.update(&object[..CHECKSUM_AT]);
    digest.update(&object[FRAME_BYTES..]);
    Checksum(digest.finalize())
}

/// Takes a body out of its frame, checking everything.
///
/// # Errors
/// Why it is no whole, undamaged object of this kind and of a format version that is known.
pub fn unframe(kind: Kind, object: &[u8]) -> Result<&[u8], DecodeError> {
    if object.is_empty() {
        return Err(DecodeError::Empty);
    }
    let begins = object.starts_with(&MAGIC) || MAGIC.starts_with(object);
    if !begins {
        return Err(DecodeError::Magic);
    }
    let found_bytes = object.len() as u64;
    let truncated = |needed_bytes| DecodeError::Truncated {
        needed_bytes,
        found_bytes,
    };
    let Some((header, body)) = object.split_first_chunk::<FRAME_BYTES>() else {
        return Err(truncated(FRAME_BYTES as u64));
    };
    let needed_bytes = number_at(header, LENGTH_AT).saturating_add(FRAME_BYTES as u64);
    if found_bytes < needed_bytes {
        return Err(truncated(needed_bytes));
    }
    if found_bytes > needed_bytes {
        let extra_bytes = found_bytes - needed_bytes;
        return Err(DecodeError::Trailing { extra_bytes });
    }
    let stored = Checksum(number_at(header, CHECKSUM_AT));
    let computed = sum(object);
    if stored != computed {
        return Err(DecodeError::Checksum { stored, computed });
    }
    let found = u16::from_le_bytes([header[8], header[9]]);
    if found > FORMAT_VERSION {
        let newest_known = FORMAT_VERSION;
        return Err(DecodeError::NewerFormat {
            found,
            newest_known,
        });
    }
    if found == 0 {
        return Err(DecodeError::UnknownFormat { found });
    }
    if header[10] != kind as u8 || header[11] != 0 {
        return Err(DecodeError::Kind {
            expected: kind,
            found: header[10],
        });
    }
    Ok(body)
}

fn number_at(header: &[u8; FRAME_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}
