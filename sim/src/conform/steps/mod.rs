//! The steps of `CheckpointLifecycle`, taken by the machines: one function an action.
//!
//! ```text
//!  world --action--> every world that it can lead to, with what the machines made of it
//! ```
//!
//! | file | whose actions |
//! |---|---|
//! | `leadership` | who leads, whom it deploys, who follows it; guests' pins |
//! | `attempt` | an attempt's |
//! | `coordinator` | a leader's |
//!
//! A step is a step only if the machines take it: what they ignore leads nowhere. What the harness
//! itself does not let happen is said at each action, and listed in `specs/README.md`.

mod attempt;
mod coordinator;
mod leadership;

use std::sync::Arc;

use stillpoint::protocol::id::{CheckpointId, FileName, RequestId};
use stillpoint::protocol::message::Message;
use stillpoint::protocol::outcome::Outcome;
use stillpoint::protocol::subtask;

use super::attempt::{Attempt, Running, Sent, Stage};
use super::history::subtask as subtask_of;
use super::leader::{Leader, Said};
use super::search::{System, Taken};
use super::shared::Shared;
use super::value::Value;
use super::world::World;

impl System for World {
    fn state(&self) -> Value {
        self.lifecycle()
    }

    fn fingerprint(&self, state: &str) -> u128 {
        self.print(state)
    }

    fn steps(&self) -> Vec<Taken<Self>> {
        let direct = all(self).into_iter().map(|(action, to)| Taken {
            between: None,
            action,
            to,
        });
        let overlaps = coordinator::overlaps(self)
            .into_iter()
            .map(|(between, action, to)| Taken {
                between: Some(between),
                action,
                to,
            });
        direct.chain(overlaps).collect()
    }
}

/// Every request's name: nobody tells them apart.
const REQUEST: RequestId = RequestId(1);

/// Every step from here.
fn all(world: &World) -> Vec<(&'static str, World)> {
    let mut steps = Vec::new();
    let mut take = |name, next: Vec<World>| {
        steps.extend(next.into_iter().map(|world: World| (name, world)));
    };
    take("Claim", leadership::claim(world));
    take("LoseAck", coordinator::lose_ack(world));
    take("GuestPin", leadership::guest_pin(world, true));
    take("GuestUnpin", leadership::guest_pin(world, false));
    for epoch in world.leaders.keys().copied() {
        if !world.leaders[&epoch].is_up() {
            continue;
        }
        take("Depose", leadership::depose(world, epoch));
        take("Deploy", leadership::deploy(world, epoch));
        take("Trigger", coordinator::trigger(world, epoch));
        take("RecvAck", coordinator::recv_ack(world, epoch));
        take("Abort", coordinator::abort(world, epoch));
        take("Expire", coordinator::expire(world, epoch));
        take("Complete", coordinator::complete(world, epoch));
        take("Collect", coordinator::collect(world, epoch));
        take("Sweep", coordinator::sweep(world, epoch));
        take("Delete", coordinator::delete(world, epoch));
        take("Forget", coordinator::forget(world, epoch));
        for number in world.attempts.keys().copied() {
            take("Attach", leadership::attach(world, number, epoch));
        }
    }
    for (number, attempt) in &world.attempts {
        let number = *number;
        match &attempt.stage {
            Stage::Dead(_) => {}
            Stage::Restoring { .. } => {
                take("Restored", attempt::restored(world, number));
                take("Crash", attempt::crash(world, number));
            }
            Stage::Running(_) => {
                take("Crash", attempt::crash(world, number));
                take("Flush", attempt::flush(world, number));
                take("Compact", attempt::compact(world, number));
                take("Return", attempt::bring_back(world, number));
                take("Snapshot", attempt::snapshot(world, number));
                take("Upload", attempt::upload(world, number));
                take("SendAck", attempt::send_ack(world, number));
                take("ForgetBase", attempt::forget_base(world, number));
                take("DropSnap", attempt::drop_snap(world, number));
                take("TaskDelete", attempt::task_delete(world, number));
            }
        }
    }
    steps
}

/// A step of a coordinator: what it is told, and whether that was a step.
fn led(
    world: &World,
    epoch: u64,
    step: impl FnOnce(&mut World, &mut Leader, &mut Said) -> bool,
) -> Option<World> {
    let mut next = world.clone();
    let mut leader = Leader::clone(next.leaders.get(&epoch)?);
    let mut said = Said::default();
    if !step(&mut next, &mut leader, &mut said) {
        return None;
    }
    let life = next.draw_life();
    leader.settle(&mut next.store, life, &mut said);
    for message in said.answers {
        next.tell_attempt(message);
    }
    let waits = |attempt, checkpoint| next.waits(attempt, checkpoint);
    leader.prune(waits, next.bounds.forget_bases);
    next.leaders.insert(epoch, Shared::new(leader));
    Some(next)
}

