//! What the commands answer about a repository at rest.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::Value;
use stillpoint::MemoryState;
use stillpoint::protocol::manifest::Current;

use crate::support::{World, answer, command, error, numbers, run, say, shared, texts, tree};

#[tokio::test]
async fn lists_and_shows_what_is_retained() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    let mut ids = Vec::new();
    for value in ["one", "two", "three"] {
        ids.push(service.checkpoint(value).await);
    }
    let root = world.root();
    let listed = answer(&root, &["ls"]);
    assert_eq!(listed["root"], root.to_str().unwrap());
    let participant = &listed["participants"][0];
    assert_eq!(participant["name"], "orders/7");
    assert_eq!(participant["epoch"], 1);
    assert_eq!(numbers(&participant["attempts"]).len(), 1);
    assert_eq!(participant["restore_point"], ids[2]);
    let checkpoints = participant["checkpoints"].as_array().unwrap();
    let listed: Vec<_> = checkpoints
        .iter()
        .map(|shown| shown["id"].as_u64().unwrap())
        .collect();
    assert_eq!(listed, ids[1..]);
    assert_eq!(checkpoints[1]["parent"], ids[1]);
    assert_eq!(checkpoints[1]["user_bytes"]["text"], "three");
    assert_eq!(checkpoints[1]["user_bytes"]["hex"], "7468726565");

    service.close().await;
    let before = tree(&root);
    let id = ids[1].to_string();
    let shown = answer(&root, &["show", &id]);
    assert_eq!(shown["participant"], "orders/7");
    assert_eq!(shown["checkpoint"]["is_restore_point"], false);
    assert_eq!(shown["files"].as_array().unwrap().len(), 1);
    assert_eq!(shown["files"][0]["kind"], "pack");
    assert_eq!(shown["files"][0]["references"], 1);
    let newest = answer(&root, &["show", "newest"]);
    assert_eq!(newest["checkpoint"]["id"], ids[2]);
    assert_eq!(tree(&root), before, "looking on changes nothing");

    let text = run(["ls", "--root", root.to_str().unwrap()]);
    assert_eq!(text.code, 0);
    assert!(
        text.out.contains("orders/7") && text.out.contains("\"three\""),
        "{}",
        text.out
    );
    let text = run(["show", &id, "--root", root.to_str().unwrap()]);
    assert!(
        text.out
            .contains(shown["files"][0]["name"].as_str().unwrap()),
        "{}",
        text.out
    );
    assert!(numbers(&answer(&root, &["ls"])["participants"][0]["attempts"]).is_empty());
}

#[tokio::test]
async fn ids_that_are_not_there_name_those_that_are() {
    let world = World::new(2).await;
    let service = world.start("orders/7").await;
    let mut ids = Vec::new();
    for value in ["one", "two", "three"] {
        ids.push(service.checkpoint(value).await);
    }
    let (root, dropped) = (world.root(), ids[0].to_string());
    let target = world.directory.path().join("restored");
    let to = target.to_str().unwrap();
    for arguments in [
        &["show", &*dropped][..],
        &["verify", &*dropped],
        &["verify", &*dropped, "--full"],
        &["restore", &*dropped, "--to", to],
    ] {
        let error = error(&root, arguments, 3, "not found");
        assert_eq!(error["checkpoint"], ids[0]);
        assert_eq!(numbers(&error["alternatives"]), ids[1..]);
        assert!(!target.exists(), "{arguments:?}");
    }
}

