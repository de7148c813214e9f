//! The model of a log-structured tree against the real one: equal scripts, equal laws.
//!
//! ```text
//!  write  flush  compact  checkpoint  restore
//!     ├──> Lsm      files by number, contents by id ┐  the n-th new file of one is the n-th new
//!     └──> RocksDB  files by name, contents by bytes ┘  file of the other, and lives as long
//! ```
//!
//! Held against each other at every checkpoint: how many files are live, new, kept and gone since
//! the one before, and which; that a name never changes its bytes within a line, on either side;
//! after every restore what a reader sees; that a new line's numbers begin where its checkpoint's
//! end, wherever the abandoned line has got to; and that both so give names twice, to different
//! bytes. Single numbers are not compared: RocksDB gives some to files that are none of the state.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stillpoint::RocksDb;
use stillpoint::protocol::id::LocalName;
use stillpoint::rocksdb::{DB, IteratorMode, Options};
use stillpoint::state::pack::StoredPack;
use stillpoint::state::{SecuredPack, StateBackend};
use stillpoint_sim::choice::{Choices, Label};
use stillpoint_sim::lsm::{
    ABSENT, Content, ContentId, Contents, DELETED, KEYS, Lsm, Table, number_of,
};
use stillpoint_sim::suite;

const SEEDS: u64 = 60;
const STEPS: u32 = 60;
/// How far above the restored files' numbers a new line may begin: RocksDB takes some numbers for
/// logs and manifests.
const NUMBERS_BETWEEN_MAX: u64 = 40;

/// A checkpoint of both.
#[derive(Clone)]
struct Checkpoint {
    modelled: Vec<(LocalName, ContentId)>,
    real: BTreeMap<LocalName, Vec<u8>>,
    pack: Vec<u8>,
    truth: Table,
    pairs: BTreeMap<LocalName, LocalName>,
}

/// What came about, over all seeds.
#[derive(Default, Debug)]
struct Counts {
    checkpoints: u64,
    kept: u64,
    new: u64,
    gone: u64,
    restores: u64,
    older_restores: u64,
    new_lines: u64,
    modelled_collisions: u64,
    real_collisions: u64,
}

/// All bytes that a name was given, by any line.
type Ever<C> = BTreeMap<LocalName, BTreeSet<C>>;

/// Whether the name stands for other bytes as well.
fn collides<C: Ord + Clone>(ever: &mut Ever<C>, name: &LocalName, content: &C) -> bool {
    let contents = ever.entry(name.clone()).or_default();
    contents.insert(content.clone()) && contents.len() > 1
}

struct Both {
    scratch: PathBuf,
    lives: u32,
    contents: Contents,
    lsm: Lsm,
    db: Arc<DB>,
    backend: RocksDb,
    /// What the files of this line are, modelled to real.
    pairs: BTreeMap<LocalName, LocalName>,
    /// The bytes of this line's files.
    modelled: BTreeMap<LocalName, ContentId>,
    real: BTreeMap<LocalName, Vec<u8>>,
    /// The live files at the last checkpoint of this line.
    before: BTreeSet<LocalName>,
    /// The highest numbers that a restore brought, modelled and real, until there is a new file.
    restored_to: Option<(u64, u64)>,
    modelled_ever: Ever<ContentId>,
    real_ever: Ever<Vec<u8>>,
    checkpoints: Vec<Checkpoint>,
}

fn open(directory: &Path) -> (Arc<DB>, RocksDb) {
    let mut options = Options::default();
    options.create_if_missing(true);
    // Nothing happens but what the script says.
    options.set_disable_auto_compactions(true);
    options.set_num_levels(2);
    options.set_level_compaction_dynamic_level_bytes(false);
    let db = Arc::new(DB::open(&options, directory).unwrap());
    let backend = RocksDb::new(Arc::clone(&db));
    backend.attach().unwrap();
    (db, backend)
}

fn highest<'a>(names: impl Iterator<Item = &'a LocalName>) -> Option<u64> {
    names.filter_map(number_of).max()
}

fn key(number: usize) -> [u8; 1] {
    [b'a' + u8::try_from(number).unwrap()]
}

impl Both {
    fn new(scratch: &Path) -> Self {
        let directory = scratch.join("life-0");
        fs::create_dir(&directory).unwrap();
        let (db, backend) = open(&directory);
        Self {
            scratch: scratch.to_owned(),
            lives: 1,
            contents: Contents::default(),
            lsm: Lsm::default(),
            db,
            backend,
            pairs: BTreeMap::new(),
            modelled: BTreeMap::new(),
            real: BTreeMap::new(),
            before: BTreeSet::new(),
            restored_to: None,
            modelled_ever: Ever::default(),
            real_ever: Ever::default(),
            checkpoints: Vec::new(),
        }
    }

