//! Restores: what is kept, what is refused, what is damage.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillpoint::protocol::answer::{Failure, FailureKind};
use stillpoint::protocol::file::FileKind;
use stillpoint::state::{Cut, StateBackend};
use stillpoint::{
    ErrorKind, FileSystem, MemoryState, Participant, ParticipantEvent, RestoreOptions,
    RestoreProgress, Restored,
};

use super::faulty::{Fault, Faulty, Verb};
use super::files::Files;
use super::{checkpoint, claim, config, in_time, open, place, start};

/// A guest's restore that fails takes nothing from a directory that held files of ours before.
#[tokio::test]
async fn a_failed_restore_keeps_what_is_right_and_what_it_fetched() {
    let store = Faulty::new();
    let repository = open(store.clone(), config()).await;
    let (base, directory) = place();
    let restored = in_time(claim(&repository).await.restore_into(&directory))
        .await
        .unwrap();
    let state = Files::open(&directory);
    state.write("000001.sst", &[1; 100]);
    let participant = restored.attach(state.clone()).unwrap();
    let older = checkpoint(&participant, "1").await.checkpoint;
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let elsewhere = base.path().join("elsewhere");
    in_time(inspection.restore(older, &elsewhere, &RestoreOptions::new()))
        .await
        .unwrap();
    state.write("000002.sst", &[2; 100]);
    let newer = checkpoint(&participant, "2").await.checkpoint;
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let files = inspection.files(newer).unwrap();
    let pack = files.iter().find(|file| file.kind == FileKind::Pack);
    let pack = pack.unwrap().name.to_string();
    store.set(move |verb, name| match verb {
        Verb::Read if name.ends_with(&pack) => Fault::Failed(FailureKind::Denied),
        _ => Fault::None,
    });
    in_time(inspection.restore(newer, &elsewhere, &RestoreOptions::new()))
        .await
        .unwrap_err();
    assert_eq!(fs::read(elsewhere.join("000001.sst")).unwrap(), [1; 100]);
    store.heal();
    let report = in_time(inspection.restore(newer, &elsewhere, &RestoreOptions::new()))
        .await
        .unwrap();
    assert!(report.kept_files >= 1, "{report:?}");
    assert_eq!(Files::open(&elsewhere).read(), state.read());
}

#[tokio::test]
async fn local_files_are_kept_and_only_the_rest_is_fetched() {
    let root = tempfile::tempdir().unwrap();
    let repository = open(FileSystem::at(root.path()), config()).await;
    let (_base, directory) = place();
    let first = claim(&repository).await;
    let restored = in_time(first.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    for n in 0..5 {
        state.write(&format!("{n:06}.sst"), &[n; 100]);
    }
    let participant = restored.attach(state.clone()).unwrap();
    checkpoint(&participant, "1").await;
    let truth = state.read();
    state.delete("000000.sst");
    state.write("000009.sst", b"never in a checkpoint");
    fs::write(directory.join("000007.log"), b"a write-ahead log").unwrap();
    drop((first, participant, state));

    let second = claim(&repository).await;
    let progress = RestoreProgress::default();
    let options = RestoreOptions::new().progress(progress.clone());
    let restored = in_time(second.restore_with(&directory, &options))
        .await
        .unwrap();
    let report = restored.report();
    assert_eq!(
        (report.kept_files, report.fetched_files),
        (4, 2),
        "one file and the pack"
    );
    assert_eq!(progress.total_bytes(), progress.fetched_bytes());
    let state = Files::open(&directory);
    assert_eq!(state.read(), truth);
    assert!(!directory.join("000007.log").exists());
    assert!(!directory.join("000009.sst").exists());
    let participant = restored.attach(state.clone()).unwrap();
    let report = checkpoint(&participant, "2").await;
    assert_eq!(report.uploaded_files, 1, "the pack: nothing else is new");
    drop((second, participant, state));

    // A file that was changed without its time being changed is found by reading it.
    let path = directory.join("000001.sst");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0).unwrap();
    file.set_modified(modified).unwrap();
    let third = claim(&repository).await;
    let options = RestoreOptions::new().verify_kept_files();
    let restored = in_time(third.restore_with(&directory, &options))
        .await
        .unwrap();
    assert_eq!(restored.report().kept_files, 4);
    assert_eq!(Files::open(&directory).read(), truth);
}

