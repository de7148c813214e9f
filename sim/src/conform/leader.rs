//! A coordinator that the harness drives: it commits when it is let, and not before.
//!
//! A step of the specification that commits is one step here: decide, put, swap, answer. Between
//! two of them the coordinator is held back, by means that any store has:
//!
//! ```text
//!  nothing under way   a renewal is begun, and its put fails for certain   -> it waits to try again
//!  a completion begun  guests pin and unpin, the swap is refused, and the
//!                      records of the guests can't be read for now         -> it waits to try again
//! ```
//!
//! It then commits when the timer of its next try is fired. What its sweep asks for is held back in
//! the same way: the listing is answered when it is let sweep.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::protocol::coordinator::{
    Action, Coordinator, CoordinatorConfig, Event, Identity, Notice, Phase, Timer,
};
use stillpoint::protocol::guest::{Guest, PinWish};
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, Nonce, RootId, SubtaskId};
use stillpoint::protocol::limits::Limits;
use stillpoint::protocol::manifest::{Expected, PinOwner};
use stillpoint::protocol::message::{Fate, Lead, Message, Notify, Trigger};
use stillpoint::protocol::outcome::Outcome;
use stillpoint::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use stillpoint::protocol::time::Timestamp;

use super::bounds::Bounds;
use super::store::Store;

pub(super) const JOB: &str = "conform";
/// The coordinator waits so long for its next try; nothing that the harness fires is due before.
const WAIT: Duration = Duration::from_secs(3_600);
/// Whose pin the harness uses to hold a commit back; no pin of the specification's.
const HOLDER: &str = "holder";
/// Reads of a guest's record that fail before the coordinator gives it up for now.
const READS_MAX: usize = 20;

/// A coordinator, and what is under way from it.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub(super) machine: Coordinator,
    now: Timestamp,
    /// Calls that concern the manifest, in the order of asking.
    calls: VecDeque<StoreCall>,
    listing: Option<Listing>,
    /// Files that the store was asked to delete and has not answered for.
    pub(super) deletes: BTreeSet<FileName>,
    /// Messages to attempts, which are delivered when they can matter.
    pub(super) leads: BTreeMap<AttemptId, Lead>,
    pub(super) triggers: BTreeMap<(CheckpointId, SubtaskId), Trigger>,
    pub(super) aborted: BTreeMap<(AttemptId, CheckpointId), Notify>,
    pub(super) completed: BTreeMap<AttemptId, Notify>,
    /// What each subtask acknowledged of a checkpoint under way: the files at its cut.
    pub(super) taken: BTreeMap<(CheckpointId, SubtaskId), BTreeSet<u64>>,
}

/// What a coordinator says at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// Answers to an attempt.
    pub(super) answers: Vec<Message>,
    /// What its user is told.
    pub(super) notices: Vec<Notice>,
}

/// The configuration in which times are far apart and nothing runs out.
pub(super) fn config(max_concurrent: usize, num_retained: usize) -> CoordinatorConfig {
    CoordinatorConfig {
        max_concurrent,
        timeout: WAIT * 1_000_000,
        tolerable_failures: u32::MAX,
        num_retained,
        renew_interval: Some(WAIT * 2),
        look_interval: None,
        limits: limits(),
        ..CoordinatorConfig::default()
    }
}

/// The limits that go with it.
pub(super) fn limits() -> Limits {
    Limits {
        checkpoint_id_block: 1_000,
        attempt_id_block: 1_000,
        deletes_in_flight_max: 1_000,
        uploads_in_flight_max: 1_000,
        snapshots_in_flight_max: 1_000,
        tail_records_max: 1_000_000,
        sweep_pause: Duration::from_millis(1),
        sweep_round_pause: Duration::from_millis(1),
        forget_delay: Duration::ZERO,
        retry_delay: WAIT,
        retry_delay_max: WAIT,
        ..Limits::default()
    }
}

fn failed(kind: FailureKind) -> Answer<StorePayload> {
    Answer::Failed(Failure::new(kind, "the harness says so"))
}

impl Leader {
    /// A coordinator that has claimed, and is held back.
    pub(super) fn claim(bounds: &Bounds, store: &mut Store, life: u64) -> Self {
        let identity = Identity {
            job: JOB.to_owned(),
            new_root: RootId(1),
            life: Nonce(life << 24),
            jitter: 0,
        };
        let now = Timestamp(0);
        let mut leader = Self {
            machine: Coordinator::new(now, config(bounds.max_concurrent, bounds.retain), identity),
            now,
            calls: VecDeque::new(),
            listing: None,
            deletes: BTreeSet::new(),
            leads: BTreeMap::new(),
            triggers: BTreeMap::new(),
            aborted: BTreeMap::new(),
            completed: BTreeMap::new(),
            taken: BTreeMap::new(),
        };
        let mut said = Said::default();
        leader.drain(&mut said);
        while leader.phase() != Phase::Leading {
            leader.serve_next(store, &mut said);
        }
        leader.settle(store, life, &mut said);
        leader
    }

