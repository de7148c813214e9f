//! What the demo has seen, and its verdict.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use stillpoint::Error;

use super::Place;
use super::life::Life;
use super::stream::Difference;
use crate::arguments::Demo;
use crate::output::{self, Table};

#[derive(Serialize, Default)]
pub struct Account {
    pub matched: bool,
    /// Why not, if not.
    reasons: Vec<String>,
    keys: u64,
    events: u64,
    seed: u64,
    kills_wanted: u64,
    /// The position that the last life reached.
    pub finished_at: Option<u64>,
    checkpoints: Vec<Checkpoint>,
    aborted_checkpoints: u64,
    kills: Vec<Kill>,
    pub comparisons: Vec<Comparison>,
    /// Files in the store at the end that no retained checkpoint refers to.
    pub left_over_files: Option<usize>,
    state_bytes: u64,
    uploaded_bytes: u64,
    elapsed_milliseconds: u64,
    directory: Option<PathBuf>,
}

#[derive(Serialize)]
struct Checkpoint {
    id: u64,
    life: u64,
    duration_microseconds: u64,
    held_microseconds: u64,
    state_bytes: u64,
    uploaded_bytes: u64,
    new_files: usize,
    reused_files: usize,
    /// Deleted from its completion to the next one's.
    deleted_files: u64,
}

/// A SIGKILL.
#[derive(Serialize, Clone)]
pub struct Kill {
    pub life: u64,
    /// How far the worker had told to have come.
    pub at_position: u64,
    /// The checkpoint whose files were being uploaded, as far as the worker had told.
    pub checkpoint: Option<u64>,
    /// Whether it fell into an upload.
    pub counts: bool,
    /// Files that were being uploaded and that no checkpoint refers to.
    pub uploads_cut_off: Vec<String>,
    pub restored_checkpoint: u64,
    pub restored_position: u64,
}

/// A restored checkpoint, compared with the truth.
#[derive(Serialize, Clone)]
pub struct Comparison {
    /// `kill` or `end`.
    pub after: &'static str,
    pub checkpoint: u64,
    pub position: u64,
    #[serde(flatten)]
    pub difference: Difference,
}

impl Account {
    pub fn new(asked: &Demo) -> Self {
        Self {
            keys: asked.keys,
            events: asked.events,
            seed: asked.seed,
            kills_wanted: asked.kills,
            ..Self::default()
        }
    }

    pub fn kills_that_count(&self) -> u64 {
        let counting = self.kills.iter().filter(|kill| kill.counts).count();
        u64::try_from(counting).unwrap_or(u64::MAX)
    }

    pub fn add_life(&mut self, life: &Life) {
        if let Some(last) = self.checkpoints.last_mut() {
            last.deleted_files += life.deleted_before;
        }
        self.aborted_checkpoints += life.aborted;
        self.checkpoints
            .extend(life.rows.iter().map(|row| Checkpoint {
                id: row.completed.checkpoint,
                life: life.number,
                duration_microseconds: row.completed.duration_microseconds,
                held_microseconds: row.completed.held_microseconds,
                state_bytes: row.completed.state_bytes,
                uploaded_bytes: row.completed.uploaded_bytes,
                new_files: row.completed.uploaded_files,
                reused_files: row.completed.reused_files,
                deleted_files: row.deleted_files,
            }));
    }

    pub fn add_kill(&mut self, kill: Kill) {
        self.kills.push(kill);
    }

    pub fn elapsed(&mut self, begun: Instant) {
        self.elapsed_milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    }

    /// Sums up and judges. The directory is kept if something did not match.
    pub fn end(mut self, place: Place) -> Result<Self, Error> {
        self.uploaded_bytes = self.checkpoints.iter().map(|row| row.uploaded_bytes).sum();
        self.state_bytes = self.checkpoints.iter().map(|row| row.state_bytes).sum();
        self.reasons = self.find_reasons();
        self.matched = self.reasons.is_empty();
        self.directory = place.leave(!self.matched);
        Ok(self)
    }

    fn find_reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for comparison in &self.comparisons {
            let Comparison {
                checkpoint,
                difference,
                ..
            } = comparison;
            if !difference.is_none() {
                reasons.push(format!(
                    "checkpoint {checkpoint}, restored, differs from the truth: {} keys are missing, {} unexpected, \
                     {} have another value",
                    difference.missing, difference.unexpected, difference.different
                ));
            }
        }
        let last = self.comparisons.last();
        let compared_at = last
            .filter(|last| last.after == "end")
            .map(|last| last.position);
        if compared_at != Some(self.events) || self.finished_at != Some(self.events) {
            reasons.push(format!(
                "the end of the stream, position {}, was not compared",
                self.events
            ));
        }
        let kills = self.kills_that_count();
        if kills < self.kills_wanted {
            reasons.push(format!(
                "kills that fell into an upload: {kills}, wanted: {}",
                self.kills_wanted
            ));
        }
        match self.left_over_files {
            Some(0) => {}
            Some(files) => reasons.push(format!(
                "{files} files were left that no checkpoint refers to"
            )),
            None => reasons.push("it was not looked for files that were left".to_owned()),
        }
        reasons
    }
}

