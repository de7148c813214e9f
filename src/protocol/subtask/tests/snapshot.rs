//! Triggers, cuts, lists of files.

use super::*;
use crate::protocol::subtask::{SubtaskConfig, Waiting};

#[test]
fn a_snapshot_goes_from_trigger_to_acknowledgement() {
    let mut hand = Hand::new(Limits::default());
    let asked = Action::Snapshot { checkpoint: id(5) };
    assert_eq!(hand.trigger(5, None), [asked]);
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for the cut of checkpoint 5"
    );
    let secure = Action::Secure {
        checkpoint: id(5),
        files: vec![local("1.sst"), local("2.sst")],
    };
    assert_eq!(hand.taken(5, &["1.sst", "2.sst"]), [secure]);
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for the files of checkpoint 5 to be kept"
    );
    assert_eq!(
        hand.secured(5),
        [
            upload(1, 5, "1.sst"),
            upload(2, 5, "2.sst"),
            upload(3, 5, PACK)
        ]
    );
    assert_eq!(hand.uploaded(2, done("2.sst")), [release(5, "2.sst")]);
    assert_eq!(hand.uploaded(1, done("1.sst")), [release(5, "1.sst")]);
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for 1 files of checkpoint 5, pack for one, under way to shared/7/3"
    );
    let acknowledge = Acknowledge {
        epoch: Epoch(1),
        subtask: SubtaskId::default(),
        attempt: ATTEMPT,
        checkpoint: id(5),
        files: full(&[(1, "1.sst"), (2, "2.sst"), (3, PACK)]),
        user_bytes: vec![5],
        families: families(&["default", "timers"]),
        cut_at: WallClock(50),
        floor: 1,
    };
    assert_eq!(
        hand.uploaded(3, done(PACK)),
        [
            release(5, PACK),
            Action::Send(Message::Acknowledge(acknowledge)),
            release_snapshot(5),
        ]
    );
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for the answer to checkpoint 5"
    );
    assert_eq!(hand.answer(5), []);
    assert_eq!(hand.subtask.pending_reason(), None);
    assert_eq!(hand.subtask.poll_timeout(), None);
}

#[test]
fn a_subtask_without_files_acknowledges_none() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    let taken = Event::SnapshotTaken {
        checkpoint: id(5),
        files: Vec::new(),
        user_bytes: vec![1, 2, 3],
        families: Vec::new(),
        cut_at: WallClock(50),
    };
    let actions = hand.give(taken);
    assert!(matches!(
        &actions[..],
        [Action::Secure { files: secured, .. }, Action::Send(Message::Acknowledge(acknowledge))]
            if secured.is_empty() && acknowledge.files == full(&[])
    ));
    // What the cut holds is released once nothing is being done with it.
    assert_eq!(hand.secured(5), [release_snapshot(5)]);
}

#[test]
fn a_trigger_at_or_below_the_last_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    for checkpoint in [5, 4] {
        let message = hand.trigger_message(checkpoint, None, 0);
        assert_eq!(hand.ignored(Event::Received(message)), Ignored::Duplicate);
    }
}

#[test]
fn a_trigger_that_contradicts_itself_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    for (base, settled) in [(Some(5), 0), (Some(6), 0), (None, 5)] {
        let message = hand.trigger_message(5, base, settled);
        assert_eq!(
            hand.ignored(Event::Received(message)),
            Ignored::Contradictory
        );
    }
}

#[test]
fn a_message_for_another_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    let other = Trigger {
        epoch: Epoch(1),
        attempt: AttemptId(6),
        checkpoint: id(5),
        base: None,
        settled: id(0),
    };
    let event = Event::Received(Message::Trigger(other));
    assert_eq!(hand.ignored(event), Ignored::NotAddressed);
    let decline = Decline {
        epoch: Epoch(1),
        subtask: SubtaskId::default(),
        attempt: ATTEMPT,
        checkpoint: id(5),
        failure: failure(FailureKind::Other),
    };
    let event = Event::Received(Message::Decline(decline));
    assert_eq!(hand.ignored(event), Ignored::NotAddressed);
}

#[test]
fn cuts_are_taken_one_at_a_time_and_in_order() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    assert_eq!(hand.trigger(6, None), []);
    let secure = Action::Secure {
        checkpoint: id(5),
        files: vec![local("1.sst")],
    };
    let asked = Action::Snapshot { checkpoint: id(6) };
    assert_eq!(hand.taken(5, &["1.sst"]), [secure, asked]);
}

