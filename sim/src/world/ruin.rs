//! What happens when more is lost than can be made good: `CURRENT` or an object of the manifest is gone
//! or damaged for good, or a file that the next restore needs is.
//!
//! ```text
//! all is well -> the power fails -> one object is ruined -> a coordinator comes, and a guest
//!                                                            |
//!                     no way to the manifest avoids it ------+--> both name it, and nothing changes
//!                     another way does ----------------------+--> the coordinator leads
//!                     it is a file of a state ---------------+--> the coordinator leads, the restore
//!                                                                 names it, nobody starts empty
//! ```
//!
//! Invariant: from the ruin on only this promise is judged. What the others know of the store is of
//! before.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of facts and errors only those that speak of what is ruined matter"
)]

use std::collections::BTreeSet;

use stillpoint::protocol::coordinator::{CoordinatorError, Notice};
use stillpoint::protocol::guest::GuestError;
use stillpoint::protocol::id::{ObjectName, SubtaskId};
use stillpoint::protocol::manifest::LoadError;

use super::World;
use super::story::Kind;
use crate::choice::{Choices, Label};
use crate::invariants::{Class, RUIN_IS_TOLD, Verdict, Violation};
use crate::oracle::facts::Fact;
use crate::store::Effect;

/// How an object is ruined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ruin {
    /// It is not there any more.
    Gone,
    /// Its bytes are others, whoever reads them.
    Damaged,
}

/// The promise that ruin is told, with what is ruined.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ruined {
    name: ObjectName,
    ruin: Ruin,
    role: Role,
    /// What retained checkpoints and `CURRENT` need, as far as it is left.
    needed: BTreeSet<ObjectName>,
    coordinator_told: bool,
    guest_told: bool,
    restore_told: bool,
}

/// What an object is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// No way to the manifest avoids it.
    Needed,
    /// It leads to the manifest, and so does another.
    Avoided,
    /// It is a file that a restore of this subtask needs, unless it is still on a local disk.
    StateOf(SubtaskId),
}

impl Ruined {
    /// An object is ruined, and these are needed besides.
    #[must_use]
    pub fn new(name: ObjectName, ruin: Ruin, role: Role, mut needed: BTreeSet<ObjectName>) -> Self {
        needed.remove(&name);
        Self {
            name,
            ruin,
            role,
            needed,
            coordinator_told: false,
            guest_told: false,
            restore_told: false,
        }
    }

