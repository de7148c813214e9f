//! Rare situations that a good simulation must reach, as the world sees them.
//!
//! The machines mark what only they can know (`sometimes!` in the protocol); here is what lies
//! between them: requests that outlive their callers, leaders that overlap, restores that meet a
//! drop. Each is reached by fewer than one short seed in ten and by more than one in ten thousand;
//! a class that is never reached has lost its road there, and what it would find is not looked for.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, ObjectName};
use stillpoint::protocol::manifest::{Change, Record};
use stillpoint::protocol::message::Acknowledge;
use stillpoint::protocol::store::StoreCall;

use super::World;
use crate::oracle::facts::{Caller, ProcessId};
use crate::store::{Effect, Request};

macro_rules! situations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rare situation.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Situation { $($(#[$doc])* $name,)* }

        impl Situation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

situations! {
    // ---- requests that outlive their callers ----
    /// A file was stored after its attempt had died and been replaced.
    UploadLandedAfterItsAttempt,
    /// A file was stored after it had been condemned.
    UploadLandedOnTombstone,
    /// A file that had been deleted was stored again, by a request that came late.
    FileRoseAgain,
    /// A delete was carried out after its caller had died.
    DeleteLandedAfterItsCaller,
    /// A commit took effect after its coordinator had died.
    CommitLandedAfterItsLeader,
    /// A completion took effect after its coordinator had died: only `CURRENT` knows of it.
    CompletionNobodyHeardOf,
    /// A claim took effect after its coordinator had died.
    ClaimOfTheDead,
    /// A guest's pin took effect after the guest had died.
    PinOfTheDead,
    // ---- leaders that overlap ----
    /// Four coordinators take themselves for the leader.
    FourLeaders,
    /// A leader that had been deposed had a tombstone deleted.
    DeposedLeaderDeleted,
    /// A leader that had been deposed heard an acknowledgement.
    DeposedLeaderAcknowledged,
    /// A commit took effect while its coordinator stood still.
    CommitOfOneThatStandsStill,
    /// A leader that had been deposed twice over had a manifest object deleted.
    DeposedLeaderSwept,
    /// Checkpoints completed under four leaders.
    FourLeadersCompleted,
    /// Eight claims followed each other with nothing completed between them.
    EightClaimsInARow,
    // ---- power ----
    /// The power was cut while `CURRENT` was being swapped.
    PowerCutInASwap,
    /// The power was cut for the fifth time.
    FifthPowerCut,
    // ---- attempts and restores ----
    /// An attempt uploaded although another of its subtask is named.
    UnnamedAttemptUploaded,
    /// A checkpoint was restored by four attempts of one subtask.
    RestoredFourTimes,
    /// Two restores of different checkpoints were under way.
    RestoresOfDifferentCheckpoints,
    // ---- what never heals ----
    /// Everything healed but one worker, which stayed dead.
    WorkerDeadForGood,
    /// Everything healed but deletes, which hung until checkpoints had completed all the same.
    DeletesHangForGood,
    // ---- checkpoints ----
    /// An acknowledgement that a later one of its attempt has overtaken brings a file that the later
    /// one is without, an earlier one had, and no retained checkpoint holds.
    OvertakenOneKeepsAFile,
    /// A checkpoint completed after ten in a row had been aborted.
    CompletedAfterTenAborts,
    /// One commit condemned twenty files.
    TwentyCondemnedAtOnce,
    /// A checkpoint completed while the store failed everything else.
    CompletedInAnOutage,
    /// A checkpoint completed with nothing new in it but packs.
    CompletedWithoutNewState,
    /// Three checkpoints completed without a commit between them that did anything else.
    ThreeCompletionsInARow,
    // ---- pins ----
    /// A pinned checkpoint outlived its retention by three newer ones.
    PinOutlivedRetention,
    /// Two guests tried to commit at once.
    GuestsRace,
    /// A pin held a checkpoint of a line that had been left.
    PinOfAnotherLine,
}

/// How often each situation was reached, and the past that some of them need.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Situations {
    reached: [u32; Situation::ALL.len()],
    /// Commits since the last one that was more than a completion.
    completions_in_a_row: u32,
    /// Claims since the last completion.
    claims_in_a_row: u32,
    removed: BTreeSet<FileName>,
    power_cuts: u32,
    /// What each attempt's newest acknowledgement named, as coordinators heard it, and all that
    /// earlier ones had named.
    heard: BTreeMap<AttemptId, Heard>,
    /// The epochs under which a checkpoint has completed.
    completed_under: BTreeSet<Epoch>,
    /// How many aborts there had been at the last completion.
    aborts_before: usize,
}

/// What coordinators have heard an attempt acknowledge.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Heard {
    newest: CheckpointId,
    names: BTreeSet<FileName>,
    /// In any acknowledgement, with the oldest checkpoint that it was for.
    first: BTreeMap<FileName, CheckpointId>,
}

impl Heard {
    /// The names of an acknowledgement that the newest one has overtaken and is without, although
    /// an earlier one had them.
    fn hear(&mut self, checkpoint: CheckpointId, names: BTreeSet<FileName>) -> Vec<FileName> {
        let mut kept = Vec::new();
        if checkpoint < self.newest {
            let missing = names.difference(&self.names).copied();
            kept = missing
                .filter(|name| {
                    self.first
                        .get(name)
                        .is_some_and(|first| *first < checkpoint)
                })
                .collect();
        }
        for name in &names {
            let first = self.first.entry(*name).or_insert(checkpoint);
            *first = checkpoint.min(*first);
        }
        if checkpoint > self.newest {
            self.newest = checkpoint;
            self.names = names;
        }
        kept
    }
}

impl Default for Situations {
    fn default() -> Self {
        Self {
            reached: [0; Situation::ALL.len()],
            completions_in_a_row: 0,
            claims_in_a_row: 0,
            removed: BTreeSet::new(),
            power_cuts: 0,
            heard: BTreeMap::new(),
            completed_under: BTreeSet::new(),
            aborts_before: 0,
        }
    }
}

impl Situations {
    /// How often it was reached.
    #[must_use]
    pub fn count(&self, situation: Situation) -> u32 {
        self.reached[situation as usize]
    }

    fn note(&mut self, situation: Situation, is_so: bool) {
        self.reached[situation as usize] += u32::from(is_so);
    }
}

impl World {
    pub(super) fn note(&mut self, situation: Situation, is_so: bool) {
        self.situations.note(situation, is_so);
    }

    /// The store is asked for something.
    pub(super) fn note_asked(&mut self, caller: Caller, request: &Request) {
        match (caller, request) {
            (Caller::Coordinator(process), Request::Call(call)) => {
                if let StoreCall::DeleteFile { .. } = call {
                    let deposed = self.is_deposed(process);
                    self.note(Situation::DeposedLeaderDeleted, deposed);
                }
            }
            (Caller::Guest(guest), Request::Call(StoreCall::Swap { .. })) => {
                let mut others = self.operations.values();
                let race = others.any(|other| {
                    matches!(other.request(), Request::Call(StoreCall::Swap { .. }))
                        && matches!(other.caller(), Caller::Guest(id) if id != guest)
                });
                self.note(Situation::GuestsRace, race);
            }
            (Caller::Attempt(attempt), Request::Upload { .. }) => {
                let named = self.watch.facts.durable.named.values();
                let is_named = named.into_iter().any(|named| *named == attempt);
                self.note(Situation::UnnamedAttemptUploaded, !is_named);
            }
            (
                Caller::Coordinator(_) | Caller::Guest(_) | Caller::Attempt(_) | Caller::Restore(_),
                _,
            ) => {}
        }
    }

    fn is_deposed(&self, process: ProcessId) -> bool {
        let facts = &self.watch.facts;
        let epoch = facts.epochs.get(&process);
        epoch.is_some_and(|epoch| *epoch < facts.durable.epoch)
    }

    /// A request changed what is stored.
    pub(super) fn note_landed(&mut self, caller: Caller, effect: &Effect) {
        let is_dead = !self.lives(caller);
        match effect {
            Effect::Stored(ObjectName::Shared(name), _) => {
                let condemned = self.watch.facts.durable.ever_condemned.contains(name);
                let rose = self.situations.removed.contains(name);
                let named = self.watch.facts.durable.named.values();
                let is_named = named.into_iter().any(|named| *named == name.attempt);
                self.note(Situation::UploadLandedAfterItsAttempt, is_dead && !is_named);
                self.note(Situation::UploadLandedOnTombstone, condemned);
                self.note(Situation::FileRoseAgain, rose);
            }
            Effect::Removed(ObjectName::Shared(name)) => {
                self.situations.removed.insert(*name);
                self.note(Situation::DeleteLandedAfterItsCaller, is_dead);
            }
            Effect::Removed(ObjectName::Manifest(_)) => {
                let epochs = &self.watch.facts.epochs;
                let epoch = match caller {
                    Caller::Coordinator(process) => epochs.get(&process),
                    Caller::Guest(_) | Caller::Attempt(_) | Caller::Restore(_) => None,
                };
                let newest = self.watch.facts.durable.epoch;
                let twice = epoch.is_some_and(|epoch| epoch.next() < newest);
                self.note(Situation::DeposedLeaderSwept, twice);
            }
            Effect::Stored(ObjectName::Current | ObjectName::Manifest(_), _)
            | Effect::Removed(ObjectName::Current) => {}
        }
    }

    /// A record became durable.
    pub(super) fn note_committed(&mut self, caller: Option<Caller>, record: &Record) {
        let is_dead = caller.is_some_and(|caller| !self.lives(caller));
        self.note(Situation::CommitLandedAfterItsLeader, is_dead);
        let still = caller.is_some_and(|caller| self.caller_paused_until(caller) > self.now);
        self.note(Situation::CommitOfOneThatStandsStill, still);
        let outage = self.outage.0 > self.now && !self.healed;
        let mut completes = false;
        for change in &record.changes {
            match change {
                Change::Complete(completion) => {
                    completes = true;
                    let mut born = completion.subtasks.iter().flat_map(|delta| &delta.born);
                    let packs =
                        born.all(|file| file.kind == stillpoint::protocol::file::FileKind::Pack);
                    self.note(Situation::CompletionNobodyHeardOf, is_dead);
                    self.note(Situation::CompletedInAnOutage, outage);
                    self.note(Situation::CompletedWithoutNewState, packs);
                    self.situations.claims_in_a_row = 0;
                    self.note_completed(record.epoch);
                }
                Change::Claim { .. } => {
                    self.situations.claims_in_a_row += 1;
                    let eight = self.situations.claims_in_a_row == 8;
                    self.note(Situation::ClaimOfTheDead, is_dead);
                    self.note(Situation::EightClaimsInARow, eight);
                }
                Change::Pin { .. } => self.note(Situation::PinOfTheDead, is_dead),
                Change::Condemn { files } => {
                    self.note(Situation::TwentyCondemnedAtOnce, files.len() >= 20);
                }
                Change::Reserve { .. }
                | Change::Describe { .. }
                | Change::Deploy { .. }
                | Change::End { .. }
                | Change::Subsume { .. }
                | Change::Forget { .. }
                | Change::Unpin { .. } => {}
            }
        }
        let in_a_row = &mut self.situations.completions_in_a_row;
        *in_a_row = if completes { *in_a_row + 1 } else { 0 };
        let three = *in_a_row == 3;
        self.note(Situation::ThreeCompletionsInARow, three);
        self.note_pins();
    }

    fn note_completed(&mut self, epoch: Epoch) {
        let aborts = self.watch.facts.aborted.len();
        let since = aborts - self.situations.aborts_before;
        self.situations.aborts_before = aborts;
        self.note(Situation::CompletedAfterTenAborts, since >= 10);
        let is_new = self.situations.completed_under.insert(epoch);
        let four = is_new && self.situations.completed_under.len() == 4;
        self.note(Situation::FourLeadersCompleted, four);
    }

    fn note_pins(&mut self) {
        let durable = &self.watch.facts.durable;
        let mut outlived = false;
        let mut other_line = false;
        for (pinned, _) in &durable.pins {
            let newer = durable.retained.range(pinned.next()..).count();
            outlived |= newer >= durable.retained.len().min(4) && newer > 3;
            other_line |= durable.head.is_some_and(|head| head < *pinned);
        }
        self.note(Situation::PinOutlivedRetention, outlived);
        self.note(Situation::PinOfAnotherLine, other_line);
    }

    fn restoring(&self) -> BTreeSet<CheckpointId> {
        let instances = self.instances.values();
        instances
            .filter_map(|instance| instance.restores())
            .collect()
    }

    /// The power is about to be cut.
    pub(super) fn note_power_cut(&mut self) {
        let mut operations = self.operations.values();
        let swaps =
            operations.any(|it| matches!(it.request(), Request::Call(StoreCall::Swap { .. })));
        self.note(Situation::PowerCutInASwap, swaps);
        self.situations.power_cuts += 1;
        let fifth = self.situations.power_cuts == 5;
        self.note(Situation::FifthPowerCut, fifth);
    }

    /// A coordinator has come to lead.
    pub(super) fn note_leading(&mut self) {
        let leaders = self.coordinators.values();
        let leaders = leaders.filter(|process| process.leads()).count();
        self.note(Situation::FourLeaders, leaders >= 4);
    }

    /// A coordinator hears an acknowledgement.
    pub(super) fn note_acknowledged(&mut self, process: ProcessId, said: &Acknowledge) {
        let own = said.files.named().iter().map(|file| file.name);
        let own = own.filter(|name| name.attempt == said.attempt).collect();
        let heard = self.situations.heard.entry(said.attempt).or_default();
        let kept = heard.hear(said.checkpoint, own);
        let held = &self.watch.facts.durable.held;
        let keeps = kept.iter().any(|name| !held.contains_key(name));
        self.note(Situation::OvertakenOneKeepsAFile, keeps);
        let deposed = self.is_deposed(process);
        self.note(Situation::DeposedLeaderAcknowledged, deposed);
    }

    /// An attempt begins a restore, or has ended one.
    pub(super) fn note_restore(&mut self) {
        let different = self.restoring().len() > 1;
        self.note(Situation::RestoresOfDifferentCheckpoints, different);
        let restored = &self.watch.facts.restored;
        let last = restored.last();
        let times = restored.iter().filter(|one| Some(*one) == last).count();
        self.note(Situation::RestoredFourTimes, times == 4);
    }
}
