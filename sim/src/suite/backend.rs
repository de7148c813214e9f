//! What every state backend must do, whatever becomes of its snapshots.
//!
//! ```text
//!  writes, deletes ──cut──> truth at the cut      restored, opened, read  <── equal ──┐
//!                     └──> secured ──later──> files read ──> a checkpoint ────────────┘
//!                  lost: the cut, half of the files, the acknowledgement, the process
//! ```
//!
//! - What was written before a cut is in it, what came after is not, however late its files are
//!   read.
//! - Only files that the life has not stored yet are read, as a subtask does: so one that changes
//!   under its name shows in what is restored.
//! - A cut or a file that is let go of at any point disturbs no other.
//! - What a killed life leaves in its directory is nobody's: the next one has another directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};

use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::id::LocalName;
use stillpoint::state::pack::StoredPack;
use stillpoint::state::{
    Cut, OWN_FOLDER, Secured, SecuredFile, SecuredPack, Settling, StateBackend, is_own,
};

use super::{Broken, SEEDS, asked_for, content};
use crate::choice::{Choices, Label};

/// Steps of one seed.
pub const STEPS: u32 = 60;
/// Keys that are written.
const KEYS: usize = 12;
/// Cuts and secured snapshots that wait at once.
const WAITING_MAX: usize = 3;

/// All pairs of a state.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What goes wrong in a backend or in a state of a user's: said in words.
pub type Reason = Box<dyn std::error::Error>;

/// A state with its backend, as the suite uses it.
pub trait State: Sized {
    /// Opens what a restore has put into this directory, or a new state if that is empty.
    ///
    /// # Errors
    /// When what is there is no state.
    fn open(directory: &Path) -> Result<Self, Reason>;

    /// The backend.
    fn backend(&self) -> &dyn StateBackend;

    /// Gives a key a value.
    ///
    /// # Errors
    /// When it can't.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Reason>;

    /// Removes a key.
    ///
    /// # Errors
    /// When it can't.
    fn delete(&self, key: &[u8]) -> Result<(), Reason>;

    /// All that is in it.
    ///
    /// # Errors
    /// When it can't be read.
    fn read(&self) -> Result<Pairs, Reason>;

    /// Work that goes on beside the snapshots, such as a compaction.
    ///
    /// # Errors
    /// When it fails.
    fn maintain(&self) -> Result<(), Reason> {
        Ok(())
    }
}

/// What came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Seeds that held.
    pub seeds: u64,
    /// Cuts that were taken.
    pub cuts: u64,
    /// Cuts that settled.
    pub settled: u64,
    /// Checkpoints that were complete.
    pub checkpoints: u64,
    /// State files that were read.
    pub files: u64,
    /// State files that an earlier checkpoint had stored.
    pub reused: u64,
    /// Snapshots that were lost: their cut, half of their files, or their acknowledgement.
    pub lost: u64,
    /// Lives that were killed, the next one restored.
    pub kills: u64,
    /// Names that two lives gave to different bytes.
    pub collisions: u64,
}

/// Holds a state and its backend to the contract, over all [`SEEDS`] or the one that is
/// [`asked_for`].
///
/// # Panics
/// When it is broken, saying how.
pub fn holds<S: State>() -> Counts {
    match check::<S>(asked_for(SEEDS)) {
        Ok(counts) => counts,
        Err(broken) => panic!("{broken}"),
    }
}

/// Tries these seeds; [`asked_for`] gives the one that is asked for.
///
/// # Errors
/// The first thing that is wrong.
pub fn check<S: State>(seeds: Range<u64>) -> Result<Counts, Broken> {
    let mut counts = Counts::default();
    for seed in seeds {
        let broken = |step, what| Broken { seed, step, what };
        let scratch = tempfile::tempdir().map_err(|error| broken(0, error.to_string()))?;
        let script = Script::<S>::new(seed, scratch.path(), &mut counts);
        let mut script = script.map_err(|what| broken(0, what))?;
        for step in 0..STEPS {
            script.step().map_err(|what| broken(step, what))?;
        }
        let ended = script.end();
        ended.map_err(|what| broken(STEPS, format!("at the end: {what}")))?;
        counts.seeds += 1;
    }
    Ok(counts)
}

