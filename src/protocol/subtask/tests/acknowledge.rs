//! What acknowledgements say, and what becomes of the names in them.

use super::*;
use crate::protocol::message::Contradiction;

fn inherited(number: u64) -> FileName {
    FileName {
        attempt: AttemptId(3),
        number,
    }
}

/// An attempt that restored checkpoint 4: two state files and a pack.
fn restored() -> Hand {
    let files = vec![
        description(inherited(1), "1.sst"),
        description(inherited(2), "2.sst"),
        description(inherited(3), PACK),
    ];
    Hand::restored(Limits::default(), Some((id(4), files)))
}

#[test]
fn files_are_told_against_the_restored_base() {
    let mut hand = restored();
    let acknowledge = hand.whole_snapshot(5, Some(4), &["1.sst", "3.sst"]);
    let expected = FileSet::Delta {
        base: id(4),
        added: described(&[(1, "3.sst"), (2, PACK)]),
        removed: vec![inherited(2), inherited(3)],
    };
    assert_eq!(acknowledge.files, expected);
}

#[test]
fn files_are_told_against_a_completed_base() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst", "2.sst"]);
    hand.answer(5);
    hand.complete(5);
    let acknowledge = hand.whole_snapshot(6, Some(5), &["2.sst", "3.sst"]);
    assert_eq!(
        acknowledge.files,
        delta(5, &[(4, "3.sst"), (5, PACK)], &[1, 3])
    );
}

/// What was born and left between base and snapshot is in neither list.
#[test]
fn a_delta_spans_the_snapshots_between() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    hand.complete(5);
    hand.whole_snapshot(6, Some(5), &["1.sst", "2.sst"]);
    hand.whole_snapshot(7, Some(5), &["2.sst", "3.sst"]);
    let acknowledge = hand.whole_snapshot(8, Some(5), &["3.sst"]);
    assert_eq!(
        acknowledge.files,
        delta(5, &[(5, "3.sst"), (7, PACK)], &[1, 2])
    );
}

#[test]
fn an_unknown_base_gets_all_files() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    let acknowledge = hand.whole_snapshot(7, Some(6), &["1.sst"]);
    assert_eq!(acknowledge.files, full(&[(1, "1.sst"), (3, PACK)]));
}

/// A newer completion does not take away the base that a snapshot in flight was triggered with.
#[test]
fn a_base_stays_known_while_a_snapshot_is_told_against_it() {
    let mut hand = Hand::new(Limits::default());
    for checkpoint in [5, 6] {
        hand.whole_snapshot(checkpoint, None, &["1.sst"]);
        hand.answer(checkpoint);
    }
    hand.complete(5);
    hand.snapshot(7, Some(5), &["1.sst"]);
    hand.complete(6);
    assert_eq!(hand.view().bases, [id(5), id(6)].into());
    let actions = hand.uploaded(4, done(PACK));
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Send(Message::Acknowledge(acknowledge))
            if acknowledge.files == delta(5, &[(4, PACK)], &[2])
    )));
    assert_eq!(hand.view().bases, [id(6), id(7)].into());
}

#[test]
fn only_so_many_bases_are_remembered() {
    let limits = Limits {
        pending_checkpoints_max: 2,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    hand.complete(5);
    for checkpoint in 6..=9 {
        hand.whole_snapshot(checkpoint, Some(5), &["1.sst"]);
        hand.answer(checkpoint);
    }
    assert_eq!(hand.view().bases, [id(5), id(8), id(9)].into());
}

#[test]
fn an_acknowledgement_is_repeated_until_it_is_answered() {
    let mut hand = Hand::new(Limits::default());
    let acknowledge = hand.whole_snapshot(5, None, &["1.sst"]);
    let again = Action::Send(Message::Acknowledge(acknowledge));
    let mut waits = Vec::new();
    for _ in 0..3 {
        let (waited, actions) = hand.wait();
        waits.push(waited.as_millis());
        assert_eq!(actions, core::slice::from_ref(&again));
    }
    assert_eq!(waits, [100, 200, 400]);
    // News of its end is not an answer: the leader may not know the names yet.
    hand.abort(5);
    let (_, actions) = hand.wait();
    assert_eq!(actions, [again]);
    hand.answer(5);
    assert_eq!(hand.subtask.poll_timeout(), None);
    let message = hand.answered_message(5, Verdict::Accepted);
    assert_eq!(
        hand.ignored(Event::Received(message)),
        Ignored::UnknownCheckpoint
    );
}

#[test]
fn a_decline_is_repeated_until_it_is_answered_or_the_abort_is_known() {
    for aborted in [false, true] {
        let mut hand = Hand::new(Limits::default());
        hand.trigger(5, None);
        let said = hand.give(Event::SnapshotFailed {
            checkpoint: id(5),
            failure: failure(FailureKind::Denied),
        });
        let (_, actions) = hand.wait();
        assert_eq!(actions, said);
        if aborted {
            hand.abort(5);
        } else {
            let message = hand.answered_message(5, Verdict::NotPending);
            hand.receive(message);
        }
        assert_eq!(hand.subtask.poll_timeout(), None);
    }
}

#[test]
fn what_an_acknowledgement_has_named_is_never_deleted() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    // Not answered, aborted, left, closed: no matter.
    hand.abort(5);
    let mut all = hand.snapshot(6, None, &[]);
    all.extend(hand.uploaded(3, failed(FailureKind::Denied)));
    all.extend(hand.give(Event::Close));
    assert!(
        !all.iter()
            .any(|action| matches!(action, Action::Delete { .. })),
        "{all:?}"
    );
}

