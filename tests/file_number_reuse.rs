//! RocksDB numbers its files, and a restored database goes on numbering where its checkpoint was:
//! what is written after a restore gets names that the abandoned line has used for other content.
//!
//! ```text
//! 1 ── 2 ── 3          000021.sst in 3, nothing of 1 any more
//! └── restored ── 4    000021.sst in 4, with other bytes
//! ```
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use common::database::{self, FAMILIES};
use common::held::{Held, Hold};
use common::service::{self, Service};
use common::{in_time, wait_for};
use stillpoint::protocol::answer::Digest;
use stillpoint::protocol::id::{CheckpointId, FileName};
use stillpoint::rocksdb::{ColumnFamilyDescriptor, DB};
use stillpoint::{FileSystem, Repository, RestoreOptions};

/// A database that gives numbers only where this test lets it write.
fn without_compactions(path: &Path) -> Arc<DB> {
    let families = FAMILIES.map(|name| {
        let mut options = database::options();
        options.set_disable_auto_compactions(true);
        options.set_write_buffer_size(8 << 20);
        ColumnFamilyDescriptor::new(name, options)
    });
    Arc::new(DB::open_cf_descriptors(&database::options(), path, families).unwrap())
}

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

    let newest = RestoreOptions::new();
    let first_life = Service::start_with(&repository, &state, &newest, without_compactions).await;
    first_life.fill("default", 400, 1);
    let base = first_life.checkpoint("base").await.checkpoint;
    let base_truth = first_life.content();
    // A line that goes on for a while, and uses up many numbers.
    let mut abandoned = BTreeMap::new();
    let mut abandoned_files = BTreeMap::new();
    for (step, family) in ["counts", "ranges", "blobs", "counts"]
        .into_iter()
        .enumerate()
    {
        first_life.fill(family, 400, 2 + step as u64);
        if step == 0 {
            // From here on nothing of the base is live: for the new line it comes back.
            database::compact(&first_life.db);
        }
        let checkpoint = first_life.checkpoint("abandoned").await.checkpoint;
        abandoned.insert(checkpoint, first_life.content());
        abandoned_files.extend(files(&repository, checkpoint).await);
    }
    let base_files = files(&repository, base).await;
    for (local, (name, _)) in &base_files {
        let mut abandoned = abandoned_files.values();
        assert!(abandoned.all(|(of, _)| of != name), "{local} never left");
    }
    drop(first_life);

    // The older one again, in the same directory: whatever RocksDB does now, it does under names
    // that the abandoned line has used.
    let options = RestoreOptions::new().checkpoint(base);
    let second_life = Service::start_with(&repository, &state, &options, without_compactions).await;
    database::assert_same(&second_life.content(), &base_truth, "restored");
    let before = held.stored().len();
    // As much as in the abandoned line, with other content: as a replay of other input would be.
    for step in 0..3 {
        for family in FAMILIES {
            second_life.fill(family, 100, 20 + step);
        }
        if step < 2 {
            second_life.flush();
        }
    }
    let other_truth = second_life.content();
    held.hold(Hold::Packs);
    let other = second_life.participant.checkpoint("other").unwrap();
    held.another_pack(&[]).await;
    wait_for("the new line's files", || held.stored().len() >= before + 2);
    // Both lines' files are in the store, and both lines can be restored.
    assert_eq!(
        service::retained(&repository).await.len(),
        1 + abandoned.len()
    );
    for (checkpoint, truth) in &abandoned {
        let found = service::content_of(&repository, *checkpoint).await;
        database::assert_same(&found, truth, "the abandoned line");
    }
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
