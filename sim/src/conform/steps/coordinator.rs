//! The actions of a leader.

use std::collections::BTreeSet;
use std::sync::Arc;

use stillpoint::protocol::coordinator::{Event, Notice, TriggerKind};
use stillpoint::protocol::id::{AttemptId, CheckpointId, SubtaskId};
use stillpoint::protocol::message::Message;
use stillpoint::protocol::outcome::{Ignored, Outcome};

use super::{REQUEST, led};
use crate::conform::attempt::Stage;
use crate::conform::history::Object;
use crate::conform::leader::{Leader, Said};
use crate::conform::world::World;

pub(super) fn trigger(world: &World, epoch: u64) -> Vec<World> {
    if world.history.checkpoints.len() as u64 >= world.bounds.max_ckpt {
        return Vec::new();
    }
    let next = led(world, epoch, |next, leader, said| {
        let request = Event::Trigger {
            request: REQUEST,
            kind: TriggerKind::Manual,
            now_or_never: true,
        };
        let _ = leader.drive(request, said);
        let id = said.notices.iter().find_map(|notice| {
            let Notice::Triggered { checkpoint, .. } = notice else {
                return None;
            };
            Some(*checkpoint)
        });
        if let Some(id) = id {
            let history = Arc::make_mut(&mut next.history);
            let number = history.checkpoints.len() as u64 + 1;
            history.checkpoints.insert(id, number);
        }
        id.is_some()
    });
    next.into_iter().collect()
}

/// An acknowledgement arrives, and its answer with it. One that is not the coordinator's to count
/// changes nothing, and stays under way.
pub(super) fn recv_ack(world: &World, epoch: u64) -> Vec<World> {
    let places = 0..world.acks.len();
    let next = places.filter_map(|place| received(world, epoch, place));
    next.collect()
}

fn received(world: &World, epoch: u64, place: usize) -> Option<World> {
    let (said, cut) = &*world.acks[place];
    led(world, epoch, |next, leader, heard| {
        next.acks.remove(place);
        let message = Message::Acknowledge(said.clone());
        let outcome = leader.drive(Event::Received(message), heard);
        take_note(leader, said.checkpoint, said.subtask, cut);
        let is_foreign = matches!(
            outcome,
            Outcome::Ignored(Ignored::StaleEpoch | Ignored::UnknownAttempt | Ignored::NotLeading)
        );
        !is_foreign
    })
}

/// Remembers what was acknowledged, if the acknowledgement was taken.
pub(super) fn take_note(
    leader: &mut Leader,
    id: CheckpointId,
    subtask: SubtaskId,
    cut: &BTreeSet<u64>,
) {
    let view = leader.machine.view();
    let committing = view.committing.get(&id).map(|found| found.pending());
    let found = view.pending.get(&id).or(committing);
    if found.is_some_and(|pending| pending.acknowledged.contains_key(&subtask)) {
        leader
            .taken
            .entry((id, subtask))
            .or_insert_with(|| cut.clone());
    }
}

pub(super) fn lose_ack(world: &World) -> Vec<World> {
    let lost = world.acks.iter().enumerate().filter(|(_, sent)| {
        let attempt = world.attempts.get(&world.attempt_number(sent.0.attempt));
        let running = attempt.and_then(|attempt| attempt.running());
        running.is_none_or(|running| running.machine.view().epoch != sent.0.epoch)
    });
    let next = lost.map(|(place, _)| {
        let mut next = world.clone();
        next.acks.remove(place);
        next
    });
    next.collect()
}

/// A checkpoint is cancelled; the commit of one that has all acknowledgements fails for certain.
pub(super) fn abort(world: &World, epoch: u64) -> Vec<World> {
    let view = world.leaders[&epoch].machine.view();
    let pending = view.pending.keys().filter_map(|checkpoint| {
        led(world, epoch, |next, leader, said| {
            next.fault() && cancel(leader, *checkpoint, said)
        })
    });
    let mut all: Vec<World> = pending.collect();
    all.extend(view.committing.keys().next().and_then(|_| {
        led(world, epoch, |next, leader, said| {
            let before = leader.machine.view().committing.len();
            leader.fail_commit(&mut next.store, said);
            next.fault() && leader.machine.view().committing.len() < before
        })
    }));
    all
}

pub(super) fn cancel(leader: &mut Leader, checkpoint: CheckpointId, said: &mut Said) -> bool {
    leader.drive(Event::CancelCheckpoint { checkpoint }, said) == Outcome::Accepted
}

/// What can't complete any more ends by its timeout; the harness has no clock, and cancels it.
pub(super) fn expire(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    let pending = &leader.machine.view().pending;
    let hopeless = pending.iter().filter(|(id, pending)| {
        let mut waiting = pending.waiting();
        waiting.any(|subtask| is_hopeless(world, **id, pending.plan[&subtask], epoch))
    });
    let next = hopeless.filter_map(|(checkpoint, _)| {
        led(world, epoch, |_, leader, said| {
            cancel(leader, *checkpoint, said)
        })
    });
    next.collect()
}