#[tokio::test]
async fn one_of_several_participants_is_to_be_chosen() {
    let world = World::new(1).await;
    for name in ["orders/7", "ein Käse", ".."] {
        let service = world.start(name).await;
        service.checkpoint(name).await;
        service.close().await;
    }
    let root = world.root();
    for arguments in [
        &["show", "newest"][..],
        &["verify"],
        &["explain", "1/1"],
        &["gc", "--take-over"],
        &["restore", "newest", "--to", "/nowhere/at/all"],
    ] {
        let error = error(&root, arguments, 2, "invalid");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("\"ein Käse\"") && message.contains("--participant"),
            "{message}"
        );
    }
    for arguments in [
        &["ls"][..],
        &["verify", "--all"],
        &["gc"],
        &["gc", "--dry-run"],
    ] {
        let document = answer(&root, arguments);
        assert_eq!(
            document["participants"].as_array().unwrap().len(),
            3,
            "{document:#}"
        );
    }
    let shown = answer(&root, &["show", "newest", "--participant", "ein Käse"]);
    assert_eq!(shown["checkpoint"]["user_bytes"]["text"], "ein Käse");
    let listed = answer(&root, &["ls", "--participant", ".."]);
    assert_eq!(listed["participants"].as_array().unwrap().len(), 1);
    let error = error(&root, &["ls", "--participant", "orders/8"], 3, "not found");
    assert!(
        error["message"].as_str().unwrap().contains("orders/7"),
        "{error}"
    );
    // Names come from outside: a terminal is told none of what it would obey.
    let service = world.start("red\u{1b}[31m").await;
    service.close().await;
    let text = run(["ls", "--root", root.to_str().unwrap()]);
    assert!(text.out.contains("red\\u{1b}[31m") && !text.out.contains('\u{1b}'));
    // A path says whose file it is.
    let path = format!("{}/shared/1/1", world.folder("ein Käse").display());
    assert_eq!(
        answer(&root, &["explain", &path])["participant"],
        "ein Käse"
    );
}

#[tokio::test]
async fn explains_whatever_is_pasted() {
    let world = World::new(1).await;
    let service = world.start_without_deletes("orders/7").await;
    service.checkpoint("one").await;
    let newest = service.checkpoint("two").await;
    let (root, folder) = (world.root(), world.folder("orders/7"));
    let file = answer(&root, &["show", "newest"])["files"][0].clone();
    let name = file["name"].as_str().unwrap();
    let absolute = format!("{}/{name}", folder.display());
    for pasted in [
        name,
        name.strip_prefix("shared/").unwrap(),
        &absolute,
        &format!("  participants/orders%2F7/{name}\n"),
        file["local"].as_str().unwrap(),
        "/data/orders-7/stillpoint.pack",
    ] {
        let explained = answer(&root, &["explain", pasted]);
        let explained = &explained["files"][0];
        assert_eq!(explained["name"], name, "{pasted}");
        assert_eq!(explained["standing"], "held");
        assert_eq!(explained["is_garbage"], false);
        assert_eq!(numbers(&explained["held_by"]), [newest]);
        assert_eq!(explained["stored_bytes"], file["size_bytes"]);
    }
    // The first checkpoint's pack is condemned, and its store deletes nothing.
    let condemned: Vec<_> = shared(&folder)
        .into_iter()
        .filter(|other| other != name)
        .collect();
    assert_eq!(condemned.len(), 1);
    let explained = answer(&root, &["explain", &condemned[0]]);
    assert_eq!(explained["files"][0]["standing"], "condemned");
    assert_eq!(explained["files"][0]["is_garbage"], true);
    // Not acknowledged, and made by the attempt that runs.
    let attempt = answer(&root, &["ls"])["participants"][0]["attempts"][0]
        .as_u64()
        .unwrap();
    let stray = format!("shared/{attempt}/999");
    fs::write(folder.join(&stray), b"stray").unwrap();
    assert_eq!(
        answer(&root, &["explain", &stray])["files"][0]["standing"],
        "of_live_attempt"
    );
    drop(service);
    world.start("orders/7").await.close().await;
    assert_eq!(
        answer(&root, &["explain", &stray])["files"][0]["standing"],
        "orphaned"
    );

    for absent in [
        "shared/1/777",
        "1/777",
        "000099.sst",
        "nothing",
        "",
        "../../etc/passwd",
    ] {
        error(&root, &["explain", absent], 3, "not found");
    }
}

