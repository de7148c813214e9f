//! Column families of a RocksDB, as `show` and `ls` tell them.

use std::path::Path;
use std::sync::Arc;

use stillpoint::rocksdb::{ColumnFamilyDescriptor, DB, Options};
use stillpoint::{Claim, RocksDb};

use crate::support::{World, answer, in_time, run, texts};

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_manifest_file_size(1 << 20);
    options
}

fn open(directory: &Path, families: &[&str]) -> DB {
    let families = families
        .iter()
        .map(|name| ColumnFamilyDescriptor::new(*name, options()));
    DB::open_cf_descriptors(&options(), directory, families).unwrap()
}

/// One life: restores, opens, changes the families, takes a checkpoint. Answers its id.
async fn live(claim: &Claim, at: &Path, families: &[&str], change: impl FnOnce(&mut DB)) -> u64 {
    let restored = in_time(claim.restore_into(at)).await.unwrap();
    let mut db = open(restored.directory(), families);
    change(&mut db);
    let participant = restored.attach(RocksDb::new(Arc::new(db))).unwrap();
    let checkpoint = participant.checkpoint("position").unwrap();
    let checkpoint = in_time(checkpoint.completed()).await.unwrap().checkpoint;
    in_time(participant.close()).await.unwrap();
    checkpoint.0
}

#[tokio::test]
async fn each_checkpoint_shows_the_families_of_its_cut() {
    let world = World::new(3).await;
    let (root, local) = (world.root(), world.directory.path().join("local"));
    let odd = ["a\"b\\c", "line\nbreak", "日本 \u{1b}[31m"];
    let claim = async || in_time(world.repository.claim("orders/7")).await.unwrap();
    let one = live(&claim().await, &local, &["default"], |_| {}).await;
    let two = live(&claim().await, &local, &["default"], |db| {
        for name in odd {
            db.create_cf(name, &options()).unwrap();
        }
    })
    .await;
    let all = [&["default"], &odd[..]].concat();
    let three = live(&claim().await, &local, &all, |db| {
        db.drop_cf(odd[0]).unwrap();
    })
    .await;

    let mut all = all;
    all.sort_unstable();
    let left: Vec<_> = all.iter().copied().filter(|name| *name != odd[0]).collect();
    let listed = answer(&root, &["ls"]);
    let listed = &listed["participants"][0]["checkpoints"];
    for (index, (checkpoint, families)) in [(one, vec!["default"]), (two, all), (three, left)]
        .into_iter()
        .enumerate()
    {
        let shown = answer(&root, &["show", &checkpoint.to_string()]);
        assert_eq!(texts(&shown["checkpoint"]["families"]), families);
        assert_eq!(listed[index]["families"], shown["checkpoint"]["families"]);
    }
    let root = root.to_str().unwrap();
    let said = run(["show", "newest", "--root", root]);
    let families = "  families  \"default\", \"line\\nbreak\", \"日本 \\u{1b}[31m\"\n";
    assert!(said.out.contains(families), "{}", said.out);
}
