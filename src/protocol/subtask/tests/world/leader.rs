//! The leader of a random world, simpler than the real one: it stages, completes, aborts and
//! condemns by the rules of the specification.

use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::protocol::message::Attach;

/// A checkpoint's base and, once it is acknowledged, its files.
type Pending = (
    Option<CheckpointId>,
    Option<BTreeMap<FileName, FileDescription>>,
);

#[derive(Debug)]
pub(super) struct Leader {
    pub(super) epoch: Epoch,
    pub(super) attached: bool,
    /// Pending checkpoints, with their bases and, once acknowledged, their files.
    pub(super) pending: BTreeMap<CheckpointId, Pending>,
    /// Names not accounted for, with the first and the last acknowledgement that bore them.
    pub(super) staged: BTreeMap<FileName, (CheckpointId, CheckpointId)>,
    pub(super) last: CheckpointId,
    pub(super) floor: u64,
}

impl Leader {
    pub(super) fn new(epoch: Epoch, attached: bool) -> Self {
        Self {
            epoch,
            attached,
            pending: BTreeMap::new(),
            staged: BTreeMap::new(),
            last: id(0),
            floor: 0,
        }
    }

    fn stage(&mut self, name: FileName, checkpoint: CheckpointId) {
        let staged = self.staged.entry(name).or_insert((checkpoint, checkpoint));
        staged.0 = staged.0.min(checkpoint);
        staged.1 = staged.1.max(checkpoint);
    }

    pub(super) fn settled(&self) -> CheckpointId {
        let oldest = self.staged.values().map(|(first, _)| *first).min();
        oldest.map_or(self.last, |oldest| id(oldest.0 - 1).min(self.last))
    }
}

impl World {
    pub(super) fn abort(&mut self, which: u8) {
        let pending: Vec<CheckpointId> = self.leader.pending.keys().copied().collect();
        if let Some(index) = pick(&pending, which) {
            self.leader.pending.remove(&pending[index]);
            self.notify(pending[index], Fate::Aborted);
        }
    }

    fn notify(&mut self, checkpoint: CheckpointId, fate: Fate) {
        self.down.push(Message::Notify(Notify {
            epoch: self.leader.epoch,
            attempt: ATTEMPT,
            checkpoint,
            fate,
            newest_completed: self.durable.completed.keys().next_back().copied(),
        }));
    }

    pub(super) fn complete(&mut self, which: u8) {
        let acknowledged: Vec<CheckpointId> = self
            .leader
            .pending
            .iter()
            .filter(|(_, (_, files))| files.is_some())
            .map(|(&checkpoint, _)| checkpoint)
            .collect();
        let Some(index) = pick(&acknowledged, which) else {
            return;
        };
        let checkpoint = acknowledged[index];
        let files = self.leader.pending.remove(&checkpoint).unwrap().1.unwrap();
        for name in files.keys() {
            self.durable.accounted.insert(*name);
            self.leader.staged.remove(name);
        }
        self.durable.completed.insert(checkpoint, files);
        self.notify(checkpoint, Fate::Completed);
        let newer = self.leader.pending.split_off(&checkpoint);
        for older in core::mem::replace(&mut self.leader.pending, newer).into_keys() {
            self.notify(older, Fate::Aborted);
        }
        self.condemn();
    }

    /// `StagedDone` of the specification.
    fn condemn(&mut self) {
        let leader = &mut self.leader;
        let waits = leader
            .pending
            .range(..leader.last)
            .any(|(_, (_, files))| files.is_none());
        let named: BTreeSet<FileName> = leader
            .pending
            .values()
            .filter_map(|(_, files)| files.as_ref())
            .flat_map(|files| files.keys().copied())
            .collect();
        let last = leader.last;
        let over: Vec<FileName> = leader
            .staged
            .iter()
            .filter(|(name, (_, bore))| *bore < last && !waits && !named.contains(name))
            .map(|(name, _)| *name)
            .collect();
        for name in over {
            leader.staged.remove(&name);
            self.durable.accounted.insert(name);
            self.store.objects.remove(&name);
        }
    }

    pub(super) fn change_leader(&mut self) {
        let epoch = self.leader.epoch.next();
        self.leader = Leader::new(epoch, false);
        self.say_lead();
    }

    pub(super) fn say_lead(&mut self) {
        self.down.push(Message::Lead(Lead {
            epoch: self.leader.epoch,
            attempt: ATTEMPT,
            root: RootId(1),
        }));
    }

    pub(super) fn lead(&mut self, message: Message) {
        match message {
            Message::Attach(attach) => self.attach(&attach),
            Message::Acknowledge(acknowledge) => self.acknowledge(&acknowledge),
            Message::Decline(decline) => {
                if decline.epoch != self.leader.epoch {
                    return;
                }
                match self.leader.pending.remove(&decline.checkpoint) {
                    Some(_) => self.notify(decline.checkpoint, Fate::Aborted),
                    None => self.say(decline.checkpoint, Verdict::NotPending),
                }
            }
            Message::Lead(_)
            | Message::Attached(_)
            | Message::NotNamed(_)
            | Message::Trigger(_)
            | Message::Answered(_)
            | Message::Notify(_) => panic!("a subtask does not say {message:?}"),
        }
    }

    fn attach(&mut self, attach: &Attach) {
        if attach.epoch != self.leader.epoch {
            return;
        }
        if !self.leader.attached {
            self.leader.attached = true;
            self.leader.floor = attach.floor;
            for (checkpoint, names) in &attach.declared {
                for name in names {
                    if !self.durable.accounted.contains(name) {
                        self.leader.stage(*name, *checkpoint);
                    }
                }
            }
        }
        self.down.push(Message::Attached(Attached {
            epoch: self.leader.epoch,
            attempt: ATTEMPT,
            newest_completed: self.durable.completed.keys().next_back().copied(),
        }));
    }

    fn acknowledge(&mut self, acknowledge: &Acknowledge) {
        if acknowledge.epoch != self.leader.epoch {
            return;
        }
        let checkpoint = acknowledge.checkpoint;
        for file in acknowledge.files.named() {
            let name = file.name;
            let known = self.durable.accounted.contains(&name);
            if known {
                continue;
            }
            let staged = self.leader.staged.contains_key(&name);
            assert!(
                staged || name.number >= self.leader.floor,
                "{name} is new and below the floor {}",
                self.leader.floor
            );
            self.leader.stage(name, checkpoint);
        }
        self.leader.floor = self.leader.floor.max(acknowledge.floor);
        self.leader.last = self.leader.last.max(checkpoint);
        let set = self.resolve(&acknowledge.files);
        let mut verdict = Verdict::NotPending;
        if let Some((_, files)) = self.leader.pending.get_mut(&checkpoint) {
            for name in set.keys() {
                assert!(self.store.objects.contains_key(name), "{name} is gone");
            }
            *files = Some(set);
            verdict = Verdict::Accepted;
        }
        self.say(checkpoint, verdict);
        self.condemn();
    }

    fn say(&mut self, checkpoint: CheckpointId, verdict: Verdict) {
        self.down.push(Message::Answered(Answered {
            epoch: self.leader.epoch,
            attempt: ATTEMPT,
            checkpoint,
            verdict,
        }));
    }
}