/// `12.3 ms` of microseconds.
fn milliseconds(microseconds: u64) -> String {
    format!("{}.{} ms", microseconds / 1_000, microseconds % 1_000 / 100)
}

/// `7 %`, rounded down; nothing of nothing is 0.
fn percent(part: u64, whole: u64) -> String {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{percent} %")
}

impl Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "checkpoint",
            "life",
            "duration",
            "writers held",
            "state",
            "uploaded",
            "share",
            "new",
            "reused",
            "deleted",
        ]);
        for row in &self.checkpoints {
            table.row([
                row.id.to_string(),
                row.life.to_string(),
                milliseconds(row.duration_microseconds),
                milliseconds(row.held_microseconds),
                output::bytes(row.state_bytes),
                output::bytes(row.uploaded_bytes),
                percent(row.uploaded_bytes, row.state_bytes),
                row.new_files.to_string(),
                row.reused_files.to_string(),
                row.deleted_files.to_string(),
            ]);
        }
        table.fmt(f)?;
        writeln!(
            f,
            "  deleted: until the next one completed; a restart skips the rest of a block of ids"
        )?;
        writeln!(
            f,
            "\n  uploaded: {} in {} checkpoints; full ones would have been {}, of which this is {}",
            output::bytes(self.uploaded_bytes),
            self.checkpoints.len(),
            output::bytes(self.state_bytes),
            percent(self.uploaded_bytes, self.state_bytes),
        )?;
        for kill in &self.kills {
            kill.fmt(f)?;
        }
        for comparison in &self.comparisons {
            comparison.fmt(f)?;
        }
        if let Some(files) = self.left_over_files {
            writeln!(
                f,
                "  at the end {files} files lie in the store that no checkpoint refers to"
            )?;
        }
        self.show_verdict(f)
    }
}

impl Account {
    fn show_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed_milliseconds / 1_000;
        if self.matched {
            let (keys, events, kills) = (self.keys, self.events, self.kills_that_count());
            writeln!(
                f,
                "\nMATCHED: {keys} keys are what {events} events make them, after {} during uploads \
                 ({seconds} s)",
                output::counted(kills, "kill")
            )?;
        } else {
            writeln!(f, "\nDID NOT MATCH ({seconds} s):")?;
        }
        for reason in &self.reasons {
            writeln!(f, "  {reason}")?;
        }
        if let Some(directory) = &self.directory {
            let root = directory.join("checkpoints");
            writeln!(f, "  look around: stillpoint ls --root {}", root.display())?;
        }
        Ok(())
    }
}

impl Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            life,
            at_position,
            restored_checkpoint,
            restored_position,
            ..
        } = self;
        if !self.counts {
            return writeln!(
                f,
                "  life {life}: killed at event {at_position}, too late for an upload; repeated"
            );
        }
        let files = self.uploads_cut_off.join(", ");
        writeln!(
            f,
            "  life {life}: killed at event {at_position} while it uploaded {files}; a restart begins with checkpoint \
             {restored_checkpoint}, event {restored_position}"
        )
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            after,
            checkpoint,
            position,
            difference,
        } = self;
        let found = if difference.is_none() {
            "equal"
        } else {
            "DIFFERENT"
        };
        writeln!(
            f,
            "  after the {after}: checkpoint {checkpoint} restored, {} keys compared with the truth at event \
             {position}: {found}",
            difference.keys
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Account {
        let difference = Difference {
            keys: 9,
            ..Difference::default()
        };
        let at = |after, position| Comparison {
            after,
            checkpoint: 1,
            position,
            difference,
        };
        let kill = Kill {
            life: 1,
            at_position: 50,
            checkpoint: Some(2),
            counts: true,
            uploads_cut_off: vec!["shared/1/7".to_owned()],
            restored_checkpoint: 1,
            restored_position: 40,
        };
        Account {
            keys: 9,
            events: 100,
            kills_wanted: 1,
            finished_at: Some(100),
            kills: vec![kill],
            comparisons: vec![at("kill", 40), at("end", 100)],
            left_over_files: Some(0),
            ..Account::default()
        }
    }

    #[test]
    fn only_what_is_right_in_all_matches() {
        assert_eq!(right().find_reasons(), [""; 0]);
        let wrong: [fn(&mut Account); 8] = [
            |account| account.comparisons[0].difference.missing = 1,
            |account| account.comparisons[1].difference.unexpected = 1,
            |account| account.comparisons[1].difference.different = 1,
            |account| account.comparisons[1].position = 99,
            |account| account.comparisons.truncate(account.comparisons.len() - 1),
            |account| account.finished_at = Some(99),
            |account| account.kills[0].counts = false,
            |account| account.left_over_files = Some(1),
        ];
        for change in wrong {
            let mut account = right();
            change(&mut account);
            assert_eq!(
                account.find_reasons().len(),
                1,
                "{:?}",
                account.find_reasons()
            );
        }
    }
}
