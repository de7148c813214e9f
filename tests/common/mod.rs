//! What the tests on a real RocksDB share: a database with several families, a service that keeps
//! checkpoints of it, what its content is to be, and a store whose uploads a test holds.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "each test takes what it needs, and ends at the first surprise"
)]

pub mod database;
pub mod free;
pub mod held;
pub mod random;
pub mod service;
pub mod skipped;

use std::future::Future;
use std::time::{Duration, Instant};

/// Far more than anything here takes: what is not there by then does not come.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// A directory for what need not outlive a crash: in memory where there is such a place, so that
/// nothing waits for a disk.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

pub async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("not within the deadline")
}

/// Waits, on a plain thread or where nothing else is to be done, until something is the case.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
