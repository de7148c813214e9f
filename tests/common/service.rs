//! A service with one RocksDB: starts, takes checkpoints, dies, starts again; and a guest's view.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillpoint::protocol::id::CheckpointId;
use stillpoint::rocksdb::DB;
use stillpoint::storage::OpenStore;
use stillpoint::{
    CheckpointReport, Claim, Config, Error, ErrorKind, FileSystem, Participant, Repository,
    RestoreOptions, RestoreReport, Restored, RocksDb,
};

use super::database::{self, Content};
use super::{DEADLINE, in_time};

pub const NAME: &str = "orders/7";

/// Short waits, so that what is to happen happens soon; no bound that a held upload could meet.
pub fn config() -> Config {
    let mut config = Config::default();
    config.checkpoints.num_retained = 2;
    config.checkpoints.max_concurrent = 2;
    config.checkpoints.tolerable_failures = u32::MAX;
    config.checkpoints.timeout = DEADLINE * 4;
    config.progress_deadline = DEADLINE * 4;
    config.close_deadline = DEADLINE * 9;
    config.failure_burst_max = 1_000_000;
    config.transfers_max = 1024;
    config.transfer_memory_bytes_max = 1 << 32;
    let limits = &mut config.checkpoints.limits;
    limits.uploads_in_flight_max = 1024;
    limits.sweep_pause = Duration::from_millis(5);
    limits.sweep_round_pause = Duration::from_millis(20);
    limits.forget_delay = Duration::from_millis(5);
    limits.retry_delay = Duration::from_millis(5);
    limits.claim_delay = Duration::from_millis(1);
    limits.claim_delay_max = Duration::from_millis(20);
    config
}

pub async fn repository(store: impl OpenStore, config: Config) -> Repository {
    in_time(Repository::builder(store).with_config(config).open())
        .await
        .unwrap()
}

/// A repository with this file's configuration, in the folder `checkpoints` of a test's place.
pub async fn repository_in(place: &Path) -> Repository {
    repository(FileSystem::at(place.join("checkpoints")), config()).await
}

pub async fn claim(repository: &Repository) -> Claim {
    in_time(repository.claim(NAME)).await.unwrap()
}

/// Restores into a directory that an earlier life of this process may still be about to leave.
pub async fn restore(
    claim: &Claim,
    directory: &Path,
    options: &RestoreOptions,
) -> Result<Restored, Error> {
    let end = Instant::now() + DEADLINE;
    loop {
        match in_time(claim.restore_with(directory, options)).await {
            Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            restored => return restored,
        }
    }
}

/// A running service.
pub struct Service {
    pub participant: Participant,
    pub db: Arc<DB>,
    pub directory: PathBuf,
    pub report: RestoreReport,
    /// What it was restored from.
    pub restored: Option<CheckpointId>,
}

impl Service {
    pub async fn start(repository: &Repository, directory: &Path) -> Self {
        Self::start_from(repository, directory, &RestoreOptions::new()).await
    }

    pub async fn start_from(
        repository: &Repository,
        directory: &Path,
        options: &RestoreOptions,
    ) -> Self {
        Self::start_with(repository, directory, options, database::open).await
    }

    pub async fn start_with(
        repository: &Repository,
        directory: &Path,
        options: &RestoreOptions,
        open: impl FnOnce(&Path) -> Arc<DB>,
    ) -> Self {
        let claim = claim(repository).await;
        let restored = restore(&claim, directory, options).await.unwrap();
        let (report, checkpoint) = (restored.report(), restored.checkpoint());
        let db = open(directory);
        let participant = restored.attach(RocksDb::new(Arc::clone(&db))).unwrap();
        Self {
            participant,
            db,
            directory: directory.to_owned(),
            report,
            restored: checkpoint,
        }
    }

    /// Takes a checkpoint and waits for it. Nobody else may write.
    pub async fn checkpoint(&self, user_bytes: &str) -> CheckpointReport {
        let checkpoint = self.participant.checkpoint(user_bytes).unwrap();
        in_time(checkpoint.completed()).await.unwrap()
    }

