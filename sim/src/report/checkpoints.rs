//! The checkpoints of a page, each with its phases.
//!
//! ```text
//! pending --> committing --> retained --> subsumed
//!    |             +--> nobody knows: its coordinator died
//!    +--> aborted, or gone with its coordinator
//! ```

use std::collections::BTreeMap;

use serde::Serialize;
use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::manifest::{Change, Record};

use super::{Instant, Span};
use crate::oracle::facts::Fact;
use crate::world::story::{Phase, Told};

/// One checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct CheckpointRow {
    id: u64,
    spans: Vec<Span>,
    instants: Vec<Instant>,
}

impl CheckpointRow {
    fn begin(&mut self, name: &'static str, at: u64, text: String) {
        self.end(at);
        self.spans.push(Span {
            name,
            from: at,
            until: u64::MAX,
            text,
        });
    }

    fn end(&mut self, at: u64) {
        if let Some(span) = self.spans.last_mut()
            && span.until == u64::MAX
        {
            span.until = at;
        }
    }

    fn is(&self, name: &str) -> bool {
        let last = self.spans.last();
        last.is_some_and(|span| span.name == name && span.until == u64::MAX)
    }

    fn note(&mut self, name: &'static str, at: u64, text: String) {
        self.instants.push(Instant { name, at, text });
    }

    /// Whether it has ever been complete.
    #[cfg(test)]
    pub(super) fn is_completed(&self) -> bool {
        self.spans.iter().any(|span| span.name == "retained")
    }
}

/// The rows, by their ids.
pub(super) fn rows(told: &Told, end: u64) -> Vec<CheckpointRow> {
    let mut rows: BTreeMap<CheckpointId, CheckpointRow> = BTreeMap::new();
    let mut phases = told.phases.iter().peekable();
    let mut pass = |rows: &mut BTreeMap<CheckpointId, CheckpointRow>, until: u64| {
        while let Some((at, process, checkpoint, phase)) = phases.next_if(|(at, ..)| *at <= until) {
            let row = rows.entry(*checkpoint).or_default();
            // What is durable is retained, however long its coordinator takes to hear of it.
            if row.is("retained") {
                continue;
            }
            match phase {
                Phase::Pending => row.begin("pending", *at, format!("{process} waits")),
                Phase::Committing => row.begin("committing", *at, format!("{process} commits")),
                Phase::Over => row.end(*at),
            }
        }
    };
    for (at, fact) in &told.facts {
        if let Fact::Committed(record) = fact {
            // A phase that began at the same instant began before the commit landed.
            pass(&mut rows, *at);
            commit(&mut rows, *at, record);
        } else {
            note(&mut rows, *at, fact);
        }
    }
    pass(&mut rows, u64::MAX);
    rows.into_iter()
        .map(|(id, mut row)| {
            row.end(end);
            CheckpointRow { id: id.0, ..row }
        })
        .collect()
}

fn commit(rows: &mut BTreeMap<CheckpointId, CheckpointRow>, at: u64, record: &Record) {
    for change in &record.changes {
        match change {
            Change::Complete(completion) => {
                let row = rows.entry(completion.checkpoint).or_default();
                row.begin("retained", at, format!("complete by {}", record.version));
            }
            Change::Subsume { checkpoints } => {
                for checkpoint in checkpoints {
                    rows.entry(*checkpoint).or_default().end(at);
                }
            }
            Change::Pin { checkpoint, owner } => {
                let row = rows.entry(*checkpoint).or_default();
                row.note("pin", at, format!("pinned for {}", owner.0));
            }
            Change::Unpin { checkpoint, owner } => {
                let row = rows.entry(*checkpoint).or_default();
                row.note("pin", at, format!("unpinned by {}", owner.0));
            }
            Change::Claim { .. }
            | Change::Reserve { .. }
            | Change::Describe { .. }
            | Change::Deploy { .. }
            | Change::End { .. }
            | Change::Condemn { .. }
            | Change::Forget { .. } => {}
        }
    }
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "most facts say nothing of a checkpoint"
)]
fn note(rows: &mut BTreeMap<CheckpointId, CheckpointRow>, at: u64, fact: &Fact) {
    match fact {
        Fact::CutTaken(checkpoint, subtask, attempt, _) => {
            let row = rows.entry(*checkpoint).or_default();
            row.note("cut", at, format!("{attempt} of {subtask} takes its cut"));
        }
        Fact::Acknowledged(attempt, checkpoint, _) => {
            let row = rows.entry(*checkpoint).or_default();
            row.note("acknowledged", at, format!("{attempt} acknowledges"));
        }
        Fact::Restored(checkpoint, subtask, attempt, _) => {
            let row = rows.entry(*checkpoint).or_default();
            row.note(
                "restored",
                at,
                format!("{attempt} of {subtask} has restored it"),
            );
        }
        Fact::Told(process, Notice::Aborted { checkpoint, reason }) => {
            let row = rows.entry(*checkpoint).or_default();
            row.note("aborted", at, format!("{process} aborts it: {reason:?}"));
        }
        _ => {}
    }
}
