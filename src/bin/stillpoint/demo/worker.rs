//! The demo's worker: counts the stream in RocksDB, with a checkpoint each interval, until it is
//! killed or the stream ends. It is written as a service would be.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stillpoint::rocksdb::{DB, Options, WriteBatch, WriteOptions};
use stillpoint::storage::Intercepted;
use stillpoint::{
    Checkpoint, Config, Error, ErrorKind, Events, FileSystem, Participant, ParticipantEvent,
    Repository, Restored, RocksDb,
};
use tokio::sync::Notify;

use super::message::{Completed, Message, Mouth, Task};
use super::stream::Stream;
use super::told::Told;
use super::{PARTICIPANT, rocksdb_failed};
use crate::exit::Exit;
use crate::output::Outcome;

/// Events between two looks at the clock and at what else is to be done.
const BATCH: u64 = 128;
const TOLD_EVERY: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);
/// How long the last life waits for the store to be clean.
const CLEANED_WITHIN: Duration = Duration::from_secs(60);
const LAST_TRIES_MAX: u32 = 5;

/// Lives until the task is done, or until it is killed.
pub async fn run(task: &str) -> Result<Outcome, Error> {
    let task: Task = serde_json::from_str(task)
        .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
    end_with_parent();
    let mouth = Mouth::default();
    let exit = match live(task, &mouth).await {
        Ok(()) => Exit::Done,
        Err(error) => {
            mouth.failed(&error);
            Exit::of(&error)
        }
    };
    Ok(Outcome::silent(exit))
}

/// Nobody is left to kill the worker once the demo is gone: its end of the pipe closes then.
fn end_with_parent() {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
}

async fn live(task: Task, mouth: &Mouth) -> Result<(), Error> {
    let told = Arc::new(Told(mouth.clone()));
    let store = Intercepted::new(FileSystem::at(&task.repository), told);
    let repository = Repository::builder(store)
        .with_config(config(&task))
        .open()
        .await?;
    let claim = repository.claim(PARTICIPANT).await?;
    let restored = claim.restore_into(&task.local).await?;
    let position = position(restored.user_bytes())?;
    tell_restored(mouth, &restored, position);
    let db = Arc::new(open(&task.local)?);
    if restored.is_empty() {
        fill(&db, task.stream)?;
    }
    let participant = Arc::new(restored.attach(RocksDb::new(Arc::clone(&db)))?);
    tokio::spawn(listen(participant.events(), mouth.clone()));
    let wanted = Arc::new(Wanted::default());
    tokio::spawn(Arc::clone(&wanted).watch(Arc::clone(&participant)));

    let player = Arc::new(Player {
        task,
        db,
        participant: Arc::clone(&participant),
        wanted,
        mouth: mouth.clone(),
    });
    let ended_at = beside(&player, move |player| player.play(position)).await?;
    if player.task.is_last {
        clean(&player).await?;
    }
    participant.close().await?;
    mouth.say(&Message::Finished { position: ended_at });
    Ok(())
}

/// Runs what blocks where it may.
async fn beside<T: Send + 'static>(
    player: &Arc<Player>,
    work: impl FnOnce(&Player) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let player = Arc::clone(player);
    let working = tokio::task::spawn_blocking(move || work(&player));
    working
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
}

/// Waits until what the kills have left is found and deleted. Checkpoints go on meanwhile.
async fn clean(player: &Arc<Player>) -> Result<(), Error> {
    let is_clean = Arc::new(AtomicBool::new(false));
    let serving = {
        let is_clean = Arc::clone(&is_clean);
        beside(player, move |player| player.serve_until(&is_clean))
    };
    let cleaning = async {
        let cleaned = tokio::time::timeout(CLEANED_WITHIN, player.participant.cleaned()).await;
        is_clean.store(true, Ordering::Release);
        cleaned.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Deadline,
                "the store did not come to be clean",
            ))
        })
    };
    let (served, cleaned) = tokio::join!(serving, cleaning);
    served.and(cleaned)
}

fn config(task: &Task) -> Config {
    let mut config = Config::default();
    config.checkpoints.interval = Some(task.interval);
    config.checkpoints.num_retained = task.num_retained;
    // Sooner than in production, since the demo is over soon.
    config.checkpoints.limits.sweep_pause = Duration::from_millis(50);
    config.checkpoints.limits.sweep_round_pause = Duration::from_secs(1);
    config
}

fn position(user_bytes: Option<&[u8]>) -> Result<u64, Error> {
    let Some(bytes) = user_bytes else {
        return Ok(0);
    };
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::new(
            ErrorKind::Incompatible,
            "what is attached to the checkpoint is no position",
        )
    })
}

fn tell_restored(mouth: &Mouth, restored: &Restored, position: u64) {
    let report = restored.report();
    mouth.say(&Message::Restored {
        checkpoint: restored.checkpoint().map(|checkpoint| checkpoint.0),
        position,
        kept_files: report.kept_files,
        fetched_files: report.fetched_files,
    });
}

/// Small files, so that a state of a few megabytes has several levels and compactions.
pub fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(4 << 20);
    options.set_target_file_size_base(2 << 20);
    options.set_max_bytes_for_level_base(8 << 20);
    options.set_max_manifest_file_size(1 << 20);
    options
}

