//! Every state backend that there is keeps the contract, and what is broken on purpose does not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stillpoint::protocol::answer::Failure;
use stillpoint::state::{Cut, MemoryState, StateBackend};
use stillpoint_sim::suite::backend::{self, Counts, Pairs, Reason, State};
use stillpoint_sim::suite::{SEED_VARIABLE, SEEDS};

fn assert_struck(counts: Counts) {
    if std::env::var_os(SEED_VARIABLE).is_some() {
        return;
    }
    assert_eq!(counts.seeds, SEEDS.end);
    assert!(counts.checkpoints > 50, "{counts:?}");
    assert!(counts.lost > 50, "{counts:?}");
    assert!(counts.kills > 20, "{counts:?}");
    assert!(counts.settled > 20, "{counts:?}");
}

struct InMemory(MemoryState);

impl State for InMemory {
    fn open(directory: &Path) -> Result<Self, Reason> {
        let is_new = std::fs::read_dir(directory)?.next().is_none();
        Ok(Self(if is_new {
            MemoryState::new()
        } else {
            MemoryState::open(directory)?
        }))
    }

    fn backend(&self) -> &dyn StateBackend {
        &self.0
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Reason> {
        self.0.put(key, value);
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), Reason> {
        self.0.delete(key);
        Ok(())
    }

    fn read(&self) -> Result<Pairs, Reason> {
        let view = self.0.read();
        let pairs = view.iter();
        Ok(pairs
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect())
    }
}

#[test]
fn memory_holds() {
    assert_struck(backend::holds::<InMemory>());
}

/// State in memory behind a backend with a planted defect.
struct Planted<B> {
    state: InMemory,
    backend: B,
}

impl<B: StateBackend + From<MemoryState>> State for Planted<B> {
    fn open(directory: &Path) -> Result<Self, Reason> {
        let state = InMemory::open(directory)?;
        let backend = B::from(state.0.clone());
        Ok(Self { state, backend })
    }

    fn backend(&self) -> &dyn StateBackend {
        &self.backend
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Reason> {
        self.state.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<(), Reason> {
        self.state.delete(key)
    }

    fn read(&self) -> Result<Pairs, Reason> {
        self.state.read()
    }
}

/// Takes its cut when it is secured, not when it is asked for.
struct Late(MemoryState);

impl From<MemoryState> for Late {
    fn from(state: MemoryState) -> Self {
        Self(state)
    }
}

impl StateBackend for Late {
    fn kind(&self) -> &'static str {
        "late"
    }

    fn attach(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        let state = self.0.clone();
        Ok(Cut::new(Vec::new(), move |_| state.snapshot()?.secure(&[])))
    }
}

#[test]
fn a_cut_that_is_taken_late_is_found() {
    let broken = backend::check::<Planted<Late>>(SEEDS);
    let broken = broken.map(|_| ()).map_err(|broken| broken.to_string());
    assert!(
        broken.as_ref().is_err_and(|what| what.contains("restored")
            || what.contains("checkpoint")
            || what.contains("the next life")),
        "{broken:?}"
    );
}

/// Fails once a cut was dropped that was never secured.
struct Leaky {
    state: MemoryState,
    is_held: Arc<AtomicBool>,
}

impl From<MemoryState> for Leaky {
    fn from(state: MemoryState) -> Self {
        let is_held = Arc::default();
        Self { state, is_held }
    }
}

impl StateBackend for Leaky {
    fn kind(&self) -> &'static str {
        "leaky"
    }

    fn attach(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        let is_held = Arc::clone(&self.is_held);
        if is_held.swap(true, Ordering::SeqCst) {
            let kind = stillpoint::protocol::answer::FailureKind::Exhausted;
            return Err(Failure::new(kind, "the one snapshot is taken"));
        }
        let cut = self.state.snapshot()?;
        Ok(Cut::new(Vec::new(), move |wanted| {
            is_held.store(false, Ordering::SeqCst);
            let names: Vec<_> = wanted.iter().map(|file| file.name.clone()).collect();
            cut.secure(&names)
        }))
    }
}

#[test]
fn a_cut_that_shuts_others_out_is_found() {
    let broken = backend::check::<Planted<Leaky>>(SEEDS);
    let broken = broken.map(|_| ()).map_err(|broken| broken.to_string());
    assert!(
        broken.as_ref().is_err_and(|what| what.contains("no cut")),
        "{broken:?}"
    );
}

#[cfg(feature = "rocksdb")]
mod rocksdb {
    use std::path::Path;
    use std::sync::Arc;

    use stillpoint::RocksDb;
    use stillpoint::rocksdb::{DB, IteratorMode, Options};
    use stillpoint::state::StateBackend;
    use stillpoint_sim::suite::backend::{self, Pairs, Reason, State};

    /// A database that flushes and compacts much.
    struct InRocksDb {
        db: Arc<DB>,
        backend: RocksDb,
    }

    impl State for InRocksDb {
        fn open(directory: &Path) -> Result<Self, Reason> {
            let mut options = Options::default();
            options.create_if_missing(true);
            options.set_write_buffer_size(64 << 10);
            options.set_level_zero_file_num_compaction_trigger(2);
            options.set_max_manifest_file_size(256 << 10);
            let db = Arc::new(DB::open(&options, directory)?);
            let backend = RocksDb::new(Arc::clone(&db));
            Ok(Self { db, backend })
        }

        fn backend(&self) -> &dyn StateBackend {
            &self.backend
        }

        fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Reason> {
            Ok(self.db.put(key, value)?)
        }

        fn delete(&self, key: &[u8]) -> Result<(), Reason> {
            Ok(self.db.delete(key)?)
        }

        fn read(&self) -> Result<Pairs, Reason> {
            let mut pairs = Pairs::new();
            for pair in self.db.iterator(IteratorMode::Start) {
                let (key, value) = pair?;
                pairs.insert(key.into_vec(), value.into_vec());
            }
            Ok(pairs)
        }

        fn maintain(&self) -> Result<(), Reason> {
            self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
            Ok(())
        }
    }

    #[test]
    fn rocksdb_holds() {
        let counts = backend::holds::<InRocksDb>();
        super::assert_struck(counts);
        if counts.seeds > 1 {
            assert!(counts.files > 100, "{counts:?}");
            assert!(counts.reused > 100, "{counts:?}");
            assert!(counts.collisions > 0, "{counts:?}");
        }
    }
}