#[tokio::test]
async fn explains_what_is_no_state_file() {
    let world = World::new(1).await;
    let service = world.start("orders/7").await;
    for value in 0..40 {
        service.checkpoint(&value.to_string()).await;
    }
    let (root, folder) = (world.root(), world.folder("orders/7"));
    service.close().await;
    let explained = |asked: &str| {
        let answer = answer(&root, &["explain", asked]);
        let file = answer["files"][0].clone();
        assert!(file["stored_bytes"].is_number(), "{file:#}");
        assert!(file["reason"].as_str().unwrap().len() > 20, "{file:#}");
        (answer["participant"].clone(), file)
    };
    let word = |file: &Value, field: &str| file[field].as_str().unwrap().to_owned();

    // All but the whole manifest that was to be named next is what `CURRENT` names, whatever it is
    // called by.
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(folder.join("manifest")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (participant, file) = explained(&format!("manifest/{name}"));
        assert_eq!(participant, "orders/7");
        assert_eq!(explained(&name).1, file);
        let standing = if file["kind"] == "manifest" {
            "under_way"
        } else {
            "named"
        };
        assert_eq!(word(&file, "standing"), standing, "{file:#}");
        assert_eq!(file["is_garbage"], false);
        *kinds.entry(word(&file, "kind")).or_insert(0) += 1;
    }
    assert_eq!(kinds["snapshot"], 2, "{kinds:?}");
    assert!(kinds["record"] > 0, "{kinds:?}");
    assert!(kinds.get("manifest").is_none_or(|kept| *kept == 1));

    // One that was left behind, one of a commit that nobody has seen the end of.
    for (object, standing, is_garbage) in [
        ("manifest/1-1-00000000000000aa", "superseded", true),
        ("manifest/9999-1-00000000000000aa", "under_way", false),
        ("manifest/9999-9-00000000000000aa", "under_way", false),
    ] {
        error(&root, &["explain", object], 3, "not found");
        fs::write(folder.join(object), b"whatever").unwrap();
        let (_, file) = explained(object);
        assert_eq!(word(&file, "standing"), standing, "{object}");
        assert_eq!(file["is_garbage"], is_garbage, "{object}");
    }

    fs::create_dir_all(folder.join("shared/.git")).unwrap();
    fs::create_dir_all(root.join(".tmp")).unwrap();
    for stranger in [
        folder.join("notes.txt"),
        folder.join("shared/.git/HEAD"),
        root.join(".DS_Store"),
        root.join(".tmp/0123456789abcdef.7"),
    ] {
        fs::write(stranger, b"text").unwrap();
    }
    let absolute = format!("{}/CURRENT", folder.display());
    for (asked, participant, kind) in [
        ("CURRENT", Some("orders/7"), "current"),
        (&*absolute, Some("orders/7"), "current"),
        ("LOCK", Some("orders/7"), "lock"),
        ("participants/orders%2F7/LOCK", Some("orders/7"), "lock"),
        ("notes.txt", Some("orders/7"), "foreign"),
        ("shared/.git/HEAD", Some("orders/7"), "foreign"),
        (".DS_Store", None, "foreign"),
        (".tmp/0123456789abcdef.7", None, "temporary"),
    ] {
        let (found, file) = explained(asked);
        assert_eq!(found.as_str(), participant, "{asked}");
        assert_eq!(word(&file, "kind"), kind, "{asked}");
        assert_eq!(file["is_garbage"], false, "{asked}");
    }

    // One that `CURRENT` names and that is gone is damage, told as such.
    let current = Current::decode(&fs::read(folder.join("CURRENT")).unwrap()).unwrap();
    let record = current.last_commit().unwrap();
    fs::remove_file(folder.join(record.to_string())).unwrap();
    error(&root, &["explain", &record.to_string()], 1, "missing");
}

