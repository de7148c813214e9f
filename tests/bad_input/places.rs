//! Wrong things in every place of a root on disk: other objects, other formats, other kinds of
//! files, nothing at all.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use stillpoint::protocol::id::ObjectName;
use stillpoint::protocol::manifest::{FORMAT_VERSION, FRAME_BYTES, checksum};
use stillpoint::{ErrorKind, FileSystem};
use tokio::task::JoinSet;

use crate::world::{FOLDER, PARTICIPANT, Template, is_typed, open, parse, tree, write_tree};

/// How many of the other objects are tried in the place of each.
const OTHERS: usize = 3;

/// Something that does not belong where it is.
#[derive(Clone, Debug)]
enum Wrong {
    Bytes(&'static str, Vec<u8>),
    Nothing,
    Folder,
    LinkToFile,
    LinkToFolder,
    LinkToNothing,
    Pipe,
    /// A file of this length without any blocks.
    Hole(u64),
}

impl Wrong {
    fn put(&self, path: &Path, outside: &Path) {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            fs::remove_dir_all(path).unwrap();
        } else {
            let _ = fs::remove_file(path);
        }
        match self {
            Self::Bytes(_, bytes) => fs::write(path, bytes).unwrap(),
            Self::Nothing => {}
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::LinkToFile => symlink(outside.join("secret"), path).unwrap(),
            Self::LinkToFolder => symlink(outside, path).unwrap(),
            Self::LinkToNothing => symlink(outside.join("nothing"), path).unwrap(),
            Self::Pipe => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
            Self::Hole(length) => fs::File::create(path).unwrap().set_len(*length).unwrap(),
        }
    }
}

/// A whole object with some bytes of its header changed, its checksum right.
fn resealed(good: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    const CHECKSUM_AT: usize = 20;
    let mut object = good.to_vec();
    object[at..at + bytes.len()].copy_from_slice(bytes);
    let mut summed = object[..CHECKSUM_AT].to_vec();
    summed.extend_from_slice(&object[FRAME_BYTES..]);
    object[CHECKSUM_AT..FRAME_BYTES].copy_from_slice(&checksum(&summed).0.to_le_bytes());
    object
}

struct Place {
    base: tempfile::TempDir,
}

impl Place {
    fn new(template: &Template) -> Self {
        let base = tempfile::tempdir().unwrap();
        write_tree(&base.path().join("root"), &template.objects);
        fs::create_dir(base.path().join("outside")).unwrap();
        fs::write(base.path().join("outside/secret"), b"secret").unwrap();
        Self { base }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("root")
    }
}

/// What came of it: a guest's look and a holder's take-over.
type Came = (stillpoint::Result<()>, stillpoint::Result<()>);

/// Puts something wrong into a place, looks, takes over. Whatever comes of it: an error is typed, a
/// failed call changed nothing, a successful one lost nothing, and outside of the root nothing
/// happened.
async fn spoil(template: &Template, name: &str, wrong: &Wrong) -> Came {
    let place = Place::new(template);
    wrong.put(&place.root().join(name), &place.path("outside"));
    let context = format!("{name} is {wrong:?}");
    let before = tree(place.base.path());
    let store = FileSystem::at(place.root());
    let looked = template.look(&open(store.clone()).await).await;
    assert_eq!(tree(place.base.path()), before, "{context}");
    if let Err(error) = &looked {
        assert!(
            is_typed(error.kind()),
            "{context}: {:?} {error}",
            error.kind()
        );
    }
    let local = place.path("local");
    let taken = template.take_over(&open(store).await, &local).await;
    let claimed = local.exists();
    let mut after = tree(place.base.path());
    after.retain(|name, _| name != "local" && !name.starts_with("local/"));
    match &taken {
        Err(error) if !claimed => {
            let kind = error.kind();
            assert!(is_typed(kind), "{context}: {kind:?} {error}");
            // A claim puts its record before it finds that it can't be committed. The next holder
            // sweeps it.
            let mut after = after.clone();
            let record = |name: &str| name.starts_with(&format!("root/{FOLDER}manifest/"));
            after.retain(|name, _| before.contains_key(name) || !record(name));
            assert_eq!(after, before, "{context}");
        }
        Err(error) => assert!(is_typed(error.kind()), "{context}: {error}"),
        Ok(()) => {}
    }
    // A folder that the damage left empty may go.
    let objects = before.iter().filter(|(_, what)| *what != "directory");
    for (name, bytes) in objects {
        let is_kept = name.contains("/shared/") || name.starts_with("outside");
        assert!(
            !is_kept || after.get(name) == Some(bytes),
            "{context}: {name} is lost"
        );
    }
    assert_eq!(
        after
            .keys()
            .filter(|name| name.starts_with("outside"))
            .count(),
        2
    );
    (looked, taken)
}

