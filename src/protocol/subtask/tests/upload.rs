//! Names, answers and sharing of uploads.

use super::*;

#[test]
fn only_so_many_uploads_are_under_way_the_oldest_snapshot_first() {
    let limits = Limits {
        uploads_in_flight_max: 2,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    assert_eq!(
        hand.snapshot(5, None, &["3.sst", "4.sst"]),
        [upload(1, 5, "3.sst"), upload(2, 5, "4.sst")]
    );
    assert_eq!(hand.snapshot(6, None, &["1.sst", "3.sst", "4.sst"]), []);
    assert_eq!(
        hand.uploaded(1, done("3.sst")),
        [release(5, "3.sst"), upload(3, 5, PACK)]
    );
    assert_eq!(
        hand.uploaded(2, done("4.sst")),
        [release(5, "4.sst"), upload(4, 6, "1.sst")]
    );
}

#[test]
fn an_upload_that_rests_keeps_its_place() {
    let limits = Limits {
        uploads_in_flight_max: 1,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.snapshot(5, None, &["1.sst"]);
    assert_eq!(hand.uploaded(1, failed(FailureKind::Unavailable)), []);
    let (_, actions) = hand.wait();
    assert_eq!(actions, [upload(1, 5, "1.sst")]);
}

#[test]
fn overlapping_snapshots_share_an_upload() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.trigger(6, None);
    // Only what is not under way is secured again.
    let secure = Action::Secure {
        checkpoint: id(6),
        files: vec![local("2.sst")],
    };
    assert_eq!(hand.taken(6, &["1.sst", "2.sst"]), [secure]);
    assert_eq!(hand.secured(6), [upload(3, 6, "2.sst"), upload(4, 6, PACK)]);
    hand.uploaded(3, done("2.sst"));
    hand.uploaded(4, done(PACK));
    assert_eq!(
        hand.waits_for(),
        "attempt 7 waits for 2 files of checkpoint 5, 1.sst for one, under way to shared/7/1"
    );
    // The shared file completes the newer snapshot; the older one waits for its pack.
    let actions = hand.uploaded(1, done("1.sst"));
    assert_eq!(actions[0], release(5, "1.sst"));
    assert!(matches!(
        &actions[1],
        Action::Send(Message::Acknowledge(acknowledge))
            if acknowledge.files == full(&[(1, "1.sst"), (3, "2.sst"), (4, PACK)])
    ));
    assert_eq!(actions[2..], [release_snapshot(6)]);
}

#[test]
fn a_file_that_two_snapshots_secured_is_uploaded_once_and_released_by_both() {
    let mut hand = Hand::new(Limits::default());
    hand.trigger(5, None);
    hand.taken(5, &["1.sst"]);
    hand.trigger(6, None);
    let secure = Action::Secure {
        checkpoint: id(6),
        files: vec![local("1.sst")],
    };
    assert_eq!(hand.taken(6, &["1.sst"]), [secure]);
    // The newer one's copy is there first.
    assert_eq!(hand.secured(6), [upload(1, 6, "1.sst"), upload(2, 6, PACK)]);
    assert_eq!(hand.secured(5), [release(5, "1.sst"), upload(3, 5, PACK)]);
    assert_eq!(hand.uploaded(1, done("1.sst")), [release(6, "1.sst")]);
}

/// A checkpoint that was aborted after most of its upload: the next one uploads what is missing.
#[test]
fn an_aborted_snapshot_does_not_waste_its_uploads() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst", "2.sst"]);
    hand.uploaded(1, done("1.sst"));
    let actions = hand.abort(5);
    // Its pack is of no use to anybody else; the upload of the live file goes on.
    assert_eq!(
        actions,
        [
            cancel(3),
            Action::Tell(crate::protocol::subtask::Notice::Aborted(id(5))),
        ]
    );
    hand.uploaded(3, failed(FailureKind::Cancelled));
    hand.trigger(6, None);
    let secure = Action::Secure {
        checkpoint: id(6),
        files: Vec::new(),
    };
    assert_eq!(hand.taken(6, &["1.sst", "2.sst"]), [secure]);
    assert_eq!(hand.secured(6), [upload(4, 6, PACK)]);
    assert_eq!(hand.uploaded(4, done(PACK)), [release(6, PACK)]);
    let actions = hand.uploaded(2, done("2.sst"));
    // The copy that the aborted snapshot secured is let go with the last upload of it.
    assert_eq!(actions[0], release_snapshot(5));
    assert!(matches!(
        &actions[1],
        Action::Send(Message::Acknowledge(acknowledge))
            if acknowledge.files == full(&[(1, "1.sst"), (2, "2.sst"), (4, PACK)])
    ));
}

