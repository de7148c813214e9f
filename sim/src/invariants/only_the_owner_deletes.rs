//! Each object has one owner at any time, and nobody else asks for its deletion.
//!
//! A state file: a coordinator deletes only tombstones, an attempt only what it made and no leader
//! has taken over.
//!
//! A manifest object: nobody deletes what `CURRENT` names, and what somebody asked to delete it
//! never comes to name. Else it is deleted
//!
//! 1. by whoever made it, if `CURRENT` never named it;
//! 2. by a leader, if `CURRENT` named it before;
//! 3. by a leader, if its epoch is lower than the leader's own;
//! 4. by a leader, if it is a record of the leader's epoch for a version that `CURRENT` has reached
//!    without it.

use std::collections::BTreeSet;

use stillpoint::protocol::id::{CheckpointId, ManifestName};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts};

/// The promise, with what of the past is not in [`Facts`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct OnlyTheOwnerDeletes {
    /// The manifest objects that `CURRENT` has ever named.
    named: BTreeSet<ManifestName>,
    /// Those that somebody asked to delete and that it has never named.
    given_up: BTreeSet<ManifestName>,
}

impl OnlyTheOwnerDeletes {
    fn delete_manifest(&mut self, facts: &Facts, caller: Caller, name: ManifestName) -> Verdict {
        if facts.current_names.contains(&name) {
            return Self::broken(format!("{caller:?} deletes {name}, which CURRENT names"));
        }
        let is_new = !self.named.contains(&name);
        let is_the_makers = is_new && facts.makers.get(&name) == Some(&caller);
        if !is_the_makers && !self.is_a_leaders(facts, caller, name) {
            return Self::broken(format!("{caller:?} deletes {name}, which it does not own"));
        }
        if is_new {
            self.given_up.insert(name);
        }
        Ok(())
    }

    /// Whether the caller leads, or has led, and may delete this for that.
    fn is_a_leaders(&self, facts: &Facts, caller: Caller, name: ManifestName) -> bool {
        let Caller::Coordinator(process) = caller else {
            return false;
        };
        facts.epochs.get(&process).is_some_and(|epoch| {
            let came_too_late = name.epoch == *epoch && name.version <= facts.durable.version;
            self.named.contains(&name) || name.epoch < *epoch || came_too_late
        })
    }

