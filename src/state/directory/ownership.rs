//! Whose a state's directory is, and where what lies in it has come from.
//!
//! ```text
//!                  nothing in it ──attach──> Made ───────────────┐
//!  first start ──> Nothing                                       ├──restore──> Restored
//!                  something in it ──attach, adopt──> Adopted ───┘  (adopted: not before one of
//!                                                                   its checkpoints is complete)
//! ```
//! A restore removes whatever is not in its checkpoint. So it has to know, durably, that what lies in
//! the directory is to be had again: from the store, or from the source of a state that began with
//! nothing. What the library did not see come into being may be the only copy there is. It is
//! removed only if the caller says so.
//!
//! Invariants: the note is on disk before anything is done that it allows; a note that can't be
//! understood allows nothing.
//!
//! What it does not do: tell apart two databases where there is no `IDENTITY`, which RocksDB gives to
//! each that it makes.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{DirectoryError, Existing};
use crate::protocol::id::{Epoch, RootId};
use crate::state::{framed, unlinked};

/// What the file begins with, for whoever looks into it.
const TEXT: &[u8] = b"This directory belongs to stillpoint, all of it: a restore removes what is not in the checkpoint.\n";
const FORMAT: u32 = 1;
/// Far more than the longest name of a participant needs.
const BYTES_MAX: u64 = 1 << 16;
/// RocksDB's name for the file with a database's own, random one.
const IDENTITY: &str = "IDENTITY";
const IDENTITY_BYTES_MAX: u64 = 1 << 10;
/// The files in which RocksDB keeps its books, and how the names of others begin. A key or a value is
/// in none of them.
const BOOKS: [&str; 4] = ["CURRENT", IDENTITY, "LOCK", "LOG"];
const BOOKS_BEGIN: [&str; 3] = ["LOG.old.", "MANIFEST-", "OPTIONS-"];

/// Whose state lies in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// The participant's part of its repository.
    pub root: RootId,
    /// The participant's name.
    pub participant: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "participant {:?} (root {})", self.participant, self.root)
    }
}

/// Where what lies in the directory has come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Origin {
    /// There was nothing in it. Whatever has come since, the library did not see come.
    Nothing,
    /// The holder of this epoch attached what was there before. It may be the only copy until one of
    /// its checkpoints is complete.
    Adopted(Epoch),
    /// A state was attached when nothing was in it: all that it holds comes again from its source.
    /// The bytes are those of its `IDENTITY`.
    Made(Vec<u8>),
    /// A checkpoint, or what was made of one: all of it is in the store or comes from the source.
    Restored,
    /// It is being removed.
    Clearing,
}

/// The note, as it lies on disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Ownership {
    pub(super) owner: Owner,
    pub(super) origin: Origin,
}

impl Ownership {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = TEXT.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(framed::encode(self)?);
        Ok(bytes)
    }

    /// Reads the note; what is wrong with it, in words.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let bytes = unlinked::read(path, BYTES_MAX).map_err(|error| error.to_string())?;
        let rest = bytes
            .strip_prefix(TEXT)
            .ok_or_else(|| "it is not this library's".to_owned())?;
        let (format, rest) = rest
            .split_first_chunk()
            .ok_or_else(|| "it does not say whose the directory is".to_owned())?;
        let format = u32::from_le_bytes(*format);
        if format != FORMAT {
            return Err(format!("format {format} is not known"));
        }
        match framed::decode(rest) {
            Some((note, [])) => Ok(note),
            Some(_) | None => Err("it is damaged".to_owned()),
        }
    }
}

/// Where what lies in a directory of ours has come from, if it is this owner's.
pub(super) fn whose(
    path: &Path,
    mark: &Path,
    owner: &Owner,
    existing: Existing,
) -> Result<Origin, DirectoryError> {
    let noted = Ownership::read(mark);
    if existing == Existing::Replaced && noted.as_ref().map_or(true, |noted| noted.owner != *owner)
    {
        return Ok(Origin::Nothing);
    }
    let path = path.to_owned();
    match noted {
        Err(cause) => Err(DirectoryError::UnreadableMark { path, cause }),
        Ok(noted) if noted.owner != *owner => Err(DirectoryError::AnotherOwner {
            path,
            found: noted.owner,
            wanted: owner.clone(),
        }),
        Ok(noted) => Ok(noted.origin),
    }
}

/// The random name that RocksDB gave to the database in a directory. Empty where there is none.
pub(super) fn identity(directory: &Path) -> Vec<u8> {
    unlinked::read(&directory.join(IDENTITY), IDENTITY_BYTES_MAX).unwrap_or_default()
}

/// A file below a directory in which there may be something of worth: it has content, and is not one
/// of the books of a database in which nothing was ever written. What has a name of `passed_over` is
/// not looked at.
pub(super) fn something_of_worth(
    directory: &Path,
    passed_over: &[&str],
) -> io::Result<Option<String>> {
    let is_book = |name: &str| {
        BOOKS.contains(&name) || BOOKS_BEGIN.iter().any(|begin| name.starts_with(begin))
    };
    first_with_content(directory, &|name| {
        passed_over.contains(&name) || is_book(name)
    })
}

/// The first file in a folder, however deep, that has content or is no file.
fn first_with_content(
    folder: &Path,
    passed_over: &dyn Fn(&str) -> bool,
) -> io::Result<Option<String>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    for name in names {
        let shown = name.to_string_lossy();
        if passed_over(&shown) {
            continue;
        }
        let path = folder.join(&name);
        let below = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                first_with_content(&path, &|_| false)?.map(|below| format!("{shown}/{below}"))
            }
            Ok(found) => (!found.is_file() || found.len() > 0).then(|| shown.to_string()),
            // A database deletes its logs when it comes to it.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if below.is_some() {
            return Ok(below);
        }
    }
    Ok(None)
}
