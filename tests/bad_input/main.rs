//! Bad input in every place: damaged, foreign, forged, absent, unreadable. Each is a typed error
//! that says what is wrong; nothing panics, nothing is lost, nothing leaves its directory.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "tests, and a child that talks to its parent"
)]

mod bytes;
#[path = "../runtime/files.rs"]
mod files;
mod names;
mod others;
mod places;
mod world;
