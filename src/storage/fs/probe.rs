//! Where the steps on which durability rests are told of, and where this module's tests watch and
//! break them: in what order they come, and what an error of each is answered with.

use rustix::io::Errno;

use crate::steps::store_step;

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

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::SyncFile => "sync",
            Self::MakeFolder => "make directory",
            Self::SyncFolder => "sync directory",
            Self::Publish => "name",
            Self::Link => "link",
            Self::Lock => "locked",
            Self::Replace => "replace",
            Self::Unlink => "remove",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Probe {
    #[cfg(test)]
    seen: parking_lot::Mutex<Vec<(Act, String)>>,
    #[cfg(test)]
    faults: parking_lot::Mutex<Vec<(Act, Errno)>>,
    #[cfg(test)]
    lost: parking_lot::Mutex<Vec<(Act, Errno)>>,
    #[cfg(test)]
    hanging: Hanging,
}

/// Steps that hang, and how many do so now.
#[cfg(test)]
#[derive(Debug, Default)]
struct Hanging {
    now: parking_lot::Mutex<(Vec<(Act, String)>, usize)>,
    changed: parking_lot::Condvar,
}

impl Probe {
    /// Comes before each such step; `at` says where.
    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self, reason = "the same call as under test")]
    pub(super) fn pass(&self, act: Act, at: &str) -> Result<(), Errno> {
        store_step(act.name(), at);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn pass(&self, act: Act, at: &str) -> Result<(), Errno> {
        store_step(act.name(), at);
        self.seen.lock().push((act, at.to_owned()));
        self.hang_if_told(act, at);
        Self::take_next(&self.faults, act)
    }

    /// What is heard of such a step, once it has been made.
    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self, reason = "the same call as under test")]
    pub(super) fn heard(&self, _act: Act, result: Result<(), Errno>) -> Result<(), Errno> {
        result
    }

    #[cfg(test)]
    pub(super) fn heard(&self, act: Act, result: Result<(), Errno>) -> Result<(), Errno> {
        result.and_then(|()| Self::take_next(&self.lost, act))
    }

    #[cfg(test)]
    fn take_next(from: &parking_lot::Mutex<Vec<(Act, Errno)>>, act: Act) -> Result<(), Errno> {
        let mut told = from.lock();
        match told.iter().position(|(fault, _)| *fault == act) {
            Some(place) => Err(told.remove(place).1),
            None => Ok(()),
        }
    }

    /// Makes the next such step be done, and fail for all that is heard of it: as behind a server
    /// whose first answer was lost.
    #[cfg(test)]
    pub(super) fn lose_next(&self, act: Act, errno: Errno) {
        self.lost.lock().push((act, errno));
    }

    /// Makes the next such step fail instead of being done.
    #[cfg(test)]
    pub(super) fn break_next(&self, act: Act, errno: Errno) {
        self.faults.lock().push((act, errno));
    }

    #[cfg(test)]
    fn hang_if_told(&self, act: Act, at: &str) {
        let mut now = self.hanging.now.lock();
        let is_told = |told: &(Act, String)| told.0 == act && at.starts_with(&told.1);
        if now.0.iter().any(is_told) {
            now.1 += 1;
            while now.0.iter().any(is_told) {
                self.hanging.changed.wait(&mut now);
            }
            now.1 -= 1;
        }
    }

    /// Makes each such step hang, from now on, where its place begins so.
    #[cfg(test)]
    pub(super) fn hang(&self, act: Act, at: &str) {
        self.hanging.now.lock().0.push((act, at.to_owned()));
    }

    /// Ends what [`hang`](Self::hang) began.
    #[cfg(test)]
    pub(super) fn go_on(&self) {
        self.hanging.now.lock().0.clear();
        self.hanging.changed.notify_all();
    }

    /// How many steps hang now.
    #[cfg(test)]
    pub(super) fn hanging(&self) -> usize {
        self.hanging.now.lock().1
    }

    /// The steps since the last time this was asked.
    #[cfg(test)]
    pub(super) fn take(&self) -> Vec<(Act, String)> {
        std::mem::take(&mut self.seen.lock())
    }
}
