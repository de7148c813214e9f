//! The one way from an asynchronous call to the file system's blocking ones.
//!
//! ```text
//! call ─▶ its lane's permit ─▶ thread of the runtime's blocking pool ─▶ answer
//!   └─ dropped ─▶ the thread notices at its next step, cleans up and stops
//! ```
//!
//! Invariants: no more than [`BLOCKING_CALLS_MAX`] calls of a store are inside the file system at
//! once, so that open files, which are few, are not used up by ourselves; calls that hang (a server
//! of a mount is gone) hold up neither those of another lane, above all the few small ones that carry
//! the protocol, nor those of another store; a transfer that waits for its permit makes progress as
//! long as those before it do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::executor::{resume_panic, spawn_blocking};
use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::storage::Progress;
use crate::storage::step::{Step, answer};

/// How many calls of a store may be inside the file system at once, over all lanes. Each holds up
/// to five files open.
pub const BLOCKING_CALLS_MAX: usize = CURRENT_MAX + MANIFEST_MAX + TRANSFERS_MAX + CLEANING_MAX;

const CURRENT_MAX: usize = 8;
const MANIFEST_MAX: usize = 8;
const TRANSFERS_MAX: usize = 32;
const CLEANING_MAX: usize = 8;

/// Calls that may hold each other up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Loads and swaps: without them nobody leads and nothing completes.
    Current,
    /// Objects of the manifest: no commit without its record.
    Manifest,
    /// All other objects: files, above all.
    Transfers,
    /// Deletes and lists: nothing waits for them but more of them.
    Cleaning,
}

/// The permits of a store. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    current: Queue,
    manifest: Queue,
    transfers: Queue,
    cleaning: Queue,
}

/// The permits of a lane, which are given in the order in which they were asked for.
#[derive(Clone, Debug)]
struct Queue {
    permits: Arc<Semaphore>,
    /// Goes on whenever a call moves bytes or ends.
    pulse: Arc<AtomicU64>,
}

/// Given back where the call ends, which may be long after its answer was given up.
struct Permit {
    _permit: OwnedSemaphorePermit,
    pulse: Arc<AtomicU64>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pulse.fetch_add(1, Ordering::Relaxed);
    }
}

impl Permits {
    pub(super) fn new() -> Self {
        let lane = |calls_max| Queue {
            permits: Arc::new(Semaphore::new(calls_max)),
            pulse: Arc::default(),
        };
        Self {
            current: lane(CURRENT_MAX),
            manifest: lane(MANIFEST_MAX),
            transfers: lane(TRANSFERS_MAX),
            cleaning: lane(CLEANING_MAX),
        }
    }

    /// Those for local files outside every store: a state's own disk.
    pub(super) fn local() -> Self {
        static LOCAL: LazyLock<Permits> = LazyLock::new(Permits::new);
        LOCAL.clone()
    }

    fn of(&self, lane: Lane) -> &Queue {
        match lane {
            Lane::Current => &self.current,
            Lane::Manifest => &self.manifest,
            Lane::Transfers => &self.transfers,
            Lane::Cleaning => &self.cleaning,
        }
    }
}

/// Tells the blocking side of a call that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Ends the step if the call was dropped.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::new(FailureKind::Cancelled, "the call was dropped"));
        }
        Ok(())
    }
}

