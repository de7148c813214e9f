//! The three calls of RocksDB's C interface that the safe binding lacks. The only `unsafe` code of
//! this crate.
//!
//! - `rocksdb_get_livefiles_storage_info` lists the files that a database consists of, with the
//!   length that each had at that instant, for 10 µs a file and without making any. The safe
//!   binding offers `create_checkpoint` instead, which links every file, and `live_files`, which
//!   knows no blob files and not how much of the MANIFEST belongs to the list.
//! - `rocksdb_flush_cfs` with `force_atomic_flush`, which the binding's `FlushOptions` can't set:
//!   all families are flushed as one, whatever the database's own option, and which families there
//!   are is RocksDB's own knowledge (an empty list means all of them);
//! - `rocksdb_compact_files_cf`, asked for what it always refuses, since the reason that it gives is
//!   all that can be learned of `db_paths` and `cf_paths` before there are tables in them.
//!
//! What makes each call sound is said where it is made; the pointers that RocksDB gives out are
//! owned by a type that gives them back exactly once.
#![expect(
    unsafe_code,
    reason = "the safe binding has no counterpart of these three calls"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use librocksdb_sys as ffi;
use rocksdb::{AsColumnFamilyRef, AsRawPtr, DB};

/// A file that belongs to the database at the instant of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LiveFile {
    /// Its name in `directory`.
    pub(super) name: Vec<u8>,
    /// Where it lies: the database's own directory, or one that `db_paths` or `cf_paths` names.
    pub(super) directory: Vec<u8>,
    /// What it is.
    pub(super) kind: LiveFileKind,
    /// How much of it belongs to the list; the file may have grown since if `may_grow`.
    pub(super) size_bytes: u64,
    /// Whether the file on disk may be longer than that.
    pub(super) may_grow: bool,
    /// What stands for the file's content, if it may have been replaced since.
    pub(super) replacement: Option<Vec<u8>>,
}

/// What RocksDB's `FileType` says, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LiveFileKind {
    /// A table or a blob file: immutable.
    State,
    /// A write-ahead log.
    Log,
    /// `CURRENT`, which makes a directory a database.
    Current,
    /// The MANIFEST, the options and whatever else there may come to be.
    Other,
}

impl LiveFileKind {
    /// The numbers of `enum FileType` in RocksDB's `types.h`, which its C interface passes on.
    fn from_number(number: c_int) -> Self {
        match number {
            0 => Self::Log,
            2 | 10 => Self::State,
            4 => Self::Current,
            _ => Self::Other,
        }
    }
}

/// Flushes all families as one and waits for it, but not for compactions first: writes may be slowed
/// down a little earlier than with that, but a cut does not hold its writers for a compaction, and
/// none is put off by one.
///
/// **It may still return too early.** Where several families are flushed as one, RocksDB 11.8.1
/// waits for each until another's memtables are flushed: `AtomicFlushMemTables` passes the families
/// in the order of a list and the numbers to wait for in that of an unordered map. The caller has to
/// look whether anything is left.
pub(super) fn flush_all(db: &DB) -> Result<(), String> {
    let options = FlushOptions::new();
    let mut error = ErrorMessage::new();
    // SAFETY: `options` lives until after the calls, which only set fields of it.
    unsafe {
        ffi::rocksdb_flushoptions_set_wait(options.0.as_ptr(), 1);
        ffi::rocksdb_flushoptions_set_allow_write_stall(options.0.as_ptr(), 1);
        ffi::rocksdb_flushoptions_set_force_atomic_flush(options.0.as_ptr(), 1);
    }
    // SAFETY: the database is open as long as `db` lives, which outlives the call, and RocksDB
    // allows any number of threads in it. Of zero families none is read.
    unsafe {
        ffi::rocksdb_flush_cfs(
            db.as_raw_ptr(),
            options.0.as_ptr(),
            ptr::null_mut(),
            0,
            error.place(),
        );
    }
    error.into_result()
}

/// Lists the files that the database consists of. Nothing is flushed: what is in memory only is
/// not in them.
pub(super) fn live_files(db: &DB) -> Result<Vec<LiveFile>, String> {
    let options = ListOptions::new();
    let mut error = ErrorMessage::new();
    // SAFETY: `options` lives until after the call, which only sets a field of it.
    unsafe {
        ffi::rocksdb_livefiles_storage_info_options_set_wal_size_for_flush(
            options.0.as_ptr(),
            u64::MAX,
        );
    }
    // SAFETY: the database is open as long as `db` lives, which outlives the call, and RocksDB
    // allows any number of threads in it. The answer is owned from here on.
    let list = unsafe {
        ffi::rocksdb_get_livefiles_storage_info(db.as_raw_ptr(), options.0.as_ptr(), error.place())
    };
    let list = NonNull::new(list).map(List);
    error.into_result()?;
    let list = list.ok_or("no list and no error")?;
    Ok((0..list.len()).map(|index| list.file(index)).collect())
}

