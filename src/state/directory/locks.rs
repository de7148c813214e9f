//! Who holds a lock on a file of a state's directory.
//!
//! ```text
//! the kernel's list ── names a holder ─────────────────────────> that process
//!        └── names none ──> is a record lock this process's? ──yes─> nobody else's
//!                                   └─no─> open the file and ask ──> a process that can't be seen
//! ```
//! The list (`/proc/locks`) shows nothing of a process in another process space, a container for
//! one, so what it does not show may be locked all the same. Asking about a record lock takes an
//! open file, and closing that frees all record locks that this process itself holds on it: hence
//! the list comes first, and the file is opened only if it shows none of ours.
//!
//! Invariants: a record lock of this process is never freed; nothing is locked.
//!
//! What it does not do: see a database that is open for reading only, which locks nothing; ask
//! where there is no such list, since a lock of this process could not be told.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{FlockType, fcntl_getlk};

use super::{failed, found, unlinked};
use crate::protocol::answer::Failure;

/// One of another container, or of another machine.
const UNSEEN: &str = "a process that can't be seen from here";

/// The process, this one included, that holds a record lock (`fcntl`) on a file of the directory.
pub(super) fn record_lock_holder(directory: &Path, file: &Path) -> Result<Option<String>, Failure> {
    let Some(found) = found(file)? else {
        return Ok(None);
    };
    let Ok(locks) = fs::read_to_string("/proc/locks") else {
        return Ok(None);
    };
    if let Some(listed) = listed(&locks, "POSIX", directory, &found) {
        return Ok(Some(listed));
    }
    if !found.is_file() || may_be_ours(&locks, &found) {
        return Ok(None);
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

/// Whether this process holds a record lock on a file with this number. On which device it lies is
/// not asked: the list may name one that can't be told from here.
fn may_be_ours(locks: &str, found: &fs::Metadata) -> bool {
    let (process, number) = (std::process::id().to_string(), found.ino().to_string());
    of_class(locks, "POSIX")
        .any(|(holder, file)| holder == process && file.rsplit(':').next() == Some(&*number))
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
