//! `stillpoint restore ID --to DIR`: a directory made equal to a checkpoint.

use std::fmt::{self, Display};

use serde::Serialize;
use stillpoint::{Config, Error, RestoreOptions, RestoreProgress};

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