    /// Whether nothing may change any more.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        self.role == Role::Needed
    }

    /// Whether everybody who comes has said what is to be said.
    #[must_use]
    pub fn is_told(&self) -> bool {
        match self.role {
            Role::Needed => self.coordinator_told && self.guest_told,
            Role::Avoided => self.coordinator_told,
            Role::StateOf(_) => self.restore_told,
        }
    }

    fn broken(&self, what: &str) -> Verdict {
        let ruined = match self.ruin {
            Ruin::Gone => "gone",
            Ruin::Damaged => "damaged",
        };
        Err(Violation {
            class: Class::Safety,
            promise: RUIN_IS_TOLD,
            what: format!("{} is {ruined} for good, and {what}", self.name),
        })
    }

    /// Whether an error says what is ruined, and how.
    fn is_named_by(&self, error: &LoadError) -> bool {
        match (self.ruin, error) {
            (Ruin::Gone, LoadError::CurrentMissing(_)) => self.name == ObjectName::Current,
            (Ruin::Gone, LoadError::Missing(name)) => self.name == ObjectName::Manifest(*name),
            (Ruin::Damaged, LoadError::Damaged { name, .. }) => self.name == *name,
            _ => false,
        }
    }

    /// Looks at what somebody says.
    ///
    /// # Errors
    /// The broken promise.
    pub fn observe(&mut self, fact: &Fact) -> Verdict {
        match fact {
            Fact::Told(_, Notice::Leading { .. }) if self.role == Role::Needed => {
                self.broken("somebody leads all the same")
            }
            Fact::Told(_, Notice::Leading { .. }) => {
                self.coordinator_told = true;
                Ok(())
            }
            Fact::Told(_, Notice::Deployed { restore: None, .. }) => {
                self.broken("somebody starts empty")
            }
            Fact::RestoreFailed(_, subtask, _, why) => {
                let is_named = why.contains(&self.name.to_string());
                if self.role != Role::StateOf(*subtask) || !is_named {
                    return self.broken(&format!("{subtask} can't be restored: {why}"));
                }
                self.restore_told = true;
                Ok(())
            }
            // It was still on a local disk.
            Fact::Restored(_, subtask, ..) => {
                self.restore_told |= self.role == Role::StateOf(*subtask);
                Ok(())
            }
            Fact::Told(_, Notice::Failed { error }) => {
                let named = match error {
                    CoordinatorError::Load(error) => self.is_named_by(error),
                    _ => false,
                };
                if !named || self.role != Role::Needed {
                    return self.broken(&format!("a coordinator says: {error}"));
                }
                self.coordinator_told = true;
                Ok(())
            }
            Fact::GuestGivesUp(_, error) if self.role == Role::Needed => {
                let named = match error {
                    GuestError::Load(error) => self.is_named_by(error),
                    _ => false,
                };
                if !named {
                    return self.broken(&format!("a guest is told: {error}"));
                }
                self.guest_told = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Looks at a change of the store.
    ///
    /// # Errors
    /// The broken promise.
    pub fn effect(&self, effect: &Effect) -> Verdict {
        match effect {
            Effect::Removed(name) if self.needed.contains(name) => {
                self.broken(&format!("{name} is deleted, which is needed"))
            }
            Effect::Stored(ObjectName::Current, _) if self.role == Role::Needed => {
                self.broken("CURRENT is written anew")
            }
            Effect::Removed(_) | Effect::Stored(..) => Ok(()),
        }
    }
}

impl World {
    /// The power fails, and one object is ruined of those that lead to the manifest. False if there is
    /// none.
    pub fn ruin(&mut self, choices: &mut Choices) -> bool {
        self.cut_power(choices);
        if !self.watch.facts.has_current || self.watch.violation.is_some() {
            return false;
        }
        let (name, ruin, role) = self.what_to_ruin(choices);
        let facts = &self.watch.facts;
        let held = facts.durable.held.keys();
        let mut needed: BTreeSet<_> = held.map(|name| ObjectName::Shared(*name)).collect();
        // Who leads moves on to other objects of the manifest.
        if role == Role::Needed {
            needed.extend(
                facts
                    .current_names
                    .iter()
                    .map(|name| ObjectName::Manifest(*name)),
            );
            needed.insert(ObjectName::Current);
        }
        self.store.ruin(&name, ruin, &mut self.contents);
        self.watch.ruined = Some(Ruined::new(name, ruin, role, needed));
        self.tell(
            || "faults".to_owned(),
            Kind::Fault,
            || match ruin {
                Ruin::Gone => format!("{name} is gone for good"),
                Ruin::Damaged => format!("{name} is damaged for good"),
            },
        );
        self.guest_comes(choices);
        true
    }

    /// `CURRENT`, any other object that leads to the manifest, or a file that is to be restored.
    fn what_to_ruin(&self, choices: &mut Choices) -> (ObjectName, Ruin, Role) {
        let facts = &self.watch.facts;
        let one_of = |count: usize, choices: &mut Choices| {
            choices.choose(u32::try_from(count).unwrap_or(1), Label::Ruin) as usize
        };
        let kind = choices.choose(3, Label::Ruin);
        let durable = &facts.durable;
        let restored = durable
            .restore_point()
            .and_then(|at| durable.retained.get(&at));
        let files = restored.iter().flat_map(|retained| &retained.subtasks);
        let files: Vec<_> = files
            .flat_map(|(subtask, files)| files.values().map(|file| (*subtask, file.name)))
            .collect();
        if kind == 2 && !files.is_empty() {
            let (subtask, file) = files[one_of(files.len(), choices)];
            let ruin = gone_or_damaged(choices);
            return (ObjectName::Shared(file), ruin, Role::StateOf(subtask));
        }
        let names = &facts.current_names;
        let name = if kind == 1 && !names.is_empty() {
            ObjectName::Manifest(names[one_of(names.len(), choices)])
        } else {
            ObjectName::Current
        };
        let ruin = gone_or_damaged(choices);
        let role = if self.watch.needs(&name) {
            Role::Needed
        } else {
            Role::Avoided
        };
        (name, ruin, role)
    }
}

fn gone_or_damaged(choices: &mut Choices) -> Ruin {
    match choices.choose(2, Label::Ruin) {
        0 => Ruin::Gone,
        _ => Ruin::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::answer::{Failure, FailureKind};
    use stillpoint::protocol::coordinator::Broken;
    use stillpoint::protocol::id::{
        AttemptId, CheckpointId, Epoch, FileName, ManifestName, Nonce, RequestId, Version,
    };
    use stillpoint::protocol::manifest::DecodeError;

    use super::*;
    use crate::lsm::ContentId;
    use crate::oracle::facts::ProcessId;
    use crate::store::Body;
    use crate::world::GuestId;

    const RECORD: ManifestName = ManifestName {
        version: Version(1),
        epoch: Epoch(1),
        nonce: Nonce(1),
    };

    fn ruined(name: ObjectName, ruin: Ruin, role: Role) -> Ruined {
        let file = ObjectName::Shared(FileName {
            attempt: AttemptId(1),
            number: 1,
        });
        Ruined::new(name, ruin, role, [name, file].into())
    }

    fn fails(error: LoadError) -> Fact {
        let error = CoordinatorError::Load(error);
        Fact::Told(ProcessId(0), Notice::Failed { error })
    }

    fn damaged(name: ObjectName) -> LoadError {
        let error = DecodeError::Empty;
        LoadError::Damaged { name, error }
    }

    fn leads() -> Fact {
        Fact::Told(ProcessId(0), Notice::Leading { epoch: Epoch(2) })
    }

    #[test]
    fn the_error_must_name_what_is_ruined_and_how() {
        let current = ObjectName::Current;
        let record = ObjectName::Manifest(RECORD);
        let errors = [
            (
                current,
                Ruin::Gone,
                LoadError::CurrentMissing(String::new()),
            ),
            (current, Ruin::Damaged, damaged(current)),
            (record, Ruin::Gone, LoadError::Missing(RECORD)),
            (record, Ruin::Damaged, damaged(record)),
        ];
        for (place, (name, ruin, _)) in errors.iter().enumerate() {
            for (other, (_, _, error)) in errors.iter().enumerate() {
                let mut ruined = ruined(*name, *ruin, Role::Needed);
                let verdict = ruined.observe(&fails(error.clone()));
                assert_eq!(verdict.is_ok(), place == other, "{name} {ruin:?}: {error}");
            }
        }
        let failure = Failure::new(FailureKind::NotFound, "");
        let error = CoordinatorError::Broken(Broken {
            name: current,
            failure,
        });
        let other = Fact::Told(ProcessId(0), Notice::Failed { error });
        assert!(
            ruined(current, Ruin::Gone, Role::Needed)
                .observe(&other)
                .is_err()
        );
    }

    #[test]
    fn leading_without_what_is_needed_breaks_it_and_is_wanted_otherwise() {
        let record = ObjectName::Manifest(RECORD);
        assert!(
            ruined(record, Ruin::Gone, Role::Needed)
                .observe(&leads())
                .is_err()
        );
        let mut avoided = ruined(record, Ruin::Gone, Role::Avoided);
        assert!(!avoided.is_told());
        avoided.observe(&leads()).expect("another way leads there");
        assert!(avoided.is_told());
        let gives_up = fails(LoadError::Missing(RECORD));
        assert!(avoided.observe(&gives_up).is_err());
    }

    #[test]
    fn a_guest_must_say_it_too() {
        let mut current = ruined(ObjectName::Current, Ruin::Gone, Role::Needed);
        current
            .observe(&fails(LoadError::CurrentMissing(String::new())))
            .expect("so it is");
        assert!(!current.is_told());
        let told = |error| Fact::GuestGivesUp(GuestId(0), error);
        assert!(current.observe(&told(GuestError::NoRoot)).is_err());
        let error = GuestError::Load(LoadError::CurrentMissing(String::new()));
        current.observe(&told(error)).expect("so it is");
        assert!(current.is_told());
    }

    #[test]
    fn losing_more_breaks_it() {
        let current = ruined(ObjectName::Current, Ruin::Damaged, Role::Needed);
        let file = |number| {
            let attempt = AttemptId(1);
            ObjectName::Shared(FileName { attempt, number })
        };
        assert!(current.effect(&Effect::Removed(file(1))).is_err());
        current
            .effect(&Effect::Removed(file(2)))
            .expect("nobody needs it");
        let anew = Effect::Stored(ObjectName::Current, Body::State(ContentId(1)));
        assert!(current.effect(&anew).is_err());
    }

    #[test]
    fn a_restore_that_can_t_be_must_name_the_file_and_nobody_starts_empty() {
        let (attempt, subtask) = (AttemptId(2), SubtaskId::default());
        let file = FileName {
            attempt: AttemptId(1),
            number: 2,
        };
        let new = || ruined(ObjectName::Shared(file), Ruin::Gone, Role::StateOf(subtask));
        let fails =
            |subtask, why: String| Fact::RestoreFailed(CheckpointId(1), subtask, attempt, why);
        let mut told = new();
        told.observe(&leads()).expect("the manifest is whole");
        assert!(!told.is_told());
        told.observe(&fails(subtask, format!("not found: {file}")))
            .expect("so it is");
        assert!(told.is_told());
        assert!(
            new()
                .observe(&fails(subtask, "no idea".to_owned()))
                .is_err()
        );
        let other = SubtaskId {
            index: 1,
            ..subtask
        };
        assert!(new().observe(&fails(other, format!("{file}"))).is_err());
        let empty = Notice::Deployed {
            request: RequestId(1),
            attempts: vec![(subtask, attempt)],
            restore: None,
        };
        assert!(new().observe(&Fact::Told(ProcessId(0), empty)).is_err());
    }
}