#[test]
fn an_upload_that_has_not_begun_ends_with_its_snapshot() {
    let limits = Limits {
        uploads_in_flight_max: 1,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    assert_eq!(
        hand.snapshot(5, None, &["1.sst", "2.sst"]),
        [upload(1, 5, "1.sst")]
    );
    let actions = hand.abort(5);
    assert_eq!(actions[..2], [release(5, "2.sst"), release(5, PACK)]);
    assert_eq!(hand.uploaded(1, done("1.sst")), [release_snapshot(5)]);
    // Live and not stored: the next snapshot secures it.
    hand.trigger(6, None);
    let secure = Action::Secure {
        checkpoint: id(6),
        files: vec![local("2.sst")],
    };
    assert_eq!(hand.taken(6, &["1.sst", "2.sst"]), [secure]);
}

/// B20: what a snapshot that is given up has begun to upload is deleted once its file has left,
/// whenever the put ends.
#[test]
fn an_upload_nobody_wants_is_cancelled_and_what_it_left_is_deleted() {
    for (answer, left) in [
        (done("1.sst"), true),
        (unknown(), true),
        (Answer::Refused, true),
        (failed(FailureKind::Cancelled), false),
    ] {
        let mut hand = Hand::new(Limits::default());
        hand.snapshot(5, None, &["1.sst"]);
        hand.abort(5);
        hand.uploaded(2, failed(FailureKind::Cancelled));
        hand.trigger(6, None);
        let secure = Action::Secure {
            checkpoint: id(6),
            files: Vec::new(),
        };
        assert_eq!(hand.taken(6, &[]), [cancel(1), secure]);
        let mut expected = vec![release_snapshot(5)];
        if left {
            expected.push(delete(1));
        }
        assert_eq!(hand.uploaded(1, answer), expected);
    }
}

#[test]
fn a_file_goes_on_while_an_older_snapshot_in_flight_needs_it() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    // A compaction replaced it, but checkpoint 5 is still wanted.
    hand.snapshot(6, None, &["2.sst"]);
    assert!(hand.view().uploads.iter().all(|upload| upload.wanted));
    hand.uploaded(2, done(PACK));
    let actions = hand.uploaded(1, done("1.sst"));
    assert!(matches!(
        &actions[1],
        Action::Send(Message::Acknowledge(acknowledge))
            if acknowledge.files == full(&[(1, "1.sst"), (2, PACK)])
    ));
}

#[test]
fn a_put_in_doubt_is_repeated_under_its_name_then_renamed() {
    let limits = Limits {
        upload_tries_max: 3,
        ..Limits::default()
    };
    let mut hand = Hand::new(limits);
    hand.snapshot(5, None, &["1.sst"]);
    let mut waits = Vec::new();
    for _ in 0..2 {
        assert_eq!(hand.uploaded(1, unknown()), []);
        let (waited, actions) = hand.wait();
        waits.push(waited.as_millis());
        assert_eq!(actions, [upload(1, 5, "1.sst")]);
    }
    assert_eq!(waits, [100, 200]);
    // The old name may hang for ever; what it holds or will hold is the attempt's to delete.
    assert_eq!(hand.uploaded(1, unknown()), [delete(1)]);
    let (waited, actions) = hand.wait();
    assert_eq!(waited.as_millis(), 400);
    assert_eq!(actions, [upload(3, 5, "1.sst")]);
    let late = Event::IoCompleted {
        token: OpToken::Upload(own(1)),
        answer: done("1.sst"),
    };
    assert_eq!(hand.ignored(late), Ignored::UnknownToken);
    hand.uploaded(3, done("1.sst"));
    assert_eq!(hand.view().live[0].remote, stored(3, "1.sst"));
}

fn stored(number: u64, name: &str) -> crate::protocol::subtask::RemoteView {
    crate::protocol::subtask::RemoteView::Stored(own(number), digest_of(name))
}

#[test]
fn a_put_in_doubt_that_is_found_done_is_done() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, unknown());
    hand.wait();
    assert_eq!(hand.uploaded(1, done("1.sst")), [release(5, "1.sst")]);
    assert_eq!(hand.view().deletes, []);
}

#[test]
fn a_name_that_holds_something_else_is_left_for_a_fresh_one() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    assert_eq!(hand.uploaded(1, Answer::Refused), [delete(1)]);
    let (_, actions) = hand.wait();
    assert_eq!(actions, [upload(3, 5, "1.sst")]);
    // A store that refuses everything is not asked without rest.
    assert_eq!(hand.uploaded(3, Answer::Refused), [delete(3)]);
    let (waited, actions) = hand.wait();
    assert_eq!(waited.as_millis(), 200);
    assert_eq!(actions, [upload(4, 5, "1.sst")]);
}

