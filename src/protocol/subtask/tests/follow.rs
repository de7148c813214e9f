//! New leaders, attachments, stale epochs.

use super::*;
use crate::protocol::message::{Attach, NotNamed};
use crate::protocol::subtask::Notice;

fn attach(epoch: u64, declared: &[(u64, &[u64])], floor: u64) -> Action {
    let declared = declared.iter().map(|&(checkpoint, numbers)| {
        let names = numbers.iter().copied().map(own).collect();
        (id(checkpoint), names)
    });
    Action::Send(Message::Attach(Attach {
        epoch: Epoch(epoch),
        subtask: SubtaskId::default(),
        attempt: ATTEMPT,
        declared: declared.collect(),
        floor,
    }))
}

fn not_named(epoch: u64) -> Message {
    Message::NotNamed(NotNamed {
        epoch: Epoch(epoch),
        attempt: ATTEMPT,
    })
}

#[test]
fn an_attachment_is_repeated_until_it_is_answered() {
    let mut hand = Hand::new(Limits::default());
    let said = attach(2, &[], 1);
    assert_eq!(hand.lead(2), core::slice::from_ref(&said));
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for the leader of epoch 2 to take it in"
    );
    let mut waits = Vec::new();
    for _ in 0..3 {
        let (waited, actions) = hand.wait();
        waits.push(waited.as_millis());
        assert_eq!(actions, core::slice::from_ref(&said));
    }
    assert_eq!(waits, [100, 200, 400]);
    assert_eq!(hand.attached(None), []);
    assert_eq!(hand.subtask.poll_timeout(), None);
    assert_eq!(
        hand.ignored(Event::Received(Hand::lead_message(2))),
        Ignored::AlreadySo
    );
}

#[test]
fn a_new_leader_ends_snapshots_and_acknowledgements_of_the_old() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.snapshot(6, None, &["1.sst", "2.sst"]);
    hand.trigger(7, None);
    let actions = hand.lead(2);
    assert_eq!(
        actions,
        [
            // The pack of checkpoint 6; the upload of 2.sst goes on.
            cancel(4),
            release_snapshot(7),
            Action::Tell(Notice::Aborted(id(6))),
            Action::Tell(Notice::Aborted(id(7))),
            attach(2, &[(5, &[1, 2])], 1),
        ]
    );
    hand.attached(None);
    hand.uploaded(4, failed(FailureKind::Cancelled));
    // Nothing of the old epoch is said again.
    assert_eq!(hand.subtask.poll_timeout(), None);
    hand.uploaded(3, done("2.sst"));
    // The new leader's checkpoint takes over what was stored.
    let uploads = hand.snapshot(8, None, &["1.sst", "2.sst"]);
    assert_eq!(uploads, [upload(5, 8, PACK)]);
}

/// B85: a superseded leader changes nothing.
#[test]
fn messages_of_an_older_epoch_are_ignored() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    let stale = [
        Hand::lead_message(1),
        hand.trigger_message(6, None, 0),
        hand.answered_message(5, Verdict::Accepted),
        hand.notify_message(5, Fate::Completed, Some(5)),
        Message::Attached(Attached {
            epoch: Epoch(1),
            attempt: ATTEMPT,
            newest_completed: Some(id(5)),
        }),
    ];
    hand.lead(2);
    for message in stale {
        assert_eq!(hand.ignored(Event::Received(message)), Ignored::StaleEpoch);
    }
}

#[test]
fn a_leader_of_another_root_is_ignored() {
    let mut hand = Hand::new(Limits::default());
    let lead = Message::Lead(Lead {
        epoch: Epoch(9),
        attempt: ATTEMPT,
        root: RootId(2),
    });
    assert_eq!(hand.ignored(Event::Received(lead)), Ignored::NotAddressed);
}

#[test]
fn names_are_declared_until_they_are_settled() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.answer(5);
    hand.whole_snapshot(6, None, &["1.sst", "2.sst"]);
    hand.answer(6);
    // Each name once, under the last acknowledgement that bore it.
    let expected = vec![(id(5), vec![own(2)]), (id(6), vec![own(1), own(3), own(4)])];
    assert_eq!(hand.view().unsettled, expected);
    let message = hand.trigger_message(7, None, 5);
    hand.receive(message);
    assert_eq!(hand.view().unsettled, expected[1..]);
}

