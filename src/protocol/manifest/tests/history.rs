//! A leader that does random legal things, and the store that its commits leave behind.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use crate::protocol::answer::{Checksum, Digest};
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, LocalName, ManifestName, Nonce, ObjectName,
    OperatorId, RootId, SubtaskId,
};
use crate::protocol::manifest::{
    Change, Completion, Current, Manifest, Operator, PinOwner, Record, SubtaskDelta,
};
use crate::protocol::testing::Choices;
use crate::protocol::time::WallClock;

pub(super) const ROOT: RootId = RootId(0x5eed);
pub(super) const JOB: &str = "orders";

/// A root's whole history.
#[derive(Clone)]
pub(super) struct History {
    pub(super) manifest: Manifest,
    pub(super) current: Current,
    /// Every manifest object that has not become obsolete.
    pub(super) objects: BTreeMap<ObjectName, Vec<u8>>,
    pub(super) records: Vec<Record>,
    nonce: u64,
    file: u64,
}

impl History {
    pub(super) fn new() -> Self {
        let current = Current::genesis(ROOT, JOB.to_string());
        Self {
            manifest: Manifest::genesis(ROOT, JOB.to_string()),
            objects: BTreeMap::from([(ObjectName::Current, current.encode())]),
            current,
            records: Vec::new(),
            nonce: 0,
            file: 0,
        }
    }

    /// A history of one commit for each choice.
    pub(super) fn of(choices: &[u64]) -> Self {
        let mut history = Self::new();
        for choice in choices {
            history.step(*choice);
        }
        history
    }

    pub(super) fn step(&mut self, choice: u64) {
        let mut choices = Choices(choice);
        let changes = if self.manifest.epoch() == Epoch(0) || choices.chance(5) {
            self.claim()
        } else {
            self.changes(&mut choices)
        };
        let snapshot = choices.chance(20);
        self.commit(changes, snapshot);
    }

    /// Commits a record, and names a snapshot of the version before with it.
    pub(super) fn commit(&mut self, changes: Vec<Change>, snapshot: bool) {
        let claimed = matches!(changes.first(), Some(Change::Claim { .. }));
        let epoch = self.manifest.epoch();
        let record = Record {
            version: self.manifest.version().next(),
            epoch: if claimed { epoch.next() } else { epoch },
            changes,
        };
        let name = self.name(&record);
        let snapshot = snapshot && self.current.version() > self.current.snapshot_version();
        let snapshot = snapshot.then(|| {
            self.nonce += 1;
            let name = ManifestName {
                version: self.manifest.version(),
                epoch: self.manifest.epoch(),
                nonce: Nonce(self.nonce),
            };
            let body = self.manifest.encode_snapshot();
            self.objects.insert(ObjectName::Manifest(name), body);
            name
        });
        self.objects
            .insert(ObjectName::Manifest(name), record.encode());
        self.manifest.check(&record).unwrap();
        self.manifest.apply(&record).unwrap();
        let successor = self.current.successor(name, snapshot);
        for name in self.current.obsolete_after(&successor) {
            self.objects.remove(&ObjectName::Manifest(name)).unwrap();
        }
        self.current = successor;
        self.objects
            .insert(ObjectName::Current, self.current.encode());
        self.records.push(record);
    }

    fn name(&mut self, record: &Record) -> ManifestName {
        self.nonce += 1;
        ManifestName {
            version: record.version,
            epoch: record.epoch,
            nonce: Nonce(self.nonce),
        }
    }

    fn claim(&self) -> Vec<Change> {
        let epoch = self.manifest.epoch().next();
        vec![Change::Claim { epoch }, self.reserve()]
    }

    fn reserve(&self) -> Change {
        Change::Reserve {
            checkpoints_below: CheckpointId(self.manifest.next_checkpoint().0 + 3),
            attempts_below: AttemptId(self.manifest.next_attempt().0 + 4),
        }
    }

    fn changes(&mut self, choices: &mut Choices) -> Vec<Change> {
        if self.manifest.operators().is_empty() || choices.chance(3) {
            return vec![self.describe(choices)];
        }
        if self.manifest.attempts().is_empty() || choices.chance(10) {
            return self.deploy(choices);
        }
        match choices.below(10) {
            0 => self.pins(choices),
            1 => self.garbage(choices),
            2 => Vec::new(),
            3 => {
                let attempts = self.manifest.attempts().values().copied();
                let ended: BTreeSet<_> = attempts.filter(|_| choices.chance(30)).collect();
                let attempts = ended.into_iter().collect();
                vec![Change::End { attempts }]
            }
            _ => self.complete(choices),
        }
    }

    fn describe(&self, choices: &mut Choices) -> Change {
        let id = OperatorId(u32::try_from(self.manifest.operators().len()).unwrap());
        let families = ["default", "timers", "windows"];
        let families = families.iter().filter(|_| choices.chance(50));
        let families = families.map(|family| (*family).to_string()).collect();
        let operator = Operator {
            id,
            name: format!("operator {}", id.0),
            state: "rocksdb".to_string(),
            parallelism: u32::try_from(1 + choices.below(3)).unwrap(),
            key_groups: 128,
            families,
        };
        let operators = vec![operator];
        Change::Describe { operators }
    }

