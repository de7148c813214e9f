//! `stillpoint gc`: deletes what is condemned, or becomes the holder and deletes all garbage.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::time::Duration;

use serde::Serialize;
use stillpoint::protocol::id::FileName;
use stillpoint::{CollectReport, Config, Error, FileStanding, Repository};

use crate::arguments::Collect;
use crate::bar;
use crate::exit::Exit;
use crate::explain;
use crate::output::{self, Fault, Outcome};
use crate::root::{Access, Root};

#[derive(Serialize)]
struct Document {
    dry_run: bool,
    take_over: bool,
    participants: Vec<Participant>,
    /// Beside the participants.
    unparsable: Vec<String>,
}

#[derive(Serialize, Default)]
struct Participant {
    name: String,
    /// What ended the work on this participant.
    error: Option<Fault>,
    /// The epoch that the take-over began.
    epoch: Option<u64>,
    /// Deleted, or, with `--dry-run`, to be deleted.
    deleted: Vec<String>,
    /// Condemned, and gone already.
    absent: Vec<String>,
    failed: Vec<Failed>,
    left: Vec<Left>,
    unparsable: Vec<String>,
    held_files: usize,
    /// Of retained checkpoints, and not there.
    missing: Vec<String>,
}

#[derive(Serialize)]
struct Failed {
    file: String,
    error: Fault,
}

#[derive(Serialize)]
struct Left {
    file: String,
    standing: &'static str,
}

pub async fn run(asked: &Collect) -> Result<Outcome, Error> {
    let access = if asked.dry_run {
        Access::Read
    } else {
        Access::Write
    };
    let config = if asked.take_over {
        brisk(asked.deadline)
    } else {
        Config::default()
    };
    let root = Root::open(&asked.at, access, config).await?;
    let mut participants = Vec::new();
    let mut exits = Vec::new();
    if asked.take_over {
        let participant = take_over(&root.repository, root.one()?, asked.deadline).await?;
        participants.push(participant);
    } else {
        for name in &root.participants {
            let mut participant = Participant::default();
            participant.name.clone_from(name);
            if let Err(error) = collect(&root.repository, &mut participant, asked.dry_run).await {
                exits.push(Exit::of(&error));
                participant.error = Some(Fault::from(&error));
            }
            participants.push(participant);
        }
    }
    if participants
        .iter()
        .any(|participant| !participant.failed.is_empty())
    {
        exits.push(Exit::Unavailable);
    }
    if participants
        .iter()
        .any(|participant| !participant.missing.is_empty())
    {
        exits.push(Exit::CheckFailed);
    }
    let document = Document {
        dry_run: asked.dry_run,
        take_over: asked.take_over,
        participants,
        unparsable: root.repository.unparsable().await?,
    };
    Outcome::new(&document, Exit::worst(exits))
}

/// A guest's part: deletes what is condemned already.
async fn collect(
    repository: &Repository,
    participant: &mut Participant,
    dry_run: bool,
) -> Result<(), Error> {
    let inspection = repository.inspect(&participant.name).await?;
    let what = format!("collecting in {}", participant.name);
    let report = bar::of_waiting(&what, inspection.collect(dry_run)).await?;
    participant.deleted = report.deleted.iter().map(FileName::to_string).collect();
    participant.add_rest(&report);
    Ok(())
}

/// A holder's part: fences whoever holds the participant, then deletes all that no retained
/// checkpoint refers to. Nobody is fenced for a store that can't be listed.
async fn take_over(
    repository: &Repository,
    name: &str,
    deadline: Duration,
) -> Result<Participant, Error> {
    let before = repository.inspect(name).await?.collect(true).await?;
    let claim = bar::of_waiting(&format!("claiming {name}"), repository.claim(name)).await?;
    let epoch = claim.epoch().0;
    let cleaning = claim.clean_within(deadline);
    let cleaned = bar::of_waiting(&format!("cleaning {name}"), cleaning).await;
    let closed = claim.close().await;
    cleaned?;
    closed?;
    let after = repository.inspect(name).await?.collect(true).await?;
    let gone = garbage(&after);
    let mut participant = Participant {
        name: name.to_owned(),
        epoch: Some(epoch),
        deleted: garbage(&before)
            .difference(&gone)
            .map(FileName::to_string)
            .collect(),
        ..Participant::default()
    };
    participant.add_rest(&after);
    Ok(participant)
}

