//! What is taken, kept, removed and refused.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::os::unix::fs::MetadataExt as _;

use super::entries::above;
use super::*;
use crate::protocol::answer::Checksum;
use crate::protocol::id::AttemptId;
use crate::state::pack::Pack;
use crate::steps::recorded::local_steps;

pub(super) fn local(text: &str) -> LocalName {
    LocalName::new(text).unwrap()
}

pub(super) fn owner(participant: &str) -> Owner {
    Owner {
        root: RootId(9),
        participant: participant.to_owned(),
    }
}

pub(super) fn take(path: &Path) -> Result<StateDirectory, DirectoryError> {
    StateDirectory::take(path, &owner("orders/7"), Existing::Refused)
}

pub(super) fn take_with(path: &Path, existing: Existing) -> StateDirectory {
    StateDirectory::take(path, &owner("orders/7"), existing).unwrap()
}

pub(super) fn stored(number: u64, text: &str, size_bytes: u64) -> FileDescription {
    FileDescription {
        name: FileName {
            attempt: AttemptId(1),
            number,
        },
        local: local(text),
        kind: FileKind::State,
        digest: Digest {
            size_bytes,
            checksum: Checksum(number),
        },
    }
}

#[test]
fn an_absent_and_an_empty_directory_are_taken() {
    let base = tempfile::tempdir().unwrap();
    let absent = base.path().join("made/when absent/Käse");
    assert!(take(&absent).unwrap().was_empty());
    fs::create_dir(base.path().join("volume")).unwrap();
    fs::create_dir(base.path().join("volume").join(LOST_AND_FOUND)).unwrap();
    let volume = take(&base.path().join("volume")).unwrap();
    assert!(volume.was_empty());
    volume.clear().unwrap();
    assert!(base.path().join("volume").join(LOST_AND_FOUND).exists());
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("letters"), b"dear").unwrap();
    let error = take(base.path()).unwrap_err();
    assert!(matches!(&error, DirectoryError::Foreign { found, .. } if found == "letters"));
    assert_eq!(contents(base.path()).unwrap(), ["letters"]);
    let file = base.path().join("letters");
    for path in [file.clone(), file.join("below")] {
        let error = take(&path).unwrap_err();
        assert!(
            matches!(error, DirectoryError::NotADirectory { .. }),
            "{error}"
        );
    }
}

#[test]
fn one_user_at_a_time() {
    let base = tempfile::tempdir().unwrap();
    let one = take(base.path()).unwrap();
    let error = take(base.path()).unwrap_err();
    assert!(matches!(error, DirectoryError::InUse { .. }), "{error}");
    let own = format!("this process ({})", std::process::id());
    assert!(error.to_string().contains(&own), "{error}");
    drop(one);
    take(base.path()).unwrap();
}

#[test]
fn the_lock_of_a_database_is_never_replaced() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    fs::write(base.path().join(DATABASE_LOCK), b"").unwrap();
    let inode = || fs::metadata(base.path().join(DATABASE_LOCK)).unwrap().ino();
    let before = inode();
    directory.clear().unwrap();
    assert_eq!(inode(), before);
    drop(directory);
    // Nobody locks it.
    take(base.path()).unwrap();
}

#[test]
fn only_marked_files_stay_and_only_if_they_are_wanted() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    directory.clear().unwrap();
    fs::create_dir(base.path().join("cold")).unwrap();
    for (number, text) in [(1, "000001.sst"), (2, "cold/000002.sst"), (3, "000003.sst")] {
        let path = base.path().join(text);
        fs::write(&path, b"four").unwrap();
        directory
            .mark(RootId(9), &stored(number, text, 4), &path)
            .unwrap();
    }
    fs::write(base.path().join("CURRENT"), b"").unwrap();
    fs::write(base.path().join("000004.log"), b"").unwrap();
    fs::create_dir_all(base.path().join("archive/deep")).unwrap();
    std::os::unix::fs::symlink("/", base.path().join("link")).unwrap();
    // Written after it was marked.
    fs::write(base.path().join("000003.sst"), b"five!").unwrap();
    let marked: Vec<_> = directory
        .marked()
        .into_iter()
        .map(|file| file.local)
        .collect();
    assert_eq!(marked, [local("000001.sst"), local("cold/000002.sst")]);
    let keep = BTreeSet::from([local("cold/000002.sst")]);
    directory
        .begin(&keep, [&stored(5, "warm/000005.sst", 4)].into_iter())
        .unwrap();
    assert_eq!(contents(base.path()).unwrap(), [OWN_FOLDER, "cold", "warm"]);
    assert_eq!(directory.marked().len(), 1);
    drop(directory);
    let directory = take(base.path()).unwrap();
    assert!(!directory.was_empty());
    assert_eq!(directory.marked()[0].name.number, 2);
}

