//! One commit of the manifest: put a record under a fresh name, then swap `CURRENT`; and, when the
//! store does not say, find out what came of it.
//!
//! ```text
//!             refused                          refused
//!          +----------> Checking            +----------> Judging -------> Overtaken
//!          |               | same bytes     |              |  ^   \-----> Lost
//!  Putting +---------------+---> Swapping --+ <------------+  |   \-----> Committed
//!     ^  | unknown              ^  |  | done    same version  |
//!     +--+                      +--+  +-----> Committed       unknown: read again
//!                              unknown: the same swap again
//! ```
//!
//! What each answer of each call means; `again` is the same call after a wait:
//!
//! ```text
//!             Done               Refused      Failed, may pass     Failed             Unknown
//! Putting     swap               check        again, 5 times       Failed             again
//! Checking    same bytes: swap   again        again, 5 times       Failed; NotFound:  again
//!             else: Failed                                         put, 5 times
//! Swapping    Committed          judge        again, 5 times;      Failed;            again,
//!                                             in doubt: for ever   in doubt: again    in doubt
//! Judging     what it shows;     again        again                again, 5 times,    again
//!             damage: again,                                       then Broken
//!             5 times, Broken                                      (each counts by itself)
//! ```
//!
//! Nothing that is certain and does not pass is waited for longer than damage is: a `CURRENT` that is
//! gone or may not be read ends the commit, and with it the life, as one that is damaged does.
//!
//! Invariants:
//! - Once a swap's outcome is unknown, only `CURRENT` having moved past the version it was based on
//!   ends the commit: an unchanged `CURRENT` settles nothing, since the request may land later.
//! - It acts on neither outcome before it knows, and deletes nothing itself.
//! - Nothing is written that is larger than a reader takes, in bytes or in numbers.
//! - No two commits share a name, so "exists already" with the same bytes is "done".
//!
//! What it does not do: apply the record, decide what to commit, or keep time. Specification:
//! `LeaderFencing`, refining `AtomicCommit`. Source of the rule: FLINK-22494, FLINK-28265.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use super::answer::{Answer, Failure, FailureKind, Tag};
use super::id::{ManifestName, NUMBER_MAX, ObjectName};
use super::limits::Limits;
use super::manifest::{Current, DecodeError, Record};
use super::marks::{guard, sometimes};
use super::store::{StoreCall, StorePayload, StoreToken};

/// Tries of a call that fails for certain, in a way that may pass, before the commit gives up; and,
/// counted by themselves, reads that bring damage.
const TRIES_IN_VAIN_MAX: u32 = 5;

/// A commit under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Commit {
    name: ManifestName,
    record: Record,
    body: Vec<u8>,
    base: Current,
    tag: Tag,
    next: Current,
    next_body: Vec<u8>,
    step: Step,
    /// Tries of this step, as far as they make a difference to the wait.
    tries: u32,
    /// From this number on they make none.
    tries_max: u32,
    /// How often this step failed for certain.
    certain_failures: u32,
    /// How often it read something damaged: one read may be damaged on its way, whatever failed
    /// before it.
    damaged_reads: u32,
    /// A swap was answered `Unknown`: it may still land.
    in_doubt: Option<Failure>,
    /// What the store said last that was no success, whatever the step.
    trouble: Option<Failure>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Step {
    Putting,
    Finding,
    Checking,
    Swapping,
    Judging,
}

/// What a commit wants next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Progress {
    /// Make this call; its answer comes back through [`Commit::handle_answer`].
    Call(StoreCall),
    /// Wait as long as [`Limits::retry_delay_after`] says for so many tries, then
    /// [`Commit::call`].
    Wait(u32),
    /// It is over.
    End(CommitEnd),
}

/// How a commit ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CommitEnd {
    /// It is done. `current` is what `CURRENT` held when that was seen: what this commit wrote, or
    /// something later that builds on it.
    Committed {
        /// What `CURRENT` held.
        current: Current,
        /// Its tag.
        tag: Tag,
    },
    /// It is not done and never will be: somebody else's commit took its place.
    Overtaken {
        /// What `CURRENT` held.
        current: Current,
        /// Its tag.
        tag: Tag,
    },
    /// `CURRENT` has moved so far that it does not show what became of this commit.
    Lost {
        /// What `CURRENT` held.
        current: Current,
    },
    /// It is not done and never will be.
    Failed(Failure),
    /// There is no going on from `CURRENT`: it is damaged, gone, may not be read, belongs to another
    /// root, went back to an older version, or is of a newer format.
    Broken(Failure),
}

