//! The disks of workers: what an attempt leaves there, and what the next one of its subtask finds.
//!
//! ```text
//! attempt dies --> its files, with the marks of those it restored or stored
//!                       |  some have changed since: their marks speak for them no more;
//!                       |  some are another root's, which gave the same names
//!                       v
//! the next attempt of the subtask on that worker plans its restore against them
//! ```
//!
//! Numbers are used again after a restore, so what lies there under a wanted name, of the wanted
//! length, can be another file. Where two attempts of a subtask are on one worker at once, the
//! second has a directory of its own, as the first one has locked the other.

use std::collections::BTreeMap;

use stillpoint::protocol::answer::{Answer, Digest};
use stillpoint::protocol::id::{AttemptId, FileName, LocalName, SubtaskId};
use stillpoint::protocol::restore::{FileMark, PresentFile};

use super::World;
use super::attempt::{Instance, Phase, Running};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::lsm::{ContentId, number_of};

/// A file in a state's directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct LocalFile {
    pub(super) content: ContentId,
    /// Which stored file it is, as far as that was written down and is still so.
    pub(super) mark: Option<FileMark>,
}

/// A state's directory, but for its pack.
pub(super) type Directory = BTreeMap<LocalName, LocalFile>;

/// What nobody uses at the moment, by worker and subtask.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Disks(BTreeMap<(u32, SubtaskId), Directory>);

/// A directory as a restore is planned against it.
pub(super) fn present(directory: &Directory) -> Vec<PresentFile> {
    let files = directory.iter();
    files
        .map(|(local, file)| PresentFile {
            local: local.clone(),
            mark: file.mark,
        })
        .collect()
}

fn directory_of(running: &Running) -> Directory {
    let files = running.lsm.files().iter();
    files
        .map(|file| {
            let local = file.local();
            let mark = running.marks.get(&local).copied();
            let content = file.content;
            (local, LocalFile { content, mark })
        })
        .collect()
}

impl World {
    fn disks_stay(&self) -> bool {
        self.profile.disks_stay && !self.profile.is_modelled
    }

    /// An attempt of a subtask begins on a worker: what is there already?
    pub(super) fn take_directory(
        &mut self,
        worker: u32,
        subtask: SubtaskId,
        choices: &mut Choices,
    ) -> Directory {
        let found = self.disks.0.remove(&(worker, subtask));
        let mut directory = found.unwrap_or_default();
        let rate = self.profile.rate(Fault::LocalDamage, self.healed);
        for file in directory.values_mut() {
            if choices.chance(rate, Label::DiskDamage) {
                self.struck.note(Fault::LocalDamage);
                file.content = self.contents.torn_of_length(file.content);
                // It has changed since, or it is what another root has stored under that name.
                let digest = file.content.digest();
                let is_anothers = choices.choose(2, Label::DiskDamage) == 1;
                let mark = file.mark.filter(|_| is_anothers);
                file.mark = mark.map(|mark| FileMark { digest, ..mark });
            }
        }
        directory
    }

    /// An attempt is no more: its directory waits for the next one.
    pub(super) fn leave_directory(&mut self, gone: Instance) {
        if !self.disks_stay() {
            return;
        }
        let directory = match gone.phase {
            Phase::Restoring(restore) => restore.into_directory(),
            Phase::Running(running) => directory_of(&running),
        };
        self.disks.0.insert((gone.worker, gone.subtask), directory);
    }

    /// Notes which local file an upload reads.
    pub(super) fn note_upload(&mut self, attempt: AttemptId, name: FileName, local: LocalName) {
        if self.disks_stay()
            && let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running)
        {
            running.uploading.insert(name, local);
        }
    }

    /// A file that was stored as it lies there is marked.
    pub(super) fn mark_stored(
        &mut self,
        attempt: AttemptId,
        name: FileName,
        answer: &Answer<Digest>,
    ) {
        let Some(running) = self.instances.get_mut(&attempt).and_then(Instance::running) else {
            return;
        };
        let Some(local) = running.uploading.remove(&name) else {
            return;
        };
        let number = number_of(&local);
        let mut files = running.lsm.files().iter();
        if let Answer::Done(digest) = answer
            && files.any(|file| Some(file.number) == number && file.content.digest() == *digest)
        {
            let digest = *digest;
            running.marks.insert(local, FileMark { name, digest });
        }
    }
}
