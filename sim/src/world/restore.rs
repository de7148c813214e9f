//! Attempts that restore: read the manifest, fetch each file, check it, open the state.

use std::collections::{BTreeSet, VecDeque};

use stillpoint::protocol::answer::{Answer, FailureKind};
use stillpoint::protocol::file::{FileDescription, FileKind};
use stillpoint::protocol::id::{
    AttemptId, CheckpointId, FileName, LocalName, OperatorId, SubtaskId,
};
use stillpoint::protocol::manifest::{Expected, LoadError, Loaded, Loader, Manifest};
use stillpoint::protocol::restore::{FileMark, RestorePlan};
use stillpoint::protocol::store::{StorePayload, StoreToken};
use stillpoint::protocol::subtask::SubtaskConfig;

use super::attempt::{Instance, Phase};
use super::disk::{Directory, LocalFile, present};
use super::snapshot::{offset_of, user_bytes};
use super::story::Kind;
use super::{Happening, Start, World};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::invariants::is_honest;
use crate::lsm::{ContentId, Families, Lsm};
use crate::oracle::facts::{Caller, Fact};
use crate::store::{Fetched, Request};

/// Fetches under way at once.
const FETCHES_MAX: usize = 2;
/// Tries of one file before the restore is given up.
const TRIES_MAX: u32 = 8;

/// A restore under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Restore {
    checkpoint: CheckpointId,
    config: SubtaskConfig,
    pub(super) loader: Loader,
    pub(super) timer: Option<u64>,
    user_bytes: Vec<u8>,
    files: Vec<FileDescription>,
    /// What is there: before the plan what another attempt has left, then what is kept or fetched.
    directory: Directory,
    pack: Option<(LocalName, ContentId)>,
    unread: VecDeque<FileName>,
    under_way: BTreeSet<FileName>,
    tries: u32,
    /// How often a file was damaged since nothing is damaged on its way any more.
    damaged: u32,
}

impl Restore {
    pub(super) fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// What it leaves if it goes no further.
    pub(super) fn into_directory(self) -> Directory {
        self.directory
    }

    /// What a restore with this plan begins with.
    fn follow(&mut self, plan: &RestorePlan) {
        let keeps = |local: &LocalName| plan.keep.iter().any(|file| file.local == *local);
        self.directory.retain(|local, _| keeps(local));
        let to_fetch = plan.fetch.iter().chain(&plan.pack);
        self.unread = to_fetch.map(|file| file.name).collect();
    }

    /// A file has come, as it was stored.
    fn lay_down(&mut self, file: &FileDescription, content: ContentId) {
        let (name, digest) = (file.name, file.digest);
        let local = file.local.clone();
        match file.kind {
            FileKind::Pack => self.pack = Some((local, content)),
            FileKind::State => {
                let mark = Some(FileMark { name, digest });
                self.directory.insert(local, LocalFile { content, mark });
            }
        }
    }

    /// What it waits for, in words.
    pub(super) fn describe(&self) -> String {
        if self.files.is_empty() {
            format!("reads the manifest for {}", self.checkpoint)
        } else {
            format!(
                "{}, {} of {} files there",
                self.checkpoint,
                self.files.len() - self.unread.len() - self.under_way.len(),
                self.files.len()
            )
        }
    }
}

impl World {
    /// A worker starts an attempt.
    pub(super) fn start_attempt(&mut self, start: Start, choices: &mut Choices) {
        if self.workers[start.worker as usize].is_gone || !self.started.insert(start.attempt) {
            return;
        }
        let Start {
            attempt,
            subtask,
            worker,
            restore,
            epoch,
            root,
            leader,
        } = start;
        let limits = self.profile.config.limits.clone();
        let config = SubtaskConfig {
            subtask,
            attempt,
            epoch,
            root,
            limits: limits.clone(),
        };
        self.tell(
            || attempt.to_string(),
            Kind::Begin,
            || match restore {
                Some(checkpoint) => {
                    format!("starts as {subtask} on worker {worker}, restores {checkpoint}")
                }
                None => format!("starts as {subtask} on worker {worker}, empty"),
            },
        );
        let expected = Expected {
            job: None,
            root: Some(root),
        };
        let directory = self.take_directory(worker, subtask, choices);
        let instance = Instance {
            subtask,
            worker,
            leader,
            leader_epoch: epoch,
            started_by: leader,
            is_declared_dead: false,
            phase: Phase::Restoring(Box::new(Restore {
                checkpoint: restore.unwrap_or_default(),
                config: config.clone(),
                loader: Loader::new(expected, &limits),
                timer: None,
                user_bytes: Vec::new(),
                files: Vec::new(),
                directory,
                pack: None,
                unread: VecDeque::new(),
                under_way: BTreeSet::new(),
                tries: 0,
                damaged: 0,
            })),
        };
        self.instances.insert(attempt, instance);
        if restore.is_none() {
            self.run_attempt(attempt, config, (Lsm::default(), 0), None, choices);
        } else {
            self.note_restore();
            self.go_on_loading(attempt, choices);
        }
    }