/// What the leader says is settled was said before an older acknowledgement reached it. The name
/// of a live file is declared all the same.
#[test]
fn a_live_name_stays_declared_whatever_overtakes_its_first_acknowledgement() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(7, None, &["1.sst"]);
    hand.whole_snapshot(8, None, &["1.sst"]);
    // The leader has checkpoint 8 only: "everything up to 7 is settled".
    let stale = hand.trigger_message(9, None, 7);
    hand.answer(8);
    hand.answer(7);
    hand.receive(stale);
    assert_eq!(hand.view().unsettled, [(id(8), vec![own(1), own(3)])]);
}

/// The leader counts an acknowledgement as settled although an older one never reached it.
#[test]
fn an_unanswered_acknowledgement_stays_declared() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.whole_snapshot(6, None, &["1.sst"]);
    hand.answer(6);
    let message = hand.trigger_message(7, None, 6);
    hand.receive(message);
    assert_eq!(hand.view().unsettled, [(id(5), vec![own(2)])]);
    hand.answer(5);
    let message = hand.trigger_message(8, None, 6);
    hand.receive(message);
    assert_eq!(hand.view().unsettled, []);
}

#[test]
fn the_floor_rises_when_the_leader_knows_the_declared_names() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.lead(2);
    assert_eq!(hand.view().floor, 1);
    hand.attached(None);
    assert_eq!(hand.view().floor, 3);
}

/// Only attempts that were taken in are triggered: the answer to the attachment was lost.
#[test]
fn a_trigger_counts_as_the_answer_to_the_attachment() {
    let mut hand = Hand::new(Limits::default());
    hand.lead(2);
    let asked = Action::Snapshot { checkpoint: id(5) };
    assert_eq!(hand.trigger(5, None), [asked]);
    assert!(hand.view().attached);
    assert_eq!(hand.subtask.poll_timeout(), None);
}

/// The leader's first message was lost. It can't have taken in whom it never heard of.
#[test]
fn an_epoch_first_seen_in_another_message_is_followed() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.epoch = Epoch(3);
    let message = hand.trigger_message(6, None, 0);
    let actions = hand.receive(message);
    assert_eq!(
        actions[1..],
        [Action::Tell(Notice::Aborted(id(5))), attach(3, &[], 1),]
    );
    assert_eq!(hand.view().snapshots, []);
    assert!(!hand.view().attached);
}

#[test]
fn the_answer_to_an_attachment_is_a_completion_notice() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.lead(2);
    assert_eq!(
        hand.attached(Some(5)),
        [Action::Tell(Notice::Completed(id(5)))]
    );
    let acknowledge = hand.whole_snapshot(6, Some(5), &["1.sst"]);
    assert_eq!(acknowledge.files, delta(5, &[(3, PACK)], &[2]));
    assert_eq!(acknowledge.epoch, Epoch(2));
}

#[test]
fn an_attempt_that_is_not_named_any_more_closes() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    assert_eq!(
        hand.receive(not_named(1)),
        [Action::Tell(Notice::Replaced), Action::Tell(Notice::Closed)]
    );
    assert!(hand.view().closed);
}

/// It was replaced before it heard of the leader that replaced it, and repeats its attachment to
/// the one before.
#[test]
fn an_attempt_that_attaches_and_is_not_named_closes() {
    for epoch in [2, 3] {
        let mut hand = Hand::new(Limits::default());
        hand.snapshot(5, None, &["1.sst"]);
        hand.lead(2);
        let actions = hand.receive(not_named(epoch));
        assert_eq!(actions.first(), Some(&Action::Tell(Notice::Replaced)));
        // The uploads are awaited; the attachment is not said again.
        assert_eq!(hand.subtask.poll_timeout(), None);
        hand.uploaded(1, failed(FailureKind::Cancelled));
        let last = hand.uploaded(2, failed(FailureKind::Cancelled));
        assert_eq!(last.last(), Some(&Action::Tell(Notice::Closed)));
    }
}

#[test]
fn a_stale_leader_ends_no_attempt() {
    let mut hand = Hand::new(Limits::default());
    hand.lead(3);
    let stale = Event::Received(not_named(2));
    assert_eq!(hand.ignored(stale), Ignored::StaleEpoch);
}
