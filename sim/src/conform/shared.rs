//! What several worlds share, with its fingerprint: made once, never changed.

use std::fmt::{self, Debug};
use std::hash::Hasher;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::digest::Fingerprint;

/// A value that is shared, and tells itself from others but for numbers that make no difference:
/// versions of the manifest, names of its objects, times.
pub(super) struct Shared<T>(Arc<(T, OnceLock<u128>)>);

impl<T> Shared<T> {
    pub(super) fn new(item: T) -> Self {
        Self(Arc::new((item, OnceLock::new())))
    }
}

impl<T: Debug> Shared<T> {
    /// Its fingerprint.
    pub(super) fn print(&self) -> u128 {
        let (item, print) = self.0.as_ref();
        *print.get_or_init(|| masked(&format!("{item:?}")))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Debug> Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

/// What numbers follow that make no difference.
const MASKED: [&str; 5] = ["version ", "manifest/", "Timestamp(", "Tag(\"", "nonce "];

/// The fingerprint of a text without such numbers.
fn masked(text: &str) -> u128 {
    let mut hasher = Fingerprint::default();
    let mut rest = text;
    while let Some((before, after)) = split(rest) {
        hasher.write(before.as_bytes());
        rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '-');
    }
    hasher.write(rest.as_bytes());
    hasher.value()
}

fn split(text: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        // Every prefix ends with one of these.
        let found = text[from..].find([' ', '/', '(', '"'])?;
        let end = from + found + 1;
        if MASKED.iter().any(|prefix| text[..end].ends_with(prefix)) {
            return Some(text.split_at(end));
        }
        from = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_times_make_no_difference_and_all_else_does() {
        let one = "at version 7: manifest/7-1-00ff, Timestamp(30), checkpoint 3";
        let two = "at version 9: manifest/9-2-00aa, Timestamp(31), checkpoint 3";
        let other = "at version 9: manifest/9-2-00aa, Timestamp(31), checkpoint 4";
        assert_eq!(masked(one), masked(two));
        assert_ne!(masked(two), masked(other));
    }
}
