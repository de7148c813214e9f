//! `stillpoint demo`: checkpoints under load, SIGKILL while files are being uploaded, a restart,
//! and at the end the state compared with the truth, key by key.
//!
//! ```text
//!  demo (parent) ──spawns──> worker: restore, count the stream in RocksDB, checkpoint each interval
//!      ^   └────SIGKILL────────┘  │
//!      └── events, a line each ───┘    UploadBegun without UploadEnded: the moment to kill
//! ```
//!
//! A kill counts if the worker's last words show an upload that had begun and not ended, and no
//! retained checkpoint refers to that file. One that came too late is repeated. After each kill
//! and at the end the newest checkpoint is restored into a fresh directory, beside whoever owns it,
//! and compared with the truth at its position, which the parent counts by itself.

mod account;
mod life;
mod message;
mod stream;
mod told;
pub mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use stillpoint::protocol::id::ObjectName;
use stillpoint::rocksdb::{DB, IteratorMode};
use stillpoint::{Error, ErrorKind, FileSystem, Inspection, Repository, RestoreOptions};
use tempfile::TempDir;
use tokio::runtime::Handle;

use self::account::{Account, Comparison, Kill};
use self::life::{End, Life, Orders};
use self::message::Task;
use self::stream::{Stream, Truth, mix};
use crate::arguments::Demo;
use crate::bar;
use crate::exit::Exit;
use crate::output::Outcome;

/// The demo's one participant.
pub const PARTICIPANT: &str = "counter";
/// Lives for each kill that is wanted; a kill may come too late and is repeated.
const LIVES_PER_KILL: u64 = 10;

pub fn rocksdb_failed(error: stillpoint::rocksdb::Error) -> Error {
    Error::new(ErrorKind::Other, format!("rocksdb: {error}")).with_source(error)
}

pub async fn run(asked: &Demo) -> Result<Outcome, Error> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn({
        let is_interrupted = Arc::clone(&is_interrupted);
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                is_interrupted.store(true, Ordering::Release);
            }
        }
    });
    let (asked, runtime) = (asked.clone(), Handle::current());
    let running = tokio::task::spawn_blocking(move || {
        let place = Place::take(asked.directory.as_deref())?;
        let mut show = Show::new(&asked, place.path(), runtime, is_interrupted)?;
        let result = show.run();
        show.bar.finish_and_clear();
        result?;
        show.account.end(place)
    });
    let result = running.await;
    watch.abort();
    let account = result.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
    let exit = if account.matched {
        Exit::Done
    } else {
        Exit::CheckFailed
    };
    Outcome::new(&account, exit)
}

/// The demo's directory.
pub enum Place {
    /// Removed at the end, unless something did not match.
    Temporary(TempDir),
    /// The user's.
    Given(PathBuf),
}

impl Place {
    fn take(given: Option<&Path>) -> Result<Self, Error> {
        let failed = |path: &Path, error: std::io::Error| {
            let cause = format!("{}: {error}", path.display());
            Error::new(ErrorKind::Unavailable, cause).with_source(error)
        };
        let Some(path) = given else {
            let made = tempfile::Builder::new()
                .prefix("stillpoint-demo-")
                .tempdir();
            return made
                .map(Self::Temporary)
                .map_err(|error| failed(&std::env::temp_dir(), error));
        };
        fs::create_dir_all(path).map_err(|error| failed(path, error))?;
        let mut entries = fs::read_dir(path).map_err(|error| failed(path, error))?;
        if entries.next().is_some() {
            let cause = format!("{} is not empty", path.display());
            return Err(Error::new(ErrorKind::Invalid, cause));
        }
        // The worker is given this path, wherever it is started.
        std::path::absolute(path)
            .map(Self::Given)
            .map_err(|error| failed(path, error))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(directory) => directory.path(),
            Self::Given(path) => path,
        }
    }

    /// Where everything still lies for whoever wants to look at it; nothing if it is removed.
    fn leave(self, keep: bool) -> Option<PathBuf> {
        match self {
            Self::Temporary(directory) => keep.then(|| directory.keep()),
            Self::Given(path) => Some(path),
        }
    }
}

struct Show {
    asked: Demo,
    stream: Stream,
    directory: PathBuf,
    repository: Option<Repository>,
    runtime: Handle,
    is_interrupted: Arc<AtomicBool>,
    truth: Truth,
    bar: ProgressBar,
    account: Account,
    begun: Instant,
}

impl Show {
    fn new(
        asked: &Demo,
        directory: &Path,
        runtime: Handle,
        is_interrupted: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let value_bytes = usize::try_from(asked.value_bytes)
            .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        let stream = Stream {
            seed: asked.seed,
            keys: asked.keys,
            events: asked.events,
            value_bytes,
        };
        Ok(Self {
            asked: asked.clone(),
            stream,
            directory: directory.to_owned(),
            repository: None,
            runtime,
            is_interrupted,
            truth: Truth::new(stream),
            bar: bar::of_steps("counting", asked.events),
            account: Account::new(asked),
            begun: Instant::now(),
        })
    }

