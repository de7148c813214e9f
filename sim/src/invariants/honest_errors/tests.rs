//! Histories with errors that are so, and others that are not.

use stillpoint::protocol::answer::Failure;
use stillpoint::protocol::coordinator::AbortReason;
use stillpoint::protocol::guest::PinWish;
use stillpoint::protocol::id::{Epoch, ManifestName, Nonce, Version};
use stillpoint::protocol::manifest::DecodeError;
use stillpoint::protocol::manifest::PinOwner;

use super::super::testing::*;

use super::*;

#[test]
fn an_empty_start_breaks_it() {
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    let notice = Notice::Deployed {
        request: RequestId(1),
        attempts: vec![(SubtaskId::default(), AttemptId(1))],
        restore: None,
    };
    assert!(show(&mut invariant, &mut facts, Fact::Told(ProcessId(0), notice)).is_err());
}

const PROCESS: ProcessId = ProcessId(0);

fn failed(error: CoordinatorError) -> Fact {
    Fact::Told(PROCESS, Notice::Failed { error })
}

#[test]
fn damage_that_nothing_did_breaks_it() {
    let told = |kind| {
        failed(CoordinatorError::Broken(Broken {
            name: ObjectName::Current,
            failure: Failure::new(kind, "it is odd"),
        }))
    };
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    facts.has_current = true;
    let other = ObjectName::Manifest(record_name(1));
    for _ in 0..DAMAGED_READS_MAX {
        let damaged = Fact::ReadDamaged(Caller::Coordinator(PROCESS), other);
        show(&mut invariant, &mut facts, damaged).expect("another object");
    }
    for kind in [
        FailureKind::Corrupt,
        FailureKind::NotFound,
        FailureKind::Denied,
    ] {
        let verdict = show(&mut invariant, &mut facts, told(kind));
        assert!(verdict.is_err(), "{kind}");
    }
    let current = Some(ObjectName::Current);
    let denied = Fact::ReadFailed(Caller::Coordinator(PROCESS), current, FailureKind::Denied);
    show(&mut invariant, &mut facts, denied).expect("a fault");
    show(&mut invariant, &mut facts, told(FailureKind::Denied)).expect("is so");
    show(&mut invariant, &mut facts, Fact::CurrentRemoved).expect("a fault");
    show(&mut invariant, &mut facts, told(FailureKind::NotFound)).expect("is so");
}

fn record_name(version: u64) -> ManifestName {
    ManifestName {
        version: Version(version),
        epoch: Epoch(1),
        nonce: Nonce(version),
    }
}

#[test]
fn trouble_that_was_not_had_breaks_it() {
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    facts.config.read_tries_max = 2;
    let error = LoadError::Unreadable {
        name: None,
        failure: Failure::new(FailureKind::Unavailable, "not now"),
    };
    let told = Fact::Told(PROCESS, Notice::StoreTrouble { error });
    let fails =
        |of: ProcessId| Fact::ReadFailed(Caller::Coordinator(of), None, FailureKind::Unavailable);
    let other = ProcessId(1);
    for (of, is_so) in [
        (other, false),
        (other, false),
        (PROCESS, false),
        (PROCESS, true),
    ] {
        show(&mut invariant, &mut facts, fails(of)).expect("a fault");
        let (mut invariant, mut facts) = (invariant.clone(), facts.clone());
        let verdict = show(&mut invariant, &mut facts, told.clone());
        assert_eq!(verdict.is_ok(), is_so);
    }
    show(&mut invariant, &mut facts, told.clone()).expect("is so");
    show(&mut invariant, &mut facts, fails(PROCESS)).expect("a fault");
    let verdict = show(&mut invariant, &mut facts, told);
    assert!(verdict.is_err(), "a new load tries as often");
    let overtaken = |times| failed(CoordinatorError::Load(LoadError::Overtaken(times)));
    for (times, is_so) in [(2, false), (3, true), (4, false)] {
        let verdict = show(&mut invariant, &mut facts, overtaken(times));
        facts.durable.version = Version(3);
        assert_eq!(verdict.is_ok(), is_so, "{times}");
    }
}

