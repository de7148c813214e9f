//! The pack: everything of one snapshot that is not a state file, in one private file.
//!
//! ```text
//! frame   as every durable object has it, of the kind `Pack`: magic, format, length, checksum
//! body    number of entries u32, then for each:  length of the name u16 · length u64 · name · bytes
//! ```
//! Numbers are little-endian. The order of the entries is the order in which a restore writes them
//! back; the last one goes in only after all the others, and every directory, are on disk: for
//! RocksDB that is `CURRENT`, without which nobody takes the directory for a database.
//!
//! ```text
//! bytes, open files ──push──> Pack ──write──> a file, bytes ──open──> StoredPack ──unpack──> directory
//! ```
//! A pack may be larger than memory: what comes from files is copied piece by piece, and unpacked
//! so.
//!
//! Invariants: [`StoredPack::open`] takes exactly what [`Pack::write`] gives, the checksum included,
//! before anything of it is used; it needs memory for the names alone, and never panics; no entry
//! leads out of the directory, or into the folder in it that is the library's own.
//!
//! It knows nothing of any backend: a checkpoint is unpacked without RocksDB.

mod read;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::failure::failed;
use super::{is_own, unlinked};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::{BadLocalName, LocalName};
use crate::protocol::manifest::{DecodeError, FRAME_BYTES, Framing, Kind};

pub use self::read::{StoredEntry, StoredPack};

/// The name under which a snapshot lists its pack among its files. The pack itself is never
/// written among a state's own files.
pub const PACK_NAME: &str = "stillpoint.pack";

const ENTRY_BYTES_MIN: usize = 2 + 8;
/// How much is in memory of what is copied.
const PIECE_BYTES: usize = 1 << 16;

/// Named contents in the order in which a restore writes them back.
#[derive(Debug, Default)]
pub struct Pack {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: LocalName,
    size_bytes: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    /// The first bytes of it, from where it stands; the path is what errors speak of.
    File(File, PathBuf),
}

/// Why bytes are no pack that this crate can read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// It is not in the frame of a pack, or not undamaged.
    #[error(transparent)]
    Frame(#[from] DecodeError),
    /// A length in it does not fit the bytes there are.
    #[error("the pack is cut short or has a wrong length at {place}")]
    Length {
        /// Where.
        place: &'static str,
    },
    /// An entry's name is none for a local file.
    #[error("the pack has an entry with a bad name: {0}")]
    Name(#[from] BadLocalName),
    /// An entry's name leads into the library's own folder.
    #[error("the pack has an entry {name}, in the library's own folder")]
    Own {
        /// The name.
        name: LocalName,
    },
    /// It can't be read.
    #[error(transparent)]
    Unreadable(#[from] Failure),
    /// Two entries have the same name.
    #[error("the pack has two entries named {name}")]
    Twice {
        /// The name.
        name: LocalName,
    },
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        let kind = match error {
            PackError::Unreadable(failure) => return failure,
            PackError::Frame(DecodeError::NewerFormat { .. }) => FailureKind::Unsupported,
            PackError::Frame(_)
            | PackError::Length { .. }
            | PackError::Name(_)
            | PackError::Own { .. }
            | PackError::Twice { .. } => FailureKind::Corrupt,
        };
        Self::new(kind, error.to_string())
    }
}

impl Pack {
    /// A pack without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry of these bytes after those that are there.
    ///
    /// # Errors
    /// When an entry has that name already, or no entry may have it.
    pub fn push(&mut self, name: LocalName, bytes: Vec<u8>) -> Result<(), PackError> {
        let size_bytes = bytes.len() as u64;
        self.add(name, size_bytes, Content::Bytes(bytes))
    }

    /// Adds an entry of the first bytes of a file, which is read when the pack is written: it may
    /// grow until then, and is read no further. Nothing before its end may change.
    ///
    /// # Errors
    /// As [`push`](Self::push), and when the file can't be opened.
    pub fn push_file(
        &mut self,
        name: LocalName,
        path: &Path,
        size_bytes: u64,
    ) -> Result<(), PackError> {
        let file = unlinked::open(File::options().read(true), path)
            .map_err(|error| failed(&error, format_args!("reading {}", path.display())))?;
        self.add(name, size_bytes, Content::File(file, path.to_owned()))
    }

    fn add(&mut self, name: LocalName, size_bytes: u64, content: Content) -> Result<(), PackError> {
        if is_own(&name) {
            return Err(PackError::Own { name });
        }
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(PackError::Twice { name });
        }
        self.entries.push(Entry {
            name,
            size_bytes,
            content,
        });
        Ok(())
    }

    /// How long the pack is as it is stored.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        FRAME_BYTES as u64 + self.body_bytes()
    }

    fn body_bytes(&self) -> u64 {
        let entry =
            |entry: &Entry| (ENTRY_BYTES_MIN + entry.name.as_str().len()) as u64 + entry.size_bytes;
        4 + self.entries.iter().map(entry).sum::<u64>()
    }

    /// Writes the pack as it is stored, from the beginning of `to`, which holds nothing yet.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path that is read; [`FailureKind::Corrupt`] for a
    /// file that is shorter than was said.
    pub fn write(self, to: impl Write + Seek) -> Result<(), Failure> {
        let failed = |error| failed(&error, "writing a pack");
        let mut body = Body {
            framing: Framing::new(Kind::Pack, self.body_bytes()),
            to,
        };
        // The checksum stands before what it is of.
        body.to.write_all(&[0; FRAME_BYTES]).map_err(failed)?;
        let count = (self.entries.len() as u32).to_le_bytes();
        body.write_all(&count).map_err(failed)?;
        for entry in self.entries {
            let name = entry.name.as_str().as_bytes();
            let mut head = (name.len() as u16).to_le_bytes().to_vec();
            head.extend(entry.size_bytes.to_le_bytes());
            head.extend(name);
            body.write_all(&head).map_err(failed)?;
            match entry.content {
                Content::Bytes(bytes) => body.write_all(&bytes).map_err(failed)?,
                Content::File(file, path) => body.copy(&file, &path, entry.size_bytes)?,
            }
        }
        let Body { framing, mut to } = body;
        to.seek(SeekFrom::Start(0)).map_err(failed)?;
        to.write_all(&framing.header()).map_err(failed)
    }

    /// The pack as it is stored, in memory: for a small one.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn encode(self) -> Result<Vec<u8>, Failure> {
        let size_bytes = usize::try_from(self.size_bytes()).unwrap_or(0);
        let mut stored = Vec::with_capacity(size_bytes);
        self.write(Cursor::new(&mut stored))?;
        Ok(stored)
    }
}

/// Where a body goes, its checksum taken on the way.
struct Body<W> {
    framing: Framing,
    to: W,
}

impl<W: Write> Body<W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.framing.update(bytes);
        self.to.write_all(bytes)
    }

    fn copy(&mut self, mut from: &File, path: &Path, size_bytes: u64) -> Result<(), Failure> {
        let copying = |error| failed(&error, format_args!("packing {}", path.display()));
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = size_bytes;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let read = match from.read(&mut piece[..wanted]) {
                Ok(0) => {
                    let found = size_bytes - left;
                    let path = path.display();
                    let cause = format!("{path} has {found} bytes, {size_bytes} were listed");
                    return Err(Failure::new(FailureKind::Corrupt, cause));
                }
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(copying(error)),
            };
            self.write_all(&piece[..read]).map_err(copying)?;
            left -= read as u64;
        }
        Ok(())
    }
}
