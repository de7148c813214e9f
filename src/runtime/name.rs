//! Where a participant's objects lie: `participants/<escaped name>/` below the repository.
//!
//! One rule: the bytes `A-Z a-z 0-9 - _ .` stand for themselves, a `.` at the start does not, and
//! every other byte of the name's UTF-8 is written `%XX` with upper-case digits; of the one reserved
//! name, `LOCK`, the first letter is written so too. So a name is always one part of a path, can't
//! lead out of it, and can be read back exactly.
//!
//! ```text
//! orders/7     participants/orders%2F7/
//! ..           participants/%2E./
//! ein Käse     participants/ein%20K%C3%A4se/
//! ```

use std::fmt::Write as _;

use crate::error::{Error, ErrorKind};
use crate::storage::{Key, LOCK_NAME};

/// The folder of all participants, as a prefix to list.
pub(super) const PARTICIPANTS_PREFIX: &str = "participants/";
const _: () = assert!(PARTICIPANTS_PREFIX.len() == crate::places::PARTICIPANTS.len() + 1);

/// The longest escaped name, in bytes: what the file systems in use take as one part of a path.
const ESCAPED_BYTES_MAX: usize = 255;

/// The folder of a participant's objects.
pub(super) fn folder(name: &str) -> Result<Key, Error> {
    let refuse = |reason| Err(Error::new(ErrorKind::Invalid, reason).with_participant(name));
    if name.is_empty() {
        return refuse("a participant's name must not be empty");
    }
    let escaped = escape(name);
    if escaped.len() > ESCAPED_BYTES_MAX {
        return refuse("a participant's name takes at most 255 bytes once escaped");
    }
    Key::new(&format!("{PARTICIPANTS_PREFIX}{escaped}")).map_err(|bad| {
        Error::new(ErrorKind::Invalid, bad.to_string())
            .with_participant(name)
            .with_source(bad)
    })
}

fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let first_of_reserved = at == 0 && (byte == b'.' || name == LOCK_NAME);
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let plain = plain && !first_of_reserved;
        if plain {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The participant's name, if this is one that [`escape`] wrote.
pub(super) fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (!name.is_empty() && escape(&name) == escaped).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_one_part_of_a_path() {
        for (name, expected) in [
            ("orders/7", "orders%2F7"),
            ("..", "%2E."),
            (".", "%2E"),
            ("../up", "%2E.%2Fup"),
            ("ein Käse", "ein%20K%C3%A4se"),
            ("50%", "50%25"),
            ("a.b-c_D", "a.b-c_D"),
            ("LOCK", "%4COCK"),
            ("LOCKS", "LOCKS"),
            ("back\\slash:\u{0}", "back%5Cslash%3A%00"),
        ] {
            assert_eq!(escape(name), expected);
            assert_eq!(unescape(expected).as_deref(), Some(name));
        }
    }

    #[test]
    fn what_was_not_escaped_here_is_nobodys() {
        for foreign in [
            "", "a/b", "%2f", "%", "%4", "%41", "LOCK", ".hidden", "%FF", "a b",
        ] {
            assert_eq!(unescape(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn empty_and_overlong_names_are_refused() {
        assert_eq!(folder("").map_err(|e| e.kind()), Err(ErrorKind::Invalid));
        let long = "ä".repeat(43);
        assert_eq!(folder(&long).map_err(|e| e.kind()), Err(ErrorKind::Invalid));
        assert!(folder(&"ä".repeat(42)).is_ok());
    }

    proptest! {
        #[test]
        fn every_name_reads_back(name in "\\PC{1,20}|[\\./%a\\x00]{1,6}") {
            let escaped = escape(&name);
            prop_assert!(!escaped.contains('/'));
            prop_assert!(Key::new(&escaped).is_ok());
            prop_assert_eq!(unescape(&escaped), Some(name));
        }
    }
}