    pub fn put(&self, family: &str, key: &str, value: impl AsRef<[u8]>) {
        let family = self.db.cf_handle(family).unwrap();
        self.db.put_cf(&family, key, value).unwrap();
    }

    /// Fills a family with so many pairs whose values depend on a number.
    pub fn fill(&self, family: &str, pairs: u64, number: u64) {
        let mut random = super::random::Random::new(number);
        for pair in 0..pairs {
            let value = format!("{:016x}", random.next()).repeat(16);
            self.put(family, &format!("{pair:08}"), value);
        }
    }

    /// Writes out what is in memory, of all families.
    pub fn flush(&self) {
        for name in database::FAMILIES {
            let family = self.db.cf_handle(name).unwrap();
            self.db.flush_cf(&family).unwrap();
        }
    }

    pub fn content(&self) -> Content {
        database::content_of(&self.db)
    }
}

/// Restores a retained checkpoint as a guest and reads all of it.
pub async fn content_of(repository: &Repository, checkpoint: CheckpointId) -> Content {
    let base = super::scratch();
    let directory = base.path().join("restored");
    let inspection = in_time(repository.inspect(NAME)).await.unwrap();
    in_time(inspection.restore(checkpoint, &directory, &RestoreOptions::new()))
        .await
        .unwrap();
    database::read(&directory).unwrap()
}

pub async fn retained(repository: &Repository) -> Vec<CheckpointId> {
    let inspection = in_time(repository.inspect(NAME)).await.unwrap();
    let checkpoints = inspection.checkpoints().into_iter();
    checkpoints.map(|info| info.checkpoint).collect()
}

/// Once the cleaner is idle, the store holds the files of what is retained, and nothing else.
pub async fn assert_no_garbage(repository: &Repository, root: &Path, participant: &Participant) {
    match tokio::time::timeout(DEADLINE, participant.cleaned()).await {
        Ok(cleaned) => cleaned.unwrap(),
        Err(_) => {
            let waits = participant.pending_reason();
            let inspection = in_time(repository.inspect(NAME)).await.unwrap();
            let (released, tombstones) = (
                inspection.manifest().released(),
                inspection.manifest().tombstones(),
            );
            panic!("not clean: {waits:?}, released {released:?}, tombstones {tombstones:?}");
        }
    }
    let inspection = in_time(repository.inspect(NAME)).await.unwrap();
    let mut held = BTreeSet::new();
    for info in inspection.checkpoints() {
        let files = inspection.files(info.checkpoint).unwrap();
        held.extend(files.iter().map(|file| file.name.to_string()));
    }
    let stored: BTreeSet<_> = database::files_below(root)
        .into_iter()
        .filter_map(|path| {
            let at = path.find("/shared/")?;
            Some(path[at + 1..].to_owned())
        })
        .collect();
    assert_eq!(stored, held, "stored, and held by retained checkpoints");
}

/// The links of snapshots below a directory, by the names of the files that they are of.
pub fn links_below(directory: &Path) -> Vec<String> {
    let files = database::files_below(directory);
    let of_attempts: Vec<_> = files
        .iter()
        .filter_map(|path| Some(path.split_once("/attempt-")?.1.split_once('/')?.1))
        .collect();
    assert!(
        !of_attempts.is_empty(),
        "no attempt below {}",
        directory.display()
    );
    let links = of_attempts.into_iter().filter(|name| *name != "LOCK");
    links
        .map(|name| {
            name.split_once('-')
                .map_or(name, |(_, file)| file)
                .to_owned()
        })
        .collect()
}

/// No snapshot holds a link any more, and no file of the database has a second name.
pub fn assert_no_links(service: &Service) {
    super::wait_for("the last links to go", || {
        links_below(&service.directory).is_empty()
    });
    for name in database::tables(&service.db) {
        // One that is compacted away meanwhile has none.
        let found = fs::metadata(service.directory.join(&name));
        let links = found.map_or(0, |found| found.nlink());
        assert!(links <= 1, "{name} has {links} names");
    }
}
