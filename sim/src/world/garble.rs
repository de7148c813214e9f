//! What an attempt with a fault of its own would acknowledge: what contradicts the registry.
//!
//! | kind | what is wrong |
//! |---|---|
//! | another base | all is well, but told against another checkpoint than the trigger's |
//! | misnamed base | what is told against the trigger's base bears the name of another |
//! | removed | a file goes that never was |
//! | unnamed attempt | a file comes from an attempt that never was |
//! | twice | two files have one local name |
//! | left | a file is back that had left the line |
//! | condemned | a file of its own is back that the commit under way condemns |
//! | described otherwise | another attempt's file is longer than it was |
//! | never triggered | the checkpoint is one that nobody triggered |
//! | one local name | two files have different names and one local name |
//! | own described otherwise | a file of its own that is held is longer than it was |
//! | user bytes | more is attached than may be |
//!
//! Invariant: only acknowledgements are garbled, and none whose content a leader could take for true.

use std::sync::Arc;

use stillpoint::protocol::commit::Commit;
use stillpoint::protocol::file::{FileDescription, FileKind, FileSet};
use stillpoint::protocol::id::{AttemptId, CheckpointId, FileName, SubtaskId};
use stillpoint::protocol::manifest::Change;
use stillpoint::protocol::message::{Acknowledge, Message};

use super::World;
use crate::choice::{Choices, Label};
use crate::digest::Digest;
use crate::faults::Fault;
use crate::lsm::local_name;
use crate::oracle::durable::{Durable, Files};
use crate::oracle::facts::{Fact, ProcessId};

/// How often each kind is drawn, in the order of the table above.
const WEIGHTS: [u32; 12] = [14, 10, 2, 2, 2, 3, 3, 3, 1, 2, 2, 1];
/// The kind that names what is being condemned.
const CONDEMNED: u32 = 6;
/// The kind that needs the least.
const TWICE: u32 = 4;
/// The kind that needs what is rare: a whole list, with files of another attempt.
const DESCRIBED_OTHERWISE: u32 = 7;

impl World {
    /// The message, garbled now and then.
    pub(super) fn garbled(
        &mut self,
        leader: ProcessId,
        message: Message,
        choices: &mut Choices,
    ) -> Message {
        let rate = self
            .profile
            .rate(Fault::GarbledAcknowledgements, self.healed);
        let Message::Acknowledge(said) = &message else {
            return message;
        };
        if !choices.chance(rate, Label::Garbled) {
            return message;
        }
        let kind = choices.weighted(&WEIGHTS, Label::Garbled);
        let durable = &self.watch.facts.durable;
        let triggers_base = self.trigger_bases.get(&said.checkpoint).copied();
        let condemned = if kind == CONDEMNED {
            self.condemned_now(leader, said)
        } else {
            None
        };
        let most = self.profile.config.limits.user_bytes_max;
        let of_kind = |kind| garble(durable, triggers_base, condemned.as_ref(), most, said, kind);
        let garbled = of_kind(kind).or_else(|| of_kind(DESCRIBED_OTHERWISE));
        let Some(garbled) = garbled.or_else(|| of_kind(TWICE)) else {
            return message;
        };
        self.struck.note(Fault::GarbledAcknowledgements);
        let checkpoint = garbled.checkpoint;
        self.fact(Fact::AcknowledgementGarbled(said.attempt, checkpoint));
        let message = Message::Acknowledge(garbled);
        let condemned = condemned.map(|file| file.name);
        self.garbled.insert(hash_of(&message), condemned);
        message
    }

    /// A file of the attempt's, not in the acknowledgement, that its leader's commit condemns now.
    fn condemned_now(&self, leader: ProcessId, said: &Acknowledge) -> Option<FileDescription> {
        let view = self.coordinators.get(&leader)?.machine.view();
        // Of one that the commit makes superfluous nothing is asked.
        if view.completes.is_some_and(|done| said.checkpoint <= done) {
            return None;
        }
        let named = said.files.named();
        let is_own_and_missing = |name: &FileName| {
            name.attempt == said.attempt && !named.iter().any(|file| file.name == *name)
        };
        let name = condemned_by(view.commit?).find(is_own_and_missing)?;
        let content = self.watch.facts.files.get(&name)?;
        Some(FileDescription {
            name,
            local: local_name(900_000),
            kind: FileKind::State,
            digest: content.digest(),
        })
    }

    /// Whether this coordinator can't know that something is garbled.
    ///
    /// A file that is named again may be deleted and forgotten meanwhile, so that nothing is left
    /// which this would contradict: it is as if the file had never been stored. Or a commit is
    /// durable of which the coordinator has not heard yet; or the commit that was to condemn the file
    /// has failed, or another condemns it now and makes the checkpoint superfluous.
    pub(super) fn contradicts_nothing_known(
        &self,
        id: ProcessId,
        said: &Acknowledge,
        was_condemned: Option<FileName>,
    ) -> bool {
        let durable = &self.watch.facts.durable;
        let Some(process) = self.coordinators.get(&id) else {
            return false;
        };
        let view = process.machine.view();
        let lags = view
            .manifest
            .is_some_and(|manifest| manifest.version() < durable.version);
        let is_not_so = was_condemned.is_some_and(|name| {
            let mut commit = view.commit.into_iter().flat_map(condemned_by);
            let is_superfluous = view.completes.is_some_and(|done| said.checkpoint <= done);
            let is_condemned = !is_superfluous && commit.any(|other| other == name);
            !durable.tombstones.contains(&name) && !is_condemned
        });
        lags || is_not_so || names_forgotten(durable, &said.files)
    }

