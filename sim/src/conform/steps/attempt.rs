//! The actions of an attempt.

use std::collections::BTreeSet;
use std::sync::Arc;

use stillpoint::protocol::coordinator::Event;
use stillpoint::protocol::id::{CheckpointId, FileName};
use stillpoint::protocol::message::{Message, Notify};
use stillpoint::protocol::outcome::Outcome;

use super::{led, run};
use crate::conform::attempt::{Attempt, Running, Stage};
use crate::conform::history::subtask as subtask_of;
use crate::conform::leader::Leader;
use crate::conform::shared::Shared;
use crate::conform::world::World;

/// The files that the manifest names are there; the leader hears that the attempt runs.
pub(super) fn restored(world: &World, number: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let Stage::Restoring { epoch, from, files } = &attempt.stage else {
        return Vec::new();
    };
    let restored = from.map(|checkpoint| (checkpoint, files.clone()));
    let names = &world.history.names;
    let running = Running::new(
        attempt.code,
        subtask_of(attempt.task),
        *epoch,
        restored,
        names,
    );
    let mut next = world.clone();
    let started = Attempt {
        stage: Stage::Running(Box::new(running)),
        ..Attempt::clone(attempt)
    };
    next.attempts.insert(number, Shared::new(started));
    let is_led = next
        .leaders
        .get(&epoch.0)
        .is_some_and(|leader| leader.is_up());
    if !is_led {
        return vec![next];
    }
    let attempt = attempt.code;
    let told = led(&next, epoch.0, |_, leader, said| {
        let _ = leader.drive(Event::Running { attempt }, said);
        true
    });
    told.into_iter().collect()
}

pub(super) fn crash(world: &World, number: u64) -> Vec<World> {
    let mut next = world.clone();
    if !next.fault() {
        return Vec::new();
    }
    let attempt = &world.attempts[&number];
    let dead = Attempt {
        stage: Stage::Dead(attempt.running().is_some()),
        ..Attempt::clone(attempt)
    };
    next.attempts.insert(number, Shared::new(dead));
    next.prune();
    vec![next]
}

pub(super) fn change(world: &World, number: u64, leaving: &BTreeSet<u64>) -> Option<World> {
    let file = world.history.creators.len() as u64 + 1;
    if file > world.bounds.max_file {
        return None;
    }
    run(world, number, |next, running, _| {
        running.change(file, leaving);
        Arc::make_mut(&mut next.history).creators.push(number);
        true
    })
}

pub(super) fn flush(world: &World, number: u64) -> Vec<World> {
    change(world, number, &BTreeSet::new())
        .into_iter()
        .collect()
}

pub(super) fn compact(world: &World, number: u64) -> Vec<World> {
    let running = world.attempts[&number].running();
    let live: Vec<u64> = running
        .iter()
        .flat_map(|running| running.live.keys().copied())
        .collect();
    let subsets = (1_u32..(1 << live.len())).map(|chosen| {
        let members = live
            .iter()
            .enumerate()
            .filter(|(place, _)| chosen >> place & 1 == 1);
        members.map(|(_, file)| *file).collect::<BTreeSet<u64>>()
    });
    subsets
        .filter_map(|leaving| change(world, number, &leaving))
        .collect()
}

pub(super) fn bring_back(world: &World, number: u64) -> Vec<World> {
    let running = world.attempts[&number].running();
    let left: Vec<u64> = running
        .iter()
        .flat_map(|running| running.left.keys().copied())
        .collect();
    let next = left.into_iter().filter_map(|file| {
        run(world, number, |_, running, _| {
            running.bring_back(file);
            true
        })
    });
    next.collect()
}

/// A trigger comes as long as its checkpoint is pending, and not again once it was obeyed. The
/// snapshot is cut at once.
pub(super) fn snapshot(world: &World, number: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let Some((running, leader)) = attempt.running().and_then(|running| {
        let leader = world.leader_of(running)?;
        Some((running, leader))
    }) else {
        return Vec::new();
    };
    let view = leader.machine.view();
    let subtask = subtask_of(attempt.task);
    let is_wanted = |id: &CheckpointId| {
        let waits = view
            .pending
            .get(id)
            .is_some_and(|pending| pending.waits_for(subtask));
        let is_said = world.acks.iter().any(|sent| {
            let said = &sent.0;
            (said.attempt, said.checkpoint, said.epoch) == (attempt.code, *id, view.epoch)
        });
        waits && !is_said && !running.cuts.contains_key(id)
    };
    let triggers = leader.triggers.iter().filter(|((id, to), trigger)| {
        *to == subtask && trigger.attempt == attempt.code && is_wanted(id)
    });
    let next = triggers.filter_map(|(_, trigger)| {
        run(world, number, |next, running, sent| {
            let message = Message::Trigger(trigger.clone());
            next.drive(running, message, sent) == Outcome::Accepted
        })
    });
    next.collect()
}

