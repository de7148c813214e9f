//! What the machines come to in the variables of `CheckpointLifecycle`: its state, variable by variable.
//!
//! Left out are packs, local names, versions of the manifest, reserved ids, timers and what is told
//! to users. Numbers are the specification's, see [`History`].
//!
//! [`History`]: super::world::History

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::{AttemptState, PendingCheckpoint};
use stillpoint::protocol::file::FileSet;
use stillpoint::protocol::id::{CheckpointId, FileName};
use stillpoint::protocol::manifest::Manifest;
use stillpoint::protocol::message::Acknowledge;
use stillpoint::protocol::subtask::RemoteView;

use super::attempt::{Attempt, Running, Stage};
use super::leader::Leader;
use super::value::Value;
use super::world::{World, subtask};

/// The owner of the pins that the specification speaks of.
pub(super) const OWNER: &str = "guest";

impl World {
    /// The state.
    pub(super) fn lifecycle(&self) -> Value {
        let bounds = &self.bounds;
        Value::record([
            ("m", self.manifest()),
            ("cuts", Value::places(bounds.max_ckpt, |c| self.cut(c))),
            ("objects", Value::numbers(&self.store.objects)),
            ("creator", self.of_files(|file| self.creator(file).into())),
            (
                "ld",
                Value::places(bounds.max_epoch, |epoch| self.ld(epoch)),
            ),
            (
                "at",
                Value::places(bounds.max_attempt, |number| self.at(number)),
            ),
            ("acks", self.acks()),
            ("nextF", (self.history.creators.len() as u64 + 1).into()),
            ("nextA", (self.attempts.len() as u64 + 1).into()),
            ("nextC", (self.history.checkpoints.len() as u64 + 1).into()),
            ("faults", self.faults.into()),
        ])
    }

    /// What `CURRENT` comes to.
    pub(super) fn manifest(&self) -> Value {
        self.m(self.store.manifest.as_deref(), true)
    }

    fn of_tasks(&self, value: impl Fn(u32) -> Value) -> Value {
        let tasks = self.bounds.tasks.iter().zip(0..);
        Value::Function(
            tasks
                .map(|(name, index)| (Value::word(name), value(index)))
                .collect(),
        )
    }

    fn of_files(&self, value: impl Fn(u64) -> Value) -> Value {
        Value::places(self.bounds.max_file, value)
    }

    fn task(&self, index: u32) -> Value {
        Value::word(&self.bounds.tasks[index as usize])
    }

    fn creator(&self, file: u64) -> u64 {
        let place = usize::try_from(file - 1).unwrap_or(usize::MAX);
        self.history.creators.get(place).copied().unwrap_or(0)
    }

    fn checkpoint(&self, code: Option<CheckpointId>) -> Value {
        code.map_or(0, |code| self.checkpoint_number(code)).into()
    }

    fn cut(&self, checkpoint: u64) -> Value {
        self.of_tasks(|task| {
            let cut = self.history.cuts.get(&(checkpoint, task));
            Value::numbers(cut.into_iter().flatten())
        })
    }

    /// A manifest; one that is not there yet is empty.
    fn m(&self, manifest: Option<&Manifest>, pins: bool) -> Value {
        let Some(manifest) = manifest else {
            return self.m(
                Some(&Manifest::genesis(Default::default(), String::new())),
                pins,
            );
        };
        let ids: BTreeMap<u64, CheckpointId> = manifest
            .retained()
            .map(|code| (self.checkpoint_number(code), code))
            .collect();
        let parent = |number| {
            let found = ids.get(&number).and_then(|code| manifest.checkpoint(*code));
            self.checkpoint(found.and_then(|found| found.parent))
        };
        let owned = manifest.pins().iter().filter(|(_, owner)| owner.0 == OWNER);
        let pinned: BTreeSet<u64> = owned
            .map(|(code, _)| self.checkpoint_number(*code))
            .collect();
        let attempt = |task| {
            let code = manifest.attempts().get(&subtask(task)).copied();
            code.map_or(0, |code| self.attempt_number(code)).into()
        };
        Value::record([
            ("epoch", manifest.epoch().0.into()),
            ("ids", Value::numbers(ids.keys())),
            ("parent", Value::places(self.bounds.max_ckpt, parent)),
            ("intervals", self.intervals(manifest, &ids)),
            ("head", self.checkpoint(manifest.head())),
            ("pins", Value::numbers(pinned.iter().filter(|_| pins))),
            ("att", self.of_tasks(attempt)),
            (
                "released",
                Value::numbers(&self.files(manifest.released().keys())),
            ),
            ("tomb", Value::numbers(&self.files(manifest.tombstones()))),
        ])
    }

