//! What must come back: the truth of each cut, and what was told of it.
//!
//! ```text
//! cut ──> its content ──> told completed ──┐
//!                    └──> told lost        ├──> restored: the same bytes, nothing told is missing,
//! claim (epoch) ──restored──> which cut  ──┘    nothing lost is there, no older epoch completes more
//! ```

use std::collections::{BTreeMap, BTreeSet};

/// All pairs of a state.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A cut: the epoch in which it was taken, and its number, which is what the user attaches.
pub type Cut = (u64, u64);

#[derive(Default)]
struct Participant {
    content: BTreeMap<u64, (u64, Pairs)>,
    completed: BTreeSet<Cut>,
    lost: BTreeMap<u64, String>,
    /// What each epoch was restored to.
    restored: BTreeMap<u64, Option<Cut>>,
    waiting: u64,
}

#[derive(Default)]
pub struct Oracle {
    participants: BTreeMap<&'static str, Participant>,
    cuts: u64,
}

impl Oracle {
    fn of(&mut self, participant: &'static str) -> &mut Participant {
        self.participants.entry(participant).or_default()
    }

    /// A cut is about to be taken: what it must restore.
    pub fn cut(&mut self, participant: &'static str, epoch: u64, content: Pairs) -> u64 {
        self.cuts += 1;
        let number = self.cuts;
        self.of(participant)
            .content
            .insert(number, (epoch, content));
        number
    }

    /// A checkpoint was told to be complete and durable.
    pub fn completed(&mut self, participant: &'static str, cut: Cut) -> Result<(), String> {
        let of = self.of(participant);
        if let Some(why) = of.lost.get(&cut.1) {
            return Err(format!(
                "{participant}: cut {cut:?} completed, told lost: {why}"
            ));
        }
        of.completed.insert(cut);
        let newer = of.restored.range(cut.0 + 1..);
        for (epoch, restored) in newer {
            if *restored < Some(cut) {
                return Err(format!(
                    "{participant}: cut {cut:?} is told completed, but epoch {epoch} has restored {restored:?}"
                ));
            }
        }
        Ok(())
    }

    /// A checkpoint was told never to complete.
    pub fn lost(&mut self, participant: &'static str, cut: Cut, why: &str) -> Result<(), String> {
        let of = self.of(participant);
        of.lost.insert(cut.1, why.to_owned());
        if of.completed.contains(&cut) {
            return Err(format!(
                "{participant}: cut {cut:?} is lost ({why}), told completed"
            ));
        }
        match of
            .restored
            .iter()
            .find(|(_, restored)| **restored == Some(cut))
        {
            Some((epoch, _)) => Err(format!(
                "{participant}: cut {cut:?} is told lost ({why}), but epoch {epoch} has restored it"
            )),
            None => Ok(()),
        }
    }

    /// A state was restored in this epoch: the attached number, if there was a checkpoint.
    pub fn restored(
        &mut self,
        participant: &'static str,
        epoch: u64,
        number: Option<u64>,
        content: &Pairs,
    ) -> Result<(), String> {
        let cut = match number {
            None if content.is_empty() => None,
            None => return Err(format!("{participant}: a first start has a state")),
            Some(number) => Some(self.is(participant, number, content)?),
        };
        let of = self.of(participant);
        let before = of.completed.range(..(epoch, 0)).next_back().copied();
        if cut < before {
            return Err(format!(
                "{participant}: epoch {epoch} has restored {cut:?}, but {before:?} was told completed"
            ));
        }
        of.restored.insert(epoch, cut);
        Ok(())
    }

    /// Whether this is what was there at the cut of that number.
    pub fn is(
        &mut self,
        participant: &'static str,
        number: u64,
        content: &Pairs,
    ) -> Result<Cut, String> {
        let of = self.of(participant);
        let Some((epoch, truth)) = of.content.get(&number) else {
            return Err(format!("{participant}: {number} was attached to no cut"));
        };
        if let Some(why) = of.lost.get(&number) {
            return Err(format!(
                "{participant}: cut {number} is restored, told lost: {why}"
            ));
        }
        if truth != content {
            let (had, has) = (truth.len(), content.len());
            return Err(format!(
                "{participant}: cut {number} is restored wrong: {has} pairs, {had} at the cut"
            ));
        }
        Ok((*epoch, number))
    }

    /// Somebody waits for a checkpoint's end.
    pub fn waits(&mut self, participant: &'static str) {
        self.of(participant).waiting += 1;
    }

    pub fn waits_no_more(&mut self, participant: &'static str) {
        self.of(participant).waiting -= 1;
    }

    pub fn waiting(&mut self, participant: &'static str) -> u64 {
        self.of(participant).waiting
    }
}

#[test]
fn bad_histories_are_told() {
    let pairs = |value: &str| Pairs::from([(b"key".to_vec(), value.as_bytes().to_vec())]);
    let history = || {
        let mut oracle = Oracle::default();
        let first = oracle.cut("orders", 1, pairs("one"));
        let second = oracle.cut("orders", 1, pairs("two"));
        (oracle, first, second)
    };
    let (mut oracle, first, second) = history();
    assert_eq!(oracle.completed("orders", (1, first)), Ok(()));
    assert_eq!(oracle.lost("orders", (1, second), "fenced"), Ok(()));
    assert_eq!(
        oracle.restored("orders", 2, Some(first), &pairs("one")),
        Ok(())
    );
    let wrong = |told: Result<(), String>| assert!(told.is_err());
    // Other bytes; a cut that nobody took; one that was told lost.
    wrong(oracle.restored("orders", 3, Some(first), &pairs("two")));
    wrong(oracle.restored("orders", 3, Some(99), &pairs("one")));
    wrong(oracle.restored("orders", 3, Some(second), &pairs("two")));
    // What was told is missing.
    wrong(oracle.restored("orders", 3, None, &Pairs::new()));
    // One that was restored, or told, is lost after all.
    wrong(oracle.lost("orders", (1, first), "cancelled"));
    // A fenced holder completes what nobody has restored.
    let (mut oracle, first, _) = history();
    assert_eq!(oracle.restored("orders", 2, None, &Pairs::new()), Ok(()));
    wrong(oracle.completed("orders", (1, first)));
}
