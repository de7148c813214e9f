//! Tests of the manifest on random, valid histories and on broken input.
#![allow(
    clippy::unwrap_used,
    reason = "a test that can't go on should end at that line"
)]

mod apply;
mod codec;
mod history;
mod load;