    fn write(&mut self, number: usize, value: u32) {
        self.lsm.write(number, value);
        if value == DELETED {
            self.db.delete(key(number)).unwrap();
        } else {
            self.db.put(key(number), value.to_le_bytes()).unwrap();
        }
    }

    /// Some writes, the first and the last key always among them: so every two files overlap, and
    /// RocksDB moves none where the model merges.
    fn writes(&mut self, choices: &mut Choices, step: u32) {
        self.write(0, step);
        self.write(KEYS - 1, step);
        for number in 1..KEYS - 1 {
            match choices.choose(4, Label::Workload) {
                0 => self.write(number, step * 100 + u32::try_from(number).unwrap()),
                1 => self.write(number, DELETED),
                _ => {}
            }
        }
    }

    fn flush(&mut self) {
        self.lsm.flush(&mut self.contents);
        self.db.flush().unwrap();
    }

    /// Everything into one file.
    fn compact(&mut self) {
        self.flush();
        let count = self.lsm.file_count();
        if count > 1 {
            self.lsm.compact(0, count, &mut self.contents);
            self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        }
    }

    fn real_pairs(&self) -> Table {
        let mut table = Table::default();
        for pair in self.db.iterator(IteratorMode::Start) {
            let (key, value) = pair.unwrap();
            let number = usize::from(key[0] - b'a');
            table.0[number] = u32::from_le_bytes((*value).try_into().unwrap());
        }
        assert_eq!(ABSENT, 0, "what is not there");
        table
    }

    fn checkpoint(&mut self, counts: &mut Counts) {
        let cut = self.lsm.cut(&mut self.contents);
        let real_cut = self.backend.snapshot().unwrap();
        let all: Vec<_> = real_cut
            .files()
            .iter()
            .map(|file| file.name.clone())
            .collect();
        let secured = real_cut.secure(&all).unwrap();

        let mut modelled = Vec::new();
        for file in &cut.files {
            let local = file.local();
            let before = self.modelled.insert(local.clone(), file.content);
            assert!(
                before.is_none_or(|before| before == file.content),
                "the model changes {local}"
            );
            let collides = collides(&mut self.modelled_ever, &local, &file.content);
            counts.modelled_collisions += u64::from(collides);
            modelled.push((local, file.content));
        }
        let mut real = BTreeMap::new();
        for file in &secured.files {
            let bytes = fs::read(file.path()).unwrap();
            let before = self.real.insert(file.name().clone(), bytes.clone());
            assert!(
                before.is_none_or(|before| before == bytes),
                "rocksdb changes {}",
                file.name()
            );
            let collides = collides(&mut self.real_ever, file.name(), &bytes);
            counts.real_collisions += u64::from(collides);
            real.insert(file.name().clone(), bytes);
        }
        let SecuredPack::File(pack) = &secured.pack else {
            panic!("it lies beside the links");
        };
        let pack = fs::read(pack.path()).unwrap();

        self.pair(&modelled, &real, counts);
        let numbers = cut.files.iter().map(|file| file.number).collect();
        let modelled_pack = self.contents.add(Content::Pack(numbers, cut.families));
        let mut set = modelled;
        set.push((LocalName::new("pack").unwrap(), modelled_pack));
        assert_eq!(self.real_pairs(), cut.truth, "what a reader sees");
        counts.checkpoints += 1;
        self.checkpoints.push(Checkpoint {
            modelled: set,
            real,
            pack,
            truth: cut.truth,
            pairs: self.pairs.clone(),
        });
    }

