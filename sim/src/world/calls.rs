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

use stillpoint::protocol::answer::{Answer, FailureKind};
use stillpoint::protocol::coordinator;
use stillpoint::protocol::store::StoreToken;
use stillpoint::protocol::subtask;

use super::script::{RequestEffect, kind_of_request};
use super::story::{Kind, Line};
use super::{Entry, Happening, World, words};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::lsm::Content;
use crate::oracle::facts::{Caller, DeleteAnswer, Fact};
use crate::store::{Effect, Plain, Progress, Request, Response, StepContext};

/// A request on its way or being carried out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    caller: Caller,
    request: Request,
    progress: Progress,
    /// Its caller has been answered `Unknown` or will be; nothing more is to be said.
    is_silent: bool,
    /// What it reads is damaged on its way.
    is_damaged: bool,
}

impl Operation {
    /// In a few words.
    pub(super) fn describe(&self) -> String {
        let caller = words::lane_of(self.caller);
        format!("{caller} has it {}", words::request(&self.request))
    }
}

/// How long a caller waits for an answer, in microseconds.
pub(crate) const DEADLINE_MICROS: u64 = 60_000;
const DEADLINE: u64 = DEADLINE_MICROS;
/// So many times as long a guest waits at most.
const DEADLINES: u32 = 12;
/// How long a request or answer travels.
const TRAVEL: u64 = 2_000;
/// How many names begin to hang after everything else has healed.
const HANGING_AFTER_HEALING: u32 = 2;
/// Swaps are refused so many times as often as puts, of which there are more.
const PUTS_TO_A_REFUSAL: u32 = 10;
/// How late a request can land.
const LATE: u64 = 150_000;
/// How many times as late one lands that is very late.
const LATE_MOST: u32 = 15;
/// A delay is up to so many halves of what it is at least; see [`World::delay`].
const HALVES_MOST: u64 = 5;
/// The longest way of a request to the store, through its steps and back, without faults.
pub(crate) const ROUND_TRIP_MICROS: u64 = (2 * TRAVEL + 4 * (TRAVEL / 4)) * HALVES_MOST / 2;
/// The longest that a request which was lost or is late is felt: until it lands, and who waits for
/// what it holds up has given up as well.
pub(super) const IN_DOUBT_MICROS: u64 = DEADLINE + LATE * LATE_MOST as u64 + DEADLINE;

/// What becomes of a request.
#[derive(Clone, Copy)]
enum Fate {
    Good,
    Slow,
    LostRequest,
    LostAnswer,
    /// It lands so much later.
    Late(u64),
    Failed(FailureKind),
    Refused,
    Hangs,
    Torn,
    /// What it reads is damaged on its way.
    Damaged,
}

impl Operation {
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }
}

/// How long a caller waits for an answer that is lost. Guests wait longer now and then: so long that
/// `CURRENT` does not show any more what came of a commit.
fn patience(caller: Caller, choices: &mut Choices) -> u64 {
    match caller {
        Caller::Guest(_) => DEADLINE * u64::from(1 + choices.choose(DEADLINES, Label::StoreLate)),
        Caller::Coordinator(_) | Caller::Attempt(_) | Caller::Restore(_) => DEADLINE,
    }
}

fn delete_answer(answer: &Answer<()>) -> DeleteAnswer {
    match answer {
        Answer::Done(()) => DeleteAnswer::Done,
        Answer::Failed(failure) if !failure.kind.is_retryable() => DeleteAnswer::FailedForGood,
        Answer::Failed(_) | Answer::Refused => DeleteAnswer::FailedForNow,
        Answer::Unknown(_) => DeleteAnswer::Unknown,
    }
}

impl World {
    /// Sends a request to the store.
    pub(super) fn issue(&mut self, caller: Caller, request: Request, choices: &mut Choices) {
        let before = choices.about(kind_of_request(&request));
        self.send_off(caller, request, choices);
        choices.about(before);
    }

