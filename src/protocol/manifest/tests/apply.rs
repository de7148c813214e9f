//! What a record does, and what it may not do.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::history::{History, JOB, ROOT, description};
use crate::protocol::id::{
    AttemptId, CheckpointId, Epoch, FileName, OperatorId, SubtaskId, Version,
};
use crate::protocol::manifest::{
    ApplyError, Change, Completion, Manifest, Operator, PinOwner, Record, SubtaskDelta,
};
use crate::protocol::registry::RegistryError;
use crate::protocol::testing::{Choices, config};
use crate::protocol::time::WallClock;

proptest! {
    #![proptest_config(config(150))]

    /// Whatever a leader legally does, the invariants hold, the files known before are known
    /// after, and a replay of the records makes the same manifest.
    #[test]
    fn legal_histories_keep_the_invariants(choices in prop::collection::vec(any::<u64>(), 0..60)) {
        let mut history = History::new();
        for choice in choices {
            let before = history.manifest.clone();
            history.step(choice);
            let after = &history.manifest;
            prop_assert_eq!(after.validate(), Ok(()));
            for (checkpoint, kept) in before.checkpoints() {
                for subtask in kept.subtasks.keys() {
                    let files = before.registry().files(*checkpoint, *subtask);
                    for file in &files {
                        prop_assert!(is_known(after, file.name), "{} is lost", file.name);
                    }
                    if after.is_retained(*checkpoint) {
                        prop_assert_eq!(after.registry().files(*checkpoint, *subtask), files);
                    }
                }
            }
            for file in before.released().keys() {
                prop_assert!(is_known(after, *file), "{} is lost", file);
            }
            let mut lineage: Vec<CheckpointId> = after.lineage().collect();
            prop_assert!(lineage.is_sorted_by(|a, b| a > b));
            lineage.retain(|checkpoint| !after.is_retained(*checkpoint));
            prop_assert_eq!(lineage, []);
            let condemned = before.tombstones().iter();
            prop_assert!(condemned.copied().all(|file| !after.registry().holds(file)));
        }
        let mut replayed = Manifest::genesis(ROOT, JOB.to_string());
        for record in &history.records {
            replayed.apply(record).unwrap();
        }
        prop_assert_eq!(replayed, history.manifest);
    }
}

/// The histories of these tests are of use only if they reach what is rare.
#[test]
fn legal_histories_reach_what_is_rare() {
    let mut reached = BTreeSet::new();
    for seed in 0..100 {
        let mut choices = Choices(seed);
        let mut history = History::new();
        for _ in 0..60 {
            let before = history.manifest.newest();
            history.step(choices.next());
            let manifest = &history.manifest;
            let newest = manifest.newest();
            let older =
                |checkpoint: Option<CheckpointId>| checkpoint.is_some() && checkpoint != newest;
            let several = |file: &FileName| manifest.registry().intervals_of(*file).len() > 1;
            let record = &history.records[history.records.len() - 1];
            for change in &record.changes {
                match change {
                    Change::Complete(completion) => {
                        let mut returned = completion.subtasks.iter().flat_map(|s| &s.returned);
                        if returned.any(|file| several(&file.name)) {
                            reached.insert("a file comes back");
                        }
                        if completion.parent != before {
                            reached.insert("a line is abandoned");
                        }
                    }
                    Change::Subsume { checkpoints } if checkpoints.len() > 1 => {
                        reached.insert("several are dropped at once");
                    }
                    Change::Forget { files } if !files.is_empty() => {
                        reached.insert("tombstones are forgotten");
                    }
                    Change::Unpin { .. } => {
                        reached.insert("a pin ends");
                    }
                    Change::End { attempts } if !attempts.is_empty() => {
                        reached.insert("attempts end");
                    }
                    _ => {}
                }
            }
            let pinned = manifest.retained().filter(|id| manifest.is_pinned(*id));
            let off_line = pinned.filter(|id| !manifest.lineage().any(|line| line == *id));
            for (is_there, situation) in [
                (older(manifest.head()), "an older head"),
                (manifest.retained().count() > 4, "many are retained"),
                (manifest.released().len() > 2, "released files wait"),
                (off_line.count() > 0, "a pin off the line"),
                (history.current.snapshots().len() == 2, "two snapshots"),
            ] {
                if is_there {
                    reached.insert(situation);
                }
            }
        }
    }
    let expected = [
        "a file comes back",
        "a line is abandoned",
        "a pin ends",
        "a pin off the line",
        "an older head",
        "attempts end",
        "many are retained",
        "released files wait",
        "several are dropped at once",
        "tombstones are forgotten",
        "two snapshots",
    ];
    assert_eq!(reached.into_iter().collect::<Vec<_>>(), expected);
}