/// A leader that has told of one checkpoint, which is pinned by "a".
fn leader() -> (HonestErrors, Facts) {
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    facts.config.pins_max = 2;
    let checkpoint = CheckpointId(1);
    let leads = Notice::Leading { epoch: Epoch(1) };
    for notice in [leads, Notice::Completed { checkpoint }] {
        show(&mut invariant, &mut facts, Fact::Told(PROCESS, notice)).expect("is so");
    }
    commit(&mut invariant, &mut facts, vec![pin("a")]).expect("pins");
    names_it(&mut invariant, &mut facts, Caller::Coordinator(PROCESS));
    (invariant, facts)
}

fn pin(owner: &str) -> Change {
    Change::Pin {
        checkpoint: CheckpointId(1),
        owner: PinOwner(owner.to_owned()),
    }
}

fn unpin(owner: &str) -> Change {
    Change::Unpin {
        checkpoint: CheckpointId(1),
        owner: PinOwner(owner.to_owned()),
    }
}

/// `CURRENT` names the last record, which is this caller's.
fn names_it(invariant: &mut HonestErrors, facts: &mut Facts, maker: Caller) {
    let name = record_name(facts.durable.version.0);
    show(invariant, facts, Fact::ManifestPutAsked(maker, name)).expect("puts");
    show(invariant, facts, Fact::CurrentNames(vec![name])).expect("commits");
}

fn asked(request: u64, owner: &str, begins: bool) -> Fact {
    let wish = PinWish {
        checkpoint: Some(CheckpointId(1)),
        owner: PinOwner(owner.to_owned()),
        begins,
    };
    Fact::PinAsked(PROCESS, RequestId(request), wish)
}

fn refuses(
    (invariant, facts): &mut (HonestErrors, Facts),
    wish: (&str, bool),
    reason: RefusalReason,
) -> Verdict {
    show(invariant, facts, asked(9, wish.0, wish.1)).expect("a wish");
    let request = RequestId(9);
    let refused = Notice::Refused { request, reason };
    show(invariant, facts, Fact::Told(PROCESS, refused))
}

#[test]
fn refusing_a_pin_for_what_is_not_so_breaks_it() {
    use RefusalReason::{AlreadyPinned, NoSuchPin, TooManyPins};
    let mut world = leader();
    refuses(&mut world, ("a", true), AlreadyPinned).expect("it is");
    refuses(&mut world, ("b", false), NoSuchPin).expect("there is none");
    assert!(refuses(&mut world, ("b", true), AlreadyPinned).is_err());
    assert!(refuses(&mut world, ("a", false), NoSuchPin).is_err());
    assert!(refuses(&mut world, ("b", true), TooManyPins).is_err());
    let (invariant, facts) = &mut world;
    show(invariant, facts, asked(1, "b", true)).expect("a wish");
    refuses(&mut world, ("b", true), AlreadyPinned).expect("it is about to be");
    refuses(&mut world, ("c", true), TooManyPins).expect("they are about to be");
}

#[test]
fn what_guests_have_committed_may_be_news() {
    let mut world = leader();
    let (invariant, facts) = &mut world;
    commit(invariant, facts, vec![unpin("a")]).expect("ends it");
    names_it(invariant, facts, Caller::Guest(GuestId(1)));
    refuses(&mut world, ("a", true), RefusalReason::AlreadyPinned).expect("it was");
    refuses(&mut world, ("a", false), RefusalReason::NoSuchPin).expect("it is so");
    let (invariant, facts) = &mut world;
    commit(invariant, facts, vec![pin("b")]).expect("pins");
    names_it(invariant, facts, Caller::Coordinator(PROCESS));
    assert!(refuses(&mut world, ("a", true), RefusalReason::AlreadyPinned).is_err());
}

