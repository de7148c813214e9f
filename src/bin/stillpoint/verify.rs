//! `stillpoint verify`: whether what is stored is there and is what it was.

use std::fmt::{self, Display};

use serde::Serialize;
use stillpoint::{
    Config, Error, ErrorKind, Inspection, Repository, RestoreProgress, VerifyDepth, VerifyReport,
};

use crate::arguments::{Verify, Wanted};
use crate::bar;
use crate::exit::Exit;
use crate::output::{self, Fault, Outcome};
use crate::root::{self, Access, Root};

/// How often the newest checkpoint is looked for anew because it was dropped meanwhile.
const TRIES_MAX: u32 = 5;

#[derive(Serialize)]
struct Document {
    depth: &'static str,
    is_sound: bool,
    participants: Vec<Participant>,
    /// Beside the participants, if all of them were asked for.
    unparsable: Vec<String>,
}

#[derive(Serialize)]
struct Participant {
    name: String,
    /// What ended the verification of this participant.
    error: Option<Fault>,
    /// What is wrong in its manifest.
    manifest_faults: Vec<Fault>,
    checkpoints: Vec<Checkpoint>,
    /// Dropped while `--all` came to them: no damage, and nothing is known of them.
    dropped: Vec<u64>,
    /// Not of this library: no damage, and seen by `--all` only.
    unparsable: Vec<String>,
}

#[derive(Serialize)]
struct Checkpoint {
    id: u64,
    files: usize,
    size_bytes: u64,
    faults: Vec<Fault>,
}

impl From<&VerifyReport> for Checkpoint {
    fn from(report: &VerifyReport) -> Self {
        Self {
            id: report.checkpoint.0,
            files: report.files,
            size_bytes: report.size_bytes,
            faults: report.faults.iter().map(Fault::from).collect(),
        }
    }
}

pub async fn run(asked: &Verify) -> Result<Outcome, Error> {
    let root = Root::open(&asked.at, Access::Read, Config::default()).await?;
    let depth = if asked.full {
        VerifyDepth::Checksums
    } else {
        VerifyDepth::Sizes
    };
    let mut document = Document {
        depth: match depth {
            VerifyDepth::Checksums => "checksums",
            VerifyDepth::Sizes => "sizes",
        },
        is_sound: true,
        participants: Vec::new(),
        unparsable: Vec::new(),
    };
    let mut exits = Vec::new();
    if asked.all {
        // An empty repository has nothing that could be right.
        if root.participants.is_empty() {
            root.one()?;
        }
        for name in &root.participants {
            let mut participant = Participant::new(name);
            if let Err(error) = all(&root.repository, &mut participant, depth).await {
                exits.push(Exit::of(&error));
                participant.error = Some(Fault::from(&error));
            }
            document.participants.push(participant);
        }
        document.unparsable = root.repository.unparsable().await?;
    } else {
        let mut participant = Participant::new(root.one()?);
        one(&root, &mut participant, asked.checkpoint, depth).await?;
        document.participants.push(participant);
    }
    if document.participants.iter().any(Participant::has_faults) {
        exits.push(Exit::CheckFailed);
    }
    let exit = Exit::worst(exits);
    document.is_sound = exit == Exit::Done;
    Outcome::new(&document, exit)
}

impl Participant {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            error: None,
            manifest_faults: Vec::new(),
            checkpoints: Vec::new(),
            dropped: Vec::new(),
            unparsable: Vec::new(),
        }
    }

    async fn look_at_manifest(
        &mut self,
        inspection: &Inspection,
        depth: VerifyDepth,
    ) -> Result<(), Error> {
        let faults = inspection.verify_manifest(depth).await?;
        self.manifest_faults = faults.iter().map(Fault::from).collect();
        Ok(())
    }

    fn has_faults(&self) -> bool {
        let mut checkpoints = self.checkpoints.iter();
        !self.manifest_faults.is_empty()
            || checkpoints.any(|checkpoint| !checkpoint.faults.is_empty())
    }
}

async fn one(
    root: &Root,
    participant: &mut Participant,
    wanted: Wanted,
    depth: VerifyDepth,
) -> Result<(), Error> {
    let mut tries = 0;
    loop {
        let inspection = root.inspect_one().await?;
        let checkpoint = root::resolve(&inspection, wanted)?;
        tries += 1;
        match checkpoint_of(&inspection, checkpoint, depth).await {
            Err(error)
                if error.kind() == ErrorKind::Subsumed
                    && wanted == Wanted::Newest
                    && tries < TRIES_MAX => {}
            result => {
                participant.checkpoints.push(Checkpoint::from(&result?));
                return participant.look_at_manifest(&inspection, depth).await;
            }
        }
    }
}

async fn all(
    repository: &Repository,
    participant: &mut Participant,
    depth: VerifyDepth,
) -> Result<(), Error> {
    let inspection = repository.inspect(&participant.name).await?;
    for info in inspection.checkpoints() {
        match checkpoint_of(&inspection, info.checkpoint, depth).await {
            Ok(report) => participant.checkpoints.push(Checkpoint::from(&report)),
            Err(error) if error.kind() == ErrorKind::Subsumed => {
                participant.dropped.push(info.checkpoint.0);
            }
            Err(error) => return Err(error),
        }
    }
    participant.unparsable = inspection.unparsable().await?;
    participant.look_at_manifest(&inspection, depth).await
}

async fn checkpoint_of(
    inspection: &Inspection,
    checkpoint: stillpoint::protocol::id::CheckpointId,
    depth: VerifyDepth,
) -> Result<VerifyReport, Error> {
    let progress = RestoreProgress::default();
    let what = format!("verifying {checkpoint} of {}", inspection.participant());
    let verifying = inspection.verify_with(checkpoint, depth, &progress);
    bar::of_bytes(&what, &progress, verifying).await
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for participant in &self.participants {
            participant.show(f, self.depth)?;
        }
        output::unparsable(f, "", &self.unparsable)?;
        let found = if self.is_sound { "sound" } else { "NOT sound" };
        writeln!(f, "{found}, as far as {} tell", self.depth)
    }
}

impl Participant {
    fn show(&self, f: &mut fmt::Formatter<'_>, depth: &str) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for fault in &self.manifest_faults {
            writeln!(f, "  the manifest is damaged in part: {fault}")?;
        }
        for checkpoint in &self.checkpoints {
            let Checkpoint { id, files, .. } = checkpoint;
            let size = output::bytes(checkpoint.size_bytes);
            if checkpoint.faults.is_empty() {
                writeln!(
                    f,
                    "  checkpoint {id}: {depth} of {files} files, {size}, are right"
                )?;
            } else {
                let faults = checkpoint.faults.len();
                writeln!(
                    f,
                    "  checkpoint {id}: {faults} of {files} files are damaged or missing"
                )?;
            }
            for fault in &checkpoint.faults {
                writeln!(f, "    {fault}")?;
            }
        }
        for dropped in &self.dropped {
            writeln!(
                f,
                "  checkpoint {dropped}: dropped meanwhile, because newer ones completed"
            )?;
        }
        if let Some(error) = &self.error {
            writeln!(f, "  {error}")?;
        } else if self.checkpoints.is_empty() && self.dropped.is_empty() {
            writeln!(f, "  no checkpoint has completed yet")?;
        }
        output::unparsable(f, "  ", &self.unparsable)
    }
}