fn is_known(manifest: &Manifest, file: FileName) -> bool {
    let places = [
        manifest.registry().holds(file),
        manifest.released().contains_key(&file),
        manifest.tombstones().contains(&file),
    ];
    places.into_iter().filter(|there| *there).count() == 1
}

const A: SubtaskId = SubtaskId {
    operator: OperatorId(0),
    index: 0,
};
const B: SubtaskId = SubtaskId {
    operator: OperatorId(0),
    index: 1,
};

fn operator() -> Operator {
    Operator {
        id: OperatorId(0),
        name: "count".to_string(),
        state: "memory".to_string(),
        parallelism: 2,
        key_groups: 16,
        families: Vec::new(),
    }
}

fn file(number: u64) -> FileName {
    let attempt = AttemptId(1);
    FileName { attempt, number }
}

fn completion(checkpoint: u64, parent: Option<u64>, born: u64, dropped: &[u64]) -> Completion {
    Completion {
        checkpoint: CheckpointId(checkpoint),
        parent: parent.map(CheckpointId),
        cut_at: WallClock(checkpoint),
        subtasks: vec![SubtaskDelta {
            subtask: A,
            born: vec![description(AttemptId(1), born)],
            returned: Vec::new(),
            dropped: dropped.iter().copied().map(file).collect(),
            user_bytes: Vec::new(),
        }],
    }
}

fn complete(checkpoint: u64, parent: Option<u64>, born: u64, dropped: &[u64]) -> Change {
    Change::Complete(completion(checkpoint, parent, born, dropped))
}

fn subsume(checkpoint: u64) -> Change {
    let checkpoints = vec![CheckpointId(checkpoint)];
    Change::Subsume { checkpoints }
}

fn condemn(numbers: &[u64]) -> Change {
    let files = numbers.iter().copied().map(file).collect();
    Change::Condemn { files }
}

fn forget(numbers: &[u64]) -> Change {
    let files = numbers.iter().copied().map(file).collect();
    Change::Forget { files }
}

fn deploy(head: Option<u64>, attempts: &[(SubtaskId, u64)]) -> Change {
    let attempts = attempts
        .iter()
        .map(|(subtask, attempt)| (*subtask, AttemptId(*attempt)));
    Change::Deploy {
        head: head.map(CheckpointId),
        attempts: attempts.collect(),
    }
}

fn end(attempts: &[u64]) -> Change {
    let attempts = attempts.iter().copied().map(AttemptId).collect();
    Change::End { attempts }
}

fn pin(checkpoint: u64) -> Change {
    let owner = PinOwner("me".to_string());
    let checkpoint = CheckpointId(checkpoint);
    Change::Pin { checkpoint, owner }
}

fn unpin(checkpoint: u64) -> Change {
    let owner = PinOwner("me".to_string());
    let checkpoint = CheckpointId(checkpoint);
    Change::Unpin { checkpoint, owner }
}

fn reserve(checkpoints_below: u64, attempts_below: u64) -> Change {
    Change::Reserve {
        checkpoints_below: CheckpointId(checkpoints_below),
        attempts_below: AttemptId(attempts_below),
    }
}

