//! Where a repository may begin, and which state belongs to which directory.

use std::fs;
use std::path::Path;

use stillpoint::{ErrorKind, FileSystem, MemoryState, Repository};

use super::{checkpoint, claim, config, in_time, open, place, start};

async fn refused(root: &Path, words: &str) {
    for store in [
        FileSystem::at(root),
        FileSystem::at(root).must_exist(),
        FileSystem::at(root).read_only(),
    ] {
        let error = in_time(Repository::open(store)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_repository_begins_only_where_nothing_else_is() {
    let base = tempfile::tempdir().unwrap();
    let home = base.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("letters"), b"dear").unwrap();
    refused(&home, "letters").await;
    assert_eq!(names(&home), ["letters"], "it is left as it was");

    let volume = base.path().join("volume");
    fs::create_dir_all(volume.join("lost+found")).unwrap();
    let repository = open(FileSystem::at(&volume), config()).await;
    let (_state, participant) = start(&repository).await;
    checkpoint(&participant, "1").await;
    in_time(participant.close()).await.unwrap();
    let again = open(FileSystem::at(&volume), config()).await;
    assert_eq!(again.participants().await.unwrap(), ["orders/7"]);
    let part = volume.join(again.folder("orders/7").unwrap());
    refused(&part, "one participant").await;
}

/// A restore would remove the checkpoints.
#[tokio::test]
async fn no_repository_begins_in_a_states_directory() {
    let base = tempfile::tempdir().unwrap();
    let repository = open(FileSystem::at(base.path().join("root")), config()).await;
    let state = base.path().join("state");
    let restored = in_time(claim(&repository).await.restore_into(&state))
        .await
        .unwrap();
    for root in [state.clone(), state.join("checkpoints/deep")] {
        let error = in_time(Repository::open(FileSystem::at(&root)))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("of a state"), "{error}");
    }
    std::os::unix::fs::symlink(&state, base.path().join("link")).unwrap();
    refused(&base.path().join("link"), "of a state").await;
    assert_eq!(names(restored.directory()), [".stillpoint"]);
}

/// Trouble with the file system is told once.
#[tokio::test]
async fn what_kind_of_trouble_it_is_is_said_once() {
    let repository = open(stillpoint::Memory::new(), config()).await;
    let (_base, directory) = place();
    let claim = claim(&repository).await;
    drop(in_time(claim.restore_into(&directory)).await.unwrap());
    fs::remove_file(directory.join(".stillpoint/LOCK")).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    let lock = directory.join(".stillpoint/LOCK");
    rustix::fs::mknodat(rustix::fs::CWD, &lock, kind, mode, 0).unwrap();
    let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
    let (text, kind) = (error.to_string(), format!("{}: ", error.kind()));
    assert_eq!(text.matches(&kind).count(), 1, "{text}");
    assert!(
        text.contains("locking") && error.cause_kind().is_some(),
        "{text}"
    );
}

#[tokio::test]
async fn a_state_that_was_made_anew_is_not_the_restored_one() {
    let repository = open(stillpoint::Memory::new(), config()).await;
    let (state, participant) = start(&repository).await;
    state.put(b"a", b"1");
    checkpoint(&participant, "1").await;
    in_time(participant.close()).await.unwrap();
    let (_base, elsewhere) = place();
    let first = in_time(claim(&repository).await.restore_into(&elsewhere))
        .await
        .unwrap();
    let other = MemoryState::open(first.directory()).unwrap();
    for wrong in [MemoryState::new(), other] {
        let claim = claim(&repository).await;
        let (_base, directory) = place();
        let restored = in_time(claim.restore_into(&directory)).await.unwrap();
        let error = restored.attach(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let path = directory.display().to_string();
        assert!(error.to_string().contains(&path), "{error}");
    }
    let (state, _participant) = start(&repository).await;
    assert_eq!(state.get(b"a").as_deref(), Some(&b"1"[..]));
}

/// What a user needs is named at the crate's root.
#[tokio::test]
async fn ids_and_configuration_are_at_hand() {
    let mut config = config();
    config.checkpoints = stillpoint::CoordinatorConfig {
        num_retained: 1,
        ..config.checkpoints
    };
    let repository = open(stillpoint::Memory::new(), config).await;
    let (_state, participant) = start(&repository).await;
    participant.blocking_prepare();
    let taken: stillpoint::CheckpointId = checkpoint(&participant, "1").await.checkpoint;
    assert_eq!(participant.retained(), [taken]);
}
