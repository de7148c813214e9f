//! Whatever may lie where a repository is looked for: each is told from the others, and left as
//! it is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::{World, answer, ask, command, error, say, tree};

/// Every command, as it is asked about some root.
const ALL: [&[&str]; 9] = [
    &["ls"],
    &["show", "newest"],
    &["verify"],
    &["verify", "--all", "--full"],
    &["explain", "1/1"],
    &["gc"],
    &["gc", "--dry-run"],
    &["gc", "--take-over"],
    &["restore", "newest", "--to", "/nowhere/at/all"],
];

fn all_end_so(root: &Path, code: i32, kind: &str) {
    let before = tree(root);
    for arguments in ALL {
        let error = error(root, arguments, code, kind);
        assert!(error["text"].as_str().unwrap().contains(kind), "{error}");
    }
    assert_eq!(tree(root), before, "{}", root.display());
}

#[test]
fn absent() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("not/there");
    all_end_so(&root, 3, "not found");
    assert!(!place.path().join("not").exists());
}

#[test]
fn a_file() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("file");
    fs::write(&root, b"text").unwrap();
    all_end_so(&root, 2, "invalid");
    all_end_so(&root.join("below"), 2, "invalid");
}

#[test]
fn empty() {
    let place = tempfile::tempdir().unwrap();
    let before = tree(place.path());
    for arguments in ALL {
        let (code, document) = ask(place.path(), arguments);
        let lists = matches!(arguments[0], "ls" | "gc") && !arguments.contains(&"--take-over");
        if lists {
            assert_eq!(code, 0, "{document:#}");
            assert_eq!(document["participants"].as_array().unwrap().len(), 0);
        } else {
            assert_eq!((code, &document["error"]["kind"]), (3, &"not found".into()));
            let message = document["error"]["message"].as_str().unwrap();
            assert!(message.contains("is empty"), "{message}");
        }
    }
    // A store for writing removes temporary files of dead writers and may make their folder;
    // looking on does not even that.
    let after = tree(place.path());
    assert_eq!(after.len(), before.len(), "{after:?}");
}

#[tokio::test]
async fn of_another_kind() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("letters"), b"dear").unwrap();
    all_end_so(place.path(), 2, "invalid");
    let world = World::new(1).await;
    let service = world.start("orders/7").await;
    service.checkpoint("one").await;
    service.close().await;
    let folder = world.folder("orders/7");
    all_end_so(&folder, 2, "invalid");
    let error = error(&folder, &["ls"], 2, "invalid");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("one participant"),
        "{error}"
    );
}

/// Runs as nobody, where that can be told from root.
fn as_nobody(program: &Path, arguments: &[&str], root: &Path) -> Command {
    const NOBODY: u32 = 65_534;
    let mut command = if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY);
        command
    } else {
        command()
    };
    command
        .args(arguments)
        .arg("--root")
        .arg(root)
        .arg("--json");
    command
}

#[tokio::test]
async fn unreadable() {
    let world = World::new(1).await;
    let service = world.start("orders/7").await;
    service.checkpoint("one").await;
    service.close().await;
    // Where nobody can reach it: the build's own directory may be closed to others.
    let program = world.directory.path().join("stillpoint");
    fs::copy(env!("CARGO_BIN_EXE_stillpoint"), &program).unwrap();
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(world.directory.path(), 0o755);
    mode(&program, 0o755);
    let (root, folder) = (world.root(), world.folder("orders/7"));
    let current = folder.join("CURRENT");
    mode(&current, 0o644);
    for (closed, open_mode) in [
        (&root, 0o755),
        (&root.join("participants"), 0o755),
        (&current, 0o644),
    ] {
        mode(closed, 0o000);
        for arguments in ALL {
            let said = say(as_nobody(&program, arguments, &root));
            let document = said.json();
            // `gc` and `verify --all` go through all participants and tell of each.
            let error = if document["error"].is_null() {
                document["participants"][0]["error"].clone()
            } else {
                document["error"].clone()
            };
            assert_eq!(said.code, 5, "{arguments:?} {closed:?} {document:#}");
            assert_eq!(
                error["kind"], "denied",
                "{arguments:?} {closed:?} {document:#}"
            );
        }
        mode(closed, open_mode);
    }
    answer(&root, &["verify", "--all", "--full"]);

    // A participant that can't be read keeps nobody from another one.
    let other = world.start("good").await;
    other.checkpoint("one").await;
    other.close().await;
    mode(&world.folder("good").join("CURRENT"), 0o644);
    for closed in [&folder, &folder.join("shared")] {
        mode(closed, 0o000);
        for arguments in [&["ls"][..], &["verify", "--all"], &["gc", "--dry-run"]] {
            let said = say(as_nobody(&program, arguments, &root));
            let document = said.json();
            let participants = &document["participants"];
            let names = [&participants[0]["name"], &participants[1]["name"]];
            assert_eq!(names, ["good", "orders/7"], "{document:#}");
            assert!(participants[0]["error"].is_null(), "{document:#}");
            // Of a folder that can't be looked into nobody says that there is no garbage in it.
            if *closed == folder || arguments[0] != "ls" {
                assert_eq!(said.code, 5, "{document:#}");
                assert_eq!(participants[1]["error"]["kind"], "denied", "{document:#}");
            }
        }
        let said = say(as_nobody(
            &program,
            &["verify", "--participant", "good"],
            &root,
        ));
        assert_eq!(said.code, 0, "{said:?}");
        mode(closed, 0o755);
    }
}

#[tokio::test]
async fn damaged_foreign_and_newer() {
    let world = World::new(1).await;
    for name in ["orders/7", "orders/8"] {
        let service = world.start(name).await;
        service.checkpoint(name).await;
        service.close().await;
    }
    let root = world.root();
    let current = world.folder("orders/7").join("CURRENT");
    let original = fs::read(&current).unwrap();
    let other = fs::read(world.folder("orders/8").join("CURRENT")).unwrap();
    let mut flipped = original.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for (content, code, kind) in [
        (flipped, 1, "corrupt"),
        (original[..20].to_vec(), 1, "corrupt"),
        (Vec::new(), 1, "corrupt"),
        (other, 4, "incompatible"),
    ] {
        fs::write(&current, content).unwrap();
        let before = tree(&root);
        for arguments in ALL {
            let arguments = [arguments, &["--participant", "orders/7"]].concat();
            let (found, document) = ask(&root, &arguments);
            let error = if document["error"].is_null() {
                &document["participants"][0]["error"]
            } else {
                &document["error"]
            };
            assert_eq!(
                (found, &error["kind"]),
                (code, &kind.into()),
                "{document:#}"
            );
        }
        // The others can be seen all the same.
        let (found, listed) = ask(&root, &["ls"]);
        assert_eq!(found, code);
        assert_eq!(listed["participants"][0]["error"]["kind"], kind);
        assert_eq!(
            listed["participants"][1]["checkpoints"][0]["user_bytes"]["text"],
            "orders/8"
        );
        assert_eq!(tree(&root), before);
    }
    fs::remove_file(&current).unwrap();
    let (found, listed) = ask(&root, &["ls"]);
    assert_eq!(
        (found, &listed["participants"][0]["error"]["kind"]),
        (1, &"missing".into()),
        "{listed:#}"
    );
    fs::write(&current, original).unwrap();
    answer(&root, &["verify", "--all"]);
}
