//! What is true of the world, as its invariants read it, and how it comes to change.
//!
//! ```text
//! world --Fact--> Facts (store mirror, durable manifest, cuts) --> invariants
//! ```
//!
//! The world tells each fact as it happens. What a machine tells its user or sends is such a fact,
//! taken for what it is: something said. A fact is seen by the invariants *after* it has been taken
//! into [`Facts`], except [`Fact::Committing`], which shows a record before it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

use stillpoint::protocol::answer::{Digest, FailureKind};
use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::guest::{GuestError, PinWish};
use stillpoint::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, ManifestName, ObjectName, RequestId, SubtaskId,
    Version,
};
use stillpoint::protocol::manifest::{Change, Record};
use stillpoint::protocol::message::Verdict;

use super::durable::Durable;
use crate::lsm::{ContentId, Table};
use crate::world::GuestId;
use crate::world::dataflow::Element;

/// One life of a coordinator process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "coordinator {}", self.0)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Who asks the store for something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Caller {
    /// A coordinator.
    Coordinator(ProcessId),
    /// Who pins a checkpoint.
    Guest(GuestId),
    /// An attempt that runs.
    Attempt(AttemptId),
    /// An attempt that restores.
    Restore(AttemptId),
}

/// What an attempt hears of a delete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeleteAnswer {
    /// The object is gone.
    Done,
    /// It failed for certain; later may do.
    FailedForNow,
    /// It failed for certain, and will again.
    FailedForGood,
    /// Nobody knows.
    Unknown,
}

/// What kind of thing an attempt says to a leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Word {
    /// A snapshot is stored.
    Acknowledgement {
        /// Whether it is as it was made, not garbled.
        is_honest: bool,
    },
    /// There will be no snapshot.
    Decline,
    /// It follows this leader.
    Attachment,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acknowledgement { .. } => "acknowledgement",
            Self::Decline => "decline",
            Self::Attachment => "attachment",
        })
    }
}

