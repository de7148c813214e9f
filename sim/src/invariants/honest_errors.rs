//! G7: what a user is told is so. No damage or trouble is reported where there is none, no checkpoint
//! or pin is called gone that is there, and no start is empty where something completed.
//!
//! A leader judges by the manifest as it knows it, and that is excused where it can't know better:
//!
//! - one that is deposed knows nothing of what others committed;
//! - what its own commit completed is news to it until it has heard of that commit's end;
//! - what guests have committed since its own last commit is news to it until it follows them.
//!
//! It also takes what it was asked for before into account.
//!
//! What it does not judge: refusals that speak of no manifest (too many requests, not yet, closing),
//! and that a commit fails.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::answer::FailureKind;
use stillpoint::protocol::coordinator::{Broken, CoordinatorError, Notice, RefusalReason};
use stillpoint::protocol::guest::{GuestError, PinWish};
use stillpoint::protocol::id::{AttemptId, CheckpointId, ObjectName, RequestId, SubtaskId};
use stillpoint::protocol::manifest::{Change, DAMAGED_READS_MAX, LoadError, PinOwner, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};
use crate::world::GuestId;

type Pins = BTreeSet<(CheckpointId, PinOwner)>;

/// What a guest may have seen since it came.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Seen {
    no_root: bool,
    nothing_complete: bool,
    no_room: bool,
}

/// The promise, with what those who tell something may know.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HonestErrors {
    /// Completed by a commit whose end nobody has told.
    untold: BTreeSet<CheckpointId>,
    /// The pins at any time since a leader's last commit, and those at all times since.
    pins_ever: Pins,
    pins_always: Pins,
    /// The pins that were asked for, and are to be answered.
    wishes: BTreeMap<(ProcessId, RequestId), PinWish>,
    guests: BTreeMap<GuestId, Seen>,
}

impl HonestErrors {
    fn committed(&mut self, facts: &Facts, record: &Record) -> Verdict {
        for change in &record.changes {
            match change {
                Change::Claim { .. } => self.untold.clear(),
                Change::Complete(completion) => {
                    self.untold.insert(completion.checkpoint);
                }
                _ => {}
            }
        }
        for seen in self.guests.values_mut() {
            seen.no_room |= has_no_room(facts);
        }
        let is_aborted = |id| facts.aborted.iter().any(|(aborted, _)| *aborted == id);
        let mut completed = record.changes.iter().filter_map(Change::completion);
        match completed.find(|completed| is_aborted(completed.checkpoint)) {
            Some(completed) => Self::broken(format!(
                "{} was called aborted, and it completes",
                completed.checkpoint
            )),
            None => Ok(()),
        }
    }

    /// `CURRENT` names this record as the last: whose commit was it?
    fn named(&mut self, facts: &Facts) {
        let pins = &facts.durable.pins;
        let last = facts.current_names.last();
        let maker = last.and_then(|name| facts.makers.get(name));
        if matches!(maker, Some(Caller::Guest(_))) {
            self.pins_ever.extend(pins.iter().cloned());
            self.pins_always.retain(|pin| pins.contains(pin));
        } else if self.pins_ever != *pins || self.pins_always != *pins {
            self.pins_ever.clone_from(pins);
            self.pins_always.clone_from(pins);
        }
    }

