//! What is never removed, whatever is moved where at which moment.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::collections::BTreeSet;
use std::iter;
use std::path::Path;

use super::super::entries::contents;
use super::super::tests::{owner, stored, take, take_with};
use super::*;
use crate::protocol::id::RootId;

const MANIFEST: &str = "MANIFEST-000005";

/// What RocksDB has in a directory before anything is written to it.
fn make_database(path: &Path, identity: &str) {
    for (name, content) in [
        ("000004.log", ""),
        ("CURRENT", "MANIFEST-000005\n"),
        ("IDENTITY", identity),
        ("LOCK", ""),
        ("LOG", "lines"),
        ("LOG.old.1", "lines"),
        (MANIFEST, "records"),
        ("OPTIONS-000007", "options"),
    ] {
        fs::write(path.join(name), content).unwrap();
    }
}

/// The beginning of a MANIFEST: a record's head, and a database's name.
fn manifest(identity: &str) -> Vec<u8> {
    let length = u8::try_from(identity.len()).unwrap();
    let name = [&[0x81, 0x40, length], identity.as_bytes()].concat();
    [&[0; 7][..], &name, b"and so on"].concat()
}

fn move_in(path: &Path) {
    make_database(path, "moved in");
    fs::write(path.join("000009.sst"), b"the only copy").unwrap();
}

/// As `rm -rf directory/*` does.
fn empty(path: &Path) {
    for name in contents(path).unwrap() {
        if name != OWN_FOLDER {
            remove(&path.join(name)).unwrap();
        }
    }
}

/// Restored, up to its last step: what a checkpoint brings has no file with its name.
fn restore(path: &Path, identity: &str) -> StateDirectory {
    let directory = take(path).unwrap();
    directory.check_replaceable(Some(Epoch(2))).unwrap();
    directory.begin(&BTreeSet::new(), iter::empty()).unwrap();
    fs::write(path.join(MANIFEST), manifest(identity)).unwrap();
    fs::write(path.join(DATABASE), "MANIFEST-000005\n").unwrap();
    directory.finish(iter::empty(), None).unwrap();
    directory
}

fn is_unexplained<T: std::fmt::Debug>(result: Result<T, DirectoryError>) -> bool {
    match result {
        Err(DirectoryError::Unexplained { .. }) => true,
        Ok(_) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_first_start_that_died_begins_anew() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    let directory = take(path).unwrap();
    assert!(!directory.begin_anew().unwrap());
    // It died while it made its new database, or before it attached that.
    fs::write(path.join("MANIFEST-000001"), "records").unwrap();
    drop(directory);
    let directory = take(path).unwrap();
    assert!(!directory.begin_anew().unwrap());
    fs::remove_file(path.join("MANIFEST-000001")).unwrap();
    make_database(path, "one");
    drop(directory);
    let directory = take(path).unwrap();
    assert!(!directory.begin_anew().unwrap());
    assert!(path.join("CURRENT").exists(), "it is opened once more");
    assert_eq!(directory.note_attached(Epoch(3), None).unwrap(), None);
    fs::write(path.join("000008.sst"), b"made since").unwrap();
    drop(directory);
    // And after that.
    let directory = take(path).unwrap();
    assert!(matches!(directory.look().unwrap(), Found::Worth(_)));
    assert!(!directory.begin_anew().unwrap());
    assert_eq!(contents(path).unwrap(), [OWN_FOLDER, "LOCK"]);
}

/// Tables and logs may lie in other directories: of those, only the books know.
#[test]
fn the_books_of_a_database_are_never_removed_for_want_of_tables() {
    let with_log = |path: &Path| make_database(path, "with its log");
    let without_log = |path: &Path| {
        make_database(path, "its log lies elsewhere");
        fs::remove_file(path.join("000004.log")).unwrap();
    };
    for is_kept in [true, false] {
        let make = |path: &Path| {
            if is_kept {
                with_log(path);
            } else {
                without_log(path);
            }
        };
        let base = tempfile::tempdir().unwrap();
        let path = base.path();
        make(path);
        let before = contents(path).unwrap();
        let same = || {
            let mut now = contents(path).unwrap();
            now.retain(|name| name != OWN_FOLDER);
            now == before
        };
        // Adopted, whether the directory is noted as ours or not.
        assert!(take_with(path, Existing::Adopted).begin_anew().unwrap());
        assert!(same());
        empty(path);
        drop(take(path).unwrap());
        make(path);
        let directory = take_with(path, Existing::Adopted);
        assert!(directory.begin_anew().unwrap() && same());
        drop(directory);
        // Without that it is not removed either, nor for a checkpoint.
        let directory = take(path).unwrap();
        assert!(is_unexplained(directory.check_replaceable(Some(Epoch(5)))));
        assert_eq!(is_unexplained(directory.begin_anew()), !is_kept);
        assert!(same());
        if is_kept {
            let elsewhere = Some("tables elsewhere".to_owned());
            assert!(is_unexplained(directory.note_attached(Epoch(3), elsewhere)));
            assert_eq!(directory.ownership.lock().origin, Origin::Nothing);
        }
        drop(directory);
        // Nor is it once it was adopted and attached.
        let directory = take_with(path, Existing::Adopted);
        assert!(directory.begin_anew().unwrap());
        assert!(directory.note_attached(Epoch(4), None).unwrap().is_some());
        assert!(directory.is_adopted());
        drop(directory);
        let directory = take(path).unwrap();
        assert!(is_unexplained(directory.check_replaceable(Some(Epoch(5)))) && same());
    }
}

#[test]
fn names_that_begin_as_those_of_books_do_are_not_taken_for_them() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    drop(take(path).unwrap());
    for name in [
        "MANIFEST-of-cargo.txt",
        "LOG.old.archive",
        "OPTIONS-",
        "000001.log.txt",
    ] {
        let file = path.join(name);
        fs::write(&file, b"data").unwrap();
        assert!(is_unexplained(take(path).unwrap().begin_anew()), "{name}");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        fs::write(file.join("LOG"), b"data").unwrap();
        assert!(is_unexplained(take(path).unwrap().begin_anew()), "{name}");
        fs::remove_dir_all(&file).unwrap();
    }
    std::os::unix::fs::symlink("elsewhere", path.join("LOG")).unwrap();
    assert!(is_unexplained(take(path).unwrap().begin_anew()));
}