#[test]
fn a_cut_that_failed_is_declined() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    let event = Event::SnapshotFailed {
        checkpoint: id(5),
        failure: failure(FailureKind::Unavailable),
    };
    let actions = hand.give(event.clone());
    let declines = declined(&actions);
    assert_eq!(actions.len(), 1);
    assert_eq!(declines[0].checkpoint, id(5));
    assert_eq!(declines[0].failure, failure(FailureKind::Unavailable));
    assert_eq!(hand.ignored(event), Ignored::UnknownToken);
}

/// B43: an abort that overtakes its trigger.
#[test]
fn an_abort_that_comes_before_its_trigger_wins() {
    let mut hand = Hand::new(Limits::default());
    let notice = Action::Tell(super::super::Notice::Aborted(id(8)));
    assert_eq!(hand.abort(8), [notice]);
    let message = hand.trigger_message(8, None, 0);
    assert_eq!(
        hand.ignored(Event::Received(message)),
        Ignored::UnknownCheckpoint
    );
    // Another checkpoint, older or newer, is none of its business.
    assert_eq!(hand.trigger(7, None).len(), 1);
    assert_eq!(hand.trigger(9, None), []);
    assert_eq!(hand.view().snapshots.len(), 2);
}

/// B25: an abort before the cut leaves nothing behind, whenever the cut comes.
#[test]
fn a_cut_that_nobody_waits_for_is_given_up() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    let notice = Action::Tell(super::super::Notice::Aborted(id(5)));
    assert_eq!(hand.abort(5), [release_snapshot(5), notice]);
    let asked = Action::Snapshot { checkpoint: id(6) };
    assert_eq!(hand.trigger(6, None), [asked]);
    // The answer was on its way.
    let late = Hand::taken_event(5, &["1.sst"]);
    let outcome = hand.subtask.handle_event(hand.now, late);
    assert_eq!(outcome, Outcome::Ignored(Ignored::UnknownToken));
    assert_eq!(hand.drain(), [release_snapshot(5)]);
    assert_eq!(hand.taken(6, &["1.sst"]).len(), 1);
    // A doubled answer releases nothing that is needed.
    let doubled = Hand::taken_event(6, &["1.sst"]);
    assert_eq!(hand.ignored(doubled), Ignored::UnknownToken);
}

#[test]
fn a_snapshot_given_up_while_its_files_are_secured_is_released_afterwards() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    hand.taken(5, &["1.sst"]);
    let notice = Action::Tell(super::super::Notice::Aborted(id(5)));
    assert_eq!(hand.abort(5), [notice]);
    assert_eq!(hand.secured(5), [release_snapshot(5)]);
    assert_eq!(hand.subtask.pending_reason(), None);
}

#[test]
fn files_that_can_not_be_secured_decline_the_snapshot() {
    let mut hand = Hand::new(Limits::default());
    for (checkpoint, answer) in [
        (5, failed(FailureKind::NoSpace)),
        (6, unknown()),
        (7, Answer::Refused),
    ] {
        hand.trigger(checkpoint, None);
        hand.taken(checkpoint, &["1.sst"]);
        let actions = hand.give(Event::IoCompleted {
            token: OpToken::Secure(id(checkpoint)),
            answer,
        });
        assert_eq!(actions[0], release_snapshot(checkpoint));
        assert_eq!(declined(&actions)[0].checkpoint, id(checkpoint));
    }
    // The file is still live, and the next snapshot stores it.
    let uploads = hand.snapshot(8, None, &["1.sst"]);
    assert_eq!(uploads, [upload(1, 8, "1.sst"), upload(2, 8, PACK)]);
}

#[test]
fn only_so_many_snapshots_are_under_way() {
    let limits = Limits {
        snapshots_in_flight_max: 2,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.trigger(5, None);
    hand.trigger(6, None);
    let actions = hand.trigger(7, None);
    let declines = declined(&actions);
    assert_eq!(actions.len(), 1);
    assert_eq!(declines[0].failure.kind, FailureKind::Exhausted);
    // It is answered for, once.
    let message = hand.trigger_message(7, None, 0);
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::Duplicate);
    hand.abort(5);
    assert_eq!(declined(&hand.trigger(8, None)), []);
}

