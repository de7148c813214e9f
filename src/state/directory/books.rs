//! What in a directory is a database, which one, and whether anything was ever written to it, by plain
//! looks.
//!
//! ```text
//! CURRENT ──names──> MANIFEST-000005 ──names──> tables, wherever they lie
//! IDENTITY: the database's own, random name, which the MANIFEST has as well
//! ```
//! That no table lies here says little: tables and logs may lie in other directories (`db_paths`,
//! `wal_dir`), of which only the books know. So books are worth as much as a table. But for those of a
//! database whose creation was broken off, and of one that has its log here and never wrote to it:
//! those may be opened once more, since whoever opens them sees what they name.
//!
//! Invariants: a name that RocksDB does not give is nobody's book; but for that of old logs, a folder never is.
//!
//! What it does not do: read what a MANIFEST names.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{DATABASE, DATABASE_LOCK, LOST_AND_FOUND, OWN_FOLDER};
use crate::state::unlinked;

/// RocksDB's name for the file with a database's own, random one.
const IDENTITY: &str = "IDENTITY";
const IDENTITY_BYTES_MAX: u64 = 1 << 10;
const CURRENT_BYTES_MAX: u64 = 1 << 10;
/// Where the first record of a MANIFEST begins: behind checksum, length and type.
const RECORD_AT: usize = 7;
/// The tag of a database's name in a MANIFEST, as a varint. RocksDB writes it before all else.
const IDENTITY_TAG: [u8; 2] = [0x81, 0x40];
/// Where old logs are kept, if the options say so (`WAL_ttl_seconds`).
const ARCHIVE: &str = "archive";
/// The first MANIFEST that a database has, before it is opened for the first time.
const FIRST_MANIFEST: &str = "MANIFEST-000001";

/// What lies in a directory, as far as its loss would be one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Nothing that has content, but for what RocksDB tells people.
    Nothing,
    /// The books of a database that was only just made, this one among them: its only log, if it has
    /// one, lies here, and is empty.
    Beginning(String),
    /// This, which may be the only copy.
    Worth(String),
}

/// The parts that a database's directory consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Only people read it, or nobody.
    Told,
    /// It says what the database consists of, or how it is to be opened.
    Book,
    Log,
    /// Tables, blobs, and what is made or removed by way of another name.
    Content,
}