    fn restore_of(&mut self, attempt: AttemptId) -> Option<&mut Restore> {
        match &mut self.instances.get_mut(&attempt)?.phase {
            Phase::Restoring(restore) => Some(restore),
            Phase::Running(_) => None,
        }
    }

    /// Tells a restore the time. False if the attempt does not restore.
    pub(super) fn restore_timer(&mut self, attempt: AttemptId, choices: &mut Choices) -> bool {
        let now = self.timestamp();
        let Some(restore) = self.restore_of(attempt) else {
            return false;
        };
        restore.timer = None;
        restore.loader.handle_timeout(now);
        self.go_on_loading(attempt, choices);
        true
    }

    pub(super) fn manifest_read(
        &mut self,
        attempt: AttemptId,
        token: &StoreToken,
        answer: Answer<StorePayload>,
        choices: &mut Choices,
    ) {
        let now = self.timestamp();
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        let _outcome = restore.loader.handle_answer(now, token, answer);
        self.events += 1;
        self.go_on_loading(attempt, choices);
        self.may_die_restoring(attempt, choices);
    }

    fn go_on_loading(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        let mut calls = Vec::new();
        while let Some(call) = restore.loader.poll_action() {
            calls.push(call);
        }
        let at = restore.loader.poll_timeout();
        if let Some(at) = at
            && restore.timer != Some(at.0)
        {
            restore.timer = Some(at.0);
            self.queue
                .schedule(at.0.max(self.now), Happening::AttemptTimer(attempt));
        }
        let result = self
            .restore_of(attempt)
            .and_then(|restore| restore.loader.take_result());
        for call in calls {
            self.issue(Caller::Restore(attempt), Request::Call(call), choices);
        }
        match result {
            None => {}
            Some(Ok(Loaded::Root(root))) => self.plan(attempt, &root.manifest, choices),
            Some(Ok(Loaded::NoRoot)) => self.restore_fails(attempt, "there is no root".to_owned()),
            Some(Err(error)) => self.load_fails(attempt, &error),
        }
    }

    /// The worker of an attempt that restores may die after each of its steps, as of one that runs.
    fn may_die_restoring(&mut self, attempt: AttemptId, choices: &mut Choices) {
        if self.restore_of(attempt).is_none() {
            return;
        }
        let rate = self.profile.rate(Fault::WorkerCrashes, self.healed);
        if choices.chance(rate, Label::CrashStep)
            && let Some(instance) = self.instances.get(&attempt)
        {
            let worker = instance.worker;
            self.struck.note(Fault::WorkerCrashes);
            self.crash_worker(worker);
        }
    }

    fn load_fails(&mut self, attempt: AttemptId, error: &LoadError) {
        if is_honest(&self.watch.facts, Caller::Restore(attempt), error) {
            self.kill_attempt(attempt, "gives up reading the manifest");
        } else {
            self.restore_fails(attempt, error.to_string());
        }
    }

    /// The manifest is read: what has to be fetched?
    fn plan(&mut self, attempt: AttemptId, manifest: &Manifest, choices: &mut Choices) {
        let is_modelled = self.profile.is_modelled;
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        let checkpoint = restore.checkpoint;
        let subtask = restore.config.subtask;
        let Some(retained) = manifest.checkpoint(checkpoint) else {
            return self.restore_fails(attempt, format!("{checkpoint} is not retained"));
        };
        restore.user_bytes = retained.subtasks.get(&subtask).cloned().unwrap_or_default();
        restore.files = manifest
            .registry()
            .files(checkpoint, subtask)
            .into_iter()
            .map(|file| file.to_description())
            .collect();
        let told = retained.families.get(&subtask.operator);
        let told = told.map_or(&[][..], Vec::as_slice);
        let planned = if is_modelled {
            Ok(fetch_all(&restore.files))
        } else {
            let there = present(&restore.directory);
            RestorePlan::new(checkpoint, subtask, &restore.files, &there)
        };
        match planned {
            Ok(plan) => restore.follow(&plan),
            Err(damage) => return self.restore_fails(attempt, damage.to_string()),
        }
        self.check_families(checkpoint, subtask.operator, told);
        self.go_on_fetching(attempt, choices);
    }