fn open(directory: &Path) -> Result<DB, Error> {
    DB::open(&options(), directory).map_err(rocksdb_failed)
}

/// No log: a restart goes back to the newest checkpoint and replays the stream from there.
fn without_log() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

/// The first start: every key, counted never.
fn fill(db: &DB, stream: Stream) -> Result<(), Error> {
    let options = without_log();
    let mut batch = WriteBatch::default();
    for key in 0..stream.keys {
        batch.put(Stream::key(key), stream.value(key, 0));
        if batch.len() >= 1_000 {
            db.write_opt(std::mem::take(&mut batch), &options)
                .map_err(rocksdb_failed)?;
        }
    }
    db.write_opt(batch, &options).map_err(rocksdb_failed)
}

async fn listen(mut events: Events, mouth: Mouth) {
    while let Some(event) = events.next().await {
        let message = match event {
            ParticipantEvent::Cut { checkpoint, .. } => Message::Cut {
                checkpoint: checkpoint.0,
            },
            ParticipantEvent::Completed(report) => Message::Completed(Completed::from(&report)),
            ParticipantEvent::Aborted { checkpoint, error } => Message::Aborted {
                checkpoint: checkpoint.0,
                reason: error.to_string(),
            },
            ParticipantEvent::Deleted { file } => Message::Deleted { file },
            ParticipantEvent::Triggered { .. }
            | ParticipantEvent::Uploaded { .. }
            | ParticipantEvent::Subsumed { .. }
            | ParticipantEvent::InDoubt { .. }
            | ParticipantEvent::TooManyFailures { .. }
            | ParticipantEvent::StoreTrouble { .. }
            | ParticipantEvent::Warned { .. }
            | ParticipantEvent::Unparsable { .. }
            | ParticipantEvent::Ended { .. }
            | _ => continue,
        };
        mouth.say(&message);
    }
}

/// Whether the interval asks for a checkpoint: learned in a task, looked at by the writer.
#[derive(Default)]
struct Wanted {
    is_wanted: AtomicBool,
    taken: Notify,
}

impl Wanted {
    async fn watch(self: Arc<Self>, participant: Arc<Participant>) {
        while participant.triggered().await.is_ok() {
            self.is_wanted.store(true, Ordering::Release);
            self.taken.notified().await;
        }
    }
}

/// The one writing thread. It also asks for the checkpoints, so nobody else is to be held.
struct Player {
    task: Task,
    db: Arc<DB>,
    participant: Arc<Participant>,
    wanted: Arc<Wanted>,
    mouth: Mouth,
}

impl Player {
    /// Counts from a position on; answers where it ended.
    fn play(&self, start: u64) -> Result<u64, Error> {
        let (begun, mut told) = (Instant::now(), Instant::now());
        let options = without_log();
        let mut position = start;
        loop {
            self.serve(position)?;
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                self.mouth.say(&Message::Position { position });
            }
            if position >= self.task.until {
                if self.task.is_last {
                    break;
                }
                std::thread::sleep(PAUSE);
            } else if self.is_ahead(position - start, begun.elapsed()) {
                std::thread::sleep(PAUSE);
            } else {
                let end = (position + BATCH).min(self.task.until);
                for event in position..end {
                    self.count(self.task.stream.key_at(event), &options)?;
                }
                position = end;
            }
        }
        self.mouth.say(&Message::Position { position });
        self.last_checkpoint(position)?;
        Ok(position)
    }

    /// Takes the cut that the interval asks for, if it does.
    fn serve(&self, position: u64) -> Result<(), Error> {
        if self.wanted.is_wanted.swap(false, Ordering::AcqRel) {
            self.checkpoint(position)?;
            self.wanted.taken.notify_one();
        }
        Ok(())
    }

    fn serve_until(&self, end: &AtomicBool) -> Result<(), Error> {
        while !end.load(Ordering::Acquire) {
            self.serve(self.task.until)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Whether more events were counted than the pace asks for by now.
    fn is_ahead(&self, counted: u64, elapsed: Duration) -> bool {
        let events = u128::from(self.task.stream.events);
        u128::from(counted) * self.task.pace.as_micros() > events * elapsed.as_micros()
    }

    fn count(&self, key: u64, options: &WriteOptions) -> Result<(), Error> {
        let name = Stream::key(key);
        let value = self.db.get_pinned(&name).map_err(rocksdb_failed)?;
        let count = value.and_then(|value| Stream::count(&value)).unwrap_or(0);
        let value = self.task.stream.value(key, count + 1);
        self.db
            .put_opt(&name, value, options)
            .map_err(rocksdb_failed)
    }

    /// The cut is taken when this returns; the rest goes on beside the writer.
    fn checkpoint(&self, position: u64) -> Result<Option<Checkpoint>, Error> {
        match self.participant.checkpoint(position.to_string()) {
            Ok(checkpoint) => Ok(Some(checkpoint)),
            // An earlier cut waits for its checkpoint to begin: the next interval asks again.
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn last_checkpoint(&self, position: u64) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let Some(checkpoint) = self.checkpoint(position)? else {
                std::thread::sleep(PAUSE);
                continue;
            };
            tries += 1;
            match checkpoint.wait() {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() && tries < LAST_TRIES_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }
}