/// A step of an attempt.
fn run(
    world: &World,
    number: u64,
    step: impl FnOnce(&mut World, &mut Running, &mut Sent) -> bool,
) -> Option<World> {
    let mut next = world.clone();
    let mut attempt = Attempt::clone(next.attempts.get(&number)?);
    let mut sent = Sent::default();
    if !step(&mut next, attempt.running_mut()?, &mut sent) {
        return None;
    }
    next.attempts.insert(number, Shared::new(attempt));
    next.send(sent);
    next.prune();
    Some(next)
}

impl World {
    /// Gives an attempt a coordinator's answer, if it is there to hear it.
    fn tell_attempt(&mut self, message: Message) {
        let to = match &message {
            Message::Attached(attached) => attached.attempt,
            Message::Answered(answered) => answered.attempt,
            Message::Lead(_)
            | Message::Attach(_)
            | Message::NotNamed(_)
            | Message::Trigger(_)
            | Message::Acknowledge(_)
            | Message::Decline(_)
            | Message::Notify(_) => return,
        };
        let number = self.attempt_number(to);
        let mut sent = Sent::default();
        let Some(attempt) = self.attempts.get(&number) else {
            return;
        };
        let mut attempt = Attempt::clone(attempt);
        if let Some(running) = attempt.running_mut() {
            let names = &mut Arc::make_mut(&mut self.history).names;
            let _ = running.drive(subtask::Event::Received(message), names, &mut sent);
            self.attempts.insert(number, Shared::new(attempt));
        }
        self.send(sent);
    }

    fn send(&mut self, sent: Sent) {
        for acknowledged in sent.acknowledged {
            self.acks.push(Shared::new(acknowledged));
        }
        self.acks
            .sort_by_key(|sent| (sent.0.epoch, sent.0.attempt, sent.0.checkpoint));
    }

    /// Forgets news of aborts for which nobody waits any more.
    fn prune(&mut self) {
        let stale = self.leaders.iter().filter(|(_, leader)| {
            let mut aborted = leader.aborted.keys();
            aborted.any(|(attempt, checkpoint)| !self.waits(*attempt, *checkpoint))
        });
        let stale: Vec<u64> = stale.map(|(epoch, _)| *epoch).collect();
        for epoch in stale {
            let mut leader = Leader::clone(&self.leaders[&epoch]);
            let waits = |attempt, checkpoint| self.waits(attempt, checkpoint);
            leader.prune(waits, self.bounds.forget_bases);
            self.leaders.insert(epoch, Shared::new(leader));
        }
    }

    fn drive(&mut self, running: &mut Running, message: Message, sent: &mut Sent) -> Outcome {
        let names = &mut Arc::make_mut(&mut self.history).names;
        running.drive(subtask::Event::Received(message), names, sent)
    }

    /// Whether a leader is the one that `CURRENT` shows.
    fn leads(&self, epoch: u64) -> bool {
        self.epoch() == epoch
    }

    /// Remembers what a checkpoint was that its leader has completed.
    fn remember(&mut self, id: CheckpointId, leader: &Leader) {
        let manifest = self.store.manifest.as_ref();
        if !manifest.is_some_and(|manifest| manifest.is_retained(id)) {
            return;
        }
        let number = self.checkpoint_number(id);
        let history = Arc::make_mut(&mut self.history);
        for task in 0..u32::try_from(self.bounds.tasks.len()).expect("there are few subtasks") {
            let cut = leader.taken.get(&(id, subtask_of(task))).cloned();
            history.cuts.insert((number, task), cut.unwrap_or_default());
        }
    }

    /// Whether a file is a tombstone.
    fn condemns(&self, name: FileName) -> bool {
        let manifest = self.store.manifest.as_ref();
        manifest.is_some_and(|manifest| manifest.tombstones().contains(&name))
    }

    /// The leader that an attempt follows.
    fn leader_of(&self, running: &Running) -> Option<&Leader> {
        let epoch = running.machine.view().epoch.0;
        let leader = self.leaders.get(&epoch)?;
        leader.is_up().then_some(leader)
    }
}
