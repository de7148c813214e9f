//! One local name, several contents: attempts that restored the same checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use stillpoint::protocol::answer::Digest;
use stillpoint::rocksdb::{ColumnFamilyDescriptor, DB};
use stillpoint::storage::Digester;
use stillpoint::{FileSystem, RestoreOptions};

use crate::common::database::{self, FAMILIES};
use crate::common::held::{Held, Hold};
use crate::common::in_time;
use crate::common::service::{self, Service};

/// Flushes and numbers only where the test lets the database write.
fn open(path: &Path) -> std::sync::Arc<DB> {
    let families = FAMILIES.map(|name| {
        let mut options = database::options();
        options.set_disable_auto_compactions(true);
        options.set_write_buffer_size(8 << 20);
        ColumnFamilyDescriptor::new(name, options)
    });
    std::sync::Arc::new(DB::open_cf_descriptors(&database::options(), path, families).unwrap())
}

/// The tables of the open database, by name.
fn tables(service: &Service) -> BTreeMap<String, Digest> {
    let names = database::tables(&service.db).into_iter();
    names
        .map(|name| {
            let bytes = fs::read(service.directory.join(&name)).unwrap();
            (name, Digester::of(&bytes))
        })
        .collect()
}

/// Two attempts from one checkpoint, the first of which dies with its files stored and its
/// checkpoint incomplete. What each wrote is said by a number. Answers the tables of both.
async fn two_attempts(number_of_each: [u64; 2]) -> [BTreeMap<String, Digest>; 2] {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let state = place.path().join("state");
    let held = Held::new(FileSystem::at(&root));
    let repository = service::repository(held.clone(), service::config()).await;
    let newest = RestoreOptions::new();
    let service = Service::start_with(&repository, &state, &newest, open).await;
    service.fill("default", 200, 1);
    let base = service.checkpoint("base").await.checkpoint;
    drop(service);

    let write = |service: &Service, number| {
        for family in FAMILIES {
            service.fill(family, 100, number);
        }
        service.flush();
        service.fill("default", 50, number + 1);
    };
    let first = Service::start_with(&repository, &state, &newest, open).await;
    assert_eq!(first.restored, Some(base));
    write(&first, number_of_each[0]);
    held.hold(Hold::Packs);
    let never = first.participant.checkpoint("never complete").unwrap();
    held.another_pack(&[]).await;
    let first_tables = tables(&first);
    drop((never, first));
    held.take(|_| true);
    held.hold(Hold::Nothing);

    let second = Service::start_with(&repository, &state, &newest, open).await;
    assert_eq!(second.restored, Some(base), "nothing completed since");
    write(&second, number_of_each[1]);
    let truth = second.content();
    let report = second.checkpoint("complete").await;
    let second_tables = tables(&second);
    let found = service::content_of(&repository, report.checkpoint).await;
    database::assert_same(&found, &truth, "the second attempt");
    let inspection = in_time(repository.inspect(service::NAME)).await.unwrap();
    for file in inspection.files(report.checkpoint).unwrap() {
        if let Some(digest) = second_tables.get(file.local.as_str()) {
            assert_eq!(file.digest, *digest, "{}", file.local);
        }
    }
    service::assert_no_garbage(&repository, &root, &second.participant).await;
    [first_tables, second_tables]
}

fn collisions([first, second]: &[BTreeMap<String, Digest>; 2]) -> Vec<(String, Digest, Digest)> {
    let both = first
        .iter()
        .filter_map(|(name, one)| Some((name.clone(), *one, *second.get(name)?)));
    both.filter(|(_, one, other)| one != other).collect()
}

/// FLINK-29095: the second attempt's files bear the names of the first's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b49_restored_twice_other_content_same_name() {
    let tables = two_attempts([10, 20]).await;
    let colliding = collisions(&tables);
    assert!(
        colliding.len() >= 4,
        "rocksdb was to give names twice: {tables:?}"
    );
}

/// SPARK-43404: also of the same length, written from the same input, and yet another file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b50_same_name_and_length_other_file() {
    let tables = two_attempts([30, 30]).await;
    let colliding = collisions(&tables);
    let same_length = colliding
        .iter()
        .filter(|(_, one, other)| one.size_bytes == other.size_bytes);
    assert!(
        same_length.count() >= 1,
        "rocksdb was to make files of one name and length: {tables:?}"
    );
}
