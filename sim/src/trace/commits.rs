//! Which actions the commits of the manifest are, and when.
//!
//! A commit is a step when its leader has heard of it, or when another leader's claim builds on it:
//! until then nobody acts on it. A claim is one when it lands, and a guest's commit when the leader
//! has read it.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::coordinator::Coordinator;
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, SubtaskId};
use stillpoint::protocol::manifest::{Change, Manifest, Record};

use super::actions;
use super::attempts::{Life, Stage};
use super::leaders::Led;
use super::observer::Observer;
use crate::conform::history::subtask;
use crate::oracle::facts::{Caller, ProcessId};

/// Whether a record is a step by now.
enum Due {
    Yes,
    NotYet,
    /// It is, and its leader, which has not heard of it, is not known to be as if it had.
    Unheard,
}

fn claims(record: &Record) -> bool {
    matches!(record.changes.first(), Some(Change::Claim { .. }))
}

impl Observer {
    /// The checkpoints that the manifest retains.
    pub(super) fn retained(&self) -> BTreeSet<CheckpointId> {
        let manifest = self.manifest.iter();
        manifest.flat_map(Manifest::retained).collect()
    }

    /// Makes steps of the records that are due. The attempts that they deploy.
    pub(super) fn advance(
        &mut self,
        machines: &BTreeMap<ProcessId, &Coordinator>,
    ) -> BTreeSet<AttemptId> {
        let mut deployed = BTreeSet::new();
        while let Some((caller, record)) = self.records.front() {
            match self.due(*caller, record, machines) {
                Due::NotYet => break,
                Due::Unheard => {
                    self.end("a leader has not heard of its last commit");
                    break;
                }
                Due::Yes => {
                    if let Some((caller, record)) = self.records.pop_front() {
                        self.apply(caller, &record, &mut deployed);
                    }
                }
            }
        }
        deployed
    }

    fn due(
        &self,
        caller: Option<Caller>,
        record: &Record,
        machines: &BTreeMap<ProcessId, &Coordinator>,
    ) -> Due {
        let is_topped = self.records.iter().any(|(_, record)| claims(record));
        let epoch = self
            .manifest
            .as_ref()
            .map_or(0, |manifest| manifest.epoch().0);
        let Some(led) = self.leaders.get(&epoch) else {
            return Due::Yes;
        };
        let machine = machines.get(&led.process).copied();
        let manifest = machine.and_then(|machine| led.view(machine)?.manifest);
        let has_heard = manifest.is_some_and(|manifest| manifest.version() >= record.version);
        let is_own = caller == Some(Caller::Coordinator(led.process)) && !claims(record);
        match (has_heard, is_topped || machine.is_none()) {
            (false, false) => Due::NotYet,
            (false, true) if is_own => Due::Unheard,
            (false, true) | (true, _) => Due::Yes,
        }
    }

