//! Who leads, whom it deploys, who follows it; guests' pins.

use std::collections::BTreeSet;
use std::sync::Arc;

use stillpoint::protocol::coordinator::{Event, Notice, RestoreFrom};
use stillpoint::protocol::guest::PinWish;
use stillpoint::protocol::id::{CheckpointId, Epoch, OperatorId};
use stillpoint::protocol::manifest::{Operator, PinOwner};
use stillpoint::protocol::message::Message;
use stillpoint::protocol::outcome::Outcome;

use super::{REQUEST, led, run};
use crate::conform::attempt::{Attempt, Stage};
use crate::conform::history::subtask as subtask_of;
use crate::conform::leader::{Leader, pin};
use crate::conform::shared::Shared;
use crate::conform::sight::OWNER;
use crate::conform::world::World;

pub(super) fn claim(world: &World) -> Vec<World> {
    let mut next = world.clone();
    if world.epoch() >= world.bounds.max_epoch || (world.epoch() > 0 && !next.fault()) {
        return Vec::new();
    }
    let life = next.draw_life();
    let bounds = Arc::clone(&next.bounds);
    let leader = Leader::claim(&bounds, &mut next.store, life);
    next.leaders
        .insert(leader.machine.view().epoch.0, Shared::new(leader));
    vec![next]
}

/// A commit shows it that another one leads.
pub(super) fn depose(world: &World, epoch: u64) -> Vec<World> {
    if world.leads(epoch) {
        return Vec::new();
    }
    let next = led(world, epoch, |next, leader, said| {
        leader.commit(&mut next.store, said);
        !leader.is_up()
    });
    next.into_iter().collect()
}

/// The attempt hears of the leader, and the leader of what it declares.
pub(super) fn attach(world: &World, number: u64, epoch: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let Some(lead) = world.leaders[&epoch].leads.get(&attempt.code) else {
        return Vec::new();
    };
    let is_newer = attempt
        .running()
        .is_some_and(|running| running.machine.view().epoch.0 < epoch);
    if !is_newer {
        return Vec::new();
    }
    let mut attached = None;
    let heard = run(world, number, |next, running, sent| {
        let _ = next.drive(running, Message::Lead(lead.clone()), sent);
        attached = sent.attached.take();
        attached.is_some()
    });
    let (Some(heard), Some(attach)) = (heard, attached) else {
        return Vec::new();
    };
    let next = led(&heard, epoch, |_, leader, said| {
        let outcome = leader.drive(Event::Received(Message::Attach(attach)), said);
        outcome == Outcome::Accepted
    });
    next.into_iter().collect()
}

/// Deployed are one or more subtasks. What commits fails before, for certain: else it would complete
/// first. All together go back along the line.
pub(super) fn deploy(world: &World, epoch: u64) -> Vec<World> {
    let Some(manifest) = world.store.manifest.as_ref().filter(|_| world.leads(epoch)) else {
        return Vec::new();
    };
    let point = manifest.restore_point();
    let mut lineage: BTreeSet<Option<CheckpointId>> = BTreeSet::from([point]);
    if world.bounds.go_back {
        lineage.extend(manifest.lineage().map(Some));
    }
    let tasks = u32::try_from(world.bounds.tasks.len()).expect("there are few subtasks");
    let mut next = Vec::new();
    for chosen in 1_u32..(1 << tasks) {
        let chosen: Vec<u32> = (0..tasks).filter(|task| chosen >> task & 1 == 1).collect();
        if world.attempts.len() as u64 + chosen.len() as u64 > world.bounds.max_attempt {
            continue;
        }
        for from in &lineage {
            if *from != point && chosen.len() < world.bounds.tasks.len() {
                continue;
            }
            next.extend(deploy_these(world, epoch, &chosen, *from, *from == point));
        }
    }
    next
}

pub(super) fn deploy_these(
    world: &World,
    epoch: u64,
    chosen: &[u32],
    from: Option<CheckpointId>,
    is_newest: bool,
) -> Option<World> {
    let is_alive = |task: &u32| {
        let manifest = world.store.manifest.as_ref();
        let named = manifest.and_then(|manifest| manifest.attempts().get(&subtask_of(*task)));
        let attempt = named.and_then(|code| world.attempts.get(&world.attempt_number(*code)));
        attempt.is_some_and(|attempt| !matches!(attempt.stage, Stage::Dead(_)))
    };
    let parallelism = u32::try_from(world.bounds.tasks.len()).expect("there are few subtasks");
    let operator = Operator {
        id: OperatorId(0),
        name: "operator".to_owned(),
        state: "set".to_owned(),
        parallelism,
        key_groups: parallelism,
        families: Vec::new(),
    };
    let request = Event::Deploy {
        request: REQUEST,
        operators: vec![operator],
        subtasks: chosen.iter().map(|task| subtask_of(*task)).collect(),
        from: match from {
            Some(checkpoint) if !is_newest => RestoreFrom::Checkpoint(checkpoint),
            Some(_) | None => RestoreFrom::Newest,
        },
    };
    let mut deployed = None;
    let mut next = led(world, epoch, |next, leader, said| {
        if chosen.iter().any(is_alive) && !next.fault() {
            return false;
        }
        let _ = leader.drive(request, said);
        while leader.completes_next().is_some() {
            leader.fail_commit(&mut next.store, said);
        }
        leader.commit(&mut next.store, said);
        deployed = said.notices.iter().find_map(|notice| {
            let Notice::Deployed {
                attempts, restore, ..
            } = notice
            else {
                return None;
            };
            Some((attempts.clone(), *restore))
        });
        deployed.is_some()
    })?;
    let (attempts, restore) = deployed?;
    for (subtask, code) in attempts {
        let manifest = next.store.manifest.clone()?;
        let files = restore.map(|checkpoint| manifest.registry().files(checkpoint, subtask));
        let files = files.into_iter().flatten();
        let stage = Stage::Restoring {
            epoch: Epoch(epoch),
            from: restore,
            files: files.map(|file| file.to_description()).collect(),
        };
        let attempt = Attempt {
            code,
            task: subtask.index,
            stage,
        };
        let number = next.attempts.len() as u64 + 1;
        next.attempts.insert(number, Shared::new(attempt));
    }
    Some(next)
}

pub(super) fn guest_pin(world: &World, begins: bool) -> Vec<World> {
    let Some(manifest) = &world.store.manifest else {
        return Vec::new();
    };
    let pinned: BTreeSet<CheckpointId> = manifest.pins().iter().map(|(id, _)| *id).collect();
    if begins && pinned.len() as u64 >= world.bounds.max_pins {
        return Vec::new();
    }
    let wanted = manifest
        .retained()
        .filter(|id| pinned.contains(id) != begins);
    let next = wanted.filter_map(|id| {
        let mut next = world.clone();
        let life = next.draw_life();
        let wish = PinWish {
            checkpoint: Some(id),
            owner: PinOwner(OWNER.to_owned()),
            begins,
        };
        pin(&mut next.store, wish, life).then_some(next)
    });
    next.collect()
}