    fn told(&mut self, facts: &Facts, process: ProcessId, notice: &Notice) -> Verdict {
        match notice {
            Notice::Failed {
                error: CoordinatorError::Load(error),
            }
            | Notice::StoreTrouble { error }
                if !is_honest(facts, Caller::Coordinator(process), error) =>
            {
                Self::broken(format!("{process} reports what is not so: {error}"))
            }
            Notice::Failed {
                error: CoordinatorError::Broken(broken),
            } if !is_broken(facts, process, broken) => Self::broken(format!(
                "{process} reports damage where there is none: {broken}"
            )),
            Notice::Deployed {
                attempts,
                restore: None,
                ..
            } => starts_empty(facts, process, attempts),
            Notice::Aborted { checkpoint, reason } if facts.completed.contains(checkpoint) => {
                Self::broken(format!(
                    "{process} calls {checkpoint} aborted ({reason:?}), and it is complete"
                ))
            }
            Notice::Unparsable { names } => Self::broken(format!(
                "{process} can't parse {names:?}, and all names are ours"
            )),
            Notice::Completed { checkpoint } => {
                self.untold.remove(checkpoint);
                Ok(())
            }
            Notice::Done { request } => {
                self.wishes.remove(&(process, *request));
                Ok(())
            }
            Notice::Unknown { requests, .. } => {
                for request in requests {
                    self.wishes.remove(&(process, *request));
                }
                Ok(())
            }
            Notice::Refused { request, reason } => {
                let wish = self.wishes.remove(&(process, *request));
                if self.is_refusal_true(facts, process, wish.as_ref(), reason) {
                    return Ok(());
                }
                Self::broken(format!(
                    "{process} refuses request {} ({reason:?}), which is not so",
                    request.0
                ))
            }
            _ => Ok(()),
        }
    }

    fn is_refusal_true(
        &self,
        facts: &Facts,
        process: ProcessId,
        wish: Option<&PinWish>,
        reason: &RefusalReason,
    ) -> bool {
        if facts.epochs.get(&process) != Some(&facts.durable.epoch) {
            return true;
        }
        let pin = wish.and_then(|wish| Some((wish.checkpoint?, wish.owner.clone())));
        let (Some(pin), Some(wish)) = (pin, wish) else {
            return self.is_checkpoint_refusal_true(facts, reason);
        };
        let is_wanted = |begins| {
            let wish = PinWish {
                begins,
                ..wish.clone()
            };
            self.wishes_of(process).any(|other| *other == wish)
        };
        match reason {
            RefusalReason::AlreadyPinned => self.pins_ever.contains(&pin) || is_wanted(true),
            RefusalReason::NoSuchPin => !self.pins_always.contains(&pin) || is_wanted(false),
            RefusalReason::TooManyPins => {
                let wanted = self.wishes_of(process).filter(|other| other.begins);
                self.pins_ever.len() + wanted.count() >= facts.config.pins_max
            }
            _ => self.is_checkpoint_refusal_true(facts, reason),
        }
    }

    fn wishes_of(&self, process: ProcessId) -> impl Iterator<Item = &PinWish> {
        let wishes = self.wishes.range((process, RequestId(0))..);
        let own = wishes.take_while(move |((of, _), _)| *of == process);
        own.map(|(_, wish)| wish)
    }

    fn is_checkpoint_refusal_true(&self, facts: &Facts, reason: &RefusalReason) -> bool {
        let retained = &facts.durable.retained;
        match reason {
            RefusalReason::NoSuchCheckpoint(checkpoint, named) => {
                let is_there = retained.contains_key(checkpoint);
                let all_known = self.untold.is_empty();
                (!is_there || self.untold.contains(checkpoint))
                    && (!all_known || retained.keys().eq(named))
            }
            // Nobody here asks for what can't be.
            RefusalReason::OtherParallelism { .. } | RefusalReason::Invalid(_) => false,
            _ => true,
        }
    }

    fn gives_up(&self, facts: &Facts, guest: GuestId, error: &GuestError) -> Verdict {
        let seen = self.guests.get(&guest).cloned().unwrap_or_default();
        let is_so = match error {
            GuestError::Load(error) => is_honest(facts, Caller::Guest(guest), error),
            GuestError::NoRoot => seen.no_root,
            GuestError::Unclaimed => seen.nothing_complete,
            GuestError::TooManyPins(_) => seen.no_room,
            // `PinsAreKept` judges what is told of pins.
            _ => true,
        };
        if is_so {
            return Ok(());
        }
        Self::broken(format!("{guest} was told what is not so: {error}"))
    }
}

