//! What the machines ask of a store, and what it answers.
//!
//! Coordinators and guests share these calls, so a driver carries them out in one place. Uploads of
//! state files are the subtask's and stand there.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::answer::Tag;
use super::id::{FileName, ManifestName, ObjectName};

/// One call of a store. Every one is answered by exactly one `IoCompleted` with [`Self::token`], or
/// by a restart. Doing one twice is harmless.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StoreCall {
    /// Read an object whole. Answered with [`StorePayload::Content`].
    Read {
        /// `ReadCurrent`, `LookAtCurrent` or `ReadManifest`, which say what to read.
        token: StoreToken,
    },
    /// Put a manifest object, if the name is free. Answered with [`StoreToken::PutManifest`].
    Put {
        /// Its name.
        name: ManifestName,
        /// Its content.
        body: Vec<u8>,
    },
    /// Create `CURRENT` if there is none. Answered with [`StoreToken::Create`], as a swap.
    Create {
        /// Its content.
        body: Vec<u8>,
    },
    /// Swap `CURRENT` if it still has this tag. Answered with [`StoreToken::Swap`].
    Swap {
        /// The record that it commits.
        name: ManifestName,
        /// The tag of the content that it is based on.
        expected: Tag,
        /// The new content.
        body: Vec<u8>,
    },
    /// Delete a condemned file. Answered with [`StoreToken::DeleteFile`]; absent is done.
    DeleteFile {
        /// The file.
        name: FileName,
    },
    /// Delete a manifest object. Answered with [`StoreToken::DeleteManifest`]; absent is done.
    DeleteManifest {
        /// The object.
        name: ManifestName,
    },
    /// List a page of names. Answered with [`StoreToken::List`].
    List {
        /// What to list.
        listing: Listing,
        /// Where to go on.
        after: Option<String>,
        /// The most names to give.
        limit: usize,
    },
}

impl StoreCall {
    /// What the answer is to carry.
    #[must_use]
    pub fn token(&self) -> StoreToken {
        match self {
            Self::Read { token } => token.clone(),
            Self::Put { name, .. } => StoreToken::PutManifest(*name),
            Self::Create { .. } => StoreToken::Create,
            Self::Swap { name, .. } => StoreToken::Swap(*name),
            Self::DeleteFile { name } => StoreToken::DeleteFile(*name),
            Self::DeleteManifest { name } => StoreToken::DeleteManifest(*name),
            Self::List { listing, .. } => StoreToken::List(*listing),
        }
    }
}

/// What a `Done` brings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StorePayload {
    /// Nothing more: of a put or a delete.
    Nothing,
    /// The tag that `CURRENT` has now: of a swap.
    Swapped(Tag),
    /// An object's content, with its tag: of a read.
    Content {
        /// The whole object.
        bytes: Vec<u8>,
        /// Its tag.
        tag: Tag,
    },
    /// A page of names: of a listing.
    Page {
        /// The names, as the store gives them.
        names: Vec<String>,
        /// Where to go on; `None` at the end.
        next: Option<String>,
    },
}

/// Names the purpose of a call whose answer the machine waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StoreToken {
    /// [`StoreCall::Read`] of `CURRENT`.
    ReadCurrent,
    /// [`StoreCall::Read`] of `CURRENT`, only to learn who leads.
    LookAtCurrent,
    /// [`StoreCall::Read`] of a manifest object.
    ReadManifest(ManifestName),
    /// [`StoreCall::Put`] of a manifest object.
    PutManifest(ManifestName),
    /// [`StoreCall::Swap`] for the commit of this name.
    Swap(ManifestName),
    /// [`StoreCall::DeleteFile`].
    DeleteFile(FileName),
    /// [`StoreCall::DeleteManifest`].
    DeleteManifest(ManifestName),
    /// [`StoreCall::List`] of state files or of manifest objects.
    List(Listing),
    /// [`StoreCall::Create`].
    Create,
}

impl StoreToken {
    /// The object that its call reads, if it reads one.
    #[must_use]
    pub fn reads(&self) -> Option<ObjectName> {
        match self {
            Self::ReadCurrent | Self::LookAtCurrent => Some(ObjectName::Current),
            Self::ReadManifest(name) => Some(ObjectName::Manifest(*name)),
            Self::PutManifest(_)
            | Self::Swap(_)
            | Self::DeleteFile(_)
            | Self::DeleteManifest(_)
            | Self::List(_)
            | Self::Create => None,
        }
    }
}

/// What is awaited, in words.
impl fmt::Display for StoreToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadCurrent | Self::LookAtCurrent => f.write_str("CURRENT to be read"),
            Self::ReadManifest(name) => write!(f, "{name} to be read"),
            Self::PutManifest(name) => write!(f, "{name} to be stored"),
            Self::Swap(name) => write!(f, "CURRENT to be swapped for {name}"),
            Self::DeleteFile(name) => write!(f, "{name} to be deleted"),
            Self::DeleteManifest(name) => write!(f, "{name} to be deleted"),
            Self::List(_) => f.write_str("names to be listed"),
            Self::Create => f.write_str("CURRENT to be created"),
        }
    }
}

/// What is listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Listing {
    /// State files, for the sweep.
    Shared,
    /// Manifest objects, for the sweep.
    Manifest,
    /// Anything at all, to tell a fresh root from a damaged one.
    Root,
}
