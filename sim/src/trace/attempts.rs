//! What an observer remembers of an attempt.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::file::FileKind;
use stillpoint::protocol::id::{AttemptId, CheckpointId, LocalName};
use stillpoint::protocol::subtask::View;

use crate::conform::abstraction::{AttemptSight, RunningSight, StageSight};
use crate::lsm::{ContentId, LsmFile};
use crate::world::SeenRunning;

/// The specification's numbers of files, by what they hold.
pub(super) type Numbers = BTreeMap<ContentId, u64>;

/// An attempt, from its deployment on.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) code: AttemptId,
    pub(super) task: u32,
    pub(super) stage: Stage,
}

/// How far it has come.
#[derive(Debug)]
pub(super) enum Stage {
    Restoring {
        epoch: u64,
        from: Option<CheckpointId>,
        files: BTreeSet<u64>,
    },
    Running(Box<Running>),
    Dead(bool),
}

/// An attempt that runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// What it shows; nothing before it was looked at.
    view: Option<View>,
    live: BTreeSet<u64>,
    pub(super) left: BTreeSet<u64>,
    restored: BTreeSet<u64>,
    /// The files of its own that an acknowledgement has named.
    pub(super) sent: BTreeSet<u64>,
    /// What it has brought into the store and not deleted.
    pub(super) stored: BTreeSet<u64>,
    /// The files at its cuts.
    pub(super) cuts: BTreeMap<CheckpointId, BTreeMap<LocalName, u64>>,
}

/// How the files of an attempt's state have changed.
pub(super) enum Change {
    Nothing,
    Flush,
    Compact,
    /// Something that no action is.
    Other,
}

impl Life {
    pub(super) fn running(&mut self) -> Option<&mut Running> {
        match &mut self.stage {
            Stage::Running(running) => Some(running),
            Stage::Restoring { .. } | Stage::Dead(_) => None,
        }
    }

    /// Notes that it runs. True if that is news.
    pub(super) fn runs(&mut self) -> bool {
        let Stage::Restoring { files, .. } = &self.stage else {
            return false;
        };
        let running = Running {
            live: files.clone(),
            restored: files.clone(),
            ..Running::default()
        };
        self.stage = Stage::Running(Box::new(running));
        true
    }

    pub(super) fn sight(&self) -> AttemptSight {
        let stage = match &self.stage {
            Stage::Dead(ran) => StageSight::Dead(*ran),
            Stage::Restoring { epoch, from, files } => StageSight::Restoring {
                epoch: *epoch,
                from: *from,
                files: files.clone(),
            },
            Stage::Running(running) => StageSight::Running(Box::new(running.sight())),
        };
        AttemptSight {
            code: self.code,
            task: self.task,
            stage,
        }
    }
}

impl Running {
    /// Takes in how the files have changed; those that are new are numbered.
    pub(super) fn files(
        &mut self,
        files: &[LsmFile],
        mut number: impl FnMut(ContentId) -> u64,
    ) -> Change {
        let now: BTreeSet<u64> = files.iter().map(|file| number(file.content)).collect();
        let gone: BTreeSet<u64> = self.live.difference(&now).copied().collect();
        let came = now.difference(&self.live).count();
        self.left.extend(&gone);
        self.live = now;
        match (came, gone.is_empty()) {
            (0, true) => Change::Nothing,
            (1, true) => Change::Flush,
            (1, false) => Change::Compact,
            _ => Change::Other,
        }
    }

    /// Takes in what its machine shows now, and names the actions that it took.
    pub(super) fn look(&mut self, seen: &SeenRunning<'_>, numbers: &Numbers) -> Vec<&'static str> {
        for (checkpoint, files) in &seen.cuts {
            let files = files.iter();
            let numbered =
                files.filter_map(|file| Some((file.local(), *numbers.get(&file.content)?)));
            self.cuts
                .entry(*checkpoint)
                .or_insert_with(|| numbered.collect());
        }
        let view = seen.machine.view();
        let actions = match &self.view {
            None => Vec::new(),
            Some(before) => actions(before, &view),
        };
        if actions.contains(&"Snapshot") {
            self.left.clear();
        }
        self.view = Some(view);
        actions
    }

    /// The files at a cut.
    pub(super) fn cut(&self, checkpoint: CheckpointId) -> BTreeSet<u64> {
        let cut = self.cuts.get(&checkpoint);
        cut.into_iter()
            .flat_map(BTreeMap::values)
            .copied()
            .collect()
    }

    /// The epoch that it follows.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.view.as_ref().map(|view| view.epoch.0)
    }

    fn sight(&self) -> RunningSight {
        let view = self
            .view
            .clone()
            .expect("it was looked at when it began to run");
        let snapshots = view.snapshots.iter().map(|snapshot| {
            let cut = self.cuts.get(&snapshot.checkpoint);
            let files = snapshot
                .files
                .iter()
                .filter(|file| file.kind == FileKind::State);
            let numbered = files.filter_map(|file| cut?.get(&file.local).copied());
            (snapshot.checkpoint, numbered.collect::<BTreeSet<u64>>())
        });
        let snapshots: BTreeMap<_, _> = snapshots.collect();
        // The machine forgets a file of its own when it has it deleted, and learns late that one is
        // stored. A file that was named or is another's is remembered while it is wanted.
        let wanted = |file: &u64| {
            self.live.contains(file)
                || self.left.contains(file)
                || snapshots.values().any(|files| files.contains(file))
        };
        let stored = self.stored.iter();
        let stored = stored.filter(|file| !self.sent.contains(file) || wanted(file));
        RunningSight {
            live: self.live.clone(),
            left: self.left.clone(),
            restored: self.restored.clone(),
            sent: self.sent.clone(),
            stored: stored.copied().collect(),
            snapshots,
            view,
        }
    }
}

/// What a machine did between two views of it. What it gives up as it follows another leader is part
/// of that.
fn actions(before: &View, now: &View) -> Vec<&'static str> {
    let follows = before.epoch != now.epoch;
    let held = |view: &View| -> BTreeSet<CheckpointId> {
        view.snapshots
            .iter()
            .map(|snapshot| snapshot.checkpoint)
            .collect()
    };
    let had = held(before);
    let mut has = held(now);
    // One may be taken and acknowledged at once.
    has.extend(now.unanswered.difference(&before.unanswered));
    let mut actions = vec!["Snapshot"; has.difference(&had).count()];
    if !follows {
        actions.extend(vec!["DropSnap"; had.difference(&has).count()]);
        if before.newest_completed != now.newest_completed
            && actions.iter().all(|name| *name != "Snapshot")
        {
            actions.push("ForgetBase");
        }
    }
    actions
}