/// What RocksDB uses a file of this name for, if it is one of its names.
fn kind(name: &str) -> Option<Kind> {
    let numbered = |begin: &str| name.strip_prefix(begin).filter(|rest| is_number(rest));
    if [IDENTITY, DATABASE_LOCK, "LOG"].contains(&name) || numbered("LOG.old.").is_some() {
        return Some(Kind::Told);
    }
    let options = name.strip_suffix(".dbtmp").unwrap_or(name);
    let is_options = options.strip_prefix("OPTIONS-").is_some_and(is_number);
    if name == DATABASE || is_options || numbered("MANIFEST-").is_some() {
        return Some(Kind::Book);
    }
    let (number, ending) = name.split_once('.')?;
    match ending {
        _ if !is_number(number) => None,
        "log" => Some(Kind::Log),
        "dbtmp" => Some(Kind::Book),
        "sst" | "ldb" | "blob" | "log.trash" | "sst.trash" | "blob.trash" => Some(Kind::Content),
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Something in a directory that no RocksDB has put there, though a database lies in it. The one
/// folder of its own is that of its old logs, whose content is in its tables. What it could not use
/// when it was repaired (`lost`) is in none.
pub(super) fn other_than_database(directory: &Path) -> io::Result<Option<String>> {
    for name in names(directory)? {
        if [OWN_FOLDER, LOST_AND_FOUND].contains(&&*name) {
            continue;
        }
        let path = directory.join(&name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && kind(&name).is_some() => {}
            Ok(found) if found.is_dir() && name == ARCHIVE && holds_only_logs(&path)? => {}
            Ok(_) => return Ok(Some(name)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn holds_only_logs(folder: &Path) -> io::Result<bool> {
    let is_log = |name: String| {
        kind(&name) == Some(Kind::Log)
            && fs::symlink_metadata(folder.join(&name)).is_ok_and(|found| found.is_file())
    };
    Ok(names(folder)?.into_iter().all(is_log))
}

/// What lies in a directory.
pub(super) fn look(directory: &Path) -> io::Result<Found> {
    let (mut first_book, mut is_beginning) = (None, true);
    let (mut has_current, mut has_log) = (false, false);
    for name in names(directory)? {
        if [OWN_FOLDER, LOST_AND_FOUND].contains(&&*name) {
            continue;
        }
        let found = match fs::symlink_metadata(directory.join(&name)) {
            Ok(found) => found,
            // A database deletes its logs when it comes to it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            if let Some(below) = first_with_content(&directory.join(&name))? {
                return Ok(Found::Worth(format!("{name}/{below}")));
            }
            continue;
        }
        let kind = kind(&name).filter(|_| found.is_file());
        has_current |= kind.is_some() && name == DATABASE;
        has_log |= kind == Some(Kind::Log);
        match kind {
            Some(Kind::Told) => {}
            _ if found.is_file() && found.len() == 0 => {}
            Some(Kind::Book) => {
                is_beginning &= name == FIRST_MANIFEST || name.ends_with(".dbtmp");
                first_book.get_or_insert(name);
            }
            Some(Kind::Log | Kind::Content) | None => return Ok(Found::Worth(name)),
        }
    }
    Ok(match first_book {
        None => Found::Nothing,
        Some(_) if has_current && !has_log => Found::Worth(DATABASE.to_owned()),
        Some(book) if has_current || is_beginning => Found::Beginning(book),
        Some(book) => Found::Worth(book),
    })
}

/// The first file in a folder, however deep, that has content or is no file.
fn first_with_content(folder: &Path) -> io::Result<Option<String>> {
    for name in names(folder)? {
        let path = folder.join(&name);
        let below = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                first_with_content(&path)?.map(|below| format!("{name}/{below}"))
            }
            Ok(found) => (!found.is_file() || found.len() > 0).then_some(name),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if below.is_some() {
            return Ok(below);
        }
    }
    Ok(None)
}

/// The names in a folder, in order. One that is no text is none of RocksDB's, shown as it may be.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    let shown = names.iter().map(|name| name.to_string_lossy().into_owned());
    Ok(shown.collect())
}

/// The random name of the database in a directory. Empty where there is none, or where it has no name.
pub(super) fn identity(directory: &Path) -> Vec<u8> {
    // RocksDB itself takes the file's name before the MANIFEST's if it is there.
    named(directory).unwrap_or_else(|| recorded(directory).unwrap_or_default())
}

/// What the file says.
pub(super) fn named(directory: &Path) -> Option<Vec<u8>> {
    let bytes = unlinked::read(&directory.join(IDENTITY), IDENTITY_BYTES_MAX).ok()?;
    let name = bytes.trim_ascii_end();
    (!name.is_empty()).then(|| name.to_vec())
}

/// What the MANIFEST says: of a database that was restored and never opened, there is no file.
fn recorded(directory: &Path) -> Option<Vec<u8>> {
    let current = unlinked::read(&directory.join(DATABASE), CURRENT_BYTES_MAX).ok()?;
    let manifest = std::str::from_utf8(&current).ok()?.trim_ascii_end();
    if kind(manifest) != Some(Kind::Book) {
        return None;
    }
    let head = unlinked::read_first(&directory.join(manifest), 1 << 8).ok()?;
    let (length, rest) = head
        .get(RECORD_AT..)?
        .strip_prefix(&IDENTITY_TAG)?
        .split_first()?;
    // One of 128 bytes and more has a longer length, and no database has such a name.
    rest.get(..usize::from(*length)).map(<[u8]>::to_vec)
}
