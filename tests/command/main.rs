//! The `stillpoint` command, run as a process: what it answers, how it ends, what it leaves alone.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod support;

mod answers;
mod damage;
mod demo;
mod documented;
#[cfg(feature = "rocksdb")]
mod families;
mod live;
mod roots;
