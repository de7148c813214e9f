//! The promises, one a file, each under the name that specification, assertions and docs use.
//!
//! An invariant reads [`Facts`] and keeps what it needs of the past. [`Invariant::observe`] is
//! cheap and looks only at what the fact can have broken; [`Invariant::check`] looks at all of it
//! and runs every 64th event and at the end.
//!
//! Some stand in the world, since what breaks them is no fact: [`IN_THE_WORLD`], and of
//! [`ConfigurationIsObeyed`] and [`RestoreIsExact`] what is said there.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "an invariant reads the facts that it is about and no others"
)]

mod aborted_is_not_started;
mod acknowledgements_agree;
mod closing_leaves_nothing;
mod completed_is_monotone;
mod configuration_is_obeyed;
mod contradictions_are_refused;
mod declarations_are_whole;
mod deletes_are_repeated;
mod deposed_are_told;
mod doubt_is_bounded;
mod every_word_is_answered;
mod failures_are_counted;
mod first_asked_is_first_served;
mod garbage_is_collected;
mod history_is_explained;
mod honest_are_believed;
mod honest_errors;
mod lines_are_continued;
mod names_are_never_reused;
mod newest_are_retained;
mod news_is_true;
mod only_the_owner_deletes;
mod pins_are_kept;
mod progress;
mod queues_are_bounded;
mod restorable_checkpoint_exists;
mod restore_is_exact;
mod retained_is_recoverable;
mod stale_is_powerless;
mod times_are_obeyed;
mod tombstone_is_never_referred_to;
mod trouble_is_told;

use std::fmt;

pub use aborted_is_not_started::AbortedIsNotStarted;
pub use acknowledgements_agree::AcknowledgementsAgree;
pub use closing_leaves_nothing::ClosingLeavesNothing;
pub use completed_is_monotone::CompletedIsMonotone;
pub use configuration_is_obeyed::ConfigurationIsObeyed;
pub use contradictions_are_refused::ContradictionsAreRefused;
pub use declarations_are_whole::DeclarationsAreWhole;
pub use deletes_are_repeated::DeletesAreRepeated;
pub use deposed_are_told::DeposedAreTold;
pub use doubt_is_bounded::DoubtIsBounded;
pub use every_word_is_answered::EveryWordIsAnswered;
pub use failures_are_counted::FailuresAreCounted;
pub use first_asked_is_first_served::FirstAskedIsFirstServed;
pub use garbage_is_collected::{GarbageIsCollected, Leftovers};
pub use history_is_explained::HistoryIsExplained;
pub use honest_are_believed::HonestAreBelieved;
pub use honest_errors::HonestErrors;
pub(crate) use honest_errors::is_honest;
pub use lines_are_continued::LinesAreContinued;
pub use names_are_never_reused::NamesAreNeverReused;
pub use newest_are_retained::NewestAreRetained;
pub use news_is_true::NewsIsTrue;
pub use only_the_owner_deletes::OnlyTheOwnerDeletes;
pub use pins_are_kept::PinsAreKept;
pub use progress::{Progress, bound, garbage_bound};
pub use queues_are_bounded::QueuesAreBounded;
pub use restorable_checkpoint_exists::RestorableCheckpointExists;
pub use restore_is_exact::RestoreIsExact;
pub use retained_is_recoverable::RetainedIsRecoverable;
pub use stale_is_powerless::StaleIsPowerless;
pub use times_are_obeyed::TimesAreObeyed;
pub use tombstone_is_never_referred_to::TombstoneIsNeverReferredTo;
pub use trouble_is_told::TroubleIsTold;

use crate::oracle::facts::{Fact, Facts};

