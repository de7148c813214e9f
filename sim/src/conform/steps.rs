//! The steps of `CheckpointLifecycle`, taken by the machines: one function an action.
//!
//! ```text
//!  world --action--> every world that it can lead to, with what the machines made of it
//! ```
//!
//! A step is a step only if the machines take it: what they ignore leads nowhere. What the harness
//! itself does not let happen is said at each action, and listed in `specs/README.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use stillpoint::protocol::coordinator::{Event, Notice, RestoreFrom, TriggerKind};
use stillpoint::protocol::guest::PinWish;
use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, OperatorId, RequestId, SubtaskId};
use stillpoint::protocol::manifest::{Operator, PinOwner};
use stillpoint::protocol::message::{Message, Notify};
use stillpoint::protocol::outcome::{Ignored, Outcome};
use stillpoint::protocol::subtask;

use super::abstraction::OWNER;
use super::attempt::{Attempt, Object, Running, Sent, Stage};
use super::leader::{Leader, Said, pin};
use super::search::{System, Taken};
use super::shared::Shared;
use super::value::Value;
use super::world::{World, subtask as subtask_of};

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
        let overlaps = overlaps(self).into_iter().map(|(between, to)| Taken {
            between: Some(between),
            action: "RecvAck",
            to,
        });
        direct.chain(overlaps).collect()
    }
}

const REQUEST: RequestId = RequestId(1);

/// Every step from here.
fn all(world: &World) -> Vec<(&'static str, World)> {
    let mut steps = Vec::new();
    let mut take = |name, next: Vec<World>| {
        steps.extend(next.into_iter().map(|world: World| (name, world)));
    };
    take("Claim", claim(world));
    take("LoseAck", lose_ack(world));
    take("GuestPin", guest_pin(world, true));
    take("GuestUnpin", guest_pin(world, false));
    for epoch in world.leaders.keys().copied() {
        if !world.leaders[&epoch].is_up() {
            continue;
        }
        take("Depose", depose(world, epoch));
        take("Deploy", deploy(world, epoch));
        take("Trigger", trigger(world, epoch));
        take("RecvAck", recv_ack(world, epoch));
        take("Abort", abort(world, epoch));
        take("Expire", expire(world, epoch));
        take("Complete", complete(world, epoch));
        take("Collect", collect(world, epoch));
        take("Sweep", sweep(world, epoch));
        take("Delete", delete(world, epoch));
        take("Forget", forget(world, epoch));
        for number in world.attempts.keys().copied() {
            take("Attach", attach(world, number, epoch));
        }
    }
    for (number, attempt) in &world.attempts {
        let number = *number;
        match &attempt.stage {
            Stage::Dead(_) => {}
            Stage::Restoring { .. } => {
                take("Restored", restored(world, number));
                take("Crash", crash(world, number));
            }
            Stage::Running(_) => {
                take("Crash", crash(world, number));
                take("Flush", flush(world, number));
                take("Compact", compact(world, number));
                take("Return", bring_back(world, number));
                take("Snapshot", snapshot(world, number));
                take("Upload", upload(world, number));
                take("SendAck", send_ack(world, number));
                take("ForgetBase", forget_base(world, number));
                take("DropSnap", drop_snap(world, number));
                take("TaskDelete", task_delete(world, number));
            }
        }
    }
    steps
}

