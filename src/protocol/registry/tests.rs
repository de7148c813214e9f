//! The registry against plain sets, its errors, and its cost.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the line where it meets what it does not expect"
)]

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{FreedFiles, Registry, RegistryDamage, RegistryError};
use crate::protocol::answer::{Checksum, Digest};
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{AttemptId, CheckpointId, FileName, LocalName, OperatorId, SubtaskId};
use crate::protocol::manifest::SubtaskDelta;
use crate::protocol::testing::config;

fn subtask(index: usize) -> SubtaskId {
    SubtaskId {
        operator: OperatorId(index as u32 / 2),
        index: index as u32 % 2,
    }
}

fn file(attempt: u64, number: u64) -> FileName {
    let attempt = AttemptId(attempt);
    FileName { attempt, number }
}

fn description(name: FileName) -> FileDescription {
    FileDescription {
        name,
        local: LocalName::new(&format!("{:06}.sst", name.number)).unwrap(),
        kind: FileKind::State,
        digest: Digest {
            size_bytes: name.number * 1000 + name.attempt.0,
            checksum: Checksum(name.number),
        },
    }
}

fn delta(
    index: usize,
    born: &[FileName],
    returned: &[FileName],
    dropped: &[FileName],
) -> SubtaskDelta {
    SubtaskDelta {
        subtask: subtask(index),
        born: born.iter().copied().map(description).collect(),
        returned: returned.iter().copied().map(description).collect(),
        dropped: dropped.to_vec(),
        user_bytes: Vec::new(),
    }
}

fn complete(
    registry: &mut Registry,
    checkpoint: u64,
    deltas: &[SubtaskDelta],
) -> Result<usize, RegistryError> {
    registry.complete(CheckpointId(checkpoint), deltas, &mut FreedFiles::new())
}

const SUBTASKS: usize = 3;
type Sets = [BTreeSet<FileName>; SUBTASKS];

/// One thing that happens to a job's checkpoints.
#[derive(Clone, Debug)]
enum Step {
    Complete {
        gap: u64,
        /// Decides which files stay.
        keep: u64,
        born: [u64; SUBTASKS],
        /// Files of the second go to the first, as in a rescale; whether the second keeps them.
        share: Option<(usize, usize, bool)>,
        /// A subtask that the plan lacks.
        absent: Option<usize>,
        /// Retained checkpoints dropped by the same commit, as far as that is allowed.
        drop: Vec<prop::sample::Index>,
    },
    Drop(prop::sample::Index),
    /// An older checkpoint is restored, and a new line begins.
    Restore(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let share = prop::option::weighted(0.2, (0..SUBTASKS, 0..SUBTASKS, any::<bool>()));
    let complete = (
        1_u64..4,
        any::<u64>(),
        prop::array::uniform3(0_u64..4),
        share,
        prop::option::weighted(0.1, 0..SUBTASKS),
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    )
        .prop_map(|(gap, keep, born, share, absent, drop)| Step::Complete {
            gap,
            keep,
            born,
            share,
            absent,
            drop,
        });
    prop_oneof![
        6 => complete,
        2 => any::<prop::sample::Index>().prop_map(Step::Drop),
        2 => any::<prop::sample::Index>().prop_map(Step::Restore),
    ]
}

/// What holds, told by explicit sets.
#[derive(Default)]
struct Model {
    registry: Registry,
    truth: BTreeMap<CheckpointId, Sets>,
    /// What the running line builds on.
    start: Sets,
    head: Option<CheckpointId>,
    checkpoint: u64,
    attempt: u64,
    number: u64,
    ever: BTreeSet<FileName>,
    freed: BTreeSet<FileName>,
}

impl Model {
    fn needed(&self) -> BTreeSet<FileName> {
        let sets = self.truth.values().flatten();
        sets.flatten().copied().collect()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Complete {
                gap,
                keep,
                born,
                share,
                absent,
                drop,
            } => {
                self.checkpoint += gap;
                let (now, deltas) = self.next_sets(*keep, born, *share, *absent);
                let before: Vec<CheckpointId> = self.truth.keys().copied().collect();
                let dropping: BTreeSet<CheckpointId> = drop
                    .iter()
                    .filter(|_| !before.is_empty())
                    .map(|index| *index.get(&before))
                    .collect();
                let expected = self.registry.would_free(Some(&deltas), &dropping);
                let checkpoint = CheckpointId(self.checkpoint);
                let visited = complete(&mut self.registry, self.checkpoint, &deltas).unwrap();
                assert!(visited <= self.changes(&now));
                self.truth.insert(checkpoint, now.clone());
                self.start = now;
                self.head = None;
                let mut freed = BTreeSet::new();
                for checkpoint in dropping {
                    freed.extend(self.drop(checkpoint));
                }
                assert_eq!(freed, expected.into_keys().collect::<BTreeSet<_>>());
            }
            Step::Drop(index) => {
                let retained: Vec<CheckpointId> = self.truth.keys().copied().collect();
                let Some((_, older)) = retained.split_last() else {
                    return;
                };
                if older.is_empty() || self.head == Some(*index.get(older)) {
                    return;
                }
                let checkpoint = *index.get(older);
                let one = BTreeSet::from([checkpoint]);
                let expected = self.registry.would_free(None, &one);
                let freed = self.drop(checkpoint);
                assert_eq!(freed, expected.into_keys().collect::<BTreeSet<_>>());
            }
            Step::Restore(index) => {
                let retained: Vec<CheckpointId> = self.truth.keys().copied().collect();
                if retained.is_empty() {
                    return;
                }
                let head = *index.get(&retained);
                self.start = self.truth[&head].clone();
                self.head = Some(head);
                self.attempt += 1;
            }
        }
    }

