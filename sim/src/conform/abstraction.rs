//! What the machines come to in the variables of `CheckpointLifecycle`: its state, variable by variable.
//!
//! ```text
//!  World, driven action by action --+
//!                                   +--> Sight --state--> Value
//!  the simulator's world -----------+
//! ```
//!
//! Left out are packs, local names, versions of the manifest, reserved ids, timers and what is told
//! to users. Numbers are the specification's, see [`History`].
//!
//! Invariant: whatever machines can say of themselves is read from their views. A sight adds what
//! they can't: what is on its way, what has been, and the state that attempts run on.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::{self, AttemptState, PendingCheckpoint};
use stillpoint::protocol::file::FileSet;
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, SubtaskId};
use stillpoint::protocol::manifest::{Manifest, PinOwner};
use stillpoint::protocol::message::Acknowledge;
use stillpoint::protocol::subtask::{self, RemoteView};

use super::bounds::Bounds;
use super::history::{History, subtask};
use super::value::Value;

/// All that a state of the specification is made of.
pub(crate) struct Sight<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) history: &'a History,
    /// The manifest; none before it is there.
    pub(crate) manifest: Option<&'a Manifest>,
    /// Whose pins the specification speaks of.
    pub(crate) pins: fn(&PinOwner) -> bool,
    pub(crate) objects: &'a BTreeSet<u64>,
    /// Those who lead or take themselves for leaders, by epoch.
    pub(crate) leaders: BTreeMap<u64, LeaderSight<'a>>,
    /// As the specification numbers them.
    pub(crate) attempts: BTreeMap<u64, AttemptSight>,
    /// Acknowledgements under way, each with the files at its cut.
    pub(crate) acks: Vec<(&'a Acknowledge, &'a BTreeSet<u64>)>,
    pub(crate) faults: u64,
}

/// Of a checkpoint under way: what is known of a subtask.
pub(crate) type OfSubtask<T> = BTreeMap<(CheckpointId, SubtaskId), T>;

/// A leader.
pub(crate) struct LeaderSight<'a> {
    /// What it shows; nothing before it has learned that it leads.
    pub(crate) view: Option<coordinator::View<'a>>,
    /// The manifest as it last was its own.
    pub(crate) manifest: Option<&'a Manifest>,
    /// What it said in its triggers of checkpoints under way is settled.
    pub(crate) settled: OfSubtask<u64>,
    /// The cuts that were acknowledged to it.
    pub(crate) taken: &'a OfSubtask<BTreeSet<u64>>,
}

/// An attempt.
pub(crate) struct AttemptSight {
    pub(crate) code: AttemptId,
    pub(crate) task: u32,
    pub(crate) stage: StageSight,
}

/// How far an attempt's life has come.
pub(crate) enum StageSight {
    /// It fetches these files.
    Restoring {
        epoch: u64,
        from: Option<CheckpointId>,
        files: BTreeSet<u64>,
    },
    /// It runs.
    Running(Box<RunningSight>),
    /// It died; whether it had run before.
    Dead(bool),
}

/// An attempt that runs.
pub(crate) struct RunningSight {
    /// What it shows.
    pub(crate) view: subtask::View,
    /// The files of the state.
    pub(crate) live: BTreeSet<u64>,
    /// Those that left since the last cut.
    pub(crate) left: BTreeSet<u64>,
    /// What it began with.
    pub(crate) restored: BTreeSet<u64>,
    /// The files of its own that an acknowledgement has named.
    pub(crate) sent: BTreeSet<u64>,
    /// The files of the snapshots under way.
    pub(crate) snapshots: BTreeMap<CheckpointId, BTreeSet<u64>>,
    /// What is in the store and it does not show as stored: it has not heard of it yet, or is having
    /// it deleted.
    pub(crate) stored: BTreeSet<u64>,
}

