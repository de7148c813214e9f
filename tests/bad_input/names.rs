//! Names and paths from outside: those that climb out, and those with any letters.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use stillpoint::protocol::answer::Failure;
use stillpoint::protocol::id::ObjectName;
use stillpoint::protocol::manifest::{FRAME_BYTES, Kind, frame};
use stillpoint::state::{Copied, Cut, Secured, SecuredPack, StateBackend};
use stillpoint::{ErrorKind, FileSystem, Memory, MemoryState, RestoreOptions};

use crate::files::Files;
use crate::world::{
    FOLDER, PARTICIPANT, Template, current, objects_of, open, parse, store_of, tree, within,
};

/// The manifest names a local file outside of the state's directory: every frame and checksum is
/// right, the name is not.
#[tokio::test]
async fn a_local_name_that_climbs_out_is_refused() {
    let template = Template::make(PARTICIPANT).await;
    // As long as the name of a state file, so that all else in the records stays where it is.
    let good = b"000005.sst";
    for climbing in [
        b"../../evil",
        b"/tmp/evil_",
        b"a/../../ev",
        b"..\\..\\evil",
        b"evil\0\0.sst",
    ] {
        let climbing = &climbing[..good.len()];
        let mut objects = template.objects.clone();
        let mut replaced = 0;
        for (name, object) in &mut objects {
            let kind = match parse(name) {
                ObjectName::Manifest(name)
                    if current(&template.objects).snapshots().contains(&name) =>
                {
                    Kind::Snapshot
                }
                ObjectName::Manifest(_) => Kind::Record,
                ObjectName::Current | ObjectName::Shared(_) => continue,
            };
            let mut body = object[FRAME_BYTES..].to_vec();
            while let Some(at) = body.windows(good.len()).position(|part| part == good) {
                body[at..at + good.len()].copy_from_slice(climbing);
                replaced += 1;
            }
            *object = frame(kind, &body);
        }
        assert!(replaced > 0);
        let store = store_of(&objects).await;
        let base = tempfile::tempdir().unwrap();
        let repository = open(store.clone()).await;
        let looked = template.look(&repository).await.unwrap_err();
        let local = base.path().join("below/local");
        let taken = template.take_over(&repository, &local).await.unwrap_err();
        for error in [looked, taken] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        assert_eq!(objects_of(&store).await, objects);
        assert!(tree(base.path()).is_empty());
    }
}

/// A state whose pack was made elsewhere.
struct Forged(Vec<u8>);

impl StateBackend for Forged {
    fn kind(&self) -> &'static str {
        "files"
    }

    fn attach(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        let pack = SecuredPack::Bytes(self.0.clone());
        Ok(Cut::new(Vec::new(), move |_| {
            Ok(Secured {
                files: Vec::new(),
                pack,
                copied: Copied::default(),
            })
        }))
    }
}

/// A pack of one entry, which has this name.
fn pack(name: &[u8]) -> Vec<u8> {
    let bytes = b"evil";
    let mut body = 1_u32.to_le_bytes().to_vec();
    body.extend((name.len() as u16).to_le_bytes());
    body.extend((bytes.len() as u64).to_le_bytes());
    body.extend(name);
    body.extend(bytes);
    frame(Kind::Pack, &body)
}

