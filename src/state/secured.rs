//! Files of a snapshot that stay readable until they are uploaded.
//!
//! A state backend goes on living after the cut: a compaction deletes files that a checkpoint still
//! has to read. A hard link keeps such a file's bytes for as long as somebody needs them and costs
//! no copy; where the file system refuses one, the file is copied, which is reported (RocksDB
//! issues 4364, 9182, 9627: a checkpoint that fails for ever, or copies in silence).
//!
//! A pack lies beside the links, as a file that is written once and uploaded like them.
//!
//! Invariant: the link's life is the [`SecuredFile`]'s, whatever becomes of the checkpoint, so an
//! upload that a later checkpoint takes over goes on reading.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::StateFile;
use super::attempt_directory::AttemptDirectory;
use super::failure::failed;
use super::pack::{PACK_NAME, Pack};
use super::unlinked;
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::LocalName;
use crate::steps::step;

/// What a snapshot hands over for upload.
#[derive(Debug)]
pub struct Secured {
    /// The files that were asked for, in the order in which they were.
    pub files: Vec<SecuredFile>,
    /// The pack, as it is to be stored: see [`super::pack`].
    pub pack: SecuredPack,
    /// What could not be linked.
    pub copied: Copied,
}

impl Secured {
    /// The same with these files only; the others are let go of.
    #[must_use]
    pub(super) fn only(mut self, wanted: &[LocalName]) -> Self {
        let mut by_name: BTreeMap<_, _> = self
            .files
            .into_iter()
            .map(|file| (file.name.clone(), file))
            .collect();
        self.files = wanted
            .iter()
            .filter_map(|name| by_name.remove(name))
            .collect();
        self
    }
}

/// A snapshot's pack, as it is to be stored.
#[derive(Debug)]
pub enum SecuredPack {
    /// In memory: of a state that is small.
    Bytes(Vec<u8>),
    /// Beside the snapshot's links, read as they are.
    File(SecuredFile),
}

impl SecuredPack {
    /// Its length.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.size_bytes,
        }
    }
}

/// Files that had to be copied because the file system refused a hard link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// How many.
    pub files: u64,
    /// Their size together.
    pub size_bytes: u64,
}

/// A file of a snapshot under a path of its own. Dropping it removes that path.
#[derive(Debug)]
pub struct SecuredFile {
    name: LocalName,
    path: PathBuf,
    size_bytes: u64,
    /// Keeps the directory for as long as something in it is read.
    _directory: Arc<AttemptDirectory>,
}

impl SecuredFile {
    /// The name that the cut listed it under.
    #[must_use]
    pub fn name(&self) -> &LocalName {
        &self.name
    }

    /// Where to read it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length as listed at the cut. What is read must have exactly this length.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Links `source`, which is that long, into `directory`, or copies it where it can't be
    /// linked, which is reported and counted.
    ///
    /// # Errors
    /// Trouble with the file system, naming both paths; another length than the one listed.
    pub fn link(
        source: &Path,
        file: &StateFile,
        directory: &Arc<AttemptDirectory>,
        copied: &mut Copied,
    ) -> Result<Self, Failure> {
        Self::link_with(
            &|from, to| fs::hard_link(from, to),
            source,
            file,
            directory,
            copied,
        )
    }

    /// Takes over a file that lies in `directory` already, under a path that nothing else uses.
    ///
    /// # Errors
    /// When it can't be read or has another length than the one listed; it is removed then.
    pub fn adopt(
        path: PathBuf,
        file: &StateFile,
        directory: &Arc<AttemptDirectory>,
    ) -> Result<Self, Failure> {
        let StateFile { name, size_bytes } = file.clone();
        let secured = Self {
            name,
            path,
            size_bytes,
            _directory: Arc::clone(directory),
        };
        let found = fs::metadata(&secured.path)
            .map_err(|error| failed(&error, format_args!("reading {}", secured.path.display())))?;
        if found.len() == size_bytes {
            return Ok(secured);
        }
        let cause = format!(
            "{} has {} bytes, the cut listed {size_bytes}",
            secured.name,
            found.len()
        );
        Err(Failure::new(FailureKind::Corrupt, cause))
    }

    /// Writes a pack into `directory`. It is not synced: a crash ends the snapshot as well.
    ///
    /// # Errors
    /// Trouble with the file system, and whatever makes no pack; nothing is left then.
    pub fn write_pack(pack: Pack, directory: &Arc<AttemptDirectory>) -> Result<Self, Failure> {
        let name = LocalName::new(PACK_NAME)
            .map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
        let path = directory.unused_path(PACK_NAME);
        step("write pack", &path);
        let file = File::create_new(&path)
            .map_err(|error| failed(&error, format_args!("making {}", path.display())))?;
        let secured = Self {
            name,
            path,
            size_bytes: pack.size_bytes(),
            _directory: Arc::clone(directory),
        };
        pack.write(file)?;
        Ok(secured)
    }