#[tokio::test]
async fn a_guest_deletes_what_is_condemned_and_says_what_it_left() {
    let world = World::new(1).await;
    let service = world.start_without_deletes("orders/7").await;
    for value in ["one", "two", "three"] {
        service.checkpoint(value).await;
    }
    let (root, folder) = (world.root(), world.folder("orders/7"));
    drop(service);
    let orphan = "shared/1/999".to_owned();
    fs::create_dir_all(folder.join("shared/1")).unwrap();
    fs::write(folder.join(&orphan), b"orphan").unwrap();
    fs::write(folder.join("shared/README.txt"), b"not ours").unwrap();
    fs::write(root.join(".DS_Store"), b"not ours").unwrap();
    let held = answer(&root, &["show", "newest"])["files"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();

    let before = tree(&root);
    let planned = answer(&root, &["gc", "--dry-run"]);
    assert_eq!(tree(&root), before, "a dry run changes nothing");
    let condemned = texts(&planned["participants"][0]["deleted"]);
    assert_eq!(condemned.len(), 2, "{planned:#}");
    let done = answer(&root, &["gc"]);
    assert_eq!(texts(&done["unparsable"]), [".DS_Store"]);
    let done = &done["participants"][0];
    assert_eq!(texts(&done["deleted"]), condemned);
    assert_eq!(done["held_files"], 1);
    assert_eq!(done["left"][0]["file"], orphan);
    assert_eq!(texts(&done["unparsable"]), ["shared/README.txt"]);
    let mut expected = vec![held.clone(), orphan.clone(), "shared/README.txt".to_owned()];
    expected.sort();
    let mut stored = shared(&folder);
    stored.sort();
    assert_eq!(stored, expected);

    // Tombstones are a holder's to forget: they are told as gone from now on.
    let again = answer(&root, &["gc"]);
    assert_eq!(texts(&again["participants"][0]["deleted"]).len(), 0);
    assert_eq!(texts(&again["participants"][0]["absent"]), condemned);

    let taken = answer(&root, &["gc", "--take-over"]);
    let taken = &taken["participants"][0];
    assert_eq!(texts(&taken["deleted"]), [orphan]);
    assert_eq!(taken["epoch"], 2);
    assert_eq!(taken["left"].as_array().unwrap().len(), 0);
    let mut expected = vec![held, "shared/README.txt".to_owned()];
    expected.sort();
    assert_eq!(shared(&folder), expected);
    let after = answer(&root, &["gc"]);
    assert_eq!(
        texts(&after["participants"][0]["absent"]).len(),
        0,
        "{after:#}"
    );
    let verified = answer(&root, &["verify", "--all", "--full"]);
    assert_eq!(texts(&verified["unparsable"]), [".DS_Store"]);
    let of_participant = &verified["participants"][0]["unparsable"];
    assert_eq!(texts(of_participant), ["shared/README.txt"]);
    assert_eq!(verified["is_sound"], true, "strangers are no damage");
    let both = ["gc", "--take-over", "--dry-run", "--root"];
    let said = run(both.into_iter().chain([root.to_str().unwrap()]));
    assert_eq!(said.code, 2, "{said:?}");
}

#[tokio::test]
async fn a_restore_fills_what_is_its_own_and_touches_nothing_else() {
    let world = World::new(3).await;
    let service = world.start("orders/7").await;
    let first = service.checkpoint("one").await.to_string();
    service.checkpoint("two").await;
    let root = world.root();
    let before = tree(&root);
    let target = world.directory.path().join("an état/of long ago");
    fs::create_dir(target.parent().unwrap()).unwrap();
    let to = target.to_str().unwrap();

    let done = answer(&root, &["restore", &first, "--to", to]);
    assert_eq!(done["directory"], to);
    assert_eq!(done["fetched_files"], 1);
    assert_eq!(done["user_bytes"]["text"], "one");
    let state = MemoryState::open(&target).unwrap();
    assert_eq!(state.get(b"value").as_deref(), Some(&b"one"[..]));
    answer(&root, &["restore", "newest", "--to", to, "--verify-kept"]);
    let state = MemoryState::open(&target).unwrap();
    assert_eq!(state.get(b"value").as_deref(), Some(&b"two"[..]));
    // A directory that has no other above it in its path, and none that is made on the way.
    for below in ["one part", "several/parts/of/it"] {
        let mut command = command();
        command.current_dir(target.parent().unwrap());
        command.args(["restore", "newest", "--to", below, "--root"]);
        command.arg(&root);
        let said = say(command);
        assert_eq!(said.code, 0, "{said:?}");
        MemoryState::open(&target.parent().unwrap().join(below)).unwrap();
    }
    assert_eq!(tree(&root), before);

    // Somebody else's directory, a file, and a state that is in use.
    let foreign = world.directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letters"), b"dear").unwrap();
    let kept = tree(&foreign);
    error(
        &root,
        &["restore", "newest", "--to", foreign.to_str().unwrap()],
        2,
        "invalid",
    );
    assert_eq!(tree(&foreign), kept);
    let file = foreign.join("letters");
    error(
        &root,
        &["restore", "newest", "--to", file.to_str().unwrap()],
        2,
        "invalid",
    );
    assert_eq!(tree(&foreign), kept);
    let kept = tree(&service.local);
    error(
        &root,
        &["restore", "newest", "--to", service.local.to_str().unwrap()],
        4,
        "busy",
    );
    assert_eq!(tree(&service.local), kept);
}

/// A place that no state can have is the caller's mistake: nothing stored is missing or damaged.
#[tokio::test]
async fn a_restore_refuses_places_that_can_hold_no_state() {
    let world = World::new(1).await;
    let service = world.start("orders/7").await;
    service.checkpoint("one").await;
    let root = world.root();
    let before = tree(&root);
    let beside = world.directory.path().join("beside");
    std::os::unix::fs::symlink(&root, &beside).unwrap();
    let odd = world.directory.path().join("odd");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join(OsStr::from_bytes(b"\xff\xfe")), b"dear").unwrap();
    let places = [
        root.join("participants/newp"),
        root.join("new"),
        root.join("absent/../new"),
        beside.join("participants/newp"),
        odd,
        PathBuf::from("/proc/x"),
    ];
    for place in places {
        let to = place.to_str().unwrap();
        error(&root, &["restore", "newest", "--to", to], 2, "invalid");
    }
    assert_eq!(tree(&root), before);
}

