//! Commands beside a service at work: they see a moment of it, and it does not notice them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use serde_json::Value;
use stillpoint::ErrorKind;
use tokio::task::JoinHandle;

use crate::support::{DEADLINE, Service, World, answer, ask, numbers, tree};

/// A service that completes one checkpoint after the other, until it is told to stop.
struct Busy {
    newest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    working: JoinHandle<(Service, u64)>,
}

impl Busy {
    fn start(service: Service) -> Self {
        let (newest, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let working = tokio::spawn({
            let (newest, stop) = (Arc::clone(&newest), Arc::clone(&stop));
            async move {
                let mut completed = 0;
                while !stop.load(Ordering::Acquire) {
                    newest.store(
                        service.checkpoint(&completed.to_string()).await,
                        Ordering::Release,
                    );
                    completed += 1;
                }
                (service, completed)
            }
        });
        Self {
            newest,
            stop,
            working,
        }
    }

    fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    async fn stop(self) -> (Service, u64) {
        self.stop.store(true, Ordering::Release);
        self.working.await.unwrap()
    }
}

async fn beside(root: &Path, arguments: &[&str]) -> (i32, Value) {
    let root = root.to_owned();
    let arguments: Vec<_> = arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    let asking = tokio::task::spawn_blocking(move || {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        ask(&root, &arguments)
    });
    asking.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_disturbed() {
    let world = World::new(2).await;
    let busy = Busy::start(world.start("orders/7").await);
    let root = world.root();
    let begun = Instant::now();
    while busy.newest() == 0 {
        assert!(begun.elapsed() < DEADLINE);
        tokio::task::yield_now().await;
    }
    for round in 0..10 {
        let target = world.directory.path().join(format!("restored {round}"));
        let to = target.to_str().unwrap();
        for arguments in [
            &["ls"][..],
            &["verify", "--all"],
            &["verify", "--all", "--full"],
            &["gc", "--dry-run"],
            &["gc"],
            &["verify"],
            &["show", "newest"],
            &["restore", "newest", "--to", to],
        ] {
            let (code, document) = beside(&root, arguments).await;
            let dropped = document["error"]["kind"] == "subsumed meanwhile";
            assert!(
                code == 0 || (code == 3 && dropped),
                "{arguments:?}: {document:#}"
            );
            assert_eq!(target.exists(), arguments[0] == "restore" && code == 0);
        }
    }
    let (service, completed) = busy.stop().await;
    assert!(completed > 0);
    service.participant.check().unwrap();
    service.checkpoint("the last").await;
    service.close().await;
    let listed = answer(&root, &["ls"]);
    assert_eq!(
        listed["participants"][0]["epoch"], 1,
        "nobody else has claimed it"
    );
    answer(&root, &["verify", "--all", "--full"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_fences_the_holder() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    let held = service.checkpoint("one").await;
    let (code, taken) = beside(&world.root(), &["gc", "--take-over"]).await;
    assert_eq!(code, 0, "{taken:#}");
    assert_eq!(taken["participants"][0]["epoch"], 2);
    service.state.put(b"value", b"two");
    let fenced = match service.participant.checkpoint("two") {
        Ok(checkpoint) => crate::support::in_time(checkpoint.completed())
            .await
            .map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(fenced.unwrap_err().kind(), ErrorKind::Fenced);
    let listed = answer(&world.root(), &["ls"]);
    assert_eq!(listed["participants"][0]["restore_point"], held);
    // The service claims again and goes on from what it had.
    drop(service);
    let service = world.start("orders/7").await;
    assert_eq!(service.state.get(b"value").as_deref(), Some(&b"one"[..]));
    service.checkpoint("two").await;
}

/// Asks for the newest checkpoint by its number again and again, while newer ones drop it, until
/// that has happened in the middle of the command.
async fn until_dropped_meanwhile(ask_for: impl AsyncFn(&World, u64) -> (i32, Value)) {
    let world = World::new(1).await;
    let busy = Busy::start(world.start("orders/7").await);
    let begun = Instant::now();
    let error = loop {
        assert!(
            begun.elapsed() < DEADLINE,
            "it was never dropped in the middle"
        );
        let wanted = busy.newest();
        if wanted == 0 {
            tokio::task::yield_now().await;
            continue;
        }
        let (code, document) = ask_for(&world, wanted).await;
        let error = document["error"].clone();
        match (code, error["kind"].as_str()) {
            (0, None) => {}
            (3, Some("not found")) => assert_eq!(error["checkpoint"], wanted),
            (3, Some("subsumed meanwhile")) => {
                assert_eq!(error["checkpoint"], wanted);
                break error;
            }
            _ => panic!("{code} {document:#}"),
        }
    };
    let newer = numbers(&error["alternatives"]);
    let dropped = error["checkpoint"].as_u64().unwrap();
    assert!(
        !newer.is_empty() && newer.iter().all(|newer| *newer > dropped),
        "{error:#}"
    );
    busy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_a_checkpoint_that_is_dropped_meanwhile() {
    until_dropped_meanwhile(async |world, wanted| {
        let target = world.directory.path().join(format!("restored {wanted}"));
        let (id, to) = (wanted.to_string(), target.to_str().unwrap());
        let (code, document) = beside(&world.root(), &["restore", &id, "--to", to]).await;
        assert_eq!(
            target.exists(),
            code == 0,
            "no half-filled directory: {:?}",
            tree(&target)
        );
        if code == 0 {
            std::fs::remove_dir_all(&target).unwrap();
        }
        (code, document)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verification_of_a_checkpoint_that_is_dropped_meanwhile() {
    until_dropped_meanwhile(async |world, wanted| {
        beside(&world.root(), &["verify", "--full", &wanted.to_string()]).await
    })
    .await;
}
