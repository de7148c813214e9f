//! Requests on their way to the store, and answers on their way back.
//!
//! ```text
//! issue --(delay)--> step --(delay)--> answer          as it should be
//! issue --x                  deadline: Unknown         the request is lost
//! issue --(delay)--> step --x deadline: Unknown        the answer is lost
//! issue ------------ deadline: Unknown --> step        it lands late, its caller perhaps dead
//! issue --(delay)--> Failed | Refused                  throttled, or refused for nothing
//! ```
//!
//! Invariant: each request is answered exactly once, if its caller lives.

use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::coordinator;
use stillpoint::protocol::subtask;

use super::story::{Kind, Line};
use super::{Happening, World};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::oracle::facts::{Caller, Fact};
use crate::store::{Effect, Plain, Progress, Request, Response, StepContext};

/// A request on its way or being carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    caller: Caller,
    request: Request,
    progress: Progress,
    /// Its caller has been answered `Unknown` or will be; nothing more is to be said.
    is_silent: bool,
}

/// How long a caller waits for an answer, in microseconds.
const DEADLINE: u64 = 60_000;
/// How long a request or answer travels.
const TRAVEL: u64 = 2_000;
/// How late a request can land.
const LATE: u64 = 150_000;

/// What becomes of a request.
#[derive(Clone, Copy)]
enum Fate {
    Good,
    Slow,
    LostRequest,
    LostAnswer,
    Late,
    Failed,
    Refused,
    Hangs,
}

impl World {
    /// Sends a request to the store.
    pub(super) fn issue(&mut self, caller: Caller, request: Request, choices: &mut Choices) {
        self.note_request(caller, &request);
        let fate = self.fate(&request, choices);
        let delay = self.delay(choices, Label::StoreDelay, TRAVEL);
        let mut operation = Operation {
            caller,
            request,
            progress: Progress::default(),
            is_silent: false,
        };
        match fate {
            Fate::Good => self.let_land(operation, self.now + delay),
            Fate::Slow => {
                let more = DEADLINE * u64::from(1 + choices.choose(4, Label::StoreLate)) / 6;
                self.let_land(operation, self.now + delay + more);
            }
            Fate::LostRequest => self.answer_at(
                caller,
                operation.request.answered(Plain::Unknown),
                self.now + DEADLINE,
            ),
            Fate::LostAnswer | Fate::Late => {
                operation.is_silent = true;
                let unknown = operation.request.answered(Plain::Unknown);
                self.answer_at(caller, unknown, self.now + DEADLINE);
                let late = match fate {
                    Fate::Late => DEADLINE + LATE * u64::from(choices.choose(16, Label::StoreLate)),
                    _ => 0,
                };
                self.let_land(operation, self.now + delay + late);
            }
            Fate::Failed => {
                let failed = Plain::Failed(FailureKind::Unavailable, "slow down");
                self.answer_at(caller, operation.request.answered(failed), self.now + delay);
            }
            Fate::Refused => {
                let refused = operation.request.answered(Plain::Refused);
                self.answer_at(caller, refused, self.now + delay);
            }
            Fate::Hangs => self.answer_at(
                caller,
                operation.request.answered(Plain::Unknown),
                self.now + DEADLINE,
            ),
        }
    }

    fn note_request(&mut self, caller: Caller, request: &Request) {
        use stillpoint::protocol::store::StoreCall;
        match (request, caller) {
            (Request::Call(StoreCall::DeleteFile { name }) | Request::Delete { name }, _) => {
                self.fact(Fact::DeleteAsked(caller, *name));
            }
            (Request::Call(StoreCall::DeleteManifest { name }), _) => {
                self.fact(Fact::ManifestDeleteAsked(caller, *name));
            }
            (Request::Call(StoreCall::Put { name, .. }), _) => {
                self.fact(Fact::ManifestPutAsked(caller, *name));
            }
            (Request::Upload { name, content }, Caller::Attempt(attempt)) => {
                self.fact(Fact::UploadAsked(attempt, *name, *content));
            }
            (
                Request::Call(
                    StoreCall::Read { .. }
                    | StoreCall::Create { .. }
                    | StoreCall::Swap { .. }
                    | StoreCall::List { .. },
                )
                | Request::Upload { .. }
                | Request::Fetch { .. },
                _,
            ) => {}
        }
    }

    fn fate(&mut self, request: &Request, choices: &mut Choices) -> Fate {
        if self.deletes_hang && request.is_delete() {
            return Fate::Hangs;
        }
        let mut strikes = |fault| {
            let rate = self.profile.rate(fault, self.healed);
            let strikes = choices.chance(rate, Label::StoreFate);
            if strikes {
                self.struck.note(fault);
            }
            strikes
        };
        if strikes(Fault::LostAnswers) {
            Fate::LostAnswer
        } else if strikes(Fault::LostRequests) {
            Fate::LostRequest
        } else if request.is_write() && strikes(Fault::LateRequests) {
            Fate::Late
        } else if request.is_swap() && strikes(Fault::SpuriousRefusals) {
            Fate::Refused
        } else if strikes(Fault::Throttling)
            || (matches!(request, Request::Upload { .. }) && strikes(Fault::FailedUploads))
            || (request.is_delete() && strikes(Fault::FailedDeletes))
        {
            Fate::Failed
        } else if strikes(Fault::SlowStore) {
            Fate::Slow
        } else {
            Fate::Good
        }
    }