#[test]
fn an_unanswered_acknowledgement_takes_the_place_of_a_snapshot() {
    let limits = Limits {
        snapshots_in_flight_max: 1,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.whole_snapshot(5, None, &["1.sst"]);
    assert_eq!(declined(&hand.trigger(6, None)).len(), 1);
    hand.answer(5);
    assert_eq!(declined(&hand.trigger(7, None)), []);
}

/// Names of aborted checkpoints that the leader never settles would otherwise add up, and a subtask
/// that declines for their sake would keep it from ever settling them.
#[test]
fn of_too_many_unsettled_names_those_that_nobody_needs_are_left_to_the_sweep() {
    let limits = Limits {
        acknowledged_files_max: 3,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    for checkpoint in 5..=7 {
        hand.whole_snapshot(checkpoint, None, &["1.sst"]);
        hand.answer(checkpoint);
    }
    // One file stays; each snapshot has a pack of its own, and there is room for the first two.
    assert_eq!(hand.view().unsettled, [(id(7), vec![own(1), own(4)])]);
    assert_eq!(declined(&hand.trigger(8, None)), []);
}

#[test]
fn a_list_that_could_not_be_restored_is_declined() {
    let state = |name: &str| LiveFile {
        local: local(name),
        kind: FileKind::State,
        size_bytes: 1,
    };
    let pack = |name: &str| LiveFile {
        local: local(name),
        kind: FileKind::Pack,
        size_bytes: 0,
    };
    let limits = Limits {
        user_bytes_max: 2,
        family_bytes_max: 2,
        acknowledged_files_max: 3,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    let cases = [
        (
            vec![state("a"), state("a"), pack("p")],
            0,
            families(&[]),
            FailureKind::Corrupt,
        ),
        (
            vec![state("a"), pack("a")],
            0,
            families(&[]),
            FailureKind::Corrupt,
        ),
        (
            vec![pack("p"), pack("q")],
            0,
            families(&[]),
            FailureKind::Corrupt,
        ),
        (vec![state("a")], 0, families(&[]), FailureKind::Corrupt),
        (vec![pack("p")], 3, families(&[]), FailureKind::TooLarge),
        (
            vec![state("a"), state("b"), state("c"), pack("p")],
            0,
            families(&[]),
            FailureKind::TooLarge,
        ),
        (
            vec![pack("p")],
            0,
            families(&["a", "bc"]),
            FailureKind::TooLarge,
        ),
        (
            vec![pack("p")],
            0,
            families(&["a", "a"]),
            FailureKind::Corrupt,
        ),
    ];
    for (checkpoint, (files, user_bytes, families, kind)) in (5..).zip(cases) {
        hand.trigger(checkpoint, None);
        let actions = hand.give(Event::SnapshotTaken {
            checkpoint: id(checkpoint),
            files,
            user_bytes: vec![0; user_bytes],
            families,
            cut_at: WallClock(0),
        });
        assert_eq!(actions[0], release_snapshot(checkpoint));
        assert_eq!(declined(&actions)[0].failure.kind, kind, "{checkpoint}");
    }
    assert_eq!(hand.view().holds, []);
    assert_eq!(hand.view().live, []);
}

#[test]
fn time_shifts_and_states_stay_equal() {
    let step = |start: u64| {
        let mut hand = Hand::new(Limits::default());
        hand.now = Timestamp(start);
        hand.whole_snapshot(5, None, &["1.sst"]);
        hand.subtask.rebase_time(Timestamp(start + 10));
        hand.subtask
    };
    assert_eq!(step(2_000_000), step(9_000_000));
    assert_eq!(step(2_000_000).poll_timeout(), Some(Timestamp(99_990)));
}

#[test]
#[should_panic(expected = "time goes back")]
fn time_does_not_go_back() {
    let mut hand = Hand::new(Limits::default());
    hand.now = Timestamp(999_999);
    hand.trigger(5, None);
}

#[test]
#[should_panic(expected = "attempt 7 of subtask 0.0: actions were not drained")]
fn actions_are_drained_between_events() {
    let mut hand = Hand::new(Limits::default());
    let message = hand.trigger_message(5, None, 0);
    for _ in 0..2 {
        let _ = hand
            .subtask
            .handle_event(hand.now, Event::Received(message.clone()));
    }
}

#[test]
#[should_panic(expected = "checkpoint 3 holds shared/7/1 already")]
fn a_restored_name_of_this_attempt_is_refused() {
    let restored = Some((id(3), described(&[(1, "1.sst")])));
    let config: SubtaskConfig = config(Limits::default());
    let _ = Subtask::new(Timestamp(0), config, restored);
}

#[test]
fn what_is_waited_for_says_so() {
    let hand = {
        let mut hand = Hand::new(Limits::default());
        hand.snapshot(5, None, &["1.sst"]);
        hand.abort(5);
        hand
    };
    let expected = Waiting::Stored {
        attempt: ATTEMPT,
        checkpoint: id(5),
        missing: 2,
        local: Some(local("1.sst")),
        name: Some(own(1)),
    };
    assert_eq!(hand.subtask.pending_reason(), Some(expected));
}

#[test]
fn a_trigger_beyond_all_numbers_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    let message = hand.trigger_message(u64::MAX, None, 0);
    let ignored = hand.ignored(Event::Received(message));
    assert_eq!(ignored, Ignored::Contradictory);
}
