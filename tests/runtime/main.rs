//! The runtime over stores in memory and on disk, with state that needs no C++.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test ends at the first surprise"
)]

mod adopted;
mod checkpoints;
mod configured;
mod dropped;
mod faults;
mod faulty;
mod files;
mod flow;
mod guests;
#[cfg(feature = "rocksdb")]
mod ownership;
mod packs;
mod places;
mod restores;
mod rivals;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod trouble;

use std::path::PathBuf;
use std::time::Duration;

use stillpoint::storage::OpenStore;
use stillpoint::{Claim, Config, MemoryState, Participant, Repository};

/// Far more than anything here takes: what is not there by then does not come.
const DEADLINE: Duration = Duration::from_secs(60);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("not within the deadline")
}

/// Short waits, so that what is to happen happens soon.
fn config() -> Config {
    let mut config = Config::default();
    let limits = &mut config.checkpoints.limits;
    limits.sweep_pause = Duration::from_millis(5);
    limits.sweep_round_pause = Duration::from_millis(20);
    limits.forget_delay = Duration::from_millis(5);
    limits.retry_delay = Duration::from_millis(5);
    limits.claim_delay = Duration::from_millis(1);
    config.checkpoints.num_retained = 2;
    config.failure_burst_max = 100_000;
    config
}

async fn open(store: impl OpenStore, config: Config) -> Repository {
    in_time(Repository::builder(store).with_config(config).open())
        .await
        .unwrap()
}

/// A place for a state's directory.
fn place() -> (tempfile::TempDir, PathBuf) {
    let base = tempfile::tempdir().unwrap();
    let directory = base.path().join("state");
    (base, directory)
}

async fn claim(repository: &Repository) -> Claim {
    in_time(repository.claim("orders/7")).await.unwrap()
}

/// A participant with state in memory, restored if there is something.
async fn start(repository: &Repository) -> (MemoryState, Participant) {
    let claim = claim(repository).await;
    let (base, directory) = place();
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let state = if restored.is_empty() {
        MemoryState::new()
    } else {
        MemoryState::open(restored.directory()).unwrap()
    };
    let participant = restored.attach(state.clone()).unwrap();
    drop(base);
    (state, participant)
}

async fn checkpoint(participant: &Participant, user_bytes: &str) -> stillpoint::CheckpointReport {
    in_time(participant.checkpoint(user_bytes).unwrap().completed())
        .await
        .unwrap()
}
