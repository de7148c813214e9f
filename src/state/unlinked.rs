//! How the library opens files in local directories: never through a symbolic link, whoever put it
//! there, so that nothing is read or written outside; never anything but a regular file, since a
//! pipe would be waited for for ever.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a regular file, and nothing else: no link is followed, no pipe or device is waited for.
pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options
        .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            // What a pipe that nobody reads answers to a writer.
            Some(Errno::NXIO) => no_regular_file(),
            Some(_) | None => error,
        })?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(no_regular_file())
    }
}

/// All of a regular file, which a damaged or hostile one may not make larger than this.
pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(File::options().read(true), path)?
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let cause = format!("it is larger than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, cause));
    }
    Ok(bytes)
}

/// As much as there is of the beginning of a regular file, up to this.
pub(super) fn read_first(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(File::options().read(true), path)?
        .take(bytes_max)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a directory, and nothing else, to sync it or to ask about it. The caller's own way to it
/// may be a link.
pub(super) fn open_directory(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(flags(OFlags::DIRECTORY | OFlags::NONBLOCK))
        .open(path)
}

/// A flag's bit fits the type that the standard library takes it in.
fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

fn no_regular_file() -> io::Error {
    io::Error::other("it is not a regular file")
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
                File::options().read(true),
                File::options().append(true),
                File::options().create(true).truncate(false).write(true),
            ] {
                assert!(open(options, &link).is_err());
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

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("file");
        fs::write(&path, b"four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        assert_eq!(read(&path, u64::MAX).unwrap(), b"four");
        assert_eq!(read(&path, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(read(base.path(), 4).is_err());
        assert!(open_directory(&path).is_err());
    }
}
