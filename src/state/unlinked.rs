//! How the library writes files of its own in local directories: never through a symbolic link,
//! whoever put it there, so that nothing is written outside.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Options with which a path whose last part is a link can't be opened.
pub(super) fn options() -> OpenOptions {
    let mut options = File::options();
    // A flag's bit fits the type that the standard library takes it in.
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// A new file in the place of whatever file or link had the name.
pub(super) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::create_new(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use std::io::Write;

    use super::*;

    #[test]
    fn links_are_refused_or_replaced_and_never_followed() {
        let base = tempfile::tempdir().unwrap();
        let (outside, link) = (base.path().join("outside"), base.path().join("link"));
        for target in [&outside, &base.path().join("absent")] {
            fs::write(&outside, b"outside").unwrap();
            std::os::unix::fs::symlink(target, &link).unwrap();
            for options in [
                options().append(true),
                options().create(true).truncate(false).write(true),
            ] {
                assert!(options.open(&link).is_err());
            }
            let mut file = create_anew(&link).unwrap();
            file.write_all(b"inside").unwrap();
            assert_eq!(fs::read(&outside).unwrap(), b"outside");
            assert_eq!(fs::read(&link).unwrap(), b"inside");
            assert!(!base.path().join("absent").exists());
            create_anew(&link).unwrap();
            assert_eq!(fs::read(&link).unwrap(), b"");
            fs::remove_file(&link).unwrap();
        }
    }
}