/// A record says only what can be so after those before it: `world/watch.rs`.
pub const RECORDS_MAKE_SENSE: &str = "RecordsMakeSense";
/// The manifest in the store says the same as plain sets: `world/watch.rs`.
pub const MANIFEST_IS_PLAIN_SETS: &str = "ManifestIsPlainSets";
/// Only what is secured is uploaded: `world/snapshot.rs`.
pub const UPLOADS_ARE_SECURED: &str = "UploadsAreSecured";
/// What is lost for good is told, and nothing more is lost: `world/ruin.rs`.
pub const RUIN_IS_TOLD: &str = "RuinIsTold";
/// The promises that stand in the world alone.
pub const IN_THE_WORLD: [&str; 4] = [
    RECORDS_MAKE_SENSE,
    MANIFEST_IS_PLAIN_SETS,
    RUIN_IS_TOLD,
    UPLOADS_ARE_SECURED,
];

/// How late a timer may be heard, in microseconds.
const LATE_MAX: u64 = 1_000;

/// What kind of promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Something bad happened.
    Safety,
    /// Something good did not.
    Liveness,
    /// A machine asserted.
    Crash,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Violation {
    /// What kind.
    pub class: Class,
    /// The promise's name.
    pub promise: &'static str,
    /// What happened, with the ids.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

/// Whether a promise still holds.
pub type Verdict = Result<(), Violation>;

/// One promise.
pub trait Invariant {
    /// Its name.
    const NAME: &'static str;

    /// Looks at what a fact can have broken.
    ///
    /// # Errors
    /// The broken promise.
    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict;

    /// Looks at everything. Most promises can be broken by what a fact says alone, and have nothing to
    /// look at besides.
    ///
    /// # Errors
    /// The broken promise.
    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }

    /// A broken promise of this name.
    ///
    /// # Errors
    /// Always.
    fn broken(what: String) -> Verdict {
        Err(Violation {
            class: Class::Safety,
            promise: Self::NAME,
            what,
        })
    }
}

macro_rules! invariants {
    ($($field:ident: $kind:ident,)*) => {
        /// All safety promises together.
        #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
        pub struct Invariants { $($field: $kind,)* }

        impl Invariants {
            /// Shows a fact to each of them.
            ///
            /// # Errors
            /// The first broken promise.
            pub fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
                $(self.$field.observe(facts, fact)?;)*
                Ok(())
            }

            /// Has each of them look at everything.
            ///
            /// # Errors
            /// The first broken promise.
            pub fn check(&self, facts: &Facts) -> Verdict {
                $(self.$field.check(facts)?;)*
                Ok(())
            }

            /// Their names, and those of the ones that stand in the world.
            #[must_use]
            pub fn names() -> Vec<&'static str> {
                [&[$($kind::NAME,)*][..], &IN_THE_WORLD].concat()
            }
        }
    };
}

invariants! {
    retained_is_recoverable: RetainedIsRecoverable,
    tombstone_is_never_referred_to: TombstoneIsNeverReferredTo,
    only_the_owner_deletes: OnlyTheOwnerDeletes,
    stale_is_powerless: StaleIsPowerless,
    names_are_never_reused: NamesAreNeverReused,
    completed_is_monotone: CompletedIsMonotone,
    restorable_checkpoint_exists: RestorableCheckpointExists,
    lines_are_continued: LinesAreContinued,
    restore_is_exact: RestoreIsExact,
    honest_errors: HonestErrors,
    configuration_is_obeyed: ConfigurationIsObeyed,
    acknowledgements_agree: AcknowledgementsAgree,
    closing_leaves_nothing: ClosingLeavesNothing,
    aborted_is_not_started: AbortedIsNotStarted,
    pins_are_kept: PinsAreKept,
    declarations_are_whole: DeclarationsAreWhole,
    contradictions_are_refused: ContradictionsAreRefused,
    honest_are_believed: HonestAreBelieved,
    doubt_is_bounded: DoubtIsBounded,
    deletes_are_repeated: DeletesAreRepeated,
    every_word_is_answered: EveryWordIsAnswered,
    first_asked_is_first_served: FirstAskedIsFirstServed,
    queues_are_bounded: QueuesAreBounded,
    news_is_true: NewsIsTrue,
    failures_are_counted: FailuresAreCounted,
    newest_are_retained: NewestAreRetained,
    times_are_obeyed: TimesAreObeyed,
    trouble_is_told: TroubleIsTold,
    history_is_explained: HistoryIsExplained,
}

