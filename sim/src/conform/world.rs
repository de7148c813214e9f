//! All that the harness drives: coordinators, attempts, a store, and what is under way between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName};
use stillpoint::protocol::message::Acknowledge;

use super::attempt::Attempt;
use super::bounds::Bounds;
use super::history::History;
use super::leader::Leader;
use super::shared::Shared;
use super::store::Store;
use crate::digest::Fingerprint;

/// The machines and all around them. Cheap to copy: what does not change is shared.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) bounds: Arc<Bounds>,
    pub(super) store: Store,
    /// By epoch.
    pub(super) leaders: BTreeMap<u64, Shared<Leader>>,
    /// As the specification numbers them.
    pub(super) attempts: BTreeMap<u64, Shared<Attempt>>,
    /// Acknowledgements under way, each with the files at its cut.
    pub(super) acks: Vec<Shared<(Acknowledge, BTreeSet<u64>)>>,
    pub(super) history: Arc<History>,
    pub(super) faults: u64,
    /// Numbers drawn for lives of coordinators and guests.
    pub(super) lives: u64,
}

impl World {
    pub(super) fn new(bounds: Arc<Bounds>) -> Self {
        Self {
            bounds,
            store: Store::default(),
            leaders: BTreeMap::new(),
            attempts: BTreeMap::new(),
            acks: Vec::new(),
            history: Arc::default(),
            faults: 0,
            lives: 0,
        }
    }

    /// Counts a fault. False if there may be no more.
    pub(super) fn fault(&mut self) -> bool {
        if self.bounds.max_faults == 0 {
            return true;
        }
        self.faults += 1;
        self.faults <= self.bounds.max_faults
    }

    /// Three numbers that no life had before: its own, and two for guests that hold it back.
    pub(super) fn draw_life(&mut self) -> u64 {
        self.lives += 3;
        self.lives
    }

    /// The epoch that `CURRENT` shows.
    pub(super) fn epoch(&self) -> u64 {
        let manifest = self.store.manifest.as_ref();
        manifest.map_or(0, |manifest| manifest.epoch().0)
    }

    /// The specification's number of an attempt.
    pub(super) fn attempt_number(&self, code: AttemptId) -> u64 {
        let mut attempts = self.attempts.iter();
        let found = attempts.find(|(_, attempt)| attempt.code == code);
        found.map_or(0, |(number, _)| *number)
    }

    /// The specification's number of a checkpoint; 0 for none.
    pub(super) fn checkpoint_number(&self, code: CheckpointId) -> u64 {
        self.history.checkpoint_number(code)
    }

    /// The state file under a name; none if that is a pack.
    pub(super) fn file(&self, name: FileName) -> Option<u64> {
        self.history.file(name)
    }

    /// Whether an attempt has a snapshot of a checkpoint under way.
    pub(super) fn waits(&self, attempt: AttemptId, checkpoint: CheckpointId) -> bool {
        let number = self.attempt_number(attempt);
        let running = self.attempts.get(&number).and_then(|found| found.running());
        running.is_some_and(|running| running.cuts.contains_key(&checkpoint))
    }

    /// Tells this world, which is in this state of the specification, from every other whose future
    /// differs. Two that differ only in how often `CURRENT` was swapped, in the names of manifest
    /// objects and in times have the same future.
    pub(super) fn print(&self, state: &str) -> u128 {
        let manifest = self.store.manifest.as_ref().map(Shared::print);
        let leaders: Vec<u128> = self.leaders.values().map(Shared::print).collect();
        let attempts: Vec<u128> = self.attempts.values().map(Shared::print).collect();
        let acks: Vec<u128> = self.acks.iter().map(Shared::print).collect();
        Fingerprint::of(&(state, manifest, leaders, attempts, acks))
    }
}
