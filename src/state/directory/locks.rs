//! Who holds a lock on a file of a state's directory.
//!
//! ```text
//! does this process have the file open? ──yes──> this process
//!        └──no──> open it and ask ──> another process, or one that can't be seen from here
//! ```
//! Asking about a record lock takes an open file, and closing that frees all record locks that this
//! process itself holds on it; nor does a process hear of its own. Hence its own open files come
//! first: a database has its lock's file open as long as it holds it. The kernel's list of locks
//! (`/proc/locks`) would tell as well, but a lock can be missing from it while others come and go.
//!
//! Invariants: a record lock of this process is never freed; nothing is locked.
//!
//! What it does not do: see a database that is open for reading only, which locks nothing; ask
//! where there is no list of a process's open files, since its own lock could not be told.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::Mutex;
use rustix::process::{FlockType, fcntl_getlk};

#[cfg(feature = "rocksdb")]
use super::DATABASE_LOCK;
use super::{failed, found, unlinked};
use crate::file_locks;
use crate::protocol::answer::Failure;

/// One asks at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// The process, this one included, that holds a record lock (`fcntl`) on a file of the directory.
pub(super) fn record_lock_holder(file: &Path) -> Result<Option<String>, Failure> {
    let Some(found) = found(file)? else {
        return Ok(None);
    };
    if !found.is_file() {
        return Ok(None);
    }
    // Another that asks has the file open as well.
    let _alone = ASKING.lock();
    match is_open_here(&found) {
        // Its own lock could not be told, and asking would free it.
        Err(_) => return Ok(None),
        Ok(true) => return Ok(Some(file_locks::shown(&std::process::id().to_string()))),
        Ok(false) => {}
    }
    let held = unlinked::open(File::options().read(true), file)
        .and_then(|opened| Ok(fcntl_getlk(opened, &FlockType::WriteLock.into())?))
        .map_err(|error| {
            let doing = format_args!("asking who locks {}", file.display()).to_string();
            failed(&error, doing)
        })?;
    Ok(held.map(|lock| match lock.pid {
        Some(process) => file_locks::shown(&process.as_raw_nonzero().to_string()),
        None => file_locks::UNSEEN.to_owned(),
    }))
}

/// Whether this process has a database's lock in a directory open, as it has for as long as it has that
/// database open; `None` where that can't be told. A directory may have been renamed since its database
/// was opened, and another may bear its name.
#[cfg(feature = "rocksdb")]
pub(in crate::state) fn is_database_open_here(directory: &Path) -> Option<bool> {
    match found(&directory.join(DATABASE_LOCK)) {
        Ok(None) => Some(false),
        Ok(Some(found)) => {
            let _alone = ASKING.lock();
            is_open_here(&found).ok()
        }
        Err(_) => None,
    }
}

/// Whether this process has a file open, under whatever name.
fn is_open_here(file: &fs::Metadata) -> std::io::Result<bool> {
    for descriptor in fs::read_dir("/proc/self/fd")? {
        // One that is closed meanwhile was not a database's lock.
        if let Ok(open) = fs::metadata(descriptor?.path())
            && (open.dev(), open.ino()) == (file.dev(), file.ino())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process that holds the lock (`flock`) of a whole file of the directory, which somebody
/// does.
pub(super) fn whole_lock_holder(directory: &Path, file: &Path) -> Result<String, Failure> {
    let Some(found) = found(file)? else {
        return Ok(file_locks::UNSEEN.to_owned());
    };
    Ok(match unlinked::open_directory(directory) {
        Ok(opened) => file_locks::holder(&opened, found.ino()),
        Err(_) => file_locks::UNSEEN.to_owned(),
    })
}
