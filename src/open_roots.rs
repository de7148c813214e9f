//! The roots of the repositories that are open in this process, for whoever empties directories.
//!
//! Invariant: a root is known from before anything is written to it until its store is dropped.
//!
//! What it does not do: know the repositories that other processes have open.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::places::around;

static ROOTS: Mutex<Roots> = Mutex::new(Roots {
    next: 0,
    open: BTreeMap::new(),
});

struct Roots {
    next: u64,
    open: BTreeMap<u64, PathBuf>,
}

/// A root that is known for as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenRoot(u64);

impl OpenRoot {
    pub(crate) fn new(path: &Path) -> Self {
        let mut roots = ROOTS.lock();
        let number = roots.next;
        roots.next += 1;
        roots.open.insert(number, path.to_owned());
        Self(number)
    }
}

impl Drop for OpenRoot {
    fn drop(&mut self) {
        ROOTS.lock().open.remove(&self.0);
    }
}

/// A root that a directory, which may be absent yet, lies in, or that lies in it.
pub(crate) fn overlapping(directory: &Path) -> Option<PathBuf> {
    let roots: Vec<_> = ROOTS.lock().open.values().cloned().collect();
    let above = way(directory);
    let own = identity(directory);
    roots.into_iter().find(|root| {
        let root_above = way(root);
        let is_in_root = identity(root).is_some_and(|root| above.contains(&root));
        is_in_root || own.is_some_and(|own| root_above.contains(&own))
    })
}

type Identity = (u64, u64);

/// A directory by what the system knows it by: one may have several paths.
fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The part of a path that is there, from its end to the top, without links.
fn way(path: &Path) -> Vec<Identity> {
    let around = around(path);
    around.iter().filter_map(|above| identity(above)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    #[test]
    fn a_root_is_known_by_whatever_path() {
        let base = tempfile::tempdir().unwrap();
        let at = |text: &str| base.path().join(text);
        let root = at("state/checkpoints");
        fs::create_dir_all(root.join("inside")).unwrap();
        fs::create_dir_all(at("beside")).unwrap();
        std::os::unix::fs::symlink(at("state"), at("link")).unwrap();
        let open = OpenRoot::new(&root);
        for path in [
            "state",
            "link",
            "link/checkpoints",
            "state/checkpoints",
            "state/checkpoints/inside",
            "link/checkpoints/absent/below",
        ] {
            assert_eq!(overlapping(&at(path)), Some(root.clone()), "{path}");
        }
        for path in ["beside", "state/other", "absent"] {
            assert_eq!(overlapping(&at(path)), None, "{path}");
        }
        drop(open);
        assert_eq!(overlapping(&at("state")), None);
    }
}