/// Everything that a look at the store found and no retained checkpoint refers to.
fn garbage(report: &CollectReport) -> BTreeSet<FileName> {
    let left = report.left.iter().map(|(file, _)| *file);
    left.chain(report.deleted.iter().copied()).collect()
}

/// A sweep rests between its pages; here somebody waits for it.
fn brisk(deadline: Duration) -> Config {
    let mut config = Config {
        claim_deadline: Some(deadline.max(Duration::from_millis(10))),
        ..Config::default()
    };
    let limits = &mut config.checkpoints.limits;
    limits.sweep_pause = Duration::from_millis(1);
    limits.sweep_round_pause = Duration::from_millis(100);
    limits.forget_delay = Duration::from_millis(10);
    config
}

impl Participant {
    fn add_rest(&mut self, report: &CollectReport) {
        self.failed = report
            .failed
            .iter()
            .map(|(file, error)| Failed {
                file: file.to_string(),
                error: Fault::from(error),
            })
            .collect();
        self.left = report
            .left
            .iter()
            .map(|(file, standing)| Left {
                file: file.to_string(),
                standing: explain::standing(standing),
            })
            .collect();
        self.absent = report.absent.iter().map(FileName::to_string).collect();
        self.unparsable.clone_from(&report.unparsable);
        self.held_files = report.held_files;
        self.missing = report.missing.iter().map(FileName::to_string).collect();
    }

    fn left_as(&self, standing: &FileStanding) -> usize {
        let standing = explain::standing(standing);
        self.left
            .iter()
            .filter(|left| left.standing == standing)
            .count()
    }
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.participants.is_empty() {
            writeln!(f, "the repository is empty: it has no participants")?;
        }
        for participant in &self.participants {
            participant.show(f, self.dry_run)?;
        }
        output::unparsable(f, "", &self.unparsable)
    }
}

impl Participant {
    fn show(&self, f: &mut fmt::Formatter<'_>, dry_run: bool) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        if let Some(error) = &self.error {
            return writeln!(f, "  {error}");
        }
        if let Some(epoch) = self.epoch {
            writeln!(
                f,
                "  taken over in epoch {epoch}: whoever held it is fenced"
            )?;
        }
        let verb = if dry_run { "to delete" } else { "deleted" };
        writeln!(
            f,
            "  {verb}: {}",
            output::counted(self.deleted.len() as u64, "condemned file")
        )?;
        for name in &self.deleted {
            writeln!(f, "    {name}")?;
        }
        for failed in &self.failed {
            writeln!(f, "  NOT deleted: {}: {}", failed.file, failed.error)?;
        }
        writeln!(
            f,
            "  left: {} of retained checkpoints",
            output::counted(self.held_files as u64, "file")
        )?;
        if !self.missing.is_empty() {
            let files = output::counted(self.missing.len() as u64, "file");
            writeln!(
                f,
                "  MISSING: {files} of retained checkpoints; `verify --all` says of which"
            )?;
        }
        let orphaned = if self.epoch.is_some() {
            "orphaned: stored meanwhile by the process that was fenced; to be deleted by the next holder's sweep"
        } else {
            "orphaned: to be deleted by a holder's next sweep, or by --take-over"
        };
        let kinds = [
            (
                FileStanding::Released,
                "released, to be condemned by the holder",
            ),
            (
                FileStanding::OfLiveAttempt,
                "of the present attempt: of a checkpoint under way, or left by its process's death for the next holder",
            ),
            (FileStanding::Orphaned, orphaned),
        ];
        for (standing, meaning) in kinds {
            let count = self.left_as(&standing);
            if count > 0 {
                let files = output::counted(count as u64, "file");
                writeln!(f, "  left: {files} {meaning}")?;
            }
        }
        output::unparsable(f, "  ", &self.unparsable)
    }
}
