//! The kinds of database that the binding has, and what each lets a snapshot do.
//!
//! | type | cut |
//! |---|---|
//! | `DB`, the binding's own default | flush of all families as one, list of the live files |
//! | `DBWithThreadMode` of the other thread mode, `OptimisticTransactionDB` | RocksDB's `create_checkpoint` |
//! | `TransactionDB` | refused: prepared transactions live in the log, which no checkpoint carries |
//!
//! `DB` is `DBWithThreadMode<SingleThreaded>`, or `DBWithThreadMode<MultiThreaded>` once anybody
//! enables the feature `multi-threaded-cf` of the crate `rocksdb`.
//!
//! The first way costs the cut some 10 µs for each file of the database, for the list; the second
//! some 60 µs, since all of them are linked within the synchronous part, needed or not: with 10,000
//! files writers are held for 0.1 s or for 0.6 s, besides the flush. The second one is there because
//! `rocksdb` 0.25 keeps the C interface's pointer, which the list and the flush of all families need,
//! to itself for every type but `DB`: `AsRawPtr` is implemented for that alone, no method of the
//! others gives theirs out, and to take one type for another would rest on how the compiler happens
//! to lay them out. Attaching warns of it. The way out of it is `DB`, with `multi-threaded-cf` where
//! families come and go; `OptimisticTransactionDB` has none.

use std::any::Any;
use std::path::Path;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    DB, DBWithThreadMode, DEFAULT_COLUMN_FAMILY_NAME, MultiThreaded, OptimisticTransactionDB,
    SingleThreaded, ThreadMode, TransactionDB,
};

use super::rocksdb_failed;
use crate::protocol::answer::{Failure, FailureKind};

/// A RocksDB that a user opened. Implemented for the binding's own types, and only here.
///
/// | type | cut | costs the cut, besides the flush |
/// |---|---|---|
/// | [`DB`] | a list of the files | some 10 µs a file |
/// | [`DBWithThreadMode`] in the thread mode that is not `DB`'s, [`OptimisticTransactionDB`] | RocksDB's own checkpoint | some 60 µs a file: all are linked while writers are held |
/// | [`TransactionDB`] | refused when attached: prepared transactions live in the log | |
///
/// The feature `multi-threaded-cf` of the crate `rocksdb` makes `DB` the multi-threaded one. Attaching
/// a type that goes the second way warns of it.
pub trait Database: Any + Send + Sync + sealed::Sealed {}

impl Database for DBWithThreadMode<SingleThreaded> {}
impl Database for DBWithThreadMode<MultiThreaded> {}
impl Database for OptimisticTransactionDB<SingleThreaded> {}
impl Database for OptimisticTransactionDB<MultiThreaded> {}
impl<T: ThreadMode + Send + Sync + 'static> Database for TransactionDB<T> {}

pub(super) mod sealed {
    use super::{DB, Failure, Path};

    /// What snapshots need of a database.
    pub trait Sealed {
        /// The directory it was opened in.
        fn path(&self) -> &Path;
        /// The type that the C interface can be called for.
        fn as_default(&self) -> Option<&DB>;
        /// Why no snapshot can be taken of it, if none can.
        fn refusal(&self) -> Option<&'static str>;
        /// How many background flushes and compactions have failed since it was opened.
        fn background_errors(&self) -> Result<u64, Failure>;
        /// Keeps RocksDB from deleting files until as many calls let it go on.
        fn hold_deletions(&self) -> Result<(), Failure>;
        /// Ends one hold.
        fn release_deletions(&self) -> Result<(), Failure>;
        /// The number of the last write.
        fn sequence(&self) -> u64;
        /// Whether something of a family is in memory only. `None` if it has no such family.
        fn is_unflushed(&self, family: &str) -> Result<Option<bool>, Failure>;
        /// Flushes a family, if there is one of this name, and waits for it.
        fn flush_family(&self, family: &str) -> Result<(), Failure>;
        /// RocksDB's own checkpoint: flushes, then links or copies every file.
        fn create_checkpoint(&self, into: &Path) -> Result<(), Failure>;
    }
}

const BACKGROUND_ERRORS: &str = "rocksdb.background-errors";
const UNFLUSHED: [&str; 2] = [
    "rocksdb.num-immutable-mem-table",
    "rocksdb.num-entries-active-mem-table",
];

fn property(name: &str, value: Result<Option<u64>, rocksdb::Error>) -> Result<u64, Failure> {
    value
        .map_err(|error| rocksdb_failed(error.into(), name))?
        .ok_or_else(|| {
            Failure::new(
                FailureKind::Unsupported,
                format!("rocksdb has no property {name}"),
            )
        })
}

