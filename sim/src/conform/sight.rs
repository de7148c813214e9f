//! What the specification sees of the machines that the harness drives.

use std::collections::BTreeSet;

use stillpoint::protocol::manifest::PinOwner;
use stillpoint::protocol::subtask::RemoteView;

use super::abstraction::{AttemptSight, LeaderSight, RunningSight, Sight, StageSight};
use super::attempt::{Attempt, Running, Stage};
use super::leader::Leader;
use super::value::Value;
use super::world::World;

/// The owner of the pins that the specification speaks of.
pub(super) const OWNER: &str = "guest";

impl World {
    /// The state.
    pub(super) fn lifecycle(&self) -> Value {
        self.sight().state()
    }

    /// What `CURRENT` comes to.
    pub(super) fn manifest(&self) -> Value {
        self.sight().manifest()
    }

    fn sight(&self) -> Sight<'_> {
        let up = self.leaders.iter().filter(|(_, leader)| leader.is_up());
        Sight {
            bounds: &self.bounds,
            history: &self.history,
            manifest: self.store.manifest.as_deref(),
            pins: |owner: &PinOwner| owner.0 == OWNER,
            objects: &self.store.objects,
            leaders: up
                .map(|(epoch, leader)| (*epoch, self.led(leader)))
                .collect(),
            attempts: self
                .attempts
                .iter()
                .map(|(number, attempt)| (*number, self.seen(attempt)))
                .collect(),
            acks: self.acks.iter().map(|sent| (&sent.0, &sent.1)).collect(),
            faults: self.faults,
        }
    }

    fn seen(&self, attempt: &Attempt) -> AttemptSight {
        let stage = match &attempt.stage {
            Stage::Dead(ran) => StageSight::Dead(*ran),
            Stage::Restoring { epoch, from, files } => StageSight::Restoring {
                epoch: epoch.0,
                from: *from,
                files: self.history.files(files.iter().map(|file| &file.name)),
            },
            Stage::Running(running) => StageSight::Running(Box::new(self.running(running))),
        };
        AttemptSight {
            code: attempt.code,
            task: attempt.task,
            stage,
        }
    }

    fn running(&self, running: &Running) -> RunningSight {
        let view = running.machine.view();
        let snapshots = view.snapshots.iter().map(|snapshot| {
            let named = snapshot.files.iter().filter_map(|file| match file.remote {
                RemoteView::Stored(name, _) | RemoteView::Uploading(name) => self.file(name),
                RemoteView::Absent => None,
            });
            (snapshot.checkpoint, named.collect::<BTreeSet<u64>>())
        });
        RunningSight {
            snapshots: snapshots.collect(),
            live: running.live.keys().copied().collect(),
            left: running.left.keys().copied().collect(),
            restored: running.restored.clone(),
            sent: running.sent.clone(),
            // What is to be deleted is there until it is.
            stored: self.history.files(&running.deletes),
            view,
        }
    }

    fn led<'a>(&self, leader: &'a Leader) -> LeaderSight<'a> {
        let (view, triggers) = (leader.machine.view(), leader.triggers.iter());
        let settled = triggers.map(|(of, trigger)| (*of, self.checkpoint_number(trigger.settled)));
        LeaderSight {
            view: Some(view),
            manifest: view.manifest,
            settled: settled.collect(),
            taken: &leader.taken,
        }
    }
}
