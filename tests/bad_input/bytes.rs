//! Every object of a root with every one of its bytes changed, and cut off at every length; and
//! bodies that are nonsense in a frame that is right.

use stillpoint::protocol::answer::{Checksum, Digest};
use stillpoint::protocol::file::{FileDescription, FileKind};
use stillpoint::protocol::id::{FileName, LocalName, ManifestName, Nonce, ObjectName, SubtaskId};
use stillpoint::protocol::manifest::{
    Change, Completion, FRAME_BYTES, Kind, Record, SubtaskDelta, frame,
};
use stillpoint::protocol::time::WallClock;
use stillpoint::{Error, ErrorKind, VerifyDepth};

use crate::world::{
    FOLDER, Objects, PARTICIPANT, Template, current, is_typed, objects_of, open, parse, store_of,
    within,
};

/// A damaged object that no reader needs lets a claim succeed, which costs a restore on disk. Of
/// those every so many are tried.
const EACH_RESTORE: usize = 24;

/// Damage is found, and named, by whoever needs the object; nothing is changed by finding it; and
/// where another object will do, what is read is the truth.
async fn damaged(template: &Template, name: &str, bytes: Vec<u8>, at: usize) {
    let mut objects = template.objects.clone();
    objects.insert(name.to_owned(), bytes);
    let context = |error: &Error| format!("{name} at {at}: {error}");

    let store = store_of(&objects).await;
    let looked = template.look(&open(store.clone()).await).await;
    assert_eq!(objects_of(&store).await, objects, "{name} at {at}");
    match &looked {
        Ok(()) => assert!(!template.is_needed(name), "{name} at {at} was not noticed"),
        Err(error) => {
            assert!(template.is_needed(name), "{}", context(error));
            let kind = error.kind();
            let known = [ErrorKind::Corrupt, ErrorKind::Incompatible].contains(&kind);
            assert!(known, "{kind:?}: {}", context(error));
            let about = error.to_string();
            let leaf = name.rsplit('/').next().unwrap();
            assert!(about.contains(leaf), "{about} does not name {leaf}");
        }
    }

    let read_by_claim = !matches!(parse(name), ObjectName::Shared(_)) && looked.is_err();
    if !read_by_claim && !at.is_multiple_of(EACH_RESTORE) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let repository = open(store.clone()).await;
    let taken = template.take_over(&repository, directory.path()).await;
    match (taken, looked) {
        (Ok(()), looked) => {
            // A claim restores the newest checkpoint; a guest has looked at all of them.
            let is_manifests = !matches!(parse(name), ObjectName::Shared(_));
            assert!(looked.is_ok() || !is_manifests, "{name} at {at}");
        }
        (Err(error), looked) => {
            assert!(looked.is_err(), "{}", context(&error));
            assert!(is_typed(error.kind()), "{}", context(&error));
            if read_by_claim {
                assert_eq!(objects_of(&store).await, objects, "{}", context(&error));
            }
        }
    }
}

#[tokio::test]
async fn every_changed_byte_is_found() {
    let template = Template::make(PARTICIPANT).await;
    for (name, good) in &template.objects {
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged(&template, name, bytes, at).await;
        }
    }
}

#[tokio::test]
async fn every_truncation_is_found() {
    let template = Template::make(PARTICIPANT).await;
    for (name, good) in &template.objects {
        for length in 0..good.len() {
            damaged(&template, name, good[..length].to_vec(), length).await;
        }
    }
}

fn kind_of(objects: &Objects, name: &str) -> Option<Kind> {
    match parse(name) {
        ObjectName::Current => Some(Kind::Current),
        ObjectName::Manifest(name) if current(objects).snapshots().contains(&name) => {
            Some(Kind::Snapshot)
        }
        ObjectName::Manifest(_) => Some(Kind::Record),
        ObjectName::Shared(_) => None,
    }
}

/// A forged body may say what it likes, so that it may be taken; but it never breaks anything.
#[tokio::test]
async fn a_forged_body_breaks_nothing() {
    let template = Template::make(PARTICIPANT).await;
    let mut refused = 0;
    for (name, good) in &template.objects {
        let Some(kind) = kind_of(&template.objects, name) else {
            continue;
        };
        let body = &good[FRAME_BYTES..];
        for (at, byte) in body.iter().enumerate() {
            for forged in [byte ^ (1 << (at % 8)), 0xff, 0x00, 0x7f] {
                let mut body = body.to_vec();
                body[at] = forged;
                let mut objects = template.objects.clone();
                objects.insert(name.clone(), frame(kind, &body));
                let store = store_of(&objects).await;
                let repository = open(store).await;
                let claimed = match within(repository.inspect(PARTICIPANT)).await {
                    Ok(_) => within(repository.claim(PARTICIPANT)).await.map(drop),
                    Err(error) => Err(error),
                };
                if let Err(error) = claimed {
                    refused += 1;
                    let typed = is_typed(error.kind());
                    assert!(
                        typed,
                        "{name} at {at} is {forged}: {:?} {error}",
                        error.kind()
                    );
                }
            }
        }
    }
    assert!(refused > 0, "some of it is nonsense");
}

/// A record that follows all rules, and whose files have more bytes together than a number holds.
#[tokio::test]
async fn forged_sizes_are_shown_and_never_restored() {
    let mut template = Template::make(PARTICIPANT).await;
    let repository = open(store_of(&template.objects).await).await;
    let inspection = within(repository.inspect(PARTICIPANT)).await.unwrap();
    let manifest = inspection.manifest();
    let current = current(&template.objects);
    let newest = manifest.newest().unwrap();
    let attempt = inspection.files(newest).unwrap()[0].name.attempt;
    let born = [1_u64 << 40, 1 << 41].map(|number| FileDescription {
        name: FileName { attempt, number },
        local: LocalName::new(&format!("{number}.sst")).unwrap(),
        kind: FileKind::State,
        digest: Digest {
            size_bytes: u64::MAX - 1,
            checksum: Checksum(number),
        },
    });
    let completion = Completion {
        checkpoint: newest.next(),
        parent: manifest.restore_point(),
        cut_at: WallClock(u64::MAX),
        subtasks: vec![SubtaskDelta {
            subtask: SubtaskId::default(),
            born: born.to_vec(),
            returned: Vec::new(),
            dropped: Vec::new(),
            user_bytes: b"forged".to_vec(),
        }],
    };
    let checkpoint = completion.checkpoint;
    let name = ManifestName {
        version: current.version().next(),
        epoch: current.epoch(),
        nonce: Nonce(77 << 32),
    };
    let record = Record {
        version: name.version,
        epoch: name.epoch,
        changes: vec![Change::Complete(completion)],
    };
    let objects = &mut template.objects;
    objects.insert(format!("{FOLDER}{name}"), record.encode());
    let forged = current.successor(name, None);
    objects.insert(format!("{FOLDER}CURRENT"), forged.encode());

    let store = store_of(objects).await;
    let repository = open(store).await;
    let inspection = within(repository.inspect(PARTICIPANT)).await.unwrap();
    let shown = inspection.checkpoints().pop().unwrap();
    assert_eq!(shown.checkpoint, checkpoint);
    assert_eq!((shown.size_bytes, shown.own_bytes), (u64::MAX, u64::MAX));
    let report = within(inspection.verify(checkpoint, VerifyDepth::Checksums)).await;
    let report = report.unwrap();
    assert_eq!((report.size_bytes, report.faults.len()), (u64::MAX, 2));
    let directory = tempfile::tempdir().unwrap();
    let taken = template.take_over(&repository, directory.path()).await;
    let error = taken.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