/// The binding's types have these methods in common, and no trait that has them.
macro_rules! common {
    ($type:ty, $hold:expr, $release:expr) => {
        impl sealed::Sealed for $type {
            fn path(&self) -> &Path {
                <$type>::path(self)
            }

            fn as_default(&self) -> Option<&DB> {
                (self as &dyn Any).downcast_ref()
            }

            fn refusal(&self) -> Option<&'static str> {
                None
            }

            fn background_errors(&self) -> Result<u64, Failure> {
                property(
                    BACKGROUND_ERRORS,
                    self.property_int_value(BACKGROUND_ERRORS),
                )
            }

            fn hold_deletions(&self) -> Result<(), Failure> {
                let held: Result<(), rocksdb::Error> = $hold(self);
                held.map_err(|error| rocksdb_failed(error.into(), "holding deletions"))
            }

            fn release_deletions(&self) -> Result<(), Failure> {
                let released: Result<(), rocksdb::Error> = $release(self);
                released.map_err(|error| rocksdb_failed(error.into(), "releasing deletions"))
            }

            fn sequence(&self) -> u64 {
                self.latest_sequence_number()
            }

            fn is_unflushed(&self, family: &str) -> Result<Option<bool>, Failure> {
                let handle = self.cf_handle(family);
                if handle.is_none() && family != DEFAULT_COLUMN_FAMILY_NAME {
                    return Ok(None);
                }
                for name in UNFLUSHED {
                    let value = match &handle {
                        Some(handle) => self.property_int_value_cf(handle, name),
                        // A database opened without a list of families.
                        None => self.property_int_value(name),
                    };
                    if property(name, value)? > 0 {
                        return Ok(Some(true));
                    }
                }
                Ok(Some(false))
            }

            fn flush_family(&self, family: &str) -> Result<(), Failure> {
                let flushed = match self.cf_handle(family) {
                    Some(handle) => self.flush_cf(&handle),
                    None if family == DEFAULT_COLUMN_FAMILY_NAME => self.flush(),
                    None => Ok(()),
                };
                flushed.map_err(|error| rocksdb_failed(error.into(), "flushing a family"))
            }

            fn create_checkpoint(&self, into: &Path) -> Result<(), Failure> {
                Checkpoint::new(self)
                    .and_then(|checkpoint| checkpoint.create_checkpoint(into))
                    .map_err(|error| rocksdb_failed(error.into(), "taking a checkpoint"))
            }
        }
    };
}

common!(
    DBWithThreadMode<SingleThreaded>,
    Self::disable_file_deletions,
    Self::enable_file_deletions
);
common!(
    DBWithThreadMode<MultiThreaded>,
    Self::disable_file_deletions,
    Self::enable_file_deletions
);
// The binding has no such call here. Its snapshots need none: RocksDB's checkpoint holds deletions
// itself while it links.
common!(OptimisticTransactionDB<SingleThreaded>, |_| Ok(()), |_| Ok(
    ()
));
common!(OptimisticTransactionDB<MultiThreaded>, |_| Ok(()), |_| Ok(
    ()
));

const TRANSACTION_DB: &str = "TransactionDB: its prepared transactions live in the write-ahead log, \
     which no checkpoint carries; OptimisticTransactionDB is supported";

fn refused<T>() -> Result<T, Failure> {
    Err(Failure::new(FailureKind::Unsupported, TRANSACTION_DB))
}

impl<T: ThreadMode + Send + Sync + 'static> sealed::Sealed for TransactionDB<T> {
    fn path(&self) -> &Path {
        TransactionDB::path(self)
    }

    fn as_default(&self) -> Option<&DB> {
        None
    }

    fn refusal(&self) -> Option<&'static str> {
        Some(TRANSACTION_DB)
    }

    fn background_errors(&self) -> Result<u64, Failure> {
        refused()
    }

    fn hold_deletions(&self) -> Result<(), Failure> {
        refused()
    }

    fn release_deletions(&self) -> Result<(), Failure> {
        refused()
    }

    fn sequence(&self) -> u64 {
        0
    }

    fn is_unflushed(&self, _family: &str) -> Result<Option<bool>, Failure> {
        refused()
    }

    fn flush_family(&self, _family: &str) -> Result<(), Failure> {
        refused()
    }

    fn create_checkpoint(&self, _into: &Path) -> Result<(), Failure> {
        refused()
    }
}
