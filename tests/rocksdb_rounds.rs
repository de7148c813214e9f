//! Checkpoints of a real RocksDB under load, round after round: after each completion every
//! retained checkpoint restores into a fresh directory and is what the truth was at its cut.
//!
//! ```text
//! 8 writers ──gate──> RocksDB ──cut──> uploads, held by the test ──let go in some order──> store
//!     └── each keeps its own truth          meanwhile: writes, compactions, another cut      │
//!         truth at the cut  <── compared, key by key ── every retained checkpoint, restored <┘
//! ```
//!
//! What each round is to show is made, not hoped for: uploads wait in the store until a compaction
//! has run, until a second checkpoint is pending, or until the younger one has completed. What
//! came about is counted, and the run fails if there was too little of it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends at the first surprise, and says what it did"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use common::database::{self, Content, FAMILIES, Pairs};
use common::held::{Held, Hold, Waiting};
use common::random::{self, Random};
use common::service::{self, Service};
use common::{in_time, wait_for};
use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::id::CheckpointId;
use stillpoint::rocksdb::{DB, WriteBatch};
use stillpoint::state::WriteGate;
use stillpoint::{Checkpoint, Error, ErrorKind, FileSystem, Repository, RestoreOptions};

const WRITERS: usize = 8;
/// Keys that each writer has in each family.
const KEYS: u64 = 40;
/// Operations that each writer does between two steps of a round.
const OPERATIONS: u64 = 30;

// ---------------------------------------------------------------------------------------------
// The writers and their truth

/// What the writers share.
struct Load {
    gate: WriteGate,
    wal: bool,
    seed: u64,
    /// What each writer has written, by family.
    truths: [Mutex<Content>; WRITERS],
    counts: [AtomicU64; WRITERS],
    granted: Mutex<u64>,
    more: Condvar,
    stop: AtomicBool,
}

/// Running writers; they end with this.
struct Writers {
    load: Arc<Load>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Writers of one life of the service, whose state is `truth`.
    fn start(db: &Arc<DB>, wal: bool, seed: u64, truth: &Content) -> Self {
        let of_writer = |writer: usize| {
            let own = |pairs: &Pairs| -> Pairs {
                let prefix = prefix(writer);
                let own = pairs.iter().filter(|(key, _)| key.starts_with(&prefix));
                own.map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            };
            let family = |name: &str| truth.get(name).map(own).unwrap_or_default();
            let content = FAMILIES
                .iter()
                .map(|name| ((*name).to_owned(), family(name)));
            Mutex::new(content.collect())
        };
        let load = Arc::new(Load {
            gate: WriteGate::new(),
            wal,
            seed,
            truths: std::array::from_fn(of_writer),
            counts: Default::default(),
            granted: Mutex::new(0),
            more: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let threads = (0..WRITERS).map(|writer| {
            let (load, db) = (Arc::clone(&load), Arc::clone(db));
            std::thread::spawn(move || load.write(writer, &db))
        });
        Self {
            threads: threads.collect(),
            load: Arc::clone(&load),
        }
    }

    /// Lets every writer do more, and waits until about half of that is done.
    fn go_on(&self) {
        let granted = {
            let mut granted = self.load.granted.lock().unwrap();
            *granted += OPERATIONS;
            *granted
        };
        self.load.more.notify_all();
        let goal = (granted - OPERATIONS / 2) * WRITERS as u64;
        let done = || {
            self.load
                .counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
        };
        wait_for("writers", || {
            assert!(!self.load.stop.load(Ordering::Relaxed), "a writer failed");
            done().sum::<u64>() >= goal
        });
    }

    /// How much each writer has done. The gate is closed.
    fn written(&self) -> Vec<u64> {
        let counts = self.load.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// What the state is. The gate is closed.
    fn truth(&self) -> Content {
        let mut all: Content = FAMILIES
            .iter()
            .map(|name| ((*name).to_owned(), Pairs::new()))
            .collect();
        for truth in &self.load.truths {
            for (name, pairs) in truth.lock().unwrap().iter() {
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone()));
                all.get_mut(name).unwrap().extend(pairs);
            }
        }
        all
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.load.stop.store(true, Ordering::Relaxed);
        // Under the lock, so that nobody is between looking and waiting.
        drop(self.load.granted.lock());
        self.load.more.notify_all();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a writer failed");
        }
    }
}