    fn changes(&self, now: &Sets) -> usize {
        let newest = self.truth.last_key_value();
        let newest = newest.map(|(_, sets)| sets.clone()).unwrap_or_default();
        let pairs = now.iter().zip(&newest);
        pairs.map(|(a, b)| a.symmetric_difference(b).count()).sum()
    }

    fn drop(&mut self, checkpoint: CheckpointId) -> BTreeSet<FileName> {
        self.truth.remove(&checkpoint);
        let dropped = self.registry.drop_checkpoint(checkpoint).unwrap();
        let freed: BTreeSet<FileName> = dropped.freed.into_keys().collect();
        assert!(self.freed.is_disjoint(&freed), "freed twice");
        self.freed.extend(&freed);
        freed
    }

    fn next_sets(
        &mut self,
        keep: u64,
        born: &[u64; SUBTASKS],
        share: Option<(usize, usize, bool)>,
        absent: Option<usize>,
    ) -> (Sets, Vec<SubtaskDelta>) {
        let stays = |file: &FileName| {
            let mixed =
                (keep ^ (file.number << 3) ^ file.attempt.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed >> 60 < 11
        };
        let mut now = self.start.clone();
        for (index, files) in now.iter_mut().enumerate() {
            files.retain(stays);
            for _ in 0..born[index] {
                self.number += 1;
                files.insert(file(
                    self.attempt * SUBTASKS as u64 + index as u64,
                    self.number,
                ));
            }
        }
        if let Some((to, from, keeps)) = share
            && to != from
        {
            let shared = now[from].clone();
            now[to].extend(shared.iter().filter(|file| file.number % 2 == keep % 2));
            if !keeps {
                let moved = now[to].clone();
                now[from].retain(|file| !moved.contains(file));
            }
        }
        if let Some(absent) = absent {
            now[absent].clear();
        }
        let newest = self.truth.last_key_value();
        let newest = newest.map(|(_, sets)| sets.clone()).unwrap_or_default();
        let mut known = self.needed();
        let mut deltas = Vec::new();
        for index in 0..SUBTASKS {
            if absent == Some(index) {
                continue;
            }
            let mut born = Vec::new();
            let mut returned = Vec::new();
            for name in now[index].difference(&newest[index]) {
                if known.insert(*name) {
                    born.push(*name);
                } else {
                    returned.push(*name);
                }
            }
            let dropped: Vec<FileName> = newest[index].difference(&now[index]).copied().collect();
            deltas.push(delta(index, &born, &returned, &dropped));
        }
        self.ever.extend(now.iter().flatten());
        (now, deltas)
    }

    fn check(&self) {
        self.registry.validate().unwrap();
        let needed = self.needed();
        let gone: BTreeSet<FileName> = self.ever.difference(&needed).copied().collect();
        assert_eq!(self.freed, gone);
        assert_eq!(self.registry.known_among(&self.ever), needed);
        assert!(self.registry.retained().eq(self.truth.keys().copied()));
        for (checkpoint, sets) in &self.truth {
            for (index, truth) in sets.iter().enumerate() {
                let files = self.registry.files(*checkpoint, subtask(index));
                assert!(files.iter().map(|file| file.name).eq(truth.iter().copied()));
                for file in files {
                    assert_eq!(file.to_description(), description(file.name));
                    assert!(file.born <= *checkpoint);
                }
            }
        }
        if let Some((_, newest)) = self.truth.last_key_value() {
            for (index, truth) in newest.iter().enumerate() {
                let current = self.registry.current(subtask(index)).map(|file| file.name);
                assert!(current.eq(truth.iter().copied()));
                assert_eq!(self.registry.current_count(subtask(index)), truth.len());
            }
        }
        for file in &self.ever {
            let holders: BTreeSet<CheckpointId> = self
                .truth
                .iter()
                .filter(|(_, sets)| sets.iter().any(|set| set.contains(file)))
                .map(|(checkpoint, _)| *checkpoint)
                .collect();
            assert_eq!(self.registry.holds(*file), !holders.is_empty());
            assert_eq!(self.registry.reference_count(*file), holders.len());
            assert_eq!(self.registry.holders(*file), holders);
        }
    }
}

proptest! {
    #![proptest_config(config(400))]

    /// `interval_check`: any history of completions, drops in any order and restores of older
    /// checkpoints, against the sets it stands for.
    #[test]
    fn intervals_tell_what_sets_would(steps in prop::collection::vec(step(), 1..40)) {
        let mut model = Model::default();
        for step in &steps {
            model.step(step);
            model.check();
        }
        let bytes = postcard::to_allocvec(&model.registry).unwrap();
        let read: Registry = postcard::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&read, &model.registry);
    }
}