/// Objects beside each other: what takes time is the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_things_in_every_place_are_typed_errors() {
    let template = Arc::new(Template::make(PARTICIPANT).await);
    let mut objects = JoinSet::new();
    for name in template.objects.keys() {
        let (template, name) = (Arc::clone(&template), name.clone());
        objects.spawn(async move { wrong_things_in(&template, &name).await });
    }
    objects.join_all().await;
}

async fn wrong_things_in(template: &Template, name: &str) {
    let good = &template.objects[name];
    let framed = !matches!(parse(name), ObjectName::Shared(_));
    let mut all = vec![
        Wrong::Bytes("empty", Vec::new()),
        Wrong::Bytes(
            "foreign",
            b"#!/bin/sh\necho these are not the bytes\n".to_vec(),
        ),
        Wrong::Bytes("zeros", vec![0; good.len()]),
        Wrong::Bytes("more follows", [&good[..], b"more"].concat()),
        Wrong::Bytes("twice", [&good[..], &good[..]].concat()),
        Wrong::Nothing,
        Wrong::Folder,
        Wrong::LinkToFile,
        Wrong::LinkToFolder,
        Wrong::LinkToNothing,
        Wrong::Pipe,
        Wrong::Hole(1 << 40),
    ];
    let others = template.objects.iter().cycle();
    let others = others.skip_while(|(other, _)| *other != name).skip(1);
    for (_, bytes) in others.take(OTHERS) {
        all.push(Wrong::Bytes("another object", bytes.clone()));
    }
    if framed {
        let newer = (FORMAT_VERSION + 1).to_le_bytes();
        all.push(Wrong::Bytes("newer", resealed(good, 8, &newer)));
        all.push(Wrong::Bytes("newest", resealed(good, 8, &[0xff, 0xff])));
        all.push(Wrong::Bytes("no format", resealed(good, 8, &[0, 0])));
        let longest = u64::MAX.to_le_bytes();
        all.push(Wrong::Bytes(
            "as long as can be",
            resealed(good, 12, &longest),
        ));
        let long = (1_u64 << 62).to_le_bytes();
        all.push(Wrong::Bytes("very long", resealed(good, 12, &long)));
        all.push(Wrong::Bytes("another kind", resealed(good, 10, &[9])));
    }
    for wrong in all {
        let (looked, taken) = spoil(template, name, &wrong).await;
        if template.is_needed(name) {
            let error = looked.expect_err(&format!("{name} is {wrong:?}"));
            if framed {
                assert!(taken.is_err(), "{name} is {wrong:?}");
            }
            if let Wrong::Bytes("newer" | "newest", _) = wrong {
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
            }
            if let Wrong::Nothing = wrong {
                assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
            }
        } else if let Wrong::Bytes("newer" | "newest", _) = wrong {
            // A newer release has been here: nothing is done without its snapshot.
            for came in [looked, taken] {
                let kind = came.as_ref().err().map(stillpoint::Error::kind);
                assert!(
                    came.is_ok() || kind == Some(ErrorKind::Incompatible),
                    "{came:?}"
                );
            }
        } else {
            looked.unwrap();
            taken.unwrap();
        }
    }
}

#[tokio::test]
async fn wrong_things_in_the_places_of_folders_and_of_the_lock() {
    let template = Template::make(PARTICIPANT).await;
    let folders = [
        ".tmp".to_owned(),
        "participants".to_owned(),
        FOLDER.trim_end_matches('/').to_owned(),
        format!("{FOLDER}manifest"),
        format!("{FOLDER}shared"),
        format!("{FOLDER}LOCK"),
    ];
    for name in &folders {
        for wrong in [
            Wrong::Bytes("a file", b"a file".to_vec()),
            Wrong::LinkToFile,
            Wrong::LinkToFolder,
            Wrong::LinkToNothing,
            Wrong::Pipe,
        ] {
            let (looked, taken) = spoil(&template, name, &wrong).await;
            let of_writers = name == ".tmp" || name.ends_with("LOCK");
            assert_eq!(looked.is_ok(), of_writers, "{name} is {wrong:?}");
            // Whatever can be locked in place, what is in it does not matter.
            let is_good = name.ends_with("LOCK") && matches!(wrong, Wrong::Bytes(..) | Wrong::Pipe);
            assert_eq!(taken.is_ok(), is_good, "{name} is {wrong:?}: {taken:?}");
        }
    }
}

