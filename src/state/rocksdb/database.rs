//! The kinds of database that the binding has, and what each lets a snapshot do.
//!
//! | type | cut |
//! |---|---|
//! | `DB`, the binding's own default | flush of all families as one, list of the live files |
//! | `DBWithThreadMode` of the other thread mode, `OptimisticTransactionDB` | RocksDB's `create_checkpoint` |
//! | `TransactionDB` | refused: prepared transactions live in the log, which no checkpoint carries |
//!
//! The second way links every file within the synchronous part, some 60 µs each. It is there
//! because the binding gives the C interface's pointer for its default type alone: whoever works
//! with `MultiThreaded` and many files enables the binding's feature `multi-threaded-cf`, which
//! makes that the default.

use std::any::Any;
use std::path::Path;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    DB, DBWithThreadMode, FlushOptions, OptimisticTransactionDB, ThreadMode, TransactionDB,
};

use super::rocksdb_failed;
use crate::protocol::answer::{Failure, FailureKind};

/// A RocksDB that a user opened. Implemented for the binding's own types, and only here.
pub trait Database: Any + Send + Sync + sealed::Sealed {}

impl<T: ThreadMode + Send + Sync + 'static> Database for DBWithThreadMode<T> {}
impl<T: ThreadMode + Send + Sync + 'static> Database for OptimisticTransactionDB<T> {}
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
        /// The number of the last write.
        fn sequence(&self) -> u64;
        /// Starts a flush of what can be reached, and does not wait for it.
        fn start_flush(&self) -> Result<(), Failure>;
        /// RocksDB's own checkpoint: flushes, then links or copies every file.
        fn create_checkpoint(&self, into: &Path) -> Result<(), Failure>;
    }
}

const BACKGROUND_ERRORS: &str = "rocksdb.background-errors";

/// The binding's two kinds of `DBCommon`; their inner types have no public name to be generic over.
macro_rules! common {
    ($type:ident) => {
        impl<T: ThreadMode + Send + Sync + 'static> sealed::Sealed for $type<T> {
            fn path(&self) -> &Path {
                $type::path(self)
            }

            fn as_default(&self) -> Option<&DB> {
                (self as &dyn Any).downcast_ref()
            }

            fn refusal(&self) -> Option<&'static str> {
                None
            }

            fn background_errors(&self) -> Result<u64, Failure> {
                let value = self.property_int_value(BACKGROUND_ERRORS);
                value
                    .map_err(|error| rocksdb_failed(error.into(), "reading its errors"))?
                    .ok_or_else(|| {
                        let cause = format!("rocksdb has no property {BACKGROUND_ERRORS}");
                        Failure::new(FailureKind::Unsupported, cause)
                    })
            }

            fn sequence(&self) -> u64 {
                self.latest_sequence_number()
            }

            fn start_flush(&self) -> Result<(), Failure> {
                let mut options = FlushOptions::new();
                options.set_wait(false);
                self.flush_opt(&options)
                    .map_err(|error| rocksdb_failed(error.into(), "starting a flush"))
            }

            fn create_checkpoint(&self, into: &Path) -> Result<(), Failure> {
                Checkpoint::new(self)
                    .and_then(|checkpoint| checkpoint.create_checkpoint(into))
                    .map_err(|error| rocksdb_failed(error.into(), "taking a checkpoint"))
            }
        }
    };
}

common!(DBWithThreadMode);
common!(OptimisticTransactionDB);

const TRANSACTION_DB: &str = "TransactionDB: its prepared transactions live in the write-ahead log, \
     which no checkpoint carries; OptimisticTransactionDB is supported";

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
        Err(Failure::new(FailureKind::Unsupported, TRANSACTION_DB))
    }

    fn sequence(&self) -> u64 {
        0
    }

    fn start_flush(&self) -> Result<(), Failure> {
        Err(Failure::new(FailureKind::Unsupported, TRANSACTION_DB))
    }

    fn create_checkpoint(&self, _into: &Path) -> Result<(), Failure> {
        Err(Failure::new(FailureKind::Unsupported, TRANSACTION_DB))
    }
}
