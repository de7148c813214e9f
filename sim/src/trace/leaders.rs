//! What an observer remembers of a leader.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::{AttemptState, Coordinator, Phase, View};
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName};
use stillpoint::protocol::manifest::{Change, Manifest, Record};
use stillpoint::protocol::message::Acknowledge;

use crate::conform::abstraction::{LeaderSight, OfSubtask};
use crate::oracle::facts::ProcessId;

/// The leader of an epoch. One that crashed is as one that stands still for ever.
#[derive(Debug)]
pub(super) struct Led {
    pub(super) process: ProcessId,
    pub(super) epoch: u64,
    /// The manifest that its claim made.
    claimed: Manifest,
    /// What it was when it crashed.
    pub(super) ghost: Option<Box<Coordinator>>,
    /// What its triggers of checkpoints under way said.
    settled: OfSubtask<u64>,
    /// The cuts that were acknowledged to it.
    pub(super) taken: OfSubtask<BTreeSet<u64>>,
    /// The checkpoints under way when it was last looked at.
    pub(super) under_way: BTreeSet<CheckpointId>,
    /// The attempts that followed it.
    attached: BTreeSet<AttemptId>,
    /// The files that may become garbage without a completion.
    cared_for: BTreeSet<FileName>,
    /// Whether some of them may be garbage by a later acknowledgement, which is no reason to look.
    pub(super) may_leave_garbage: bool,
}

/// What has changed since a leader was last looked at.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) triggered: usize,
    pub(super) ended: Vec<CheckpointId>,
    pub(super) attached: Vec<AttemptId>,
}

/// [`AttemptState::settled`] in the specification's numbers, in which an id and the one before it need
/// not follow each other.
fn settled(state: &AttemptState, numbers: &BTreeMap<CheckpointId, u64>) -> u64 {
    let number = |id: CheckpointId| numbers.get(&id).copied().unwrap_or(0);
    let sent = state
        .last_declared
        .max(state.last_acknowledged.unwrap_or_default());
    match state.staged.values().min() {
        Some(oldest) => number(*oldest).saturating_sub(1).min(number(sent)),
        None => number(sent),
    }
}

impl Led {
    pub(super) fn new(process: ProcessId, claimed: Manifest) -> Self {
        Self {
            process,
            epoch: claimed.epoch().0,
            claimed,
            ghost: None,
            settled: BTreeMap::new(),
            taken: BTreeMap::new(),
            under_way: BTreeSet::new(),
            attached: BTreeSet::new(),
            cared_for: BTreeSet::new(),
            may_leave_garbage: false,
        }
    }

    /// What it shows, once it knows that it leads.
    pub(super) fn view<'a>(&self, machine: &'a Coordinator) -> Option<View<'a>> {
        let view = machine.view();
        let leads = matches!(view.phase, Phase::Leading | Phase::Closing);
        (leads && view.epoch.0 == self.epoch).then_some(view)
    }

    /// Looks at it, and numbers the checkpoints that it has triggered.
    pub(super) fn look(
        &mut self,
        machine: &Coordinator,
        numbers: &mut BTreeMap<CheckpointId, u64>,
    ) -> News {
        let Some(view) = self.view(machine) else {
            return News::default();
        };
        let under_way: BTreeSet<CheckpointId> = view
            .pending
            .keys()
            .chain(view.committing.keys())
            .copied()
            .collect();
        let attached = view.attempts.iter().filter(|(_, state)| state.attached);
        let attached: BTreeSet<AttemptId> = attached.map(|(code, _)| *code).collect();
        let triggered: Vec<CheckpointId> = under_way.difference(&self.under_way).copied().collect();
        let news = News {
            triggered: triggered.len(),
            ended: self.under_way.difference(&under_way).copied().collect(),
            attached: attached.difference(&self.attached).copied().collect(),
        };
        for id in &triggered {
            numbers.insert(*id, numbers.len() as u64 + 1);
            for (subtask, attempt) in view
                .pending
                .get(id)
                .iter()
                .flat_map(|pending| &pending.plan)
            {
                if let Some(state) = view.attempts.get(attempt) {
                    self.settled
                        .insert((*id, *subtask), settled(state, numbers));
                }
            }
        }
        self.may_leave_garbage = view.attempts.values().any(|state| {
            let mut staged = state.staged.values();
            staged.any(|last| Some(*last) < state.last_acknowledged)
        });
        let staged = view.attempts.values().flat_map(|state| state.staged.keys());
        self.cared_for = staged.chain(view.orphans).copied().collect();
        (self.under_way, self.attached) = (under_way, attached);
        news
    }

    /// Whether a file was its to care for when it was last looked at.
    pub(super) fn cares_for(&self, file: FileName) -> bool {
        self.cared_for.contains(&file)
    }

    /// Whether a record completes a checkpoint while a newer one, acknowledged by all tasks as well,
    /// waits for the next commit.
    pub(super) fn lets_wait(&self, record: &Record, tasks: usize) -> bool {
        let completed = record.changes.iter().find_map(|change| {
            if let Change::Complete(completion) = change {
                Some(completion.checkpoint)
            } else {
                None
            }
        });
        let Some(completed) = completed else {
            return false;
        };
        let mut newer = self.under_way.iter().filter(|id| **id > completed);
        newer.any(|id| self.taken.keys().filter(|(of, _)| of == id).count() == tasks)
    }

    /// Whether a machine has staged anew what another copy of an acknowledgement names: it was
    /// completed, dropped, deleted and forgotten since the first. The specification has no copies.
    pub(super) fn stages_again(&self, machine: &Coordinator, said: &Acknowledge) -> bool {
        let view = self.view(machine);
        let state = view.and_then(|view| view.attempts.get(&said.attempt));
        let mut named = said.files.named().iter().map(|file| file.name);
        named.any(|name| state.is_some_and(|state| state.is_staged(name)) && !self.cares_for(name))
    }

    pub(super) fn sight<'a>(&'a self, machine: Option<&'a Coordinator>) -> LeaderSight<'a> {
        let view = machine.and_then(|machine| self.view(machine));
        LeaderSight {
            view,
            manifest: view.map_or(Some(&self.claimed), |view| view.manifest),
            settled: self.settled.clone(),
            taken: &self.taken,
        }
    }
}
