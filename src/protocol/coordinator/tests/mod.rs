//! The coordinator's rules, one by one.
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::unwrap_used,
    reason = "a test names what it looks for"
)]

mod attempts;
mod bounds;
mod commits;
mod garbage;
mod lifecycle;
mod look;
mod unknown;
mod world;