#[tokio::test]
async fn a_pack_that_climbs_out_is_refused() {
    let good = |pack: &[u8]| pack == b"good";
    for name in [
        &b"good"[..],
        b"../evil",
        b"../../evil",
        b"/tmp/evil",
        b"a/../../evil",
        b".stillpoint/LOCK",
        b".",
        b"..",
        b"",
        b"a//b",
        b"evil\n",
        b"\xff\xfe",
        &[b'x'; 300],
    ] {
        let base = tempfile::tempdir().unwrap();
        let repository = open(Memory::new()).await;
        let claim = repository.claim(PARTICIPANT).await.unwrap();
        let first = base.path().join("first");
        let restored = claim.restore_into(&first).await.unwrap();
        let participant = restored.attach(Forged(pack(name))).unwrap();
        participant
            .checkpoint("")
            .unwrap()
            .completed()
            .await
            .unwrap();
        participant.close().await.unwrap();
        let before = tree(base.path());

        let claim = repository.claim(PARTICIPANT).await.unwrap();
        let second = base.path().join("below/second");
        let restored = claim.restore_into(&second).await;
        let mut after = tree(base.path());
        after.retain(|name, _| !name.starts_with("below"));
        assert_eq!(after, before, "{name:?}");
        assert_eq!(fs::read_dir(base.path().join("below")).unwrap().count(), 1);
        match restored {
            Ok(_) => assert!(good(name), "{name:?}"),
            Err(error) => {
                assert!(!good(name), "{error}");
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{name:?}: {error}");
                let left = fs::read_dir(&second).unwrap();
                let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(left, [".stillpoint"], "{name:?}");
            }
        }
    }
    assert!(!Path::new("/tmp/evil").exists());
}

