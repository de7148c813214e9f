//! Other users and other processes: what may not be read, and who else has it.
//!
//! The children are this very test binary, told by the environment what to do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stillpoint::{ErrorKind, FileSystem, MemoryState, Repository};

use crate::world::{FOLDER, PARTICIPANT, Template, config, open, tree, within, write_tree};

const DEEDS: &str = "STILLPOINT_TEST_DEEDS";
const PLACE: &str = "STILLPOINT_TEST_PLACE";
const SAYS: &str = "child says ";
const NOBODY: u32 = 65_534;

fn say(what: impl std::fmt::Display) {
    println!("{SAYS}{what}");
    std::io::stdout().flush().unwrap();
}

/// Not a test: what a child does. In the parent it does nothing.
#[tokio::test]
async fn child() {
    let Ok(deeds) = std::env::var(DEEDS) else {
        return;
    };
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    match &*deeds {
        "look" => look(&place).await,
        "hold" => hold(&place).await,
        other => panic!("no deeds {other}"),
    }
}

fn start(deeds: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "others::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DEEDS, deeds)
        .env(PLACE, place)
        .env("TMPDIR", place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Absent, unreadable and empty are told apart, for the root and for whatever is in it.
#[tokio::test]
async fn absent_unreadable_and_empty_are_three_answers() {
    let template = Template::make(PARTICIPANT).await;
    let place = tempfile::tempdir().unwrap();
    let mode = |name: &str, mode| {
        let path = place.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let (_, newest) = template.objects.last_key_value().unwrap();
    assert!(!newest.is_empty());
    let roots = [
        "closed", "folder", "current", "manifest", "shared", "written",
    ];
    for root in roots {
        write_tree(&place.path().join(root), &template.objects);
    }
    fs::create_dir(place.path().join("empty")).unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        let status = Command::new("chown")
            .args(["-R", &format!("{NOBODY}:{NOBODY}")])
            .arg(place.path())
            .status();
        assert!(status.unwrap().success());
    }
    mode("closed", 0o000);
    mode(&format!("folder/{FOLDER}"), 0o000);
    mode(&format!("current/{FOLDER}CURRENT"), 0o000);
    for name in template.objects.keys() {
        if name.contains("/manifest/") {
            mode(&format!("manifest/{name}"), 0o000);
        }
        if name.contains("/shared/") {
            mode(&format!("shared/{name}"), 0o000);
        }
    }
    mode(&format!("written/{FOLDER}"), 0o555);
    mode("written", 0o555);
    let mut command = start("look", place.path());
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    mode("closed", 0o755);
    mode(&format!("folder/{FOLDER}"), 0o755);
    mode("written", 0o755);
    mode(&format!("written/{FOLDER}"), 0o755);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("1 passed"), "nothing was run: {words}");
}

async fn look(place: &Path) {
    let opened = async |name: &str| {
        let store = FileSystem::at(place.join(name)).must_exist();
        Repository::builder(store)
            .with_config(config())
            .open()
            .await
    };
    assert_eq!(
        opened("absent").await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        opened("closed").await.unwrap_err().kind(),
        ErrorKind::Denied
    );
    let empty = opened("empty").await.unwrap();
    assert!(empty.participants().await.unwrap().is_empty());
    let error = empty.inspect(PARTICIPANT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");

    for name in ["folder", "current", "manifest"] {
        let repository = opened(name).await.unwrap();
        let looked = within(repository.inspect(PARTICIPANT)).await.unwrap_err();
        let claimed = within(repository.claim(PARTICIPANT)).await.unwrap_err();
        for error in [looked, claimed] {
            assert_eq!(error.kind(), ErrorKind::Denied, "{name}: {error}");
        }
    }
    // What may not be read is not damaged.
    let shared = opened("shared").await.unwrap();
    let inspection = shared.inspect(PARTICIPANT).await.unwrap();
    let newest = inspection.checkpoints().pop().unwrap().checkpoint;
    let verified = inspection
        .verify(newest, stillpoint::VerifyDepth::Checksums)
        .await;
    assert_eq!(verified.unwrap_err().kind(), ErrorKind::Denied);
    let claim = shared.claim(PARTICIPANT).await.unwrap();
    let error = claim.restore_into(place.join("local")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

    let written = opened("written").await.unwrap();
    let inspection = written.inspect(PARTICIPANT).await.unwrap();
    assert_eq!(inspection.checkpoints().len(), 2);
    let error = within(written.claim(PARTICIPANT)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let error = Repository::open(FileSystem::at(place.join("written/new/root")).must_exist())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let error = Repository::open(FileSystem::at(place.join("written/new/root")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// Holds the participant, and tries another checkpoint each time it is told to.
async fn hold(place: &Path) {
    let repository = open(FileSystem::at(place.join("root"))).await;
    let claim = repository.claim(PARTICIPANT).await.unwrap();
    let restored = claim.restore_into(place.join("local")).await.unwrap();
    let state = MemoryState::new();
    state.put(b"holder", b"first");
    let participant = restored.attach(state).unwrap();
    let checkpoint = participant.checkpoint("first").unwrap();
    checkpoint.completed().await.unwrap();
    say("holds");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {
        let completed = match participant.checkpoint("late") {
            Ok(checkpoint) => checkpoint.completed().await.map(drop),
            Err(error) => Err(error),
        };
        match completed {
            Ok(()) => say("completed"),
            Err(error) => say(format_args!(
                "{}, then {}",
                error.kind(),
                participant.ended().await.kind()
            )),
        }
    }
}

/// The second opener of a participant takes it over, the first one is fenced; and neither gets the
/// other's local directory.
#[tokio::test]
async fn a_second_process_takes_over_and_the_first_one_is_fenced() {
    let place = tempfile::tempdir().unwrap();
    let mut child = start("hold", place.path()).spawn().unwrap();
    let mut commands = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut hear = || {
        let said = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            line.split_once(SAYS).map(|(_, said)| said.to_owned())
        });
        said.expect("the child says something")
    };
    assert_eq!(hear(), "holds");

    let repository = open(FileSystem::at(place.path().join("root"))).await;
    let inspection = repository.inspect(PARTICIPANT).await.unwrap();
    let before = inspection.manifest().epoch();
    // A guest fences nobody.
    commands.write_all(b"\n").unwrap();
    assert_eq!(hear(), "completed");

    let claim = repository.claim(PARTICIPANT).await.unwrap();
    assert!(claim.epoch() > before);
    let local = tree(&place.path().join("local"));
    let error = claim
        .restore_into(place.path().join("local"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(tree(&place.path().join("local")), local);
    let second = place.path().join("second");
    let restored = claim.restore_into(&second).await.unwrap();
    assert_eq!(restored.user_bytes(), Some(&b"late"[..]));
    let state = MemoryState::open(&second).unwrap();
    assert_eq!(state.get(b"holder").as_deref(), Some(&b"first"[..]));
    state.put(b"holder", b"second");
    let participant = restored.attach(state).unwrap();
    let checkpoint = participant.checkpoint("second").unwrap();
    checkpoint.completed().await.unwrap();

    commands.write_all(b"\n").unwrap();
    // Whether the late one may be complete can't be told by a holder that is many commits behind.
    let said = hear();
    let is_fenced = ["fenced, then fenced", "in doubt, then fenced"].contains(&&*said);
    assert!(is_fenced, "{said}");
    participant.check().unwrap();
    let retained = repository.inspect(PARTICIPANT).await.unwrap().checkpoints();
    assert_eq!(retained.last().unwrap().user_bytes, b"second");
    drop(commands);
    assert!(child.wait().unwrap().success());
    participant.close().await.unwrap();
}