/// The worked example of Flink's article on incremental checkpoints, with two retained.
#[test]
fn worked_example() {
    let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(|number| file(1, number));
    let (to_three, to_six) = (file(1, 123), file(1, 456));
    let mut registry = Registry::default();
    let complete = |registry: &mut Registry, id, born: &[FileName], dropped: &[FileName]| {
        complete(registry, id, &[delta(0, born, &[], dropped)]).unwrap();
    };
    let counts = |registry: &Registry, files: &[FileName]| -> Vec<usize> {
        let counts = files.iter().map(|file| registry.reference_count(*file));
        counts.collect()
    };
    complete(&mut registry, 1, &[one, two], &[]);
    assert_eq!(counts(&registry, &[one, two]), [1, 1]);
    complete(&mut registry, 2, &[three, four], &[]);
    assert_eq!(counts(&registry, &[one, two, three, four]), [2, 2, 1, 1]);
    complete(&mut registry, 3, &[five, to_three], &[one, two, three]);
    let dropped = registry.drop_checkpoint(CheckpointId(1)).unwrap();
    assert_eq!(dropped.freed, BTreeMap::new());
    assert_eq!(counts(&registry, &[one, two, three]), [1, 1, 1]);
    assert_eq!(counts(&registry, &[to_three, four, five]), [1, 2, 1]);
    complete(&mut registry, 4, &[to_six], &[four, five]);
    let dropped = registry.drop_checkpoint(CheckpointId(2)).unwrap();
    let freed: Vec<FileName> = dropped.freed.into_keys().collect();
    assert_eq!(freed, [one, two, three]);
    assert_eq!(
        counts(&registry, &[to_three, four, five, to_six]),
        [2, 1, 1, 1]
    );
}