/// Foreign files are nobody's: they stay, and disturb nobody.
#[tokio::test]
async fn foreign_names_are_left_alone() {
    let template = Template::make(PARTICIPANT).await;
    let place = Place::new(&template);
    let foreign = [
        "notes.txt",
        "participants/readme",
        "participants/not%2fours/CURRENT",
        ".hidden",
        ".snapshot/hourly/CURRENT",
        "participants/.nfs0001",
        "stray/one",
        "stray/two",
        "stray0",
        &format!("{FOLDER}.DS_Store"),
        &format!("{FOLDER}shared/.Trash-0/1"),
        &format!("{FOLDER}shared/1/1.bak"),
        &format!("{FOLDER}shared/01/1"),
        &format!("{FOLDER}shared/stray"),
        &format!("{FOLDER}manifest/README"),
        &format!("{FOLDER}ein Käse 中文"),
    ];
    for name in foreign {
        let path = place.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"foreign").unwrap();
    }
    let repository = open(FileSystem::at(place.root())).await;
    assert_eq!(repository.participants().await.unwrap(), [PARTICIPANT]);
    template.look(&repository).await.unwrap();
    let inspection = repository.inspect(PARTICIPANT).await.unwrap();
    let report = inspection.collect(false).await.unwrap();
    let within = [
        ".DS_Store",
        "ein Käse 中文",
        "manifest/README",
        "shared/.Trash-0/",
        "shared/01/1",
        "shared/1/1.bak",
        "shared/stray",
    ];
    assert_eq!(report.unparsable, within);
    assert_eq!(inspection.unparsable().await.unwrap(), within);
    let beside = [
        ".hidden",
        ".snapshot/",
        "notes.txt",
        "participants/.nfs0001",
        "participants/not%2fours/",
        "participants/readme",
        "stray/",
        "stray0",
    ];
    assert_eq!(repository.unparsable().await.unwrap(), beside);
    template
        .take_over(&repository, &place.path("local"))
        .await
        .unwrap();
    let claim = repository.claim(PARTICIPANT).await.unwrap();
    claim.clean().await.unwrap();
    for name in foreign {
        assert_eq!(
            fs::read(place.root().join(name)).unwrap(),
            b"foreign",
            "{name}"
        );
    }
}

/// Names that no object can have do not make an empty folder a root whose `CURRENT` is lost.
#[tokio::test]
async fn what_can_be_no_object_keeps_no_first_start() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("root");
    let hidden = root.join(FOLDER).join(".nfs0001");
    fs::create_dir_all(&hidden).unwrap();
    fs::write(root.join(FOLDER).join(".DS_Store"), b"foreign").unwrap();
    let repository = open(FileSystem::at(&root)).await;
    let claim = repository.claim(PARTICIPANT).await.unwrap();
    let restored = claim.restore_into(base.path().join("local")).await.unwrap();
    assert!(restored.is_empty());
    fs::remove_file(root.join(FOLDER).join("CURRENT")).unwrap();
    drop((claim, restored));
    let error = repository.claim(PARTICIPANT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    assert!(hidden.exists());
}

#[tokio::test]
async fn another_jobs_root_is_refused_before_anything_is_written() {
    let template = Template::make(PARTICIPANT).await;
    let place = Place::new(&template);
    let folder = place.root().join("participants");
    fs::rename(folder.join("orders%2F7"), folder.join("orders%2F8")).unwrap();
    let before = tree(place.base.path());
    let repository = open(FileSystem::at(place.root())).await;
    let looked = repository.inspect("orders/8").await.unwrap_err();
    let claimed = repository.claim("orders/8").await.unwrap_err();
    for error in [looked, claimed] {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        let words = error.to_string();
        assert!(
            words.contains("orders/7") && words.contains("orders/8"),
            "{words}"
        );
    }
    assert_eq!(tree(place.base.path()), before);
}

/// Records of one root are not taken for another's, though their names and frames are right.
#[tokio::test]
async fn another_roots_current_is_refused() {
    let template = Template::make(PARTICIPANT).await;
    let other = Template::make(PARTICIPANT).await;
    let name = format!("{FOLDER}CURRENT");
    let wrong = Wrong::Bytes("another root's", other.objects[&name].clone());
    let (looked, taken) = spoil(&template, &name, &wrong).await;
    // The records that it names are not there.
    assert_eq!(looked.unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Missing);
}
