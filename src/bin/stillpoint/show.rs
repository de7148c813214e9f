//! `stillpoint show ID`: a checkpoint and its files.

use std::fmt::{self, Display};

use serde::Serialize;
use stillpoint::protocol::file::FileKind;
use stillpoint::{Config, Error, ErrorKind, FileInfo};

use crate::arguments::Show;
use crate::exit::Exit;
use crate::list::Checkpoint;
use crate::output::{self, Outcome, Table};
use crate::root::{self, Access, Root};

#[derive(Serialize)]
struct Document {
    participant: String,
    checkpoint: Checkpoint,
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    name: String,
    local: String,
    kind: &'static str,
    size_bytes: u64,
    checksum: String,
    born: u64,
    references: usize,
}

impl From<&FileInfo> for File {
    fn from(file: &FileInfo) -> Self {
        Self {
            name: file.name.to_string(),
            local: file.local.to_string(),
            kind: kind(file.kind),
            size_bytes: file.digest.size_bytes,
            checksum: file.digest.checksum.to_string(),
            born: file.born.0,
            references: file.references,
        }
    }
}

/// A kind of file in a word.
pub fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::State => "state",
        FileKind::Pack => "pack",
    }
}

pub async fn run(asked: &Show) -> Result<Outcome, Error> {
    let root = Root::open(&asked.at, Access::Read, Config::default()).await?;
    let inspection = root.inspect_one().await?;
    let checkpoint = root::resolve(&inspection, asked.checkpoint)?;
    let files = inspection.files(checkpoint)?;
    let described = inspection
        .checkpoints()
        .into_iter()
        .find(|info| info.checkpoint == checkpoint);
    let Some(described) = described else {
        let cause = "it has files and no description";
        return Err(Error::new(ErrorKind::Internal, cause).with_checkpoint(checkpoint));
    };
    let document = Document {
        participant: inspection.participant().to_owned(),
        checkpoint: Checkpoint::from(&described),
        files: files.iter().map(File::from).collect(),
    };
    Outcome::new(&document, Exit::Done)
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checkpoint = &self.checkpoint;
        writeln!(f, "checkpoint {} of {}", checkpoint.id, self.participant)?;
        writeln!(f, "  cut at    {}", checkpoint.cut_at)?;
        match checkpoint.parent {
            Some(parent) => writeln!(f, "  after     checkpoint {parent}")?,
            None => writeln!(f, "  after     no other that is retained")?,
        }
        writeln!(f, "  attached  {}", checkpoint.user_bytes)?;
        if !checkpoint.families.is_empty() {
            let families = checkpoint.families.iter();
            let families: Vec<_> = families.map(|name| format!("{name:?}")).collect();
            writeln!(f, "  families  {}", families.join(", "))?;
        }
        for owner in &checkpoint.pins {
            writeln!(f, "  pinned by {owner}")?;
        }
        if checkpoint.is_restore_point {
            writeln!(f, "  a restart restores it")?;
        }
        if checkpoint.is_passed_over {
            writeln!(f, "  it was passed over: an older one was restored")?;
        }
        writeln!(
            f,
            "  {} files, {}; {} of them, {}, are in no older checkpoint",
            checkpoint.files,
            output::bytes(checkpoint.size_bytes),
            checkpoint.own_files,
            output::bytes(checkpoint.own_bytes),
        )?;
        let mut table = Table::new([
            "file",
            "local name",
            "kind",
            "size",
            "checksum",
            "since",
            "references",
        ]);
        for file in &self.files {
            table.row([
                file.name.clone(),
                file.local.clone(),
                file.kind.to_owned(),
                output::bytes(file.size_bytes),
                file.checksum.clone(),
                file.born.to_string(),
                file.references.to_string(),
            ]);
        }
        table.fmt(f)
    }
}
