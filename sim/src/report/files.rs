//! The state files of a page: who owns each of them when, and the interval in which checkpoints
//! hold it.
//!
//! ```text
//! uploading -> stored (its attempt's) -> staged (the leader's) -> held -> released -> condemned -> gone
//! ```

use std::collections::BTreeMap;

use serde::Serialize;
use stillpoint::protocol::id::FileName;
use stillpoint::protocol::manifest::{Change, Record};

use super::{Instant, Span};
use crate::oracle::durable::Durable;
use crate::oracle::facts::{Fact, Facts};
use crate::world::story::Told;

/// One file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct FileRow {
    name: String,
    spans: Vec<Span>,
    instants: Vec<Instant>,
    /// Its intervals on the line of checkpoints, in words.
    intervals: Vec<String>,
    #[serde(skip)]
    is_stored: bool,
}

impl FileRow {
    fn begin(&mut self, name: &'static str, at: u64, text: &str) {
        if let Some(span) = self.spans.last_mut()
            && span.until == u64::MAX
        {
            if span.name == name {
                return;
            }
            span.until = at;
        }
        self.spans.push(Span {
            name,
            from: at,
            until: u64::MAX,
            text: text.to_owned(),
        });
    }

    fn end(&mut self, at: u64) {
        if let Some(span) = self.spans.last_mut() {
            span.until = span.until.min(at);
        }
    }

    fn note(&mut self, name: &'static str, at: u64, text: String) {
        self.instants.push(Instant { name, at, text });
    }

    fn is(&self, name: &str) -> bool {
        let last = self.spans.last();
        last.is_some_and(|span| span.name == name && span.until == u64::MAX)
    }
}

/// The rows, by their names.
pub(super) fn rows(told: &Told, end: u64) -> Vec<FileRow> {
    let mut rows: BTreeMap<FileName, FileRow> = BTreeMap::new();
    let mut facts = Facts::default();
    for (at, fact) in &told.facts {
        note(&mut rows, *at, fact);
        if facts.take(fact).is_err() {
            // The record that can't be so is the last fact.
            break;
        }
        if let Fact::Committed(record) = fact {
            intervals(&mut rows, record);
            stand(&mut rows, *at, &facts.durable);
        } else if let Fact::AnswerSent(..) = fact {
            for (name, row) in &mut rows {
                if (row.is("stored") || row.is("uploading")) && facts.answered.contains(name) {
                    row.begin(
                        "staged",
                        *at,
                        "the leader's: it answered an acknowledgement",
                    );
                }
            }
        }
    }
    rows.into_iter()
        .map(|(name, mut row)| {
            row.end(end);
            row.name = name.to_string();
            row
        })
        .collect()
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "most facts say nothing of a file"
)]
fn note(rows: &mut BTreeMap<FileName, FileRow>, at: u64, fact: &Fact) {
    match fact {
        Fact::UploadAsked(attempt, name, _) => {
            let row = rows.entry(*name).or_default();
            if row.spans.is_empty() {
                row.begin("uploading", at, &format!("{attempt}'s, not there yet"));
            }
        }
        Fact::FileStored(name, _) => {
            let row = rows.entry(*name).or_default();
            row.is_stored = true;
            if row.is("uploading") {
                row.begin("stored", at, &format!("{}'s own", name.attempt));
            } else if row.spans.last().is_none_or(|span| span.until != u64::MAX) {
                row.begin(
                    "stored",
                    at,
                    "it landed when nobody waited for it any more: the sweep's",
                );
            }
        }
        Fact::AttemptGone(attempt) => {
            for (name, row) in rows {
                if name.attempt == *attempt && row.is("uploading") {
                    row.end(at);
                }
            }
        }
        Fact::FileRemoved(name) => {
            let row = rows.entry(*name).or_default();
            row.is_stored = false;
            let is_held = row.is("held");
            row.end(at);
            if is_held {
                row.note("lost", at, "gone although held".to_owned());
            } else {
                row.note("gone", at, "gone".to_owned());
            }
        }
        Fact::DeleteAsked(caller, name) => {
            let row = rows.entry(*name).or_default();
            row.note("delete", at, format!("{caller:?} asks to delete it"));
        }
        _ => {}
    }
}

fn intervals(rows: &mut BTreeMap<FileName, FileRow>, record: &Record) {
    for change in &record.changes {
        let Change::Complete(completion) = change else {
            continue;
        };
        let checkpoint = completion.checkpoint.0;
        for delta in &completion.subtasks {
            for file in delta.born.iter().chain(&delta.returned) {
                let row = rows.entry(file.name).or_default();
                row.intervals
                    .push(format!("{} from {checkpoint}", delta.subtask));
            }
            for name in &delta.dropped {
                let row = rows.entry(*name).or_default();
                let open = format!("{} from", delta.subtask);
                let interval = row
                    .intervals
                    .iter_mut()
                    .rfind(|interval| interval.starts_with(&open) && !interval.contains(" to "));
                if let Some(interval) = interval {
                    interval.push_str(&format!(" to before {checkpoint}"));
                }
            }
        }
    }
}

/// Where each file stands after a commit.
fn stand(rows: &mut BTreeMap<FileName, FileRow>, at: u64, durable: &Durable) {
    for (name, row) in rows {
        if durable.held.contains_key(name) {
            row.begin("held", at, "retained checkpoints hold it");
        } else if durable.tombstones.contains(name) {
            if row.is_stored || row.is("held") || row.is("released") {
                row.begin("condemned", at, "a tombstone: anybody may delete it");
            }
        } else if row.is("held") {
            row.begin(
                "released",
                at,
                "no checkpoint holds it: the leader's to condemn",
            );
        } else if row.is("condemned") {
            row.end(at);
        }
    }
}