    /// Each file that is new on one side is new on the other, and each that is kept is kept.
    fn pair(
        &mut self,
        modelled: &[(LocalName, ContentId)],
        real: &BTreeMap<LocalName, Vec<u8>>,
        counts: &mut Counts,
    ) {
        let live: BTreeSet<_> = modelled.iter().map(|(local, _)| local.clone()).collect();
        let (kept, new): (Vec<_>, Vec<_>) = live
            .iter()
            .partition(|local| self.pairs.contains_key(local));
        let known: BTreeSet<_> = self.pairs.values().cloned().collect();
        let (real_kept, real_new): (Vec<_>, Vec<_>) =
            real.keys().partition(|local| known.contains(local));
        let expected: BTreeSet<_> = kept.iter().map(|local| &self.pairs[local]).collect();
        assert_eq!(
            real_kept.into_iter().collect::<BTreeSet<_>>(),
            expected,
            "kept"
        );
        assert_eq!(real_new.len(), new.len(), "new: {real_new:?} and {new:?}");
        counts.kept += kept.len() as u64;
        counts.new += new.len() as u64;
        counts.gone += self.before.difference(&live).count() as u64;
        if let (Some(new), Some(real_new)) = (new.first(), real_new.first())
            && let Some((modelled_to, real_to)) = self.restored_to.take()
        {
            for (local, to) in [(new, modelled_to), (real_new, real_to)] {
                let above = number_of(local).unwrap().checked_sub(to).unwrap();
                assert!((1..=NUMBERS_BETWEEN_MAX).contains(&above), "{local}, {to}");
            }
            counts.new_lines += 1;
        }
        for (local, real) in new.into_iter().zip(real_new) {
            self.pairs.insert(local.clone(), real.clone());
        }
        self.before = live;
    }

    fn restore(&mut self, which: usize, counts: &mut Counts) {
        let checkpoint = self.checkpoints[which].clone();
        let directory = self.scratch.join(format!("life-{}", self.lives));
        self.lives += 1;
        fs::create_dir(&directory).unwrap();
        for (name, bytes) in &checkpoint.real {
            fs::write(directory.join(name.as_str()), bytes).unwrap();
        }
        let mut pack = StoredPack::open(Cursor::new(&checkpoint.pack)).unwrap();
        pack.unpack(&directory).unwrap();
        (self.db, self.backend) = open(&directory);
        self.lsm = Lsm::open(&checkpoint.modelled, &self.contents).unwrap();
        assert_eq!(self.lsm.truth(), checkpoint.truth, "the model, restored");
        assert_eq!(self.real_pairs(), checkpoint.truth, "rocksdb, restored");

        // A new line: it has the restored files and nothing of what came after them.
        let files = checkpoint
            .modelled
            .iter()
            .filter(|(local, _)| local.as_str() != "pack");
        self.modelled = files.cloned().collect();
        self.before = self.modelled.keys().cloned().collect();
        self.pairs = checkpoint.pairs;
        self.pairs.retain(|local, _| self.before.contains(local));
        self.restored_to = highest(self.before.iter()).zip(highest(checkpoint.real.keys()));
        self.real = checkpoint.real;
        counts.restores += 1;
        counts.older_restores += u64::from(which + 1 < self.checkpoints.len());
    }
}

#[test]
fn the_model_keeps_the_laws_of_rocksdb() {
    let mut counts = Counts::default();
    let seeds = suite::asked_for(0..SEEDS);
    for seed in seeds.clone() {
        let scratch = tempfile::tempdir().unwrap();
        let mut both = Both::new(scratch.path());
        let mut choices = Choices::seeded(seed);
        let mut told = Told { seed, step: 0 };
        for step in 1..=STEPS {
            told.step = step;
            match choices.weighted(&[6, 3, 1, 4, 1], Label::Workload) {
                0 => both.writes(&mut choices, step),
                1 => both.flush(),
                2 => both.compact(),
                3 => both.checkpoint(&mut counts),
                _ if both.checkpoints.is_empty() => {}
                _ => {
                    let n = u32::try_from(both.checkpoints.len()).unwrap();
                    let which = choices.choose(n, Label::RestoreFrom) as usize;
                    both.restore(which, &mut counts);
                }
            }
        }
        drop(told);
    }
    if seeds.end - seeds.start < SEEDS {
        return;
    }
    let Counts {
        checkpoints,
        kept,
        new,
        gone,
        restores,
        older_restores,
        new_lines,
        modelled_collisions,
        real_collisions,
    } = counts;
    for count in [
        checkpoints,
        kept,
        new,
        gone,
        restores,
        older_restores,
        new_lines,
    ] {
        assert!(count > SEEDS, "{counts:?}");
    }
    for count in [modelled_collisions, real_collisions] {
        assert!(count > SEEDS / 4, "{counts:?}");
    }
}

/// Says where it was, when it ends in a panic, and how to see that again.
struct Told {
    seed: u64,
    step: u32,
}

impl Drop for Told {
    #[allow(clippy::print_stderr, reason = "a failing test says what repeats it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, step } = self;
            eprintln!("seed {seed}, step {step}\n{}", suite::command(*seed));
        }
    }
}
