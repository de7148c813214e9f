//! Where this module's tests watch, and break, the steps on which durability rests: in what order
//! they come, and what an error of each is answered with. Outside tests it is nothing.

use rustix::io::Errno;

/// A step that matters for durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// A file's content is synced.
    SyncFile,
    /// A folder is made.
    MakeFolder,
    /// A folder's entries are synced.
    SyncFolder,
    /// A complete file gets its name by a rename that never overwrites.
    Publish,
    /// A complete file gets its name by a link.
    Link,
    /// `LOCK` has been locked.
    Lock,
    /// The mutable object is replaced.
    Replace,
    /// A name is removed.
    Unlink,
}

#[derive(Debug, Default)]
pub(super) struct Probe {
    #[cfg(test)]
    seen: parking_lot::Mutex<Vec<(Act, String)>>,
    #[cfg(test)]
    faults: parking_lot::Mutex<Vec<(Act, Errno)>>,
}

impl Probe {
    /// Comes before each such step; `at` says where.
    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self, reason = "the same call as under test")]
    pub(super) fn pass(&self, _act: Act, _at: &str) -> Result<(), Errno> {
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn pass(&self, act: Act, at: &str) -> Result<(), Errno> {
        self.seen.lock().push((act, at.to_owned()));
        let mut faults = self.faults.lock();
        match faults.iter().position(|(fault, _)| *fault == act) {
            Some(place) => Err(faults.remove(place).1),
            None => Ok(()),
        }
    }

    /// Makes the next such step fail instead of being done.
    #[cfg(test)]
    pub(super) fn break_next(&self, act: Act, errno: Errno) {
        self.faults.lock().push((act, errno));
    }

    /// The steps since the last time this was asked.
    #[cfg(test)]
    pub(super) fn take(&self) -> Vec<(Act, String)> {
        std::mem::take(&mut self.seen.lock())
    }
}
