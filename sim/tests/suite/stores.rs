//! Every store that there is keeps the contract: the two models, the directory, the map.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use stillpoint::storage::{
    BlobStore, FileSystem, Key, Memory, OpenStore, Opening, Prefixed, contract,
};
use stillpoint_sim::suite::models::ModelStore;
use stillpoint_sim::suite::store::{self, Counts};
use stillpoint_sim::suite::{SEED_VARIABLE, SEEDS, asked_for};

/// Something of each kind was lost, unless one seed was asked for.
fn assert_struck(counts: Counts) {
    if std::env::var_os(SEED_VARIABLE).is_some() {
        return;
    }
    assert_eq!(counts.seeds, SEEDS.end);
    assert!(counts.lost_requests > 50, "{counts:?}");
    assert!(counts.lost_answers > 100, "{counts:?}");
    assert!(counts.kills > 50, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_holds() {
    let counts = store::holds(Memory::new).await;
    assert_struck(counts);
}

/// A participant's folder of a directory, which takes itself for a repository by its folders.
struct Folder(FileSystem);

impl OpenStore for Folder {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let store = self.0.open_store().await?;
            let folder = Key::new("participants/7").unwrap();
            Ok(Arc::new(Prefixed::new(store, folder)) as Arc<dyn BlobStore>)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_system_holds() {
    let base = tempfile::tempdir().unwrap();
    let roots = Cell::new(0);
    let fresh = || {
        roots.set(roots.get() + 1);
        Folder(FileSystem::at(base.path().join(roots.get().to_string())))
    };
    assert_struck(store::holds(fresh).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_model_holds() {
    model_holds(ModelStore::object).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_model_holds() {
    model_holds(ModelStore::directory).await;
}

/// All but the two checks whose names are none of the protocol's.
async fn model_holds(fresh: impl Fn() -> ModelStore) {
    let scratch = tempfile::tempdir().unwrap();
    contract_of_protocol_names(&fresh, scratch.path()).await;
    match store::check(fresh, asked_for(SEEDS)).await {
        Ok(counts) => assert_struck(counts),
        Err(broken) => panic!("{broken}"),
    }
}

async fn contract_of_protocol_names(fresh: impl Fn() -> ModelStore, scratch: &Path) {
    let open = async || -> Arc<dyn BlobStore> { fresh().open_store().await.unwrap() };
    contract::put_stores_every_body(&open().await, scratch).await;
    contract::put_creates_once(&open().await).await;
    contract::put_refuses_other_lengths(&open().await, scratch).await;
    contract::puts_of_one_name_have_one_winner(&open().await).await;
    contract::a_dropped_put_leaves_all_or_nothing(&open().await, scratch).await;
    contract::what_is_absent_is_not_found(&open().await, scratch).await;
    contract::ranges_lie_within_the_object(&open().await).await;
    contract::get_is_bounded(&open().await).await;
    contract::swap_compares(&open().await).await;
    contract::swaps_exclude_each_other(&open().await).await;
    contract::delete_is_repeatable(&open().await).await;
    contract::fetch_makes_a_checked_file(&open().await, scratch).await;
}
