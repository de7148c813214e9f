//! Futures that are dropped before they are done: nothing is left half done.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use stillpoint::{ErrorKind, RestoreOptions};
use tokio::sync::Notify;

use super::faulty::{Fault, Faulty, Verb};
use super::{checkpoint, claim, config, in_time, open, place, start};

/// Polls a future once and drops it.
fn begin<T>(work: impl Future<Output = T>) {
    let mut work = pin!(work);
    let begun = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(begun.is_pending(), "it is not done at once");
}

/// Waits until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    in_time(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Reads of stored files wait until this is notified. Also answers whether one has begun: by then
/// nobody can break it off.
fn hold_fetches(store: &Faulty) -> (Arc<Notify>, impl Fn() -> bool) {
    let goes_on = Arc::new(Notify::new());
    let begun = Arc::new(AtomicBool::new(false));
    let (waits, begins) = (Arc::clone(&goes_on), Arc::clone(&begun));
    store.set(move |verb, name| {
        if verb == Verb::Read && name.contains("/shared/") {
            begins.store(true, Ordering::SeqCst);
            Fault::Waits(Arc::clone(&waits))
        } else {
            Fault::None
        }
    });
    (goes_on, move || begun.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_participant_closes_although_nobody_waits_for_it() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    store.set(|verb, name| {
        if verb == Verb::Put && name.contains("/shared/") {
            Fault::Hangs
        } else {
            Fault::None
        }
    });
    state.put(b"a", b"2");
    let under_way = participant.checkpoint("2").unwrap();
    begin(participant.close());
    let error = in_time(under_way.completed()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = in_time(participant.ended()).await;
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    // Whoever asks later is told the outcome, each time.
    for _ in 0..2 {
        in_time(participant.close()).await.unwrap();
    }
}

/// The handles may go as well.
#[tokio::test]
async fn closing_goes_on_without_its_participant() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    begin(participant.close());
    drop(participant);
    let claim = claim(&repository).await;
    begin(claim.close());
    in_time(async {
        loop {
            let inspection = repository.inspect("orders/7").await.unwrap();
            if inspection.manifest().attempts().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_directory_stays_locked_until_a_dropped_restore_is_at_rest() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    in_time(participant.close()).await.unwrap();

    let claim = claim(&repository).await;
    let (_base, directory) = place();
    let (goes_on, has_begun) = hold_fetches(&store);
    let broken_off = claim.restore_into(&directory);
    tokio::select! {
        _ = broken_off => panic!("its files can't be read yet"),
        () = until(&has_begun) => {}
    }
    let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    store.heal();
    goes_on.notify_waiters();
    in_time(async {
        loop {
            match claim.restore_into(&directory).await {
                Ok(restored) => break assert_eq!(restored.user_bytes(), Some(&b"1"[..])),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_guests_dropped_restore_is_at_rest_before_the_next_begins() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (_state, participant) = start(&repository).await;
    let taken = checkpoint(&participant, "1").await.checkpoint;
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let (goes_on, has_begun) = hold_fetches(&store);
    let (_base, directory) = place();
    let options = RestoreOptions::new();
    tokio::select! {
        _ = inspection.restore(taken, &directory, &options) => panic!("its files can't be read yet"),
        () = until(&has_begun) => {}
    }
    let again = in_time(inspection.restore(taken, &directory, &options)).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Busy);
    store.heal();
    goes_on.notify_waiters();
    in_time(async {
        while let Err(error) = inspection.restore(taken, &directory, &options).await {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        }
    })
    .await;
}
