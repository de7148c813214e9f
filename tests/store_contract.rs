//! The contract of a store, on each store that this crate has.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use stillpoint::storage::{
    BlobStore, Call, FileSystem, Intercept, Intercepted, Key, Memory, OpenStore, Operation,
    Prefixed, contract,
};
use tempfile::TempDir;

type Store = Arc<dyn BlobStore>;

async fn memory(_: &Path) -> Store {
    Arc::new(Memory::new())
}

async fn file_system(directory: &Path) -> Store {
    let root = directory.join("the root/état 中文 🦀");
    Arc::new(FileSystem::at(root).open().await.unwrap())
}

async fn memory_folder(directory: &Path) -> Store {
    let folder = Key::new("orders/7").unwrap();
    Arc::new(Prefixed::new(memory(directory).await, folder))
}

async fn file_system_folder(directory: &Path) -> Store {
    let folder = Key::new("orders/partition 7").unwrap();
    Arc::new(Prefixed::new(file_system(directory).await, folder))
}

#[derive(Debug)]
struct Nobody;

impl Intercept for Nobody {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        _: Operation,
        _: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        call
    }
}

async fn intercepted(_: &Path) -> Store {
    let store = Intercepted::new(Memory::new(), Arc::new(Nobody));
    store.open_store().await.unwrap()
}

macro_rules! contract {
    ($store:ident: $($check:ident($($scratch:ident)?)),* $(,)?) => {
        mod $store {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let (root, _scratch) = (TempDir::new().unwrap(), TempDir::new().unwrap());
                    let store = super::$store(root.path()).await;
                    contract::$check(&store $(, { let $scratch = _scratch.path(); $scratch })?).await;
                }
            )*
        }
    };
}

macro_rules! contract_of {
    ($($store:ident),*) => {$(
        contract! { $store:
            put_stores_every_body(scratch),
            put_creates_once(),
            put_refuses_other_lengths(scratch),
            puts_of_one_name_have_one_winner(),
            a_dropped_put_leaves_all_or_nothing(scratch),
            what_is_absent_is_not_found(scratch),
            ranges_lie_within_the_object(),
            get_is_bounded(),
            swap_compares(),
            swaps_exclude_each_other(),
            list_pages_in_order(),
            delete_is_repeatable(),
            fetch_makes_a_checked_file(scratch),
            odd_names_are_kept(),
        }
    )*};
}

contract_of!(
    memory,
    file_system,
    memory_folder,
    file_system_folder,
    intercepted
);