    fn deploy(&self, choices: &mut Choices) -> Vec<Change> {
        let retained: Vec<_> = self.manifest.retained().collect();
        let restart = self.manifest.restore_point();
        let head = if choices.chance(60) {
            restart
        } else {
            choices.pick(&retained)
        };
        let mut next = self.manifest.next_attempt().0 - 1;
        let mut attempts = Vec::new();
        for operator in self.manifest.operators().values() {
            for index in 0..operator.parallelism {
                let operator = operator.id;
                if attempts.len() < 4 && choices.chance(80) {
                    next += 1;
                    attempts.push((SubtaskId { operator, index }, AttemptId(next)));
                }
            }
        }
        let replaced: BTreeSet<_> = attempts.iter().map(|(subtask, _)| *subtask).collect();
        let others = self.manifest.attempts().iter();
        let others = others.filter(|(subtask, _)| head != restart && !replaced.contains(subtask));
        let ended: BTreeSet<_> = others.map(|(_, attempt)| *attempt).collect();
        let ended = ended.into_iter().collect();
        vec![
            self.reserve(),
            Change::Deploy { head, attempts },
            Change::End { attempts: ended },
        ]
    }

    fn pins(&self, choices: &mut Choices) -> Vec<Change> {
        let pins: Vec<_> = self.manifest.pins().iter().collect();
        if choices.chance(50)
            && let Some((checkpoint, owner)) = choices.pick(&pins)
        {
            return vec![Change::Unpin {
                checkpoint: *checkpoint,
                owner: owner.clone(),
            }];
        }
        let retained: Vec<_> = self.manifest.retained().collect();
        let owner = PinOwner(format!("owner {}", choices.below(3)));
        match choices.pick(&retained) {
            Some(checkpoint) if !pins.contains(&&(checkpoint, owner.clone())) => {
                vec![Change::Pin { checkpoint, owner }]
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn garbage(&mut self, choices: &mut Choices) -> Vec<Change> {
        let mut condemned: BTreeSet<FileName> = self
            .manifest
            .released()
            .keys()
            .filter(|_| choices.chance(70))
            .copied()
            .collect();
        self.file += 1;
        condemned.insert(FileName {
            attempt: AttemptId(1),
            number: self.file,
        });
        let forgotten = self.manifest.tombstones().iter();
        let forgotten: Vec<_> = forgotten.filter(|_| choices.chance(70)).copied().collect();
        vec![
            Change::Forget { files: forgotten },
            Change::Condemn {
                files: condemned.into_iter().collect(),
            },
        ]
    }

    fn complete(&mut self, choices: &mut Choices) -> Vec<Change> {
        let checkpoint = CheckpointId(self.manifest.next_checkpoint().0 + choices.below(2));
        let reserve = Change::Reserve {
            checkpoints_below: checkpoint.next(),
            attempts_below: self.manifest.next_attempt(),
        };
        let parent = self.manifest.restore_point();
        let attempts: Vec<_> = self.manifest.attempts().clone().into_iter().collect();
        let mut known = BTreeSet::new();
        let mut subtasks = Vec::new();
        for (subtask, attempt) in attempts {
            subtasks.push(self.delta(subtask, attempt, parent, &mut known, choices));
        }
        let completion = Completion {
            checkpoint,
            parent,
            cut_at: WallClock(1_700_000_000_000 + checkpoint.0),
            subtasks,
        };
        let retain = 1 + choices.below(3);
        let mut lineage: Vec<_> = vec![checkpoint];
        lineage.extend(self.manifest.lineage());
        lineage.truncate(usize::try_from(retain).unwrap());
        let pinned = |checkpoint: &CheckpointId| self.manifest.is_pinned(*checkpoint);
        let dropped: BTreeSet<_> = self
            .manifest
            .retained()
            .filter(|checkpoint| !lineage.contains(checkpoint) && !pinned(checkpoint))
            .collect();
        let freed = self.manifest.would_free(Some(&completion), &dropped);
        let condemned = freed.into_keys().filter(|_| choices.chance(60));
        let condemned = Change::Condemn {
            files: condemned.collect(),
        };
        let subsume = Change::Subsume {
            checkpoints: dropped.into_iter().collect(),
        };
        vec![reserve, Change::Complete(completion), subsume, condemned]
    }

    fn delta(
        &mut self,
        subtask: SubtaskId,
        attempt: AttemptId,
        parent: Option<CheckpointId>,
        known: &mut BTreeSet<FileName>,
        choices: &mut Choices,
    ) -> SubtaskDelta {
        let registry = self.manifest.registry();
        let newest: BTreeSet<_> = registry.current(subtask).map(|file| file.name).collect();
        let start = parent.map(|parent| registry.files(parent, subtask));
        let start = start.unwrap_or_default();
        let kept = start.into_iter().filter(|_| choices.chance(70));
        let mut now: BTreeMap<FileName, FileDescription> = kept
            .map(|file| (file.name, file.to_description()))
            .collect();
        for _ in 0..choices.below(4) {
            self.file += 1;
            let file = description(attempt, self.file);
            now.insert(file.name, file);
        }
        let registry = self.manifest.registry();
        let dropped = newest.iter().filter(|file| !now.contains_key(file));
        let dropped = dropped.copied().collect();
        let added = now
            .into_values()
            .filter(|file| !newest.contains(&file.name));
        let (returned, born): (Vec<_>, Vec<_>) =
            added.partition(|file| registry.holds(file.name) || !known.insert(file.name));
        SubtaskDelta {
            subtask,
            born,
            returned,
            dropped,
            user_bytes: choices.next().to_le_bytes().to_vec(),
        }
    }
}

pub(super) fn description(attempt: AttemptId, number: u64) -> FileDescription {
    let mut choices = Choices(number);
    let pack = choices.chance(20);
    let local = if pack {
        "pack".to_string()
    } else {
        format!("{number:06}.sst")
    };
    FileDescription {
        name: FileName { attempt, number },
        local: LocalName::new(&local).unwrap(),
        kind: if pack {
            FileKind::Pack
        } else {
            FileKind::State
        },
        digest: Digest {
            size_bytes: choices.below(64 << 20),
            checksum: Checksum(choices.next()),
        },
    }
}
