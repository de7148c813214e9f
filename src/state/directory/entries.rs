//! What lies in a directory, by plain looks: nothing is locked, no link is followed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{DirectoryError, LOST_AND_FOUND};
use crate::protocol::answer::Failure;
use crate::state::failure::failed;
use crate::steps::step;

/// Makes the directory and those above it that are missing. Answers the directories that got a new
/// entry by that, the lowest first: none if it was there.
pub(super) fn make(path: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    let not_a_directory = || DirectoryError::NotADirectory {
        path: path.to_owned(),
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(Vec::new()),
        Ok(_) => return Err(not_a_directory()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(not_a_directory()),
        Err(error) => return Err(failed(&error, format_args!("reading {}", path.display())).into()),
    }
    let missing = |path: &&Path| {
        !path.as_os_str().is_empty()
            && fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let new_in = path.ancestors().take_while(missing).map(above).collect();
    step("make directory", path);
    match fs::create_dir_all(path) {
        Ok(()) => Ok(new_in),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(not_a_directory()),
        Err(error) => Err(failed(&error, format_args!("making {}", path.display())).into()),
    }
}

/// The directory that a path's last part lies in. Of a path with one part, that is the current one.
pub(super) fn above(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

/// The names in a directory, in order.
pub(super) fn contents(path: &Path) -> Result<Vec<String>, Failure> {
    let doing = format_args!("reading {}", path.display()).to_string();
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| failed(&error, &doing))? {
        let entry = entry.map_err(|error| failed(&error, &doing))?;
        let name = entry.file_name().into_string().map_err(|name| {
            let cause = io::Error::new(ErrorKind::InvalidData, format!("{name:?} is not UTF-8"));
            failed(&cause, &doing)
        })?;
        if name != LOST_AND_FOUND {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Removes a file, a link or a folder with all that is in it. Whether there was one.
pub(super) fn remove(path: &Path) -> Result<bool, Failure> {
    let removed = fs::symlink_metadata(path).and_then(|found| {
        step("remove", path);
        if found.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    });
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(&error, format_args!("removing {}", path.display()))),
    }
}

pub(super) fn is_file(path: &Path) -> Result<bool, Failure> {
    found(path).map(|found| found.is_some_and(|found| found.is_file()))
}

pub(super) fn is_directory(path: &Path) -> Result<bool, Failure> {
    found(path).map(|found| found.is_some_and(|found| found.is_dir()))
}

pub(super) fn found(path: &Path) -> Result<Option<fs::Metadata>, Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(failed(&error, format_args!("reading {}", path.display()))),
    }
}