impl Sight<'_> {
    /// The state.
    pub(crate) fn state(&self) -> Value {
        let bounds = self.bounds;
        Value::record([
            ("m", self.manifest()),
            ("cuts", Value::places(bounds.max_ckpt, |c| self.cut(c))),
            ("objects", Value::numbers(self.objects)),
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

    /// What the manifest comes to.
    pub(crate) fn manifest(&self) -> Value {
        self.m(self.manifest, true)
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

    fn checkpoint_number(&self, code: CheckpointId) -> u64 {
        self.history.checkpoint_number(code)
    }

    fn checkpoint(&self, code: Option<CheckpointId>) -> Value {
        code.map_or(0, |code| self.checkpoint_number(code)).into()
    }

    fn attempt_number(&self, code: AttemptId) -> u64 {
        let mut attempts = self.attempts.iter();
        let found = attempts.find(|(_, attempt)| attempt.code == code);
        found.map_or(0, |(number, _)| *number)
    }

    fn file(&self, name: FileName) -> Option<u64> {
        self.history.file(name)
    }

    fn files<'b>(&self, names: impl IntoIterator<Item = &'b FileName>) -> BTreeSet<u64> {
        self.history.files(names)
    }

    fn epoch(&self) -> u64 {
        self.manifest.map_or(0, |manifest| manifest.epoch().0)
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
        let owned = manifest
            .pins()
            .iter()
            .filter(|(_, owner)| (self.pins)(owner));
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
        let leader = self.leaders.get(&epoch);
        let view = leader.and_then(|leader| leader.view);
        let superseded = leader.filter(|_| self.epoch() != epoch);
        let sees = superseded.and_then(|leader| leader.manifest);
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
        let orphans = view.map(|view| self.files(view.orphans));
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
        self.checkpoint(found.map(|(_, last)| *last))
    }

    fn pend(&self, leader: &LeaderSight<'_>) -> Value {
        let Some(view) = leader.view else {
            return Value::numbers([]);
        };
        let pending = view.pending.iter();
        let committing = view
            .committing
            .iter()
            .map(|(id, found)| (id, found.pending()));
        let all = pending.chain(committing).map(|(id, pending)| {
            let settled = |task| {
                let settled = leader.settled.get(&(*id, subtask(task)));
                Value::from(settled.copied().unwrap_or(0))
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
        leader: &LeaderSight<'_>,
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
            StageSight::Dead(true) => self.at_record("dead", task, &nothing),
            StageSight::Dead(false) => self.at_record("gone", task, &nothing),
            StageSight::Restoring { epoch, from, files } => {
                let known = At {
                    epoch: *epoch,
                    last_snap: from.unwrap_or_default(),
                    done: *from,
                    knows: from.iter().copied().collect(),
                    restored: files.clone(),
                    ..nothing
                };
                self.at_record("restoring", task, &known)
            }
            StageSight::Running(running) => {
                self.at_record("run", task, &self.known(attempt, running))
            }
        }
    }

    fn known(&self, attempt: &AttemptSight, running: &RunningSight) -> At {
        let view = &running.view;
        let stored = |remote: &RemoteView| match remote {
            RemoteView::Stored(name, _) => self.file(*name),
            RemoteView::Absent | RemoteView::Uploading(_) => None,
        };
        let files = view.snapshots.iter().flat_map(|snapshot| &snapshot.files);
        let mut remote: BTreeSet<u64> = files
            .chain(&view.live)
            .filter_map(|file| stored(&file.remote))
            .collect();
        remote.extend(&running.stored);
        let snaps = view.snapshots.iter().map(|snapshot| {
            let files = running.snapshots.get(&snapshot.checkpoint);
            Value::record([
                ("id", self.checkpoint(Some(snapshot.checkpoint))),
                ("base", self.checkpoint(snapshot.base)),
                ("files", Value::numbers(files.into_iter().flatten())),
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
            live: running.live.clone(),
            left: running.left.clone(),
            remote,
            snaps: snaps.collect(),
            sent: running.sent.clone(),
            declared,
            last_snap: view.last_snapshot,
            done: view.newest_completed,
            knows: view.bases.clone(),
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
        let acks = self.acks.iter().map(|(said, cut)| self.ack(said, cut));
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
