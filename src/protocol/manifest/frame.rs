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

const VERSION_AT: usize = 8;
const KIND_AT: usize = 10;
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
    let mut framing = Framing::new(kind, body.len() as u64);
    framing.update(body);
    let mut object = Vec::with_capacity(body.len() + FRAME_BYTES);
    object.extend_from_slice(&framing.header());
    object.extend_from_slice(body);
    object
}

/// The header of an object whose body passes by in pieces and is never in memory as a whole.
#[derive(Clone)]
pub struct Framing {
    header: [u8; FRAME_BYTES],
    digest: crc::Digest<'static, u64, Table<16>>,
}

impl Framing {
    /// Begins an object of this kind, with a body of so many bytes.
    #[must_use]
    pub fn new(kind: Kind, body_bytes: u64) -> Self {
        let mut header = [0; FRAME_BYTES];
        header[..VERSION_AT].copy_from_slice(&MAGIC);
        header[VERSION_AT..KIND_AT].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[KIND_AT] = kind as u8;
        header[LENGTH_AT..CHECKSUM_AT].copy_from_slice(&body_bytes.to_le_bytes());
        let mut digest = CRC_64.digest();
        digest.update(&header[..CHECKSUM_AT]);
        Self { header, digest }
    }

    /// Takes the next piece of the body in.
    pub fn update(&mut self, piece: &[u8]) {
        self.digest.update(piece);
    }

    /// The header, once the whole body has passed by.
    #[must_use]
    pub fn header(self) -> [u8; FRAME_BYTES] {
        let Self { mut header, digest } = self;
        header[CHECKSUM_AT..].copy_from_slice(&digest.finalize().to_le_bytes());
        header
    }
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
    let mut digest = CRC_64.digest();
    digest.update(&object[..CHECKSUM_AT]);
    digest.update(&object[FRAME_BYTES..]);
    object[CHECKSUM_AT..FRAME_BYTES].copy_from_slice(&digest.finalize().to_le_bytes());
}

/// Takes a body out of its frame, checking everything.
///
/// # Errors
/// Why it is no whole, undamaged object of this kind and of a format version that is known.
pub fn unframe(kind: Kind, object: &[u8]) -> Result<&[u8], DecodeError> {
    let mut unframing = Unframing::new(object, object.len() as u64)?;
    let body = object.get(FRAME_BYTES..).unwrap_or_default();
    unframing.update(body);
    unframing.finish(kind)?;
    Ok(body)
}

/// Checks an object that is read in pieces, as [`unframe`] does one in memory.
#[derive(Clone)]
pub struct Unframing {
    header: [u8; FRAME_BYTES],
    digest: crc::Digest<'static, u64, Table<16>>,
}

impl Unframing {
    /// Begins with an object's first bytes, of which [`FRAME_BYTES`] are looked at, and its length.
    ///
    /// # Errors
    /// Why no object begins so and is that long.
    pub fn new(first: &[u8], object_bytes: u64) -> Result<Self, DecodeError> {
        if first.is_empty() {
            return Err(DecodeError::Empty);
        }
        let begins = first.starts_with(&MAGIC) || MAGIC.starts_with(first);
        if !begins {
            return Err(DecodeError::Magic);
        }
        let found_bytes = object_bytes;
        let truncated = |needed_bytes| DecodeError::Truncated {
            needed_bytes,
            found_bytes,
        };
        let Some(header) = first.first_chunk::<FRAME_BYTES>() else {
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
        let mut digest = CRC_64.digest();
        digest.update(&header[..CHECKSUM_AT]);
        let header = *header;
        Ok(Self { header, digest })
    }

    /// Takes the next piece of the body in.
    pub fn update(&mut self, piece: &[u8]) {
        self.digest.update(piece);
    }

    /// Checks the rest, once the whole body has passed by.
    ///
    /// # Errors
    /// As [`unframe`].
    pub fn finish(self, kind: Kind) -> Result<(), DecodeError> {
        let header = &self.header;
        let stored = Checksum(number_at(header, CHECKSUM_AT));
        let computed = Checksum(self.digest.finalize());
        if stored != computed {
            return Err(DecodeError::Checksum { stored, computed });
        }
        let found = u16::from_le_bytes([header[VERSION_AT], header[VERSION_AT + 1]]);
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
        if header[KIND_AT] != kind as u8 || header[KIND_AT + 1] != 0 {
            return Err(DecodeError::Kind {
                expected: kind,
                found: header[KIND_AT],
            });
        }
        Ok(())
    }
}

fn number_at(header: &[u8; FRAME_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}
