//! How the library's own notes in a state's directory are written: each in a frame that shows whether
//! it is whole.
//!
//! ```text
//! frame   length u32 · CRC-64/NVME of the note u64 · note
//! ```
//! Numbers are little-endian, notes are `postcard`.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

const HEAD_BYTES: usize = 4 + 8;

/// A note in its frame.
pub(super) fn encode(note: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = postcard::to_allocvec(note).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(HEAD_BYTES + body.len());
    frame.extend(length.to_le_bytes());
    frame.extend(crc(&body).to_le_bytes());
    frame.extend(body);
    Ok(frame)
}

/// The note in the first frame, and what follows it; `None` if the frame is not whole.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (body, rest) = rest.split_at_checked(length)?;
    if crc(body) != u64::from_le_bytes(*checksum) {
        return None;
    }
    Some((postcard::from_bytes(body).ok()?, rest))
}

fn crc(bytes: &[u8]) -> u64 {
    let mut digest = crc64fast_nvme::Digest::new();
    digest.write(bytes);
    digest.sum64()
}
