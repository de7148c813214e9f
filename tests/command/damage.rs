//! Damaged files are found, named, and never restored.

use std::fs;
use std::path::Path;

use stillpoint::ParticipantEvent;
use stillpoint::protocol::manifest::Current;

use crate::support::{World, answer, ask, error, numbers, run, texts};

#[tokio::test]
async fn a_changed_byte_is_found_by_its_checksum() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    let older = service.checkpoint("one").await;
    let newest = service.checkpoint("two").await;
    service.close().await;
    let root = world.root();
    let name = answer(&root, &["show", "newest"])["files"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = world.folder("orders/7").join(&name);
    let mut content = fs::read(&path).unwrap();
    let last = content.len() - 1;
    content[last] ^= 1;
    fs::write(&path, content).unwrap();

    assert_eq!(
        answer(&root, &["verify", "--all"])["is_sound"],
        true,
        "sizes are right"
    );
    let (code, found) = ask(&root, &["verify", "--all", "--full"]);
    assert_eq!((code, &found["is_sound"]), (1, &false.into()));
    let checkpoints = &found["participants"][0]["checkpoints"];
    assert_eq!(checkpoints[0]["id"], older);
    assert_eq!(checkpoints[0]["faults"].as_array().unwrap().len(), 0);
    assert_eq!(checkpoints[1]["faults"][0]["kind"], "corrupt");
    assert_eq!(checkpoints[1]["faults"][0]["file"], *name);

    let target = world.directory.path().join("restored");
    let to = target.to_str().unwrap();
    let error = error(&root, &["restore", "newest", "--to", to], 1, "corrupt");
    assert_eq!(error["checkpoint"], newest);
    assert!(!target.exists(), "no half-filled directory");
    answer(&root, &["restore", &older.to_string(), "--to", to]);
}

#[tokio::test]
async fn a_missing_file_is_found_by_everybody() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    let older = service.checkpoint("one").await;
    let newest = service.checkpoint("two").await;
    service.close().await;
    let root = world.root();
    let name = answer(&root, &["show", "newest"])["files"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    fs::remove_file(world.folder("orders/7").join(&name)).unwrap();

    let (code, found) = ask(&root, &["verify"]);
    assert_eq!(code, 1);
    assert_eq!(
        found["participants"][0]["checkpoints"][0]["faults"][0]["kind"],
        "missing"
    );
    let (code, explained) = ask(&root, &["explain", &name]);
    assert_eq!(code, 1);
    assert_eq!(explained["files"][0]["standing"], "held");
    assert_eq!(
        explained["files"][0]["stored_bytes"],
        serde_json::Value::Null
    );
    let target = world.directory.path().join("restored");
    let to = target.to_str().unwrap();
    let error = error(&root, &["restore", "newest", "--to", to], 1, "missing");
    assert_eq!(error["checkpoint"], newest);
    assert_eq!(numbers(&error["alternatives"]), [older]);
    assert!(!target.exists(), "no half-filled directory");
}

/// A damaged whole manifest loses nothing, and is told by everything that reads it.
#[tokio::test]
async fn a_manifest_that_is_damaged_in_part_is_told() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    for value in 0..40 {
        service.checkpoint(&value.to_string()).await;
    }
    service.close().await;
    let (root, folder) = (world.root(), world.folder("orders/7"));
    let listed = answer(&root, &["ls"]);
    let participant = &listed["participants"][0];
    assert_eq!(texts(&participant["warnings"]), [""; 0]);
    let current = Current::decode(&fs::read(folder.join("CURRENT")).unwrap()).unwrap();
    let newest = current.snapshots().last().unwrap().to_string();
    fs::write(folder.join(&newest), b"these are not the bytes").unwrap();

    let damaged = answer(&root, &["ls"]);
    let damaged = &damaged["participants"][0];
    assert_eq!(damaged["checkpoints"], participant["checkpoints"]);
    let warnings = texts(&damaged["warnings"]);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains(&newest), "{warnings:?}");
    for verify in [&["verify"][..], &["verify", "--all"], &["verify", "--full"]] {
        let (code, found) = ask(&root, verify);
        assert_eq!((code, &found["is_sound"]), (1, &false.into()), "{verify:?}");
        let faults = &found["participants"][0]["manifest_faults"];
        assert_eq!(faults.as_array().unwrap().len(), 1, "{faults}");
        assert_eq!(faults[0]["file"], *newest);
    }
    let said = run(["ls", "--root", root.to_str().unwrap()]);
    assert!(said.out.contains(&format!("DAMAGED: {newest}")), "{said:?}");
    assert!(said.err.contains("WARN"), "{said:?}");
    assert!(
        !said.err.contains('\u{1b}'),
        "no colours in a file: {said:?}"
    );

    let service = world.start("orders/7").await;
    match service.participant.events().try_next() {
        Some(ParticipantEvent::Warned { warning }) => {
            assert!(warning.contains(&newest), "{warning}");
        }
        other => panic!("{other:?}"),
    }
    service.close().await;
}