    /// An interval that has ended ends with the first retained checkpoint that it does not hold.
    fn intervals(&self, manifest: &Manifest, ids: &BTreeMap<u64, CheckpointId>) -> Value {
        let mut intervals = BTreeSet::new();
        for name in self.history.names.keys() {
            let Some(file) = self.file(*name) else {
                continue;
            };
            for interval in manifest.registry().intervals_of(*name) {
                let open = self.bounds.max_ckpt + 1;
                let dropped = interval.last.map_or(open, |last| {
                    let last = self.checkpoint_number(last);
                    let mut later = ids.keys().filter(|number| **number > last);
                    later.next().copied().unwrap_or(open)
                });
                intervals.insert(Value::record([
                    ("task", self.task(interval.subtask.index)),
                    ("file", file.into()),
                    ("born", self.checkpoint_number(interval.born).into()),
                    ("dropped", dropped.into()),
                ]));
            }
        }
        Value::Set(intervals)
    }

    /// What a leader knows.
    fn ld(&self, epoch: u64) -> Value {
        let leader = self.leaders.get(&epoch).filter(|leader| leader.is_up());
        let view = leader.map(|leader| leader.machine.view());
        let superseded = view.filter(|_| self.epoch() != epoch);
        let sees = superseded.and_then(|view| view.manifest);
        let named = |task: u32| {
            let view = view.as_ref()?;
            let mut attempts = view.attempts.iter();
            attempts.find(|(_, state)| state.subtask == subtask(task))
        };
        let followed = |task| match named(task) {
            Some((code, state)) if state.attached => self.attempt_number(*code).into(),
            _ => Value::from(0),
        };
        let staged = |file| {
            let attempts = view.iter().flat_map(|view| view.attempts.values());
            self.staged(file, attempts)
        };
        let orphans = leader.map(|leader| self.files(leader.machine.view().orphans));
        let last_ack = |state: &AttemptState| state.last_acknowledged;
        let declared = |state: &AttemptState| Some(state.last_declared);
        let of_named = |task, known: &dyn Fn(&AttemptState) -> Option<CheckpointId>| {
            self.checkpoint(named(task).and_then(|(_, state)| known(state)))
        };
        Value::record([
            ("up", leader.is_some().into()),
            ("sees", self.m(sees, false)),
            ("att", self.of_tasks(followed)),
            (
                "pend",
                leader.map_or(Value::numbers([]), |leader| self.pend(leader)),
            ),
            ("staged", self.of_files(staged)),
            ("orphans", Value::numbers(orphans.iter().flatten())),
            ("lastAck", self.of_tasks(|task| of_named(task, &last_ack))),
            (
                "lastDeclared",
                self.of_tasks(|task| of_named(task, &declared)),
            ),
        ])
    }