#[test]
fn calling_a_checkpoint_lost_that_is_there_breaks_it() {
    let gone = |id, retained: &[u64]| {
        let retained = retained.iter().copied().map(CheckpointId);
        RefusalReason::NoSuchCheckpoint(CheckpointId(id), retained.collect())
    };
    let mut world = leader();
    refuses(&mut world, ("b", true), gone(7, &[1])).expect("there is none");
    assert!(refuses(&mut world, ("b", true), gone(1, &[1])).is_err());
    assert!(refuses(&mut world, ("b", true), gone(7, &[])).is_err());
    let (invariant, facts) = &mut world;
    let completes = complete(2, &[file(1, 2)], &[]);
    commit(invariant, facts, vec![completes]).expect("completes");
    refuses(&mut world, ("b", true), gone(2, &[1])).expect("it is news");
    assert!(refuses(&mut world, ("b", true), gone(1, &[])).is_err());
    let (invariant, facts) = &mut world;
    let claim = vec![Change::Claim { epoch: Epoch(2) }];
    commit(invariant, facts, claim).expect("another leads");
    refuses(&mut world, ("b", true), gone(1, &[])).expect("it knows nothing");
}

#[test]
fn a_guest_that_is_told_what_is_not_so_breaks_it() {
    let guest = GuestId(1);
    let gives_up = |error: &GuestError| Fact::GuestGivesUp(guest, error.clone());
    let unreadable = GuestError::Load(LoadError::Overtaken(1));
    let errors = [
        GuestError::NoRoot,
        GuestError::Unclaimed,
        GuestError::TooManyPins(1),
    ];
    let (mut early, mut nothing) = (HonestErrors::default(), Facts::default());
    nothing.config.pins_max = 0;
    let wish = PinWish {
        checkpoint: None,
        owner: PinOwner("reader".to_owned()),
        begins: true,
    };
    let comes = Fact::GuestComes(guest, wish);
    show(&mut early, &mut nothing, comes.clone()).expect("comes");
    let (mut late, mut facts) = leader();
    show(&mut late, &mut facts, comes).expect("comes");
    for error in &errors {
        show(&mut early, &mut nothing, gives_up(error)).expect("it was so when it came");
        assert!(show(&mut late, &mut facts, gives_up(error)).is_err());
    }
    assert!(show(&mut early, &mut nothing, gives_up(&unreadable)).is_err());
}

#[test]
fn calling_a_complete_checkpoint_aborted_breaks_it() {
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    let notice = Notice::Aborted {
        checkpoint: CheckpointId(1),
        reason: AbortReason::Expired,
    };
    assert!(show(&mut invariant, &mut facts, Fact::Told(ProcessId(0), notice)).is_err());
}

#[test]
fn damage_that_was_not_read_again_breaks_it() {
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    let error = LoadError::Damaged {
        name: ObjectName::Current,
        error: DecodeError::Empty,
    };
    let told = Fact::Told(
        ProcessId(0),
        Notice::Failed {
            error: CoordinatorError::Load(error),
        },
    );
    facts.has_current = true;
    for _ in 0..DAMAGED_READS_MAX {
        let anothers = Caller::Coordinator(ProcessId(PROCESS.0 + 1));
        for caller in [anothers, Caller::Coordinator(PROCESS)] {
            assert!(show(&mut invariant, &mut facts, told.clone()).is_err());
            let damaged = Fact::ReadDamaged(caller, ObjectName::Current);
            show(&mut invariant, &mut facts, damaged).expect("is so");
        }
    }
    show(&mut invariant, &mut facts, told).expect("is so");
}

#[test]
fn completing_what_was_called_aborted_breaks_it() {
    let (mut invariant, mut facts) = after_one::<HonestErrors>();
    let notice = Notice::Aborted {
        checkpoint: CheckpointId(2),
        reason: AbortReason::Expired,
    };
    show(&mut invariant, &mut facts, Fact::Told(ProcessId(0), notice)).expect("may be so");
    let again = vec![complete(2, &[file(1, 2)], &[])];
    assert!(commit(&mut invariant, &mut facts, again).is_err());
}
