//! A leader whose place another has taken tells its user so, once faults have stopped: else both would
//! wait for ever for attempts that follow somebody else.
//!
//! How soon follows from the configuration: who looks at `CURRENT` from time to time, or renews, finds
//! the other there; anybody else by the next commit, at the latest when a checkpoint expires that
//! nobody has acknowledged.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Class, Violation, bound};
use crate::oracle::facts::{Caller, Facts, ProcessId};
use crate::profile::Profile;
use crate::world::{DEADLINE_MICROS, ROUND_TRIP_MICROS};

/// The promise's name.
pub const NAME: &str = "DeposedAreTold";

/// Calls of the commit under way when a leader wants to know who leads, and of the one that asks.
const CALLS: u32 = 8;

/// Namespace of the promise.
#[derive(Clone, Copy, Debug)]
pub struct DeposedAreTold;

impl DeposedAreTold {
    /// The living coordinators that have come to lead and another has deposed.
    pub fn deposed(facts: &Facts, lives: impl Fn(Caller) -> bool) -> BTreeSet<ProcessId> {
        let epochs = facts.epochs.iter();
        let deposed = epochs.filter(|(process, epoch)| {
            **epoch < facts.durable.epoch && lives(Caller::Coordinator(**process))
        });
        deposed.map(|(process, _)| *process).collect()
    }

    /// Within which time one of them ends, in microseconds.
    #[must_use]
    pub fn bound(profile: &Profile) -> u64 {
        let config = &profile.config;
        let call = Duration::from_micros(DEADLINE_MICROS + ROUND_TRIP_MICROS);
        let commits = (config.limits.retry_delay_max + call) * CALLS;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let asks = config
            .look_interval
            .into_iter()
            .chain(config.renew_interval);
        let until_it_asks = match asks.min() {
            Some(interval) => micros(2 * interval),
            None => bound(profile),
        };
        until_it_asks.saturating_add(micros(commits))
    }

    /// The promise, broken.
    #[must_use]
    pub fn broken(remaining: &BTreeSet<ProcessId>, reasons: &[String]) -> Violation {
        Violation {
            class: Class::Liveness,
            promise: NAME,
            what: format!(
                "{remaining:?} still lead, and another does; {}",
                reasons.join("; ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::coordinator::Notice;
    use stillpoint::protocol::id::Epoch;
    use stillpoint::protocol::manifest::Change;

    use super::super::StaleIsPowerless;
    use super::super::testing::*;
    use super::*;
    use crate::oracle::facts::Fact;

    #[test]
    fn who_leads_on_after_anothers_claim_is_to_be_told() {
        let (mut invariant, mut facts) = (StaleIsPowerless::default(), Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let leading = Notice::Leading { epoch: Epoch(1) };
        show(&mut invariant, &mut facts, Fact::Told(LEADER, leading)).expect("leads");
        let nobody = BTreeSet::new();
        assert_eq!(DeposedAreTold::deposed(&facts, |_| true), nobody);
        let claim = vec![Change::Claim { epoch: Epoch(2) }];
        let other = Caller::Coordinator(ProcessId(1));
        commit_by(other, &mut invariant, &mut facts, claim).expect("another claims");
        let deposed = DeposedAreTold::deposed(&facts, |_| true);
        assert_eq!(deposed, BTreeSet::from([LEADER]));
        assert_eq!(DeposedAreTold::deposed(&facts, |_| false), nobody);
    }

    #[test]
    fn who_looks_learns_sooner_than_by_a_checkpoint_that_expires() {
        let mut profile = Profile::benign();
        profile.config.look_interval = None;
        profile.config.renew_interval = None;
        let waits = DeposedAreTold::bound(&profile);
        profile.config.look_interval = Some(Duration::from_millis(100));
        assert!(DeposedAreTold::bound(&profile) + 1_000_000 < waits);
    }
}