    /// If a message is garbled, with which file that was being condemned, if with one.
    pub(super) fn garbled_with(&self, message: &Message) -> Option<Option<FileName>> {
        if self.garbled.is_empty() || !matches!(message, Message::Acknowledge(_)) {
            return None;
        }
        self.garbled.get(&hash_of(message)).copied()
    }
}

/// The acknowledgement with something wrong in it, if there is what this needs. The trigger's base
/// tells what would be right.
fn garble(
    durable: &Durable,
    triggers_base: Option<CheckpointId>,
    condemned: Option<&FileDescription>,
    user_bytes_max: usize,
    said: &Acknowledge,
    kind: u32,
) -> Option<Acknowledge> {
    let mut said = said.clone();
    match kind {
        0 => said.files = against_another_base(durable, said.subtask, triggers_base, &said.files)?,
        1 => misname_base(durable, triggers_base, &mut said.files)?,
        2 => remove_what_never_was(said.attempt, &mut said.files)?,
        3 => add_of_nobody(files_of(&mut said.files))?,
        TWICE => {
            let files = files_of(&mut said.files);
            files.push(files.first()?.clone());
        }
        5 => {
            let file = left_the_line(durable, said.subtask, said.attempt)?;
            add(files_of(&mut said.files), file);
        }
        CONDEMNED => add(files_of(&mut said.files), condemned?.clone()),
        DESCRIBED_OTHERWISE => {
            describe_otherwise(durable, said.subtask, said.attempt, &mut said.files)?;
        }
        9 => share_a_local_name(files_of(&mut said.files))?,
        10 => describe_own_otherwise(durable, said.subtask, said.attempt, &mut said.files)?,
        11 => said.user_bytes = vec![0; user_bytes_max + 1],
        _ => said.checkpoint = CheckpointId(durable.reserved.0.0 + 1000),
    }
    Some(said)
}

fn add(files: &mut Vec<FileDescription>, file: FileDescription) {
    files.push(file);
    files.sort();
}

fn files_of(files: &mut FileSet) -> &mut Vec<FileDescription> {
    match files {
        FileSet::Delta { added: files, .. } | FileSet::Full(files) => files,
    }
}

/// The newest retained checkpoint that is not the trigger's base.
fn another(durable: &Durable, triggers_base: Option<CheckpointId>) -> Option<&CheckpointId> {
    let mut retained = durable.retained.keys();
    retained.rfind(|other| Some(**other) != triggers_base)
}

/// The same files, told against another checkpoint.
fn against_another_base(
    durable: &Durable,
    subtask: SubtaskId,
    triggers_base: Option<CheckpointId>,
    files: &FileSet,
) -> Option<FileSet> {
    let held = |checkpoint: &CheckpointId| {
        let retained = durable.retained.get(checkpoint)?;
        Some(Files::clone(retained.subtasks.get(&subtask)?))
    };
    let whole = match files {
        FileSet::Full(files) => {
            let named = files.iter().map(|file| (file.name, file.clone()));
            named.collect::<Files>()
        }
        FileSet::Delta {
            base,
            added,
            removed,
        } => {
            let mut whole = held(base)?;
            whole.retain(|name, _| !removed.contains(name));
            whole.extend(added.iter().map(|file| (file.name, file.clone())));
            whole
        }
    };
    let other = another(durable, triggers_base)?;
    let there = held(other)?;
    let is_new = |file: &&FileDescription| !there.contains_key(&file.name);
    let is_gone = |name: &&FileName| !whole.contains_key(name);
    Some(FileSet::Delta {
        base: *other,
        added: whole.values().filter(is_new).cloned().collect(),
        removed: there.keys().filter(is_gone).copied().collect(),
    })
}

fn misname_base(
    durable: &Durable,
    triggers_base: Option<CheckpointId>,
    files: &mut FileSet,
) -> Option<()> {
    let FileSet::Delta { base, .. } = files else {
        return None;
    };
    *base = *another(durable, triggers_base)?;
    Some(())
}

fn remove_what_never_was(attempt: AttemptId, files: &mut FileSet) -> Option<()> {
    let FileSet::Delta { removed, .. } = files else {
        return None;
    };
    removed.push(FileName {
        attempt,
        number: u64::MAX,
    });
    Some(())
}

/// Adds a file of an attempt that never was, with a local name of its own as the rules of shape
/// demand.
fn add_of_nobody(files: &mut Vec<FileDescription>) -> Option<()> {
    let first = files.first().cloned()?;
    let name = FileName {
        attempt: AttemptId(u64::MAX),
        number: 1,
    };
    let local = local_name(900_000);
    add(
        files,
        FileDescription {
            name,
            local,
            ..first
        },
    );
    Some(())
}

