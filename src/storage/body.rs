//! What goes into a store and what comes out of it: bodies, streams, digests and progress.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::protocol::answer::{Answer, Checksum, Digest, Failure, FailureKind};

/// How much is read or written at once, in bytes: large enough that a disk runs at its speed,
/// small enough that many transfers fit into memory.
pub const BLOCK_BYTES: usize = 1 << 20;

/// What a put stores. Its length is known before the first byte moves.
#[derive(Debug)]
pub enum Body {
    /// A small object that is in memory anyway.
    Bytes(Arc<[u8]>),
    /// A local file of exactly this length. A file that is shorter or longer is refused as
    /// [`FailureKind::Corrupt`] and never stored.
    File {
        /// Where it lies.
        path: PathBuf,
        /// The length it must have.
        size_bytes: u64,
    },
    /// Whatever comes in pieces, another store's object for one.
    Stream(Reader),
}

impl Body {
    /// The length of the object that this body makes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { size_bytes, .. } => *size_bytes,
            Self::Stream(reader) => reader.size_bytes(),
        }
    }

    /// The body in pieces, for a store that can do nothing better with a local file. The reader
    /// fails if a file turns out to have another length.
    pub async fn into_reader(self) -> Answer<Reader> {
        match self {
            Self::Bytes(bytes) => {
                let size_bytes = bytes.len() as u64;
                Answer::Done(Reader::new(size_bytes, Pieces { bytes, at: 0 }))
            }
            Self::File { path, size_bytes } => super::fs::local::open(path, size_bytes).await,
            Self::Stream(reader) => Answer::Done(reader),
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// The next piece of a stream, under way.
pub type NextChunk<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, Failure>> + Send + 'a>>;

/// The pieces of an object in order, each of at most about [`BLOCK_BYTES`]. What a store
/// implements; what is read from is a [`Reader`].
pub trait Chunks: Send {
    /// The next piece, or `None` after the last. Dropping the future loses at most that piece;
    /// the stream is not read on after a failure.
    fn next(&mut self) -> NextChunk<'_>;
}

/// A stream that delivers exactly as many bytes as it announced, or fails.
pub struct Reader {
    size_bytes: u64,
    missing_bytes: u64,
    ended: bool,
    chunks: Box<dyn Chunks>,
}

impl Reader {
    /// A reader of `size_bytes` bytes that come in these pieces.
    #[must_use]
    pub fn new(size_bytes: u64, chunks: impl Chunks + 'static) -> Self {
        Self {
            size_bytes,
            missing_bytes: size_bytes,
            ended: false,
            chunks: Box::new(chunks),
        }
    }

    /// A reader of bytes that are at hand.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self::new(bytes.len() as u64, Once(Some(bytes)))
    }

    /// How many bytes it delivers in all.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The next piece, never empty; `None` once all bytes are delivered.
    ///
    /// # Errors
    /// Whatever the store met; [`FailureKind::Corrupt`] when the stream ends early or goes on
    /// after its announced end. Such a reader is of no further use.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        while !self.ended {
            let Some(chunk) = self.chunks.next().await? else {
                self.ended = true;
                break;
            };
            let received = chunk.len() as u64;
            let Some(missing) = self.missing_bytes.checked_sub(received) else {
                return Err(self.wrong_length("goes on after"));
            };
            self.missing_bytes = missing;
            if received > 0 {
                return Ok(Some(chunk));
            }
        }
        if self.missing_bytes > 0 {
            return Err(self.wrong_length("ended before"));
        }
        Ok(None)
    }

    /// Everything that is left, in memory: for small objects.
    ///
    /// # Errors
    /// Those of [`Reader::next`].
    pub async fn read_to_end(&mut self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        while let Some(chunk) = self.next().await? {
            if all.is_empty() {
                all = chunk;
            } else {
                all.extend_from_slice(&chunk);
            }
        }
        Ok(all)
    }

    fn wrong_length(&self, what: &str) -> Failure {
        let cause = format!("the stream {what} its {} bytes", self.size_bytes);
        Failure::new(FailureKind::Corrupt, cause)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("size_bytes", &self.size_bytes)
            .field("missing_bytes", &self.missing_bytes)
            .finish_non_exhaustive()
    }
}

/// One piece, then the end.
struct Once(Option<Vec<u8>>);

impl Chunks for Once {
    fn next(&mut self) -> NextChunk<'_> {
        let chunk = self.0.take();
        Box::pin(async move { Ok(chunk) })
    }
}

/// Pieces of bytes that others hold as well.
struct Pieces {
    bytes: Arc<[u8]>,
    at: usize,
}

impl Chunks for Pieces {
    fn next(&mut self) -> NextChunk<'_> {
        let rest = &self.bytes[self.at..];
        let piece = rest[..rest.len().min(BLOCK_BYTES)].to_vec();
        self.at += piece.len();
        Box::pin(async move { Ok((!piece.is_empty()).then_some(piece)) })
    }
}

/// How far a transfer has come, in bytes. Clones share the count: the store counts up, whoever
/// watches for a standstill or draws a bar reads.
///
/// What is counted has been read and, where it is copied, handed to the store or file system; it
/// is durable only once the call answers.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Moved>);

