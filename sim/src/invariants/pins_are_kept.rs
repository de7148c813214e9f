//! A pin begins and ends only as somebody wishes, whoever wishes hears the truth about it, and what
//! is pinned stays.
//!
//! ```text
//! leader's user --asks--> its leader commits it once, unless it is refused
//! guest --comes with its wish--> commits it itself, again if it does not know what came of it
//! ```

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Notice;
use stillpoint::protocol::guest::{GuestError, PinWish};
use stillpoint::protocol::id::{CheckpointId, RequestId};
use stillpoint::protocol::manifest::{Change, PinOwner, Record};

use super::{Invariant, Verdict};
use crate::oracle::facts::{Caller, Fact, Facts, ProcessId};
use crate::world::GuestId;

/// The promise, with the pins that have ever begun and ever ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinsAreKept {
    begun: BTreeSet<(CheckpointId, PinOwner)>,
    ended: BTreeSet<(CheckpointId, PinOwner)>,
    /// What users asked their leaders for and is in no record yet.
    wishes: BTreeMap<(ProcessId, RequestId), PinWish>,
    /// What each guest came for. It stays: a guest may end in doubt, and its commit land later.
    guests: BTreeMap<GuestId, PinWish>,
    /// What each guest has last committed. It may commit again, but not while it has what it wants.
    met: BTreeMap<GuestId, CheckpointId>,
}

impl PinsAreKept {
    fn committing(&mut self, facts: &Facts, caller: Caller, record: &Record) -> Verdict {
        let mut pins = facts.durable.pins.clone();
        for change in &record.changes {
            let (pin, begins) = match change {
                Change::Pin { checkpoint, owner } => ((*checkpoint, owner.clone()), true),
                Change::Unpin { checkpoint, owner } => ((*checkpoint, owner.clone()), false),
                Change::Subsume { checkpoints } => {
                    let dropped = |(pinned, _): &&_| checkpoints.contains(pinned);
                    if let Some((checkpoint, owner)) = pins.iter().find(dropped) {
                        let owner = &owner.0;
                        return Self::broken(format!("{checkpoint} is dropped, {owner} pins it"));
                    }
                    continue;
                }
                // Nothing that an older leader has built is committed any more.
                Change::Claim { .. } => {
                    self.wishes
                        .retain(|(process, _), _| caller == Caller::Coordinator(*process));
                    continue;
                }
                _ => continue,
            };
            if !self.is_wished(facts, caller, &pin, begins) {
                let (checkpoint, owner) = (pin.0, &pin.1.0);
                let what = if begins { "pins" } else { "unpins" };
                return Self::broken(format!(
                    "{caller:?} {what} {checkpoint} for {owner}, and nobody wished for that"
                ));
            }
            if let Caller::Guest(guest) = caller {
                self.is_met_once(guest, &pins, &pin.1, begins)?;
                self.met.insert(guest, pin.0);
            }
            if begins {
                pins.insert(pin.clone());
                self.begun.insert(pin);
            } else {
                pins.remove(&pin);
                self.ended.insert(pin);
            }
        }
        Ok(())
    }

    /// A guest that does not know what came of its commit looks for that before it commits again.
    fn is_met_once(
        &self,
        guest: GuestId,
        pins: &BTreeSet<(CheckpointId, PinOwner)>,
        owner: &PinOwner,
        begins: bool,
    ) -> Verdict {
        let Some(first) = self.met.get(&guest) else {
            return Ok(());
        };
        if pins.contains(&(*first, owner.clone())) != begins {
            return Ok(());
        }
        let what = if begins { "pinned" } else { "unpinned" };
        Self::broken(format!("{guest} commits again, and has {what} {first}"))
    }

    /// Whether the caller commits what was wished of it. A user's wish is met then.
    fn is_wished(
        &mut self,
        facts: &Facts,
        caller: Caller,
        pin: &(CheckpointId, PinOwner),
        begins: bool,
    ) -> bool {
        let is_it = |wish: &PinWish| {
            let checkpoint = wish.checkpoint.or_else(|| facts.durable.restore_point());
            (checkpoint, &wish.owner, wish.begins) == (Some(pin.0), &pin.1, begins)
        };
        match caller {
            Caller::Guest(guest) => self.guests.get(&guest).is_some_and(is_it),
            Caller::Coordinator(process) => {
                let mut wishes = self.wishes.iter();
                let met = wishes.find(|((of, _), wish)| *of == process && is_it(wish));
                let met = met.map(|(request, _)| *request);
                met.is_some_and(|met| self.wishes.remove(&met).is_some())
            }
            Caller::Attempt(_) | Caller::Restore(_) => false,
        }
    }
}