#[test]
fn wrong_usage_is_told_in_a_line() {
    let asked = command().args(["bogus", "--json"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(2));
    let document: Value = serde_json::from_slice(&asked.stdout).unwrap();
    for field in ["text", "message"] {
        let text = document["error"][field].as_str().unwrap();
        assert!(text.contains("bogus"), "{text}");
        assert!(!text.contains('\n'), "{text:?}");
    }
}

/// A configuration in somebody's file: times as people write them, and no key that is not one.
#[test]
fn a_configuration_with_a_mistyped_key_is_refused() {
    let read = |text: &str| serde_json::from_str::<stillpoint::Config>(text);
    let config = read(r#"{"checkpoints": {"interval": "10 s"}}"#).unwrap();
    let interval = config.checkpoints.interval;
    assert_eq!(interval, Some(std::time::Duration::from_secs(10)));
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(written["checkpoints"]["timeout"], "10 min");
    assert_eq!(written["claim_deadline"], serde_json::Value::Null);
    assert_eq!(read(&written.to_string()).unwrap(), config);
    let error = read(r#"{"close_deadline": "soon"}"#)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("\"soon\" is no time; allowed is"),
        "{error}"
    );
    for mistyped in [
        r#"{"transfers": 3}"#,
        r#"{"checkpoints": {"intervall": null}}"#,
        r#"{"checkpoints": {"limits": {"sweep": 1}}}"#,
    ] {
        let error = read(mistyped).unwrap_err().to_string();
        assert!(error.starts_with("unknown field"), "{error}");
    }
}
