//! How what was done to a directory becomes durable, in local directories and in those of a store.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// Makes durable what was named, renamed and removed in an open directory. A file system that knows
/// no such thing answers `EINVAL`; there is nothing more to be had from it.
pub(crate) fn sync_directory(directory: impl AsFd) -> Result<(), Errno> {
    match rustix::fs::fsync(directory) {
        Err(Errno::INVAL) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_system_that_syncs_no_directories_is_good_enough() {
        let directory = File::open("/proc/self").unwrap();
        assert_eq!(rustix::fs::fsync(&directory), Err(Errno::INVAL));
        assert_eq!(sync_directory(&directory), Ok(()));
        let place = tempfile::tempdir().unwrap();
        assert_eq!(sync_directory(File::open(place.path()).unwrap()), Ok(()));
    }
}