    fn name_all(&mut self, names: &[ManifestName]) -> Verdict {
        // Most were named by the one before.
        for name in names {
            if self.named.insert(*name) && self.given_up.contains(name) {
                return Self::broken(format!(
                    "CURRENT names {name}, which somebody asked to delete"
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for OnlyTheOwnerDeletes {
    const NAME: &'static str = "OnlyTheOwnerDeletes";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::DeleteAsked(Caller::Coordinator(process), name) => {
                if facts.durable.ever_condemned.contains(name) {
                    return Ok(());
                }
                Self::broken(format!("{process} deletes {name}, which is no tombstone"))
            }
            Fact::DeleteAsked(Caller::Attempt(attempt), name) => {
                if name.attempt != *attempt {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which it did not make"
                    ));
                }
                if facts.durable.held.contains_key(name) {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which a retained checkpoint holds"
                    ));
                }
                let of_attempt = (*attempt, CheckpointId(0))..=(*attempt, CheckpointId(u64::MAX));
                let mut borne = facts.acknowledged.range(of_attempt);
                if let Some(((_, checkpoint), _)) = borne.find(|(_, names)| names.contains(name)) {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which its acknowledgement of {checkpoint} bore"
                    ));
                }
                if facts.answered.contains(name) {
                    return Self::broken(format!(
                        "{attempt} deletes {name}, which a leader has taken over"
                    ));
                }
                Ok(())
            }
            Fact::DeleteAsked(Caller::Guest(guest), name) => {
                Self::broken(format!("{guest} deletes {name}, and owns nothing"))
            }
            Fact::DeleteAsked(Caller::Restore(attempt), name) => {
                Self::broken(format!("{attempt} deletes {name} while it restores"))
            }
            Fact::ManifestDeleteAsked(caller, name) => self.delete_manifest(facts, *caller, *name),
            Fact::CurrentNames(names) => self.name_all(names),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::message;

    use stillpoint::protocol::coordinator::Notice;
    use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, Nonce, Version};

    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::ProcessId;
    use crate::world::GuestId;

    #[test]
    fn a_coordinator_that_deletes_without_a_tombstone_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let asked = Fact::DeleteAsked(Caller::Coordinator(ProcessId(0)), name(1, 1));
        assert!(show(&mut invariant, &mut facts, asked).is_err());
    }

    #[test]
    fn an_attempt_that_deletes_anothers_file_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes::default(), Facts::default());
        let own = Fact::DeleteAsked(Caller::Attempt(AttemptId(2)), name(2, 1));
        show(&mut invariant, &mut facts, own).expect("its own");
        let other = Fact::DeleteAsked(Caller::Attempt(AttemptId(2)), name(1, 1));
        assert!(show(&mut invariant, &mut facts, other).is_err());
    }

    #[test]
    fn an_attempt_that_deletes_what_was_answered_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes::default(), Facts::default());
        let history = [
            Fact::Acknowledged(AttemptId(1), CheckpointId(1), vec![name(1, 1)]),
            Fact::AnswerSent(
                ProcessId(0),
                AttemptId(1),
                CheckpointId(1),
                message::Verdict::Accepted,
            ),
        ];
        for fact in history {
            show(&mut invariant, &mut facts, fact).expect("nothing is deleted");
        }
        let asked = Fact::DeleteAsked(Caller::Attempt(AttemptId(1)), name(1, 1));
        assert!(show(&mut invariant, &mut facts, asked).is_err());
    }

    #[test]
    fn an_attempt_that_deletes_what_is_retained_breaks_it() {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let completes = vec![complete(1, &[file(1, 1)], &[])];
        commit(&mut invariant, &mut facts, completes).expect("completes");
        let asked = |number| Fact::DeleteAsked(Caller::Attempt(AttemptId(1)), name(1, number));
        assert!(show(&mut invariant, &mut facts, asked(1)).is_err());
        show(&mut invariant, &mut facts, asked(2)).expect("nobody holds it");
    }

    #[test]
    fn whoever_owns_nothing_and_deletes_breaks_it() {
        for caller in [Caller::Guest(GuestId(0)), Caller::Restore(AttemptId(1))] {
            let (mut invariant, mut facts) = (OnlyTheOwnerDeletes::default(), Facts::default());
            let asked = Fact::DeleteAsked(caller, name(1, 1));
            assert!(show(&mut invariant, &mut facts, asked).is_err());
        }
    }

    fn object(version: u64, epoch: u64, nonce: u64) -> ManifestName {
        ManifestName {
            version: Version(version),
            epoch: Epoch(epoch),
            nonce: Nonce(nonce),
        }
    }

    /// A leader of epoch 2 at version 2, who has put all of these.
    fn leading(puts: &[ManifestName]) -> (OnlyTheOwnerDeletes, Facts) {
        let (mut invariant, mut facts) = (OnlyTheOwnerDeletes::default(), Facts::default());
        facts.durable.version = Version(2);
        facts.durable.epoch = Epoch(2);
        for fact in puts
            .iter()
            .map(|name| put(Caller::Coordinator(LEADER), *name))
        {
            show(&mut invariant, &mut facts, fact).expect("a put");
        }
        let leads = Fact::Told(LEADER, Notice::Leading { epoch: Epoch(2) });
        show(&mut invariant, &mut facts, leads).expect("leads");
        (invariant, facts)
    }

    fn put(caller: Caller, name: ManifestName) -> Fact {
        Fact::ManifestPutAsked(caller, name)
    }

    fn deletes(process: u32, name: ManifestName) -> Fact {
        Fact::ManifestDeleteAsked(Caller::Coordinator(ProcessId(process)), name)
    }

    #[test]
    fn deleting_what_current_names_breaks_it_and_what_it_named_does_not() {
        let (old, new) = (object(2, 2, 1), object(3, 2, 2));
        let (mut invariant, mut facts) = leading(&[old, new]);
        let names = |name| Fact::CurrentNames(vec![name]);
        show(&mut invariant, &mut facts, names(old)).expect("new");
        assert!(show(&mut invariant, &mut facts, deletes(0, old)).is_err());
        show(&mut invariant, &mut facts, names(new)).expect("new");
        show(&mut invariant, &mut facts, deletes(0, old)).expect("named no longer");
        // Somebody who never led owns nothing that he did not make.
        assert!(show(&mut invariant, &mut facts, deletes(1, old)).is_err());
    }

    #[test]
    fn deleting_what_may_still_be_named_breaks_it() {
        let (mut invariant, mut facts) = leading(&[]);
        let next = [object(3, 2, 9), object(3, 3, 9), object(2, 3, 9)];
        for name in next {
            assert!(show(&mut invariant, &mut facts, deletes(0, name)).is_err());
        }
        for name in [object(3, 1, 9), object(2, 2, 9)] {
            show(&mut invariant, &mut facts, deletes(0, name)).expect("it comes too late");
        }
    }

    #[test]
    fn a_guest_deletes_only_what_it_made() {
        let (own, other, done) = (object(3, 2, 1), object(1, 1, 2), object(2, 2, 3));
        let (mut invariant, mut facts) = leading(&[other]);
        let guest = Caller::Guest(GuestId(0));
        show(&mut invariant, &mut facts, put(guest, own)).expect("a put");
        let deletes = |name| Fact::ManifestDeleteAsked(guest, name);
        show(&mut invariant, &mut facts, deletes(own)).expect("its own");
        assert!(show(&mut invariant, &mut facts, deletes(other)).is_err());
        // What it has committed is the leaders' from then on.
        for fact in [put(guest, done), Fact::CurrentNames(vec![done])] {
            show(&mut invariant, &mut facts, fact).expect("a commit");
        }
        show(&mut invariant, &mut facts, Fact::CurrentNames(Vec::new())).expect("goes on");
        assert!(show(&mut invariant, &mut facts, deletes(done)).is_err());
    }

    #[test]
    fn naming_what_was_given_up_breaks_it() {
        let own = object(3, 2, 1);
        let (mut invariant, mut facts) = leading(&[own]);
        show(&mut invariant, &mut facts, deletes(0, own)).expect("its own");
        let names = Fact::CurrentNames(vec![own]);
        assert!(show(&mut invariant, &mut facts, names).is_err());
    }
}