/// Whatever a participant is called, its objects stay in one folder of their own, and its name is
/// read back.
#[tokio::test]
async fn participants_may_have_any_name() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("below/root");
    let mut names = vec![
        "..",
        ".",
        "../up",
        "../../evil",
        "/etc/passwd",
        "a/../../b",
        ".tmp",
        "LOCK",
        "CURRENT",
        "participants",
        "ein Käse",
        "中文 état",
        "50%",
        "%2E%2E",
        "back\\slash:\n\0",
        " ",
    ];
    let repository = open(FileSystem::at(&root)).await;
    for name in &names {
        let claim = within(repository.claim(name)).await.unwrap();
        assert_eq!(claim.participant(), *name);
        within(claim.close()).await.unwrap();
    }
    let mut found = repository.participants().await.unwrap();
    found.sort();
    names.sort_unstable();
    assert_eq!(found, names);
    let folders = fs::read_dir(root.join("participants")).unwrap();
    assert_eq!(folders.count(), names.len());
    let top: Vec<_> = tree(base.path()).into_keys().collect();
    let is_inside = |name: &String| {
        name == "below" || name == "below/root" || name.starts_with("below/root/participants")
    };
    assert!(top.iter().all(is_inside), "{top:?}");
    for name in ["", &"x".repeat(256), &"ä".repeat(43)] {
        let error = repository.claim(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let error = repository.inspect(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn paths_may_have_spaces_and_any_letters() {
    let base = tempfile::tempdir().unwrap();
    let base = base
        .path()
        .join("mit Leerzeichen und Käse/中文 \u{301}état 'quoted' \"twice\" $HOME");
    let root = base.join("root ü");
    let name = "bestellungen / Käse 7";
    for round in 0..3_u8 {
        let repository = open(FileSystem::at(&root)).await;
        let claim = repository.claim(name).await.unwrap();
        let local = base.join(format!("zustand {round} ß"));
        let restored = claim.restore_into(&local).await.unwrap();
        assert_eq!(restored.is_empty(), round == 0);
        let state = Files::open(&local);
        for before in 0..round {
            assert_eq!(state.read()[&format!("Käse {before}.sst")], [before; 10]);
        }
        let participant = restored.attach(state.clone()).unwrap();
        state.write(&format!("Käse {round}.sst"), &[round; 10]);
        let checkpoint = participant.checkpoint("Ünicode").unwrap();
        checkpoint.completed().await.unwrap();
        participant.close().await.unwrap();
    }
}

/// What lies in a local directory can't make a restore write or delete somewhere else.
#[tokio::test]
async fn a_local_directory_of_links_leads_nowhere() {
    let store = Memory::new();
    let repository = open(store).await;
    for own in [".stillpoint", "000000.sst", "sub"] {
        let base = tempfile::tempdir().unwrap();
        let (outside, local) = (base.path().join("outside"), base.path().join("local"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir(&local).unwrap();
        fs::write(outside.join("secret"), b"secret").unwrap();
        let before = tree(&outside);
        symlink(&outside, local.join(own)).unwrap();
        let claim = repository.claim("links").await.unwrap();
        let error = claim.restore_into(&local).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{own}: {error}");
        assert_eq!(tree(&outside), before, "{own}");

        // Ours, and a link has come in since.
        fs::remove_file(local.join(own)).unwrap();
        drop(claim.restore_into(&local).await.unwrap());
        if own == ".stillpoint" {
            continue;
        }
        symlink(&outside, local.join(own)).unwrap();
        // What nobody knows of is not removed without a word; then it goes, and not what it leads to.
        if let Err(error) = claim.restore_into(&local).await {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{own}: {error}");
            assert!(local.join(own).join("secret").exists(), "{own} stays");
        }
        assert_eq!(tree(&outside), before, "{own}");
        let options = RestoreOptions::new().replace_foreign_state();
        let restored = claim.restore_with(&local, &options).await.unwrap();
        assert_eq!(tree(&outside), before, "{own}");
        assert!(fs::symlink_metadata(local.join(own)).is_err(), "{own} goes");
        let state = if restored.is_empty() {
            MemoryState::new()
        } else {
            MemoryState::open(restored.directory()).unwrap()
        };
        let participant = restored.attach(state).unwrap();
        participant
            .checkpoint("")
            .unwrap()
            .completed()
            .await
            .unwrap();
        assert_eq!(tree(&outside), before, "{own}");
    }
}

/// The same for each of the library's own files there.
#[tokio::test]
async fn links_in_the_place_of_the_librarys_own_files_lead_nowhere() {
    let template = Template::make(PARTICIPANT).await;
    for own in [
        "LOCK",
        "OURS",
        "OURS.unfinished",
        "CLEAN",
        "marks",
        "marks.unfinished",
        "snapshots",
    ] {
        for target in ["secret", "nothing", "."] {
            let base = tempfile::tempdir().unwrap();
            let (outside, local) = (base.path().join("outside"), base.path().join("local"));
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("secret"), b"secret").unwrap();
            let before = tree(&outside);
            let repository = open(store_of(&template.objects).await).await;
            template.take_over(&repository, &local).await.unwrap();
            let link = local.join(".stillpoint").join(own);
            let _ = fs::remove_file(&link);
            symlink(outside.join(target), &link).unwrap();
            if let Err(error) = template.take_over(&repository, &local).await {
                assert!(["LOCK", "OURS"].contains(&own), "{own}: {error}");
            }
            assert_eq!(tree(&outside), before, "{own}");
        }
    }
}

/// The library's own notes in a local directory are input, too: damaged, they cost a download.
#[tokio::test]
async fn damaged_notes_of_a_local_directory_cost_a_download() {
    let template = Template::make(PARTICIPANT).await;
    for spoilt in 0..4 {
        let base = tempfile::tempdir().unwrap();
        let local = base.path().join("local");
        let repository = open(store_of(&template.objects).await).await;
        template.take_over(&repository, &local).await.unwrap();
        let marks = local.join(".stillpoint/marks");
        let good = fs::read(&marks).unwrap();
        let bad = match spoilt {
            0 => Vec::new(),
            1 => b"these are not the bytes".to_vec(),
            2 => good[..good.len() - 1].to_vec(),
            _ => {
                let mut bad = good.clone();
                // A length.
                bad[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
                bad
            }
        };
        fs::write(&marks, bad).unwrap();
        template.take_over(&repository, &local).await.unwrap();
    }
    assert!(FOLDER.contains("orders%2F7"));
}

/// Participants are found by passing over what else is in a folder, which must not be met for ever.
#[tokio::test]
async fn a_name_that_comes_after_all_others_is_passed_over_too() {
    let place = tempfile::tempdir().unwrap();
    for folder in ["participants/a", "participants/b", "stray"] {
        let folder = place.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        for name in ["1", "\u{10ffff}", "\u{10ffff}1", "\u{10ffff}2"] {
            fs::write(folder.join(name), b"").unwrap();
        }
    }
    let repository = open(FileSystem::at(place.path())).await;
    assert_eq!(repository.participants().await.unwrap(), ["a", "b"]);
    assert_eq!(repository.unparsable().await.unwrap(), ["stray/"]);
}
