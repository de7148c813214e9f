//! A pack as it is stored: checked, listed, unpacked.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use super::{ENTRY_BYTES_MIN, PIECE_BYTES, PackError};
use crate::protocol::answer::Failure;
use crate::protocol::id::{BadLocalName, LOCAL_NAME_BYTES_MAX, LocalName};
use crate::protocol::manifest::{FRAME_BYTES, Kind, Unframing};
use crate::state::failure::failed;
use crate::state::folders::{folders_of, sync_directory};
use crate::state::{is_own, unlinked};
use crate::steps::step;

/// What a file is called while it is written back.
pub(super) const UNFINISHED: &str = ".unfinished";

/// A pack that was checked from its first byte to its last.
///
/// ```
/// use std::io::Cursor;
/// use stillpoint::protocol::id::LocalName;
/// use stillpoint::state::pack::{Pack, StoredPack};
///
/// let mut pack = Pack::new();
/// pack.push(LocalName::new("CURRENT")?, b"MANIFEST-000005\n".to_vec())?;
/// let mut stored = StoredPack::open(Cursor::new(pack.encode()?))?;
/// assert_eq!(stored.entries()[0].name.as_str(), "CURRENT");
///
/// let directory = tempfile::tempdir()?;
/// stored.unpack(directory.path())?;
/// assert!(directory.path().join("CURRENT").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StoredPack<R: Read> {
    from: BufReader<R>,
    entries: Vec<StoredEntry>,
}

/// A file in a pack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEntry {
    /// Where it belongs below the state's directory.
    pub name: LocalName,
    /// Its length.
    pub size_bytes: u64,
    /// Where it begins in the pack.
    at: u64,
}

impl<R: Read + Seek> StoredPack<R> {
    /// Reads all of it once, then its table.
    ///
    /// # Errors
    /// When it is anything else than what [`Pack::write`](super::Pack::write) wrote; the error says
    /// what is wrong with it.
    pub fn open(from: R) -> Result<Self, PackError> {
        let mut from = BufReader::with_capacity(PIECE_BYTES, from);
        let object_bytes = from.seek(SeekFrom::End(0)).map_err(unreadable)?;
        check_frame(&mut from, object_bytes)?;
        let entries = read_entries(&mut from, object_bytes)?;
        Ok(Self { from, entries })
    }

    /// What is in it, in order.
    #[must_use]
    pub fn entries(&self) -> &[StoredEntry] {
        &self.entries
    }

    /// An entry, in memory: for a small one.
    ///
    /// # Errors
    /// When the pack can't be read any more.
    pub fn read(&mut self, entry: &StoredEntry) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.copy(entry, &mut bytes)
            .map_err(|error| failed(&error, format_args!("unpacking {}", entry.name)))?;
        Ok(bytes)
    }

    /// Writes every entry to its place below `directory`, each whole or not at all, the last one
    /// only once all the others are on disk. What has an entry's name already is replaced.
    ///
    /// # Errors
    /// The first trouble with the file system, naming the path. What was written before it stays;
    /// the last entry is then not there.
    pub fn unpack(&mut self, directory: &Path) -> Result<(), Failure> {
        let entries = self.entries.clone();
        let Some((last, others)) = entries.split_last() else {
            return Ok(());
        };
        for entry in others {
            self.write_back(entry, directory)?;
        }
        sync_directory(directory)?;
        self.write_back(last, directory)?;
        sync_directory(directory)
    }

    fn write_back(&mut self, entry: &StoredEntry, directory: &Path) -> Result<(), Failure> {
        let path = directory.join(entry.name.as_str());
        let unfinished = directory.join(format!("{}{UNFINISHED}", entry.name));
        let parent = path.parent().unwrap_or(directory);
        if parent != directory {
            step("make directory", parent);
            fs::create_dir_all(parent)
                .map_err(|error| failed(&error, format_args!("making {}", parent.display())))?;
        }
        step("write", &unfinished);
        let written = unlinked::create_anew(&unfinished)
            .and_then(|mut file| {
                self.copy(entry, &mut file)?;
                step("sync", &unfinished);
                file.sync_all()
            })
            .and_then(|()| {
                step("rename", &path);
                fs::rename(&unfinished, &path)
            });
        if let Err(error) = written {
            // The first cause is what matters; a file that can't be removed is overwritten next time.
            let _ = fs::remove_file(&unfinished);
            return Err(failed(&error, format_args!("writing {}", path.display())));
        }
        // The top is synced once for all of them.
        for folder in folders_of(&entry.name) {
            sync_directory(&directory.join(folder))?;
        }
        Ok(())
    }

    fn copy(&mut self, entry: &StoredEntry, to: &mut impl io::Write) -> io::Result<()> {
        self.from.seek(SeekFrom::Start(entry.at))?;
        let copied = io::copy(&mut (&mut self.from).take(entry.size_bytes), to)?;
        if copied == entry.size_bytes {
            return Ok(());
        }
        let cause = "the pack has become shorter";
        Err(io::Error::new(ErrorKind::UnexpectedEof, cause))
    }
}