/// Three checkpoints of one attempt: files 1, 2 and 3, each dropped by the next; 9 condemned.
fn base() -> History {
    let mut history = History::new();
    let claim = Change::Claim { epoch: Epoch(1) };
    let describe = Change::Describe {
        operators: vec![operator()],
    };
    let start = deploy(None, &[(A, 1), (B, 2)]);
    history.commit(vec![claim, reserve(10, 10), describe, start], false);
    history.commit(vec![complete(1, None, 1, &[])], false);
    history.commit(vec![complete(2, Some(1), 2, &[1]), pin(1)], false);
    history.commit(vec![complete(3, Some(2), 3, &[2]), condemn(&[9])], false);
    history
}

fn refused(changes: Vec<Change>) -> ApplyError {
    refused_after(Vec::new(), changes)
}

fn refused_after(first: Vec<Change>, changes: Vec<Change>) -> ApplyError {
    let mut history = base();
    history.commit(first, false);
    let record = Record {
        version: history.manifest.version().next(),
        epoch: history.manifest.epoch(),
        changes,
    };
    let before = history.manifest.clone();
    let error = history.manifest.apply(&record).unwrap_err();
    assert_eq!(history.manifest, before, "{error}");
    assert_eq!(before.check(&record), Err(error.clone()));
    error
}

/// Of the record's changes, a completion has what was described before it.
#[test]
fn a_checkpoint_keeps_the_families_that_its_operators_had() {
    let described = |names: &[&str]| {
        let mut operator = operator();
        operator.families = names.iter().map(|name| (*name).to_string()).collect();
        Change::Describe {
            operators: vec![operator],
        }
    };
    let mut history = base();
    let changes = vec![
        described(&["default"]),
        complete(4, Some(3), 4, &[3]),
        described(&["default", "timers"]),
    ];
    history.commit(changes, false);
    history.commit(vec![complete(5, Some(4), 5, &[4])], false);
    let families = |checkpoint| {
        let checkpoint = history.manifest.checkpoint(CheckpointId(checkpoint));
        let families = checkpoint.unwrap().families.values().flatten();
        families.cloned().collect::<Vec<_>>()
    };
    assert_eq!(families(3), Vec::<String>::new());
    assert_eq!(families(4), ["default"]);
    assert_eq!(families(5), ["default", "timers"]);
    assert_eq!(history.manifest.validate(), Ok(()));
}

#[test]
fn records_of_another_version_or_epoch_are_refused() {
    let mut manifest = base().manifest;
    let record = |version, epoch, changes| Record {
        version: Version(version),
        epoch: Epoch(epoch),
        changes,
    };
    for version in [0, 4, 6] {
        let error = manifest.apply(&record(version, 1, Vec::new())).unwrap_err();
        let (expected, found) = (Version(5), Version(version));
        assert_eq!(error, ApplyError::Version { expected, found });
    }
    for (epoch, claimed, expected) in [(2, None, 1), (0, None, 1), (3, Some(3), 2), (1, Some(1), 2)]
    {
        let claim = claimed.map(|epoch| Change::Claim {
            epoch: Epoch(epoch),
        });
        let record = record(5, epoch, claim.into_iter().collect());
        let (expected, found) = (Epoch(expected), Epoch(epoch));
        let error = manifest.clone().apply(&record).unwrap_err();
        assert_eq!(error, ApplyError::Epoch { expected, found });
    }
    let claim = Change::Claim { epoch: Epoch(2) };
    let late = record(5, 1, vec![reserve(10, 10), claim]);
    let error = manifest.clone().apply(&late).unwrap_err();
    assert_eq!(error, ApplyError::LateClaim(Epoch(2)));
    let mut fresh = Manifest::genesis(ROOT, JOB.to_string());
    let error = fresh
        .apply(&record(1, 0, vec![reserve(10, 10)]))
        .unwrap_err();
    assert_eq!(error, ApplyError::Unclaimed);
}

