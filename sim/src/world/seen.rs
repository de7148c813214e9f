//! What the specification can see of the world as it is.

use std::collections::BTreeMap;

use stillpoint::protocol::coordinator::Coordinator;
use stillpoint::protocol::id::{AttemptId, CheckpointId};
use stillpoint::protocol::message::{Acknowledge, Message};
use stillpoint::protocol::subtask::Subtask;

use super::World;
use super::attempt::Phase;
use super::happening::Happening;
use crate::lsm::LsmFile;
use crate::oracle::facts::ProcessId;

/// An attempt's process.
pub(crate) struct SeenAttempt<'a> {
    pub(crate) code: AttemptId,
    /// Nothing while it restores.
    pub(crate) running: Option<SeenRunning<'a>>,
}

/// An attempt that runs.
pub(crate) struct SeenRunning<'a> {
    pub(crate) machine: &'a Subtask,
    /// The files of its state.
    pub(crate) files: &'a [LsmFile],
    /// The files at the cuts on its local disk.
    pub(crate) cuts: BTreeMap<CheckpointId, &'a [LsmFile]>,
}

impl World {
    /// The coordinators that live.
    pub(crate) fn seen_coordinators(&self) -> impl Iterator<Item = (ProcessId, &Coordinator)> {
        let all = self.coordinators.iter();
        all.map(|(id, process)| (*id, &process.machine))
    }

    /// The coordinators whose users wait for a deployment.
    pub(crate) fn seen_deploying(&self) -> impl Iterator<Item = ProcessId> {
        let all = self.coordinators.iter();
        let deploying = all.filter(|(_, process)| process.user.deploying.is_some());
        deploying.map(|(id, _)| *id)
    }

    /// The attempts whose processes live.
    pub(crate) fn seen_attempts(&self) -> impl Iterator<Item = SeenAttempt<'_>> {
        self.instances.iter().map(|(code, instance)| SeenAttempt {
            code: *code,
            running: match &instance.phase {
                Phase::Restoring(_) => None,
                Phase::Running(running) => {
                    let cuts = running.snapshots.iter();
                    Some(SeenRunning {
                        machine: &running.machine,
                        files: running.lsm.files(),
                        cuts: cuts
                            .map(|(id, local)| (*id, local.cut.files.as_slice()))
                            .collect(),
                    })
                }
            },
        })
    }

    /// The acknowledgements on their way. One to a coordinator that is gone may go astray to another.
    pub(crate) fn acknowledgements_under_way(&self) -> impl Iterator<Item = &Acknowledge> {
        self.queue.iter().filter_map(|happening| {
            if let Happening::ToCoordinator(_, message) = happening
                && let Message::Acknowledge(said) = message.as_ref()
            {
                Some(said)
            } else {
                None
            }
        })
    }
}