#[test]
fn contradictions_are_named() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|number| file(1, number));
    let mut base = Registry::default();
    complete(&mut base, 1, &[delta(0, &[a, c], &[], &[])]).unwrap();
    complete(&mut base, 3, &[delta(0, &[b], &[], &[a])]).unwrap();
    let id = |error: &RegistryError| match error {
        RegistryError::IdNotAbove { .. } => "id",
        RegistryError::Disordered { list, .. } => list,
        RegistryError::NotHeld { .. } => "not held",
        RegistryError::HeldAlready { .. } => "held already",
        RegistryError::NotNew { .. } => "not new",
        RegistryError::NotKnown { .. } => "not known",
        RegistryError::NotRetained(_) => "not retained",
        RegistryError::Newest(_) => "newest",
    };
    let cases: [(u64, Vec<SubtaskDelta>, &str); 13] = [
        (3, vec![], "id"),
        (4, vec![delta(0, &[], &[], &[a])], "not held"),
        (4, vec![delta(1, &[], &[], &[b])], "not held"),
        (4, vec![delta(0, &[b], &[], &[])], "not new"),
        (4, vec![delta(0, &[a], &[], &[])], "not new"),
        (4, vec![delta(1, &[b], &[], &[])], "not new"),
        (
            4,
            vec![delta(0, &[d], &[], &[]), delta(1, &[d], &[], &[])],
            "not new",
        ),
        (4, vec![delta(0, &[d], &[d], &[])], "held already"),
        (4, vec![delta(0, &[], &[b], &[])], "held already"),
        (4, vec![delta(0, &[], &[c], &[c])], "held already"),
        (4, vec![delta(0, &[], &[file(9, 9)], &[])], "not known"),
        (
            4,
            vec![delta(0, &[], &[], &[b, b])],
            "list of dropped files",
        ),
        (
            4,
            vec![delta(1, &[], &[], &[]), delta(0, &[], &[], &[])],
            "place among the subtasks",
        ),
    ];
    for (checkpoint, deltas, expected) in cases {
        let mut registry = base.clone();
        let error = complete(&mut registry, checkpoint, &deltas);
        assert_eq!(id(&error.unwrap_err()), expected, "{deltas:?}");
        assert_eq!(registry, base, "{deltas:?}");
    }
    let newest = base.drop_checkpoint(CheckpointId(3)).unwrap_err();
    assert_eq!(newest, RegistryError::Newest(CheckpointId(3)));
    let absent = base.drop_checkpoint(CheckpointId(2)).unwrap_err();
    assert_eq!(absent, RegistryError::NotRetained(CheckpointId(2)));
    base.validate().unwrap();
}

/// Completing and dropping look at what changes, however much exists.
#[test]
fn cost_follows_what_changes() {
    let mut costs = BTreeSet::new();
    for existing in [10_u64, 1_000, 50_000] {
        let mut registry = Registry::default();
        let files: Vec<FileName> = (1..=existing).map(|number| file(1, number)).collect();
        complete(&mut registry, 1, &[delta(0, &files, &[], &[])]).unwrap();
        let mut cost = Vec::new();
        for id in 2..6_u64 {
            let born = [file(1, existing + id)];
            let dropped = [files[id as usize]];
            let delta = delta(0, &born, &[], &dropped);
            let deltas = [delta];
            cost.push(complete(&mut registry, id, &deltas).unwrap());
            let dropped = registry.drop_checkpoint(CheckpointId(id - 1)).unwrap();
            assert_eq!(dropped.freed.len(), 1);
            cost.push(dropped.visited);
        }
        costs.insert(cost);
    }
    assert_eq!(costs, BTreeSet::from([vec![2, 1, 2, 1, 2, 1, 2, 1]]));
}

