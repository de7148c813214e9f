//! `LeaderFencing`: how commits come about, one call and one answer at a time.
//!
//! ```text
//!  Load -> StartCommit -> StorePut, PutDone -> SendSwap -> StoreSwaps -> SwapDone | SwapRefused -> Judge
//! ```
//!
//! Coordinators and guests are the real machines. A call that one makes is held until the
//! specification's step sends it; a request that was sent stands in the store's queue until it lands,
//! also when its caller has given it up. Timers of a next try are due at once.
//!
//! It begins with a root in which an earlier life has completed a checkpoint, for guests to pin, and
//! an attempt runs; epochs and versions count from there.
//!
//! | file | what it holds |
//! |---|---|
//! | `life` | a coordinator or guest, with the calls that it has made and that were not sent |
//! | `steps` | the specification's state and actions |

mod life;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::id::{AttemptId, ManifestName};
use stillpoint::protocol::message::Attach;
use stillpoint::protocol::store::{StoreCall, StorePayload};
use stillpoint::protocol::subtask::Subtask;

use self::life::Life;
use super::bounds::{Bounds, constants, members};
use super::search::System;
use super::store::Store;
use super::world::World;

/// The constants of `LeaderFencing`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FencingBounds {
    leaders: Vec<u64>,
    guests: Vec<u64>,
    max_name: u64,
    max_try: u64,
}

impl FencingBounds {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is missing or not understood. `CURRENT` must show every name: that it has moved too far
    /// to tell is left out.
    pub fn parse(configuration: &str) -> Result<Self, String> {
        let values = constants(configuration);
        let word = |name: &str| {
            let value = values.get(name);
            value.ok_or_else(|| format!("the configuration does not say what {name} is"))
        };
        let parsed = |text: &str| {
            text.parse::<u64>()
                .map_err(|error| format!("{text:?}: {error}"))
        };
        let lives = |name: &str| {
            let members = members(word(name)?);
            members
                .iter()
                .map(|member| parsed(member))
                .collect::<Result<Vec<_>, _>>()
        };
        let (max_name, tail) = (parsed(word("MaxName")?)?, parsed(word("TailLength")?)?);
        if tail < max_name {
            return Err("TailLength is less than MaxName".to_owned());
        }
        Ok(Self {
            leaders: lives("Leaders")?,
            guests: lives("Guests")?,
            max_name,
            max_try: parsed(word("MaxTry")?)?,
        })
    }
}

/// What was committed or is to be.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Name {
    name: ManifestName,
    owner: u64,
    outcome: &'static str,
}

/// The machines and the store.
#[derive(Clone, Debug)]
pub(super) struct Fencing {
    bounds: Arc<FencingBounds>,
    store: Store,
    /// The epoch and version that count as 0.
    begin: (u64, u64),
    lives: BTreeMap<u64, Arc<Life>>,
    names: Vec<Name>,
    history: Vec<u64>,
    puts: BTreeMap<u64, StoreCall>,
    requests: BTreeMap<(u64, u64), StoreCall>,
    answers: BTreeMap<(u64, u64), Answer<StorePayload>>,
    attempt: Subtask,
    code: AttemptId,
    /// The epoch that the attempt obeyed last.
    obeys: u64,
    acks: BTreeMap<u64, Attach>,
    counted: BTreeMap<u64, BTreeSet<u64>>,
}

impl Fencing {
    /// The beginning: an earlier life has completed a checkpoint and another has claimed since.
    pub(super) fn new(bounds: FencingBounds) -> Self {
        let small = Bounds {
            tasks: vec!["t1".to_owned()],
            max_epoch: 2,
            max_ckpt: 1,
            max_file: 0,
            max_attempt: 1,
            retain: 1,
            max_concurrent: 1,
            max_pins: 0,
            go_back: false,
            forget_bases: false,
            max_faults: 0,
        };
        let mut world = World::new(Arc::new(small));
        for action in [
            "Claim", "Deploy", "Restored", "Trigger", "Snapshot", "SendAck", "RecvAck", "Complete",
            "Claim", "Attach",
        ] {
            let taken = world
                .steps()
                .into_iter()
                .find(|taken| taken.action == action);
            world = taken.unwrap_or_else(|| panic!("there is no {action}")).to;
        }
        let attempt = world.attempts.values().next().expect("one was deployed");
        let running = attempt.running().expect("it runs");
        let manifest = world.store.manifest.as_ref().expect("there is one");
        let begin = (manifest.epoch().0, manifest.version().0);
        let lives = bounds.leaders.iter().chain(&bounds.guests);
        let lives = lives.map(|life| (*life, Arc::new(Life::new())));
        let counted = bounds.leaders.iter().map(|life| (*life, BTreeSet::new()));
        Self {
            lives: lives.collect(),
            counted: counted.collect(),
            attempt: running.machine.clone(),
            code: attempt.code,
            begin,
            store: world.store.clone(),
            names: Vec::new(),
            history: Vec::new(),
            puts: BTreeMap::new(),
            requests: BTreeMap::new(),
            answers: BTreeMap::new(),
            obeys: 0,
            acks: BTreeMap::new(),
            bounds: Arc::new(bounds),
        }
    }

    fn version(&self) -> u64 {
        self.history.len() as u64
    }

    fn epoch_now(&self) -> u64 {
        let manifest = self.store.manifest.as_ref();
        manifest.map_or(0, |manifest| manifest.epoch().0) - self.begin.0
    }

    fn is_guest(&self, life: u64) -> bool {
        self.bounds.guests.contains(&life)
    }

    fn name(&self, number: u64) -> Option<&Name> {
        self.names.get(usize::try_from(number - 1).ok()?)
    }

    fn records(&self) -> BTreeSet<u64> {
        let all = 1..=self.names.len() as u64;
        let there = all.filter(|number| {
            let name = self.name(*number);
            name.is_some_and(|name| self.store.has_record(name.name))
        });
        there.collect()
    }

    /// Changes a life, and enters what it said of its commit.
    fn with(&self, id: u64, step: impl FnOnce(&mut Self, &mut Life) -> bool) -> Option<Self> {
        let mut next = self.clone();
        let mut life = next.lives.get(&id)?.as_ref().clone();
        if !step(&mut next, &mut life) {
            return None;
        }
        life.rebase();
        next.lives.insert(id, Arc::new(life));
        Some(next)
    }

    /// What a life did after an answer to its commit: it goes on with the same swap, or the commit is
    /// over for it.
    fn conclude(&mut self, life: &mut Life, number: u64) {
        let place = usize::try_from(number - 1).expect("names are few");
        let has_committed = life.has_committed(self.names[place].name);
        life.try_again();
        if life.holds_swap() {
            life.commit = Some((number, "swapping"));
            return;
        }
        self.names[place].outcome = if has_committed {
            "committed"
        } else {
            "refused"
        };
        (life.commit, life.doubt, life.tries) = (None, false, 0);
        life.serve(&mut self.store);
        life.see(self.begin.1);
    }
}