impl Commit {
    /// A commit of `record` on top of `base`, which `CURRENT` held under `tag`; `next` is what
    /// `CURRENT` is to hold.
    ///
    /// # Errors
    /// When the record or `CURRENT` would be larger than a reader takes, or one of their numbers
    /// higher: what can't be loaded is never written.
    ///
    /// # Panics
    /// When record, base and next do not follow each other.
    pub fn new(
        name: ManifestName,
        record: Record,
        base: Current,
        tag: Tag,
        next: Current,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        assert!(
            record.version == base.version().next(),
            "{name} follows {}",
            base.version()
        );
        assert!(
            name.version == record.version,
            "{name} is named after {}",
            record.version
        );
        assert!(
            next.version() == record.version,
            "{name} makes {}",
            next.version()
        );
        check_numbers(&name, &record)?;
        let (body, next_body) = (record.encode(), next.encode());
        check_size(&name, body.len(), limits.manifest_object_bytes_max)?;
        check_size(
            &ObjectName::Current,
            next_body.len(),
            limits.current_bytes_max,
        )?;
        Ok(Self {
            name,
            record,
            body,
            base,
            tag,
            next,
            next_body,
            step: Step::Putting,
            tries: 0,
            tries_max: limits.tries_told_apart(),
            certain_failures: 0,
            damaged_reads: 0,
            in_doubt: None,
            trouble: None,
        })
    }

    /// The name of its record.
    #[must_use]
    pub fn name(&self) -> ManifestName {
        self.name
    }

    /// What `CURRENT` holds once it is done and nobody else has committed since.
    #[must_use]
    pub fn written(&self) -> &Current {
        &self.next
    }

    /// What it commits.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Its record, at the end.
    #[must_use]
    pub fn into_record(self) -> Record {
        self.record
    }

    /// What the store said when it last did not know, if the outcome is in doubt.
    #[must_use]
    pub fn doubt(&self) -> Option<&Failure> {
        self.in_doubt.as_ref()
    }