    fn let_land(&mut self, operation: Operation, at: u64) {
        let id = self.operation_count;
        self.operation_count += 1;
        self.operations.insert(id, operation);
        self.queue.schedule(at, Happening::StoreStep(id));
    }

    fn answer_at(&mut self, caller: Caller, response: Response, at: u64) {
        self.queue
            .schedule(at, Happening::StoreAnswer(caller, Box::new(response)));
    }

    pub(super) fn store_step(&mut self, id: u64, choices: &mut Choices) {
        let Some(mut operation) = self.operations.remove(&id) else {
            return;
        };
        self.events += 1;
        let mut effects = Vec::new();
        let mut context = StepContext {
            now: self.now,
            choices,
            profile: &self.profile,
            healed: self.healed,
            effects: &mut effects,
            struck: &mut self.struck,
        };
        let response = self
            .store
            .step(&operation.request, &mut operation.progress, &mut context);
        self.take_effects(&effects, Some(&operation));
        if self.struck.count(Fault::DamagedReads) > 0 && !self.watch.facts.reads_damaged {
            self.fact(Fact::ReadDamaged);
        }
        match response {
            None => {
                let delay = self.delay(choices, Label::StoreDelay, TRAVEL / 4);
                self.operations.insert(id, operation);
                self.queue
                    .schedule(self.now + delay, Happening::StoreStep(id));
            }
            Some(_) if operation.is_silent => {}
            Some(response) => {
                let delay = self.delay(choices, Label::StoreDelay, TRAVEL);
                self.answer_at(operation.caller, response, self.now + delay);
            }
        }
    }

    pub(super) fn take_effects(&mut self, effects: &[Effect], operation: Option<&Operation>) {
        for effect in effects {
            let committed = self.watch.effect(effect);
            let at = self.now;
            let from = operation.map(|operation| lane_of(operation.caller));
            self.story.tell(|| Line {
                at,
                lane: "store".to_owned(),
                kind: Kind::Store,
                text: match effect {
                    Effect::Stored(name, _) => format!("has {name}"),
                    Effect::Removed(name) => format!("lacks {name}"),
                },
                from,
            });
            if let Some(record) = committed {
                self.tell(
                    || "store".to_owned(),
                    Kind::Commit,
                    || {
                        format!(
                            "{} of {}: {:?}",
                            record.version, record.epoch, record.changes
                        )
                    },
                );
            }
        }
    }

    /// Ends whatever a dead process had under way, where it does not live on without it.
    pub(super) fn drop_operations_of(&mut self, callers: impl Fn(Caller) -> bool) {
        if !self.store.outlives_caller() {
            self.operations
                .retain(|_, operation| !callers(operation.caller));
        }
    }

    /// Stops a request of this caller that has not been carried out, if the choice is so.
    pub(super) fn cancel_upload(
        &mut self,
        caller: Caller,
        wanted: impl Fn(&Request) -> bool,
        choices: &mut Choices,
    ) {
        let found = self
            .operations
            .iter()
            .find(|(_, operation)| {
                operation.caller == caller && !operation.is_silent && wanted(&operation.request)
            })
            .map(|(id, _)| *id);
        let Some(id) = found else {
            return;
        };
        if choices.choose(2, Label::LocalDelay) == 1
            && let Some(operation) = self.operations.remove(&id)
        {
            let cancelled = Plain::Failed(FailureKind::Cancelled, "given up");
            let response = operation.request.answered(cancelled);
            self.answer_at(caller, response, self.now + TRAVEL);
        }
    }

    pub(super) fn store_answer(
        &mut self,
        caller: Caller,
        response: Response,
        choices: &mut Choices,
    ) {
        match (caller, response) {
            (Caller::Coordinator(process), Response::Call { token, answer }) => {
                let event = coordinator::Event::IoCompleted { token, answer };
                self.drive_coordinator(process, event, choices);
            }
            (Caller::Attempt(attempt), Response::Upload { name, answer }) => {
                let event = subtask::Event::IoCompleted {
                    token: subtask::OpToken::Upload(name),
                    answer: answer.map(subtask::Payload::Stored),
                };
                self.drive_attempt(attempt, event, choices);
            }
            (Caller::Attempt(attempt), Response::Delete { name, answer }) => {
                let event = subtask::Event::IoCompleted {
                    token: subtask::OpToken::Delete(name),
                    answer: answer.map(|()| subtask::Payload::Nothing),
                };
                self.drive_attempt(attempt, event, choices);
            }
            (Caller::Restore(attempt), Response::Call { token, answer }) => {
                self.manifest_read(attempt, &token, answer, choices);
            }
            (Caller::Restore(attempt), Response::Fetch { name, answer }) => {
                self.fetched(attempt, name, answer, choices);
            }
            (caller, response) => panic!("{caller:?} is answered {response:?}"),
        }
    }

    pub(super) fn caller_paused_until(&self, caller: Caller) -> u64 {
        match caller {
            Caller::Coordinator(process) => self.coordinator_paused_until(process),
            Caller::Attempt(attempt) | Caller::Restore(attempt) => {
                self.attempt_paused_until(attempt)
            }
        }
    }
}

/// The lane of a story in which a caller stands.
pub(super) fn lane_of(caller: Caller) -> String {
    match caller {
        Caller::Coordinator(process) => process.to_string(),
        Caller::Attempt(attempt) | Caller::Restore(attempt) => attempt.to_string(),
    }
}