#[test]
fn checkpoints_are_kept_and_dropped_by_rule() {
    assert_eq!(
        refused(vec![subsume(3)]),
        ApplyError::DropsNewest(CheckpointId(3))
    );
    assert_eq!(
        refused(vec![subsume(1)]),
        ApplyError::DropsPinned(CheckpointId(1))
    );
    assert_eq!(
        refused(vec![subsume(4)]),
        ApplyError::NotRetained(CheckpointId(4))
    );
    let twice = refused(vec![subsume(2), subsume(2)]);
    assert_eq!(twice, ApplyError::NotRetained(CheckpointId(2)));
    let head = refused(vec![deploy(Some(2), &[(A, 3), (B, 4)]), subsume(2)]);
    assert_eq!(head, ApplyError::DropsHead(CheckpointId(2)));
    assert_eq!(
        refused(vec![pin(4)]),
        ApplyError::NotRetained(CheckpointId(4))
    );
    let again = refused(vec![pin(1)]);
    assert!(matches!(again, ApplyError::PinnedAlready { .. }), "{again}");
    let absent = refused(vec![unpin(2)]);
    assert!(matches!(absent, ApplyError::NoSuchPin { .. }), "{absent}");
}

#[test]
fn completions_continue_the_line_with_reserved_ids() {
    let stale = refused(vec![complete(4, Some(2), 4, &[])]);
    let parent = |expected: u64, found: Option<u64>| ApplyError::Parent {
        checkpoint: CheckpointId(4),
        expected: Some(CheckpointId(expected)),
        found: found.map(CheckpointId),
    };
    assert_eq!(stale, parent(3, Some(2)));
    assert_eq!(refused(vec![complete(4, None, 4, &[])]), parent(3, None));
    let restored = vec![
        deploy(Some(2), &[(A, 3), (B, 4)]),
        complete(4, Some(3), 4, &[]),
    ];
    assert_eq!(refused(restored), parent(2, Some(3)));
    let late = vec![subsume(2), complete(4, Some(3), 4, &[])];
    assert_eq!(refused(late), ApplyError::LateCompletion(CheckpointId(4)));
    let second = vec![complete(4, Some(3), 4, &[]), complete(5, Some(4), 5, &[])];
    assert_eq!(refused(second), ApplyError::LateCompletion(CheckpointId(5)));
    let unreserved = refused(vec![complete(10, Some(3), 4, &[])]);
    assert_eq!(
        unreserved,
        ApplyError::CheckpointNotReserved(CheckpointId(10))
    );
    let same = refused(vec![complete(3, Some(3), 4, &[])]);
    let same_id = RegistryError::IdNotAbove {
        checkpoint: CheckpointId(3),
        newest: CheckpointId(3),
    };
    assert_eq!(same, ApplyError::Registry(same_id));
    let mut foreign = completion(4, Some(3), 4, &[]);
    foreign.subtasks[0].subtask.index = 2;
    let foreign = refused(vec![Change::Complete(foreign)]);
    assert!(matches!(foreign, ApplyError::NoSuchSubtask(_)), "{foreign}");
    let mut unreserved = completion(4, Some(3), 4, &[]);
    unreserved.subtasks[0].born[0].name.attempt = AttemptId(10);
    let unreserved = refused(vec![Change::Complete(unreserved)]);
    assert_eq!(unreserved, ApplyError::AttemptNotReserved(AttemptId(10)));
}