    pub(super) fn phase(&self) -> Phase {
        self.machine.view().phase
    }

    /// Whether it leads, as far as it knows.
    pub(super) fn is_up(&self) -> bool {
        self.phase() == Phase::Leading
    }

    /// Tells it something.
    pub(super) fn drive(&mut self, event: Event, said: &mut Said) -> Outcome {
        let outcome = self.machine.handle_event(self.now, event);
        self.drain(said);
        outcome
    }

    /// Lets a timer be due.
    fn fire(&mut self, timer: Timer, said: &mut Said) {
        let at = self.machine.view().timers.at(timer);
        let at = at.unwrap_or_else(|| panic!("{timer:?} is not armed"));
        self.now = self.now.max(at);
        self.machine.handle_timeout(self.now);
        self.drain(said);
    }

    fn drain(&mut self, said: &mut Said) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Store(StoreCall::DeleteFile { name }) => {
                    self.deletes.insert(name);
                }
                Action::Store(StoreCall::List { listing, .. }) if listing != Listing::Root => {
                    self.listing = Some(listing);
                }
                Action::Store(call) => self.calls.push_back(call),
                Action::Send {
                    to,
                    subtask,
                    message,
                } => self.send(to, subtask, message, said),
                Action::Tell(notice) => said.notices.push(notice),
            }
        }
    }

    fn send(&mut self, to: AttemptId, subtask: SubtaskId, message: Message, said: &mut Said) {
        match message {
            Message::Lead(lead) => {
                self.leads.insert(to, lead);
            }
            Message::Trigger(trigger) => {
                self.triggers.insert((trigger.checkpoint, subtask), trigger);
            }
            Message::Notify(notify) => match notify.fate {
                Fate::Aborted => {
                    self.aborted.insert((to, notify.checkpoint), notify);
                }
                Fate::Completed => {
                    self.completed.insert(to, notify);
                }
                Fate::Subsumed => {}
            },
            Message::Attached(_) | Message::Answered(_) => said.answers.push(message),
            // News that may be lost is lost: the specification has no step for it.
            Message::NotNamed(_) => {}
            Message::Attach(_) | Message::Acknowledge(_) | Message::Decline(_) => {
                panic!("a coordinator says what attempts say: {message:?}")
            }
        }
    }

    /// Tells it what became of its oldest call. The call's token.
    fn answer_next(
        &mut self,
        said: &mut Said,
        answer: impl FnOnce(StoreCall) -> Answer<StorePayload>,
    ) -> StoreToken {
        let call = self
            .calls
            .pop_front()
            .expect("a coordinator waits for something");
        let token = call.token();
        let event = Event::IoCompleted {
            token: token.clone(),
            answer: answer(call),
        };
        let _ = self.drive(event, said);
        token
    }

    fn serve_next(&mut self, store: &mut Store, said: &mut Said) -> StoreToken {
        self.answer_next(said, |call| store.serve(call))
    }

    /// Lets it commit whatever it wants to commit now, and follow what guests have committed before.
    /// It may turn out to be deposed.
    pub(super) fn commit(&mut self, store: &mut Store, said: &mut Said) {
        self.begin_commit(said);
        self.end_commit(store, said);
    }

    /// Lets a commit begin.
    pub(super) fn begin_commit(&mut self, said: &mut Said) {
        self.fire(Timer::NextCommit, said);
    }

    /// Lets the commit that has begun come to its end.
    pub(super) fn end_commit(&mut self, store: &mut Store, said: &mut Said) {
        let before = self
            .machine
            .view()
            .manifest
            .map(|manifest| manifest.version());
        while self.is_up() {
            if self.calls.is_empty() && self.machine.view().commit.is_none() {
                return;
            }
            let token = self.serve_next(store, said);
            let view = self.machine.view();
            let moved = view.manifest.map(|manifest| manifest.version()) != before;
            if moved && matches!(token, StoreToken::Swap(_)) {
                return;
            }
        }
    }

    /// Lets its next commit begin and fail for certain.
    pub(super) fn fail_commit(&mut self, store: &mut Store, said: &mut Said) {
        self.fire(Timer::NextCommit, said);
        self.fail_put(store, said);
    }

    /// The checkpoint that its next commit would complete.
    pub(super) fn completes_next(&self) -> Option<CheckpointId> {
        self.machine.view().committing.keys().next().copied()
    }

    fn fail_put(&mut self, store: &mut Store, said: &mut Said) {
        let token = self.answer_next(said, |_| failed(FailureKind::Denied));
        assert!(
            matches!(token, StoreToken::PutManifest(_)),
            "a commit begins with its record, not with {token:?}"
        );
        // Its record is deleted, should it be there.
        while !self.calls.is_empty() && self.machine.view().commit.is_none() {
            self.serve_next(store, said);
        }
    }

    /// Lets confirmed deletes be forgotten by the next commit.
    pub(super) fn forget(&mut self, file: FileName, said: &mut Said) {
        self.deletes.remove(&file);
        let event = Event::IoCompleted {
            token: StoreToken::DeleteFile(file),
            answer: Answer::Done(StorePayload::Nothing),
        };
        let _ = self.drive(event, said);
        self.fire(Timer::Forget, said);
    }

    /// Answers its listing: this file is there.
    pub(super) fn list(&mut self, file: FileName, said: &mut Said) {
        self.answer_listing(vec![file.to_string()], said);
    }

    fn answer_listing(&mut self, names: Vec<String>, said: &mut Said) {
        let listing = self.listing.take().expect("a listing is awaited");
        let event = Event::IoCompleted {
            token: StoreToken::List(listing),
            answer: Answer::Done(StorePayload::Page { names, next: None }),
        };
        let _ = self.drive(event, said);
    }

    /// Brings it to where it is held back, and its clock to 0.
    pub(super) fn settle(&mut self, store: &mut Store, life: u64, said: &mut Said) {
        while self.is_up() {
            match self.listing {
                Some(Listing::Shared) => break,
                Some(Listing::Manifest | Listing::Root) => self.answer_listing(Vec::new(), said),
                None => self.fire(Timer::Sweep, said),
            }
        }
        while self.is_up() {
            let view = self.machine.view();
            if view.commit.is_none() {
                if view.timers.is_armed(Timer::NextCommit) {
                    break;
                }
                self.fire(Timer::Renew, said);
            } else if view.completes.is_none() {
                self.fail_put(store, said);
            } else {
                self.take_back(store, life, said);
            }
        }
        self.machine.rebase_time(self.now);
        self.now = Timestamp(0);
    }

    /// Takes a completion back that has begun, without failing it.
    fn take_back(&mut self, store: &mut Store, life: u64, said: &mut Said) {
        for begins in [true, false] {
            let wish = PinWish {
                checkpoint: None,
                owner: PinOwner(HOLDER.to_owned()),
                begins,
            };
            let life = life + if begins { 1 } else { 2 };
            assert!(pin(store, wish, life), "a guest can pin what is newest");
        }
        for _ in 0..READS_MAX {
            while let Some(call) = self.calls.front() {
                if matches!(call.token(), StoreToken::ReadManifest(_)) {
                    self.answer_next(said, |_| failed(FailureKind::Unavailable));
                } else {
                    self.serve_next(store, said);
                }
            }
            let timers = self.machine.view().timers;
            if timers.is_armed(Timer::NextCommit) {
                return;
            }
            self.fire(Timer::Follow, said);
        }
        panic!("a coordinator reads a guest's record for ever");
    }

    /// Forgets messages that can't matter any more: of checkpoints that are over, to attempts that do
    /// not wait for them.
    pub(super) fn prune(&mut self, waits: impl Fn(AttemptId, CheckpointId) -> bool, hears: bool) {
        let under_way = self.under_way();
        self.triggers
            .retain(|(checkpoint, _), _| under_way.contains(checkpoint));
        self.taken
            .retain(|(checkpoint, _), _| under_way.contains(checkpoint));
        self.aborted
            .retain(|(attempt, checkpoint), _| waits(*attempt, *checkpoint));
        if !hears {
            self.completed.clear();
        }
    }

    fn under_way(&self) -> BTreeSet<CheckpointId> {
        let view = self.machine.view();
        view.pending
            .keys()
            .chain(view.committing.keys())
            .copied()
            .collect()
    }
}

/// Has a guest pin or unpin. False if it can't.
pub(super) fn pin(store: &mut Store, wish: PinWish, life: u64) -> bool {
    let expected = Expected {
        job: Some(JOB.to_owned()),
        root: None,
    };
    let mut guest = Guest::new(wish, expected, limits(), Nonce(life << 24));
    while guest.result().is_none() {
        let call = guest.poll_action().expect("a guest waits for something");
        let token = call.token();
        let _ = guest.handle_answer(Timestamp(0), &token, store.serve(call));
    }
    guest.result().is_some_and(Result::is_ok)
}