fn prefix(writer: usize) -> Vec<u8> {
    format!("{writer}-").into_bytes()
}

impl Load {
    fn write(&self, writer: usize, db: &DB) {
        let _stop_all = StopOnPanic(self);
        let mut number = 0;
        loop {
            {
                let mut granted = self.granted.lock().unwrap();
                while *granted <= number && !self.stop.load(Ordering::Relaxed) {
                    granted = self.more.wait(granted).unwrap();
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            number += 1;
            let _inside = self.gate.pass();
            self.operate(writer, number, db);
            self.counts[writer].store(number, Ordering::Relaxed);
        }
    }

    /// One operation: what it is, the seed, the writer and its number say alone.
    fn operate(&self, writer: usize, number: u64, db: &DB) {
        let mixed = self.seed ^ (number << 8) ^ writer as u64;
        let mut random = Random::new(Random::new(mixed).next());
        let key = |random: &mut Random| {
            let mut key = prefix(writer);
            key.extend(format!("{:03}", random.below(KEYS)).as_bytes());
            key
        };
        let mut batch = WriteBatch::default();
        let mut truth = self.truths[writer].lock().unwrap();
        match random.below(10) {
            // Into all families at once.
            0..5 => {
                for name in FAMILIES {
                    let (key, value) = (key(&mut random), value(&mut random));
                    batch.put_cf(&db.cf_handle(name).unwrap(), &key, &value);
                    truth.get_mut(name).unwrap().insert(key, value);
                }
            }
            5..7 => {
                let name = *random.one_of(&FAMILIES);
                let (key, value) = (key(&mut random), value(&mut random));
                batch.put_cf(&db.cf_handle(name).unwrap(), &key, &value);
                truth.get_mut(name).unwrap().insert(key, value);
            }
            7..9 => {
                for name in FAMILIES {
                    let key = key(&mut random);
                    batch.delete_cf(&db.cf_handle(name).unwrap(), &key);
                    truth.get_mut(name).unwrap().remove(&key);
                }
            }
            _ => {
                let (one, other) = (key(&mut random), key(&mut random));
                let (from, to) = (one.clone().min(other.clone()), one.max(other));
                batch.delete_range_cf(&db.cf_handle("ranges").unwrap(), &from, &to);
                let pairs = truth.get_mut("ranges").unwrap();
                pairs.retain(|key, _| *key < from || *key >= to);
            }
        }
        db.write_opt(batch, &database::write_options(self.wal))
            .unwrap();
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = random.below(16) + 1;
    (0..length)
        .flat_map(|_| format!("{:016x}", random.next()).into_bytes())
        .collect()
}

struct StopOnPanic<'a>(&'a Load);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The rounds

/// What a round is to bring about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    /// One checkpoint, nothing held.
    Plain,
    /// Two, the second cut while the first is under way; nothing held.
    TwoAtOnce,
    /// A compaction before the last upload.
    Compacted,
    /// Two pending, the older one completes first.
    InOrder,
    /// Two pending, the younger one completes first.
    OutOfOrder,
    /// Two pending, the older one is given up.
    OlderCancelled,
    /// One that is given up after half of its uploads, then another.
    Cancelled,
    /// One of whose uploads one fails, then another.
    Refused,
}

/// The rounds of a session, which come in an order that the seed says.
const ROUNDS: [(Round, usize); 8] = [
    (Round::Plain, 4),
    (Round::TwoAtOnce, 3),
    (Round::Compacted, 8),
    (Round::InOrder, 6),
    (Round::OutOfOrder, 5),
    (Round::OlderCancelled, 4),
    (Round::Cancelled, 3),
    (Round::Refused, 3),
];

/// What came about.
#[derive(Default, Debug)]
struct Counts {
    rounds: usize,
    completions: usize,
    restores: usize,
    compactions_before_the_last_upload: usize,
    two_pending: usize,
    completions_out_of_order: usize,
    aborts: usize,
    lives: usize,
    older_ones_restored: usize,
    checked_beside_another: usize,
}

/// What belongs to a cut: the state, and the bytes that were attached. No two cuts have the same.
#[derive(Clone)]
struct Truth {
    content: Content,
    position: String,
}

/// A checkpoint whose cut was taken.
struct Cut {
    checkpoint: Checkpoint,
    truth: Truth,
    tables: BTreeSet<String>,
}

struct Session<'a> {
    counts: &'a mut Counts,
    random: Random,
    seed: u64,
    wal: bool,
    num_retained: usize,
    held: Held,
    repository: Repository,
    directory: PathBuf,
    scratch: PathBuf,
    life: Option<(Writers, Service)>,
    lives: u64,
    /// What is to be retained, oldest first, with its truth.
    retained: BTreeMap<CheckpointId, Truth>,
    restores: u64,
    cuts: AtomicU64,
}