struct CancelOnDrop(Cancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the steps of a call where they may block.
///
/// A panic in them is passed on. A runtime that shuts down leaves the answer unknown.
pub(super) async fn run<T, F>(permits: &Permits, lane: Lane, steps: F) -> Answer<T>
where
    T: Send + 'static,
    F: FnOnce(&Cancellation) -> Step<T> + Send + 'static,
{
    // Nobody watches it.
    run_watched(permits, lane, &Progress::default(), steps).await
}

/// The same for a call that is watched for a standstill: waiting in a lane that moves is none.
pub(super) async fn run_watched<T, F>(
    permits: &Permits,
    lane: Lane,
    progress: &Progress,
    steps: F,
) -> Answer<T>
where
    T: Send + 'static,
    F: FnOnce(&Cancellation) -> Step<T> + Send + 'static,
{
    let cancellation = Cancellation::default();
    let guard = CancelOnDrop(cancellation.clone());
    let queue = permits.of(lane);
    progress.waits(&queue.pulse);
    let permit = match Arc::clone(&queue.permits).acquire_owned().await {
        Ok(permit) => Permit {
            _permit: permit,
            pulse: Arc::clone(&queue.pulse),
        },
        // Not reached: nobody closes the semaphores.
        Err(closed) => return Answer::Failed(Failure::new(FailureKind::Other, closed.to_string())),
    };
    progress.has_its_turn();
    let joined = spawn_blocking(move || {
        let _permit = permit;
        cancellation.check()?;
        steps(&cancellation)
    })
    .await;
    drop(guard);
    match joined {
        Ok(step) => answer(step),
        Err(error) => {
            let cause = resume_panic(error).to_string();
            Answer::Unknown(Failure::new(FailureKind::Cancelled, cause))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::protocol::answer::Digest;
    use crate::storage::fs::probe::{Act, Probe};
    use crate::storage::fs::{FileStore, FileSystem};
    use crate::storage::{BlobStore, Body, Key, Progress};

    const CALLS: usize = 2 * BLOCKING_CALLS_MAX;
    /// Twenty times what a slow machine takes.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Lets everything go that hangs, however the test ends: the runtime waits for it.
    struct GoOn<'a>(&'a Probe);

    impl Drop for GoOn<'_> {
        fn drop(&mut self) {
            self.0.go_on();
        }
    }

    async fn in_time<T>(work: impl Future<Output = T>) -> T {
        let done = tokio::time::timeout(DEADLINE, work).await;
        done.expect("it takes too long")
    }

    fn done<T: std::fmt::Debug>(answer: Answer<T>) -> T {
        match answer {
            Answer::Done(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    /// A store, and a file of four bytes beside it.
    async fn store_and_local(directory: &std::path::Path) -> (FileStore, std::path::PathBuf) {
        let store = FileSystem::at(directory.join("root")).open().await.unwrap();
        let local = directory.join("local");
        fs::write(&local, b"four").unwrap();
        (store, local)
    }

    async fn put(store: FileStore, local: std::path::PathBuf, number: usize) -> Answer<Digest> {
        let body = Body::File {
            path: local,
            size_bytes: 4,
        };
        let name = key(&format!("shared/7/{number}"));
        store.put(&name, body, &Progress::default()).await
    }

    /// A mount whose server is gone: whatever hangs there, commits go on, and so does another store.
    #[tokio::test]
    async fn calls_that_hang_hold_up_no_other_lane_and_no_other_store() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let store = FileSystem::at(path("one")).open().await.unwrap();
        let other = FileSystem::at(path("other")).open().await.unwrap();
        fs::write(path("local"), b"four").unwrap();
        let probe = &store.inner.root.probe;
        let _going_on = GoOn(probe);
        done(put(store.clone(), path("local"), 0).await);
        probe.hang(Act::Publish, "shared/");
        probe.hang(Act::Unlink, "shared/");
        let mut hanging = tokio::task::JoinSet::new();
        for number in 1..=CALLS {
            let (to, local) = (store.clone(), path("local"));
            hanging.spawn(async move { put(to, local, number).await.map(drop) });
            // A small file comes from memory.
            let (to, name) = (store.clone(), key(&format!("shared/8/{number}")));
            hanging.spawn(async move {
                let body = Body::from(b"four".to_vec());
                to.put(&name, body, &Progress::default()).await.map(drop)
            });
            let from = store.clone();
            hanging.spawn(async move { from.delete(&key("shared/7/0")).await });
        }
        in_time(async {
            while probe.hanging() < TRANSFERS_MAX + CLEANING_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;

        in_time(async {
            let (current, record) = (key("CURRENT"), key("manifest/1-1-1"));
            let first = done(store.swap(&current, None, b"1").await);
            let body = b"record".to_vec().into();
            done(store.put(&record, body, &Progress::default()).await);
            done(store.swap(&current, Some(&first), b"2").await);
            assert_eq!(done(store.load(&current, 9).await).bytes, b"2");
            assert_eq!(done(store.get(&record, 9).await), b"record");
            done(put(other.clone(), path("local"), 1).await);
            done(other.delete(&key("shared/7/1")).await);
        })
        .await;
        assert_eq!(probe.hanging(), TRANSFERS_MAX + CLEANING_MAX);

        probe.go_on();
        in_time(async {
            while let Some(ended) = hanging.join_next().await {
                done(ended.unwrap());
            }
        })
        .await;
    }

    /// A disk that is slow, and more transfers than may be in it at once: the last of them waits for
    /// minutes, and that is no standstill as long as the others move.
    #[tokio::test]
    async fn a_transfer_that_waits_for_its_turn_moves_as_the_others_do() {
        let directory = tempfile::tempdir().unwrap();
        let (store, local) = store_and_local(directory.path()).await;
        done(put(store.clone(), local.clone(), 0).await);
        let probe = &store.inner.root.probe;
        let _going_on = GoOn(probe);
        probe.hang(Act::Publish, "shared/");
        let watched = |number: usize| {
            let (to, path, progress) = (store.clone(), local.clone(), Progress::default());
            let seen = progress.clone();
            let transfer = tokio::spawn(async move {
                let body = Body::File {
                    path,
                    size_bytes: 4,
                };
                to.put(&key(&format!("shared/7/{number}")), body, &progress)
                    .await
            });
            (seen, transfer)
        };
        let first: Vec<_> = (1..=TRANSFERS_MAX).map(watched).collect();
        in_time(async {
            while probe.hanging() < TRANSFERS_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        let (last, transfer) = watched(TRANSFERS_MAX + 1);
        let not_yet_there = Progress::default().movement();
        in_time(async {
            while last.movement() == not_yet_there {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        // Those that have their turn move, one after the other.
        let mut seen = last.movement();
        assert_eq!(last.movement(), seen, "nobody moves");
        for (moving, _) in &first {
            let own = moving.movement();
            moving.add(1);
            assert_ne!(moving.movement(), own);
            assert_ne!(last.movement(), seen, "the queue moves");
            seen = last.movement();
            assert_eq!(last.bytes(), 0);
        }
        assert_eq!(last.movement(), seen, "nobody moves any more");
        // Its own turn counts as well; then others say nothing of it.
        probe.go_on();
        done(in_time(transfer).await.unwrap());
        for (_, transfer) in first {
            done(in_time(transfer).await.unwrap());
        }
        let ended = last.movement();
        assert_ne!(ended, seen);
        done(put(store.clone(), local, TRANSFERS_MAX + 2).await);
        assert_eq!(last.movement(), ended);
    }

    /// Folders are made under a lock: whoever needs no new one does not wait for it.
    #[tokio::test]
    async fn a_folder_whose_making_hangs_holds_up_no_commit() {
        let directory = tempfile::tempdir().unwrap();
        let (store, local) = store_and_local(directory.path()).await;
        let (current, progress) = (key("CURRENT"), Progress::default());
        let first = done(store.swap(&current, None, b"1").await);
        let record = |number: u64| key(&format!("manifest/{number}-1-1"));
        let body = || Body::from(b"record".to_vec());
        done(store.put(&record(1), body(), &progress).await);
        let probe = &store.inner.root.probe;
        let _going_on = GoOn(probe);
        probe.hang(Act::MakeFolder, "shared");
        let hanging = tokio::spawn(put(store.clone(), local, 1));
        in_time(async {
            while probe.hanging() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            done(store.put(&record(2), body(), &progress).await);
            done(store.swap(&current, Some(&first), b"2").await);
        })
        .await;
        probe.go_on();
        done(in_time(hanging).await.unwrap());
    }
}