/// A cut that waits.
struct Waiting {
    cut: Cut,
    truth: Pairs,
}

/// A snapshot whose files are still to be read.
struct Reading {
    secured: Secured,
    /// All files of the cut.
    all: Vec<LocalName>,
    truth: Pairs,
}

/// A complete checkpoint.
#[derive(Clone)]
struct Checkpoint {
    files: BTreeMap<LocalName, Vec<u8>>,
    pack: Vec<u8>,
    truth: Pairs,
}

struct Script<'a, S> {
    choices: Choices,
    scratch: &'a Path,
    lives: u32,
    restores: u32,
    values: usize,
    state: S,
    truth: Pairs,
    /// What this life has stored, or was restored from.
    stored: BTreeMap<LocalName, Vec<u8>>,
    /// All bytes that any life gave a name.
    ever: BTreeMap<LocalName, BTreeSet<Vec<u8>>>,
    cuts: Vec<Waiting>,
    settling: Vec<Settling>,
    readings: Vec<Reading>,
    checkpoints: Vec<Checkpoint>,
    counts: &'a mut Counts,
}

fn words(error: impl Display) -> String {
    error.to_string()
}

impl<'a, S: State> Script<'a, S> {
    fn new(seed: u64, scratch: &'a Path, counts: &'a mut Counts) -> Result<Self, String> {
        let directory = scratch.join("life-0");
        fs::create_dir(&directory).map_err(words)?;
        let state = opened::<S>(&directory)?;
        if !state.read().map_err(words)?.is_empty() {
            return Err("a new state is not empty".to_owned());
        }
        Ok(Self {
            choices: Choices::seeded(seed),
            scratch,
            lives: 1,
            restores: 0,
            values: 0,
            state,
            truth: Pairs::new(),
            stored: BTreeMap::new(),
            ever: BTreeMap::new(),
            cuts: Vec::new(),
            settling: Vec::new(),
            readings: Vec::new(),
            checkpoints: Vec::new(),
            counts,
        })
    }

    fn draw(&mut self, n: usize) -> usize {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        self.choices.choose(n, Label::Workload) as usize
    }

    fn step(&mut self) -> Result<(), String> {
        let weights = [8, 6, 2, 1, 6, 6, 2, 1, 2, 1];
        match self.choices.weighted(&weights, Label::Workload) {
            0 => self.write(),
            1 => self.cut(),
            2 => self.state.maintain().map_err(words),
            3 => {
                self.state.backend().prepare();
                Ok(())
            }
            4 => self.secure(),
            5 => self.read(),
            6 => self.settle(),
            7 => self.refuse(),
            8 => self.compare(),
            _ => self.kill(),
        }
    }

    fn write(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.draw(6) {
            let key = format!("key-{:02}", self.draw(KEYS)).into_bytes();
            if self.draw(4) == 0 {
                self.state.delete(&key).map_err(words)?;
                self.truth.remove(&key);
            } else {
                self.values += 1;
                let size = [8, 0, 100, 5_000][self.draw(4)];
                let value = content(self.values, size);
                self.state.put(&key, &value).map_err(words)?;
                self.truth.insert(key, value);
            }
        }
        Ok(())
    }

    fn cut(&mut self) -> Result<(), String> {
        if self.cuts.len() == WAITING_MAX {
            let lost = self.draw(WAITING_MAX);
            drop(self.cuts.remove(lost));
            self.counts.lost += 1;
        }
        let cut = self.state.backend().snapshot();
        let cut = cut.map_err(|failure| format!("no cut: {failure}"))?;
        self.counts.cuts += 1;
        let names: Vec<_> = cut.files().iter().map(|file| &file.name).collect();
        if !names.is_sorted_by(|one, other| one < other) {
            return Err(format!("the cut lists a file twice: {names:?}"));
        }
        if let Some(own) = names.iter().find(|name| is_own(name)) {
            return Err(format!("the cut lists {own}"));
        }
        self.settling.push(cut.settling());
        let truth = self.truth.clone();
        self.cuts.push(Waiting { cut, truth });
        Ok(())
    }

    /// Some cut, which may be gone by now.
    fn settle(&mut self) -> Result<(), String> {
        if !self.settling.is_empty() {
            let which = self.draw(self.settling.len());
            self.settling.remove(which).settle();
            self.counts.settled += 1;
        }
        Ok(())
    }

