//! States that were there before the library, until a checkpoint of them is complete.

use std::fs;
use std::path::Path;
use std::time::Duration;

use stillpoint::{ErrorKind, RestoreOptions};

use super::faulty::Faulty;
use super::files::Files;
use super::{checkpoint, claim, config, in_time, open, place};

/// A state that was there before the library.
fn put_old_state(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("000001.sst"), b"the only copy").unwrap();
    fs::write(directory.join("CURRENT"), b"000001.sst").unwrap();
}

/// Adopting a state, with a crash at each moment: it is there until a checkpoint of it is.
#[tokio::test]
async fn an_adopted_state_is_never_lost() {
    let repository = open(Faulty::new(), config()).await;
    let (base, directory) = place();
    let adopt = RestoreOptions::new().adopt_existing();

    // Moved in behind the library's back, after an empty start that died.
    let first = claim(&repository).await;
    let restored = in_time(first.restore_into(&directory)).await.unwrap();
    assert!(restored.is_empty());
    put_old_state(&directory);
    drop((restored, first));
    let truth = Files::open(&directory).read();
    assert_eq!(truth["000001.sst"], b"the only copy");
    for _ in 0..2 {
        let claim = claim(&repository).await;
        let error = in_time(claim.restore_into(&directory)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("adopt_existing"), "{error}");
        assert_eq!(Files::open(&directory).read(), truth);
    }
    // Adopted, attached, dead before its checkpoint; over and over.
    for _ in 0..2 {
        let claim = claim(&repository).await;
        let restored = in_time(claim.restore_with(&directory, &adopt))
            .await
            .unwrap();
        assert!(restored.is_empty());
        let state = Files::open(&directory);
        assert_eq!(state.read(), truth);
        drop(restored.attach(state).unwrap());
    }
    let last = claim(&repository).await;
    let error = in_time(last.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    // Elsewhere the participant begins without it, and has a checkpoint: of the adopted one there is
    // none all the same.
    let elsewhere = base.path().join("elsewhere");
    let restored = in_time(last.restore_into(&elsewhere)).await.unwrap();
    let participant = restored.attach(Files::open(&elsewhere)).unwrap();
    checkpoint(&participant, "without it").await;
    in_time(participant.close()).await.unwrap();
    drop((participant, last));
    let last = claim(&repository).await;
    let error = in_time(last.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(Files::open(&directory).read(), truth);
}

#[tokio::test]
async fn an_adopted_state_is_like_any_other_once_it_has_a_checkpoint() {
    let repository = open(Faulty::new(), config()).await;
    let (_base, directory) = place();
    put_old_state(&directory);
    let adopt = RestoreOptions::new().adopt_existing();
    let first = claim(&repository).await;
    let error = in_time(first.restore_into(&directory)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let restored = in_time(first.restore_with(&directory, &adopt))
        .await
        .unwrap();
    let state = Files::open(&directory);
    let participant = restored.attach(state.clone()).unwrap();
    checkpoint(&participant, "1").await;
    let truth = state.read();
    state.write("000002.sst", b"in no checkpoint");
    drop((participant, first, state));
    for options in [RestoreOptions::new(), adopt] {
        let claim = claim(&repository).await;
        let restored = in_time(claim.restore_with(&directory, &options))
            .await
            .unwrap();
        assert_eq!(restored.report().kept_files, 1, "it was marked");
        assert_eq!(Files::open(&directory).read(), truth);
    }
}

/// It is stored, and died before it noted that; another life has gone on elsewhere since.
#[tokio::test]
async fn an_adopted_state_is_known_by_what_was_stored_of_it() {
    let repository = open(Faulty::new(), config()).await;
    let (base, directory) = place();
    put_old_state(&directory);
    let adopt = RestoreOptions::new().adopt_existing();
    let first = claim(&repository).await;
    let restored = in_time(first.restore_with(&directory, &adopt)).await;
    let participant = restored.unwrap().attach(Files::open(&directory)).unwrap();
    let note = directory.join(".stillpoint/OURS");
    let adopted = fs::read(&note).unwrap();
    checkpoint(&participant, "1").await;
    in_time(participant.close()).await.unwrap();
    drop((participant, first));
    // It is noted beside everything else.
    let noted = async {
        while fs::read(&note).unwrap() == adopted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(noted).await;
    fs::write(&note, &adopted).unwrap();

    let elsewhere = base.path().join("elsewhere");
    for drops_it in [false, true] {
        let next = claim(&repository).await;
        let restored = in_time(next.restore_into(&elsewhere)).await.unwrap();
        let state = Files::open(&elsewhere);
        let participant = restored.attach(state.clone()).unwrap();
        if drops_it {
            state.write("000002.sst", b"all of it");
            state.delete("000001.sst");
        }
        checkpoint(&participant, "2").await;
        in_time(participant.close()).await.unwrap();
        drop((participant, next));
        let next = claim(&repository).await;
        let restored = in_time(next.restore_into(&directory)).await;
        if drops_it {
            // Nothing tells any more that it was ever stored.
            let error = restored.unwrap_err();
            assert!(error.to_string().contains("is not known"), "{error}");
        } else {
            assert_eq!(restored.unwrap().report().kept_files, 1);
            fs::write(&note, &adopted).unwrap();
        }
    }
}