    fn send_off(&mut self, caller: Caller, request: Request, choices: &mut Choices) {
        self.note_request(caller, &request);
        self.count_request(caller, &request);
        self.note_asked(caller, &request);
        let fate = self.fate(&request, choices);
        self.tell_of_request(caller, &request, fate);
        let delay = self.delay(choices, Label::StoreDelay, TRAVEL);
        let mut operation = Operation {
            caller,
            request,
            progress: Progress::default(),
            is_silent: false,
            is_damaged: matches!(fate, Fate::Damaged),
        };
        match fate {
            Fate::Good | Fate::Damaged => self.let_land(operation, self.now + delay),
            Fate::Slow => {
                let more = DEADLINE * u64::from(1 + choices.choose(4, Label::StoreLate)) / 6;
                self.let_land(operation, self.now + delay + more);
            }
            Fate::LostRequest => self.answer_at(
                caller,
                operation.request.answered(Plain::Unknown),
                self.now + DEADLINE,
            ),
            Fate::LostAnswer | Fate::Late(_) => {
                operation.is_silent = true;
                let unknown = operation.request.answered(Plain::Unknown);
                let patience = patience(caller, choices);
                self.answer_at(caller, unknown, self.now + patience);
                let late = if let Fate::Late(later) = fate {
                    later
                } else {
                    0
                };
                self.let_land(operation, self.now + delay + late);
            }
            Fate::Failed(kind) => {
                let failed = Plain::Failed(kind, "not now");
                self.answer_at(caller, operation.request.answered(failed), self.now + delay);
            }
            Fate::Refused => {
                let refused = operation.request.answered(Plain::Refused);
                self.answer_at(caller, refused, self.now + delay);
            }
            Fate::Torn => {
                operation.is_silent = true;
                let unknown = operation.request.answered(Plain::Unknown);
                self.answer_at(caller, unknown, self.now + DEADLINE);
                operation.request = self.torn(operation.request);
                self.let_land(operation, self.now + delay);
            }
            Fate::Hangs => self.answer_at(
                caller,
                operation.request.answered(Plain::Unknown),
                self.now + DEADLINE,
            ),
        }
    }

    /// Tells of a request, and of what goes wrong with it.
    fn tell_of_request(&mut self, caller: Caller, request: &Request, fate: Fate) {
        if !self.story.is_told() {
            return;
        }
        let at = self.now;
        let lane = words::lane_of(caller);
        let what = words::request(request);
        self.story.send(at, "store", &lane, &what);
        let wrong = match fate {
            Fate::Good => None,
            Fate::Slow => Some((Fault::SlowStore, "is slow".to_owned())),
            Fate::LostRequest => Some((Fault::LostRequests, "never gets there".to_owned())),
            Fate::LostAnswer => Some((
                Fault::LostAnswers,
                "is carried out, its answer is lost".to_owned(),
            )),
            Fate::Late(later) => Some((
                Fault::LateRequests,
                format!("lands {} ms late, its caller no longer waits", later / 1000),
            )),
            Fate::Failed(kind) => Some((Fault::Throttling, format!("fails: {kind}"))),
            Fate::Refused => Some((
                Fault::SpuriousRefusals,
                "is refused for no reason".to_owned(),
            )),
            Fate::Hangs => Some((Fault::HangingNames, "hangs".to_owned())),
            Fate::Damaged => Some((Fault::DamagedReads, "is damaged on its way".to_owned())),
            Fate::Torn => Some((
                Fault::TornPuts,
                "leaves half of it, its answer is lost".to_owned(),
            )),
        };
        match wrong {
            None => self.story.tell(|| Line::new(at, lane, Kind::Call, what)),
            Some((fault, wrong)) => self.story.tell_fault(fault, || {
                Line::new(at, lane, Kind::Fault, format!("{what} - {wrong}"))
            }),
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
            (Request::Call(StoreCall::Swap { name, .. }), _) => {
                self.fact(Fact::SwapAsked(caller, *name));
            }
            (
                Request::Call(StoreCall::Read {
                    token: StoreToken::ReadManifest(name),
                }),
                Caller::Coordinator(_),
            ) => {
                self.fact(Fact::ManifestReadAsked(caller, *name));
            }
            (Request::Upload { name, content }, Caller::Attempt(attempt)) => {
                self.fact(Fact::UploadAsked(attempt, *name, *content));
            }
            (
                Request::Call(
                    StoreCall::Read { .. } | StoreCall::Create { .. } | StoreCall::List { .. },
                )
                | Request::Upload { .. }
                | Request::Fetch { .. },
                _,
            ) => {}
        }
    }

    /// What a put leaves that broke off half-way.
    fn torn(&mut self, request: Request) -> Request {
        use stillpoint::protocol::store::StoreCall;
        match request {
            Request::Call(StoreCall::Put { name, mut body }) => {
                body.truncate(body.len() / 2);
                self.fact(Fact::ManifestTorn);
                Request::Call(StoreCall::Put { name, body })
            }
            Request::Upload { name, .. } => {
                let content = self.contents.add(Content::Torn);
                self.fact(Fact::Torn(content));
                Request::Upload { name, content }
            }
            Request::Call(_) | Request::Delete { .. } | Request::Fetch { .. } => request,
        }
    }