    /// A cut becomes files that can be read, or is lost.
    fn secure(&mut self) -> Result<(), String> {
        if self.cuts.is_empty() {
            return Ok(());
        }
        let which = self.draw(self.cuts.len());
        let Waiting { cut, truth } = self.cuts.remove(which);
        let all: Vec<_> = cut.files().iter().map(|file| file.name.clone()).collect();
        let sizes: BTreeMap<_, _> = cut
            .files()
            .iter()
            .map(|file| (file.name.clone(), file.size_bytes))
            .collect();
        let mut wanted: Vec<_> = all
            .iter()
            .filter(|name| !self.stored.contains_key(*name))
            .cloned()
            .collect();
        wanted.reverse();
        let secured = cut.secure(&wanted);
        let secured = secured.map_err(|failure| format!("not secured: {failure}"))?;
        let given: Vec<_> = secured
            .files
            .iter()
            .map(|file| file.name().clone())
            .collect();
        if given != wanted {
            return Err(format!("{wanted:?} were wanted, {given:?} are secured"));
        }
        if let Some(file) = secured
            .files
            .iter()
            .find(|file| sizes.get(file.name()) != Some(&file.size_bytes()))
        {
            let (name, size) = (file.name(), file.size_bytes());
            return Err(format!("{name} has {size} bytes, the cut listed others"));
        }
        self.readings.push(Reading {
            secured,
            all,
            truth,
        });
        Ok(())
    }

    /// The files of a snapshot are read, all or half of them, and it is a checkpoint, or lost.
    fn read(&mut self) -> Result<(), String> {
        if self.readings.is_empty() {
            return Ok(());
        }
        let which = self.draw(self.readings.len());
        let Reading {
            secured,
            all,
            truth,
        } = self.readings.remove(which);
        let is_half = self.choices.choose(8, Label::CrashBetween) == 1;
        let is_lost = is_half || self.choices.choose(6, Label::StoreFate) == 1;
        let Secured {
            mut files, pack, ..
        } = secured;
        if is_half {
            files.truncate(files.len() / 2);
        }
        for file in files {
            let bytes = bytes_of(&file)?;
            self.counts.files += 1;
            self.store(file.name().clone(), bytes)?;
        }
        if is_lost {
            self.counts.lost += 1;
            return Ok(());
        }
        let pack = match pack {
            SecuredPack::Bytes(bytes) => bytes,
            SecuredPack::File(file) => bytes_of(&file)?,
        };
        let mut checkpoint = Checkpoint {
            files: BTreeMap::new(),
            pack,
            truth,
        };
        for name in all {
            // What an upload that broke off did not store, is not reused.
            let Some(bytes) = self.stored.get(&name) else {
                self.counts.lost += 1;
                return Ok(());
            };
            checkpoint.files.insert(name, bytes.clone());
        }
        self.counts.reused += checkpoint.files.len() as u64;
        self.counts.checkpoints += 1;
        self.checkpoints.push(checkpoint);
        Ok(())
    }