    fn run(&mut self) -> Result<(), Error> {
        let lives_max = (self.asked.kills + 1) * LIVES_PER_KILL;
        for number in 1..=lives_max {
            let kills = self.account.kills_that_count();
            let is_last = kills >= self.asked.kills;
            let mut life = Life::start(&self.task(kills, is_last), number)?;
            let end = life.watch(
                &self.orders(number, kills, is_last),
                &self.bar,
                &self.is_interrupted,
            )?;
            self.account.add_life(&life);
            match end {
                End::Killed => {
                    let kill = self.look_after_kill(&life)?;
                    self.account.add_kill(kill);
                }
                End::Finished { position } => {
                    self.bar.set_message("comparing");
                    let inspection = self.inspect()?;
                    self.compare(&inspection, "end")?;
                    self.account.finished_at = Some(position);
                    self.account.left_over_files = Some(self.left_over(&inspection)?);
                    self.account.elapsed(self.begun);
                    return Ok(());
                }
            }
        }
        let cause = format!("{lives_max} lives of the worker were not enough");
        Err(Error::new(ErrorKind::Deadline, cause))
    }

    fn task(&self, kills: u64, is_last: bool) -> Task {
        Task {
            stream: self.stream,
            repository: self.directory.join("checkpoints"),
            local: self.directory.join("state"),
            until: if is_last {
                self.asked.events
            } else {
                self.part(2 * kills + 2)
            },
            is_last,
            pace: self.asked.seconds,
            interval: Duration::from_millis(self.asked.interval_ms),
            // Checked by the command line.
            num_retained: usize::try_from(self.asked.retain).unwrap_or(1),
        }
    }

    /// When to kill: halfway through the life's part of the stream or later, after some completed
    /// checkpoints, at one of the next uploads.
    fn orders(&self, number: u64, kills: u64, is_last: bool) -> Orders {
        let random = mix(self.asked.seed ^ mix(number));
        Orders {
            kill: !is_last,
            after_position: self.part(2 * kills + 1),
            after_completed: 1 + random % 2,
            at_upload: 1 + (random >> 8) % 3,
        }
    }

    /// The stream is played in one part for each life; this is the end of so many half parts.
    fn part(&self, halves: u64) -> u64 {
        let events = u128::from(self.asked.events);
        let end = events * u128::from(halves) / (2 * u128::from(self.asked.kills + 1));
        // At most the number of events.
        u64::try_from(end).unwrap_or(self.asked.events)
    }

    fn inspect(&mut self) -> Result<Inspection, Error> {
        let repository = match &self.repository {
            Some(repository) => repository.clone(),
            None => {
                let store = FileSystem::at(self.directory.join("checkpoints")).read_only();
                let opened = self.runtime.block_on(Repository::open(store))?;
                self.repository.insert(opened).clone()
            }
        };
        self.runtime.block_on(repository.inspect(PARTICIPANT))
    }

    /// What the kill cut off, and what a restart finds.
    fn look_after_kill(&mut self, life: &Life) -> Result<Kill, Error> {
        let inspection = self.inspect()?;
        let registry = inspection.manifest().registry();
        let is_held = |file: &String| match ObjectName::parse(file) {
            Some(ObjectName::Shared(name)) => registry.holds(name),
            Some(ObjectName::Current | ObjectName::Manifest(_)) | None => false,
        };
        let cut_off: Vec<_> = life
            .uploads_under_way()
            .filter(|file| !is_held(file))
            .cloned()
            .collect();
        let under_way = life.checkpoint_under_way();
        let comparison = self.compare(&inspection, "kill")?;
        Ok(Kill {
            life: life.number,
            at_position: life.position,
            checkpoint: under_way,
            counts: !cut_off.is_empty(),
            uploads_cut_off: cut_off,
            restored_checkpoint: comparison.checkpoint,
            restored_position: comparison.position,
        })
    }

    /// Restores the newest checkpoint into a fresh directory and compares it with the truth.
    fn compare(
        &mut self,
        inspection: &Inspection,
        after: &'static str,
    ) -> Result<Comparison, Error> {
        let newest = inspection
            .checkpoints()
            .into_iter()
            .find(|info| info.is_restore_point);
        let newest = newest.ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "no checkpoint is there although some completed",
            )
        })?;
        let text = std::str::from_utf8(&newest.user_bytes).ok();
        let position = text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                "what is attached to the checkpoint is no position",
            )
            .with_checkpoint(newest.checkpoint)
        })?;
        let directory = self.directory.join("compared");
        let options = RestoreOptions::new();
        self.runtime
            .block_on(inspection.restore(newest.checkpoint, &directory, &options))?;
        self.truth.go_to(position);
        let difference = {
            let db = DB::open_for_read_only(&worker::options(), &directory, false)
                .map_err(rocksdb_failed)?;
            self.truth
                .compare(db.iterator(IteratorMode::Start))
                .map_err(rocksdb_failed)?
        };
        fs::remove_dir_all(&directory).map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("{}: {error}", directory.display()),
            )
        })?;
        let comparison = Comparison {
            after,
            checkpoint: newest.checkpoint.0,
            position,
            difference,
        };
        self.account.comparisons.push(comparison.clone());
        Ok(comparison)
    }

    /// Files in the store that no retained checkpoint refers to.
    fn left_over(&self, inspection: &Inspection) -> Result<usize, Error> {
        let report = self.runtime.block_on(inspection.collect(true))?;
        Ok(report.deleted.len() + report.left.len() + report.unparsable.len())
    }
}