#[test]
fn condemned_files_never_come_back() {
    let reborn = |number: u64| ApplyError::Reborn {
        checkpoint: CheckpointId(4),
        file: file(number),
    };
    assert_eq!(refused(vec![complete(4, Some(3), 9, &[])]), reborn(9));
    let condemned = vec![subsume(2), condemn(&[2])];
    let again = vec![complete(4, Some(3), 2, &[])];
    assert_eq!(refused_after(condemned, again), reborn(2));
    let at_once = vec![condemn(&[2]), complete(4, Some(3), 2, &[])];
    assert_eq!(refused_after(vec![subsume(2)], at_once), reborn(2));
    let dropped_too_early = vec![condemn(&[2]), subsume(2)];
    assert_eq!(
        refused(dropped_too_early),
        ApplyError::CondemnsHeld(file(2))
    );
    let just_born = vec![complete(4, Some(3), 4, &[]), condemn(&[4])];
    assert_eq!(refused(just_born), ApplyError::CondemnsHeld(file(4)));
    for held in [1, 2, 3] {
        assert_eq!(
            refused(vec![condemn(&[held])]),
            ApplyError::CondemnsHeld(file(held))
        );
    }
    assert_eq!(
        refused(vec![condemn(&[9])]),
        ApplyError::CondemnsTwice(file(9))
    );
    assert_eq!(
        refused(vec![forget(&[8])]),
        ApplyError::NoTombstone(file(8))
    );
    let released = refused(vec![subsume(2), forget(&[2])]);
    assert_eq!(released, ApplyError::NoTombstone(file(2)));
    let disordered = refused(vec![condemn(&[8, 7])]);
    assert_eq!(disordered, ApplyError::Disordered("condemned files"));
    let doubled = refused(vec![forget(&[9, 9])]);
    assert_eq!(doubled, ApplyError::Disordered("forgotten files"));
}

#[test]
fn attempts_are_named_once_and_in_order() {
    let reused = |subtask, attempt| ApplyError::AttemptReused {
        attempt: AttemptId(attempt),
        subtask,
    };
    assert_eq!(refused(vec![deploy(Some(3), &[(A, 2)])]), reused(A, 2));
    assert_eq!(refused(vec![deploy(Some(3), &[(B, 1)])]), reused(B, 1));
    let unreserved = refused(vec![deploy(Some(3), &[(A, 10)])]);
    assert_eq!(unreserved, ApplyError::AttemptNotReserved(AttemptId(10)));
    let nothing = refused(vec![deploy(None, &[(A, 3)])]);
    assert_eq!(nothing, ApplyError::HeadIsNothing(CheckpointId(3)));
    let disordered = refused(vec![deploy(Some(3), &[(B, 4), (A, 3)])]);
    assert_eq!(disordered, ApplyError::Disordered("deployed subtasks"));
    assert_eq!(refused(vec![end(&[3])]), ApplyError::NotNamed(AttemptId(3)));
    let replaced = refused(vec![deploy(Some(3), &[(A, 3)]), end(&[1])]);
    assert_eq!(replaced, ApplyError::NotNamed(AttemptId(1)));
    let (from, to) = (CheckpointId(10), CheckpointId(9));
    assert_eq!(
        refused(vec![reserve(9, 10)]),
        ApplyError::CheckpointsFall { from, to }
    );
    let high = refused(vec![reserve(u64::MAX, 10)]);
    assert_eq!(high, ApplyError::TooHigh(u64::MAX));
    let (from, to) = (AttemptId(10), AttemptId(9));
    assert_eq!(
        refused(vec![reserve(10, 9)]),
        ApplyError::AttemptsFall { from, to }
    );
}

/// An acknowledgement under way may name a file that is released meanwhile.
#[test]
fn a_released_file_is_held_again() {
    for is_new in [true, false] {
        let mut history = base();
        history.commit(vec![subsume(2)], false);
        assert!(history.manifest.released().contains_key(&file(2)));
        let mut again = completion(4, Some(3), 2, &[]);
        if !is_new {
            again.subtasks[0].returned = core::mem::take(&mut again.subtasks[0].born);
        }
        history.commit(vec![Change::Complete(again)], false);
        assert!(history.manifest.released().is_empty());
        assert_eq!(history.manifest.validate(), Ok(()));
        let gone = vec![subsume(2), condemn(&[2]), forget(&[2])];
        let mut again = completion(4, Some(3), 2, &[]);
        again.subtasks[0].returned = core::mem::take(&mut again.subtasks[0].born);
        let unknown = refused_after(gone, vec![Change::Complete(again)]);
        let known = matches!(
            unknown,
            ApplyError::Registry(RegistryError::NotKnown { .. })
        );
        assert!(known, "{unknown}");
    }
}