impl Session<'_> {
    fn writers(&self) -> &Writers {
        &self.life.as_ref().unwrap().0
    }

    fn service(&self) -> &Service {
        &self.life.as_ref().unwrap().1
    }

    /// Starts the service, from the newest checkpoint or from one of the older ones.
    async fn start(&mut self, back: usize) {
        let options = RestoreOptions::new().fallback(back);
        let service = Service::start_from(&self.repository, &self.directory, &options).await;
        let truth = match service.restored {
            Some(checkpoint) => {
                // A new line: what came after it is not on it.
                self.retained.split_off(&CheckpointId(checkpoint.0 + 1));
                let truth = self.retained[&checkpoint].clone();
                database::assert_same(&service.content(), &truth.content, "the restart");
                let position = service.participant.restorable_position();
                assert_eq!(position.as_deref(), Some(truth.position.as_bytes()));
                truth.content
            }
            None => service.content(),
        };
        self.lives += 1;
        self.counts.lives += 1;
        self.counts.older_ones_restored += usize::from(back > 0);
        let seed = self.seed ^ (self.lives << 48);
        let writers = Writers::start(&service.db, self.wal, seed, &truth);
        self.life = Some((writers, service));
    }

    async fn restart(&mut self) {
        // A crash of all but the disk: writers and state go without a word.
        self.life = None;
        let older = self.retained.len().saturating_sub(1) as u64;
        let back = usize::try_from(self.random.below(older + 1)).unwrap();
        self.start(back).await;
    }

    /// Holds the writers, takes the truth and the cut.
    async fn cut(&self) -> Cut {
        let (writers, service) = (self.writers(), self.service());
        in_time(service.participant.prepare()).await;
        let mut taken = None;
        wait_for("a cut", || {
            let closed = writers.load.gate.close();
            let number = self.cuts.fetch_add(1, Ordering::Relaxed);
            let written = writers.written();
            let truth = Truth {
                content: writers.truth(),
                position: format!("cut {number}, after {written:?}"),
            };
            let position = truth.position.as_str();
            let checkpoint = match service.participant.checkpoint(position) {
                // The one before has not begun yet.
                Err(error) if error.kind() == ErrorKind::Busy => return false,
                checkpoint => checkpoint.unwrap(),
            };
            let tables = database::tables(&service.db);
            drop(closed);
            taken = Some(Cut {
                checkpoint,
                truth,
                tables,
            });
            true
        });
        taken.unwrap()
    }

    /// Counts whether a file of the cut has been compacted away. Its last upload is still held.
    fn note_compaction(&mut self, cut: &Cut) {
        let now = database::tables(&self.service().db);
        if !cut.tables.is_subset(&now) {
            self.counts.compactions_before_the_last_upload += 1;
        }
    }

    async fn completed(&mut self, cut: Cut) {
        self.note_completed(cut).await;
        assert!(self.check().await, "nothing else is under way");
    }

    async fn note_completed(&mut self, cut: Cut) {
        let report = in_time(cut.checkpoint.completed()).await.unwrap();
        self.counts.completions += 1;
        self.retained.insert(report.checkpoint, cut.truth);
        while self.retained.len() > self.num_retained {
            self.retained.pop_first();
        }
    }

    async fn aborted(&mut self, cut: &Cut) -> Error {
        let error = in_time(cut.checkpoint.completed()).await.unwrap_err();
        self.counts.aborts += 1;
        error
    }

    /// Restores every retained checkpoint and compares it with its truth. Answers whether it could:
    /// not if one that is under way has completed meanwhile, and an older one was dropped.
    async fn check(&mut self) -> bool {
        let inspection = in_time(self.repository.inspect(service::NAME))
            .await
            .unwrap();
        let listed = inspection.checkpoints();
        let listed: Vec<_> = listed.iter().map(|info| info.checkpoint).collect();
        let wanted: Vec<_> = self.retained.keys().copied().collect();
        if listed.last() > wanted.last() {
            return false;
        }
        assert_eq!(listed, wanted, "retained");
        for (checkpoint, truth) in &self.retained {
            let of_manifest = inspection.manifest().checkpoint(*checkpoint).unwrap();
            let attached: Vec<_> = of_manifest.subtasks.values().collect();
            assert_eq!(attached, [truth.position.as_bytes()], "{checkpoint}");
            let directory = self.scratch.join("restored");
            let options = RestoreOptions::new();
            match in_time(inspection.restore(*checkpoint, &directory, &options)).await {
                Err(error) if error.kind() == ErrorKind::Subsumed => return false,
                restored => drop(restored.unwrap()),
            }
            let files = database::files_below(&directory);
            assert!(
                !files.iter().any(|name| name.ends_with(".log")),
                "{files:?}"
            );
            self.restores += 1;
            let found = if self.restores.is_multiple_of(8) {
                database::read_and_compact(&directory)
            } else {
                database::read(&directory)
            };
            database::assert_same(&found.unwrap(), &truth.content, &checkpoint.to_string());
            std::fs::remove_dir_all(&directory).unwrap();
            self.counts.restores += 1;
        }
        true
    }

    /// Two pending checkpoints: neither can complete before the pack of that name is let go.
    async fn two_pending(&mut self) -> [(Cut, String); 2] {
        let hold = *self.random.one_of(&[Hold::Packs, Hold::Everything]);
        self.held.hold(hold);
        let older = self.cut().await;
        let older_pack = self.held.another_pack(&[]).await;
        self.writers().go_on();
        let younger = self.cut().await;
        let younger_pack = self
            .held
            .another_pack(std::slice::from_ref(&older_pack))
            .await;
        assert_eq!(self.held.count(|put| put.is_pack), 2, "two pending");
        self.counts.two_pending += 1;
        self.writers().go_on();
        database::compact(&self.service().db);
        self.held.hold(Hold::Nothing);
        [(older, older_pack), (younger, younger_pack)]
    }

    /// A compaction while the uploads of the one checkpoint wait.
    async fn compacted(&mut self) {
        let hold = *self.random.one_of(&[Hold::Packs, Hold::Everything]);
        self.held.hold(hold);
        let cut = self.cut().await;
        self.held.another_pack(&[]).await;
        self.writers().go_on();
        database::compact(&self.service().db);
        self.note_compaction(&cut);
        self.held.let_all_go();
        self.completed(cut).await;
    }

    /// A checkpoint of whose files half are stored; the other half and the pack wait.
    async fn half_uploaded(&mut self) -> (Cut, Vec<Waiting>) {
        self.held.hold(Hold::Everything);
        let cut = self.cut().await;
        self.held.another_pack(&[]).await;
        self.writers().go_on();
        let before = self.held.stored().len();
        let mut files = self.held.take(|put| !put.is_pack);
        let half = files.split_off(files.len() / 2);
        let count = half.len();
        half.into_iter().for_each(Waiting::let_go);
        wait_for("half of the uploads", || {
            self.held.stored().len() >= before + count
        });
        (cut, files)
    }

    async fn round(&mut self, round: Round) {
        self.counts.rounds += 1;
        self.writers().go_on();
        match round {
            Round::Plain => {
                let cut = self.cut().await;
                self.completed(cut).await;
            }
            Round::TwoAtOnce => {
                let older = self.cut().await;
                self.writers().go_on();
                let younger = self.cut().await;
                if let Err(error) = in_time(older.checkpoint.completed()).await {
                    assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
                    self.aborted(&older).await;
                    self.counts.completions_out_of_order += 1;
                } else {
                    self.note_completed(older).await;
                    self.counts.checked_beside_another += usize::from(self.check().await);
                }
                self.completed(younger).await;
            }
            Round::Compacted => self.compacted().await,
            Round::InOrder => {
                let [(older, _), (younger, younger_pack)] = self.two_pending().await;
                self.note_compaction(&older);
                self.held.let_go(|put| put.key != younger_pack);
                self.completed(older).await;
                self.note_compaction(&younger);
                self.held.let_all_go();
                self.completed(younger).await;
            }
            Round::OutOfOrder => {
                let [(older, older_pack), (younger, _)] = self.two_pending().await;
                self.note_compaction(&younger);
                self.held.let_go(|put| put.key != older_pack);
                self.completed(younger).await;
                self.counts.completions_out_of_order += 1;
                let error = self.aborted(&older).await;
                assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
                self.held.let_all_go();
            }
            Round::OlderCancelled => {
                let [(older, _), (younger, _)] = self.two_pending().await;
                older.checkpoint.cancel();
                let error = self.aborted(&older).await;
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                self.note_compaction(&younger);
                self.held.let_all_go();
                self.completed(younger).await;
            }
            Round::Cancelled => {
                let (cut, rest) = self.half_uploaded().await;
                cut.checkpoint.cancel();
                let error = self.aborted(&cut).await;
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                // They go on as far as they are still wanted, whatever became of the checkpoint.
                rest.into_iter().for_each(Waiting::let_go);
                self.held.let_all_go();
                let next = self.cut().await;
                self.completed(next).await;
            }
            Round::Refused => {
                let (cut, mut rest) = self.half_uploaded().await;
                rest.extend(self.held.take(|put| put.is_pack));
                rest.swap_remove(0).fail(FailureKind::Denied);
                let error = self.aborted(&cut).await;
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
                rest.into_iter().for_each(Waiting::let_go);
                self.held.let_all_go();
                let next = self.cut().await;
                self.completed(next).await;
            }
        }
        self.held.let_all_go();
    }
}

