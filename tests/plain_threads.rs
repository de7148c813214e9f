//! A program of plain threads, without tokio, from its first start to the one after a crash.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use stillpoint::{
    Config, ErrorKind, FileSystem, MemoryState, Participant, Repository, Result, Runtime,
};

const NAME: &str = "orders/7";

fn repository(runtime: &Runtime, root: &Path) -> Result<Repository> {
    let mut config = Config::default();
    config.checkpoints.interval = Some(Duration::from_millis(10));
    let builder = Repository::builder(FileSystem::at(root)).with_config(config);
    runtime.block_on(builder.open())
}

fn start(runtime: &Runtime, repository: &Repository, local: &Path) -> (MemoryState, Participant) {
    let claim = runtime.block_on(repository.claim(NAME)).unwrap();
    let restored = runtime.block_on(claim.restore_into(local)).unwrap();
    let state = match restored.user_bytes() {
        None => MemoryState::new(),
        Some(_) => MemoryState::open(restored.directory()).unwrap(),
    };
    (state.clone(), restored.attach(state).unwrap())
}

#[test]
fn a_whole_program_without_tokio() {
    let directory = tempfile::tempdir().unwrap();
    let (root, local) = (
        directory.path().join("root"),
        directory.path().join("local"),
    );
    let runtime = Runtime::new().unwrap();
    let first = repository(&runtime, &root).unwrap();
    let (state, participant) = start(&runtime, &first, &local);

    // One thread writes and cuts, as the interval says; another waits and acknowledges.
    let (cut, cuts) = channel();
    thread::scope(|threads| {
        threads.spawn(|| {
            for round in 1..=3_u8 {
                runtime.block_on(participant.triggered()).unwrap();
                state.put(b"round", &[round]);
                cut.send(participant.checkpoint([round]).unwrap()).unwrap();
            }
            drop(cut);
        });
        threads.spawn(|| {
            for checkpoint in cuts {
                assert!(checkpoint.wait().unwrap().periodic);
            }
        });
    });
    assert_eq!(participant.restorable_position().as_deref(), Some(&[3][..]));
    state.put(b"round", b"after the last cut");
    runtime.block_on(participant.close()).unwrap();
    let after = participant.checkpoint("").unwrap_err();
    assert_eq!(after.kind(), ErrorKind::Closed);
    drop((participant, state, first));
    drop(runtime);

    let runtime = Runtime::new().unwrap();
    let second = repository(&runtime, &root).unwrap();
    let (state, participant) = start(&runtime, &second, &local);
    assert_eq!(state.get(b"round").as_deref(), Some(&[3][..]));
    runtime.block_on(participant.close()).unwrap();
}

/// A repository may be opened in a runtime of a single thread that is then not run.
#[test]
fn waiting_for_a_runtime_that_nobody_runs_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let config = Config {
        progress_deadline: Duration::from_millis(50),
        ..Config::default()
    };
    let (participant, state) = tokio.block_on(async {
        let store = stillpoint::Memory::new();
        let builder = Repository::builder(store).with_config(config);
        let repository = builder.open().await.unwrap();
        let claim = repository.claim(NAME).await.unwrap();
        let restored = claim.restore_into(directory.path().join("local")).await;
        let state = MemoryState::new();
        (restored.unwrap().attach(state.clone()).unwrap(), state)
    });
    state.put(b"a", b"1");
    let checkpoint = participant.checkpoint("one").unwrap();
    let waiting = thread::scope(|threads| threads.spawn(|| checkpoint.wait()).join().unwrap());
    let error = waiting.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    assert!(error.to_string().contains("block_on"), "{error}");
    assert!(error.to_string().contains(NAME), "{error}");

    // Nothing is lost: once it runs, the checkpoint goes on.
    tokio.block_on(checkpoint.completed()).unwrap();
    assert!(participant.newest_completed().is_some());
    let under_way = participant.checkpoint("two").unwrap();
    drop(tokio);
    let error = under_way.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(checkpoint.wait().is_ok(), "that is known");
}

/// Whoever waits in another tokio runtime than the one that the repository was opened in.
#[test]
fn the_end_of_a_runtime_ends_what_was_opened_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let own = Runtime::new().unwrap();
    let repository = own.block_on(Repository::open(stillpoint::Memory::new()));
    let repository = repository.unwrap();
    let (_state, participant) = start(&own, &repository, directory.path());
    drop(own);
    let another = Runtime::new().unwrap();
    another.block_on(async {
        let ended = tokio::time::timeout(Duration::from_secs(60), participant.ended()).await;
        assert_eq!(ended.unwrap().kind(), ErrorKind::Closed);
        let triggered = participant.triggered().await.unwrap_err();
        assert_eq!(triggered.kind(), ErrorKind::Closed);
        let claimed = tokio::time::timeout(Duration::from_secs(60), repository.claim(NAME)).await;
        assert_eq!(claimed.unwrap().unwrap_err().kind(), ErrorKind::Closed);
        let closed = participant.close().await.unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Closed, "nothing was closed");
        let ended = tokio::time::timeout(Duration::from_secs(60), participant.ended()).await;
        assert!(ended.is_ok(), "it is told as before");
    });
    let cut = participant.checkpoint("").unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::Closed);
}

/// A runtime that ends before it has polled anything of the claim.
#[test]
fn a_claim_ends_with_the_runtime_that_never_ran_it() {
    let own = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let repository = own.block_on(Repository::open(stillpoint::Memory::new()));
    let repository = repository.unwrap();
    let another = Runtime::new().unwrap();
    another.block_on(async {
        let mut claiming = std::pin::pin!(repository.claim(NAME));
        // One poll starts the claim, in a runtime that is not run.
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(claiming.as_mut().poll(context).is_pending())
        });
        assert!(polled.await, "nobody answers it");
        own.shutdown_background();
        let claimed = tokio::time::timeout(Duration::from_secs(60), claiming).await;
        assert_eq!(claimed.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
}