/// The only copy of a database, moved in at any moment, is never removed unless that is asked for.
#[test]
fn what_was_moved_in_stays() {
    let begun = |path: &Path| take(path).unwrap().begin_anew().map(drop).unwrap();
    let attached = |path: &Path| {
        let directory = take(path).unwrap();
        directory.begin_anew().unwrap();
        make_database(path, "its own");
        directory.note_attached(Epoch(3), None).unwrap();
    };
    let half_restored = |path: &Path| {
        let directory = take(path).unwrap();
        directory.begin(&BTreeSet::new(), iter::empty()).unwrap();
    };
    let restored = |path: &Path| drop(restore(path, "its own"));
    let no_database = |path: &Path| {
        let directory = take(path).unwrap();
        directory.begin(&BTreeSet::new(), iter::empty()).unwrap();
        fs::write(path.join("state.memory"), b"pairs").unwrap();
        directory.finish(iter::empty(), None).unwrap();
    };
    let half_cleared = |path: &Path| {
        let directory = take(path).unwrap();
        directory
            .note_origin(Origin::Clearing(b"its own".to_vec()))
            .unwrap();
    };
    let preloaded = |path: &Path| {
        let directory = take(path).unwrap();
        directory.begin_anew().unwrap();
        make_database(path, "its own");
        fs::write(path.join("000009.sst"), b"loaded").unwrap();
        assert!(directory.note_attached(Epoch(3), None).unwrap().is_some());
    };
    let stored = |path: &Path| {
        preloaded(path);
        take(path).unwrap().note_stored().unwrap();
    };
    let befores: [&dyn Fn(&Path); 8] = [
        &begun,
        &attached,
        &half_restored,
        &restored,
        &no_database,
        &half_cleared,
        &preloaded,
        &stored,
    ];
    for (number, before) in befores.into_iter().enumerate() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path();
        before(path);
        empty(path);
        move_in(path);
        let inside = contents(path).unwrap();
        for completed_in in [3, 9] {
            let directory = take(path).unwrap();
            let checked = directory.check_replaceable(Some(Epoch(completed_in)));
            assert!(is_unexplained(checked), "{number}");
        }
        assert!(is_unexplained(take(path).unwrap().begin_anew()), "{number}");
        assert_eq!(contents(path).unwrap(), inside, "{number}");

        let directory = take_with(path, Existing::Adopted);
        assert!(directory.begin_anew().unwrap(), "{number}");
        assert_eq!(contents(path).unwrap(), inside, "{number}");
        assert!(directory.note_attached(Epoch(4), None).unwrap().is_some());
        assert!(directory.is_adopted());
        drop(directory);
        assert!(is_unexplained(take(path).unwrap().begin_anew()), "{number}");
        let directory = take(path).unwrap();
        assert!(is_unexplained(directory.check_replaceable(Some(Epoch(5)))));
        directory.check_replaceable(Some(Epoch(4))).unwrap();
        directory.note_stored().unwrap();
        drop(directory);
        let directory = take(path).unwrap();
        directory.check_replaceable(Some(Epoch(5))).unwrap();
        drop(directory);

        let directory = take_with(path, Existing::Replaced);
        assert!(!directory.begin_anew().unwrap());
        assert!(!path.join("000009.sst").exists());
    }
}