/// All attempts of a job run on one line.
#[test]
fn a_new_line_replaces_every_attempt() {
    let mixed = refused(vec![deploy(Some(2), &[(A, 3)])]);
    let expected = ApplyError::MixedLines {
        head: Some(CheckpointId(2)),
        attempt: AttemptId(2),
        subtask: B,
    };
    assert_eq!(mixed, expected);
    let accepted = [
        vec![deploy(Some(3), &[(A, 3)])],
        vec![deploy(Some(2), &[(A, 3), (B, 4)])],
        vec![deploy(Some(2), &[(A, 3)]), end(&[2])],
        vec![deploy(Some(2), &[(A, 3)]), deploy(Some(2), &[(B, 4)])],
    ];
    for changes in accepted {
        let mut history = base();
        history.commit(changes, false);
        let head = history.manifest.head().map(|head| head.0);
        history.commit(vec![deploy(head, &[(A, 5)])], false);
    }
}

#[test]
fn operators_keep_their_names_and_numbers() {
    let described = |change: fn(&mut Operator)| {
        let mut operator = operator();
        change(&mut operator);
        let operators = vec![operator];
        match refused(vec![Change::Describe { operators }]) {
            ApplyError::Operator { reason, .. } => reason,
            error => panic!("{error}"),
        }
    };
    assert_eq!(
        described(|o| o.name = "sum".to_string()),
        "it had another name"
    );
    assert_eq!(described(|o| o.id.0 = 1), "another operator has its name");
    assert_eq!(described(|o| o.id.0 = 2), "its number is not the next");
    assert_eq!(described(|o| o.parallelism = 0), "its parallelism is 0");
}

/// A line: what was restored, its head, its parents, and what happens to an abandoned line.
#[test]
fn a_restored_checkpoint_begins_a_line() {
    let mut history = base();
    assert_eq!(history.manifest.continues_newest(), Some(CheckpointId(3)));
    history.commit(vec![deploy(Some(3), &[(A, 3)])], false);
    assert_eq!(history.manifest.continues_newest(), Some(CheckpointId(3)));
    assert_eq!(history.manifest.subtask_of(AttemptId(1)), None);
    history.commit(vec![deploy(Some(2), &[(A, 4), (B, 5)])], false);
    let manifest = &history.manifest;
    assert_eq!(manifest.continues_newest(), None);
    assert_eq!(manifest.restore_point(), Some(CheckpointId(2)));
    let lineage = |history: &History| history.manifest.lineage().collect::<Vec<_>>();
    assert_eq!(lineage(&history), [CheckpointId(2), CheckpointId(1)]);
    let mut back = completion(5, Some(2), 5, &[3]);
    back.subtasks[0].returned = vec![description(AttemptId(1), 2)];
    history.commit(vec![Change::Complete(back), subsume(3)], false);
    assert_eq!(lineage(&history), [5, 2, 1].map(CheckpointId));
    assert_eq!(history.manifest.head(), None);
    assert_eq!(history.manifest.continues_newest(), Some(CheckpointId(5)));
    assert_eq!(
        history
            .manifest
            .released()
            .keys()
            .copied()
            .collect::<Vec<_>>(),
        [file(3)]
    );
    history.commit(vec![subsume(2), condemn(&[3])], false);
    assert_eq!(lineage(&history), [5, 1].map(CheckpointId));
    assert_eq!(history.manifest.tombstones().len(), 2);
    assert_eq!(
        history.manifest.registry().holders(file(2)),
        BTreeSet::from([CheckpointId(5)])
    );
}

#[test]
fn claims_are_counted_until_a_checkpoint_completes() {
    let mut history = base();
    assert_eq!(history.manifest.claims_since_completion(), 0);
    for epoch in 2..5 {
        history.commit(
            vec![Change::Claim {
                epoch: Epoch(epoch),
            }],
            false,
        );
    }
    assert_eq!(history.manifest.claims_since_completion(), 3);
    history.commit(vec![complete(4, Some(3), 4, &[])], false);
    assert_eq!(history.manifest.claims_since_completion(), 0);
}
