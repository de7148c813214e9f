//! Deletes of what is the attempt's own.

use super::*;

/// An attempt with own garbage: `1.sst` was stored for an aborted snapshot and has left.
fn with_garbage(limits: Limits) -> (Hand, Vec<Action>) {
    let mut hand = Hand::new(limits);
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, done("1.sst"));
    hand.uploaded(2, failed(FailureKind::Unavailable));
    hand.abort(5);
    hand.trigger(6, None);
    let actions = hand.taken(6, &[]);
    (hand, actions)
}

#[test]
fn what_no_acknowledgement_named_is_deleted_once_it_has_left() {
    let (mut hand, actions) = with_garbage(Limits::default());
    assert!(actions.contains(&delete(1)));
    assert_eq!(hand.view().owned, [own(1)].into());
    assert_eq!(hand.deleted(1, Answer::Done(Payload::Nothing)), []);
    assert_eq!(hand.view().owned, [].into());
    let again = Event::IoCompleted {
        token: OpToken::Delete(own(1)),
        answer: Answer::Done(Payload::Nothing),
    };
    assert_eq!(hand.ignored(again), Ignored::UnknownToken);
}

#[test]
fn a_live_file_is_not_deleted() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, done("1.sst"));
    let actions = hand.abort(5);
    assert!(!actions.contains(&delete(1)));
    assert_eq!(hand.view().owned, [own(1), own(2)].into());
}

#[test]
fn a_delete_is_repeated_until_it_is_done() {
    let (mut hand, _) = with_garbage(Limits::default());
    let mut waits = Vec::new();
    for answer in [
        unknown(),
        failed(FailureKind::Unavailable),
        failed(FailureKind::Denied),
        Answer::Refused,
    ] {
        assert_eq!(hand.deleted(1, answer), []);
        let (waited, actions) = hand.wait();
        waits.push(waited.as_millis());
        assert_eq!(actions, [delete(1)]);
    }
    assert_eq!(waits, [100, 200, 400, 800]);
    hand.deleted(1, Answer::Done(Payload::Nothing));
    assert_eq!(hand.subtask.poll_timeout(), None);
}

#[test]
fn only_so_many_deletes_are_in_flight_and_the_rest_is_bounded() {
    let limits = Limits {
        deletes_in_flight_max: 1,
        own_deletes_max: 2,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    let files = ["1.sst", "2.sst", "3.sst"];
    hand.snapshot(5, None, &files);
    for (number, name) in (1..).zip(files) {
        hand.uploaded(number, done(name));
    }
    hand.uploaded(4, failed(FailureKind::Unavailable));
    hand.abort(5);
    hand.trigger(6, None);
    let actions = hand.taken(6, &[]);
    assert!(actions.contains(&delete(1)) && !actions.contains(&delete(2)));
    // The third is below the floor, where the leader's sweep finds it.
    assert_eq!(hand.view().owned, [own(1), own(2)].into());
    assert_eq!(hand.view().floor, 5);
    // One that has trouble lets the next go first.
    assert_eq!(hand.deleted(1, unknown()), [delete(2)]);
    assert_eq!(hand.deleted(2, Answer::Done(Payload::Nothing)), []);
    let (_, actions) = hand.wait();
    assert_eq!(actions, [delete(1)]);
}
