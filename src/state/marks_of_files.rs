//! What a state's directory knows of its own files: which stored file each one is.
//!
//! ```text
//! magic "STILMARK" · format u32 │ frame, frame, frame ...       one mark in each
//! ```
//! Marks are appended and never synced: one that is lost costs a download, and a torn one ends the
//! list. Now and then those that still speak for a file are written anew, the rest is forgotten. A
//! mark speaks for a file only as long as length, inode and time of change are what they were when it
//! was written.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{framed, unlinked};
use crate::protocol::answer::Digest;
use crate::protocol::file::FileDescription;
use crate::protocol::id::{FileName, LocalName, RootId};
use crate::steps::step;

const MAGIC: [u8; 8] = *b"STILMARK";
const FORMAT: u32 = 1;
/// Marks of a million files with long names. More is damage, and costs a download.
const MARKS_BYTES_MAX: u64 = 256 << 20;

/// Which stored file a local one is, and how to tell that it still is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) root: RootId,
    pub(super) name: FileName,
    pub(super) local: LocalName,
    pub(super) digest: Digest,
    inode: u64,
    modified_seconds: i64,
    modified_nanoseconds: i64,
}

impl Mark {
    /// A mark for the file that `found` describes.
    pub(super) fn new(root: RootId, file: &FileDescription, found: &Metadata) -> Self {
        Self {
            root,
            name: file.name,
            local: file.local.clone(),
            digest: file.digest,
            inode: found.ino(),
            modified_seconds: found.mtime(),
            modified_nanoseconds: found.mtime_nsec(),
        }
    }

    /// Whether the file is still the one that was marked.
    pub(super) fn speaks_for(&self, found: &Metadata) -> bool {
        found.is_file()
            && found.len() == self.digest.size_bytes
            && found.ino() == self.inode
            && found.mtime() == self.modified_seconds
            && found.mtime_nsec() == self.modified_nanoseconds
    }
}

/// The marks of a directory, the last one of each local name, and why there may have been more.
/// Absent, there are none.
pub(super) fn read(path: &Path) -> (BTreeMap<LocalName, Mark>, Option<String>) {
    let mut marks = BTreeMap::new();
    let bytes = match unlinked::read(path, MARKS_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return (marks, None),
        Err(error) => return (marks, Some(error.to_string())),
    };
    let Some(mut rest) = bytes.strip_prefix(header().as_slice()) else {
        return (marks, Some("they do not begin as marks do".to_owned()));
    };
    while let Some((mark, after)) = framed::decode::<Mark>(rest) {
        marks.insert(mark.local.clone(), mark);
        rest = after;
    }
    let lost = (!rest.is_empty()).then(|| format!("the last {} bytes are torn", rest.len()));
    (marks, lost)
}

/// Adds a mark at the end.
pub(super) fn append(path: &Path, mark: &Mark) -> io::Result<()> {
    let mut file = unlinked::open(File::options().append(true), path)?;
    file.write_all(&framed::encode(mark)?)
}

/// Makes these the only marks, in one step.
pub(super) fn replace<'a>(
    path: &Path,
    unfinished: &Path,
    marks: impl Iterator<Item = &'a Mark>,
) -> io::Result<()> {
    let mut bytes = header();
    for mark in marks {
        bytes.extend(framed::encode(mark)?);
    }
    step("write", unfinished);
    unlinked::create_anew(unfinished)?.write_all(&bytes)?;
    step("rename", path);
    fs::rename(unfinished, path)
}

fn header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(FORMAT.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;
    use crate::protocol::answer::Checksum;
    use crate::protocol::file::FileKind;
    use crate::protocol::id::AttemptId;

    fn marks(directory: &Path, count: u64) -> Vec<Mark> {
        (1..=count)
            .map(|number| {
                let local = LocalName::new(&format!("{number:06}.sst")).unwrap();
                let path = directory.join(local.as_str());
                fs::write(&path, vec![0; usize::try_from(number).unwrap()]).unwrap();
                let file = FileDescription {
                    name: FileName {
                        attempt: AttemptId(3),
                        number,
                    },
                    local,
                    kind: FileKind::State,
                    digest: Digest {
                        size_bytes: number,
                        checksum: Checksum(number),
                    },
                };
                Mark::new(RootId(7), &file, &fs::metadata(path).unwrap())
            })
            .collect()
    }

    #[test]
    fn marks_read_back_up_to_the_first_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marks");
        assert_eq!(read(&path), (BTreeMap::new(), None));
        let marks = marks(directory.path(), 5);
        replace(&path, &directory.path().join("new"), marks[..2].iter()).unwrap();
        for mark in &marks[2..] {
            append(&path, mark).unwrap();
        }
        let found = |path: &Path| read(path).0.into_values().collect::<Vec<_>>();
        assert_eq!(found(&path), marks);
        assert_eq!(read(&path).1, None);
        let bytes = fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            let found = found(&path);
            assert!(
                marks.starts_with(&found) && found.len() < marks.len(),
                "{length}"
            );
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).unwrap();
            assert!(marks.starts_with(&found(&path)), "{bit}");
            assert!(read(&path).1.is_some(), "{bit}: it is told");
        }
    }

    #[test]
    fn a_mark_speaks_for_the_file_it_was_made_of_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let marks = marks(directory.path(), 2);
        let path = directory.path().join("000002.sst");
        assert!(marks[1].speaks_for(&fs::metadata(&path).unwrap()));
        assert!(!marks[0].speaks_for(&fs::metadata(&path).unwrap()));
        // The other file is kept, so that the new one can't get its inode.
        fs::rename(&path, directory.path().join("kept")).unwrap();
        fs::write(&path, [1, 1]).unwrap();
        assert!(!marks[1].speaks_for(&fs::metadata(&path).unwrap()));
    }
}
