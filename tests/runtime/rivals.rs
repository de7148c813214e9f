//! Two processes that take one participant from each other for ever, over a store that errs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stillpoint::protocol::answer::FailureKind;
use stillpoint::{Config, ErrorKind, MemoryState, Repository, VerifyDepth};

use super::faulty::{Fault, Faulty, Verb};
use super::{config, in_time, open, place};

const SEEDS: u64 = 4;
const LIVES: u64 = 12;
const CHECKPOINTS: u64 = 6;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// One life: claims, restores, takes checkpoints until it is fenced or has had enough.
/// `completed` is the highest count that was ever told to be complete.
async fn live(repository: &Repository, completed: &AtomicU64, random: &mut Random) -> u64 {
    let must_hold = completed.load(Ordering::SeqCst);
    let claim = match repository.claim("orders/7").await {
        Ok(claim) => claim,
        Err(error) if error.kind() == ErrorKind::Fenced => return 0,
        Err(error) => panic!("{error}"),
    };
    let (_base, directory) = place();
    let restored = match claim.restore_into(&directory).await {
        Ok(restored) => restored,
        Err(error) if error.kind() == ErrorKind::Fenced => return 0,
        Err(error) => panic!("{error}"),
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let (state, mut count) = match restored.user_bytes() {
        None => (MemoryState::new(), 0),
        Some(position) => {
            let state = MemoryState::open(restored.directory()).unwrap();
            assert_eq!(
                state.get(b"count").as_deref(),
                Some(position),
                "state and position are one"
            );
            (state, number(position))
        }
    };
    assert!(
        count >= must_hold,
        "{must_hold} was complete, {count} was restored"
    );
    let participant = match restored.attach(state.clone()) {
        Ok(participant) => participant,
        Err(error) if error.kind() == ErrorKind::Fenced => return 0,
        Err(error) => panic!("{error}"),
    };
    let mut done = 0;
    for _ in 0..CHECKPOINTS {
        count += 1;
        state.put(b"count", &count.to_le_bytes());
        let taken = match participant.checkpoint(count.to_le_bytes()) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::Fenced => return done,
            Err(error) => panic!("{error}"),
        };
        if random.below(4) == 0 {
            taken.cancel();
        }
        match taken.completed().await {
            Ok(_) => {
                completed.fetch_max(count, Ordering::SeqCst);
                done += 1;
            }
            Err(error) => match error.kind() {
                ErrorKind::Fenced | ErrorKind::InDoubt => return done,
                ErrorKind::Cancelled | ErrorKind::Aborted | ErrorKind::Deadline => {}
                _ => panic!("{error}"),
            },
        }
    }
    match random.below(3) {
        0 => drop(participant),
        _ => {
            let _ = participant.close().await;
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rivals_lose_nothing() {
    for seed in 0..SEEDS {
        let ended = tokio::spawn(rival(seed)).await;
        assert!(
            ended.is_ok(),
            "seed {seed}; it repeats the faults, not the timing"
        );
    }
}

async fn rival(seed: u64) {
    let store = Faulty::new();
    let mut random = Random(seed);
    store.set(move |verb, _| match (verb, random.below(40)) {
        (_, 0) => Fault::DoneInSilence,
        (_, 1) => Fault::LostInSilence,
        (Verb::Put | Verb::Swap | Verb::Delete, 2) => Fault::Failed(FailureKind::Unavailable),
        _ => Fault::None,
    });
    let config = Config {
        progress_deadline: Duration::from_millis(500),
        ..config()
    };
    let completed = Arc::new(AtomicU64::new(0));
    let mut rivals = Vec::new();
    for rival in [1, 2] {
        let repository = open(store.clone(), config.clone()).await;
        let completed = Arc::clone(&completed);
        rivals.push(tokio::spawn(async move {
            let mut random = Random(seed * 10 + rival);
            let mut done = 0;
            for _ in 0..LIVES {
                done += live(&repository, &completed, &mut random).await;
            }
            done
        }));
    }
    let mut done = 0;
    for rival in rivals {
        done += in_time(rival).await.unwrap();
    }
    assert!(done > 0, "somebody gets something done");
    // Whatever happened: the last one restores, and nothing is left behind.
    store.heal();
    let repository = open(store.clone(), config).await;
    let must_hold = completed.load(Ordering::SeqCst);
    let mut random = Random(3);
    assert!(in_time(live(&repository, &completed, &mut random)).await > 0);
    assert!(completed.load(Ordering::SeqCst) > must_hold);
    let claim = in_time(repository.claim("orders/7")).await.unwrap();
    in_time(claim.clean()).await.unwrap();
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let retained = inspection.checkpoints();
    for info in &retained {
        let verified = in_time(inspection.verify(info.checkpoint, VerifyDepth::Checksums)).await;
        assert!(verified.unwrap().is_sound());
    }
    assert_eq!(store.names("/shared/").await.len(), retained.len());
}