/// A machine that fails forgets what was not synced: first what makes a database of the directory
/// must be gone for good, then every folder must be there for what is in it.
#[test]
fn what_is_removed_first_and_made_on_the_way_is_durable() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    fs::write(base.path().join(DATABASE), b"MANIFEST-000005\n").unwrap();
    let file = stored(1, "one/two/000001.sst", 4);
    let at = |below: &str| base.path().join(below).display().to_string();
    let top = base.path().display().to_string();
    let step = |step: &str, path: String| (step.to_owned(), path);
    let begun = local_steps(|| {
        let nothing = BTreeSet::new();
        directory.begin(&nothing, [&file].into_iter()).unwrap();
    });
    let own = |name: &str| at(&format!("{OWN_FOLDER}/{name}"));
    assert_eq!(
        begun[..5],
        [
            step("write", own(OURS_UNFINISHED)),
            step("rename", own(OURS)),
            step("sync directory", at(OWN_FOLDER)),
            step("remove", at(DATABASE)),
            step("sync directory", top.clone())
        ]
    );
    let finished = local_steps(|| {
        let files = [&file.local].into_iter();
        directory.finish(files, None).unwrap();
    });
    for folder in [at("one/two"), at("one"), top] {
        let synced = step("sync directory", folder);
        assert!(finished.contains(&synced), "{synced:?} in {finished:?}");
    }
}

#[test]
fn a_directory_is_a_database_from_the_last_step_to_the_next_change() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    let mut pack = Pack::new();
    pack.push(local("MANIFEST-000005"), vec![1]).unwrap();
    pack.push(local("CURRENT"), vec![2]).unwrap();
    let mut wanted = stored(1, PACK_NAME, pack.size_bytes());
    wanted.kind = FileKind::Pack;
    let nothing = BTreeSet::new();
    directory.begin(&nothing, [&wanted].into_iter()).unwrap();
    let stored_pack = pack.encode().unwrap();
    fs::write(directory.place(&wanted), &stored_pack).unwrap();
    directory.clear().unwrap();
    assert!(
        !directory.place(&wanted).exists(),
        "of a restore that was broken off"
    );
    directory.begin(&nothing, [&wanted].into_iter()).unwrap();
    fs::write(directory.place(&wanted), &stored_pack).unwrap();
    let pack = directory.open_pack().unwrap();
    assert!(!base.path().join("CURRENT").exists());
    directory.finish(std::iter::empty(), Some(pack)).unwrap();
    assert!(base.path().join("CURRENT").exists());
    let own = contents(&base.path().join(OWN_FOLDER)).unwrap();
    assert_eq!(
        own,
        [LOCK, OURS, MARKS],
        "nothing is left that nobody reads"
    );
    directory.clear().unwrap();
    assert!(!base.path().join("CURRENT").exists());
}

#[test]
fn a_lost_mark_costs_nothing_but_a_download() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    let path = base.path().join("000001.sst");
    fs::write(&path, b"four").unwrap();
    assert!(
        directory
            .mark(RootId(9), &stored(1, "000001.sst", 4), &path)
            .is_err()
    );
    directory
        .begin(&BTreeSet::from([local("000001.sst")]), std::iter::empty())
        .unwrap();
    assert!(path.exists());
    assert!(directory.marked().is_empty());
}

