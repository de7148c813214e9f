//! RocksDB numbers its files, and a restored database goes on numbering where its checkpoint was:
//! what is written after a restore gets names that the abandoned line has used for other content.
//!
//! ```text
//! 1 ── 2 ── 3          000021.sst in 3
//! └── restored ── 4    000021.sst in 4, with other bytes
//! ```
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::database;
use common::held::{Held, Hold};
use common::service::{self, Service};
use common::{in_time, wait_for};
use stillpoint::protocol::answer::Digest;
use stillpoint::protocol::id::{CheckpointId, FileName};
use stillpoint::{FileSystem, Repository, RestoreOptions};

/// A checkpoint's state files: local name, stored name, content.
async fn files(
    repository: &Repository,
    checkpoint: CheckpointId,
) -> BTreeMap<String, (FileName, Digest)> {
    let inspection = in_time(repository.inspect(service::NAME)).await.unwrap();
    let files = inspection.files(checkpoint).unwrap().into_iter();
    files
        .filter(|file| file.local.as_str().ends_with(".sst"))
        .map(|file| (file.local.to_string(), (file.name, file.digest)))
        .collect()
}

/// The local names that both have, with different content.
fn collisions(
    one: &BTreeMap<String, (FileName, Digest)>,
    other: &BTreeMap<String, (FileName, Digest)>,
) -> BTreeSet<String> {
    let collides = |(local, (_, digest)): (&String, &(FileName, Digest))| {
        let same_name = other.get(local)?;
        (same_name.1 != *digest).then(|| local.clone())
    };
    one.iter().filter_map(collides).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_gets_its_own_bytes() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let state = place.path().join("state");
    let held = Held::new(FileSystem::at(&root));
    let mut config = service::config();
    config.checkpoints.num_retained = 5;
    let repository = service::repository(held.clone(), config).await;

    let first_life = Service::start(&repository, &state).await;
    first_life.fill("default", 400, 1);
    let base = first_life.checkpoint("base").await.checkpoint;
    let base_truth = first_life.content();
    first_life.fill("counts", 400, 2);
    let abandoned = first_life.checkpoint("abandoned").await.checkpoint;
    let abandoned_truth = first_life.content();
    let abandoned_files = files(&repository, abandoned).await;
    let base_files = files(&repository, base).await;
    drop(first_life);

    // The older one again, in the same directory: whatever RocksDB does now, it does under names
    // that the abandoned line has used.
    let options = RestoreOptions::new().checkpoint(base);
    let second_life = Service::start_from(&repository, &state, &options).await;
    database::assert_same(&second_life.content(), &base_truth, "restored");
    let before = held.stored().len();
    // The same number of operations with other content, as a replay of other input would be.
    second_life.fill("counts", 400, 3);
    second_life.fill("ranges", 100, 3);
    let other_truth = second_life.content();
    held.hold(Hold::Packs);
    let other = second_life.participant.checkpoint("other").unwrap();
    held.another_pack(&[]).await;
    wait_for("the new line's files", || held.stored().len() >= before + 2);
    // Both lines' files are in the store, and both lines can be restored.
    assert_eq!(service::retained(&repository).await, [base, abandoned]);
    let found = service::content_of(&repository, abandoned).await;
    database::assert_same(&found, &abandoned_truth, "the abandoned line");
    held.let_all_go();
    let other = in_time(other.completed()).await.unwrap();
    let other_files = files(&repository, other.checkpoint).await;
    let colliding = collisions(&abandoned_files, &other_files);
    assert!(
        !colliding.is_empty(),
        "rocksdb was to give a name twice: {abandoned_files:?}, {other_files:?}"
    );

    // What came back from the base is what it was, and was not stored again.
    let stored = held.stored().split_off(before);
    for (local, (name, digest)) in &base_files {
        assert_eq!(other_files.get(local), Some(&(*name, *digest)), "{local}");
        let key = name.to_string();
        assert!(
            !stored.iter().any(|(stored, _)| stored.ends_with(&key)),
            "{key} was stored again"
        );
    }
    let new_files = other_files.len() - base_files.len();
    assert_eq!(
        stored.len(),
        new_files + 1,
        "the new files and the pack: {stored:?}"
    );
    assert_eq!(other.reused_files, base_files.len());

    // The abandoned line went with the new line's first completion; the new one is whole.
    assert_eq!(
        service::retained(&repository).await,
        [base, other.checkpoint]
    );
    let found = service::content_of(&repository, base).await;
    database::assert_same(&found, &base_truth, "the base");
    let found = service::content_of(&repository, other.checkpoint).await;
    database::assert_same(&found, &other_truth, "the new line");
    service::assert_no_garbage(&repository, &root, &second_life.participant).await;
}
