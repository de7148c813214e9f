//! Attempts that restore: read the manifest, fetch each file, check it, open the state.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::answer::{Answer, FailureKind};
use stillpoint::protocol::file::FileDescription;
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName};
use stillpoint::protocol::manifest::{Expected, LoadError, Loaded, Loader, Manifest};
use stillpoint::protocol::store::{StorePayload, StoreToken};
use stillpoint::protocol::subtask::SubtaskConfig;

use super::attempt::{Instance, Phase, user_bytes};
use super::story::Kind;
use super::{Happening, Start, World};
use crate::choice::Choices;
use crate::lsm::{ContentId, Lsm};
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
    unread: BTreeSet<FileName>,
    under_way: BTreeSet<FileName>,
    fetched: BTreeMap<FileName, ContentId>,
    tries: u32,
}

impl Restore {
    pub(super) fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// What it waits for, in words.
    pub(super) fn describe(&self) -> String {
        if self.files.is_empty() {
            format!("reads the manifest for {}", self.checkpoint)
        } else {
            format!(
                "{}, {} of {} files fetched",
                self.checkpoint,
                self.fetched.len(),
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
        let instance = Instance {
            subtask,
            worker,
            leader,
            leader_epoch: epoch,
            is_declared_dead: false,
            phase: Phase::Restoring(Box::new(Restore {
                checkpoint: restore.unwrap_or_default(),
                config: config.clone(),
                loader: Loader::new(expected, &limits),
                timer: None,
                user_bytes: Vec::new(),
                files: Vec::new(),
                unread: BTreeSet::new(),
                under_way: BTreeSet::new(),
                fetched: BTreeMap::new(),
                tries: 0,
            })),
        };
        self.instances.insert(attempt, instance);
        if restore.is_none() {
            self.run_attempt(attempt, config, Lsm::default(), None, choices);
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

    fn load_fails(&mut self, attempt: AttemptId, error: &LoadError) {
        let transient = matches!(
            error,
            LoadError::Unreadable { .. } | LoadError::Overtaken(_)
        ) || !self.watch.facts.damaged_reads.is_empty();
        if transient {
            self.kill_attempt(attempt, "gives up reading the manifest");
        } else {
            self.restore_fails(attempt, error.to_string());
        }
    }

    /// The manifest is read: what has to be fetched?
    fn plan(&mut self, attempt: AttemptId, manifest: &Manifest, choices: &mut Choices) {
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
        restore.unread = restore.files.iter().map(|file| file.name).collect();
        self.go_on_fetching(attempt, choices);
    }

    fn go_on_fetching(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let mut names = Vec::new();
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        while restore.under_way.len() < FETCHES_MAX
            && let Some(name) = restore.unread.pop_first()
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
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        restore.under_way.remove(&name);
        let recorded = restore.files.iter().find(|file| file.name == name);
        let mut missing = None;
        match answer {
            Answer::Done(fetched) if recorded.is_some_and(|file| file.digest == fetched.digest) => {
                if let Some(content) = fetched.content {
                    restore.fetched.insert(name, content);
                }
            }
            Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                missing = Some(failure.to_string());
            }
            Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {
                restore.unread.insert(name);
                restore.tries += 1;
            }
        }
        self.events += 1;
        let gives_up = restore_tries(self.restore_of(attempt)) > TRIES_MAX;
        if let Some(why) = missing {
            self.restore_fails(attempt, why);
        } else if gives_up && !self.healed {
            self.kill_attempt(attempt, "gives up its restore");
        } else {
            self.go_on_fetching(attempt, choices);
        }
    }

    fn open_restored(&mut self, attempt: AttemptId, choices: &mut Choices) {
        let Some(restore) = self.restore_of(attempt) else {
            return;
        };
        let restore = restore.clone();
        let set: Vec<_> = restore
            .files
            .iter()
            .filter_map(|file| Some((file.local.clone(), *restore.fetched.get(&file.name)?)))
            .collect();
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
        if restore.user_bytes != user_bytes(&table) {
            self.watch.break_promise(
                "RestoreIsExact",
                format!(
                    "{attempt} restored {} with user bytes of another cut",
                    restore.checkpoint
                ),
            );
        }
        let subtask = restore.config.subtask;
        self.fact(Fact::Restored(restore.checkpoint, subtask, attempt, table));
        self.note_restore();
        let restored = Some((restore.checkpoint, restore.files));
        self.run_attempt(attempt, restore.config, lsm, restored, choices);
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

fn restore_tries(restore: Option<&mut Restore>) -> u32 {
    restore.map_or(0, |restore| restore.tries)
}