/// Something that has become true.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// A state file stands in the store, durably.
    FileStored(FileName, ContentId),
    /// A state file is gone.
    FileRemoved(FileName),
    /// A manifest object stands in the store, durably.
    ManifestStored(ManifestName),
    /// A manifest object is gone.
    ManifestRemoved(ManifestName),
    /// `CURRENT` is gone.
    CurrentRemoved,
    /// `CURRENT` names these objects now.
    CurrentNames(Vec<ManifestName>),
    /// This record, which the caller has put, is about to become part of what is durable.
    Committing(Caller, Record),
    /// This record has become durable.
    Committed(Record),
    /// Somebody asks the store to delete a state file.
    DeleteAsked(Caller, FileName),
    /// The store has carried out an attempt's delete.
    DeleteCarriedOut(FileName),
    /// Somebody asks the store to delete a manifest object.
    ManifestDeleteAsked(Caller, ManifestName),
    /// Somebody asks the store to keep a manifest object.
    ManifestPutAsked(Caller, ManifestName),
    /// Somebody asks the store to let `CURRENT` name this record as its last.
    SwapAsked(Caller, ManifestName),
    /// A read of this object brought something else than is stored.
    ReadDamaged(Caller, ObjectName),
    /// Somebody hears that this object, or the list of them, can't be read, which is not to say that
    /// it is not there.
    ReadFailed(Caller, Option<ObjectName>, FailureKind),
    /// Somebody hears what this object holds, or what the list of them does, or that it is not there.
    ReadAnswered(Caller, Option<ObjectName>),
    /// Somebody hears that `CURRENT` names this snapshot as the newest, and this record as the last.
    CurrentHeard(Caller, Option<ManifestName>, Option<ManifestName>),
    /// Somebody asks for a manifest object to read.
    ManifestReadAsked(Caller, ManifestName),
    /// Somebody hears that a manifest object was not stored for certain, and will not be however often
    /// it is tried.
    PutFailedForGood(Caller, ManifestName),
    /// An attempt asks to store a file.
    UploadAsked(AttemptId, FileName, ContentId),
    /// A cut was taken.
    CutTaken(CheckpointId, SubtaskId, AttemptId, Table),
    /// A leader sent the answer to an acknowledgement, whose names are now the leader's: what it says
    /// of it.
    AnswerSent(ProcessId, AttemptId, CheckpointId, Verdict),
    /// An attempt acknowledged, naming these for the first time or again.
    Acknowledged(AttemptId, CheckpointId, Vec<FileName>),
    /// An attempt hears a message of this epoch, or is started in it.
    EpochHeard(AttemptId, Epoch),
    /// An attempt attaches and declares these names.
    Declared(AttemptId, Vec<FileName>),
    /// A coordinator is about to take what an attempt says in this epoch, of this checkpoint.
    WordHeard(ProcessId, AttemptId, Option<CheckpointId>, Epoch, Word),
    /// A coordinator has taken what an attempt said, and all that it says to that is sent.
    HeardOut(ProcessId),
    /// A leader tells an attempt what became of a checkpoint.
    FateSent(ProcessId, AttemptId, CheckpointId),
    /// A leader tells an attempt that the manifest does not name it.
    NotNamedSent(ProcessId, AttemptId),
    /// An attempt hears what a leader of this epoch answers about a checkpoint.
    AnswerHeard(AttemptId, CheckpointId, Epoch),
    /// A leader takes an attachment.
    AttachmentTaken(ProcessId, AttemptId),
    /// An attempt hears that nobody knows what became of an upload.
    UploadInDoubt(AttemptId, FileName),
    /// An attempt hears what became of a delete.
    DeleteAnswered(AttemptId, FileName, DeleteAnswer),
    /// A coordinator told its user something.
    Told(ProcessId, Notice),
    /// A user asks for a checkpoint.
    CheckpointAsked(ProcessId, RequestId),
    /// A user asks for a pin, or for the end of one.
    PinAsked(ProcessId, RequestId, PinWish),
    /// A coordinator's process has crashed.
    CoordinatorGone(ProcessId),
    /// A coordinator's process stands still until then.
    CoordinatorStandsStill(ProcessId, u64),
    /// Faults stop.
    Healed,
    /// A user asks for new attempts, from a certain checkpoint or from the newest.
    DeployAsked(ProcessId, RequestId, Option<CheckpointId>),
    /// The user of an attempt writes a key past the input.
    Wrote(AttemptId, usize, u32),
    /// An attempt has taken the element at this offset of its subtask's input.
    Consumed(AttemptId, SubtaskId, u32, Element),
    /// An attempt that has restored reads its input from here on.
    ReadsFrom(AttemptId, u32),
    /// An attempt has restored a checkpoint and sees this.
    Restored(CheckpointId, SubtaskId, AttemptId, Table),
    /// An attempt could not restore what it was told to.
    RestoreFailed(CheckpointId, SubtaskId, AttemptId, String),
    /// An attempt's process stands still until then.
    StandsStill(AttemptId, u64),
    /// An attempt's process is gone.
    AttemptGone(AttemptId),
    /// An attempt has closed in good order.
    AttemptClosed(AttemptId),
    /// An attempt told its user that a checkpoint is complete.
    AttemptToldCompleted(AttemptId, CheckpointId),
    /// An attempt was asked for a checkpoint, and told what is settled.
    TriggerHeard(AttemptId, CheckpointId, Epoch, CheckpointId),
    /// An attempt was told that the manifest does not name it.
    NotNamedHeard(AttemptId, Epoch),
    /// An attempt was told that a checkpoint will never be.
    AbortHeard(AttemptId, CheckpointId, Epoch),
    /// Somebody comes to pin a checkpoint, or to end a pin.
    GuestComes(GuestId, PinWish),
    /// A guest is about to tell its user that it has not what it wants.
    GuestGivesUp(GuestId, GuestError),
    /// A guest is no more.
    GuestGone(GuestId),
    /// A guest told its user whether it has what it wants.
    GuestEnded(PinWish, Result<CheckpointId, GuestError>),
    /// This is what is left of a write that broke off.
    Torn(ContentId),
    /// A manifest object's write broke off half-way.
    ManifestTorn,
    /// Somebody made an attempt's acknowledgement contradict the registry.
    AcknowledgementGarbled(AttemptId, CheckpointId),
}