#[test]
fn what_dead_snapshots_left_goes_and_what_living_ones_hold_stays() {
    let base = tempfile::tempdir().unwrap();
    let (state, outside) = (base.path().join("state"), base.path().join("outside"));
    let directory = take(&state).unwrap();
    let snapshots = state.join(OWN_FOLDER).join(SNAPSHOTS_NAME);
    for folder in [&snapshots, &outside] {
        let dead = folder.join("attempt-00000000deadbeef");
        fs::create_dir_all(&dead).unwrap();
        fs::write(dead.join("0-000007.sst"), b"bytes").unwrap();
    }
    let living = AttemptDirectory::create(&snapshots).unwrap();
    directory.clear().unwrap();
    let living_name = living.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(contents(&snapshots).unwrap(), [LOCK, living_name]);
    drop(living);

    fs::remove_dir_all(&snapshots).unwrap();
    std::os::unix::fs::symlink(&outside, &snapshots).unwrap();
    directory.clear().unwrap();
    assert!(fs::symlink_metadata(&snapshots).is_err());
    assert_eq!(contents(&outside).unwrap(), ["attempt-00000000deadbeef"]);
}

/// A pipe that nobody writes to, in the place of each file of ours: no call waits for it.
#[test]
fn nobody_waits_for_a_pipe() {
    let pipe = |path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(path);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    };
    let attempt = "snapshots/attempt-00000000deadbeef/LOCK";
    for (name, is_refused) in [
        (LOCK, true),
        (MARKS, false),
        (MARKS_UNFINISHED, false),
        ("snapshots/LOCK", true),
        (attempt, false),
        ("../LOCK", false),
    ] {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().to_owned();
        take(&state).unwrap().clear().unwrap();
        pipe(&state.join(OWN_FOLDER).join(name));
        let (done, waiting) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let cleared = take(&state).map(|directory| {
                assert!(directory.marked().is_empty());
                directory.clear()
            });
            let failed = match cleared {
                Ok(cleared) => cleared.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            done.send(failed).unwrap();
        });
        let failed = waiting.recv_timeout(std::time::Duration::from_secs(20));
        let failed = failed.unwrap_or_else(|_| panic!("{name} was waited for"));
        assert_eq!(failed.is_some(), is_refused, "{name}: {failed:?}");
        assert!(failed.is_none_or(|text| text.contains("not a regular file")));
    }
}

#[test]
fn every_directory_that_got_a_new_entry_is_told() {
    let base = tempfile::tempdir().unwrap();
    let at = |text| base.path().join(text);
    assert_eq!(
        make(&at("a/b/c")).unwrap(),
        [at("a/b"), at("a"), base.path().to_owned()]
    );
    assert!(make(&at("a/b/c")).unwrap().is_empty());
    assert_eq!(above(Path::new("state")), Path::new("."));
    assert_eq!(above(Path::new("/")), Path::new("/"));
}

#[test]
fn whose_a_directory_is_does_not_hang_on_what_lies_in_it() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    drop(take(path).unwrap());
    fs::write(path.join("state.memory"), b"all there is").unwrap();
    let other_root = Owner {
        root: RootId(8),
        ..owner("orders/7")
    };
    for other in [owner("orders/8"), other_root] {
        for existing in [Existing::Refused, Existing::Adopted] {
            let error = StateDirectory::take(path, &other, existing).unwrap_err();
            let DirectoryError::AnotherOwner { found, wanted, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!((found, wanted), (&owner("orders/7"), &other));
            assert!(error.to_string().contains("orders/7"), "{error}");
        }
    }
    assert_eq!(
        fs::read(path.join("state.memory")).unwrap(),
        b"all there is"
    );
    let other = owner("orders/8");
    let directory = StateDirectory::take(path, &other, Existing::Replaced).unwrap();
    directory.begin_anew().unwrap();
    drop(directory);
    assert!(!path.join("state.memory").exists());
    StateDirectory::take(path, &other, Existing::Refused).unwrap();
}