    fn apply(
        &mut self,
        caller: Option<Caller>,
        record: &Record,
        deployed: &mut BTreeSet<AttemptId>,
    ) {
        let genesis = || Manifest::genesis(Default::default(), String::new());
        let before = self.manifest.clone().unwrap_or_else(genesis);
        let mut now = before.clone();
        if let Err(error) = now.apply(record) {
            return self.end(&format!("a record does not apply: {error}"));
        }
        let epoch = record.epoch.0;
        let mut names = pinned(&before, &now);
        let completes = |change: &Change| matches!(change, Change::Complete(_));
        if record.changes.iter().any(completes) {
            if !names.is_empty() {
                self.end("what a pin keeps goes with the completion after its end");
            }
            if matches!(caller, Some(Caller::Coordinator(id)) if self.deploying.contains(&id)) {
                self.end("a completion keeps what a deployment waits for");
            }
        }
        for change in &record.changes {
            match change {
                Change::Claim { .. } => {
                    names.push("Claim");
                    if let Some(Caller::Coordinator(process)) = caller {
                        self.leaders.insert(epoch, Led::new(process, now.clone()));
                    }
                }
                Change::Complete(completion) => {
                    names.push("Complete");
                    self.remember(epoch, completion.checkpoint);
                }
                Change::Deploy { head, attempts } => {
                    names.push("Deploy");
                    deployed.extend(attempts.iter().map(|(_, code)| *code));
                    self.deploy(epoch, *head, attempts, &now);
                }
                Change::Condemn { files } => names.extend(self.condemned(epoch, files, &before)),
                Change::Forget { files } => {
                    names.extend(vec!["Forget"; self.history.files(files).len()]);
                }
                // Pins were compared; the end of an attempt is not told here; what is subsumed is part
                // of the completion; and ids and descriptions the specification does not see.
                Change::Pin { .. }
                | Change::Unpin { .. }
                | Change::End { .. }
                | Change::Subsume { .. }
                | Change::Reserve { .. }
                | Change::Describe { .. } => {}
            }
        }
        // Whatever a commit is made for, it condemns what is garbage as well, if it looks.
        if names
            .iter()
            .any(|name| ["Complete", "Deploy", "Forget", "Sweep"].contains(name))
        {
            names.retain(|name| *name != "Collect");
        }
        let looked = record
            .changes
            .iter()
            .any(|change| !change.condemned().is_empty());
        let has = |wanted: [&str; 2]| wanted.iter().any(|name| names.contains(name));
        let led = self.leaders.get(&epoch);
        let leaves_garbage =
            has(["Deploy", "Forget"]) && !looked && led.is_some_and(|led| led.may_leave_garbage);
        let tasks = self.bounds.tasks.len();
        let lets_wait =
            has(["Forget", "Sweep"]) && led.is_some_and(|led| led.lets_wait(record, tasks));
        if leaves_garbage {
            self.end("a commit may have left garbage that it had no reason to look for");
        }
        if lets_wait {
            self.end("a completion goes with something else, while another waits for its commit");
        }
        self.manifest = Some(now);
        actions::sort_commit(&mut names);
        self.by.extend(names);
        self.bury();
    }

    fn deploy(
        &mut self,
        epoch: u64,
        head: Option<CheckpointId>,
        attempts: &[(SubtaskId, AttemptId)],
        manifest: &Manifest,
    ) {
        for (subtask, code) in attempts {
            let files = head.map(|head| manifest.registry().files(head, *subtask));
            let files = files.into_iter().flatten();
            let stage = Stage::Restoring {
                epoch,
                from: head,
                files: files
                    .filter_map(|file| self.history.file(file.name))
                    .collect(),
            };
            let life = Life {
                code: *code,
                task: subtask.index,
                stage,
            };
            self.attempts.insert(self.attempts.len() as u64 + 1, life);
        }
    }

    /// A file that its leader did not care for and no checkpoint has held was found by the sweep.
    fn condemned(&self, epoch: u64, files: &[FileName], before: &Manifest) -> Vec<&'static str> {
        let led = self.leaders.get(&epoch);
        let is_swept = |name: &&FileName| {
            let is_cared_for = led.is_some_and(|led| led.cares_for(**name));
            let is_known = before.registry().holds(**name) || before.released().contains_key(*name);
            self.history.file(**name).is_some() && !is_cared_for && !is_known
        };
        let swept = files.iter().filter(is_swept).count();
        if swept == 0 && !self.history.files(files).is_empty() {
            return vec!["Collect"];
        }
        vec!["Sweep"; swept]
    }

    /// What a checkpoint was that its leader completes.
    fn remember(&mut self, epoch: u64, id: CheckpointId) {
        let number = self.history.checkpoint_number(id);
        let Some(led) = self.leaders.get(&epoch) else {
            return;
        };
        for task in (0..).take(self.bounds.tasks.len()) {
            let cut = led.taken.get(&(id, subtask(task))).cloned();
            self.history
                .cuts
                .insert((number, task), cut.unwrap_or_default());
        }
    }
}

/// Whose first pin has come, or whose last has gone, between two manifests.
fn pinned(before: &Manifest, now: &Manifest) -> Vec<&'static str> {
    let both = before.retained().chain(now.retained());
    let checkpoints: BTreeSet<CheckpointId> = both.collect();
    let changes =
        checkpoints
            .into_iter()
            .filter_map(|id| match (before.is_pinned(id), now.is_pinned(id)) {
                (false, true) => Some("GuestPin"),
                (true, false) => Some("GuestUnpin"),
                (true, true) | (false, false) => None,
            });
    changes.collect()
}