    /// What the store said last that was no success, whatever the step.
    #[must_use]
    pub fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref()
    }

    /// What it waits for, in words.
    #[must_use]
    pub fn waits_for(&self) -> &'static str {
        match self.step {
            Step::Putting => "the record to be stored",
            Step::Finding => "CURRENT, as the record found no place",
            Step::Checking => "the stored record to be read back",
            Step::Swapping => "CURRENT to be swapped",
            Step::Judging => "CURRENT to be read back",
        }
    }

    /// The call to make now: at the start, and after a wait.
    #[must_use]
    pub fn call(&self) -> StoreCall {
        match self.step {
            Step::Putting => StoreCall::Put {
                name: self.name,
                body: self.body.clone(),
            },
            Step::Checking => StoreCall::Read {
                token: StoreToken::ReadManifest(self.name),
            },
            Step::Swapping => StoreCall::Swap {
                name: self.name,
                expected: self.tag.clone(),
                body: self.next_body.clone(),
            },
            Step::Finding | Step::Judging => StoreCall::Read {
                token: StoreToken::ReadCurrent,
            },
        }
    }

    /// Whether an answer with this token is the one that is waited for.
    #[must_use]
    pub fn expects(&self, token: &StoreToken) -> bool {
        *token
            == match self.step {
                Step::Putting => StoreToken::PutManifest(self.name),
                Step::Checking => StoreToken::ReadManifest(self.name),
                Step::Swapping => StoreToken::Swap(self.name),
                Step::Finding | Step::Judging => StoreToken::ReadCurrent,
            }
    }

    /// Takes the answer to the last call.
    #[must_use]
    pub fn handle_answer(&mut self, answer: Answer<StorePayload>) -> Progress {
        match &answer {
            Answer::Failed(failure) | Answer::Unknown(failure) => {
                self.trouble = Some(failure.clone());
            }
            Answer::Done(_) | Answer::Refused => {}
        }
        match self.step {
            Step::Putting => self.put(answer),
            Step::Finding => self.found(answer),
            Step::Checking => self.checked(answer),
            Step::Swapping => self.swapped(answer),
            Step::Judging => self.judged(answer),
        }
    }

    fn go_to(&mut self, step: Step) -> Progress {
        self.step = step;
        self.tries = 0;
        self.begin_counting();
        Progress::Call(self.call())
    }

    fn begin_counting(&mut self) {
        self.certain_failures = 0;
        self.damaged_reads = 0;
    }

    fn wait(&mut self) -> Progress {
        self.tries = (self.tries + 1).min(self.tries_max);
        Progress::Wait(self.tries)
    }

    /// Counts a certain failure. Answers that were lost before it do not count with it.
    fn may_fail_again(&mut self) -> bool {
        may_be_in_vain_again(&mut self.certain_failures)
    }

    /// Counts a damaged read.
    fn may_be_damaged_again(&mut self) -> bool {
        may_be_in_vain_again(&mut self.damaged_reads)
    }

    /// Something failed for certain. While nothing is in doubt that ends the commit, unless the
    /// trouble may pass by itself soon.
    fn failed(&mut self, failure: Failure) -> Progress {
        let may_pass = failure.kind.is_retryable() && self.may_fail_again();
        if guard!(DoubtIsRepeated, self.in_doubt.is_none()) && !may_pass {
            return Progress::End(CommitEnd::Failed(failure));
        }
        self.wait()
    }

    fn put(&mut self, answer: Answer<StorePayload>) -> Progress {
        match answer {
            Answer::Done(_) => self.go_to(Step::Swapping),
            Answer::Refused => self.go_counting(Step::Checking),
            // A place to put it is missing: the whole root may be gone.
            Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                self.go_counting(Step::Finding)
            }
            Answer::Failed(failure) => self.failed(failure),
            Answer::Unknown(_) => self.wait(),
        }
    }

    /// Goes on to look into what a put said. What failed before goes on counting: a name that is
    /// taken and not there, say, would be put and looked for in turns, for ever.
    fn go_counting(&mut self, step: Step) -> Progress {
        let failures = self.certain_failures;
        let progress = self.go_to(step);
        self.certain_failures = failures;
        progress
    }

    /// Whether there is a `CURRENT` to commit to, when the record found no place.
    fn found(&mut self, answer: Answer<StorePayload>) -> Progress {
        match answer {
            Answer::Done(_) => {
                if let Some(failure) = self.trouble.clone().filter(|_| !self.may_fail_again()) {
                    return Progress::End(CommitEnd::Failed(failure));
                }
                self.step = Step::Putting;
                self.wait()
            }
            Answer::Failed(failure) if !failure.kind.is_retryable() && !self.may_fail_again() => {
                Progress::End(CommitEnd::Broken(failure))
            }
            Answer::Failed(_) | Answer::Refused | Answer::Unknown(_) => self.wait(),
        }
    }

    fn checked(&mut self, answer: Answer<StorePayload>) -> Progress {
        match answer {
            Answer::Done(StorePayload::Content { bytes, .. }) => {
                if guard!(ExistsMeansDoneIfSame, bytes == self.body) {
                    sometimes!(PutFoundItsOwnRecord);
                    return self.go_to(Step::Swapping);
                }
                // Only this life can write under this name, so what is there is damage. The next
                // try of the commit takes another name; this one is deleted after it ends.
                let cause = self.name.to_string() + " holds something else than was put";
                Progress::End(CommitEnd::Failed(Failure::new(FailureKind::Corrupt, cause)))
            }
            Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                // The store answered "exists" before it shows the object.
                if !self.may_fail_again() {
                    return Progress::End(CommitEnd::Failed(failure));
                }
                self.step = Step::Putting;
                self.wait()
            }
            Answer::Failed(failure) => self.failed(failure),
            Answer::Done(_) | Answer::Refused | Answer::Unknown(_) => self.wait(),
        }
    }

    fn swapped(&mut self, answer: Answer<StorePayload>) -> Progress {
        match answer {
            Answer::Done(StorePayload::Swapped(tag)) => Progress::End(CommitEnd::Committed {
                current: self.next.clone(),
                tag,
            }),
            Answer::Done(_) | Answer::Refused => self.go_to(Step::Judging),
            Answer::Failed(failure) => self.failed(failure),
            Answer::Unknown(failure) => {
                sometimes!(CommitInDoubt);
                self.in_doubt = Some(failure);
                self.wait()
            }
        }
    }

    fn judged(&mut self, answer: Answer<StorePayload>) -> Progress {
        let (bytes, tag) = match answer {
            Answer::Done(StorePayload::Content { bytes, tag }) => (bytes, tag),
            // It is gone, say, or may not be read: no wait mends that.
            Answer::Failed(failure) if !failure.kind.is_retryable() && !self.may_fail_again() => {
                return Progress::End(CommitEnd::Broken(failure));
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {
                return self.wait();
            }
        };
        let current = match Current::decode(&bytes) {
            Ok(current) => current,
            // Another release leads, and reads will not make it an older one.
            Err(error @ DecodeError::NewerFormat { .. }) => {
                let failure = Failure::new(FailureKind::Unsupported, error.to_string());
                return Progress::End(CommitEnd::Broken(failure));
            }
            // One read may be damaged on its way; what is damaged stays so.
            Err(_) if self.may_be_damaged_again() => return self.wait(),
            Err(error) => return broken(error.to_string()),
        };
        if current.root() != self.base.root() {
            return broken("CURRENT belongs to another root".to_string());
        }
        if current.version() < self.base.version() {
            return broken("CURRENT went back to an older version".to_string());
        }
        if current.version() == self.base.version() {
            if current.last_commit() != self.base.last_commit() {
                return broken("CURRENT has two contents of one version".to_string());
            }
            // Some stores answer a conflict although nothing was stored.
            sometimes!(SwapRefusedAlthoughNothingWasStored);
            self.tag = tag;
            self.step = Step::Swapping;
            self.begin_counting();
            return self.wait();
        }
        self.moved(current, tag)
    }

    /// `CURRENT` has moved past the base: whatever it shows is final for this commit.
    fn moved(&mut self, current: Current, tag: Tag) -> Progress {
        let after = current.records_after(self.base.version());
        let placed = after.and_then(|records| records.first());
        Progress::End(match placed {
            Some(name) if guard!(OwnNonceMeansDone, *name == self.name) => {
                sometimes!(CommitFoundDoneByReading);
                CommitEnd::Committed { current, tag }
            }
            Some(_) => CommitEnd::Overtaken { current, tag },
            None => {
                sometimes!(CommitLostForGood);
                CommitEnd::Lost { current }
            }
        })
    }

    /// How long the machine's driver waits before the next [`Self::call`].
    #[must_use]
    pub fn delay(limits: &Limits, tries: u32) -> core::time::Duration {
        limits.retry_delay_after(tries)
    }
}

