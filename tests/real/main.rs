//! Failures that other systems met in the field, each tried on a real RocksDB and a real disk.
//!
//! A test is named after its entry in the catalogue of field failures; its comment says where it
//! was met. Entries of the catalogue that are scripts for the protocol alone are the simulator's.
//!
//! | file | entries |
//! |---|---|
//! | `local` | B14 B25 B48: the local directory |
//! | `names` | B49 B50: one name, several contents |
//! | `cut` | B53 B54 B56 B108: what a snapshot holds |
//! | `dead` | B26 B40 B91 B99: processes that are killed, calls that hang |
//! | `disks` | B79 B93 B96 B113 B120: full, read-only and other file systems, options |
//! | `families` | B87 B114: families and who has them |
//! | `store` | B24 B42 B44 B89 B91 B104 B117 B119: what lies in the store |
//!
//! Left for later, with what they need: B58 (importing the files of several subtasks into one
//! database is rescaling), B116 (moving a savepoint needs savepoints). Parts of others that need an
//! object store, multipart uploads among them, are left with it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stderr,
    reason = "a test ends at the first surprise, and says what it skips"
)]

#[path = "../common/mod.rs"]
mod common;

mod child;
mod cut;
mod dead;
mod disks;
mod families;
mod local;
mod names;
mod store;