/// What a restore has put there is replaced by the next one, dead at whatever step it was.
#[test]
fn what_was_restored_is_known_opened_or_not() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    for life in 0..3 {
        let directory = restore(path, "its own");
        let noted = Origin::Restored(Some(b"its own".to_vec()));
        assert_eq!(directory.ownership.lock().origin, noted, "{life}");
        drop(directory);
        // Opened, and dead before it is attached; or attached.
        fs::write(path.join("IDENTITY"), "its own").unwrap();
        take(path)
            .unwrap()
            .check_replaceable(Some(Epoch(2)))
            .unwrap();
        if life == 1 {
            take(path).unwrap().note_opened().unwrap();
        }
    }
    // In place, and dead before it was noted.
    let directory = restore(path, "its own");
    directory.note_origin(Origin::Filling(Vec::new())).unwrap();
    directory.check_replaceable(Some(Epoch(2))).unwrap();
    // A MANIFEST without a name: that is known once it is attached.
    directory.begin(&BTreeSet::new(), iter::empty()).unwrap();
    fs::write(path.join(DATABASE), "MANIFEST-000005\n").unwrap();
    directory.finish(iter::empty(), None).unwrap();
    assert_eq!(directory.ownership.lock().origin, Origin::Restored(None));
    fs::write(path.join("IDENTITY"), "made up\n").unwrap();
    directory.check_replaceable(Some(Epoch(2))).unwrap();
    directory.note_opened().unwrap();
    directory.check_replaceable(Some(Epoch(2))).unwrap();
    fs::write(path.join("IDENTITY"), "another").unwrap();
    assert!(is_unexplained(directory.check_replaceable(Some(Epoch(2)))));
}

#[test]
fn an_unmarked_database_is_adopted_if_that_is_asked_for_and_nothing_else_is() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    fs::write(path.join("letters"), b"dear").unwrap();
    let adopt = || StateDirectory::take(path, &owner("orders/7"), Existing::Adopted);
    assert!(matches!(adopt(), Err(DirectoryError::Foreign { .. })));
    assert_eq!(contents(path).unwrap(), ["letters"]);
    make_database(path, "another");
    let replace = StateDirectory::take(path, &owner("orders/7"), Existing::Replaced);
    assert!(matches!(replace, Err(DirectoryError::Foreign { .. })));
    fs::remove_file(path.join("letters")).unwrap();
    let directory = adopt().unwrap();
    assert!(directory.begin_anew().unwrap());
    let file = path.join("000001.sst");
    fs::write(&file, b"four").unwrap();
    directory
        .mark(RootId(9), &stored(1, "000001.sst", 4), &file)
        .unwrap_err();
    directory.note_attached(Epoch(3), None).unwrap();
    directory
        .mark(RootId(9), &stored(1, "000001.sst", 4), &file)
        .unwrap();
    assert_eq!(directory.marked().len(), 1);
}

/// The next restore would remove it: it is in no checkpoint of the database.
#[test]
fn what_lies_beside_a_database_is_not_adopted_with_it() {
    for (name, is_folder) in [
        ("service.toml", false),
        ("backups", true),
        ("lost", true),
        ("CURRENT.old", false),
        ("MANIFEST-000005.bak", false),
        ("000007.txt", false),
    ] {
        let base = tempfile::tempdir().unwrap();
        let path = base.path();
        move_in(path);
        let beside = path.join(name);
        if is_folder {
            fs::create_dir(&beside).unwrap();
        } else {
            fs::write(&beside, b"precious").unwrap();
        }
        fs::create_dir(path.join("lost+found")).unwrap();
        fs::create_dir(path.join("archive")).unwrap();
        fs::write(path.join("archive/000003.log"), b"old").unwrap();
        let before = contents(path).unwrap();
        let directory = take_with(path, Existing::Adopted);
        let refused = directory.begin_anew().unwrap_err();
        assert!(
            matches!(&refused, DirectoryError::Mixed { found, .. } if found == name),
            "{refused}"
        );
        drop(directory);
        assert_eq!(contents(path).unwrap(), before, "nothing is left behind");
        remove(&beside).unwrap();
        assert!(take_with(path, Existing::Adopted).begin_anew().unwrap());
        fs::write(path.join("archive/notes"), b"precious").unwrap();
        let refused = take_with(path, Existing::Adopted).begin_anew();
        assert!(matches!(refused, Err(DirectoryError::Mixed { .. })));
    }
}