/// What coordinators are configured to do, as far as a user can see whether they do it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Configured {
    /// Checkpoints that may be under way at once.
    pub max_concurrent: usize,
    /// The time from one periodic checkpoint to the next, in microseconds; `None` is never.
    pub interval: Option<u64>,
    /// How long a checkpoint may take until its last acknowledgement, in microseconds.
    pub timeout: u64,
    /// The least time between the end of a checkpoint and a periodic one, in microseconds.
    pub min_pause: u64,
    /// What that time grows to when checkpoints fail, in microseconds.
    pub min_pause_max: u64,
    /// Completed checkpoints that are retained.
    pub num_retained: usize,
    /// Failures in a row that are tolerated.
    pub tolerable_failures: u32,
    /// Deletes that an attempt keeps in mind; more are the sweep's.
    pub own_deletes_max: usize,
    /// How often an upload in doubt is repeated under its name.
    pub upload_tries_max: u32,
    /// The longest time from one try of a call to the next, in microseconds.
    pub retry_delay_max: u64,
    /// Condemned files that the manifest remembers, more are the sweep's.
    pub tombstones_max: usize,
    /// Records that `CURRENT` names before the manifest is written as a whole.
    pub tail_records_max: usize,
    /// How often a read that fails is tried.
    pub read_tries_max: u32,
    /// Pins that there may be.
    pub pins_max: usize,
    /// Files in one acknowledgement, and names that an attempt keeps in mind at least.
    pub acknowledged_files_max: usize,
    /// Requests that may wait for their turn, and others that may wait for a commit.
    pub queued_requests_max: usize,
    /// Snapshots that an attempt may have under way at once.
    pub snapshots_in_flight_max: usize,
}

impl Configured {
    /// Nothing is expected of times: where timers are fired by choice, none passes.
    pub fn forget_times(&mut self) {
        self.interval = None;
        self.timeout = u64::MAX;
        (self.min_pause, self.min_pause_max) = (0, 0);
    }
}

impl Default for Configured {
    fn default() -> Self {
        Self {
            max_concurrent: usize::MAX,
            interval: None,
            timeout: u64::MAX,
            min_pause: 0,
            min_pause_max: 0,
            num_retained: usize::MAX,
            tolerable_failures: 0,
            own_deletes_max: usize::MAX,
            upload_tries_max: u32::MAX,
            retry_delay_max: u64::MAX,
            tombstones_max: usize::MAX,
            tail_records_max: usize::MAX,
            read_tries_max: u32::MAX,
            pins_max: usize::MAX,
            acknowledged_files_max: usize::MAX,
            queued_requests_max: usize::MAX,
            snapshots_in_flight_max: usize::MAX,
        }
    }
}

/// How often an object could not be read since that was last told.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FailedReads {
    /// No more are told apart than a reader tries.
    pub count: u32,
    /// Why, the last time.
    pub last: Option<FailureKind>,
    is_told: bool,
}

impl FailedReads {
    fn one_more(&mut self, kind: FailureKind, config: &Configured) {
        if std::mem::take(&mut self.is_told) {
            self.count = 0;
        }
        self.count = config.read_tries_max.min(self.count + 1);
        self.last = Some(kind);
    }
}

