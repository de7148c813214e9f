//! How a complete file becomes an object, and how the one mutable object is replaced.
//!
//! ```text
//! put    write .tmp/x ─ sync it ─────────────────────────── name it, unless taken ─ sync folder
//! swap   write .tmp/x ─ sync it ─ lock LOCK ─ read, compare ─ rename over it ─ sync folder ─ unlock
//! ```
//!
//! `LOCK` is a file of its own because a lock of the object itself would have two holders after a
//! rename: one of the old file, one of the new. It is never renamed or removed, and the kernel
//! unlocks it when its holder dies. Nothing slow happens under it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::blocking::Cancellation;
use super::failure::{failure, not_carried_out};
use super::probe::Act;
use super::root::{FOLDER_TRIES_MAX, Folder, Root, stat_at};
use super::temporary::{Temporary, try_lock, unlink};
use crate::file_locks;
use crate::protocol::answer::{Failure, FailureKind, Tag};
use crate::storage::step::{Step, Stop};
use crate::storage::{Digester, Key, LOCK_NAME};

/// How long a swap waits before it tries the lock again: from the first to the second, doubling.
/// Waiting like that instead of in the kernel lets a swap be given up while a neighbour that was
/// stopped holds the lock.
const LOCK_PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(10));

/// A lock that nobody could get for so long is somebody's who does something slow under it, or not
/// this library's: the swap fails and names it, and is tried again.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Gives a complete temporary its name, unless that is taken, and makes name and content durable.
pub(super) fn publish(
    root: &Root,
    mut temporary: Temporary,
    key: &Key,
    cancellation: &Cancellation,
) -> Step<()> {
    temporary.sync()?;
    let mut in_doubt = false;
    for _ in 0..FOLDER_TRIES_MAX {
        match try_to_publish(root, &mut temporary, key, cancellation) {
            // Somebody removed the folder because it was empty. Or the file has its name, and the
            // answer that said so was lost.
            Err(Stop::Unknown(failure)) if failure.kind == FailureKind::NotFound => in_doubt = true,
            // What failed now may have been done before.
            Err(Stop::Failed(failure)) if in_doubt => return Err(Stop::Unknown(failure)),
            published => return published,
        }
    }
    Err(Stop::Unknown(root.keeps_vanishing(key.folder())))
}

fn try_to_publish(
    root: &Root,
    temporary: &mut Temporary,
    key: &Key,
    cancellation: &Cancellation,
) -> Step<()> {
    cancellation.check()?;
    let folder = root.make_folder(key.folder())?;
    match give_name(root, temporary, &folder, key) {
        Ok(()) => {
            temporary.has_its_name();
            root.sync(&folder).map_err(Stop::Unknown)
        }
        Err(Errno::EXIST) => {
            root.sync(&folder).map_err(Stop::Unknown)?;
            Err(Stop::Refused)
        }
        Err(errno) => Err(not_renamed(root, temporary, key, errno)),
    }
}

fn give_name(root: &Root, temporary: &Temporary, folder: &Folder, key: &Key) -> Result<(), Errno> {
    let (from, old) = (temporary.directory(), temporary.name());
    let (to, new) = (&folder.directory, key.leaf());
    let renamed = root
        .probe
        .pass(Act::Publish, key.as_str())
        .and_then(|()| rename_unless_taken(from, old, to, new));
    match root.probe.heard(Act::Publish, renamed) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let linked = root
                .probe
                .pass(Act::Link, key.as_str())
                .and_then(|()| link_unless_taken(from, old, temporary.file(), to, new));
            root.probe.heard(Act::Link, linked)
        }
        renamed => renamed,
    }
}

/// Renames a file, unless the new name is taken, in one step of the file system.
pub(super) fn rename_unless_taken(
    from: &OwnedFd,
    old: &str,
    to: &OwnedFd,
    new: impl rustix::path::Arg,
) -> Result<(), Errno> {
    rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE)
}

/// The same where the file system has no such rename (NFS): a link never overwrites either. `file`
/// is the one that bears the old name.
pub(super) fn link_unless_taken(
    from: &OwnedFd,
    old: &str,
    file: &File,
    to: &OwnedFd,
    new: impl rustix::path::Arg,
) -> Result<(), Errno> {
    let is_ours = || rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 2);
    match rustix::fs::linkat(from, old, to, new, AtFlags::empty()) {
        // A server whose first answer was lost finds the name taken, by ourselves.
        Err(Errno::EXIST) if is_ours() => {}
        linked => linked?,
    }
    // Both names are the same file; the old one goes now or at the next start.
    let _ = unlink(from, old);
    Ok(())
}

fn not_renamed(root: &Root, temporary: &Temporary, key: &Key, errno: Errno) -> Stop {
    let to = root.shown(key.as_str());
    let tried = format!("rename {} to", temporary.shown().display());
    not_carried_out(errno, failure(errno, tried, &to))
}