/// What is not attached is not taken: whoever erred has done nothing.
#[test]
fn an_adoption_is_noted_only_when_the_state_is_attached() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    move_in(path);
    let before = contents(path).unwrap();
    let by_mistake = StateDirectory::take(path, &owner("orders/8"), Existing::Adopted).unwrap();
    assert!(by_mistake.begin_anew().unwrap());
    let at_once = StateDirectory::take(path, &owner("orders/7"), Existing::Adopted);
    assert!(matches!(at_once, Err(DirectoryError::InUse { .. })));
    drop(by_mistake);
    assert_eq!(contents(path).unwrap(), before);
    let directory = take_with(path, Existing::Adopted);
    let refused = directory.check_replaceable(Some(Epoch(3)));
    assert!(is_unexplained(refused));
    drop(directory);
    assert_eq!(contents(path).unwrap(), before);
    let directory = take_with(path, Existing::Adopted);
    directory.begin_anew().unwrap();
    directory.note_attached(Epoch(3), None).unwrap();
    drop(directory);
    let other = StateDirectory::take(path, &owner("orders/8"), Existing::Adopted);
    assert!(matches!(other, Err(DirectoryError::AnotherOwner { .. })));
}

/// Nobody is sent where the same answer waits.
#[test]
fn what_is_advised_is_possible() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    drop(take(path).unwrap());
    fs::write(path.join("letters"), b"dear").unwrap();
    let words = |completed_in: Option<u64>| {
        let directory = take(path).unwrap();
        let checked = directory.check_replaceable(completed_in.map(Epoch));
        checked.unwrap_err().to_string()
    };
    assert!(!words(None).contains("adopt_existing"), "{}", words(None));
    fs::remove_file(path.join("letters")).unwrap();
    move_in(path);
    assert!(words(None).contains("adopt_existing"));
    assert!(!words(Some(5)).contains("adopt_existing"));
    let directory = take_with(path, Existing::Adopted);
    directory.begin_anew().unwrap();
    directory.note_attached(Epoch(4), None).unwrap();
    drop(directory);
    assert!(
        words(None).contains("no complete checkpoint"),
        "{}",
        words(None)
    );
    let lost = words(Some(6));
    assert!(
        lost.contains("adopted in epoch 4") && lost.contains("epoch 6"),
        "{lost}"
    );
    assert!(!lost.contains("adopt_existing"), "{lost}");
}

/// Whatever the option: what is stored there, a restore would remove.
#[test]
fn a_directory_with_an_open_repository_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    let root = path.join("checkpoints");
    fs::create_dir(&root).unwrap();
    let open = crate::open_roots::OpenRoot::new(&root);
    for existing in [Existing::Refused, Existing::Adopted, Existing::Replaced] {
        for at in [path.to_owned(), root.clone(), root.join("absent/below")] {
            let refused = StateDirectory::take(&at, &owner("orders/7"), existing).unwrap_err();
            assert!(
                matches!(refused, DirectoryError::Repository { .. }),
                "{refused}"
            );
        }
    }
    assert_eq!(contents(path).unwrap(), ["checkpoints"]);
    assert!(contents(&root).unwrap().is_empty());
    take(&path.join("beside")).unwrap();
    drop(open);
}

#[test]
fn a_directory_inside_another_states_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let outer = base.path().join("outer");
    let directory = take(&outer).unwrap();
    directory.begin_anew().unwrap();
    for at in [outer.join("inner"), outer.join("absent/../inner/below")] {
        let refused = StateDirectory::take(&at, &owner("orders/8"), Existing::Adopted).unwrap_err();
        assert!(
            matches!(refused, DirectoryError::Inside { .. }),
            "{refused}"
        );
    }
    assert!(!outer.join("inner").exists());
    drop(directory);
    take(&outer).unwrap();
    take(&base.path().join("beside")).unwrap();
}