// ---------------- how a step is taken ----------------

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
        self.acks.sort_by_key(|sent| (sent.0.epoch, sent.0.attempt, sent.0.checkpoint));
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

    fn drive(
        &mut self,
        running: &mut Running,
        message: Message,
        sent: &mut Sent,
    ) -> Outcome {
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

fn is_under_way(leader: &Leader, checkpoint: CheckpointId) -> bool {
    let view = leader.machine.view();
    view.pending.contains_key(&checkpoint) || view.committing.contains_key(&checkpoint)
}

fn none_is_ready(leader: &Leader) -> bool {
    leader.completes_next().is_none()
}

// ---------------- leadership ----------------

fn claim(world: &World) -> Vec<World> {
    let mut next = world.clone();
    if world.epoch() >= world.bounds.max_epoch || (world.epoch() > 0 && !next.fault()) {
        return Vec::new();
    }
    let life = next.draw_life();
    let bounds = Arc::clone(&next.bounds);
    let leader = Leader::claim(&bounds, &mut next.store, life);
    next.leaders.insert(leader.machine.view().epoch.0, Shared::new(leader));
    vec![next]
}

/// A commit shows it that another one leads.
fn depose(world: &World, epoch: u64) -> Vec<World> {
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
fn attach(world: &World, number: u64, epoch: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let Some(lead) = world.leaders[&epoch].leads.get(&attempt.code) else {
        return Vec::new();
    };
    let is_newer = attempt.running().is_some_and(|running| running.machine.view().epoch.0 < epoch);
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
fn deploy(world: &World, epoch: u64) -> Vec<World> {
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

fn deploy_these(
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
        deployed = said.notices.iter().find_map(|notice| match notice {
            Notice::Deployed {
                attempts, restore, ..
            } => Some((attempts.clone(), *restore)),
            _ => None,
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

// ---------------- an attempt ----------------

/// The files that the manifest names are there; the leader hears that the attempt runs.
fn restored(world: &World, number: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let Stage::Restoring { epoch, from, files } = &attempt.stage else {
        return Vec::new();
    };
    let restored = from.map(|checkpoint| (checkpoint, files.clone()));
    let names = &world.history.names;
    let running = Running::new(attempt.code, subtask_of(attempt.task), *epoch, restored, names);
    let mut next = world.clone();
    let started = Attempt {
        stage: Stage::Running(Box::new(running)),
        ..Attempt::clone(attempt)
    };
    next.attempts.insert(number, Shared::new(started));
    let is_led = next.leaders.get(&epoch.0).is_some_and(|leader| leader.is_up());
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

fn crash(world: &World, number: u64) -> Vec<World> {
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

fn change(world: &World, number: u64, leaving: &BTreeSet<u64>) -> Option<World> {
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

fn flush(world: &World, number: u64) -> Vec<World> {
    change(world, number, &BTreeSet::new()).into_iter().collect()
}

fn compact(world: &World, number: u64) -> Vec<World> {
    let running = world.attempts[&number].running();
    let live: Vec<u64> = running.iter().flat_map(|running| running.live.keys().copied()).collect();
    let subsets = (1_u32..(1 << live.len())).map(|chosen| {
        let members = live.iter().enumerate().filter(|(place, _)| chosen >> place & 1 == 1);
        members.map(|(_, file)| *file).collect::<BTreeSet<u64>>()
    });
    subsets.filter_map(|leaving| change(world, number, &leaving)).collect()
}

fn bring_back(world: &World, number: u64) -> Vec<World> {
    let running = world.attempts[&number].running();
    let left: Vec<u64> = running.iter().flat_map(|running| running.left.keys().copied()).collect();
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
fn snapshot(world: &World, number: u64) -> Vec<World> {
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
        let waits = view.pending.get(id).is_some_and(|pending| pending.waits_for(subtask));
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
fn upload(world: &World, number: u64) -> Vec<World> {
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
fn send_ack(world: &World, number: u64) -> Vec<World> {
    let Some(running) = world.attempts[&number].running() else {
        return Vec::new();
    };
    let uploading: BTreeSet<u64> = running.uploads.iter().filter_map(|name| world.file(*name)).collect();
    let ready = running.cuts.iter().filter(|(_, files)| files.is_disjoint(&uploading));
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
fn forget_base(world: &World, number: u64) -> Vec<World> {
    let attempt = &world.attempts[&number];
    let news = attempt.running().and_then(|running| world.leader_of(running)).and_then(|leader| {
        let newest = leader.machine.view().manifest.and_then(|manifest| manifest.newest());
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
fn drop_snap(world: &World, number: u64) -> Vec<World> {
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

fn task_delete(world: &World, number: u64) -> Vec<World> {
    let running = world.attempts[&number].running();
    let deletes: Vec<FileName> = running.iter().flat_map(|running| &running.deletes).copied().collect();
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

// ---------------- a coordinator ----------------

fn trigger(world: &World, epoch: u64) -> Vec<World> {
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
        let id = said.notices.iter().find_map(|notice| match notice {
            Notice::Triggered { checkpoint, .. } => Some(*checkpoint),
            _ => None,
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
fn recv_ack(world: &World, epoch: u64) -> Vec<World> {
    let next = world.acks.iter().enumerate().filter_map(|(place, sent)| {
        let (said, cut) = &**sent;
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
    });
    next.collect()
}

/// Remembers what was acknowledged, if the acknowledgement was taken.
fn take_note(leader: &mut Leader, id: CheckpointId, subtask: SubtaskId, cut: &BTreeSet<u64>) {
    let view = leader.machine.view();
    let committing = view.committing.get(&id).map(|found| found.pending());
    let found = view.pending.get(&id).or(committing);
    if found.is_some_and(|pending| pending.acknowledged.contains_key(&subtask)) {
        leader.taken.entry((id, subtask)).or_insert_with(|| cut.clone());
    }
}

fn lose_ack(world: &World) -> Vec<World> {
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
fn abort(world: &World, epoch: u64) -> Vec<World> {
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

fn cancel(leader: &mut Leader, checkpoint: CheckpointId, said: &mut Said) -> bool {
    leader.drive(Event::CancelCheckpoint { checkpoint }, said) == Outcome::Accepted
}

/// What can't complete any more ends by its timeout; the harness has no clock, and cancels it.
fn expire(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    let pending = &leader.machine.view().pending;
    let hopeless = pending.iter().filter(|(id, pending)| {
        let mut waiting = pending.waiting();
        waiting.any(|subtask| is_hopeless(world, **id, pending.plan[&subtask], epoch))
    });
    let next = hopeless.filter_map(|(checkpoint, _)| {
        led(world, epoch, |_, leader, said| cancel(leader, *checkpoint, said))
    });
    next.collect()
}

/// Whether an attempt won't acknowledge a checkpoint any more.
fn is_hopeless(
    world: &World,
    id: CheckpointId,
    code: AttemptId,
    epoch: u64,
) -> bool {
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
fn committed(
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

fn complete(world: &World, epoch: u64) -> Vec<World> {
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
/// the same as if it arrived after. The world in between, and the one after both.
fn overlaps(world: &World) -> Vec<(World, World)> {
    let epoch = world.epoch();
    let Some(leader) = world.leaders.get(&epoch) else {
        return Vec::new();
    };
    let (Some(id), Some(between)) = (leader.completes_next(), complete(world, epoch).pop()) else {
        return Vec::new();
    };
    let acks = world.acks.iter().enumerate().filter(|(_, sent)| {
        let manifest = world.store.manifest.as_ref();
        let named = manifest.and_then(|manifest| manifest.subtask_of(sent.0.attempt));
        sent.0.epoch.0 == epoch && named == Some(sent.0.subtask)
    });
    let next = acks.filter_map(|(place, sent)| {
        let (said, cut) = &**sent;
        let next = led(world, epoch, |next, leader, heard| {
            next.acks.remove(place);
            leader.begin_commit(heard);
            let message = Message::Acknowledge(said.clone());
            let _ = leader.drive(Event::Received(message), heard);
            take_note(leader, said.checkpoint, said.subtask, cut);
            leader.end_commit(&mut next.store, heard);
            true
        });
        next.map(|mut next| {
            next.remember(id, leader);
            (between.clone(), next)
        })
    });
    next.collect()
}

/// Only while nothing waits for its commit: what does would go with it.
fn collect(world: &World, epoch: u64) -> Vec<World> {
    if !world.leads(epoch) || !none_is_ready(&world.leaders[&epoch]) {
        return Vec::new();
    }
    committed(world, epoch, |_, _| {}).into_iter().collect()
}

/// The listing shows one file. Not one below the floor that a named attempt has told: that sweep is
/// left out.
fn sweep(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    if !world.leads(epoch) || !none_is_ready(leader) {
        return Vec::new();
    }
    let view = leader.machine.view();
    let names = world.history.names.iter().filter_map(|(name, object)| match object {
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
fn delete(world: &World, epoch: u64) -> Vec<World> {
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
fn forget(world: &World, epoch: u64) -> Vec<World> {
    let leader = &world.leaders[&epoch];
    if !world.leads(epoch) || !none_is_ready(leader) {
        return Vec::new();
    }
    let gone = leader.deletes.iter().filter(|name| {
        let file = world.file(**name);
        file.is_some_and(|file| !world.store.objects.contains(&file))
    });
    let next = gone.filter_map(|name| {
        committed(world, epoch, |leader, said| leader.forget(*name, said))
    });
    next.collect()
}

// ---------------- a guest ----------------

fn guest_pin(world: &World, begins: bool) -> Vec<World> {
    let Some(manifest) = &world.store.manifest else {
        return Vec::new();
    };
    let pinned: BTreeSet<CheckpointId> = manifest.pins().iter().map(|(id, _)| *id).collect();
    if begins && pinned.len() as u64 >= world.bounds.max_pins {
        return Vec::new();
    }
    let wanted = manifest.retained().filter(|id| pinned.contains(id) != begins);
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