    fn go_on_fetching(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let mut names = Vec::new();
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        while restore.under_way.len() < FETCHES_MAX
            && let Some(name) = restore.unread.pop_front()
        {
            restore.under_way.insert(name);
            names.push(name);
        }
        let is_complete = restore.under_way.is_empty();
        for name in names {
            self.issue(Caller::Restore(attempt), Request::Fetch { name }, choices);
        }
        if is_complete {
            self.open_restored(attempt, choices);
        }
    }

    pub(super) fn fetched(
        &mut self,
        attempt: AttemptId,
        name: FileName,
        answer: Answer<Fetched>,
        choices: &mut Choices,
    ) {
        let is_healed = self.healed;
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        restore.under_way.remove(&name);
        let recorded = restore.files.iter().find(|file| file.name == name).cloned();
        let mut lost = None;
        let is_whole = |fetched: &Fetched| {
            let file = recorded.as_ref();
            file.is_some_and(|file| file.digest == fetched.digest)
        };
        match answer {
            Answer::Done(fetched) if is_whole(&fetched) => {
                if let (Some(file), Some(content)) = (&recorded, fetched.content) {
                    restore.lay_down(file, content);
                }
            }
            Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                lost = Some(failure.to_string());
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {
                restore.unread.push_back(name);
                restore.tries += 1;
                restore.damaged += u32::from(is_healed && matches!(answer, Answer::Done(_)));
                if restore.damaged > TRIES_MAX {
                    lost = Some(format!("{name} is damaged"));
                }
            }
        }
        self.events += 1;
        let gives_up = restore_tries(self.restore_of(attempt)) > TRIES_MAX;
        if let Some(why) = lost {
            self.restore_fails(attempt, why);
        } else if gives_up && !self.healed {
            self.kill_attempt(attempt, "gives up its restore");
        } else {
            self.go_on_fetching(attempt, choices);
            self.may_die_restoring(attempt, choices);
        }
    }

    fn open_restored(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        let restore = restore.clone();
        let there = restore.directory.iter();
        let there = there.map(|(local, file)| (local.clone(), file.content));
        let set: Vec<_> = there.chain(restore.pack.clone()).collect();
        let opened = if self.profile.is_modelled {
            Ok(Lsm::open_in_order(&set, &self.contents))
        } else {
            Lsm::open(&set, &self.contents)
        };
        let lsm = match opened {
            Ok(lsm) => lsm,
            Err(bad) => return self.restore_fails(attempt, format!("{bad:?}")),
        };
        let table = lsm.truth();
        let offset = offset_of(&restore.user_bytes).unwrap_or_default();
        if restore.user_bytes != user_bytes(&table, offset) {
            self.watch.break_promise(
                "RestoreIsExact",
                format!(
                    "{attempt} restored {} with user bytes of another cut",
                    restore.checkpoint
                ),
            );
        }
        let subtask = restore.config.subtask;
        let families = self.families_cut.get(&(restore.checkpoint, subtask));
        if families.is_some_and(|families| *families != lsm.families()) {
            let what = format!(
                "{attempt} restored {} with {:?}, it had {families:?}",
                restore.checkpoint,
                lsm.families()
            );
            self.watch.break_promise("RestoreIsExact", what);
        }
        self.fact(Fact::Restored(restore.checkpoint, subtask, attempt, table));
        self.fact(Fact::ReadsFrom(attempt, offset));
        self.note_restore();
        let restored = Some((restore.checkpoint, restore.files));
        self.run_attempt(attempt, restore.config, (lsm, offset), restored, choices);
    }

    /// A manifest says of a checkpoint which column families an operator had: is it so?
    fn check_families(&mut self, checkpoint: CheckpointId, operator: OperatorId, told: &[String]) {
        let first = SubtaskId { operator, index: 0 };
        let cuts = self.families_cut.range((checkpoint, first)..);
        let had = cuts
            .take_while(|((cut, subtask), _)| *cut == checkpoint && subtask.operator == operator)
            .fold(Families::default(), |all, (_, families)| all.and(*families));
        if had.names() != told {
            let what = format!("{checkpoint} of {operator:?} had {had:?}, and has {told:?}");
            self.watch.break_promise("RestoreIsExact", what);
        }
    }

    /// What an attempt was told to restore can't be restored.
    fn restore_fails(&mut self, attempt: AttemptId, why: String) {
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        let (checkpoint, subtask) = (restore.checkpoint, restore.config.subtask);
        self.fact(Fact::RestoreFailed(checkpoint, subtask, attempt, why));
        self.kill_attempt(attempt, "can't restore");
    }
}

/// Everything is fetched, where no pack reaches a leader.
fn fetch_all(files: &[FileDescription]) -> RestorePlan {
    RestorePlan {
        keep: Vec::new(),
        fetch: files.to_vec(),
        pack: None,
    }
}

fn restore_tries(restore: Option<&mut Restore>) -> u32 {
    restore.map_or(0, |restore| restore.tries)
}