    /// `link` makes a second name for a file; a parameter, so that refusals can be tried.
    fn link_with(
        link: &dyn Fn(&Path, &Path) -> io::Result<()>,
        source: &Path,
        file: &StateFile,
        directory: &Arc<AttemptDirectory>,
        copied: &mut Copied,
    ) -> Result<Self, Failure> {
        let path = directory.unused_path(file.name.as_str());
        step("link", &path);
        match link(source, &path) {
            Ok(()) => {}
            Err(error) if is_refusal(&error) => {
                tracing::warn!(
                    file = %file.name, size_bytes = file.size_bytes, %error,
                    "the file system refuses a hard link: the file is copied, and deletions are held meanwhile"
                );
                copied.files += 1;
                copied.size_bytes += file.size_bytes;
                if let Err(error) = copy(source, &path) {
                    // The first cause is what matters; a remainder goes with the directory.
                    let _ = fs::remove_file(&path);
                    let doing = format_args!("copying {} to {}", source.display(), path.display())
                        .to_string();
                    return Err(failed(&error, doing));
                }
            }
            Err(error) => {
                let doing =
                    format_args!("linking {} to {}", source.display(), path.display()).to_string();
                return Err(failed(&error, doing));
            }
        }
        Self::adopt(path, file, directory)
    }
}

impl Drop for SecuredFile {
    fn drop(&mut self) {
        step("remove", &self.path);
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "can't remove the link of a file that was read");
        }
    }
}

/// Another device, a file system without hard links, or a file with as many as it may have.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::XDEV, Errno::PERM, Errno::MLINK, Errno::OPNOTSUPP];
    error
        .raw_os_error()
        .is_some_and(|number| refusals.contains(&Errno::from_raw_os_error(number)))
}

fn copy(source: &Path, path: &Path) -> io::Result<u64> {
    let mut from = unlinked::open(File::options().read(true), source)?;
    io::copy(&mut from, &mut File::create_new(path)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn listed(size_bytes: u64) -> StateFile {
        StateFile {
            name: LocalName::new("000007.sst").unwrap(),
            size_bytes,
        }
    }

    fn place() -> (tempfile::TempDir, PathBuf, Arc<AttemptDirectory>) {
        let base = tempfile::tempdir().unwrap();
        let source = base.path().join("000007.sst");
        fs::write(&source, b"four").unwrap();
        let directory = Arc::new(AttemptDirectory::create(&base.path().join("attempts")).unwrap());
        (base, source, directory)
    }

    fn hard(from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    #[test]
    fn a_link_lives_as_long_as_its_handle() {
        let (_base, source, directory) = place();
        let mut copied = Copied::default();
        let one =
            SecuredFile::link_with(&hard, &source, &listed(4), &directory, &mut copied).unwrap();
        let other =
            SecuredFile::link_with(&hard, &source, &listed(4), &directory, &mut copied).unwrap();
        drop(directory);
        assert_eq!(fs::metadata(&source).unwrap().nlink(), 3);
        fs::remove_file(&source).unwrap();
        drop(other);
        assert_eq!(fs::read(one.path()).unwrap(), b"four");
        assert_eq!(fs::metadata(one.path()).unwrap().nlink(), 1);
        let directory = one.path().parent().unwrap().to_owned();
        drop(one);
        assert!(!directory.exists());
        assert_eq!(copied, Copied::default());
    }

    #[test]
    fn a_refused_link_becomes_a_copy_that_is_counted() {
        for errno in [Errno::XDEV, Errno::PERM, Errno::MLINK, Errno::OPNOTSUPP] {
            let (_base, source, directory) = place();
            let mut copied = Copied::default();
            let refuse = |_: &Path, _: &Path| Err(errno.into());
            let file =
                SecuredFile::link_with(&refuse, &source, &listed(4), &directory, &mut copied)
                    .unwrap();
            assert_eq!(fs::metadata(&source).unwrap().nlink(), 1);
            assert_eq!(fs::read(file.path()).unwrap(), b"four");
            assert_eq!(
                copied,
                Copied {
                    files: 1,
                    size_bytes: 4
                }
            );
        }
    }

    #[test]
    fn another_failure_to_link_is_one() {
        let (_base, source, directory) = place();
        let mut copied = Copied::default();
        let fail = |_: &Path, _: &Path| Err(Errno::NOSPC.into());
        let failure = SecuredFile::link_with(&fail, &source, &listed(4), &directory, &mut copied)
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::NoSpace);
        assert!(failure.cause.contains("000007.sst"), "{failure}");
        assert_eq!(copied, Copied::default());
    }

    #[test]
    fn another_length_than_listed_is_refused_and_leaves_nothing() {
        let (_base, source, directory) = place();
        let mut copied = Copied::default();
        let failure = SecuredFile::link_with(&hard, &source, &listed(5), &directory, &mut copied)
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Corrupt);
        assert_eq!(fs::metadata(&source).unwrap().nlink(), 1);
    }
}
