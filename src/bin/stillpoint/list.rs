//! `stillpoint ls`: participants and their checkpoints.

use std::fmt::{self, Display};

use serde::Serialize;
use stillpoint::{CheckpointInfo, Config, Error, Inspection};

use crate::arguments::Where;
use crate::exit::Exit;
use crate::output::{self, Fault, Outcome, Table, UserBytes};
use crate::root::{Access, Root};

#[derive(Serialize)]
struct Document {
    root: String,
    participants: Vec<Participant>,
}

#[derive(Serialize)]
struct Participant {
    name: String,
    /// What kept it from being read; the rest is empty then.
    error: Option<Fault>,
    epoch: u64,
    version: u64,
    attempts: Vec<u64>,
    restore_point: Option<u64>,
    tombstones: usize,
    released: usize,
    /// What was damaged and could be done without.
    warnings: Vec<String>,
    checkpoints: Vec<Checkpoint>,
}

/// A retained checkpoint, as `ls` and `show` show it.
#[derive(Serialize)]
pub struct Checkpoint {
    pub id: u64,
    pub parent: Option<u64>,
    pub cut_at: String,
    pub files: usize,
    pub size_bytes: u64,
    pub own_files: usize,
    pub own_bytes: u64,
    pub user_bytes: UserBytes,
    pub families: Vec<String>,
    pub pins: Vec<String>,
    pub is_restore_point: bool,
    pub is_passed_over: bool,
}

impl From<&CheckpointInfo> for Checkpoint {
    fn from(info: &CheckpointInfo) -> Self {
        Self {
            id: info.checkpoint.0,
            parent: info.parent.map(|parent| parent.0),
            cut_at: output::calendar(info.cut_at),
            files: info.files,
            size_bytes: info.size_bytes,
            own_files: info.own_files,
            own_bytes: info.own_bytes,
            user_bytes: UserBytes::new(&info.user_bytes),
            families: info.families.clone(),
            pins: info.pins.iter().map(|owner| owner.0.clone()).collect(),
            is_restore_point: info.is_restore_point,
            is_passed_over: info.is_passed_over,
        }
    }
}

impl Participant {
    fn new(inspection: &Inspection) -> Self {
        let manifest = inspection.manifest();
        Self {
            name: inspection.participant().to_owned(),
            error: None,
            epoch: manifest.epoch().0,
            version: manifest.version().0,
            attempts: manifest
                .attempts()
                .values()
                .map(|attempt| attempt.0)
                .collect(),
            restore_point: manifest.restore_point().map(|checkpoint| checkpoint.0),
            tombstones: manifest.tombstones().len(),
            released: manifest.released().len(),
            warnings: inspection
                .warnings()
                .iter()
                .map(ToString::to_string)
                .collect(),
            checkpoints: inspection
                .checkpoints()
                .iter()
                .map(Checkpoint::from)
                .collect(),
        }
    }

    fn unreadable(name: &str, error: &Error) -> Self {
        Self {
            name: name.to_owned(),
            error: Some(Fault::from(error)),
            epoch: 0,
            version: 0,
            attempts: Vec::new(),
            restore_point: None,
            tombstones: 0,
            released: 0,
            warnings: Vec::new(),
            checkpoints: Vec::new(),
        }
    }
}

pub async fn run(at: &Where) -> Result<Outcome, Error> {
    let root = Root::open(at, Access::Read, Config::default()).await?;
    let mut participants = Vec::new();
    let mut exits = Vec::new();
    for name in &root.participants {
        match root.repository.inspect(name).await {
            Ok(inspection) => participants.push(Participant::new(&inspection)),
            Err(error) => {
                exits.push(Exit::of(&error));
                participants.push(Participant::unreadable(name, &error));
            }
        }
    }
    let document = Document {
        root: at.root.display().to_string(),
        participants,
    };
    Outcome::new(&document, Exit::worst(exits))
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.participants.is_empty() {
            return writeln!(f, "{} is empty: it has no participants", self.root);
        }
        for participant in &self.participants {
            participant.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            epoch,
            version,
            ..
        } = self;
        if let Some(error) = &self.error {
            return writeln!(f, "{name}\n  can't be read: {error}");
        }
        let held = if self.attempts.is_empty() {
            "nobody runs it"
        } else {
            "in use, or its process died"
        };
        writeln!(f, "{name}  epoch {epoch}, version {version}, {held}")?;
        for warning in &self.warnings {
            writeln!(f, "  DAMAGED: {warning}")?;
        }
        if self.checkpoints.is_empty() {
            return writeln!(f, "  no checkpoint has completed yet");
        }
        self.fmt_checkpoints(f)?;
        self.fmt_remarks(f)?;
        writeln!(f, "  * is what a restart restores; own: in no older one")
    }
}

impl Participant {
    /// A row for each checkpoint.
    fn fmt_checkpoints(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "checkpoint",
            "cut at",
            "after",
            "files",
            "size",
            "own files",
            "own size",
            "attached",
        ]);
        for checkpoint in &self.checkpoints {
            let mark = if checkpoint.is_restore_point {
                " *"
            } else {
                ""
            };
            table.row([
                format!("{}{mark}", checkpoint.id),
                checkpoint.cut_at.clone(),
                checkpoint
                    .parent
                    .map_or_else(|| "-".to_owned(), |parent| parent.to_string()),
                checkpoint.files.to_string(),
                output::bytes(checkpoint.size_bytes),
                checkpoint.own_files.to_string(),
                output::bytes(checkpoint.own_bytes),
                checkpoint.user_bytes.to_string(),
            ]);
        }
        table.fmt(f)
    }

    /// What a row has no room for.
    fn fmt_remarks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for checkpoint in &self.checkpoints {
            if checkpoint.is_passed_over {
                writeln!(
                    f,
                    "  checkpoint {} was passed over: an older one was restored",
                    checkpoint.id
                )?;
            }
        }
        for checkpoint in self
            .checkpoints
            .iter()
            .filter(|checkpoint| !checkpoint.pins.is_empty())
        {
            writeln!(
                f,
                "  checkpoint {} is pinned by {}",
                checkpoint.id,
                checkpoint.pins.join(", ")
            )?;
        }
        Ok(())
    }
}