/// A start without state: has something of the line completed that these attempts continue?
fn starts_empty(facts: &Facts, process: ProcessId, attempts: &[(SubtaskId, AttemptId)]) -> Verdict {
    let named = &facts.durable.named;
    let continues = |(subtask, attempt): &(_, _)| named.get(subtask) == Some(attempt);
    match facts.durable.newest {
        Some(newest) if attempts.iter().any(continues) => HonestErrors::broken(format!(
            "{process} starts {attempts:?} empty although {newest} completed"
        )),
        Some(_) | None => Ok(()),
    }
}

fn has_no_room(facts: &Facts) -> bool {
    facts.durable.pins.len() >= facts.config.pins_max
}

impl Invariant for HonestErrors {
    const NAME: &'static str = "HonestErrors";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::Committed(record) => self.committed(facts, record),
            Fact::CurrentNames(_) => {
                self.named(facts);
                Ok(())
            }
            Fact::Told(process, notice) => self.told(facts, *process, notice),
            Fact::PinAsked(process, request, wish) => {
                self.wishes.insert((*process, *request), wish.clone());
                Ok(())
            }
            Fact::CoordinatorGone(process) => {
                self.wishes.retain(|(of, _), _| of != process);
                Ok(())
            }
            Fact::GuestComes(guest, _) => {
                let seen = Seen {
                    no_root: !facts.has_current,
                    nothing_complete: facts.durable.newest.is_none(),
                    no_room: has_no_room(facts),
                };
                self.guests.insert(*guest, seen);
                Ok(())
            }
            Fact::GuestGivesUp(guest, error) => self.gives_up(facts, *guest, error),
            Fact::GuestGone(guest) => {
                self.guests.remove(guest);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Whether the manifest can't be loaded for this reason: each of as many reads as are made failed, or
/// brought damage, or came too late.
pub(crate) fn is_honest(facts: &Facts, caller: Caller, error: &LoadError) -> bool {
    match error {
        LoadError::Unreadable { name, failure } => {
            let tries = if failure.kind.is_retryable() {
                facts.config.read_tries_max
            } else {
                1
            };
            has_failed(facts, caller, *name, failure.kind, tries)
        }
        LoadError::Overtaken(times) => {
            *times > facts.config.read_tries_max && u64::from(*times) <= facts.durable.version.0
        }
        LoadError::Damaged { name, .. } => is_damaged(facts, caller, name),
        LoadError::CurrentMissing(_) => !facts.has_current,
        LoadError::Missing(name) => {
            facts.current_names.contains(name) && !facts.manifests.contains(name)
        }
        _ => false,
    }
}

/// Whether what leadership rests on is gone, damaged or may not be read.
fn is_broken(facts: &Facts, process: ProcessId, broken: &Broken) -> bool {
    let Broken { name, failure } = broken;
    match failure.kind {
        FailureKind::NotFound => !facts.holds(name),
        FailureKind::Corrupt => is_damaged(facts, Caller::Coordinator(process), name),
        kind => has_failed(facts, Caller::Coordinator(process), Some(*name), kind, 1),
    }
}

/// Whether as many of this reader's reads as are made have brought damage.
fn is_damaged(facts: &Facts, caller: Caller, name: &ObjectName) -> bool {
    let reads = facts.damaged_reads.get(&(caller, *name));
    reads.is_some_and(|reads| *reads >= DAMAGED_READS_MAX)
}

/// Whether so many reads have failed, the last one so.
fn has_failed(
    facts: &Facts,
    caller: Caller,
    name: Option<ObjectName>,
    kind: FailureKind,
    tries: u32,
) -> bool {
    let failed = facts.failed_reads.get(&(caller, name));
    failed.is_some_and(|failed| failed.count >= tries && failed.last == Some(kind))
}

#[cfg(test)]
mod tests;
