//! A world in which only that happens which `CheckpointLifecycle` models. `specs/README.md` says what
//! that leaves out, and why.
//!
//! ```text
//!  trigger --> cut                 at once
//!  Lead --> Attach --> Attached    at once, while the leader listens
//!  Acknowledge --> Answered        at once, while the leader has no commit under way
//!  news                            comes as long as it is true, or is lost
//!  a pin, a way back               asked for while no commit is under way: what waits for one is kept
//!  upload                          lands while a snapshot holds its file, or is cancelled
//! ```
//!
//! Invariant: nothing here tells a machine what is not so. It loses, hastens or delays what a network
//! and a store may lose, hasten or delay; and packs, which the specification does not know, stay out
//! of what reaches a leader.

use std::collections::BTreeSet;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::coordinator::{Coordinator, Phase};
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, ObjectName};
use stillpoint::protocol::manifest::Manifest;
use stillpoint::protocol::message::{Fate, Message, Notify};
use stillpoint::protocol::store::StorePayload;
use stillpoint::protocol::subtask::{FileView, RemoteView, View};

use super::World;
use super::attempt::Phase as Stage;
use super::calls::Operation;
use crate::conform::packs::{strip_acknowledgement, strip_attachment};
use crate::lsm::Content;
use crate::oracle::facts::{Caller, ProcessId};
use crate::store::Request;

impl World {
    /// Whether a message is the answer to one that came from an attempt.
    pub(super) fn is_answer(message: &Message) -> bool {
        matches!(message, Message::Attached(_) | Message::Answered(_))
    }

    /// Whether a coordinator has a commit under way, or follows others' commits.
    pub(super) fn is_committing(&self, id: ProcessId) -> bool {
        let process = self.coordinators.get(&id);
        process.is_some_and(|process| process.machine.view().commit.is_some())
    }

    /// Whether what a user asks for of an older checkpoint would have to wait, which keeps it meanwhile.
    pub(super) fn keeps_waiting(&self, id: ProcessId) -> bool {
        self.profile.is_modelled && self.is_committing(id)
    }

    /// Whether requests end with who made them.
    pub(super) fn ends_with(caller: Caller) -> bool {
        matches!(caller, Caller::Attempt(_) | Caller::Restore(_))
    }

    fn view_of(&self, attempt: AttemptId) -> Option<View> {
        match &self.instances.get(&attempt)?.phase {
            Stage::Running(running) => Some(running.machine.view()),
            Stage::Restoring(_) => None,
        }
    }

    /// Whether an attempt gets to hear a message of a leader.
    pub(super) fn is_heard(&self, attempt: AttemptId, from: ProcessId, message: &Message) -> bool {
        if World::is_answer(message) {
            return true;
        }
        let (Some(leader), Some(view)) = (self.coordinators.get(&from), self.view_of(attempt))
        else {
            return false;
        };
        let machine = &leader.machine;
        match message {
            Message::Lead(lead) => {
                let state = machine.view().attempts.get(&attempt);
                let is_wanted = state.is_some_and(|state| !state.attached);
                let listens = machine.view().phase == Phase::Leading
                    && !self.is_committing(from)
                    && leader.paused_until <= self.now;
                lead.epoch > view.epoch && is_wanted && listens
            }
            Message::Trigger(trigger) => {
                let pending = machine.view().pending.get(&trigger.checkpoint);
                let waits = pending.is_some_and(|pending| {
                    let mut plan = pending.plan.iter();
                    plan.any(|(subtask, planned)| {
                        *planned == attempt && pending.waits_for(*subtask)
                    })
                });
                waits && trigger.epoch == view.epoch
            }
            Message::Notify(notify) => {
                // Who was replaced hears of no completion any more.
                let is_named = machine.view().attempts.contains_key(&attempt);
                let is_meant = is_named || notify.fate == Fate::Aborted;
                is_meant && notify.epoch == view.epoch && is_news(notify, machine, &view)
            }
            Message::NotNamed(_)
            | Message::Attached(_)
            | Message::Answered(_)
            | Message::Attach(_)
            | Message::Acknowledge(_)
            | Message::Decline(_) => false,
        }
    }

    /// Takes the packs out of what an attempt says.
    pub(super) fn strip_packs(&self, message: &mut Message) {
        let is_file = |name: &FileName| {
            let content = self.watch.facts.files.get(name);
            !content.is_some_and(|id| matches!(self.contents.get(*id), Content::Pack(..)))
        };
        match message {
            Message::Acknowledge(said) => strip_acknowledgement(said, is_file),
            Message::Attach(said) => strip_attachment(said, is_file),
            Message::Lead(_)
            | Message::Attached(_)
            | Message::NotNamed(_)
            | Message::Trigger(_)
            | Message::Decline(_)
            | Message::Answered(_)
            | Message::Notify(_) => {}
        }
    }

    /// Whether a request lands now: an upload does while a snapshot under way holds its file.
    pub(super) fn may_land(&self, operation: &Operation) -> bool {
        let (Request::Upload { name, .. }, Caller::Attempt(attempt)) =
            (operation.request(), operation.caller())
        else {
            return true;
        };
        let uploads = |file: &FileView| file.remote == RemoteView::Uploading(*name);
        self.view_of(attempt).is_some_and(|view| {
            let mut snapshots = view.snapshots.iter();
            snapshots.any(|snapshot| snapshot.files.iter().any(uploads))
        })
    }

    /// Who goes back goes back along the line, which no other deployment is about to end.
    pub(super) fn keep_the_line(&self, id: ProcessId, older: &mut Vec<CheckpointId>) {
        let process = self.coordinators.get(&id);
        let manifest = process.and_then(|process| process.machine.view().manifest);
        let line = manifest.into_iter().flat_map(Manifest::lineage);
        let line: BTreeSet<CheckpointId> = line.collect();
        let is_deploying = process.is_some_and(|process| process.user.deploying.is_some());
        older.retain(|checkpoint| !is_deploying && line.contains(checkpoint));
    }

    /// A listing does not show what a named attempt has told to be below its floor.
    pub(super) fn hide_below_floors(&self, id: ProcessId, answer: &mut Answer<StorePayload>) {
        let Some(process) = self.coordinators.get(&id) else {
            return;
        };
        let attempts = process.machine.view().attempts;
        let floor = |attempt| attempts.get(&attempt).map_or(0, |state| state.floor);
        if let Answer::Done(StorePayload::Page { names, .. }) = answer {
            names.retain(|name| match ObjectName::parse(name) {
                Some(ObjectName::Shared(file)) => file.number >= floor(file.attempt),
                Some(ObjectName::Manifest(_) | ObjectName::Current) | None => true,
            });
        }
    }
}

/// Whether what a leader once said is still so, and makes a difference to the attempt.
fn is_news(notify: &Notify, leader: &Coordinator, attempt: &View) -> bool {
    let newest = leader
        .view()
        .manifest
        .and_then(|manifest| manifest.newest());
    let told = match notify.fate {
        Fate::Completed => notify.newest_completed.max(Some(notify.checkpoint)),
        Fate::Aborted | Fate::Subsumed => notify.newest_completed,
    };
    let rises = told > attempt.newest_completed && told <= Some(attempt.last_snapshot);
    let mut snapshots = attempt.snapshots.iter();
    match notify.fate {
        Fate::Completed | Fate::Subsumed => !rises || told == newest,
        Fate::Aborted => {
            let is_under_way = snapshots.any(|snapshot| snapshot.checkpoint == notify.checkpoint);
            is_under_way && (!rises || told == newest)
        }
    }
}
