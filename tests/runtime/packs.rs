//! What is private to a checkpoint goes the way of all files: in pieces, with the same permits.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillpoint::state::MemoryState;
use stillpoint::state::pack::PACK_NAME;
use stillpoint::storage::{Call, Intercept, Intercepted, Memory, Operation};
use stillpoint::{RestoreOptions, RestoreProgress};

use crate::files::Files;
use crate::{config, in_time, open};

/// The calls that store or read state files and packs.
#[derive(Debug, Default)]
struct Seen {
    calls: Mutex<Vec<(Operation, String)>>,
    /// Puts now, and the most that there were at once.
    puts: Mutex<(usize, usize)>,
}

impl Intercept for Seen {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        let cleans = matches!(operation, Operation::List | Operation::Delete);
        if cleans || !name.contains("/shared/") {
            return call;
        }
        let is_put = matches!(operation, Operation::Put { .. });
        self.calls
            .lock()
            .unwrap()
            .push((operation, name.to_owned()));
        if !is_put {
            return call;
        }
        Box::pin(async move {
            {
                let mut puts = self.puts.lock().unwrap();
                puts.0 += 1;
                puts.1 = puts.1.max(puts.0);
            }
            // Whoever may come meanwhile, comes.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let answer = call.await;
            self.puts.lock().unwrap().0 -= 1;
            answer
        })
    }
}

impl Seen {
    fn take(&self) -> Vec<(Operation, String)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

#[tokio::test]
async fn a_pack_is_stored_and_fetched_as_files_are() {
    let local = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let store = Intercepted::new(Memory::new(), Arc::clone(&seen));
    let repository = open(store, config()).await;
    let claim = in_time(repository.claim("orders/7")).await.unwrap();
    let restored = in_time(claim.restore_into(local.path().join("one")))
        .await
        .unwrap();
    let state = Files::open(restored.directory());
    let participant = restored.attach(state.clone()).unwrap();
    state.write("1", b"one");
    let checkpoint = participant.checkpoint("").unwrap();
    in_time(checkpoint.completed()).await.unwrap();
    in_time(participant.close()).await.unwrap();
    let from: Vec<PathBuf> = seen
        .take()
        .into_iter()
        .map(|(operation, name)| match operation {
            Operation::Put { from, .. } => from.unwrap_or_else(|| panic!("{name} is in memory")),
            other => panic!("{other} {name}"),
        })
        .collect();
    let is_pack = |path: &&PathBuf| path.to_string_lossy().ends_with(PACK_NAME);
    assert_eq!((from.len(), from.iter().filter(is_pack).count()), (2, 1));
    assert!(from.iter().all(|path| !path.exists()), "nothing is left");

    let claim = in_time(repository.claim("orders/7")).await.unwrap();
    let progress = RestoreProgress::default();
    let options = RestoreOptions::new().progress(progress.clone());
    let restore = claim.restore_with(local.path().join("two"), &options);
    let restored = in_time(restore).await.unwrap();
    assert_eq!(Files::open(restored.directory()).read(), state.read());
    assert_eq!(progress.fetched_bytes(), progress.total_bytes());
    let fetched: Vec<_> = seen
        .take()
        .into_iter()
        .map(|(operation, _)| operation)
        .collect();
    assert_eq!(fetched.len(), 2);
    for operation in fetched {
        let Operation::Fetch { to } = operation else {
            panic!("{operation}");
        };
        assert!(to.starts_with(restored.directory()), "{}", to.display());
    }
}

/// A pack that is in memory takes its share of the memory that transfers may use.
#[tokio::test]
async fn packs_in_memory_share_the_memory_of_transfers() {
    const PACK_BYTES: usize = 3 << 20;
    let local = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let store = Intercepted::new(Memory::new(), Arc::clone(&seen));
    let mut config = config();
    config.transfer_memory_bytes_max = PACK_BYTES + (2 << 20);
    let repository = open(store, config).await;
    let mut participants = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let claim = in_time(repository.claim(name)).await.unwrap();
        let restored = in_time(claim.restore_into(local.path().join(name)))
            .await
            .unwrap();
        let state = MemoryState::new();
        state.put(b"large", &vec![7; PACK_BYTES]);
        participants.push(restored.attach(state).unwrap());
    }
    let checkpoints: Vec<_> = participants
        .iter()
        .map(|participant| participant.checkpoint("").unwrap())
        .collect();
    for checkpoint in &checkpoints {
        in_time(checkpoint.completed()).await.unwrap();
    }
    assert_eq!(*seen.puts.lock().unwrap(), (0, 1), "one at a time");
}