#[test]
fn a_failure_that_may_pass_is_waited_out() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert_eq!(hand.uploaded(1, failed(FailureKind::NoSpace)), []);
        let (waited, actions) = hand.wait();
        waits.push(waited.as_millis());
        assert_eq!(actions, [upload(1, 5, "1.sst")]);
    }
    assert_eq!(
        waits,
        [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    );
    // Past the longest wait the state does not change any more.
    let before = hand.subtask.clone();
    hand.uploaded(1, failed(FailureKind::NoSpace));
    hand.wait();
    let (mut before, mut after) = (before, hand.subtask.clone());
    before.rebase_time(hand.now);
    after.rebase_time(hand.now);
    assert_eq!(before, after);
}

#[test]
fn a_failure_that_stays_declines_all_who_need_the_file() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.snapshot(6, None, &["1.sst", "2.sst"]);
    let actions = hand.uploaded(1, failed(FailureKind::Denied));
    let declines = declined(&actions);
    assert_eq!(
        declines
            .iter()
            .map(|said| said.checkpoint)
            .collect::<Vec<_>>(),
        [id(5), id(6)]
    );
    assert!(
        declines
            .iter()
            .all(|said| said.failure == failure(FailureKind::Denied))
    );
    // Nothing is under the name; both packs are cancelled, the live file's upload goes on.
    assert_eq!(hand.view().deletes, []);
    assert!(actions.contains(&cancel(2)) && actions.contains(&cancel(4)));
    assert!(!actions.contains(&cancel(3)));
    // The mapping is gone: the next snapshot starts that file anew.
    hand.uploaded(3, done("2.sst"));
    assert_eq!(
        hand.snapshot(7, None, &["1.sst", "2.sst"]),
        [upload(5, 7, "1.sst"), upload(6, 7, PACK)]
    );
}

#[test]
fn a_failure_after_doubt_leaves_something_to_delete() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, unknown());
    hand.wait();
    let actions = hand.uploaded(1, failed(FailureKind::Denied));
    assert!(actions.contains(&delete(1)));
}

#[test]
fn an_upload_in_doubt_that_nobody_wants_is_deleted_at_once() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    hand.uploaded(1, unknown());
    hand.abort(5);
    hand.uploaded(2, failed(FailureKind::Cancelled));
    hand.trigger(6, None);
    let secure = Action::Secure {
        checkpoint: id(6),
        files: Vec::new(),
    };
    assert_eq!(hand.taken(6, &[]), [release_snapshot(5), secure, delete(1)]);
    assert_eq!(hand.subtask.poll_timeout(), None);
}

#[test]
fn a_file_that_changed_its_length_is_refused() {
    let mut hand = Hand::new(Limits::default());
    hand.snapshot(5, None, &["1.sst"]);
    let mut digest = digest_of("1.sst");
    digest.size_bytes += 1;
    let actions = hand.uploaded(1, Answer::Done(Payload::Stored(digest)));
    let declines = declined(&actions);
    assert_eq!(declines[0].failure.kind, FailureKind::Corrupt);
    let said = &declines[0].failure.cause;
    assert!(
        said.contains("1.sst") && said.contains("checkpoint 5"),
        "{said}"
    );
    assert!(actions.contains(&delete(1)));
}

/// B50: the length says which file it is, where a name does not.
#[test]
fn a_known_name_of_another_length_is_another_file() {
    let mut file = description(
        FileName {
            attempt: AttemptId(3),
            number: 1,
        },
        "1.sst",
    );
    file.digest.size_bytes += 1;
    let mut hand = Hand::restored(Limits::default(), Some((id(4), vec![file])));
    assert_eq!(
        hand.snapshot(5, None, &["1.sst"]),
        [upload(1, 5, "1.sst"), upload(2, 5, PACK)]
    );
}

/// B49: a file that left and comes back is another file, whatever its name and length.
#[test]
fn no_name_returns() {
    let mut hand = Hand::new(Limits::default());
    hand.whole_snapshot(5, None, &["1.sst"]);
    hand.whole_snapshot(6, None, &[]);
    let acknowledge = hand.whole_snapshot(7, None, &["1.sst"]);
    assert_eq!(acknowledge.files, full(&[(4, "1.sst"), (5, PACK)]));
}

#[test]
fn restored_files_keep_their_names() {
    let inherited = FileName {
        attempt: AttemptId(3),
        number: 9,
    };
    let restored = vec![description(inherited, "1.sst")];
    let mut hand = Hand::restored(Limits::default(), Some((id(4), restored)));
    assert_eq!(
        hand.snapshot(5, Some(4), &["1.sst", "2.sst"]),
        [upload(1, 5, "2.sst"), upload(2, 5, PACK)]
    );
}
