//! Rare situations that a good simulation must reach, as the world sees them.
//!
//! The machines mark what only they can know (`sometimes!` in the protocol); here is what lies
//! between them: requests that outlive their callers, leaders that overlap, restores that meet a
//! drop. Each is reached by fewer than one short seed in ten and by more than one in ten thousand;
//! a class that is never reached has lost its road there, and what it would find is not looked for.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{CheckpointId, FileName, ObjectName};
use stillpoint::protocol::manifest::{Change, Record};
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
    /// Six claims followed each other with nothing completed between them.
    SixClaimsInARow,
    // ---- attempts and restores ----
    /// An attempt uploaded although another of its subtask is named.
    UnnamedAttemptUploaded,
    /// A checkpoint was restored by four attempts of one subtask.
    RestoredFourTimes,
    /// Two restores of different checkpoints were under way.
    RestoresOfDifferentCheckpoints,
    // ---- checkpoints ----
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
}

impl Default for Situations {
    fn default() -> Self {
        Self {
            reached: [0; Situation::ALL.len()],
            completions_in_a_row: 0,
            claims_in_a_row: 0,
            removed: BTreeSet::new(),
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
    fn note(&mut self, situation: Situation, is_so: bool) {
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
            Effect::Stored(ObjectName::Current | ObjectName::Manifest(_), _)
            | Effect::Removed(ObjectName::Current | ObjectName::Manifest(_)) => {}
        }
    }

    /// A record became durable.
    pub(super) fn note_committed(&mut self, caller: Option<Caller>, record: &Record) {
        let is_dead = caller.is_some_and(|caller| !self.lives(caller));
        self.note(Situation::CommitLandedAfterItsLeader, is_dead);
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
                }
                Change::Claim { .. } => {
                    self.situations.claims_in_a_row += 1;
                    let six = self.situations.claims_in_a_row == 6;
                    self.note(Situation::ClaimOfTheDead, is_dead);
                    self.note(Situation::SixClaimsInARow, six);
                }
                Change::Pin { .. } => self.note(Situation::PinOfTheDead, is_dead),
                Change::Reserve { .. }
                | Change::Describe { .. }
                | Change::Deploy { .. }
                | Change::End { .. }
                | Change::Subsume { .. }
                | Change::Condemn { .. }
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

    /// A coordinator has come to lead.
    pub(super) fn note_leading(&mut self) {
        let leaders = self.coordinators.values();
        let leaders = leaders.filter(|process| process.leads()).count();
        self.note(Situation::FourLeaders, leaders >= 4);
    }

    /// A coordinator hears an acknowledgement.
    pub(super) fn note_acknowledged(&mut self, process: ProcessId) {
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
