//! What RocksDB's own checkpoint links, for the types whose files can't be listed.
//!
//! What it does not do: keep a file that is not in the checkpoint.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::live_files::{LiveFile, LiveFileKind};
use crate::protocol::answer::Failure;
use crate::state::failure::failed;
use crate::steps::step;

/// The directory of one of RocksDB's own checkpoints, removed when dropped.
pub(super) struct Links(pub(super) PathBuf);

impl Links {
    pub(super) fn list(&self) -> Result<Vec<LiveFile>, Failure> {
        let reading = |error| failed(&error, format_args!("reading {}", self.0.display()));
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(reading)? {
            let entry = entry.map_err(reading)?;
            let name = entry.file_name().as_bytes().to_vec();
            let kind = match name.rsplit(|byte| *byte == b'.').next() {
                _ if name == b"CURRENT" => LiveFileKind::Current,
                Some(b"sst" | b"blob") => LiveFileKind::State,
                Some(b"log") => LiveFileKind::Log,
                _ => LiveFileKind::Other,
            };
            files.push(LiveFile {
                name,
                directory: self.0.as_os_str().as_bytes().to_vec(),
                kind,
                size_bytes: entry.metadata().map_err(reading)?.len(),
                may_grow: false,
                replacement: None,
            });
        }
        Ok(files)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        step("remove directory", &self.0);
        if let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "can't remove the links of a snapshot");
        }
    }
}