#[cfg(test)]
pub(crate) mod testing {
    //! Short words for histories.

    use stillpoint::protocol::answer::Digest;
    use stillpoint::protocol::file::{FileDescription, FileKind};
    use stillpoint::protocol::id::*;
    use stillpoint::protocol::manifest::{Change, Completion, Record, SubtaskDelta};
    use stillpoint::protocol::time::WallClock;

    use super::{Invariant, Verdict};
    use crate::lsm::{ContentId, local_name};
    use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};

    pub fn name(attempt: u64, number: u64) -> FileName {
        FileName {
            attempt: AttemptId(attempt),
            number,
        }
    }

    pub fn file(attempt: u64, number: u64) -> FileDescription {
        FileDescription {
            name: name(attempt, number),
            local: local_name(number),
            kind: FileKind::State,
            digest: digest(number),
        }
    }

    pub fn digest(content: u64) -> Digest {
        content_of(content).digest()
    }

    pub fn content_of(number: u64) -> ContentId {
        ContentId(u32::try_from(number).unwrap_or(0))
    }

    pub fn stored(attempt: u64, number: u64) -> Fact {
        Fact::FileStored(name(attempt, number), content_of(number))
    }

    pub fn complete(checkpoint: u64, born: &[FileDescription], dropped: &[FileName]) -> Change {
        Change::Complete(Completion {
            checkpoint: CheckpointId(checkpoint),
            parent: None,
            cut_at: WallClock(0),
            subtasks: vec![SubtaskDelta {
                subtask: SubtaskId::default(),
                born: born.to_vec(),
                returned: Vec::new(),
                dropped: dropped.to_vec(),
                user_bytes: Vec::new(),
            }],
        })
    }

    /// A leader of epoch 1 and attempt 1 of the one subtask, with ids below 100 reserved.
    pub fn begin() -> Vec<Change> {
        vec![
            Change::Claim { epoch: Epoch(1) },
            Change::Reserve {
                checkpoints_below: CheckpointId(100),
                attempts_below: AttemptId(100),
            },
            Change::Deploy {
                head: None,
                attempts: vec![(SubtaskId::default(), AttemptId(1))],
            },
        ]
    }

    /// An invariant that has seen a leader begin and checkpoint 1 complete, with one file.
    pub fn after_one<I: Invariant + Default>() -> (I, Facts) {
        let (mut invariant, mut facts) = (I::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let one = vec![complete(1, &[file(1, 1)], &[])];
        commit(&mut invariant, &mut facts, one).expect("one");
        (invariant, facts)
    }

    /// Shows a history to an invariant as the world would. What the invariant is to find must make
    /// sense as far as records go: else it would never be asked.
    pub fn show<I: Invariant>(invariant: &mut I, facts: &mut Facts, fact: Fact) -> Verdict {
        if let Err(nonsense) = facts.take(&fact) {
            panic!("a test of {} shows it nonsense: {nonsense}", I::NAME);
        }
        invariant.observe(facts, &fact)
    }

    /// The process that leads, where nothing else is said.
    pub const LEADER: ProcessId = ProcessId(0);

    /// A commit of these changes by the leader.
    pub fn commit<I: Invariant>(
        invariant: &mut I,
        facts: &mut Facts,
        changes: Vec<Change>,
    ) -> Verdict {
        commit_by(Caller::Coordinator(LEADER), invariant, facts, changes)
    }

    /// A commit of these changes by anybody.
    pub fn commit_by<I: Invariant>(
        caller: Caller,
        invariant: &mut I,
        facts: &mut Facts,
        changes: Vec<Change>,
    ) -> Verdict {
        let epoch = changes
            .iter()
            .find_map(|change| match change {
                Change::Claim { epoch } => Some(*epoch),
                _ => None,
            })
            .unwrap_or(facts.durable.epoch);
        let record = Record {
            version: facts.durable.version.next(),
            epoch,
            changes,
        };
        show(invariant, facts, Fact::Committing(caller, record.clone()))?;
        show(invariant, facts, Fact::Committed(record))
    }
}