/// An upload lands while a snapshot under way holds its file.
pub(super) fn upload(world: &World, number: u64) -> Vec<World> {
    let Some(running) = world.attempts[&number].running() else {
        return Vec::new();
    };
    let held: BTreeSet<u64> = running.cuts.values().flatten().copied().collect();
    let wanted = running.uploads.iter().filter_map(|name| {
        let file = world.file(*name)?;
        held.contains(&file).then_some((*name, file))
    });
    let next = wanted.filter_map(|(name, file)| {
        run(world, number, |next, running, sent| {
            next.store.objects.insert(file);
            let names = &mut Arc::make_mut(&mut next.history).names;
            running.store(name, names, sent);
            true
        })
    });
    next.collect()
}

/// With its pack the last upload of a snapshot lands, and the attempt acknowledges.
pub(super) fn send_ack(world: &World, number: u64) -> Vec<World> {
    let Some(running) = world.attempts[&number].running() else {
        return Vec::new();
    };
    let uploading: BTreeSet<u64> = running
        .uploads
        .iter()
        .filter_map(|name| world.file(*name))
        .collect();
    let ready = running
        .cuts
        .iter()
        .filter(|(_, files)| files.is_disjoint(&uploading));
    let packs = ready.filter_map(|(id, _)| running.last_upload(*id, &world.history.names));
    let next = packs.filter_map(|name| {
        run(world, number, |next, running, sent| {
            let names = &mut Arc::make_mut(&mut next.history).names;
            running.store(name, names, sent);
            !sent.acknowledged.is_empty()
        })
    });
    next.collect()
}

/// News of the newest completed checkpoint comes late, or before a trigger.
pub(super) fn forget_base(world: &World, number: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let news = attempt
        .running()
        .and_then(|running| world.leader_of(running))
        .and_then(|leader| {
            let newest = leader
                .machine
                .view()
                .manifest
                .and_then(|manifest| manifest.newest());
            let news = leader.completed.get(&attempt.code);
            news.filter(|news| Some(news.checkpoint) == newest)
        });
    let next = news.and_then(|news| {
        run(world, number, |next, running, sent| {
            let before = running.machine.view().newest_completed;
            let _ = next.drive(running, Message::Notify(news.clone()), sent);
            running.machine.view().newest_completed != before
        })
    });
    next.into_iter().collect()
}

/// News of an abort; what it tells of completions besides is left out.
pub(super) fn drop_snap(world: &World, number: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let Some((running, leader)) = attempt.running().and_then(|running| {
        let leader = world.leader_of(running)?;
        Some((running, leader))
    }) else {
        return Vec::new();
    };
    let over = running.cuts.keys().filter(|id| !is_under_way(leader, **id));
    let news = over.filter_map(|id| leader.aborted.get(&(attempt.code, *id)));
    let next = news.filter_map(|news| {
        let news = Notify {
            newest_completed: None,
            ..news.clone()
        };
        run(world, number, |next, running, sent| {
            next.drive(running, Message::Notify(news), sent) == Outcome::Accepted
        })
    });
    next.collect()
}

pub(super) fn task_delete(world: &World, number: u64) -> Vec<World> {
    let running = world.attempts[&number].running();
    let deletes: Vec<FileName> = running
        .iter()
        .flat_map(|running| &running.deletes)
        .copied()
        .collect();
    let next = deletes.into_iter().filter_map(|name| {
        let file = world.file(name)?;
        run(world, number, |next, running, sent| {
            next.store.objects.remove(&file);
            let names = &mut Arc::make_mut(&mut next.history).names;
            running.delete(name, names, sent);
            true
        })
    });
    next.collect()
}

fn is_under_way(leader: &Leader, checkpoint: CheckpointId) -> bool {
    let view = leader.machine.view();
    view.pending.contains_key(&checkpoint) || view.committing.contains_key(&checkpoint)
}
