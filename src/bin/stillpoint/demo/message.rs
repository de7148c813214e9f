//! What the demo tells its worker, and what the worker tells while it works: a line of JSON each.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stillpoint::{CheckpointReport, Error};

use super::stream::Stream;

/// One life of the worker.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Task {
    pub stream: Stream,
    /// Where the checkpoints are kept.
    pub repository: PathBuf,
    /// Where the state lies.
    pub local: PathBuf,
    /// The position at which this life stops reading.
    pub until: u64,
    /// Whether it ends there, with a last checkpoint; otherwise it goes on taking checkpoints.
    pub is_last: bool,
    /// How long the whole stream is to take.
    pub pace: Duration,
    pub interval: Duration,
    pub num_retained: usize,
}

/// What the worker tells.
#[derive(Clone, Serialize, Deserialize, Debug)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Message {
    /// The state is what a checkpoint held, or empty.
    Restored {
        checkpoint: Option<u64>,
        position: u64,
        kept_files: usize,
        fetched_files: usize,
    },
    /// So many events have been counted.
    Position { position: u64 },
    /// A cut was taken.
    Cut { checkpoint: u64 },
    /// A file is about to be stored.
    UploadBegun { file: String },
    /// The call that stores it has come back.
    UploadEnded { file: String },
    /// A checkpoint is complete.
    Completed(Completed),
    /// A checkpoint ended without completing.
    Aborted { checkpoint: u64, reason: String },
    /// A file was deleted.
    Deleted { file: String },
    /// The stream is counted to its end, and the last checkpoint is complete.
    Finished { position: u64 },
    /// The worker can't go on.
    Failed { reason: String },
}

/// The account of a checkpoint.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Completed {
    pub checkpoint: u64,
    pub duration_microseconds: u64,
    pub held_microseconds: u64,
    pub state_bytes: u64,
    pub uploaded_bytes: u64,
    pub uploaded_files: usize,
    pub reused_files: usize,
}

impl From<&CheckpointReport> for Completed {
    fn from(report: &CheckpointReport) -> Self {
        let microseconds =
            |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            checkpoint: report.checkpoint.0,
            duration_microseconds: microseconds(report.duration),
            held_microseconds: microseconds(report.held),
            state_bytes: report.state_bytes,
            uploaded_bytes: report.uploaded_bytes,
            uploaded_files: report.uploaded_files,
            reused_files: report.reused_files,
        }
    }
}

/// Where the worker's messages go: standard output, whole lines, at once.
#[derive(Clone, Debug, Default)]
pub struct Mouth(Arc<Mutex<()>>);

impl Mouth {
    /// Says a message. Whoever listens may be gone; the worker notices that otherwise.
    pub fn say(&self, message: &Message) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            let _one_at_a_time = self.0.lock();
            let mut out = io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }

    pub fn failed(&self, error: &Error) {
        let reason = error.to_string();
        self.say(&Message::Failed { reason });
    }
}