    /// Whether a put under this name is never answered, whatever heals.
    fn hangs(&mut self, request: &Request, choices: &mut Choices) -> bool {
        let Request::Upload { name, .. } = request else {
            return false;
        };
        // Some names hang even after everything else has healed; not many, then.
        let may_hang = !self.healed || self.hanging_since_healed < HANGING_AFTER_HEALING;
        let rate = self.profile.rate(Fault::HangingNames, !may_hang);
        if !self.hanging.contains(name) && choices.chance(rate, Label::StoreFate) {
            self.hanging_since_healed += u32::from(self.healed);
            self.struck.note(Fault::HangingNames);
            self.hanging.insert(*name);
        }
        self.hanging.contains(name)
    }

    fn fate(&mut self, request: &Request, choices: &mut Choices) -> Fate {
        if let Some(effect) = self.request_rule(request) {
            return match effect {
                RequestEffect::LoseAnswer => Fate::LostAnswer,
                RequestEffect::LoseRequest => Fate::LostRequest,
                RequestEffect::Late(later) => Fate::Late(later),
                RequestEffect::Refuse => Fate::Refused,
                RequestEffect::Fail => Fate::Failed(FailureKind::Unavailable),
                RequestEffect::Deny => Fate::Failed(FailureKind::Denied),
                RequestEffect::Hang => Fate::Hangs,
                RequestEffect::Tear => Fate::Torn,
                RequestEffect::Damage => Fate::Damaged,
            };
        }
        if (self.deletes_hang && request.is_delete()) || self.hangs(request, choices) {
            return Fate::Hangs;
        }
        if self.outage.0 > self.now && !self.healed {
            self.struck.note(Fault::Outages);
            return Fate::Failed(if self.outage.1 {
                FailureKind::Denied
            } else {
                FailureKind::Unavailable
            });
        }
        // An upload is not in doubt where that is not modelled.
        let is_certain = self.profile.is_modelled && matches!(request, Request::Upload { .. });
        let mut strikes = |fault| {
            let rate = self.profile.rate(fault, self.healed);
            let doubtful = matches!(
                fault,
                Fault::LostAnswers
                    | Fault::LostRequests
                    | Fault::LateRequests
                    | Fault::SpuriousRefusals
            );
            // A label of its own: what older scenario files let go wrong with a put keeps its place.
            let (rate, label) = if fault == Fault::SpuriousRefusals && request.is_put() {
                (rate.rarer(PUTS_TO_A_REFUSAL), Label::Refusal)
            } else {
                (rate, Label::StoreFate)
            };
            let strikes = !(is_certain && doubtful) && choices.chance(rate, label);
            if strikes {
                self.struck.note(fault);
            }
            strikes
        };
        if strikes(Fault::LostAnswers) {
            Fate::LostAnswer
        } else if strikes(Fault::LostRequests) {
            Fate::LostRequest
        } else if request.is_put() && strikes(Fault::TornPuts) {
            Fate::Torn
        } else if request.is_write() && strikes(Fault::LateRequests) {
            Fate::Late(DEADLINE + LATE * u64::from(choices.choose(LATE_MOST + 1, Label::StoreLate)))
        } else if request.is_conditional() && strikes(Fault::SpuriousRefusals) {
            Fate::Refused
        } else if strikes(Fault::Throttling)
            || (matches!(request, Request::Upload { .. }) && strikes(Fault::FailedUploads))
            || (request.is_delete() && strikes(Fault::FailedDeletes))
        {
            Fate::Failed(FailureKind::Unavailable)
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
        let Some(operation) = self.operations.remove(&id) else {
            return;
        };
        if self.profile.is_modelled && !self.may_land(&operation) {
            self.operations.insert(id, operation);
            self.queue
                .schedule(self.now + TRAVEL, Happening::StoreStep(id));
            return;
        }
        let before = choices.about(kind_of_request(&operation.request));
        self.carry_out(id, operation, choices);
        choices.about(before);
    }

    /// Carries a request one step further.
    fn carry_out(&mut self, id: u64, mut operation: Operation, choices: &mut Choices) {
        self.events += 1;
        let mut effects = Vec::new();
        let mut context = StepContext {
            now: self.now,
            choices,
            profile: &self.profile,
            healed: self.healed,
            damages: operation.is_damaged,
            effects: &mut effects,
            struck: &mut self.struck,
        };
        let damaged = context.struck.count(Fault::DamagedReads);
        let response = self
            .store
            .step(&operation.request, &mut operation.progress, &mut context);
        self.take_effects(&effects, Some(&operation));
        self.note_delete(&operation.request, response.as_ref());
        if self.struck.count(Fault::DamagedReads) > damaged
            && let Some(name) = operation.request.reads()
        {
            self.fact(Fact::ReadDamaged(operation.caller, name));
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

    fn note_delete(&mut self, request: &Request, response: Option<&Response>) {
        if let (Request::Delete { name }, Some(Response::Delete { answer, .. })) =
            (request, response)
            && matches!(answer, Answer::Done(()))
        {
            self.fact(Fact::DeleteCarriedOut(*name));
        }
    }

    pub(super) fn take_effects(&mut self, effects: &[Effect], operation: Option<&Operation>) {
        for effect in effects {
            if let Some(operation) = operation {
                self.note_landed(operation.caller, effect);
            }
            self.note_effect(operation.map(Operation::caller), effect);
            let committed = self.watch.effect(effect);
            let at = self.now;
            self.story.tell(|| Line {
                from: operation.map(|operation| words::lane_of(operation.caller)),
                ..Line::new(
                    at,
                    "store".to_owned(),
                    Kind::Store,
                    match effect {
                        Effect::Stored(name, _) => format!("has {name}"),
                        Effect::Removed(name) => format!("lacks {name}"),
                    },
                )
            });
            if let Some(record) = committed {
                let caller = operation.map(Operation::caller);
                self.journal
                    .note(|| Entry::Committed(caller, record.clone()));
                self.note_committed(operation.map(Operation::caller), &record);
                self.count_pins(&record);
                self.tell(
                    || "store".to_owned(),
                    Kind::Commit,
                    || words::record(&record),
                );
            }
        }
    }

    /// Ends whatever a dead process had under way, where it does not live on without it.
    pub(super) fn drop_operations_of(&mut self, callers: impl Fn(Caller) -> bool) {
        let is_modelled = self.profile.is_modelled;
        if !self.store.outlives_caller() || is_modelled {
            let store = &mut self.store;
            self.operations.retain(|_, operation| {
                let goes = callers(operation.caller)
                    && (!store.outlives_caller() || World::ends_with(operation.caller));
                if goes {
                    store.abandon(&operation.progress);
                }
                !goes
            });
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
        // What has begun in a directory goes on to its end.
        let has_begun = self
            .operations
            .get(&id)
            .is_some_and(|operation| operation.progress != Progress::default());
        let is_cancelled = |choices: &mut Choices| choices.choose(2, Label::LocalDelay) == 1;
        if !has_begun
            && (self.profile.is_modelled || is_cancelled(choices))
            && let Some(operation) = self.operations.remove(&id)
        {
            let cancelled = Plain::Failed(FailureKind::Cancelled, "given up");
            let response = operation.request.answered(cancelled);
            self.answer_at(caller, response, self.now + TRAVEL);
        }
    }

    fn tell_of_answer(&mut self, caller: Caller, response: &Response) {
        if !self.story.is_told() {
            return;
        }
        let at = self.now;
        let lane = words::lane_of(caller);
        let (asked, said) = words::response(response);
        let since = self.story.arrive("store", &lane, &asked);
        self.story.tell(|| Line {
            from: Some("store".to_owned()),
            since,
            ..Line::new(at, lane, Kind::Answer, format!("{asked}: {said}"))
        });
    }

    pub(super) fn store_answer(
        &mut self,
        caller: Caller,
        response: Response,
        choices: &mut Choices,
    ) {
        self.tell_of_answer(caller, &response);
        self.count_answer(caller, &response);
        self.note_failed_read(caller, &response);
        self.note_store_heard(caller, &response);
        match (caller, response) {
            (Caller::Coordinator(process), Response::Call { token, mut answer }) => {
                if self.profile.is_modelled {
                    self.hide_below_floors(process, &mut answer);
                }
                let event = coordinator::Event::IoCompleted { token, answer };
                self.drive_coordinator(process, event, choices);
            }
            (Caller::Attempt(attempt), Response::Upload { name, answer }) => {
                self.mark_stored(attempt, name, &answer);
                if matches!(answer, Answer::Unknown(_)) && self.lives(caller) {
                    self.fact(Fact::UploadInDoubt(attempt, name));
                }
                let event = subtask::Event::IoCompleted {
                    token: subtask::OpToken::Upload(name),
                    answer: answer.map(subtask::Payload::Stored),
                };
                self.drive_attempt(attempt, event, choices);
            }
            (Caller::Attempt(attempt), Response::Delete { name, answer }) => {
                self.fact(Fact::DeleteAnswered(attempt, name, delete_answer(&answer)));
                let event = subtask::Event::IoCompleted {
                    token: subtask::OpToken::Delete(name),
                    answer: answer.map(|()| subtask::Payload::Nothing),
                };
                self.drive_attempt(attempt, event, choices);
            }
            (Caller::Restore(attempt), Response::Call { token, answer }) => {
                self.manifest_read(attempt, &token, answer, choices);
            }
            (Caller::Guest(guest), Response::Call { token, answer }) => {
                self.guest_answered(guest, &token, answer, choices);
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
            Caller::Guest(_) => 0,
            Caller::Attempt(attempt) | Caller::Restore(attempt) => {
                self.attempt_paused_until(attempt)
            }
        }
    }
}