async fn session(seed: u64, wal: bool, num_retained: usize, counts: &mut Counts) {
    let (place, scratch) = (tempfile::tempdir().unwrap(), common::scratch());
    let root = place.path().join("checkpoints");
    let mut config = service::config();
    config.checkpoints.num_retained = num_retained;
    let held = Held::new(FileSystem::at(&root));
    let repository = service::repository(held.clone(), config).await;
    let mut random = Random::new(seed);
    let mut rounds: Vec<Round> = ROUNDS
        .iter()
        .flat_map(|(round, times)| std::iter::repeat_n(*round, *times))
        .collect();
    random.shuffle(&mut rounds);
    let mut session = Session {
        counts,
        random,
        seed,
        wal,
        num_retained,
        held,
        repository,
        directory: place.path().join("state"),
        scratch: scratch.path().to_owned(),
        life: None,
        lives: 0,
        retained: BTreeMap::new(),
        restores: 0,
        cuts: AtomicU64::new(0),
    };
    session.start(0).await;
    for (number, round) in rounds.iter().enumerate() {
        if number > 0 && number % 12 == 0 {
            session.restart().await;
        }
        session.round(*round).await;
    }
    end(&session, &root).await;
}

/// Nothing is left in the store or beside the state but what is needed.
async fn end(session: &Session<'_>, root: &Path) {
    let service = session.service();
    service::assert_no_garbage(&session.repository, root, &service.participant).await;
    service::assert_no_links(service);
}

#[test]
fn every_retained_checkpoint_is_the_truth_at_its_cut() {
    let seed = random::seed(0x0571_1190);
    println!(
        "STILLPOINT_SEED={seed} repeats the operations and the order of the rounds, not the threads' timing"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut counts = Counts::default();
    let mut random = Random::new(seed);
    for wal in [true, false] {
        for num_retained in 1..=3 {
            let begun = std::time::Instant::now();
            runtime.block_on(session(random.next(), wal, num_retained, &mut counts));
            println!(
                "write-ahead log {wal}, {num_retained} retained: {} s, so far {counts:?}",
                begun.elapsed().as_secs()
            );
        }
    }
    assert!(counts.rounds >= 200, "{counts:?}");
    assert!(
        counts.compactions_before_the_last_upload >= 50,
        "{counts:?}"
    );
    assert!(counts.two_pending >= 50, "{counts:?}");
    assert!(counts.completions_out_of_order >= 20, "{counts:?}");
    assert!(counts.aborts >= 20, "{counts:?}");
}
