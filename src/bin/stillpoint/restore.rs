//! `stillpoint restore ID --to DIR`: a directory made equal to a checkpoint.

use std::fmt::{self, Display};
use std::path::{self, Component, Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use stillpoint::{Config, Error, ErrorKind, RestoreOptions, RestoreProgress};

use crate::arguments::Restore;
use crate::bar;
use crate::exit::Exit;
use crate::output::{self, Outcome, UserBytes};
use crate::root::{self, Access, Root};

#[derive(Serialize)]
struct Document {
    participant: String,
    checkpoint: u64,
    directory: String,
    kept_files: usize,
    fetched_files: usize,
    fetched_bytes: u64,
    user_bytes: UserBytes,
}

pub async fn run(asked: &Restore) -> Result<Outcome, Error> {
    let root = Root::open(&asked.at, Access::Read, Config::default()).await?;
    refuse_inside(&asked.at.root, &asked.to)?;
    let inspection = root.inspect_one().await?;
    let checkpoint = root::resolve(&inspection, asked.checkpoint)?;
    let progress = RestoreProgress::default();
    let mut options = RestoreOptions::new().progress(progress.clone());
    if asked.verify_kept {
        options = options.verify_kept_files();
    }
    let what = format!("restoring {checkpoint} of {}", inspection.participant());
    let restoring = inspection.restore(checkpoint, &asked.to, &options);
    let report = bar::of_bytes(&what, &progress, restoring).await?;
    let described = inspection.manifest().checkpoint(checkpoint);
    let user_bytes = described.and_then(|described| described.subtasks.values().next());
    let document = Document {
        participant: inspection.participant().to_owned(),
        checkpoint: checkpoint.0,
        directory: asked.to.display().to_string(),
        kept_files: report.kept_files,
        fetched_files: report.fetched_files,
        fetched_bytes: report.fetched_bytes,
        user_bytes: UserBytes::new(user_bytes.map_or(&[], Vec::as_slice)),
    };
    Outcome::new(&document, Exit::Done)
}

/// A state in a repository would be taken for one of its participants, or for garbage.
fn refuse_inside(root: &Path, to: &Path) -> Result<(), Error> {
    let fail = |path: &Path, error: &io::Error| {
        let cause = format!("reading {}: {error}", path.display());
        Error::new(ErrorKind::Invalid, cause)
    };
    let root = fs::canonicalize(root).map_err(|error| fail(root, &error))?;
    let whole = path::absolute(to).map_err(|error| fail(to, &error))?;
    // Links count as far as there is something; what is not there yet will be folders.
    let mut resolved = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::Normal(_) => {
                resolved.push(part);
            }
        }
        if let Ok(found) = fs::canonicalize(&resolved) {
            resolved = found;
        }
    }
    if resolved.starts_with(&root) {
        let cause = format!("{} lies in the repository itself", to.display());
        return Err(Error::new(ErrorKind::Invalid, cause));
    }
    Ok(())
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            participant,
            checkpoint,
            directory,
            ..
        } = self;
        writeln!(
            f,
            "{directory} is equal to checkpoint {checkpoint} of {participant}"
        )?;
        writeln!(
            f,
            "  fetched: {}, {}; there already: {}",
            output::counted(self.fetched_files as u64, "file"),
            output::bytes(self.fetched_bytes),
            self.kept_files,
        )?;
        writeln!(f, "  attached  {}", self.user_bytes)
    }
}