/// Whether an attempt won't acknowledge a checkpoint any more.
pub(super) fn is_hopeless(world: &World, id: CheckpointId, code: AttemptId, epoch: u64) -> bool {
    let Some(attempt) = world.attempts.get(&world.attempt_number(code)) else {
        return false;
    };
    match &attempt.stage {
        Stage::Dead(_) => true,
        Stage::Restoring { .. } => false,
        Stage::Running(running) => {
            let view = running.machine.view();
            let is_said = world.acks.iter().any(|sent| {
                let said = &sent.0;
                (said.attempt, said.checkpoint, said.epoch.0) == (code, id, epoch)
            });
            let is_past = view.last_snapshot >= id && !running.cuts.contains_key(&id);
            !is_said && (view.epoch.0 != epoch || is_past)
        }
    }
}

/// A commit, if it changes what the specification sees of the manifest.
pub(super) fn committed(
    world: &World,
    epoch: u64,
    prepare: impl FnOnce(&mut Leader, &mut Said),
) -> Option<World> {
    let next = led(world, epoch, |next, leader, said| {
        prepare(leader, said);
        leader.commit(&mut next.store, said);
        true
    })?;
    (next.manifest() != world.manifest()).then_some(next)
}

pub(super) fn complete(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    let Some(id) = leader.completes_next().filter(|_| world.leads(epoch)) else {
        return Vec::new();
    };
    let Some(mut next) = committed(world, epoch, |_, _| {}) else {
        return Vec::new();
    };
    next.remember(id, leader);
    vec![next]
}

/// The same, while an acknowledgement arrives between the commit's begin and its end: that comes to
/// the same as if it arrived after; or before, if guests' pins have the commit built anew meanwhile.
/// Two steps each: the world in between, the second action, and the world after both.
pub(super) fn overlaps(world: &World) -> Vec<(World, &'static str, World)> {
    let epoch = world.epoch();
    let Some(leader) = world.leaders.get(&epoch) else {
        return Vec::new();
    };
    let (Some(id), Some(completed)) = (leader.completes_next(), complete(world, epoch).pop())
    else {
        return Vec::new();
    };
    let acks = world.acks.iter().enumerate().filter(|(_, sent)| {
        let manifest = world.store.manifest.as_ref();
        let named = manifest.and_then(|manifest| manifest.subtask_of(sent.0.attempt));
        sent.0.epoch.0 == epoch && named == Some(sent.0.subtask)
    });
    let next = acks.filter_map(|(place, sent)| {
        let (said, cut) = &**sent;
        let mut next = led(world, epoch, |next, leader, heard| {
            next.acks.remove(place);
            leader.begin_commit(heard);
            let message = Message::Acknowledge(said.clone());
            let _ = leader.drive(Event::Received(message), heard);
            take_note(leader, said.checkpoint, said.subtask, cut);
            leader.end_commit(&mut next.store, heard);
            true
        })?;
        next.remember(id, leader);
        let received = received(world, epoch, place);
        let before = received.filter(|received| {
            let both = complete(received, epoch).pop();
            both.is_some_and(|both| both.lifecycle() == next.lifecycle())
        });
        Some(match before {
            Some(received) => (received, "Complete", next),
            None => (completed.clone(), "RecvAck", next),
        })
    });
    next.collect()
}

/// Only while nothing waits for its commit: what does would go with it.
pub(super) fn collect(world: &World, epoch: u64) -> Vec<World> {
    if !world.leads(epoch) || !none_is_ready(&world.leaders[&epoch]) {
        return Vec::new();
    }
    committed(world, epoch, |_, _| {}).into_iter().collect()
}

/// The listing shows one file. Not one below the floor that a named attempt has told: that sweep is
/// left out.
pub(super) fn sweep(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    if !world.leads(epoch) || !none_is_ready(leader) {
        return Vec::new();
    }
    let view = leader.machine.view();
    let names = world
        .history
        .names
        .iter()
        .filter_map(|(name, object)| match object {
            Object::File(file) if world.store.objects.contains(file) => Some(*name),
            Object::File(_) | Object::Pack(_) => None,
        });
    let names = names.filter(|name| {
        let state = view.attempts.get(&name.attempt);
        state.is_none_or(|state| name.number >= state.floor)
    });
    // What is condemned without a listing is not swept.
    let known = committed(world, epoch, |_, _| {});
    let known = known.as_ref().unwrap_or(world);
    let next = names.filter_map(|name| {
        let next = committed(world, epoch, |leader, said| leader.list(name, said))?;
        (next.condemns(name) && !known.condemns(name)).then_some(next)
    });
    next.collect()
}

/// A delete that was asked for lands. What a leader asked for that is over by now is forgotten.
pub(super) fn delete(world: &World, epoch: u64) -> Vec<World> {
    let deletes = &world.leaders[&epoch].deletes;
    let files = deletes.iter().filter_map(|name| world.file(*name));
    let there = files.filter(|file| world.store.objects.contains(file));
    let next = there.map(|file| {
        let mut next = world.clone();
        next.store.objects.remove(&file);
        next
    });
    next.collect()
}

/// The store answers that a file is gone.
pub(super) fn forget(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    if !world.leads(epoch) || !none_is_ready(leader) {
        return Vec::new();
    }
    let gone = leader.deletes.iter().filter(|name| {
        let file = world.file(**name);
        file.is_some_and(|file| !world.store.objects.contains(&file))
    });
    let next =
        gone.filter_map(|name| committed(world, epoch, |leader, said| leader.forget(*name, said)));
    next.collect()
}

fn none_is_ready(leader: &Leader) -> bool {
    leader.completes_next().is_none()
}
