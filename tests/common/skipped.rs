//! What a machine does not give a test: said, or a failure where everything is to be had.
#![allow(clippy::print_stderr, reason = "a reason for skipping")]

use std::fmt;

/// Set to `1` where everything is to be had, as in continuous integration.
pub const NOTHING_SKIPPED: &str = "STILLPOINT_NOTHING_SKIPPED";

/// Says what is not done, and why, or fails where nothing may be skipped.
pub fn skipped(what: &str, why: impl fmt::Display) {
    let may_be = std::env::var_os(NOTHING_SKIPPED).is_none_or(|value| value != "1");
    assert!(
        may_be,
        "{what} was not done, and {NOTHING_SKIPPED} is set: {why}"
    );
    eprintln!("skipped, {what}: {why}");
}
