//! Tests of the manifest on random, valid histories and on broken input.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test ends at the line where it meets what it does not expect"
)]

mod apply;
mod codec;
mod history;
mod load;