#[tokio::test]
async fn an_older_checkpoint_is_the_callers_choice() {
    let repository = open(Faulty::new(), config()).await;
    let (state, participant) = start(&repository).await;
    let mut ids = Vec::new();
    for n in ["1", "2", "3"] {
        state.put(b"n", n.as_bytes());
        ids.push(checkpoint(&participant, n).await.checkpoint);
    }
    drop(participant);
    let claim = claim(&repository).await;
    assert_eq!(claim.retained(), ids[1..]);
    let (_base, directory) = place();
    for options in [
        RestoreOptions::new().fallback(2),
        RestoreOptions::new().checkpoint(ids[0]),
    ] {
        let error = in_time(claim.restore_with(&directory, &options))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(error.alternatives(), &ids[1..]);
    }
    let options = RestoreOptions::new().fallback(1);
    let restored = in_time(claim.restore_with(&directory, &options))
        .await
        .unwrap();
    assert_eq!(restored.user_bytes(), Some(&b"2"[..]));
    let state = MemoryState::open(&directory).unwrap();
    assert_eq!(state.get(b"n").as_deref(), Some(&b"2"[..]));
    let participant = restored.attach(state.clone()).unwrap();
    // Known at once, not only when the store knows of the new line: nothing was awaited yet.
    assert_eq!(participant.newest_completed(), Some(ids[1]));
    assert_eq!(
        participant.restorable_position().as_deref(),
        Some(&b"2"[..])
    );
    state.put(b"n", b"another 3");
    checkpoint(&participant, "another 3").await;
    drop((claim, participant));
    let (state, _participant) = start(&repository).await;
    assert_eq!(state.get(b"n").as_deref(), Some(&b"another 3"[..]));
}

#[tokio::test]
async fn damage_is_named_with_the_alternatives_and_nothing_falls_back_in_silence() {
    for remove in [false, true] {
        let store = Faulty::new();
        let repository = open(store.clone(), config()).await;
        let (_state, participant) = start(&repository).await;
        let older = checkpoint(&participant, "1").await.checkpoint;
        let before = store.names("/shared/").await;
        let newest = checkpoint(&participant, "2").await.checkpoint;
        let after = store.names("/shared/").await;
        let new = after.iter().find(|name| !before.contains(name)).unwrap();
        if remove {
            store.remove(new).await;
        } else {
            store.damage(new).await;
        }
        drop(participant);
        let claim = claim(&repository).await;
        let (_base, directory) = place();
        let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
        let kind = if remove {
            ErrorKind::Missing
        } else {
            ErrorKind::Corrupt
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(error.checkpoint(), Some(newest));
        assert!(new.ends_with(error.file().unwrap()), "{error}");
        assert_eq!(error.alternatives(), [older]);
        let options = RestoreOptions::new().fallback(1);
        let restored = in_time(claim.restore_with(&directory, &options))
            .await
            .unwrap();
        assert_eq!(restored.user_bytes(), Some(&b"1"[..]));
        assert_eq!(restored.passed_over(), [newest]);
    }
}

#[tokio::test]
async fn who_passed_over_what_is_told_and_shown_until_the_next_checkpoint() {
    let repository = open(Faulty::new(), config()).await;
    let (_state, participant) = start(&repository).await;
    let older = checkpoint(&participant, "1").await.checkpoint;
    let newest = checkpoint(&participant, "2").await.checkpoint;
    assert!(participant.events().try_next().is_none(), "nothing yet");
    in_time(participant.close()).await.unwrap();
    let shown = async || {
        let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
        let checkpoints = inspection.checkpoints().into_iter();
        let passed_over = checkpoints.filter(|info| info.is_passed_over);
        passed_over.map(|info| info.checkpoint).collect::<Vec<_>>()
    };
    assert_eq!(shown().await, []);

    // The second life restores what the first one's choice was, since nothing has completed since.
    for options in [RestoreOptions::new().fallback(1), RestoreOptions::new()] {
        let claim = claim(&repository).await;
        let (_base, directory) = place();
        let restored = in_time(claim.restore_with(&directory, &options))
            .await
            .unwrap();
        assert_eq!(restored.checkpoint(), Some(older));
        assert_eq!(restored.passed_over(), [newest]);
        let state = MemoryState::open(restored.directory()).unwrap();
        let participant = restored.attach(state).unwrap();
        // Nobody could listen when it happened: whoever does later is told first.
        for mut events in [participant.events(), participant.events()] {
            match events.try_next() {
                Some(ParticipantEvent::FellBack {
                    restored,
                    passed_over,
                }) => assert_eq!((restored, passed_over), (older, vec![newest])),
                other => panic!("{other:?}"),
            }
        }
        in_time(async {
            while shown().await != [newest] {
                tokio::task::yield_now().await;
            }
        })
        .await;
        in_time(participant.close()).await.unwrap();
    }

    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "another 2").await;
    assert_eq!(shown().await, []);
    in_time(participant.close()).await.unwrap();
    let (_state, participant) = start(&repository).await;
    assert!(participant.events().try_next().is_none());
}