fn may_be_in_vain_again(count: &mut u32) -> bool {
    let may = *count < TRIES_IN_VAIN_MAX;
    *count = (*count + 1).min(TRIES_IN_VAIN_MAX);
    may
}

fn check_size(name: &dyn fmt::Display, found: usize, limit: usize) -> Result<(), Failure> {
    if found <= limit {
        return Ok(());
    }
    let cause = alloc::format!("{name} would have {found} bytes, and a reader takes {limit}");
    Err(Failure::new(FailureKind::TooLarge, cause))
}

/// What counts on from numbers that came from outside may end beyond what a reader takes.
fn check_numbers(name: &ManifestName, record: &Record) -> Result<(), Failure> {
    let reserved = record.changes.iter().map(|change| change.reserved_below());
    let highest = reserved.fold(name.version.0.max(name.epoch.0), u64::max);
    if highest <= NUMBER_MAX {
        return Ok(());
    }
    let cause =
        alloc::format!("{name} would have the number {highest}, and a reader takes {NUMBER_MAX}");
    Err(Failure::new(FailureKind::TooLarge, cause))
}

fn broken(cause: alloc::string::String) -> Progress {
    Progress::End(CommitEnd::Broken(Failure::new(FailureKind::Corrupt, cause)))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::protocol::id::{AttemptId, CheckpointId, Epoch, Nonce, RootId, Version};
    use crate::protocol::manifest::{Change, checksum};

    fn begin(limits: &Limits) -> Result<Commit, Failure> {
        let base = Current::genesis(RootId(1), "orders".into());
        let name = ManifestName {
            version: Version(1),
            epoch: Epoch(1),
            nonce: Nonce(1),
        };
        let claim = Change::Claim { epoch: Epoch(1) };
        let reserve = Change::Reserve {
            checkpoints_below: CheckpointId(64),
            attempts_below: AttemptId(64),
        };
        let record = Record {
            version: Version(1),
            epoch: Epoch(1),
            changes: vec![claim, reserve],
        };
        let next = base.successor(name, None);
        Commit::new(name, record, base, Tag("0".into()), next, limits)
    }

    fn commit() -> Commit {
        begin(&Limits::default()).expect("it is small")
    }

    fn lost() -> Answer<StorePayload> {
        Answer::Unknown(Failure::new(FailureKind::Deadline, "no answer"))
    }

    fn busy() -> Answer<StorePayload> {
        Answer::Failed(Failure::new(FailureKind::Unavailable, "slow down"))
    }

    fn waits(progress: &Progress) -> bool {
        matches!(progress, Progress::Wait(_))
    }

    #[test]
    fn lost_answers_do_not_count_as_certain_failures() {
        let mut commit = commit();
        for _ in 0..20 {
            assert!(waits(&commit.handle_answer(lost())));
        }
        for _ in 0..TRIES_IN_VAIN_MAX {
            assert!(waits(&commit.handle_answer(busy())));
        }
        let end = commit.handle_answer(busy());
        assert!(matches!(end, Progress::End(CommitEnd::Failed(_))));
    }

    #[test]
    fn reads_that_failed_do_not_count_as_damaged_ones() {
        let mut commit = commit();
        let _ = commit.handle_answer(Answer::Done(StorePayload::Nothing));
        let _ = commit.handle_answer(Answer::Refused);
        for _ in 0..20 {
            assert!(waits(&commit.handle_answer(lost())));
        }
        let damaged = || {
            Answer::Done(StorePayload::Content {
                bytes: vec![1, 2, 3],
                tag: Tag("1".into()),
            })
        };
        for _ in 0..TRIES_IN_VAIN_MAX {
            assert!(waits(&commit.handle_answer(busy())));
        }
        for _ in 0..TRIES_IN_VAIN_MAX {
            assert!(waits(&commit.handle_answer(damaged())));
        }
        let end = commit.handle_answer(damaged());
        assert!(matches!(end, Progress::End(CommitEnd::Broken(_))));
    }

    #[test]
    fn damaged_reads_do_not_count_as_failed_ones() {
        let mut commit = commit();
        let _ = commit.handle_answer(Answer::Done(StorePayload::Nothing));
        let _ = commit.handle_answer(Answer::Refused);
        let damaged = Answer::Done(StorePayload::Content {
            bytes: vec![1, 2, 3],
            tag: Tag("1".into()),
        });
        let denied = || Answer::Failed(Failure::new(FailureKind::Denied, "not now"));
        for _ in 0..TRIES_IN_VAIN_MAX {
            assert!(waits(&commit.handle_answer(damaged.clone())));
        }
        for _ in 0..TRIES_IN_VAIN_MAX {
            assert!(waits(&commit.handle_answer(denied())));
        }
        let end = commit.handle_answer(denied());
        assert!(matches!(end, Progress::End(CommitEnd::Broken(_))));
    }

    /// A root that was deleted: nothing can be put, and nothing is there to be read.
    #[test]
    fn a_root_that_is_gone_ends_it_and_a_folder_that_is_gone_fails_it() {
        let gone = || Failure::new(FailureKind::NotFound, "no such directory");
        let mut commit = commit();
        let finding = commit.handle_answer(Answer::Failed(gone()));
        assert!(matches!(finding, Progress::Call(StoreCall::Read { .. })));
        for _ in 0..TRIES_IN_VAIN_MAX {
            assert!(waits(&commit.handle_answer(lost())));
            assert!(waits(&commit.handle_answer(Answer::Failed(gone()))));
        }
        let end = commit.handle_answer(Answer::Failed(gone()));
        assert_eq!(end, Progress::End(CommitEnd::Broken(gone())));

        let mut commit = self::commit();
        let there = || {
            Answer::Done(StorePayload::Content {
                bytes: Vec::new(),
                tag: Tag("0".into()),
            })
        };
        for _ in 0..TRIES_IN_VAIN_MAX {
            let finding = commit.handle_answer(Answer::Failed(gone()));
            assert!(matches!(finding, Progress::Call(StoreCall::Read { .. })));
            assert!(waits(&commit.handle_answer(there())));
            assert!(matches!(commit.call(), StoreCall::Put { .. }));
        }
        let _ = commit.handle_answer(Answer::Failed(gone()));
        let end = commit.handle_answer(there());
        assert_eq!(end, Progress::End(CommitEnd::Failed(gone())));
    }

    /// A store without `CURRENT`: the swap is refused, and nothing is there to be read.
    #[test]
    fn a_current_that_is_gone_or_closed_ends_it_as_damage_does() {
        for kind in [
            FailureKind::NotFound,
            FailureKind::Denied,
            FailureKind::Other,
        ] {
            for in_doubt in [false, true] {
                let mut commit = commit();
                let _ = commit.handle_answer(Answer::Done(StorePayload::Nothing));
                if in_doubt {
                    assert!(waits(&commit.handle_answer(lost())));
                }
                let judging = commit.handle_answer(Answer::Refused);
                assert!(matches!(judging, Progress::Call(_)));
                let failure = Failure::new(kind, "open CURRENT");
                for _ in 0..TRIES_IN_VAIN_MAX {
                    // What may pass does not count.
                    assert!(waits(&commit.handle_answer(lost())));
                    assert!(waits(&commit.handle_answer(busy())));
                    let progress = commit.handle_answer(Answer::Failed(failure.clone()));
                    assert!(waits(&progress));
                }
                let end = commit.handle_answer(Answer::Failed(failure.clone()));
                assert_eq!(end, Progress::End(CommitEnd::Broken(failure)));
            }
        }
    }

    /// "Exists already", and nothing is there: a link to nowhere, say.
    #[test]
    fn a_name_that_is_taken_and_not_there_ends_it() {
        let mut commit = commit();
        let absent = || Answer::Failed(Failure::new(FailureKind::NotFound, "open it"));
        for _ in 0..TRIES_IN_VAIN_MAX {
            let _ = commit.handle_answer(Answer::Refused);
            assert!(waits(&commit.handle_answer(absent())));
        }
        let _ = commit.handle_answer(Answer::Refused);
        let end = commit.handle_answer(absent());
        assert!(matches!(end, Progress::End(CommitEnd::Failed(_))));
    }

    /// It is no damage, and reading it again makes it no older.
    #[test]
    fn a_current_of_a_newer_release_ends_it_at_once() {
        let mut commit = commit();
        let _ = commit.handle_answer(Answer::Done(StorePayload::Nothing));
        let _ = commit.handle_answer(Answer::Refused);
        let mut bytes = commit.next.encode();
        bytes[8] = 99;
        let checksum = checksum(&[&bytes[..20], &bytes[28..]].concat());
        bytes[20..28].copy_from_slice(&checksum.0.to_le_bytes());
        let tag = Tag("1".into());
        let answer = Answer::Done(StorePayload::Content { bytes, tag });
        let Progress::End(CommitEnd::Broken(failure)) = commit.handle_answer(answer) else {
            panic!("it waits for another");
        };
        assert_eq!(failure.kind, FailureKind::Unsupported);
        assert!(failure.cause.contains("format 99"), "{failure}");
    }

    #[test]
    fn states_are_equal_once_the_wait_grows_no_more() {
        let mut commit = commit();
        for _ in 0..20 {
            let _ = commit.handle_answer(lost());
        }
        let before = commit.clone();
        let _ = commit.handle_answer(lost());
        assert_eq!(commit, before);
    }

    #[test]
    fn nothing_begins_that_a_reader_would_refuse() {
        let tight = [
            Limits {
                manifest_object_bytes_max: 30,
                ..Limits::default()
            },
            Limits {
                current_bytes_max: 30,
                ..Limits::default()
            },
        ];
        for limits in tight {
            let failure = begin(&limits).expect_err("it is too large");
            assert_eq!(failure.kind, FailureKind::TooLarge);
        }
    }

    #[test]
    fn no_number_is_written_that_a_reader_would_refuse() {
        let commit = |epoch, below| {
            let base = Current::genesis(RootId(1), "orders".into());
            let name = ManifestName {
                version: Version(1),
                epoch: Epoch(epoch),
                nonce: Nonce(1),
            };
            let reserve = Change::Reserve {
                checkpoints_below: CheckpointId(below),
                attempts_below: AttemptId(64),
            };
            let record = Record {
                version: name.version,
                epoch: name.epoch,
                changes: vec![reserve],
            };
            let next = base.successor(name, None);
            Commit::new(
                name,
                record,
                base,
                Tag("0".into()),
                next,
                &Limits::default(),
            )
        };
        assert!(commit(NUMBER_MAX, NUMBER_MAX).is_ok());
        for (epoch, below) in [(NUMBER_MAX + 1, 64), (1, NUMBER_MAX + 1)] {
            let failure = commit(epoch, below).expect_err("it is too high");
            assert_eq!(failure.kind, FailureKind::TooLarge);
            assert!(failure.cause.contains("a reader takes"), "{failure}");
        }
    }
}