    /// Keeps a file's bytes under its name, of which one life has one kind only.
    fn store(&mut self, name: LocalName, bytes: Vec<u8>) -> Result<(), String> {
        let ever = self.ever.entry(name.clone()).or_default();
        if ever.insert(bytes.clone()) && ever.len() > 1 {
            self.counts.collisions += 1;
        }
        match self.stored.insert(name.clone(), bytes.clone()) {
            Some(before) if before != bytes => Err(format!(
                "{name} has {} bytes, and had {} others in the same life",
                bytes.len(),
                before.len()
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Names that no cut has are refused, and nothing is held afterwards.
    fn refuse(&mut self) -> Result<(), String> {
        let own = format!("{OWN_FOLDER}/notes");
        for (name, kind) in [
            ("no such file", FailureKind::NotFound),
            (own.as_str(), FailureKind::Unsupported),
        ] {
            let cut = self.state.backend().snapshot();
            let cut = cut.map_err(|failure| format!("no cut: {failure}"))?;
            let wanted = [LocalName::new(name).map_err(words)?];
            match cut.secure(&wanted) {
                Err(failure) if failure.kind == kind => {}
                Err(failure) => return Err(format!("{name} was wanted: {failure}")),
                Ok(_) => return Err(format!("{name} was wanted, and is secured")),
            }
        }
        Ok(())
    }

    /// A checkpoint is restored beside the running life.
    fn compare(&mut self) -> Result<(), String> {
        if self.checkpoints.is_empty() {
            return Ok(());
        }
        let which = self.draw(self.checkpoints.len());
        let directory = self.restored(which)?;
        let state = opened::<S>(&directory)?;
        same(&state, &self.checkpoints[which].truth, "restored")
    }

    /// The process dies; the next life begins with some checkpoint, or with nothing.
    fn kill(&mut self) -> Result<(), String> {
        same(&self.state, &self.truth, "the running state")?;
        self.counts.kills += 1;
        self.cuts.clear();
        self.settling.clear();
        self.readings.clear();
        if self.checkpoints.is_empty() {
            let directory = self.scratch.join(format!("life-{}", self.lives));
            fs::create_dir(&directory).map_err(words)?;
            self.begin(&directory, Pairs::new(), BTreeMap::new())
        } else {
            let which = self.draw(self.checkpoints.len());
            let directory = self.restored(which)?;
            let Checkpoint { truth, files, .. } = self.checkpoints[which].clone();
            self.begin(&directory, truth, files)
        }
    }

    fn begin(
        &mut self,
        directory: &Path,
        truth: Pairs,
        stored: BTreeMap<LocalName, Vec<u8>>,
    ) -> Result<(), String> {
        self.lives += 1;
        self.state = opened::<S>(directory)?;
        same(&self.state, &truth, "the next life")?;
        self.truth = truth;
        self.stored = stored;
        Ok(())
    }

    /// A directory with what a restore of this checkpoint puts there.
    fn restored(&mut self, which: usize) -> Result<PathBuf, String> {
        self.restores += 1;
        let directory = self.scratch.join(format!("restored-{}", self.restores));
        fs::create_dir(&directory).map_err(words)?;
        let Checkpoint { files, pack, .. } = &self.checkpoints[which];
        for (name, bytes) in files {
            let path = directory.join(name.as_str());
            fs::create_dir_all(path.parent().unwrap_or(&directory)).map_err(words)?;
            fs::write(&path, bytes).map_err(words)?;
        }
        let pack = StoredPack::open(Cursor::new(pack)).map_err(words);
        let unpacked = pack?.unpack(&directory).map_err(words);
        unpacked.map(|()| directory)
    }

    /// Every checkpoint is what it was to be.
    fn end(mut self) -> Result<(), String> {
        same(&self.state, &self.truth, "the running state")?;
        for which in 0..self.checkpoints.len() {
            let directory = self.restored(which)?;
            let state = opened::<S>(&directory)?;
            let what = format!("checkpoint {which}");
            same(&state, &self.checkpoints[which].truth, &what)?;
        }
        Ok(())
    }
}

fn opened<S: State>(directory: &Path) -> Result<S, String> {
    let state = S::open(directory).map_err(|error| format!("not opened: {error}"))?;
    let attached = state.backend().attach();
    attached.map_err(|failure| format!("not attached: {failure}"))?;
    Ok(state)
}

fn bytes_of(file: &SecuredFile) -> Result<Vec<u8>, String> {
    let read = fs::read(file.path());
    let bytes = read.map_err(|error| format!("{} can't be read: {error}", file.name()))?;
    let (found, listed) = (bytes.len() as u64, file.size_bytes());
    if found == listed {
        return Ok(bytes);
    }
    let name = file.name();
    Err(format!("{name} has {found} bytes, the cut listed {listed}"))
}

fn same(state: &impl State, truth: &Pairs, what: &str) -> Result<(), String> {
    let found = state.read().map_err(words)?;
    let keys = found.keys().chain(truth.keys());
    let mut wrong = keys.filter(|key| found.get(*key) != truth.get(*key));
    match wrong.next() {
        None => Ok(()),
        Some(key) => {
            let size = |pairs: &Pairs| pairs.get(key).map(Vec::len);
            Err(format!(
                "{what} has a value of {:?} bytes under {}, it should be another of {:?}",
                size(&found),
                key.escape_ascii(),
                size(truth)
            ))
        }
    }
}
