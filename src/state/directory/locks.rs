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
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::Mutex;
use rustix::process::{FlockType, fcntl_getlk};

#[cfg(feature = "rocksdb")]
use super::DATABASE_LOCK;
use super::{failed, found, unlinked};
use crate::protocol::answer::Failure;

/// One asks at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// One of another container, or of another machine.
const UNSEEN: &str = "a process that can't be seen from here";

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
        Ok(true) => return Ok(Some(shown(&std::process::id().to_string()))),
        Ok(false) => {}
    }
    let held = unlinked::open(File::options().read(true), file)
        .and_then(|opened| Ok(fcntl_getlk(opened, &FlockType::WriteLock.into())?))
        .map_err(|error| {
            let doing = format_args!("asking who locks {}", file.display()).to_string();
            failed(&error, doing)
        })?;
    Ok(held.map(|lock| match lock.pid {
        Some(process) => shown(&process.as_raw_nonzero().to_string()),
        None => UNSEEN.to_owned(),
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
    let found = found(file)?;
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let listed = found.and_then(|found| listed(&locks, "FLOCK", directory, &found));
    Ok(listed.unwrap_or_else(|| UNSEEN.to_owned()))
}

/// The holder that the kernel's list names.
fn listed(locks: &str, class: &str, directory: &Path, found: &fs::Metadata) -> Option<String> {
    let (major, minor) = listed_device(directory)?;
    let listed = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let mut of_class = of_class(locks, class);
    of_class
        .find(|(_, file)| *file == listed)
        .map(|(process, _)| shown(process))
}

/// Process and file of the locks of a class that are held, not waited for.
/// `7: POSIX  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`
fn of_class<'a>(locks: &'a str, class: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    locks.lines().filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next() != Some(class) {
            return None;
        }
        let mut fields = fields.skip(2);
        Some((fields.next()?, fields.next()?))
    })
}

fn shown(process: &str) -> String {
    match process.parse::<u32>() {
        Ok(process) if process == std::process::id() => format!("this process ({process})"),
        Ok(process) => format!("process {process}"),
        Err(_) => UNSEEN.to_owned(),
    }
}

/// The device on which the kernel's lists say a directory's files lie. It is not always the one
/// that `stat` answers: of btrfs and overlays the lists name the whole file system.
fn listed_device(directory: &Path) -> Option<(u32, u32)> {
    let opened = unlinked::open_directory(directory).ok()?;
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd())).ok()?;
    let mount = about
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.next() == Some(mount.trim())).then(|| fields.nth(1))?
    })?;
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
