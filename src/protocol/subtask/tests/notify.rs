//! News of checkpoints: lost, late, doubled, out of order.

use super::*;
use crate::protocol::subtask::Notice;

fn tell(notice: Notice) -> Vec<Action> {
    vec![Action::Tell(notice)]
}

#[test]
fn completions_only_rise() {
    let mut hand = Hand::new(Limits::default());
    for checkpoint in [5, 6] {
        hand.whole_snapshot(checkpoint, None, &["1.sst"]);
        hand.answer(checkpoint);
    }
    assert_eq!(hand.complete(6), tell(Notice::Completed(id(6))));
    for checkpoint in [5, 6] {
        let message = hand.notify_message(checkpoint, Fate::Completed, Some(checkpoint));
        assert_eq!(hand.ignored(Event::Received(message)), Ignored::AlreadySo);
    }
    assert_eq!(hand.view().newest_completed, Some(id(6)));
}

/// F11: news of an id that has no snapshot here changes nothing.
#[test]
fn a_completion_that_nothing_here_was_part_of_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    let message = hand.notify_message(9, Fate::Completed, Some(9));
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::AlreadySo);
}

/// F46: an abort that overtakes a completion still tells of it, and first.
#[test]
fn the_completion_is_told_before_the_abort() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    hand.trigger(6, None);
    let message = hand.notify_message(6, Fate::Aborted, Some(5));
    assert_eq!(
        hand.receive(message),
        [
            Action::Tell(Notice::Completed(id(5))),
            release_snapshot(6),
            Action::Tell(Notice::Aborted(id(6))),
        ]
    );
}

/// F01, F04: a late completion finds the base that it belongs to, whatever completed meanwhile.
#[test]
fn a_late_completion_of_an_older_checkpoint_moves_no_base() {
    let mut hand = Hand::new(Limits::default());
    for checkpoint in [5, 6] {
        hand.whole_snapshot(checkpoint, None, &["1.sst"]);
        hand.answer(checkpoint);
    }
    hand.complete(6);
    let message = hand.notify_message(5, Fate::Completed, Some(6));
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::AlreadySo);
    assert_eq!(hand.view().bases, [id(6)].into());
}

#[test]
fn the_base_of_a_trigger_is_a_completion_notice() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    let asked = Action::Snapshot { checkpoint: id(6) };
    assert_eq!(
        hand.trigger(6, Some(5)),
        [Action::Tell(Notice::Completed(id(5))), asked]
    );
}

#[test]
fn an_abort_is_told_once() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    assert_eq!(hand.abort(5), tell(Notice::Aborted(id(5))));
    for (checkpoint, reason) in [
        (5, Ignored::UnknownCheckpoint),
        (4, Ignored::UnknownCheckpoint),
    ] {
        let message = hand.notify_message(checkpoint, Fate::Aborted, None);
        assert_eq!(hand.ignored(Event::Received(message)), reason);
    }
    hand.abort(9);
    let message = hand.notify_message(9, Fate::Aborted, None);
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::Duplicate);
}

#[test]
fn an_abort_of_what_is_complete_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    hand.complete(5);
    let message = hand.notify_message(5, Fate::Aborted, None);
    assert_eq!(
        hand.ignored(Event::Received(message)),
        Ignored::Contradictory
    );
    let message = hand.notify_message(5, Fate::Subsumed, None);
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::AlreadySo);
}

#[test]
fn a_subsumption_is_told() {
    let mut hand = Hand::new(Limits::default());
    for checkpoint in [5, 6] {
        hand.whole_snapshot(checkpoint, None, &["1.sst"]);
        hand.answer(checkpoint);
        hand.complete(checkpoint);
    }
    let message = hand.notify_message(5, Fate::Subsumed, Some(6));
    assert_eq!(hand.receive(message), tell(Notice::Subsumed(id(5))));
}

/// Whatever order they come in: what was forgotten for room may be aborted, so it is not begun.
#[test]
fn an_early_abort_that_is_forgotten_begins_nothing() {
    for aborts in [[7, 8, 9], [9, 8, 7], [8, 9, 7]] {
        let limits = Limits {
            pending_checkpoints_max: 2,
            ..Limits::default()
        };
        let mut hand = Hand::new(limits);
        for checkpoint in aborts {
            hand.abort(checkpoint);
        }
        let message = hand.trigger_message(7, None, 0);
        let actions = hand.receive(message);
        let declines = declined(&actions);
        assert_eq!((actions.len(), declines.len()), (1, 1), "{aborts:?}");
        assert_eq!(declines[0].checkpoint, id(7));
        assert_eq!(declines[0].failure.kind, FailureKind::Exhausted);
        let message = hand.trigger_message(8, None, 0);
        assert_eq!(
            hand.ignored(Event::Received(message)),
            Ignored::UnknownCheckpoint
        );
        assert_eq!(hand.view().snapshots.len(), 0);
        assert_eq!(hand.trigger(10, None).len(), 1);
    }
}

/// B02: a file that a younger snapshot refers to outlives the abort of the older one.
#[test]
fn an_abort_deletes_nothing_that_another_snapshot_refers_to() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, done("1.sst"));
    hand.snapshot(6, None, &["1.sst"]);
    hand.snapshot(7, None, &[]);
    // 1.sst has left, but checkpoint 6 holds it.
    let actions = hand.abort(5);
    assert!(!actions.contains(&delete(1)), "{actions:?}");
    let actions = hand.abort(6);
    assert!(actions.contains(&delete(1)), "{actions:?}");
}
