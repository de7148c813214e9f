//! Which process holds the lock (`flock`) of a whole file, as the kernel's list says.
//!
//! What it does not do: lock, or know of processes of other machines and other containers.

use std::fs;
use std::os::fd::AsRawFd;

/// One of another container, or of another machine.
pub(crate) const UNSEEN: &str = "a process that can't be seen from here";

/// The process that holds the lock of the file with this number, which lies in the open directory.
pub(crate) fn holder(directory: &impl AsRawFd, inode: u64) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    listed(&locks, directory, inode).unwrap_or_else(|| UNSEEN.to_owned())
}

/// A process by its number, for people.
pub(crate) fn shown(process: &str) -> String {
    match process.parse::<u32>() {
        Ok(process) if process == std::process::id() => format!("this process ({process})"),
        Ok(process) => format!("process {process}"),
        Err(_) => UNSEEN.to_owned(),
    }
}

/// The holder that the list names.
fn listed(locks: &str, directory: &impl AsRawFd, inode: u64) -> Option<String> {
    let (major, minor) = listed_device(directory)?;
    let listed = format!("{major:02x}:{minor:02x}:{inode}");
    held(locks)
        .find(|(_, file)| *file == listed)
        .map(|(process, _)| shown(process))
}

/// Process and file of the locks of whole files that are held, not waited for.
/// `7: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`
fn held(locks: &str) -> impl Iterator<Item = (&str, &str)> {
    locks.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next() != Some("FLOCK") {
            return None;
        }
        let mut fields = fields.skip(2);
        Some((fields.next()?, fields.next()?))
    })
}

/// The device on which the kernel's lists say a directory's files lie. It is not always the one
/// that `stat` answers: of btrfs and overlays the lists name the whole file system.
fn listed_device(directory: &impl AsRawFd) -> Option<(u32, u32)> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", directory.as_raw_fd())).ok()?;
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