/// A file that moves from one subtask to another is never free in between.
#[test]
fn a_file_handed_over_is_held_all_the_time() {
    let a = file(1, 1);
    let mut registry = Registry::default();
    let first = [delta(0, &[], &[], &[]), delta(1, &[a], &[], &[])];
    complete(&mut registry, 1, &first).unwrap();
    let moved = [delta(0, &[], &[a], &[]), delta(1, &[], &[], &[a])];
    complete(&mut registry, 2, &moved).unwrap();
    let dropped = registry.drop_checkpoint(CheckpointId(1)).unwrap();
    assert_eq!(dropped.freed, BTreeMap::new());
    assert!(registry.holds_current(subtask(0), a));
    let back = [delta(0, &[], &[], &[a]), delta(1, &[], &[a], &[])];
    complete(&mut registry, 3, &back).unwrap();
    assert_eq!(registry.intervals_of(a).len(), 2);
    let gone = [delta(0, &[], &[], &[])];
    complete(&mut registry, 4, &gone).unwrap();
    assert_eq!(registry.reference_count(a), 2);
    let two = registry.drop_checkpoint(CheckpointId(2)).unwrap();
    assert_eq!(two.freed, BTreeMap::new());
    let three = registry.drop_checkpoint(CheckpointId(3)).unwrap();
    assert_eq!(three.freed, BTreeMap::from([(a, subtask(1))]));
    registry.validate().unwrap();
}

/// A registry read from outside is checked: each broken invariant has its name.
#[test]
fn damage_is_named() {
    let (a, b) = (file(1, 1), file(1, 2));
    let mut good = Registry::default();
    for (id, delta) in [
        (1, delta(0, &[a, b], &[], &[])),
        (2, delta(0, &[], &[], &[a])),
        (3, delta(0, &[], &[a], &[b])),
    ] {
        complete(&mut good, id, &[delta]).unwrap();
    }
    good.validate().unwrap();
    let broken = |breaks: fn(&mut Registry)| {
        let mut registry = good.clone();
        breaks(&mut registry);
        registry.validate().unwrap_err()
    };
    let empty = broken(|registry| {
        registry.open.insert(subtask(2), BTreeMap::new());
    });
    assert_eq!(empty, RegistryDamage::EmptyTable(subtask(2)));
    let misplaced = broken(|registry| {
        let list = registry.dead.get_mut(&CheckpointId(1)).unwrap();
        list.values_mut()
            .flat_map(BTreeMap::values_mut)
            .for_each(|interval| interval.born = CheckpointId(2));
    });
    assert!(matches!(misplaced, RegistryDamage::Misplaced { .. }));
    let ended = broken(|registry| {
        registry.dead.remove(&CheckpointId(3));
    });
    assert!(matches!(ended, RegistryDamage::EndedByNothing { .. }));
    let overlap = broken(|registry| {
        let files = registry.open.get_mut(&subtask(0)).unwrap();
        files.get_mut(&file(1, 1)).unwrap().born = CheckpointId(1);
    });
    assert!(matches!(overlap, RegistryDamage::Overlap { .. }));
    let described = broken(|registry| {
        let files = registry.open.get_mut(&subtask(0)).unwrap();
        files.get_mut(&file(1, 1)).unwrap().digest.size_bytes = 7;
    });
    assert_eq!(described, RegistryDamage::DescribedTwice(a));
    let counts = broken(|registry| registry.several.clear());
    assert_eq!(counts, RegistryDamage::Counts);
}
