//! Copying one file into another at the speed of the disk, its checksum taken on the way.
//!
//! ```text
//! clone    the file system shares the blocks (XFS, Btrfs); the pass only reads
//! offload  a server copies for us (NFS, SMB, Ceph); the pass only reads
//! plain    read a block, take it into the checksum, write it: one pass, one block in memory
//! ```
//!
//! On a local file system without shared blocks the plain way is as fast as the kernel's own
//! copying, which moves the same bytes and leaves the checksum to a second read.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::Advice;
use rustix::io::Errno;

use super::blocking::Cancellation;
use super::failure::failure;
use crate::protocol::answer::{Digest, Failure, FailureKind};
use crate::storage::step::Step;
use crate::storage::{BLOCK_BYTES, Digester, Progress};

/// How much is written before the kernel is told to begin bringing it to the disk: so the disk is
/// busy while we are, the sync at the end is short, and no call stands still for longer than it
/// takes to write this much. Reading is left to the kernel, which reads ahead better untold.
const WINDOW_BYTES: u64 = 8 << 20;

/// File systems behind a server that can copy by itself, by the number `statfs` gives.
const OFFLOADING: [u32; 4] = [
    0x0000_6969, // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and 3
    0x00c3_6400, // Ceph
];

/// How a file is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Clone,
    Offload,
    Plain,
}

/// A copy of one open file into another, new one.
#[derive(Debug)]
pub(super) struct Copy<'a> {
    pub(super) source: &'a File,
    pub(super) source_path: &'a Path,
    pub(super) target: &'a File,
    pub(super) target_path: &'a Path,
    /// The length that the source must have.
    pub(super) size_bytes: u64,
    pub(super) progress: &'a Progress,
    pub(super) cancellation: &'a Cancellation,
}

impl Copy<'_> {
    /// Copies in the best way there is. The target is not synced.
    pub(super) fn run(&self) -> Step<Digest> {
        let method = if self.size_bytes > 0 && self.clone_file() {
            Method::Clone
        } else if is_offloading(self.target) {
            Method::Offload
        } else {
            Method::Plain
        };
        self.run_as(method)
    }

    /// Copies in this way; a clone has been made already.
    pub(super) fn run_as(&self, method: Method) -> Step<Digest> {
        let mut method = method;
        let mut digester = Digester::new();
        let mut block = vec![0; block_bytes(self.size_bytes)];
        let mut offset = 0;
        let mut write_back = WriteBack::default();
        while offset < self.size_bytes {
            self.cancellation.check()?;
            let left = usize::try_from(self.size_bytes - offset).unwrap_or(usize::MAX);
            let length = left.min(block.len());
            let block = &mut block[..length];
            self.read_block(block, offset)?;
            digester.update(block);
            if method == Method::Offload && !self.offload(offset, length)? {
                method = Method::Plain;
            }
            if method == Method::Plain {
                self.target
                    .write_all_at(block, offset)
                    .map_err(|error| self.fail_to_write(error))?;
            }
            offset += length as u64;
            self.progress.add(length as u64);
            if method != Method::Clone {
                write_back.advance(self.target, offset);
            }
        }
        self.check_end()?;
        Ok(digester.digest())
    }

    fn clone_file(&self) -> bool {
        // Any error means that it can't be done here; the plain way then says what is wrong.
        rustix::fs::ioctl_ficlone(self.target, self.source).is_ok()
    }

    fn read_block(&self, block: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.source.read_exact_at(block, offset).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                self.wrong_length("shorter")
            } else {
                failure(error, "read", self.source_path)
            }
        })
    }

    /// Has one block copied by the server. `false` if it can't do that.
    fn offload(&self, offset: u64, length: usize) -> Result<bool, Failure> {
        let (mut from, mut to) = (offset, offset);
        let mut left = length;
        while left > 0 {
            match rustix::fs::copy_file_range(
                self.source,
                Some(&mut from),
                self.target,
                Some(&mut to),
                left,
            ) {
                // Nothing moved although the bytes are there, which some servers say instead.
                Ok(0) => return Ok(false),
                Ok(copied) => left -= copied.min(left),
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                    return Ok(false);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail_to_write(errno)),
            }
        }
        Ok(true)
    }

    /// Makes sure that neither file goes on after its end.
    fn check_end(&self) -> Result<(), Failure> {
        let source = self.source.metadata();
        let source = source.map_err(|error| failure(error, "stat", self.source_path))?;
        let target = self.target.metadata();
        let target = target.map_err(|error| failure(error, "stat", self.target_path))?;
        if source.len() != self.size_bytes || target.len() != self.size_bytes {
            return Err(self.wrong_length("longer"));
        }
        Ok(())
    }

    fn wrong_length(&self, how: &str) -> Failure {
        let path = self.source_path.display();
        let cause = format!("{path} is {how} than its {} bytes", self.size_bytes);
        Failure::new(FailureKind::Corrupt, cause)
    }

    fn fail_to_write(&self, error: impl Into<io::Error>) -> Failure {
        let tried = format!("copy {} to", self.source_path.display());
        failure(error, tried, self.target_path)
    }
}

/// The memory that a copy of so many bytes needs.
fn block_bytes(size_bytes: u64) -> usize {
    usize::try_from(size_bytes).map_or(BLOCK_BYTES, |size| size.min(BLOCK_BYTES))
}

fn is_offloading(target: &File) -> bool {
    rustix::fs::fstatfs(target).is_ok_and(|stat| OFFLOADING.contains(&(stat.f_type as u32)))
}

/// Has the kernel bring a growing file to the disk while it is still growing.
///
/// What has arrived there leaves the page cache, to which it is no use: an object is not read
/// soon, and of a restored file what is read first is its end, which stays. New pages would push
/// out what is in use, and are slower to come by than used ones.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    begun_bytes: u64,
}

impl WriteBack {
    /// The file has grown to this length.
    pub(super) fn advance(&mut self, file: &File, size_bytes: u64) {
        if size_bytes - self.begun_bytes < WINDOW_BYTES {
            return;
        }
        // Of the last window the writing begins; of the one before, which is written, the pages go.
        let start = self.begun_bytes.saturating_sub(WINDOW_BYTES);
        let length = NonZero::new(size_bytes - start);
        // It only makes things faster: an error changes nothing.
        let _ = rustix::fs::fadvise(file, start, length, Advice::DontNeed);
        self.begun_bytes = size_bytes;
    }
}
