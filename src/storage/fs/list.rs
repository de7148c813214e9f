//! Listing: a walk of the folders in the order of the names' bytes.
//!
//! Folders sort as their name with a slash behind it, so that the walk meets the names in the
//! order of the whole: `a-b` before `a/b`. A page reads the folders on its way in full and holds
//! one folder's names in memory for each level.
//!
//! What no object can be named, a name that begins with a dot, is listed as well, so that somebody
//! can be told of it: a folder of such a name as that one name, with a slash behind, and not looked
//! into (some file systems keep all their snapshots in one). So is a folder that can't be opened, one
//! that is denied for one, and the page says why: nobody is kept from what lies beside it. Left out is what is ours or the file
//! system's: `.tmp`, `LOCK`, and `lost+found` at the top.
//!
//! A writer that died between the making of a folder and the naming of its object leaves a folder
//! that nobody writes to again. Whoever meets an empty one on the way removes it, unless it is
//! directly below the root; a writer that lives makes it again.

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::failure::failure;
use super::root::{Folder, Root, join, open_directory, stat_at};
use super::temporary;
use crate::places::LOST_AND_FOUND;
use crate::protocol::answer::{Failure, FailureKind};
use crate::storage::key::fault_of_part;
use crate::storage::{LOCK_NAME, Page};

struct Walk<'a> {
    root: &'a Root,
    prefix: &'a str,
    after: Option<&'a str>,
    limit: usize,
    page: Page,
    empty: Vec<String>,
}

/// Lists as [`list`](crate::storage::BlobStore::list) says.
pub(super) fn list(
    root: &Root,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
    is_read_only: bool,
) -> Result<Page, Failure> {
    let start = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    if prefix.starts_with('/') || !start.is_empty() && start.split('/').any(is_no_part) {
        let cause = format!("{prefix:?} is no prefix of an object's name");
        return Err(Failure::new(FailureKind::Denied, cause));
    }
    let mut walk = Walk {
        root,
        prefix,
        after,
        limit: limit.max(1),
        page: Page::default(),
        empty: Vec::new(),
    };
    match root.folder(start) {
        Ok(folder) => {
            walk.folder(&folder)?;
        }
        Err(Errno::NOENT) if !start.is_empty() => {}
        Err(errno) => return Err(failure(errno, "list", &root.shown(start))),
    }
    if !is_read_only {
        for folder in &walk.empty {
            root.remove_if_empty(folder);
        }
    }
    Ok(walk.page)
}

fn is_no_part(part: &str) -> bool {
    fault_of_part(part).is_some()
}

impl Walk<'_> {
    /// `false` once the page is full and there is more.
    fn folder(&mut self, folder: &Folder) -> Result<bool, Failure> {
        for (name, is_walked) in self.entries(folder)? {
            if !is_walked {
                if self.page.names.len() == self.limit {
                    self.page.more = true;
                    return Ok(false);
                }
                self.page.names.push(name);
                continue;
            }
            let name = name.trim_end_matches('/').to_owned();
            let leaf = name.rsplit_once('/').map_or(&*name, |(_, leaf)| leaf);
            let directory = match open_directory(&folder.directory, leaf) {
                Ok(directory) => directory,
                // Removed since it was listed.
                Err(Errno::NOENT) => continue,
                Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::IO)) => {
                    if !self.closed(name, errno) {
                        return Ok(false);
                    }
                    continue;
                }
                Err(errno) => return Err(failure(errno, "list", &self.root.shown(&name))),
            };
            if !self.folder(&Folder { directory, name })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes a folder that can't be looked into. `false` if the page is full without it.
    fn closed(&mut self, mut name: String, errno: Errno) -> bool {
        let failure = failure(errno, "list", &self.root.shown(&name));
        name.push('/');
        // What lies behind `after` in it is missing all the same.
        if self.after.is_none_or(|after| &*name > after) {
            if self.page.names.len() == self.limit {
                self.page.more = true;
                return false;
            }
            self.page.names.push(name);
        }
        self.page.closed.get_or_insert(failure);
        true
    }

    /// What matters in one folder, in order: names seen from the root, folders with a slash
    /// behind, and whether a folder is to be walked.
    fn entries(&mut self, folder: &Folder) -> Result<Vec<(String, bool)>, Failure> {
        let fail = |errno| failure(errno, "list", &self.root.shown(&folder.name));
        let mut entries = Vec::new();
        let mut is_empty = true;
        for entry in Dir::read_from(&folder.directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            // A name that is no text parses as none of ours, whatever it is shown as.
            let leaf = entry.file_name().to_string_lossy();
            if leaf == "." || leaf == ".." {
                continue;
            }
            is_empty = false;
            if leaf == temporary::FOLDER
                || leaf == LOCK_NAME
                || folder.name.is_empty() && leaf == LOST_AND_FOUND
            {
                continue;
            }
            let mut file_type = entry.file_type();
            if file_type == FileType::Unknown {
                file_type = match stat_at(&folder.directory, &leaf) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(fail(errno)),
                };
            }
            let is_folder = file_type == FileType::Directory;
            let mut name = join(&folder.name, &leaf);
            if is_folder {
                name.push('/');
            }
            let is_walked = is_folder && !leaf.starts_with('.');
            if self.matters(&name, is_walked) {
                entries.push((name, is_walked));
            }
        }
        if is_empty {
            self.empty.push(folder.name.clone());
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn matters(&self, name: &str, is_walked: bool) -> bool {
        let fits = name.starts_with(self.prefix) || is_walked && self.prefix.starts_with(name);
        let is_ahead = self
            .after
            .is_none_or(|after| name > after || is_walked && after.starts_with(name));
        fits && is_ahead
    }
}
