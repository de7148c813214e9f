//! How what was done to a folder becomes durable.

use std::path::Path;

use super::failure::failed;
use super::unlinked;
use crate::durable;
use crate::protocol::answer::Failure;
use crate::protocol::id::LocalName;
use crate::steps::step;

/// Makes durable what was named, renamed and removed in a folder.
pub(super) fn sync_directory(path: &Path) -> Result<(), Failure> {
    step("sync directory", path);
    unlinked::open_directory(path)
        .and_then(|directory| Ok(durable::sync_directory(directory)?))
        .map_err(|error| failed(&error, format_args!("syncing {}", path.display())))
}

/// The folders on the way to a file, innermost first: each of them may have been made for it, and is
/// durable only once the one above it is.
pub(super) fn folders_of(file: &LocalName) -> impl Iterator<Item = &str> {
    let path = file.as_str();
    path.rmatch_indices('/').map(move |(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    #[test]
    fn a_file_system_that_syncs_no_directories_is_good_enough() {
        sync_directory(Path::new("/proc/self")).unwrap();
        assert!(sync_directory(Path::new("/proc/self/absent")).is_err());
    }

    #[test]
    fn every_folder_on_the_way_is_named() {
        let folders = |text| {
            let file = LocalName::new(text).unwrap();
            folders_of(&file).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            folders("one/two/three/file"),
            ["one/two/three", "one/two", "one"]
        );
        assert!(folders("file").is_empty());
    }
}