/// Whether a family's tables may come to lie in several directories; `None` if RocksDB does not say
/// (compactions by hand are switched off, say).
///
/// No call tells a family's paths. But RocksDB 11.8.1, asked to compact no files at all into
/// whichever path it likes, refuses in one of two ways: with several paths it does not choose
/// (`NotSupported`), with a single one there are no files (`InvalidArgument`). Nothing is compacted
/// either way. A family without a handle is taken for the default one, which needs none.
pub(super) fn has_several_paths(db: &DB, family: &str) -> Option<bool> {
    const ANY_PATH: c_int = -1;
    let handle = db.cf_handle(family);
    let mut error = ErrorMessage::new();
    // SAFETY: the database is open as long as `db` lives, and the family's handle as long as
    // `handle` does; both outlive the call, and RocksDB allows any number of threads in it. Null
    // stands for the default family, default options, and answers that are not wanted. Of zero names
    // none is read.
    unsafe {
        ffi::rocksdb_compact_files_cf(
            db.as_raw_ptr(),
            handle
                .as_ref()
                .map_or(ptr::null_mut(), AsColumnFamilyRef::inner),
            ptr::null(),
            ptr::null(),
            0,
            0,
            ANY_PATH,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            error.place(),
        );
    }
    let refusal = error.into_result().err()?;
    if refusal.starts_with("Not implemented") {
        Some(true)
    } else {
        refusal.starts_with("Invalid argument").then_some(false)
    }
}

struct FlushOptions(NonNull<ffi::rocksdb_flushoptions_t>);

impl FlushOptions {
    fn new() -> Self {
        // SAFETY: takes nothing, gives a new object, which is this type's alone.
        let made = unsafe { ffi::rocksdb_flushoptions_create() };
        Self(NonNull::new(made).expect("C++ `new` gives an object or throws"))
    }
}

impl Drop for FlushOptions {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed here alone.
        unsafe { ffi::rocksdb_flushoptions_destroy(self.0.as_ptr()) }
    }
}

struct ListOptions(NonNull<ffi::rocksdb_livefiles_storage_info_options_t>);

impl ListOptions {
    fn new() -> Self {
        // SAFETY: takes nothing, gives a new object, which is this type's alone.
        let made = unsafe { ffi::rocksdb_livefiles_storage_info_options_create() };
        Self(NonNull::new(made).expect("C++ `new` gives an object or throws"))
    }
}

impl Drop for ListOptions {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed here alone.
        unsafe { ffi::rocksdb_livefiles_storage_info_options_destroy(self.0.as_ptr()) }
    }
}

/// RocksDB's list; what is read from it is copied before it is given back.
struct List(NonNull<ffi::rocksdb_livefiles_storage_info_t>);

impl List {
    fn len(&self) -> usize {
        // SAFETY: the list is owned by `self` and never changed.
        unsafe { ffi::rocksdb_livefiles_storage_info_count(self.0.as_ptr()) }
    }

    fn file(&self, index: usize) -> LiveFile {
        assert!(index < self.len(), "file {index} of {}", self.len());
        let list = self.0.as_ptr();
        let mut length = 0;
        // SAFETY: the list is owned by `self` and never changed, and `index` is in it. Both names
        // are strings that end with a zero and live as long as the list; the replacement has
        // `length` bytes, which live as long. All three are copied here.
        unsafe {
            let replacement =
                ffi::rocksdb_livefiles_storage_info_replacement_contents(list, index, &mut length);
            LiveFile {
                name: copy(ffi::rocksdb_livefiles_storage_info_relative_filename(
                    list, index,
                )),
                directory: copy(ffi::rocksdb_livefiles_storage_info_directory(list, index)),
                kind: LiveFileKind::from_number(ffi::rocksdb_livefiles_storage_info_file_type(
                    list, index,
                )),
                size_bytes: ffi::rocksdb_livefiles_storage_info_size(list, index),
                may_grow: ffi::rocksdb_livefiles_storage_info_trim_to_size(list, index) != 0,
                replacement: (!replacement.is_null() && length > 0)
                    .then(|| slice::from_raw_parts(replacement.cast::<u8>(), length).to_vec()),
            }
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: given to `live_files` to own, destroyed here alone.
        unsafe { ffi::rocksdb_livefiles_storage_info_destroy(self.0.as_ptr()) }
    }
}

/// # Safety
/// `text` is null or ends with a zero.
unsafe fn copy(text: *const c_char) -> Vec<u8> {
    if text.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

/// Where a call of the C interface leaves what went wrong.
struct ErrorMessage(*mut c_char);

impl ErrorMessage {
    fn new() -> Self {
        Self(ptr::null_mut())
    }

    fn place(&mut self) -> *mut *mut c_char {
        &mut self.0
    }

    fn into_result(self) -> Result<(), String> {
        if self.0.is_null() {
            return Ok(());
        }
        // SAFETY: RocksDB left a message that ends with a zero.
        let message = unsafe { copy(self.0) };
        Err(String::from_utf8_lossy(&message).into_owned())
    }
}

impl Drop for ErrorMessage {
    fn drop(&mut self) {
        // SAFETY: null, or a message that RocksDB allocated for the caller to free, freed here alone.
        unsafe { ffi::rocksdb_free(self.0.cast::<c_void>()) }
    }
}