/// What is true.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Facts {
    /// State files in the store.
    pub files: BTreeMap<FileName, ContentId>,
    /// Manifest objects in the store.
    pub manifests: BTreeSet<ManifestName>,
    /// Whether there is a `CURRENT`.
    pub has_current: bool,
    /// What `CURRENT` names.
    pub current_names: Vec<ManifestName>,
    /// The manifest.
    pub durable: Durable,
    /// The state at each cut.
    pub cuts: BTreeMap<(CheckpointId, SubtaskId), (AttemptId, Table)>,
    /// Names whose deletion somebody asked for.
    pub delete_asked: BTreeSet<FileName>,
    /// The names in each attempt's acknowledgements.
    pub acknowledged: BTreeMap<(AttemptId, CheckpointId), Vec<FileName>>,
    /// Names in an acknowledgement that a leader answered: the leader's.
    pub answered: BTreeSet<FileName>,
    /// Who put each manifest object.
    pub makers: BTreeMap<ManifestName, Caller>,
    /// How many checkpoints have completed.
    pub completions: u64,
    /// The checkpoints that have completed, in order.
    pub completed: Vec<CheckpointId>,
    /// What users were told was aborted, and why, in order.
    pub aborted: Vec<(CheckpointId, AbortReason)>,
    /// What was restored, in order.
    pub restored: Vec<(CheckpointId, SubtaskId)>,
    /// How many restores have brought a state back.
    pub restores: u64,
    /// The time.
    pub now: u64,
    /// What coordinators are configured to do.
    pub config: Configured,
    /// What is left of writes that broke off.
    pub torn: BTreeSet<ContentId>,
    /// The acknowledgements that were made to contradict the registry.
    pub garbled: BTreeSet<(AttemptId, CheckpointId)>,
    /// The garbled ones that each coordinator has heard.
    pub heard_garbled: BTreeSet<(ProcessId, CheckpointId, AttemptId)>,
    /// Whether a manifest object's write has broken off half-way.
    pub manifests_torn: bool,
    /// How often a read of an object has brought something else than is stored.
    pub damaged_reads: BTreeMap<(Caller, ObjectName), u32>,
    /// Who could not read which object, or the list of them.
    pub failed_reads: BTreeMap<(Caller, Option<ObjectName>), FailedReads>,
    /// When faults stopped, if they have.
    pub quiet_since: Option<u64>,
    /// The epoch of each process that came to lead.
    pub epochs: BTreeMap<ProcessId, Epoch>,
    /// The version of the manifest when each of them came to lead.
    pub led_from: BTreeMap<ProcessId, Version>,
}

impl Facts {
    /// The newest checkpoint of which any state was cut.
    #[must_use]
    pub fn newest_cut(&self) -> Option<CheckpointId> {
        let newest = self.cuts.last_key_value();
        newest.map(|((checkpoint, _), _)| *checkpoint)
    }