/// What is read in need only is verified with `--full`, so that it is there when it is needed.
#[tokio::test]
async fn damage_to_the_spare_way_to_the_manifest_is_told() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    for value in 0..40 {
        service.checkpoint(&value.to_string()).await;
    }
    service.close().await;
    let (root, folder) = (world.root(), world.folder("orders/7"));
    let full = ["verify", "--all", "--full"];
    let sound = answer(&root, &full);
    let faults = &sound["participants"][0]["manifest_faults"];
    assert_eq!(faults.as_array().unwrap().len(), 0);

    let current = Current::decode(&fs::read(folder.join("CURRENT")).unwrap()).unwrap();
    let (older, first) = (current.snapshots()[0], current.tail()[0]);
    for spare in [older, first] {
        let path = folder.join(spare.to_string());
        let content = fs::read(&path).unwrap();
        let mut changed = content.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(&path, changed).unwrap();
        assert_manifest_fault(&root, &full, "corrupt", &spare.to_string());
        fs::remove_file(&path).unwrap();
        assert_manifest_fault(&root, &full, "missing", &spare.to_string());
        fs::write(&path, content).unwrap();
        answer(&root, &full);
    }
}

fn assert_manifest_fault(root: &Path, command: &[&str], kind: &str, file: &str) {
    let (code, found) = ask(root, command);
    assert_eq!((code, &found["is_sound"]), (1, &false.into()), "{found:#}");
    let faults = &found["participants"][0]["manifest_faults"];
    assert_eq!(faults.as_array().unwrap().len(), 1, "{faults}");
    assert_eq!(
        (&faults[0]["kind"], &faults[0]["file"]),
        (&kind.into(), &file.into())
    );
}

/// Nobody is fenced for a store that can't be cleaned, and what is gone is not passed over.
#[tokio::test]
async fn what_stands_in_a_folders_place_fences_nobody() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    service.checkpoint("one").await;
    let (root, folder) = (world.root(), world.folder("orders/7"));
    let shared = folder.join("shared");
    let aside = folder.join("aside");
    fs::rename(&shared, &aside).unwrap();
    let gone = answer_of_missing(&root);
    assert_eq!(gone, 1);
    for place in ["file", "loop"] {
        match place {
            "file" => fs::write(&shared, b"").unwrap(),
            _ => std::os::unix::fs::symlink("shared", &shared).unwrap(),
        }
        let refused = error(&root, &["gc", "--take-over"], 1, "corrupt");
        assert_eq!(refused["file"], "shared/", "{refused}");
        let (code, plain) = ask(&root, &["gc"]);
        assert_eq!(code, 1, "{plain:#}");
        assert_eq!(plain["participants"][0]["error"]["file"], "shared/");
        fs::remove_file(&shared).unwrap();
    }
    fs::rename(&aside, &shared).unwrap();
    service.checkpoint("two, by the same holder").await;
    service.close().await;
}

/// How many retained files `gc` misses.
fn answer_of_missing(root: &Path) -> usize {
    let (code, found) = ask(root, &["gc", "--dry-run"]);
    assert_eq!(code, 1, "{found:#}");
    texts(&found["participants"][0]["missing"]).len()
}