#[derive(Debug, Default)]
struct Moved {
    bytes: AtomicU64,
    /// The queue that the call is in, or had its turn in.
    turn: Mutex<Option<Turn>>,
}

#[derive(Debug)]
struct Turn {
    /// Goes on whenever something moves that those who wait in the queue wait for.
    pulse: Arc<AtomicU64>,
    has_come: bool,
}

/// Differs from an earlier one if the transfer has moved since, or the queue in which it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    bytes: u64,
    queue: Option<u64>,
}

impl Progress {
    /// Counts bytes that have just moved.
    pub fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(turn) = &*self.0.turn.lock() {
            turn.pulse.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The bytes moved so far, over all tries that were given this value.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// What there is to compare with a later one: no difference is a standstill. Who waits for a turn
    /// stands still only if the whole queue does.
    #[must_use]
    pub fn movement(&self) -> Movement {
        let turn = self.0.turn.lock();
        let waiting = turn.as_ref().filter(|turn| !turn.has_come);
        Movement {
            bytes: self.bytes(),
            queue: waiting.map(|turn| turn.pulse.load(Ordering::Relaxed)),
        }
    }

    /// The call waits for its turn in a queue.
    pub(crate) fn waits(&self, pulse: &Arc<AtomicU64>) {
        let (pulse, has_come) = (Arc::clone(pulse), false);
        *self.0.turn.lock() = Some(Turn { pulse, has_come });
    }

    /// Its turn has come: by what it moves now, the queue moves.
    pub(crate) fn has_its_turn(&self) {
        if let Some(turn) = &mut *self.0.turn.lock() {
            turn.has_come = true;
        }
    }
}

/// Takes size and CRC-64/NVME of what passes by.
pub struct Digester {
    size_bytes: u64,
    checksum: crc64fast_nvme::Digest,
}

impl Digester {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            size_bytes: 0,
            checksum: crc64fast_nvme::Digest::new(),
        }
    }

    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        self.checksum.write(bytes);
    }

    /// Size and checksum of everything so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest {
            size_bytes: self.size_bytes,
            checksum: Checksum(self.checksum.sum64()),
        }
    }

    /// Size and checksum of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Digest {
        let mut digester = Self::new();
        digester.update(bytes);
        digester.digest()
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Digester").field(&self.digest()).finish()
    }
}

impl Default for Digester {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a received content is not the expected one, if so.
pub(super) fn mismatch(
    expected: Digest,
    found: Digest,
    what: impl fmt::Display,
) -> Option<Failure> {
    (expected != found).then(|| {
        let cause = format!(
            "{what} has {} bytes with checksum {}, recorded are {} bytes with checksum {}",
            found.size_bytes, found.checksum, expected.size_bytes, expected.checksum
        );
        Failure::new(FailureKind::Corrupt, cause)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The protocol takes its checksums with `crc`, the stores with `crc64fast-nvme`.
    #[test]
    fn both_checksum_libraries_agree() {
        let plain = crc::Crc::<u64>::new(&crc::CRC_64_NVME);
        assert_eq!(Digester::of(b"123456789").checksum.0, 0xae8b_1486_0a79_9888);
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
        for length in [0, 1, 7, 127, 128, 129, 1_000, 10_000] {
            let (head, tail) = bytes[..length].split_at(length / 3);
            let mut digester = Digester::new();
            digester.update(head);
            digester.update(tail);
            let digest = digester.digest();
            assert_eq!(digest.checksum.0, plain.checksum(&bytes[..length]));
            assert_eq!(digest.size_bytes, length as u64);
        }
    }

    struct Script(Vec<&'static [u8]>);

    impl Chunks for Script {
        fn next(&mut self) -> NextChunk<'_> {
            let next = (!self.0.is_empty()).then(|| self.0.remove(0).to_vec());
            Box::pin(async move { Ok(next) })
        }
    }

    #[tokio::test]
    async fn a_reader_delivers_what_it_announced() {
        let mut exact = Reader::new(3, Script(vec![b"a", b"", b"bc"]));
        assert_eq!(exact.read_to_end().await.unwrap(), b"abc");
        assert_eq!(exact.next().await, Ok(None));
        let mut empty = Reader::new(0, Script(vec![]));
        assert_eq!(empty.next().await, Ok(None));
    }

    #[tokio::test]
    async fn bytes_in_memory_come_in_pieces() {
        let bytes: Vec<u8> = (0..2 * BLOCK_BYTES + 3).map(|at| at as u8).collect();
        let Answer::Done(mut reader) = Body::from(bytes.clone()).into_reader().await else {
            panic!("they are at hand");
        };
        let (mut read, mut lengths) = (Vec::new(), Vec::new());
        while let Some(piece) = reader.next().await.unwrap() {
            lengths.push(piece.len());
            read.extend(piece);
        }
        assert_eq!(lengths, [BLOCK_BYTES, BLOCK_BYTES, 3]);
        assert_eq!(read, bytes);
    }

    /// Restate 3380: a download ended early without an error.
    #[tokio::test]
    async fn a_short_or_long_stream_fails() {
        for script in [
            vec![],
            vec![&b"ab"[..]],
            vec![b"ab", b"cd"],
            vec![b"abc", b"d"],
        ] {
            let mut reader = Reader::new(3, Script(script));
            let failure = reader.read_to_end().await.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Corrupt);
        }
    }
}
