//! The checked name of an object in a store.
//!
//! Invariant: a key's parts name something below the root, whatever the store does with them; so a
//! store may put root and key together without looking at either.

use std::fmt;

use crate::protocol::id::{FileName, ManifestName, ObjectName};

/// The longest key, in bytes: what S3 takes.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest part of a key between two slashes, in bytes: what file systems take.
pub const KEY_PART_BYTES_MAX: usize = 255;
/// The file that a swap locks on file systems, beside the object it swaps. No key's part.
pub const LOCK_NAME: &str = "LOCK";

/// An object's name: relative, `/`-separated, without a part that is empty, begins with a dot, is
/// `LOCK`, or holds a backslash or a control character. Parts that begin with a dot are the
/// store's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

/// Why a text is no [`Key`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name:?} is no name for an object: {reason}")]
pub struct BadKey {
    /// The refused text, shortened to [`KEY_BYTES_MAX`] bytes.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Key {
    /// Checks a name that comes from outside.
    ///
    /// # Errors
    /// When the name could lead out of a root, is reserved, or is too long: see the type.
    pub fn new(name: &str) -> Result<Self, BadKey> {
        let refuse = |reason| {
            let mut end = name.len().min(KEY_BYTES_MAX);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            Err(BadKey {
                name: name[..end].to_owned(),
                reason,
            })
        };
        if name.len() > KEY_BYTES_MAX {
            return refuse("it is longer than 1024 bytes");
        }
        match name.split('/').find_map(fault_of_part) {
            Some(reason) => refuse(reason),
            None => Ok(Self(name.into())),
        }
    }

    /// The key of this one's object seen from above `folder`.
    ///
    /// # Errors
    /// When the whole is too long.
    pub fn below(&self, folder: &Key) -> Result<Self, BadKey> {
        Self::new(&format!("{folder}/{self}"))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before the last slash; empty if there is none.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// What stands after the last slash.
    #[must_use]
    pub fn leaf(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, leaf)| leaf)
    }
}

/// What is wrong with one part of a key, if anything.
pub(super) fn fault_of_part(part: &str) -> Option<&'static str> {
    if part.is_empty() {
        return Some("it is empty, absolute, or has an empty part");
    }
    if part.len() > KEY_PART_BYTES_MAX {
        return Some("a part of it is longer than 255 bytes");
    }
    if part == "." || part == ".." {
        return Some("it leads out of its root");
    }
    if part.starts_with('.') || part == LOCK_NAME {
        return Some("a part of it is reserved");
    }
    if part.chars().any(|c| c == '\\' || c.is_control()) {
        return Some("it has a character that is not portable");
    }
    None
}

// What the protocol names is always a key: digits, dashes and two fixed folders.
macro_rules! from_protocol {
    ($($name:ty),*) => {$(
        impl From<$name> for Key {
            fn from(name: $name) -> Self {
                Self(name.to_string().into())
            }
        }
    )*};
}
from_protocol!(ObjectName, FileName, ManifestName);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::protocol::id::{AttemptId, Epoch, Nonce, Version};

    #[test]
    fn keys_stay_below_the_root() {
        for good in [
            "CURRENT",
            "shared/7/12",
            "orders/état 中文",
            "a+b=c",
            "a..b",
        ] {
            assert_eq!(Key::new(good).unwrap().as_str(), good);
        }
        let long_part = "x".repeat(256);
        let long_key = ["part"; 300].join("/");
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "a//b",
            "a/",
            "..",
            "../CURRENT",
            "a/../b",
            "a/./b",
            "a\\b",
            "a\0b",
            "a\nb",
            ".tmp/1",
            "a/.hidden",
            "LOCK",
            "a/LOCK",
            &long_part,
            &long_key,
        ] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_name_of_the_protocol_is_a_key() {
        let manifest = ManifestName {
            version: Version(u64::MAX),
            epoch: Epoch(u64::MAX),
            nonce: Nonce(u64::MAX),
        };
        let shared = FileName {
            attempt: AttemptId(u64::MAX),
            number: u64::MAX,
        };
        for name in [
            ObjectName::Current,
            ObjectName::Manifest(manifest),
            ObjectName::Shared(shared),
        ] {
            let key = Key::from(name);
            assert_eq!(Key::new(key.as_str()), Ok(key.clone()));
            assert_eq!(ObjectName::parse(key.as_str()), Some(name));
        }
        let key = Key::from(shared);
        assert_eq!(key.folder(), format!("shared/{}", u64::MAX));
        assert_eq!(key.leaf(), u64::MAX.to_string());
        assert_eq!(Key::from(ObjectName::Current).folder(), "");
    }
}
