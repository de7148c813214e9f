//! The names of things: checkpoints, subtasks, attempts, epochs, files and objects.
//!
//! Every number that means something has a type of its own, so that none can stand where another
//! is meant. The names of objects in a store are made and read in this file alone:
//!
//! ```text
//! CURRENT                              ObjectName::Current
//! manifest/<version>-<epoch>-<nonce>   ObjectName::Manifest(ManifestName)
//! shared/<attempt>/<number>            ObjectName::Shared(FileName)
//! ```
//!
//! Invariant: `ObjectName::parse(&name.to_string()) == Some(name)`, and nothing else parses; what
//! no rule can parse is reported and never deleted.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

/// The highest number that a version, an epoch or a reserved id may have: no reader takes a higher
/// one, and no commit writes one. What counts on from there has room left, whatever comes from
/// outside.
pub const NUMBER_MAX: u64 = 1 << 62;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $shown:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number after this one.
            ///
            /// # Panics
            /// When the numbers are used up, which takes longer than any job lives.
            #[must_use]
            pub fn next(self) -> Self {
                assert!(self.0 < u64::MAX, "{self} has no successor");
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($shown, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A checkpoint's id. Ids only rise, over all lives of all coordinators of a root.
    CheckpointId,
    "checkpoint "
);
number!(
    /// One life of a coordinator as leader. 0 is a root that nobody has led yet.
    Epoch,
    "epoch "
);
number!(
    /// One life of a subtask. Numbers come from the manifest and are never given twice.
    AttemptId,
    "attempt "
);
number!(
    /// How often `CURRENT` has been swapped.
    Version,
    "version "
);
number!(
    /// Names a user's request, so that its answer can be told from others'. Chosen by the driver.
    RequestId,
    "request "
);

/// An operator of a job, numbered in the order in which the manifest first names it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct OperatorId(pub u32);

/// A parallel instance of an operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct SubtaskId {
    /// The operator it is an instance of.
    pub operator: OperatorId,
    /// Its index, from 0 to the operator's parallelism.
    pub index: u32,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subtask {}.{}", self.operator.0, self.index)
    }
}

impl fmt::Debug for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of a checkpoint directory, drawn once when it is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RootId(pub u128);

impl fmt::Display for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "root {self}")
    }
}

/// Tells one commit from another of the same epoch and version.
///
/// The upper 40 bits are drawn at random for each life of a coordinator or guest, the lower 24
/// count its names at one version; so no two commits ever share a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(pub u64);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nonce {self}")
    }
}

/// The name of an immutable file that an attempt uploaded. It says who made it and is never used
/// again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileName {
    /// The attempt that made the file.
    pub attempt: AttemptId,
    /// The attempt's own count, from 1.
    pub number: u64,
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared/{}/{}", self.attempt.0, self.number)
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a manifest object: a record or a full snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ManifestName {
    /// The version that the commit makes, or, of a snapshot, the version it describes.
    pub version: Version,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// Tells it from other writers' at the same version.
    pub nonce: Nonce,
}

impl fmt::Display for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "manifest/{}-{}-{}",
            self.version.0, self.epoch.0, self.nonce
        )
    }
}

impl fmt::Debug for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of any object that this protocol keeps in a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ObjectName {
    /// The only mutable object.
    Current,
    /// A record or a snapshot of the manifest.
    Manifest(ManifestName),
    /// An immutable state file or pack.
    Shared(FileName),
}

/// The folder of the manifest's objects, as a prefix to list.
pub const MANIFEST_PREFIX: &str = "manifest/";
/// The folder of the state files, as a prefix to list.
pub const SHARED_PREFIX: &str = "shared/";

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("CURRENT"),
            Self::Manifest(name) => name.fmt(f),
            Self::Shared(name) => name.fmt(f),
        }
    }
}

impl ObjectName {
    /// Reads a name back. `None` for whatever this protocol did not write, character by character:
    /// a leading zero or an upper-case digit makes it somebody else's object.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "CURRENT" {
            return Some(Self::Current);
        }
        if let Some(rest) = text.strip_prefix(SHARED_PREFIX) {
            let (attempt, number) = rest.split_once('/')?;
            let attempt = AttemptId(decimal(attempt)?);
            let number = decimal(number)?;
            return Some(Self::Shared(FileName { attempt, number }));
        }
        let mut parts = text.strip_prefix(MANIFEST_PREFIX)?.split('-');
        let version = Version(decimal(parts.next()?)?);
        let epoch = Epoch(decimal(parts.next()?)?);
        let nonce = Nonce(hexadecimal(parts.next()?)?);
        match parts.next() {
            None => Some(Self::Manifest(ManifestName {
                version,
                epoch,
                nonce,
            })),
            Some(_) => None,
        }
    }
}

fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok())?
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (digits && text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

/// A file's path below its subtask's local directory: relative, `/`-separated, and unable to lead
/// out of that directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LocalName(Box<str>);

/// The longest local name, in bytes.
pub const LOCAL_NAME_BYTES_MAX: usize = 255;

/// Why a text is no [`LocalName`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name:?} is no name for a local file: {reason}")]
pub struct BadLocalName {
    /// The refused text, shortened to [`LOCAL_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl LocalName {
    /// Checks a name that comes from outside.
    ///
    /// # Errors
    /// When the name is empty, too long, absolute, or has a part that is empty, `.`, `..`, or
    /// holds a backslash, a colon or a control character.
    pub fn new(name: &str) -> Result<Self, BadLocalName> {
        let refuse = |reason| {
            let mut end = name.len().min(LOCAL_NAME_BYTES_MAX);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            Err(BadLocalName {
                name: name[..end].to_owned(),
                reason,
            })
        };
        if name.is_empty() {
            return refuse("it is empty");
        }
        if name.len() > LOCAL_NAME_BYTES_MAX {
            return refuse("it is longer than 255 bytes");
        }
        for part in name.split('/') {
            if part.is_empty() {
                return refuse("it is absolute or has an empty part");
            }
            if part == "." || part == ".." {
                return refuse("it leads out of its directory");
            }
            if part
                .chars()
                .any(|c| c == '\\' || c == ':' || c.is_control())
            {
                return refuse("it has a character that is not portable");
            }
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for LocalName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for LocalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LocalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn object_names_read_back() {
        let names = [
            ObjectName::Current,
            ObjectName::Shared(FileName {
                attempt: AttemptId(7),
                number: 0,
            }),
            ObjectName::Shared(FileName {
                attempt: AttemptId(u64::MAX),
                number: 12,
            }),
            ObjectName::Manifest(ManifestName {
                version: Version(3),
                epoch: Epoch(10),
                nonce: Nonce(0xab),
            }),
        ];
        for name in names {
            assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn foreign_names_do_not_parse() {
        for text in [
            "",
            "current",
            "CURRENT ",
            "LOCK",
            "shared/",
            "shared/1",
            "shared/01/2",
            "shared/1/+2",
            "shared/1/2/3",
            "shared/1/2 ",
            "shared/1/99999999999999999999",
            "manifest/1-2-3",
            "manifest/1-2-00000000000000AB",
            "manifest/1-2-00000000000000ab-0",
            "../CURRENT",
        ] {
            assert_eq!(ObjectName::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn local_names_stay_inside() {
        for good in ["000012.sst", "blob/000013.blob", "a b", "état"] {
            assert!(LocalName::new(good).is_ok(), "{good:?}");
        }
        for bad in [
            "", "/x", "a//b", "..", "a/../b", "./a", "a\\b", "C:x", "a\0b", "a/",
        ] {
            assert!(LocalName::new(bad).is_err(), "{bad:?}");
        }
    }
}