/// A file of an attempt's that is retained and was no part of the newest checkpoint any more.
fn left_the_line(
    durable: &Durable,
    subtask: SubtaskId,
    attempt: AttemptId,
) -> Option<FileDescription> {
    let newest = durable.newest_files.get(&subtask)?;
    let retained = durable.retained.values();
    let files = retained.filter_map(|retained| retained.subtasks.get(&subtask));
    let mut gone = files
        .flat_map(|files| files.values())
        .filter(|file| file.name.attempt == attempt && !newest.contains_key(&file.name));
    gone.next().cloned()
}

/// Another's file is not what it was: best one that comes back.
fn describe_otherwise(
    durable: &Durable,
    subtask: SubtaskId,
    attempt: AttemptId,
    files: &mut FileSet,
) -> Option<()> {
    let FileSet::Full(files) = files else {
        return None;
    };
    let newest = durable.newest_files.get(&subtask).map(Arc::as_ref);
    let is_held =
        |file: &FileDescription| newest.is_some_and(|newest| newest.contains_key(&file.name));
    let is_anothers = |file: &FileDescription| file.name.attempt != attempt;
    let comes_back = files.iter().any(|file| is_anothers(file) && !is_held(file));
    let mut others = files
        .iter_mut()
        .filter(|file| is_anothers(file) && !(comes_back && is_held(file)));
    others.next()?.digest.size_bytes += 1;
    Some(())
}

/// A file of its own that the newest checkpoint holds is not what it was.
fn describe_own_otherwise(
    durable: &Durable,
    subtask: SubtaskId,
    attempt: AttemptId,
    files: &mut FileSet,
) -> Option<()> {
    let FileSet::Full(files) = files else {
        return None;
    };
    let newest = durable.newest_files.get(&subtask)?;
    let mut held = files
        .iter_mut()
        .filter(|file| file.name.attempt == attempt && newest.contains_key(&file.name));
    held.next()?.digest.size_bytes += 1;
    Some(())
}

/// The last two, which are new as a rule: of an older file the name alone would be too little.
fn share_a_local_name(files: &mut [FileDescription]) -> Option<()> {
    let [.., other, last] = files else {
        return None;
    };
    last.local.clone_from(&other.local);
    Some(())
}

fn condemned_by(commit: &Commit) -> impl Iterator<Item = FileName> + '_ {
    let changes = commit.record().changes.iter();
    changes.flat_map(Change::condemned).copied()
}

fn names_forgotten(durable: &Durable, files: &FileSet) -> bool {
    let is_forgotten = |name: &FileName| {
        durable.ever_condemned.contains(name) && !durable.tombstones.contains(name)
    };
    files.named().iter().any(|file| is_forgotten(&file.name))
}

/// What a message is told from all others by.
fn hash_of(message: &Message) -> u64 {
    let mut digest = Digest::default();
    digest.take(message);
    digest.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{file, name};
    use crate::oracle::durable::Retained;

    fn held(numbers: &[u64]) -> Arc<Files> {
        let files = numbers.iter().map(|number| file(1, *number));
        Arc::new(files.map(|file| (file.name, file)).collect())
    }

    /// Checkpoint 1 holds files 1 and 2, the newest, 2, files 2 and 3.
    fn durable() -> Durable {
        let subtask = SubtaskId::default();
        let mut durable = Durable::default();
        for (id, numbers) in [(1, [1, 2]), (2, [2, 3])] {
            let mut retained = Retained::default();
            retained.subtasks.insert(subtask, held(&numbers));
            durable.retained.insert(CheckpointId(id), retained);
        }
        durable.newest_files.insert(subtask, held(&[2, 3]));
        durable
    }

    #[test]
    fn the_same_files_are_told_against_another_base() {
        let told = |base: u64, added: &[u64], removed: &[u64]| FileSet::Delta {
            base: CheckpointId(base),
            added: added.iter().map(|number| file(1, *number)).collect(),
            removed: removed.iter().map(|number| name(1, *number)).collect(),
        };
        let against = |base: u64, files: &FileSet| {
            let base = Some(CheckpointId(base));
            against_another_base(&durable(), SubtaskId::default(), base, files)
        };
        // Files 3 and 4.
        let files = told(2, &[4], &[2]);
        assert_eq!(against(2, &files), Some(told(1, &[3, 4], &[1, 2])));
        let whole = FileSet::Full(vec![file(1, 3), file(1, 4)]);
        assert_eq!(against(1, &whole), Some(told(2, &[4], &[2])));
    }

    #[test]
    fn what_left_the_line_is_forgotten_with_its_tombstone() {
        let mut durable = durable();
        let gone = left_the_line(&durable, SubtaskId::default(), AttemptId(1)).expect("file 1");
        assert_eq!(gone.name, name(1, 1));
        let files = FileSet::Full(vec![gone.clone()]);
        durable.ever_condemned.insert(gone.name);
        durable.tombstones.insert(gone.name);
        assert!(!names_forgotten(&durable, &files));
        durable.tombstones.remove(&gone.name);
        assert!(names_forgotten(&durable, &files));
    }
}
