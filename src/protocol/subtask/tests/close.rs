//! The end of an attempt.

use super::*;
use crate::protocol::subtask::Notice;

#[test]
fn an_attempt_at_rest_closes_at_once() {
    let mut hand = Hand::new(Limits::default());
    assert_eq!(hand.give(Event::Close), [Action::Tell(Notice::Closed)]);
    assert_eq!(hand.ignored(Event::Close), Ignored::Finished);
    let message = hand.trigger_message(5, None, 0);
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::Finished);
}

#[test]
fn an_attempt_that_closes_leaves_nothing_of_its_own() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.snapshot(6, None, &["1.sst", "2.sst", "3.sst"]);
    hand.uploaded(3, done("2.sst"));
    hand.trigger(7, None);
    let actions = hand.give(Event::Close);
    assert_eq!(
        actions,
        [
            cancel(5),
            release_snapshot(7),
            cancel(4),
            // Stored, live, and named by no acknowledgement.
            delete(3),
        ]
    );
    assert_eq!(hand.ignored(Event::Close), Ignored::AlreadySo);
    let message = hand.trigger_message(8, None, 0);
    assert_eq!(hand.ignored(Event::Received(message)), Ignored::Finished);
    assert_eq!(
        hand.uploaded(4, done("3.sst")),
        [release(6, "3.sst"), delete(4)]
    );
    assert_eq!(
        hand.uploaded(5, failed(FailureKind::Cancelled)),
        [release_snapshot(6)]
    );
    hand.deleted(3, Answer::Done(Payload::Nothing));
    assert_eq!(hand.deleted(4, failed(FailureKind::Unavailable)), []);
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for 1 deletes, shared/7/4 for one"
    );
    assert_eq!(hand.wait().1, [delete(4)]);
    assert_eq!(
        hand.deleted(4, Answer::Done(Payload::Nothing)),
        [Action::Tell(Notice::Closed)]
    );
    assert!(hand.view().closed);
}

#[test]
fn a_delete_that_is_denied_does_not_hold_the_end_back() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, done("1.sst"));
    hand.uploaded(2, failed(FailureKind::Unavailable));
    assert_eq!(hand.give(Event::Close), [release_snapshot(5), delete(1)]);
    assert_eq!(
        hand.deleted(1, failed(FailureKind::Denied)),
        [Action::Tell(Notice::Closed)]
    );
}

/// What a closing attempt can't delete is the sweep's: it is un-named next.
#[test]
fn a_delete_that_is_refused_twice_does_not_hold_the_end_back() {
    for answer in [Answer::Refused, failed(FailureKind::Unavailable)] {
        let mut hand = Hand::new(Limits::default());
        hand.snapshot(5, None, &["1.sst"]);
        hand.uploaded(1, done("1.sst"));
        hand.uploaded(2, failed(FailureKind::Unavailable));
        assert_eq!(hand.give(Event::Close), [release_snapshot(5), delete(1)]);
        assert_eq!(hand.deleted(1, answer.clone()), []);
        assert_eq!(hand.wait().1, [delete(1)]);
        assert_eq!(hand.deleted(1, answer), [Action::Tell(Notice::Closed)]);
    }
}

/// Each call of a silent store takes a whole deadline: one of them is waited for and no second.
#[test]
fn a_store_that_never_answers_is_asked_for_nothing_more() {
    let limits = Limits {
        deletes_in_flight_max: 2,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.snapshot(5, None, &["1.sst", "2.sst", "3.sst"]);
    for number in [1, 2, 3] {
        hand.uploaded(number, done(&format!("{number}.sst")));
    }
    hand.uploaded(4, failed(FailureKind::Unavailable));
    assert_eq!(
        hand.give(Event::Close),
        [release_snapshot(5), delete(1), delete(2)]
    );
    let busy = failed(FailureKind::Unavailable);
    // It rests, and the third one takes its place.
    assert_eq!(hand.deleted(1, busy.clone()), [delete(3)]);
    assert_eq!(hand.deleted(2, unknown()), []);
    assert_eq!(hand.subtask.poll_timeout(), None, "nothing is tried again");
    assert_eq!(hand.deleted(3, busy), [Action::Tell(Notice::Closed)]);
}

#[test]
fn files_that_are_being_secured_are_waited_for() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    hand.taken(5, &["1.sst"]);
    assert_eq!(hand.give(Event::Close), []);
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for the files of checkpoint 5 to be kept"
    );
    assert_eq!(
        hand.secured(5),
        [release_snapshot(5), Action::Tell(Notice::Closed)]
    );
}