#[tokio::test]
async fn a_restore_that_broke_off_goes_on() {
    let store = Faulty::new();
    let mut config = config();
    config.restore_tries_max = 2;
    let repository = open(store.clone(), config).await;
    let (base, directory) = place();
    let first = claim(&repository).await;
    let restored = in_time(first.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    for n in 0..8 {
        state.write(&format!("{n:06}.sst"), &[n; 100]);
    }
    let participant = restored.attach(state.clone()).unwrap();
    checkpoint(&participant, "1").await;
    let truth = state.read();
    drop((first, participant, state));

    let claim = claim(&repository).await;
    let target = base.path().join("elsewhere");
    store.set(|verb, name| match verb {
        Verb::Read if name.ends_with("/5") => {
            Fault::Failed(stillpoint::protocol::answer::FailureKind::Unavailable)
        }
        _ => Fault::None,
    });
    let error = in_time(claim.restore_into(&target)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.file().unwrap().ends_with("/5"), "{error}");
    assert!(error.is_retryable());
    assert!(!target.join("CURRENT").exists());
    store.heal();
    let restored = in_time(claim.restore_into(&target)).await.unwrap();
    assert_eq!(
        restored.report().kept_files,
        7,
        "what was fetched is not fetched again"
    );
    assert_eq!(Files::open(&target).read(), truth);
}

#[tokio::test]
async fn a_read_that_is_damaged_after_others_failed_is_tried_again() {
    let store = Faulty::new();
    let mut config = config();
    config.restore_tries_max = 2;
    let repository = open(store.clone(), config).await;
    let (_base, directory) = place();
    let first = claim(&repository).await;
    let restored = in_time(first.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    state.write("000001.sst", &[1; 100]);
    let participant = restored.attach(state.clone()).unwrap();
    checkpoint(&participant, "1").await;
    let truth = state.read();
    drop((first, participant, state));

    let (damaged, failed) = (FailureKind::Corrupt, FailureKind::Unavailable);
    for (first, second) in [(failed, damaged), (damaged, failed)] {
        let reads = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reads);
        store.set(move |verb, name| match verb {
            Verb::Read if name.ends_with("/1") => match counted.fetch_add(1, Ordering::Relaxed) {
                0 => Fault::Failed(first),
                1 => Fault::Failed(second),
                _ => Fault::None,
            },
            _ => Fault::None,
        });
        let claim = claim(&repository).await;
        let (_base, target) = place();
        let _restored = in_time(claim.restore_into(&target)).await.unwrap();
        assert_eq!(Files::open(&target).read(), truth);
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }
}

#[tokio::test]
async fn a_directory_that_is_not_to_be_touched_is_not() {
    let repository = open(Faulty::new(), config()).await;
    let claim = claim(&repository).await;
    let (base, directory) = place();
    fs::write(base.path().join("letters"), b"dear").unwrap();
    for path in [base.path().to_owned(), base.path().join("letters")] {
        let error = in_time(claim.restore_into(&path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(fs::read(base.path().join("letters")).unwrap(), b"dear");
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(restored);
    let _restored = in_time(claim.restore_into(&directory)).await.unwrap();
}

#[tokio::test]
async fn a_state_must_lie_where_it_was_restored_and_be_of_its_kind() {
    let repository = open(Faulty::new(), config()).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    drop(participant);
    let claim = claim(&repository).await;
    let (_base, directory) = place();
    let (_other_base, other) = place();
    fs::create_dir(&other).unwrap();
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let error = restored.attach(Files::open(&other)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let error = restored.attach(Files::open(&directory)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let participant = restored
        .attach(MemoryState::open(&directory).unwrap())
        .unwrap();
    let (_third_base, third) = place();
    let restored = in_time(claim.restore_into(&third)).await.unwrap();
    let error = restored.attach(MemoryState::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    checkpoint(&participant, "2").await;
}

#[tokio::test]
async fn a_directory_of_another_repository_is_not_wiped() {
    let (_base, directory) = place();
    let repository = open(Faulty::new(), config()).await;
    let first = claim(&repository).await;
    let restored = in_time(first.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    state.write("000001.sst", b"all there is");
    let participant = restored.attach(state.clone()).unwrap();
    checkpoint(&participant, "1").await;
    let truth = state.read();
    in_time(participant.close()).await.unwrap();
    drop((first, participant));

    // Another repository, by a wrong setting say, knows of no checkpoint: a first start.
    let other = open(Faulty::new(), config()).await;
    let claim = claim(&other).await;
    let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("orders/7"), "{error}");
    assert_eq!(state.read(), truth, "nothing is deleted");
    // The same once no file is there any more that was stored: all was compacted since.
    state.write("000002.sst", b"never stored");
    state.delete("000001.sst");
    let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert_eq!(state.read().len(), 1, "nothing is deleted");
    let options = RestoreOptions::new().replace_foreign_state();
    let restored = in_time(claim.restore_with(&directory, &options))
        .await
        .unwrap();
    assert!(restored.is_empty());
    assert!(!directory.join("000001.sst").exists());
}

/// Two participants whose directories were mixed up. Of this state no file is ever marked: all of it
/// goes into the pack.
#[tokio::test]
async fn a_directory_of_another_participant_is_not_wiped() {
    let repository = open(Faulty::new(), config()).await;
    let (state, participant) = start(&repository).await;
    state.put(b"apples", b"3");
    checkpoint(&participant, "1").await;
    in_time(participant.close()).await.unwrap();
    let (_base, directory) = place();
    let claim = claim(&repository).await;
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    drop((restored, claim));

    let other = in_time(repository.claim("orders/8")).await.unwrap();
    let error = in_time(other.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    for named in ["orders/7", "orders/8", &*directory.display().to_string()] {
        assert!(error.to_string().contains(named), "{error}");
    }
    let kept = MemoryState::open(&directory).unwrap();
    assert_eq!(kept.get(b"apples").as_deref(), Some(&b"3"[..]));
    let options = RestoreOptions::new().replace_foreign_state();
    let _restored = in_time(other.restore_with(&directory, &options))
        .await
        .unwrap();
    MemoryState::open(&directory).unwrap_err();
}

/// A state that began with nothing and died before its first checkpoint: it begins with nothing again.
#[tokio::test]
async fn what_a_first_life_made_is_gone_in_the_second() {
    let repository = open(Faulty::new(), config()).await;
    let (_base, directory) = place();
    for _ in 0..2 {
        let claim = claim(&repository).await;
        let restored = in_time(claim.restore_into(&directory)).await.unwrap();
        let state = Files::open(&directory);
        assert!(state.read().is_empty());
        let participant = restored.attach(state.clone()).unwrap();
        state.write("000001.sst", b"of the source's first lines");
        drop((participant, claim));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restore_that_is_too_late_ends_all_it_began() {
    let store = Faulty::new();
    let mut config = config();
    config.progress_deadline = Duration::from_millis(500);
    let repository = open(store.clone(), config).await;
    let (base, directory) = place();
    let claim = claim(&repository).await;
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let state = Files::open(&directory);
    for n in 0..8 {
        state.write(&format!("{n:06}.sst"), &[n; 100]);
    }
    let participant = restored.attach(state.clone()).unwrap();
    let taken = checkpoint(&participant, "1").await.checkpoint;

    let mut names = std::collections::BTreeSet::new();
    let mut silent = None;
    store.set(move |verb, name| {
        if verb != Verb::Read || !name.contains("/shared/") {
            return Fault::None;
        }
        if names.insert(name.to_owned()) && names.len() == 2 {
            // In the midst of something that can't be broken off.
            std::thread::sleep(Duration::from_millis(300));
        }
        // One is never read, so that the deadline passes; the others get there.
        if silent.get_or_insert_with(|| name.to_owned()) == name {
            Fault::Hangs
        } else {
            Fault::None
        }
    });
    let inspection = in_time(repository.inspect("orders/7")).await.unwrap();
    let elsewhere = base.path().join("elsewhere");
    let options = RestoreOptions::new().deadline(Duration::from_millis(50));
    let error = in_time(inspection.restore(taken, &elsewhere, &options))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    assert!(!elsewhere.exists(), "nothing half-filled is left");
    store.heal();
    let options = RestoreOptions::new().deadline(super::DEADLINE);
    in_time(inspection.restore(taken, &elsewhere, &options))
        .await
        .unwrap();
    assert_eq!(Files::open(&elsewhere).read(), state.read());
}

/// Attaches another state while it is being attached itself.
struct Overtaken {
    by: Mutex<Option<Restored>>,
    participant: Arc<Mutex<Option<Participant>>>,
}

impl StateBackend for Overtaken {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn attach(&self) -> Result<(), Failure> {
        let restored = self.by.lock().unwrap().take().unwrap();
        let participant = restored.attach(MemoryState::new()).unwrap();
        *self.participant.lock().unwrap() = Some(participant);
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        panic!("it was never attached")
    }
}

#[tokio::test]
async fn of_two_states_that_are_attached_at_once_one_is_refused() {
    let repository = open(Faulty::new(), config()).await;
    let claim = claim(&repository).await;
    let (base, directory) = place();
    let other = base.path().join("other");
    let restored = in_time(claim.restore_into(&directory)).await.unwrap();
    let by = Mutex::new(Some(in_time(claim.restore_into(&other)).await.unwrap()));
    let first = Arc::new(Mutex::new(None));
    let participant = Arc::clone(&first);
    let error = restored.attach(Overtaken { by, participant }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let participant = first.lock().unwrap().take().unwrap();
    checkpoint(&participant, "1").await;
}