impl Invariant for PinsAreKept {
    const NAME: &'static str = "PinsAreKept";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::GuestComes(guest, wish) => {
                self.guests.insert(*guest, wish.clone());
                Ok(())
            }
            Fact::PinAsked(process, request, wish) => {
                self.wishes.insert((*process, *request), wish.clone());
                Ok(())
            }
            Fact::Told(process, Notice::Refused { request, .. }) => {
                self.wishes.remove(&(*process, *request));
                Ok(())
            }
            Fact::Committing(caller, record) => self.committing(facts, *caller, record),
            Fact::GuestEnded(wish, Ok(checkpoint)) => {
                let (past, what) = if wish.begins {
                    (&self.begun, "pinned")
                } else {
                    (&self.ended, "unpinned")
                };
                if past.contains(&(*checkpoint, wish.owner.clone())) {
                    return Ok(());
                }
                let owner = &wish.owner.0;
                Self::broken(format!("{owner} was told {what}; no record says so"))
            }
            Fact::GuestGivesUp(guest, GuestError::NoSuchPin { checkpoint, owner })
                if self.met.get(guest) == Some(checkpoint) =>
            {
                let owner = &owner.0;
                Self::broken(format!(
                    "{guest} says that {checkpoint} is not pinned by {owner}; it ended that pin"
                ))
            }
            Fact::GuestEnded(_, Err(GuestError::NotRetained { checkpoint, .. }))
                if facts.durable.retained.contains_key(checkpoint) =>
            {
                Self::broken(format!(
                    "a guest was told {checkpoint} is gone, and it is not"
                ))
            }
            Fact::GuestEnded(_, Err(GuestError::NoSuchPin { checkpoint, owner }))
                if !self.ended.contains(&(*checkpoint, owner.clone())) =>
            {
                let owner = &owner.0;
                Self::broken(format!(
                    "{owner} was told {checkpoint} is not pinned; no record ended that pin"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::coordinator::RefusalReason;

    use super::super::testing::*;
    use super::*;

    const GUEST: GuestId = GuestId(0);

    fn owner() -> PinOwner {
        PinOwner("guest 0".to_owned())
    }

    fn wish(checkpoint: Option<u64>, begins: bool) -> PinWish {
        PinWish {
            checkpoint: checkpoint.map(CheckpointId),
            owner: owner(),
            begins,
        }
    }

    fn told(begins: bool, result: Result<CheckpointId, GuestError>) -> Fact {
        Fact::GuestEnded(wish(None, begins), result)
    }

    fn pin(checkpoint: u64) -> Vec<Change> {
        let (checkpoint, owner) = (CheckpointId(checkpoint), owner());
        vec![Change::Pin { checkpoint, owner }]
    }

    fn unpin(checkpoint: u64) -> Vec<Change> {
        let (checkpoint, owner) = (CheckpointId(checkpoint), owner());
        vec![Change::Unpin { checkpoint, owner }]
    }

    /// The leader's user asks for something.
    fn ask(invariant: &mut PinsAreKept, facts: &mut Facts, wish: PinWish) {
        let asked = Fact::PinAsked(LEADER, RequestId(7), wish);
        show(invariant, facts, asked).expect("a wish");
    }

    fn completed() -> (PinsAreKept, Facts) {
        let (mut invariant, mut facts) = (PinsAreKept::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        commit(&mut invariant, &mut facts, vec![complete(1, &[], &[])]).expect("completes");
        (invariant, facts)
    }

    #[test]
    fn a_pin_that_was_told_without_a_record_breaks_it() {
        let (mut invariant, mut facts) = completed();
        let pinned = told(true, Ok(CheckpointId(1)));
        assert!(show(&mut invariant, &mut facts, pinned.clone()).is_err());
        let comes = Fact::GuestComes(GUEST, wish(None, true));
        show(&mut invariant, &mut facts, comes).expect("a wish");
        let guest = Caller::Guest(GUEST);
        commit_by(guest, &mut invariant, &mut facts, pin(1)).expect("pins");
        show(&mut invariant, &mut facts, pinned).expect("a record says so");
        let unpinned = told(false, Ok(CheckpointId(1)));
        assert!(show(&mut invariant, &mut facts, unpinned).is_err());
    }

    #[test]
    fn a_guest_that_pins_twice_breaks_it() {
        let (mut invariant, mut facts) = completed();
        let comes = Fact::GuestComes(GUEST, wish(None, true));
        show(&mut invariant, &mut facts, comes).expect("a wish");
        let guest = Caller::Guest(GUEST);
        commit_by(guest, &mut invariant, &mut facts, pin(1)).expect("pins");
        commit(&mut invariant, &mut facts, vec![complete(2, &[], &[])]).expect("completes");
        let (mut other, mut others) = (invariant.clone(), facts.clone());
        assert!(commit_by(guest, &mut other, &mut others, pin(2)).is_err());
        // Somebody else has ended the first by then.
        let comes = Fact::GuestComes(GuestId(1), wish(Some(1), false));
        show(&mut invariant, &mut facts, comes).expect("a wish");
        commit_by(
            Caller::Guest(GuestId(1)),
            &mut invariant,
            &mut facts,
            unpin(1),
        )
        .expect("unpins");
        commit_by(guest, &mut invariant, &mut facts, pin(2)).expect("pins again");
    }

    #[test]
    fn a_guest_that_denies_its_own_record_breaks_it() {
        let (mut invariant, mut facts) = completed();
        ask(&mut invariant, &mut facts, wish(Some(1), true));
        commit(&mut invariant, &mut facts, pin(1)).expect("asked for");
        let comes = Fact::GuestComes(GUEST, wish(Some(1), false));
        show(&mut invariant, &mut facts, comes).expect("a wish");
        let guest = Caller::Guest(GUEST);
        commit_by(guest, &mut invariant, &mut facts, unpin(1)).expect("as it wished");
        let denied = |guest| {
            let (checkpoint, owner) = (CheckpointId(1), owner());
            Fact::GuestGivesUp(guest, GuestError::NoSuchPin { checkpoint, owner })
        };
        assert!(show(&mut invariant, &mut facts, denied(GUEST)).is_err());
        show(&mut invariant, &mut facts, denied(GuestId(1))).expect("another one ended it");
    }

    #[test]
    fn a_denial_of_what_is_so_breaks_it() {
        let (mut invariant, mut facts) = completed();
        let denied = GuestError::NotRetained {
            checkpoint: CheckpointId(1),
            retained: Vec::new(),
        };
        assert!(show(&mut invariant, &mut facts, told(true, Err(denied))).is_err());
    }

    #[test]
    fn a_pin_that_nobody_wished_for_breaks_it() {
        let (mut invariant, mut facts) = completed();
        commit(&mut invariant, &mut facts, vec![complete(2, &[], &[])]).expect("completes");
        ask(&mut invariant, &mut facts, wish(Some(1), true));
        let (mut other, mut others) = (invariant.clone(), facts.clone());
        assert!(commit(&mut other, &mut others, pin(2)).is_err());
        commit(&mut invariant, &mut facts, pin(1)).expect("asked for");
        assert!(commit(&mut invariant, &mut facts, pin(1)).is_err(), "once");
        ask(&mut invariant, &mut facts, wish(Some(1), true));
        let refused = Notice::Refused {
            request: RequestId(7),
            reason: RefusalReason::AlreadyPinned,
        };
        show(&mut invariant, &mut facts, Fact::Told(LEADER, refused)).expect("an answer");
        assert!(commit(&mut invariant, &mut facts, pin(1)).is_err());
    }

    #[test]
    fn a_pin_that_ends_although_nobody_wished_it_breaks_it() {
        let (mut invariant, mut facts) = completed();
        ask(&mut invariant, &mut facts, wish(Some(1), true));
        commit(&mut invariant, &mut facts, pin(1)).expect("asked for");
        let guest = Caller::Guest(GUEST);
        for caller in [guest, Caller::Coordinator(LEADER)] {
            let (mut other, mut others) = (invariant.clone(), facts.clone());
            assert!(commit_by(caller, &mut other, &mut others, unpin(1)).is_err());
        }
        let comes = Fact::GuestComes(GUEST, wish(Some(1), false));
        show(&mut invariant, &mut facts, comes).expect("a wish");
        // It is the guest's to carry out, not the leader's.
        assert!(commit(&mut invariant.clone(), &mut facts.clone(), unpin(1)).is_err());
        commit_by(guest, &mut invariant, &mut facts, unpin(1)).expect("as it wished");
    }

    #[test]
    fn dropping_what_is_pinned_breaks_it() {
        let (mut invariant, mut facts) = completed();
        commit(&mut invariant, &mut facts, vec![complete(2, &[], &[])]).expect("completes");
        let subsume = || Change::Subsume {
            checkpoints: vec![CheckpointId(1)],
        };
        ask(&mut invariant, &mut facts, wish(Some(1), true));
        commit(&mut invariant, &mut facts, pin(1)).expect("asked for");
        assert!(commit(&mut invariant, &mut facts, vec![subsume()]).is_err());
        ask(&mut invariant, &mut facts, wish(Some(1), false));
        let mut changes = unpin(1);
        changes.push(subsume());
        commit(&mut invariant, &mut facts, changes).expect("nobody pins it any more");
    }
}