    fn staged<'a>(&self, file: u64, attempts: impl Iterator<Item = &'a AttemptState>) -> Value {
        let mut staged = attempts.flat_map(|state| &state.staged);
        let found = staged.find(|(name, _)| self.file(**name) == Some(file));
        let at = |code: Option<CheckpointId>| self.checkpoint(code);
        Value::record([
            ("first", at(found.map(|(_, staged)| staged.first))),
            ("last", at(found.map(|(_, staged)| staged.last))),
        ])
    }

    fn pend(&self, leader: &Leader) -> Value {
        let view = leader.machine.view();
        let pending = view.pending.iter();
        let committing = view
            .committing
            .iter()
            .map(|(id, found)| (id, found.pending()));
        let all = pending.chain(committing).map(|(id, pending)| {
            let settled = |task| {
                let trigger = leader.triggers.get(&(*id, subtask(task)));
                self.checkpoint(trigger.map(|trigger| trigger.settled))
            };
            Value::record([
                ("id", self.checkpoint(Some(*id))),
                ("base", self.checkpoint(pending.base)),
                (
                    "got",
                    self.of_tasks(|task| self.got(leader, *id, pending, task)),
                ),
                ("settled", self.of_tasks(settled)),
            ])
        });
        Value::Set(all.collect())
    }

    fn got(
        &self,
        leader: &Leader,
        id: CheckpointId,
        pending: &PendingCheckpoint,
        task: u32,
    ) -> Value {
        let part = pending.acknowledged.get(&subtask(task));
        let cut = leader
            .taken
            .get(&(id, subtask(task)))
            .filter(|_| part.is_some());
        let added = part.map(|part| self.files(part.delta.added.keys()));
        let removed = part.map(|part| self.files(&part.delta.removed));
        let returned = part.map(|part| self.files(&part.returned));
        Value::record([
            ("ok", part.is_some().into()),
            ("cut", Value::numbers(cut.into_iter().flatten())),
            ("added", Value::numbers(added.iter().flatten())),
            ("removed", Value::numbers(removed.iter().flatten())),
            ("returned", Value::numbers(returned.iter().flatten())),
        ])
    }

    /// What an attempt knows.
    fn at(&self, number: u64) -> Value {
        let nothing = At::default();
        let Some(attempt) = self.attempts.get(&number) else {
            return self.at_record("none", 0, &nothing);
        };
        let task = attempt.task;
        match &attempt.stage {
            Stage::Dead(true) => self.at_record("dead", task, &nothing),
            Stage::Dead(false) => self.at_record("gone", task, &nothing),
            Stage::Restoring { epoch, from, files } => {
                let known = At {
                    epoch: epoch.0,
                    last_snap: from.unwrap_or_default(),
                    done: *from,
                    knows: from.iter().copied().collect(),
                    restored: self.files(files.iter().map(|file| &file.name)),
                    ..nothing
                };
                self.at_record("restoring", task, &known)
            }
            Stage::Running(running) => self.at_record("run", task, &self.known(attempt, running)),
        }
    }

    fn known(&self, attempt: &Attempt, running: &Running) -> At {
        let view = running.machine.view();
        let stored = |remote: &RemoteView| match remote {
            RemoteView::Stored(name, _) => self.file(*name),
            RemoteView::Absent | RemoteView::Uploading(_) => None,
        };
        let files = view.snapshots.iter().flat_map(|snapshot| &snapshot.files);
        let mut remote: BTreeSet<u64> = files
            .chain(&view.live)
            .filter_map(|file| stored(&file.remote))
            .collect();
        // What is to be deleted is there until it is.
        remote.extend(self.files(&running.deletes));
        let snaps = view.snapshots.iter().map(|snapshot| {
            let named = snapshot.files.iter().filter_map(|file| match file.remote {
                RemoteView::Stored(name, _) | RemoteView::Uploading(name) => self.file(name),
                RemoteView::Absent => None,
            });
            let files: BTreeSet<u64> = named.collect();
            Value::record([
                ("id", self.checkpoint(Some(snapshot.checkpoint))),
                ("base", self.checkpoint(snapshot.base)),
                ("files", Value::numbers(&files)),
            ])
        });
        let mut declared = BTreeMap::new();
        for (checkpoint, names) in &view.unsettled {
            for name in names.iter().filter(|name| name.attempt == attempt.code) {
                declared.extend(self.file(*name).map(|file| (file, *checkpoint)));
            }
        }
        At {
            epoch: view.epoch.0,
            live: running.live.keys().copied().collect(),
            left: running.left.keys().copied().collect(),
            remote,
            snaps: snaps.collect(),
            sent: running.sent.clone(),
            declared,
            last_snap: view.last_snapshot,
            done: view.newest_completed,
            knows: view.bases,
            restored: running.restored.clone(),
        }
    }

    fn at_record(&self, stage: &str, task: u32, known: &At) -> Value {
        let knows: BTreeSet<u64> = known
            .knows
            .iter()
            .map(|c| self.checkpoint_number(*c))
            .collect();
        let declared = |file| self.checkpoint(known.declared.get(&file).copied());
        Value::record([
            ("st", Value::word(stage)),
            ("task", self.task(task)),
            ("epoch", known.epoch.into()),
            ("live", Value::numbers(&known.live)),
            ("left", Value::numbers(&known.left)),
            ("remote", Value::numbers(&known.remote)),
            ("snaps", Value::Set(known.snaps.clone())),
            ("sent", Value::numbers(&known.sent)),
            ("declared", self.of_files(declared)),
            ("lastSnap", self.checkpoint(Some(known.last_snap))),
            ("done", self.checkpoint(known.done)),
            ("knows", Value::numbers(&knows)),
            ("restored", Value::numbers(&known.restored)),
        ])
    }

    fn acks(&self) -> Value {
        let acks = self.acks.iter().map(|sent| self.ack(&sent.0, &sent.1));
        Value::Set(acks.collect())
    }

    fn ack(&self, said: &Acknowledge, cut: &BTreeSet<u64>) -> Value {
        let named = said.files.named().iter().map(|file| &file.name);
        let nothing: &[FileName] = &[];
        let (base, removed) = match &said.files {
            FileSet::Full(_) => (None, nothing),
            FileSet::Delta { base, removed, .. } => (Some(*base), removed.as_slice()),
        };
        Value::record([
            ("epoch", said.epoch.0.into()),
            ("id", self.checkpoint(Some(said.checkpoint))),
            ("task", self.task(said.subtask.index)),
            ("att", self.attempt_number(said.attempt).into()),
            ("cut", Value::numbers(cut)),
            ("base", self.checkpoint(base)),
            ("added", Value::numbers(&self.files(named))),
            ("removed", Value::numbers(&self.files(removed))),
        ])
    }
}

/// What an attempt knows, in the specification's words.
#[derive(Default)]
struct At {
    epoch: u64,
    live: BTreeSet<u64>,
    left: BTreeSet<u64>,
    remote: BTreeSet<u64>,
    snaps: BTreeSet<Value>,
    sent: BTreeSet<u64>,
    declared: BTreeMap<u64, CheckpointId>,
    last_snap: CheckpointId,
    done: Option<CheckpointId>,
    knows: BTreeSet<CheckpointId>,
    restored: BTreeSet<u64>,
}