#[test]
fn a_mark_that_says_nothing_allows_nothing() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path();
    drop(take(path).unwrap());
    fs::write(path.join("state.memory"), b"all there is").unwrap();
    let ours = path.join(OWN_FOLDER).join(OURS);
    let good = fs::read(&ours).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&ours, bytes).unwrap();
        for existing in [Existing::Refused, Existing::Adopted] {
            let taken = StateDirectory::take(path, &owner("orders/7"), existing);
            assert!(matches!(taken, Err(DirectoryError::UnreadableMark { .. })));
        }
        assert_eq!(
            fs::read(path.join("state.memory")).unwrap(),
            b"all there is"
        );
        assert_eq!(fs::read(&ours).unwrap(), bytes);
    };
    for length in 0..good.len() {
        refused(&good[..length]);
    }
    for byte in 0..good.len() {
        let mut bad = good.clone();
        bad[byte] ^= 0x10;
        refused(&bad);
    }
    refused(&[&good[..], b"more"].concat());
    fs::write(&ours, &good).unwrap();
    take(path).unwrap();
}

#[test]
fn marks_that_can_not_be_used_are_counted() {
    let base = tempfile::tempdir().unwrap();
    take(base.path()).unwrap().clear().unwrap();
    let marks = base.path().join(OWN_FOLDER).join(MARKS);
    for (lost, bytes) in [(0, None), (1, Some(b"not marks")), (0, None)] {
        let _ = fs::remove_file(&marks);
        if let Some(bytes) = bytes {
            fs::write(&marks, bytes).unwrap();
        }
        let directory = take(base.path()).unwrap();
        assert!(directory.marked().is_empty());
        assert_eq!(directory.lost_marks(), lost);
    }
    let file = File::create(&marks).unwrap();
    file.set_len(1 << 40).unwrap();
    let directory = take(base.path()).unwrap();
    assert!(directory.marked().is_empty());
    assert_eq!(
        directory.lost_marks(),
        1,
        "larger than any that was written"
    );
}

/// A life stores new files for months: what it keeps of that grows with those that are there.
#[test]
fn marks_are_bounded_by_the_files_there_are() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    directory.clear().unwrap();
    let marks = base.path().join(OWN_FOLDER).join(MARKS);
    let path = |number: u64| base.path().join(format!("{number:06}.sst"));
    let mut largest = 0;
    for number in 0..4 * MARKS_ADDED_LEAST as u64 {
        fs::write(path(number), b"four").unwrap();
        let file = stored(number, &format!("{number:06}.sst"), 4);
        directory.mark(RootId(9), &file, &path(number)).unwrap();
        largest = largest.max(fs::metadata(&marks).unwrap().len());
        if let Some(older) = number.checked_sub(10) {
            fs::remove_file(path(older)).unwrap();
        }
    }
    let one = fs::metadata(&marks).unwrap().len() / directory.marked().len() as u64;
    assert!(
        largest < 100 * (MARKS_ADDED_LEAST as u64 + 10),
        "{largest} bytes, {one} each"
    );
    let numbers: Vec<_> = directory
        .marked()
        .into_iter()
        .map(|file| file.name.number)
        .collect();
    let last = 4 * MARKS_ADDED_LEAST as u64;
    assert_eq!(numbers, (last - 10..last).collect::<Vec<_>>());
}

/// Each kept file is looked up, not compared with all others.
#[test]
fn many_files_are_kept_in_folders_whose_names_begin_alike() {
    let base = tempfile::tempdir().unwrap();
    let directory = take(base.path()).unwrap();
    let kept = ["a/b/1", "a/b-/1", "ab/1", "a.1"];
    let others = ["a/b/2", "a/c/1", "ac/1", "a-/1", "b/a/b/1"];
    for name in kept.iter().chain(&others) {
        let path = base.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let keep = kept.iter().map(|name| local(name)).collect();
    directory.begin(&keep, std::iter::empty()).unwrap();
    for name in kept {
        assert_eq!(fs::read(base.path().join(name)).unwrap(), name.as_bytes());
    }
    assert_eq!(
        contents(base.path()).unwrap(),
        [OWN_FOLDER, "a", "a.1", "ab"]
    );
    assert_eq!(contents(&base.path().join("a")).unwrap(), ["b", "b-"]);
    assert_eq!(contents(&base.path().join("a/b")).unwrap(), ["1"]);
}
