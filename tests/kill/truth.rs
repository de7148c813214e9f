//! What a state must hold: a history of rounds, each of which writes what its number says.
//!
//! A life is one claim; its epoch tells it from every other. A round that was lost is written
//! anew by the next life, with other content, so that what is restored can't be mistaken for
//! what came after.

use std::collections::BTreeMap;
use std::fmt;

use stillpoint::rocksdb::{
    ColumnFamilyDescriptor, DB, IteratorMode, Options, WriteBatch, WriteOptions,
};

pub const FAMILIES: [&str; 2] = ["default", "second"];
const KEYS: u64 = 40;
const PUTS: usize = 8;
const DELETES: usize = 2;
const VALUE_WORDS: usize = 24;

/// Family and key, value.
pub type Pairs = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// Which lives wrote how many rounds, in order: `3:5 7:2` says five rounds of epoch 3, then two
/// of epoch 7. It is what each checkpoint carries as the user's bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History(Vec<(u64, u64)>);

impl History {
    pub fn parse(text: &str) -> Self {
        let part = |part: &str| {
            let (epoch, rounds) = part.split_once(':').unwrap();
            (epoch.parse().unwrap(), rounds.parse().unwrap())
        };
        Self(text.split_whitespace().map(part).collect())
    }

    pub fn from_user_bytes(bytes: Option<&[u8]>) -> Self {
        Self::parse(str::from_utf8(bytes.unwrap_or_default()).unwrap())
    }

    /// One more round in this life.
    pub fn advance(&mut self, epoch: u64) {
        match self.0.last_mut() {
            Some((last, rounds)) if *last == epoch => *rounds += 1,
            Some(_) | None => self.0.push((epoch, 1)),
        }
    }

    /// Everything that the rounds leave.
    pub fn pairs(&self) -> Pairs {
        let mut pairs = Pairs::new();
        for (epoch, rounds) in &self.0 {
            for round in 1..=*rounds {
                for operation in operations(*epoch, round) {
                    match operation {
                        Operation::Put(family, key, value) => pairs.insert((family, key), value),
                        Operation::Delete(family, key) => pairs.remove(&(family, key)),
                    };
                }
            }
        }
        pairs
    }

    fn last(&self) -> (u64, u64) {
        *self.0.last().unwrap()
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (epoch, rounds)) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{epoch}:{rounds}")?;
        }
        Ok(())
    }
}

enum Operation {
    Put(&'static str, Vec<u8>, Vec<u8>),
    Delete(&'static str, Vec<u8>),
}

fn operations(epoch: u64, round: u64) -> Vec<Operation> {
    let mut random = Random(epoch << 32 | round);
    let mut operations = Vec::new();
    let place = |random: &mut Random| {
        let family = FAMILIES[random.below(FAMILIES.len() as u64) as usize];
        (
            family,
            format!("key-{:03}", random.below(KEYS)).into_bytes(),
        )
    };
    for _ in 0..PUTS {
        let (family, key) = place(&mut random);
        let words = (0..VALUE_WORDS).flat_map(|_| random.next().to_le_bytes());
        let value = words.collect();
        operations.push(Operation::Put(family, key, value));
    }
    for _ in 0..DELETES {
        let (family, key) = place(&mut random);
        operations.push(Operation::Delete(family, key));
    }
    operations
}

/// `SplitMix64`.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub fn open(directory: &std::path::Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_manifest_file_size(1 << 20);
    // Compactions are asked for, so that a round does the same each time it is done.
    options.set_disable_auto_compactions(true);
    options.set_max_background_jobs(1);
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    DB::open_cf_descriptors(&options, directory, families).unwrap()
}

/// Writes the last round of the history, which is the next one of the database.
pub fn write(db: &DB, history: &History) {
    let (epoch, round) = history.last();
    let mut batch = WriteBatch::default();
    for operation in operations(epoch, round) {
        match operation {
            Operation::Put(family, key, value) => {
                batch.put_cf(&db.cf_handle(family).unwrap(), key, value);
            }
            Operation::Delete(family, key) => {
                batch.delete_cf(&db.cf_handle(family).unwrap(), key);
            }
        }
    }
    let mut options = WriteOptions::default();
    options.disable_wal(round % 2 == 0);
    db.write_opt(batch, &options).unwrap();
    if round % 3 == 0 {
        for family in FAMILIES {
            let family = db.cf_handle(family).unwrap();
            db.compact_range_cf(&family, None::<&[u8]>, None::<&[u8]>);
        }
    }
}

pub fn read(db: &DB) -> Pairs {
    let mut pairs = Pairs::new();
    for name in FAMILIES {
        let family = db.cf_handle(name).unwrap();
        for pair in db.iterator_cf(&family, IteratorMode::Start) {
            let (key, value) = pair.unwrap();
            pairs.insert((name, key.into_vec()), value.into_vec());
        }
    }
    pairs
}
