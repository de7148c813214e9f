//! Whose a state's directory is, and where what lies in it has come from.
//!
//! ```text
//!                  nothing in it ──attach──> Made ───────────────┐
//!  first start ──> Nothing                                       ├─restore─> Filling ──> Restored
//!                  something in it ──attach, adopt──> Adopted ───┘  (adopted: not before one of
//!                                                                   its checkpoints is complete)
//! ```
//! A restore removes whatever is not in its checkpoint. So it has to know, durably, that what lies in
//! the directory is to be had again: from the store, or from the source of a state that began with
//! nothing. What the library did not see come into being may be the only copy there is, and so may a
//! database of another identity than the one that was noted, which was moved in since. It is removed
//! only if the caller says so.
//!
//! Invariants: the note is on disk before anything is done that it allows; a note that can't be
//! understood allows nothing; that something is missing allows nothing.
//!
//! What it does not do: tell apart two databases of one identity, of which one is a copy of the other,
//! or two that have none.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::entries::found;
use super::{DATABASE, DirectoryError, Existing, books};
use crate::protocol::answer::Failure;
use crate::protocol::id::{Epoch, RootId};
use crate::state::{framed, unlinked};

/// What the file begins with, for whoever looks into it.
const TEXT: &[u8] = b"This directory belongs to stillpoint, all of it: a restore removes what is not in the checkpoint.\n";
const FORMAT: u32 = 2;
/// Far more than the longest name of a participant needs.
const BYTES_MAX: u64 = 1 << 16;

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

/// Where what lies in the directory has come from. The bytes are the [identity](books::identity) of a
/// database: with another one, or none, the note says nothing about what lies there now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Origin {
    /// There was nothing in it. Whatever has come since, the library did not see come.
    Nothing,
    /// The holder of this epoch attached what was there before. It may be the only copy until one of
    /// its checkpoints is complete.
    Adopted(Epoch, Vec<u8>),
    /// A state was attached when nothing was in it: all that it holds comes again from its source.
    Made(Vec<u8>),
    /// A checkpoint is to be put in the place of what was there, which was allowed to go.
    Filling(Vec<u8>),
    /// A checkpoint, or what was made of one: all of it is in the store or comes from the source.
    /// Without an identity if it is a database whose MANIFEST has none, and that was not opened yet.
    Restored(Option<Vec<u8>>),
    /// It is being removed.
    Clearing(Vec<u8>),
}

impl Origin {
    /// Whether all that lies in a directory with this note may be removed: the participant's last
    /// checkpoint, if there is one, was completed in the epoch `completed_in`.
    pub(super) fn allows_removal(
        &self,
        directory: &Path,
        completed_in: Option<Epoch>,
    ) -> Result<bool, Failure> {
        let is = |noted: &Vec<u8>| *noted == books::identity(directory);
        // Whatever makes a database of the directory goes first and comes last.
        let is_half = || Ok::<_, Failure>(found(&directory.join(DATABASE))?.is_none());
        Ok(match self {
            Self::Nothing => false,
            Self::Made(noted) => is(noted),
            // The note that it is stored comes after the checkpoint.
            Self::Adopted(epoch, noted) => completed_in == Some(*epoch) && is(noted),
            Self::Restored(noted) => completed_in.is_some() && noted.as_ref().is_none_or(is),
            // It may be complete and not be noted so. Nobody has opened it then.
            Self::Filling(before) => {
                let is_unopened = || books::named(directory).is_none();
                completed_in.is_some() && (is_half()? || is(before) || is_unopened())
            }
            Self::Clearing(before) => is_half()? || is(before),
        })
    }
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