    /// Takes a fact in.
    ///
    /// # Errors
    /// In words, when a record says what can't be so.
    pub fn take(&mut self, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::FileStored(name, content) => {
                self.files.insert(*name, *content);
            }
            Fact::FileRemoved(name) => {
                self.files.remove(name);
            }
            Fact::ManifestStored(name) => {
                self.manifests.insert(*name);
            }
            Fact::ManifestRemoved(name) => {
                self.manifests.remove(name);
            }
            Fact::CurrentRemoved => self.has_current = false,
            Fact::CurrentNames(names) => {
                self.has_current = true;
                self.current_names.clone_from(names);
            }
            Fact::Committed(record) => {
                self.durable.apply(record).map_err(|nonsense| nonsense.0)?;
                for change in &record.changes {
                    if let Change::Complete(completion) = change {
                        self.completions += 1;
                        self.completed.push(completion.checkpoint);
                    }
                }
            }
            Fact::DeleteAsked(_, name) => {
                self.delete_asked.insert(*name);
            }
            Fact::ManifestPutAsked(caller, name) => {
                self.makers.entry(*name).or_insert(*caller);
            }
            Fact::Restored(checkpoint, subtask, ..) => {
                self.restores += 1;
                self.restored.push((*checkpoint, *subtask));
            }
            Fact::Told(_, Notice::Aborted { checkpoint, reason }) => {
                self.aborted.push((*checkpoint, reason.clone()));
            }
            Fact::ReadDamaged(caller, name) => {
                *self.damaged_reads.entry((*caller, *name)).or_default() += 1;
            }
            Fact::ReadFailed(caller, name, kind) => {
                let failed = self.failed_reads.entry((*caller, *name));
                failed.or_default().one_more(*kind, &self.config);
            }
            Fact::CutTaken(checkpoint, subtask, attempt, table) => {
                self.cuts
                    .insert((*checkpoint, *subtask), (*attempt, *table));
            }
            Fact::Acknowledged(attempt, checkpoint, names) => {
                self.acknowledged
                    .insert((*attempt, *checkpoint), names.clone());
            }
            Fact::AnswerSent(_, attempt, checkpoint, _) => {
                if let Some(names) = self.acknowledged.get(&(*attempt, *checkpoint)) {
                    self.answered.extend(names);
                }
            }
            Fact::Told(process, Notice::Leading { epoch }) => {
                self.epochs.insert(*process, *epoch);
                self.led_from.insert(*process, self.durable.version);
            }
            Fact::Told(process, Notice::StoreTrouble { .. }) => {
                let process = Caller::Coordinator(*process);
                for ((caller, _), failed) in &mut self.failed_reads {
                    failed.is_told |= *caller == process;
                }
            }
            Fact::CoordinatorGone(process) => {
                self.forget_failed_reads(Caller::Coordinator(*process));
            }
            Fact::AttemptGone(attempt) => self.forget_failed_reads(Caller::Restore(*attempt)),
            Fact::GuestGone(guest) => self.forget_failed_reads(Caller::Guest(*guest)),
            Fact::Committing(..)
            | Fact::DeleteCarriedOut(_)
            | Fact::ManifestDeleteAsked(..)
            | Fact::SwapAsked(..)
            | Fact::ReadAnswered(..)
            | Fact::CurrentHeard(..)
            | Fact::ManifestReadAsked(..)
            | Fact::PutFailedForGood(..)
            | Fact::CheckpointAsked(..)
            | Fact::PinAsked(..)
            | Fact::CoordinatorStandsStill(..)
            | Fact::NotNamedHeard(..)
            | Fact::DeployAsked(..)
            | Fact::Wrote(..)
            | Fact::Consumed(..)
            | Fact::ReadsFrom(..)
            | Fact::UploadAsked(..)
            | Fact::Told(..)
            | Fact::GuestComes(..)
            | Fact::GuestGivesUp(..)
            | Fact::GuestEnded(..)
            | Fact::EpochHeard(..)
            | Fact::Declared(..)
            | Fact::AttachmentTaken(..)
            | Fact::AnswerHeard(..)
            | Fact::HeardOut(_)
            | Fact::FateSent(..)
            | Fact::NotNamedSent(..)
            | Fact::UploadInDoubt(..)
            | Fact::DeleteAnswered(..)
            | Fact::RestoreFailed(..)
            | Fact::StandsStill(..)
            | Fact::AttemptClosed(_)
            | Fact::AttemptToldCompleted(..)
            | Fact::TriggerHeard(..)
            | Fact::AbortHeard(..) => {}
            Fact::Torn(content) => {
                self.torn.insert(*content);
            }
            Fact::ManifestTorn => self.manifests_torn = true,
            Fact::Healed => self.quiet_since = Some(self.now),
            Fact::WordHeard(process, attempt, checkpoint, _, word) => {
                if let Word::Acknowledgement { is_honest: false } = word
                    && let Some(checkpoint) = checkpoint
                {
                    self.heard_garbled.insert((*process, *checkpoint, *attempt));
                }
            }
            Fact::AcknowledgementGarbled(attempt, checkpoint) => {
                self.garbled.insert((*attempt, *checkpoint));
            }
        }
        Ok(())
    }

    fn forget_failed_reads(&mut self, caller: Caller) {
        if !self.failed_reads.is_empty() {
            self.failed_reads.retain(|(of, _), _| *of != caller);
        }
    }

    /// Takes into a hash what later verdicts depend on and the store does not say: not what has
    /// merely been counted or listed, and no time.
    pub fn hash_future(&self, hasher: &mut impl Hasher) {
        (&self.durable, &self.cuts, &self.delete_asked).hash(hasher);
        (&self.acknowledged, &self.answered).hash(hasher);
        (
            &self.torn,
            &self.garbled,
            &self.heard_garbled,
            self.manifests_torn,
            &self.damaged_reads,
            &self.failed_reads,
            &self.epochs,
            &self.led_from,
        )
            .hash(hasher);
    }

    /// What stands in the store under this name, if anything.
    #[must_use]
    pub fn digest_of(&self, name: &FileName) -> Option<Digest> {
        self.files.get(name).map(|content| content.digest())
    }

    /// Whether the store holds this object.
    #[must_use]
    pub fn holds(&self, name: &ObjectName) -> bool {
        match name {
            ObjectName::Current => self.has_current,
            ObjectName::Manifest(name) => self.manifests.contains(name),
            ObjectName::Shared(name) => self.files.contains_key(name),
        }
    }
}