/// Replaces the mutable object by a complete temporary if it still is the expected one.
pub(super) fn swap(
    root: &Root,
    mut temporary: Temporary,
    key: &Key,
    expected: Option<&Tag>,
    cancellation: &Cancellation,
) -> Step<()> {
    temporary.sync()?;
    let (folder, _lock) = lock_folder(root, key.folder(), cancellation)?;
    let found = match root.object_in(&folder, key) {
        Ok(object) => Some(object),
        Err(failure) if failure.kind == FailureKind::NotFound => None,
        Err(failure) => return Err(failure.into()),
    };
    let is_expected = match (expected, found) {
        (None, None) => true,
        (Some(expected), Some((file, stat))) => has_tag(&file, &stat, expected)
            .map_err(|error| failure(error, "read", &root.shown(key.as_str())))?,
        (None, Some(_)) | (Some(_), None) => false,
    };
    if !is_expected {
        return Err(Stop::Refused);
    }
    cancellation.check()?;
    let renamed = root.probe.pass(Act::Replace, key.as_str()).and_then(|()| {
        let (from, old) = (temporary.directory(), temporary.name());
        rustix::fs::renameat(from, old, &folder.directory, key.leaf())
    });
    match root.probe.heard(Act::Replace, renamed) {
        Ok(()) => {
            temporary.has_its_name();
            root.sync(&folder).map_err(Stop::Unknown)
        }
        Err(errno) => Err(not_renamed(root, &temporary, key, errno)),
    }
}

/// The tag of a content: checksum and length. A manifest's version and nonce stand in it, so that
/// a content never comes back.
pub(super) fn tag_of(content: &[u8]) -> Tag {
    let digest = Digester::of(content);
    Tag(format!("{}-{}", digest.checksum, digest.size_bytes))
}

/// Whether a file's content has a tag. One of another length is not read: it may be any size.
fn has_tag(file: &File, stat: &Stat, tag: &Tag) -> io::Result<bool> {
    let size_bytes = super::size_of(stat);
    if !tag.0.ends_with(&format!("-{size_bytes}")) {
        return Ok(false);
    }
    let mut content = Vec::new();
    file.take(size_bytes).read_to_end(&mut content)?;
    Ok(tag_of(&content) == *tag)
}

/// A folder, made if need be, with its `LOCK` held.
fn lock_folder(root: &Root, name: &str, cancellation: &Cancellation) -> Step<(Folder, OwnedFd)> {
    for _ in 0..FOLDER_TRIES_MAX {
        let folder = root.make_folder(name)?;
        match lock(root, &folder, LOCK_WAIT_MAX, cancellation) {
            Ok(lock) => return Ok((folder, lock)),
            // Somebody removed the folder because it was empty.
            Err(failure) if failure.kind == FailureKind::NotFound => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(root.keeps_vanishing(name).into())
}

/// Locks the folder's `LOCK`, whoever else wants it in this process or another.
fn lock(
    root: &Root,
    folder: &Folder,
    wait_max: Duration,
    cancellation: &Cancellation,
) -> Result<OwnedFd, Failure> {
    let begun = Instant::now();
    let shown = root.shown(&super::root::join(&folder.name, LOCK_NAME));
    let fail = |errno, tried| failure(errno, tried, &shown);
    let mut pause = LOCK_PAUSES.0;
    'open: loop {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat(&folder.directory, LOCK_NAME, flags, mode)
            .map_err(|errno| fail(errno, "open"))?;
        while !try_lock(&file).map_err(|errno| fail(errno, "lock"))? {
            cancellation.check()?;
            if begun.elapsed() >= wait_max {
                let holder = match rustix::fs::fstat(&file) {
                    Ok(found) => file_locks::holder(&folder.directory, found.st_ino),
                    Err(_) => file_locks::UNSEEN.to_owned(),
                };
                let cause = format!("{} is locked by {holder}", shown.display());
                return Err(Failure::new(FailureKind::Unavailable, cause));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOCK_PAUSES.1);
            // Should somebody have removed it against the rules, the new one is the one that counts.
            if !is_named(&file, folder).map_err(|errno| fail(errno, "stat"))? {
                continue 'open;
            }
        }
        if is_named(&file, folder).map_err(|errno| fail(errno, "stat"))? {
            root.probe
                .pass(Act::Lock, &folder.name)
                .map_err(|errno| fail(errno, "lock"))?;
            return Ok(file);
        }
        cancellation.check()?;
    }
}

fn is_named(file: &OwnedFd, folder: &Folder) -> Result<bool, Errno> {
    let opened = rustix::fs::fstat(file)?;
    match stat_at(&folder.directory, LOCK_NAME) {
        Ok(named) => Ok(identity(&opened) == identity(&named)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use rustix::fs::FlockOperation;

    use super::*;
    use crate::storage::fs::FileSystem;

    #[tokio::test]
    async fn a_lock_that_is_not_let_go_of_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let store = FileSystem::at(directory.path()).open().await.unwrap();
        let root = &store.inner.root;
        let folder = root.make_folder("").unwrap();
        let (nobody, soon) = (Cancellation::default(), Duration::ZERO);
        drop(lock(root, &folder, soon, &nobody).unwrap());
        let held = File::open(directory.path().join(LOCK_NAME)).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let failure = lock(root, &folder, soon, &nobody).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        let path = directory.path().join(LOCK_NAME);
        assert_eq!(
            failure.cause,
            format!(
                "{} is locked by this process ({})",
                path.display(),
                std::process::id()
            )
        );
        drop(held);
        lock(root, &folder, soon, &nobody).unwrap();
    }
}