/// B86: what a leader says of an acknowledgement ends its repetition, whatever it is.
#[test]
fn a_verdict_against_it_hands_the_names_over_as_well() {
    for verdict in [
        Verdict::NotPending,
        Verdict::Contradiction(Contradiction::Disordered),
    ] {
        let mut hand = Hand::new(Limits::default());
        hand.whole_snapshot(5, None, &["1.sst"]);
        assert_eq!(hand.view().floor, 1);
        let message = hand.answered_message(5, verdict);
        hand.receive(message);
        assert_eq!(hand.view().floor, 3);
        assert_eq!(hand.view().owned, [].into());
    }
}

#[test]
fn a_contradiction_makes_the_next_list_full() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    hand.complete(5);
    hand.whole_snapshot(6, Some(5), &["1.sst"]);
    let verdict = Verdict::Contradiction(Contradiction::RemovesUnheld(own(2)));
    let message = hand.answered_message(6, verdict);
    hand.receive(message);
    let acknowledge = hand.whole_snapshot(7, Some(5), &["1.sst"]);
    assert_eq!(acknowledge.files, full(&[(1, "1.sst"), (4, PACK)]));
}

#[test]
fn a_name_that_the_leader_will_not_have_is_replaced() {
    for contradiction in [
        Contradiction::Condemned(own(1)),
        Contradiction::ComesBack(own(1)),
        Contradiction::ForeignName(own(1)),
    ] {
        let mut hand = Hand::new(Limits::default());
        hand.whole_snapshot(5, None, &["1.sst"]);
        let message = hand.answered_message(5, Verdict::Contradiction(contradiction));
        hand.receive(message);
        let acknowledge = hand.whole_snapshot(6, None, &["1.sst"]);
        assert_eq!(acknowledge.files, full(&[(3, "1.sst"), (4, PACK)]));
    }
}

#[test]
fn a_delta_larger_than_a_message_is_told_in_full() {
    let limits = Limits {
        acknowledged_files_max: 4,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.whole_snapshot(5, None, &["1.sst", "2.sst"]);
    hand.answer(5);
    hand.complete(5);
    let message = hand.trigger_message(6, Some(5), 5);
    hand.receive(message);
    hand.taken(6, &["3.sst", "4.sst"]);
    hand.secured(6);
    hand.uploaded(4, done("3.sst"));
    hand.uploaded(5, done("4.sst"));
    let actions = hand.uploaded(6, done(PACK));
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Send(Message::Acknowledge(acknowledge))
            if acknowledge.files == full(&[(4, "3.sst"), (5, "4.sst"), (6, PACK)])
    )));
}

#[test]
fn the_floor_is_the_lowest_number_that_no_answered_acknowledgement_has_named() {
    let mut hand = Hand::new(Limits::default());
    assert_eq!(hand.view().floor, 1);
    hand.snapshot(5, None, &["1.sst"]);
    let acknowledge = hand.whole_snapshot(6, None, &[]);
    // 1 and 2 are still being uploaded.
    assert_eq!(acknowledge.floor, 1);
    hand.answer(6);
    assert_eq!(hand.view().floor, 1);
    hand.uploaded(1, done("1.sst"));
    hand.uploaded(2, done(PACK));
    // Sent, but the leader may not have it.
    assert_eq!(hand.view().floor, 1);
    hand.answer(5);
    assert_eq!(hand.view().floor, 4);
}

#[test]
fn a_name_that_is_given_up_does_not_hold_the_floor_down() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, Answer::Refused);
    assert_eq!(hand.view().floor, 2);
    hand.abort(5);
    assert_eq!(hand.view().floor, 3);
}