fn unreadable(error: io::Error) -> PackError {
    PackError::Unreadable(failed(&error, "reading a pack"))
}

/// Reads all of it from the beginning and checks it against its header.
fn check_frame(from: &mut (impl Read + Seek), object_bytes: u64) -> Result<(), PackError> {
    from.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut first = Vec::with_capacity(FRAME_BYTES);
    from.take(FRAME_BYTES as u64)
        .read_to_end(&mut first)
        .map_err(unreadable)?;
    let mut unframing = Unframing::new(&first, object_bytes)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => unframing.update(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    Ok(unframing.finish(Kind::Pack)?)
}

fn read_entries(
    from: &mut BufReader<impl Read + Seek>,
    object_bytes: u64,
) -> Result<Vec<StoredEntry>, PackError> {
    let at = FRAME_BYTES as u64;
    from.seek(SeekFrom::Start(at)).map_err(unreadable)?;
    let mut body = Table {
        from,
        at,
        left_bytes: object_bytes - at,
    };
    let count = u32::from_le_bytes(body.array("the number of entries")?);
    if u64::from(count) > body.left_bytes / ENTRY_BYTES_MIN as u64 {
        let place = "the number of entries";
        return Err(PackError::Length { place });
    }
    let mut entries = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..count {
        let name_bytes = u16::from_le_bytes(body.array("an entry's name")?);
        let size_bytes = u64::from_le_bytes(body.array("an entry's length")?);
        let name = entry_name(&body.take(name_bytes, "an entry's name")?)?;
        if is_own(&name) {
            return Err(PackError::Own { name });
        }
        if !names.insert(name.clone()) {
            return Err(PackError::Twice { name });
        }
        let at = body.at;
        body.pass(size_bytes, "an entry's bytes")?;
        entries.push(StoredEntry {
            name,
            size_bytes,
            at,
        });
    }
    if body.left_bytes > 0 {
        let place = "the end of the body";
        return Err(PackError::Length { place });
    }
    Ok(entries)
}

fn entry_name(bytes: &[u8]) -> Result<LocalName, BadLocalName> {
    match str::from_utf8(bytes) {
        Ok(text) => LocalName::new(text),
        Err(_) => Err(BadLocalName {
            name: String::from_utf8_lossy(&bytes[..bytes.len().min(LOCAL_NAME_BYTES_MAX)])
                .into_owned(),
            reason: "it is not UTF-8",
        }),
    }
}

/// Goes through a body and never takes more than there is.
struct Table<'a, R: Read> {
    from: &'a mut BufReader<R>,
    at: u64,
    left_bytes: u64,
}

impl<R: Read + Seek> Table<'_, R> {
    fn array<const N: usize>(&mut self, place: &'static str) -> Result<[u8; N], PackError> {
        let mut array = [0; N];
        self.fill(&mut array, place)?;
        Ok(array)
    }

    fn take(&mut self, length: u16, place: &'static str) -> Result<Vec<u8>, PackError> {
        let mut taken = vec![0; usize::from(length)];
        self.fill(&mut taken, place)?;
        Ok(taken)
    }

    fn fill(&mut self, into: &mut [u8], place: &'static str) -> Result<(), PackError> {
        self.count(into.len() as u64, place)?;
        self.from.read_exact(into).map_err(unreadable)
    }

    fn pass(&mut self, length: u64, place: &'static str) -> Result<(), PackError> {
        self.count(length, place)?;
        let forward = i64::try_from(length).unwrap_or(i64::MAX);
        self.from.seek_relative(forward).map_err(unreadable)
    }

    fn count(&mut self, length: u64, place: &'static str) -> Result<(), PackError> {
        let left = self.left_bytes.checked_sub(length);
        self.left_bytes = left.ok_or(PackError::Length { place })?;
        self.at += length;
        Ok(())
    }
}
