//! The file system's troubles by real means: full, read-only, denied, other devices, few open
//! files, limited file sizes, shared blocks. And what it is really asked to sync.
//!
//! Each test runs its deeds in a child, this very binary, which is given what it needs: a mount
//! space of its own, another user, a limit. Where the machine gives no such thing the test says so
//! and is not done; with `STILLPOINT_NOTHING_SKIPPED=1` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "tests, and reasons for skipping"
)]

#[path = "common/skipped.rs"]
mod skipped;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind};
use stillpoint::storage::{
    BlobStore, Body, Digester, FileStore, FileSystem, Key, OpenErrorKind, Progress,
};
use tempfile::TempDir;

use crate::skipped::{NOTHING_SKIPPED, skipped};

const DEEDS: &str = "STILLPOINT_TEST_DEEDS";
const PLACE: &str = "STILLPOINT_TEST_PLACE";
/// An exit status of ours and nobody else's: what is needed is not to be had.
const NOT_TO_BE_HAD: i32 = 77;
const MIB: usize = 1 << 20;
const NOBODY: u32 = 65_534;

/// Not a test: what a child does. In the parent it does nothing.
#[tokio::test]
async fn child() {
    let Ok(deeds) = std::env::var(DEEDS) else {
        return;
    };
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    match &*deeds {
        "full" => full(&place).await,
        "read-only" => read_only(&place).await,
        "other devices" => other_devices(&place).await,
        "denied" => denied(&place).await,
        "few files" => few_files(&place).await,
        "small files" => small_files(&place).await,
        "shared blocks" => shared_blocks(&place).await,
        "traced" => traced(&place).await,
        "nothing to be had" => skipped(&deeds, "the test of that says so"),
        other => panic!("no deeds {other}"),
    }
}

/// Runs the deeds as the child of `wrapper`, or says why not.
fn run(deeds: &str, place: &Path, mut wrapper: Command) {
    wrapper
        .env(DEEDS, deeds)
        .env(PLACE, place)
        .env("TMPDIR", place);
    let output = match wrapper.output() {
        Ok(output) => output,
        Err(error) => {
            skipped(deeds, format_args!("{wrapper:?} cannot be run: {error}"));
            return;
        }
    };
    let words = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_TO_BE_HAD) {
        skipped(deeds, words.trim());
        return;
    }
    assert!(
        output.status.success(),
        "{deeds}: {}\n{words}",
        output.status
    );
    assert!(
        words.contains("1 passed"),
        "{deeds}: nothing was run\n{words}"
    );
}

/// A shell that does `first`, which ends in status 77 where that is not possible, and then becomes
/// this binary in the role of the child.
fn after(first: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("({first}) || exit {NOT_TO_BE_HAD}\n{}", exec()))
        .arg("sh")
        .arg(std::env::current_exe().unwrap());
    command
}

fn exec() -> &'static str {
    r#"exec "$1" --exact child --nocapture --test-threads=1"#
}

/// The same in a mount space of its own, which ends with it.
fn mounted(first: &str) -> Command {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--mount");
    // `unshare` itself fails with status 1 where it is not allowed; that is told apart by trying.
    let mut probe = Command::new("unshare");
    probe.args(command.get_args()).arg("true");
    if !probe.output().is_ok_and(|output| output.status.success()) {
        let mut none = Command::new("sh");
        none.args(["-c", "echo no mount space of our own; exit 77"]);
        return none;
    }
    let inner = after(first);
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn done<T: std::fmt::Debug>(answer: Answer<T>) -> T {
    match answer {
        Answer::Done(value) => value,
        other => panic!("{other:?}"),
    }
}

/// The failure of a call, which names what it was about.
fn failed<T: std::fmt::Debug>(answer: Answer<T>, kind: FailureKind, about: &Path) -> Failure {
    let Answer::Failed(failure) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(failure.kind, kind, "{failure}");
    let about = about.display().to_string();
    assert!(
        failure.cause.contains(&about),
        "{failure} does not name {about}"
    );
    failure
}

async fn open(root: &Path) -> FileStore {
    FileSystem::at(root).open().await.unwrap()
}

async fn put(store: &FileStore, name: &str, bytes: Vec<u8>) -> Answer<Digest> {
    store
        .put(&key(name), bytes.into(), &Progress::default())
        .await
}

async fn put_file(store: &FileStore, name: &str, path: &Path) -> Answer<Digest> {
    let body = Body::File {
        path: path.to_owned(),
        size_bytes: fs::metadata(path).unwrap().len(),
    };
    store.put(&key(name), body, &Progress::default()).await
}

async fn names(store: &FileStore) -> Vec<String> {
    done(store.list("", None, 1_000).await).names
}

fn no_temporaries(root: &Path) {
    let entries = fs::read_dir(root.join(".tmp")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    assert_eq!(left, [""; 0], "temporaries are left");
}

/// RocksDB 6316: out of space in the middle of a checkpoint; later there is room again.
#[test]
fn a_full_disk_is_no_space_and_nothing_is_left() {
    let place = TempDir::new().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    let mount = format!("mount -t tmpfs -o size=4m tmpfs '{}'", root.display());
    run("full", place.path(), mounted(&mount));
}

async fn full(place: &Path) {
    let root = place.join("root");
    let store = open(&root).await;
    done(put(&store, "shared/1/1", vec![1; MIB]).await);
    let tag = done(store.swap(&key("CURRENT"), None, b"before").await);
    let large = place.join("large");
    fs::write(&large, vec![2; 8 * MIB]).unwrap();
    failed(
        put_file(&store, "shared/1/2", &large).await,
        FailureKind::NoSpace,
        &root,
    );
    no_temporaries(&root);
    failed(
        put(&store, "shared/1/2", vec![2; 8 * MIB]).await,
        FailureKind::NoSpace,
        &root,
    );
    no_temporaries(&root);

    // Filled to the last page: the swap cannot be written aside, and CURRENT stays.
    let filler = root.join(".filler");
    let error = fs::write(&filler, vec![3; 8 * MIB]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let answer = store.swap(&key("CURRENT"), Some(&tag), b"after").await;
    failed(answer, FailureKind::NoSpace, &root);
    no_temporaries(&root);
    assert_eq!(
        done(store.load(&key("CURRENT"), 100).await).bytes,
        b"before"
    );

    // A restore into a full directory.
    let digest = Digester::of(&[1; MIB]);
    let target = root.join("restored");
    let progress = Progress::default();
    let answer = store
        .fetch(&key("shared/1/1"), &target, digest, &progress)
        .await;
    failed(answer, FailureKind::NoSpace, &target);
    assert!(!target.exists());
    assert!(fs::read_dir(&root).unwrap().all(|entry| {
        !stillpoint::storage::fs::is_partial(entry.unwrap().file_name().to_str().unwrap())
    }));

    fs::remove_file(&filler).unwrap();
    done(put(&store, "shared/1/2", vec![2; MIB]).await);
    done(store.swap(&key("CURRENT"), Some(&tag), b"after").await);
    done(store.delete(&key("shared/1/1")).await);
    assert_eq!(names(&store).await, ["CURRENT", "shared/1/2"]);
}

#[test]
fn a_read_only_file_system_is_named() {
    let place = TempDir::new().unwrap();
    let root = place.path().join("root");
    fs::create_dir_all(root.join("shared/1")).unwrap();
    fs::write(root.join("shared/1/1"), b"one").unwrap();
    fs::write(root.join("CURRENT"), b"current").unwrap();
    let root = root.display();
    let mount = format!("mount --bind '{root}' '{root}' && mount -o remount,bind,ro '{root}'");
    run("read-only", place.path(), mounted(&mount));
}

async fn read_only(place: &Path) {
    let root = place.join("root");
    let store = open(&root).await;
    assert_eq!(names(&store).await, ["CURRENT", "shared/1/1"]);
    assert_eq!(done(store.get(&key("shared/1/1"), 10).await), b"one");
    let loaded = done(store.load(&key("CURRENT"), 10).await);
    assert_eq!(loaded.bytes, b"current");
    let read_only = FailureKind::ReadOnly;
    failed(put(&store, "shared/1/2", vec![2]).await, read_only, &root);
    let answer = store.swap(&key("CURRENT"), Some(&loaded.tag), b"2").await;
    failed(answer, read_only, &root);
    let object = root.join("shared/1/1");
    failed(store.delete(&key("shared/1/1")).await, read_only, &object);
    let target = place.join("restored");
    let (digest, progress) = (Digester::of(b"one"), Progress::default());
    done(
        store
            .fetch(&key("shared/1/1"), &target, digest, &progress)
            .await,
    );

    let error = FileSystem::at(root.join("absent"))
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::ReadOnly, "{error}");
}

/// RocksDB 9627: the database on one mount, its checkpoints on another.
#[test]
fn other_devices_are_copied_to_or_named() {
    let place = TempDir::new().unwrap();
    let other = place.path().join("other");
    let shared = place.path().join("root/shared");
    fs::create_dir_all(&other).unwrap();
    fs::create_dir_all(&shared).unwrap();
    let mount = |at: &Path| format!("mount -t tmpfs -o size=16m tmpfs '{}'", at.display());
    let mount = format!("{} && {}", mount(&other), mount(&shared));
    run("other devices", place.path(), mounted(&mount));
}

async fn other_devices(place: &Path) {
    let (root, other) = (place.join("root"), place.join("other"));
    let store = open(&root).await;
    // Bodies from another device, and files fetched to it.
    let bytes = vec![7; 3 * MIB + 1];
    fs::write(other.join("source"), &bytes).unwrap();
    let digest = done(put_file(&store, "manifest/1", &other.join("source")).await);
    let target = other.join("target");
    done(
        store
            .fetch(&key("manifest/1"), &target, digest, &Progress::default())
            .await,
    );
    assert!(fs::read(&target).unwrap() == bytes);
    // A folder of the root that lies on another device: no rename leads there.
    let about = root.join("shared/1/1");
    failed(
        put(&store, "shared/1/1", vec![1]).await,
        FailureKind::CrossDevice,
        &about,
    );
    no_temporaries(&root);
    assert_eq!(names(&store).await, ["manifest/1"]);
}

#[test]
fn what_is_denied_is_told_from_what_is_absent_or_empty() {
    let place = TempDir::new().unwrap();
    let mode = |name: &str, mode| {
        let path = place.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in [
        "empty",
        "not listed",
        "not reached",
        "not written/shared/1",
        "closed",
        "object/shared/1",
    ] {
        fs::create_dir_all(place.path().join(name)).unwrap();
    }
    fs::write(place.path().join("a file"), b"").unwrap();
    fs::write(place.path().join("not written/shared/1/1"), b"one").unwrap();
    fs::write(place.path().join("object/shared/1/1"), b"one").unwrap();
    if is_root() {
        for name in ["empty", "object"] {
            std::os::unix::fs::chown(place.path().join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    mode("", 0o755);
    mode("empty", 0o755);
    mode("not listed", 0o311);
    mode("not reached", 0o644);
    mode("closed", 0o000);
    mode("not written", 0o555);
    mode("not written/shared", 0o555);
    mode("not written/shared/1", 0o555);
    mode("object/shared/1/1", 0o000);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    run("denied", place.path(), command);
    for name in ["not listed", "not reached", "closed", "not written"] {
        mode(name, 0o755);
    }
    for name in ["not written/shared", "not written/shared/1"] {
        mode(name, 0o755);
    }
}

async fn denied(place: &Path) {
    let open_kind = async |name: &str| {
        let root = place.join(name);
        let error = FileSystem::at(&root).must_exist().open().await.unwrap_err();
        assert!(
            error.to_string().contains(&*root.to_string_lossy()),
            "{error}"
        );
        error.kind()
    };
    assert_eq!(open_kind("absent").await, OpenErrorKind::Absent);
    assert_eq!(open_kind("a file").await, OpenErrorKind::NotADirectory);
    assert_eq!(
        open_kind("a file/below").await,
        OpenErrorKind::NotADirectory
    );
    for unreadable in ["not listed", "not reached", "closed", "closed/below"] {
        assert_eq!(
            open_kind(unreadable).await,
            OpenErrorKind::Denied,
            "{unreadable}"
        );
    }
    let created = FileSystem::at(place.join("not written/root")).open().await;
    assert_eq!(created.unwrap_err().kind(), OpenErrorKind::Denied);

    let empty = open(&place.join("empty")).await;
    assert_eq!(names(&empty).await, [""; 0]);
    done(put(&empty, "shared/1/1", b"one".to_vec()).await);

    let denied = FailureKind::Denied;
    let root = place.join("not written");
    let store = open(&root).await;
    assert_eq!(done(store.get(&key("shared/1/1"), 10).await), b"one");
    failed(put(&store, "shared/1/2", vec![2]).await, denied, &root);
    failed(store.swap(&key("CURRENT"), None, b"1").await, denied, &root);
    let object = root.join("shared/1/1");
    failed(store.delete(&key("shared/1/1")).await, denied, &object);

    let root = place.join("object");
    let object = root.join("shared/1/1");
    let store = open(&root).await;
    failed(store.get(&key("shared/1/1"), 10).await, denied, &object);
    failed(
        store.stream(&key("shared/1/1"), None).await,
        denied,
        &object,
    );
    failed(
        put_file(&store, "shared/1/2", &object).await,
        denied,
        &object,
    );
    assert_eq!(
        names(&store).await,
        ["shared/1/1"],
        "there, though unreadable"
    );
}

#[test]
fn few_open_files_exhaust_nothing_of_our_own() {
    let place = TempDir::new().unwrap();
    // More than 32 calls with five files each do not fit in this.
    run("few files", place.path(), {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n 200\n{}", exec()));
        command.arg("sh").arg(std::env::current_exe().unwrap());
        command
    });
}

async fn few_files(place: &Path) {
    let root = place.join("root");
    let store = open(&root).await;
    let source = place.join("source");
    fs::write(&source, vec![1; MIB]).unwrap();
    let (store, source) = (Arc::new(store), Arc::new(source));
    let puts: Vec<_> = (0..300)
        .map(|n| {
            let (store, source) = (Arc::clone(&store), Arc::clone(&source));
            tokio::spawn(async move { put_file(&store, &format!("shared/{n}/1"), &source).await })
        })
        .collect();
    for put in puts {
        done(put.await.unwrap());
    }
    assert_eq!(names(&store).await.len(), 300);

    // Used up by somebody else in this process.
    let mut others = Vec::new();
    let error = loop {
        match fs::File::open("/dev/null") {
            Ok(file) => others.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(24), "too many open files");
    let exhausted = FailureKind::Exhausted;
    failed(put(&store, "shared/0/2", vec![2]).await, exhausted, &root);
    failed(store.get(&key("shared/0/1"), 10).await, exhausted, &root);
    failed(
        store.swap(&key("CURRENT"), None, b"1").await,
        exhausted,
        &root,
    );
    failed(store.list("", None, 10).await, exhausted, &root);
    assert!(exhausted.is_retryable());
    drop(others);
    done(put(&store, "shared/0/2", vec![2]).await);
    done(store.swap(&key("CURRENT"), None, b"1").await);
    no_temporaries(&root);
}

/// A write that is cut short, and the error behind it.
#[test]
fn a_short_write_is_followed_by_its_error() {
    let place = TempDir::new().unwrap();
    let mut command = Command::new("sh");
    // In blocks of 512 bytes: a mebibyte and a half, which cuts the second block short.
    let script = format!("trap '' XFSZ\nulimit -f 3072\n{}", exec());
    command
        .arg("-c")
        .arg(script)
        .arg("sh")
        .arg(std::env::current_exe().unwrap());
    fs::write(place.path().join("source"), vec![1; 4 * MIB]).unwrap();
    run("small files", place.path(), command);
}

async fn small_files(place: &Path) {
    let root = place.join("root");
    let store = open(&root).await;
    let source = place.join("source");
    let too_large = FailureKind::TooLarge;
    failed(
        put_file(&store, "shared/1/1", &source).await,
        too_large,
        &root,
    );
    no_temporaries(&root);
    failed(
        put(&store, "shared/1/1", vec![1; 2 * MIB]).await,
        too_large,
        &root,
    );
    no_temporaries(&root);
    assert_eq!(names(&store).await, [""; 0]);
    done(put(&store, "shared/1/1", vec![1; MIB]).await);
}

/// Where blocks can be shared, a put and a fetch share them.
#[test]
fn a_file_system_that_can_shares_blocks() {
    let place = TempDir::new().unwrap();
    fs::create_dir(place.path().join("xfs")).unwrap();
    let first = format!(
        "cd '{}' && truncate -s 400m image && mkfs.xfs -q image && mount -o loop image xfs",
        place.path().display()
    );
    run("shared blocks", place.path(), mounted(&first));
}

async fn shared_blocks(place: &Path) {
    const SIZE: usize = 96 * MIB;
    let xfs = place.join("xfs");
    let used = || {
        let output = Command::new("df")
            .args(["-B1", "--output=used"])
            .arg(&xfs)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().nth(1).unwrap().trim().parse::<u64>().unwrap()
    };
    let source = xfs.join("source");
    let bytes: Vec<u8> = (0..SIZE).map(|n| (n >> 12) as u8).collect();
    fs::write(&source, &bytes).unwrap();
    fs::File::open(&source).unwrap().sync_all().unwrap();
    let store = open(&xfs.join("root")).await;
    let before = used();
    let digest = done(put_file(&store, "shared/1/1", &source).await);
    assert_eq!(digest, Digester::of(&bytes));
    let target = xfs.join("target");
    done(
        store
            .fetch(&key("shared/1/1"), &target, digest, &Progress::default())
            .await,
    );
    let grown = used() - before;
    assert!(grown < SIZE as u64 / 4, "{grown} bytes more are used");
    // Shared, and yet apart: what is written to one is not seen in the other.
    fs::write(&source, b"other").unwrap();
    assert!(done(store.get(&key("shared/1/1"), u64::MAX).await) == bytes);
    assert!(fs::read(&target).unwrap() == bytes);
    let wrong = Body::File {
        path: target.clone(),
        size_bytes: SIZE as u64 - 1,
    };
    let answer = store
        .put(&key("shared/1/2"), wrong, &Progress::default())
        .await;
    failed(answer, FailureKind::Corrupt, &target);
}

/// What the machine does not give is no success where it has to give everything.
#[test]
fn what_is_skipped_fails_where_nothing_may_be() {
    for (nothing_skipped, succeeds) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
        command.env(DEEDS, "nothing to be had").env(PLACE, "/");
        match nothing_skipped {
            Some(value) => command.env(NOTHING_SKIPPED, value),
            None => command.env_remove(NOTHING_SKIPPED),
        };
        let output = command.output().unwrap();
        assert_eq!(output.status.success(), succeeds, "{nothing_skipped:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        let said = if succeeds {
            "skipped, "
        } else {
            "was not done"
        };
        assert!(words.contains(said), "{nothing_skipped:?}: {words}");
    }
}

/// arrow-rs-object-store 643, seen from the kernel: what is asked to be durable before a put, a
/// swap and a delete are acknowledged, and in what order.
#[test]
fn the_kernel_is_asked_to_sync_in_order() {
    let place = TempDir::new().unwrap();
    let place = fs::canonicalize(place.path()).unwrap();
    let trace = place.join("trace");
    if !Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|s| s.success())
    {
        skipped("traced", "no strace, or it may not trace");
        return;
    }
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-y",
        "-e",
        "trace=fsync,mkdirat,renameat,renameat2,flock,unlinkat",
    ]);
    command
        .arg("-o")
        .arg(&trace)
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    run("traced", &place, command);

    let trace = fs::read_to_string(&trace).unwrap();
    let root = place.join("root").display().to_string();
    let lines = whole_lines(&trace);
    let calls: Vec<String> = lines.iter().filter_map(|line| call(line, &root)).collect();
    let expected = [
        "mkdirat <>, shared",
        "fsync <>",
        "mkdirat <shared>, 1",
        "fsync <shared>",
        "renameat2 <.tmp>, <shared/1>, 1, RENAME_NOREPLACE",
        "fsync <shared/1>",
    ];
    let from = |first: &str| {
        let place = calls.iter().position(|call| call == first);
        &calls[place.unwrap_or_else(|| panic!("no {first} in {calls:#?}"))..]
    };
    assert_eq!(from(expected[0])[..expected.len()], expected);
    let content = calls
        .iter()
        .position(|call| call == "fsync <.tmp/…>")
        .unwrap();
    let naming = calls.iter().position(|call| call == expected[4]).unwrap();
    assert!(content < naming, "{calls:#?}");

    let expected = [
        "flock <LOCK>, LOCK_EX|LOCK_NB",
        "renameat <.tmp>, <>, CURRENT",
        "fsync <>",
        "unlinkat <shared/1>, 1",
        "unlinkat <shared>, 1, AT_REMOVEDIR",
        "fsync <shared>",
    ];
    let swap = from(expected[0]);
    assert_eq!(swap[..expected.len()], expected);
    let before = &calls[..calls.len() - swap.len()];
    assert_eq!(
        before.last().unwrap(),
        "fsync <.tmp/…>",
        "the content, before the lock"
    );
}

async fn traced(place: &Path) {
    let store = open(&place.join("root")).await;
    done(put(&store, "shared/1/1", vec![1; MIB]).await);
    done(store.swap(&key("CURRENT"), None, b"1").await);
    done(store.delete(&key("shared/1/1")).await);
}

/// The trace without the process numbers, a call that others interrupted put where it ended.
fn whole_lines(trace: &str) -> Vec<String> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in trace.lines() {
        let Some((process, line)) = line.split_once(' ') else {
            continue;
        };
        let line = line.trim_start();
        if let Some(beginning) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(process, beginning);
        } else if let Some((_, end)) = line.split_once(" resumed>") {
            let beginning = begun.remove(process).unwrap_or_default();
            lines.push(format!("{beginning}{end}"));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// A line of the trace as the call, its paths in the root and its last words; temporaries have no
/// names. `None` for what is not about the root or did not succeed.
fn call(line: &str, root: &str) -> Option<String> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(')')?;
    if result.trim_start() != "= 0" || !arguments.contains(root) {
        return None;
    }
    let mut said = Vec::new();
    for argument in arguments.split(", ") {
        let is_mode = argument.starts_with('0') && argument.len() > 1 && !argument.contains('<');
        if is_mode || argument == "0" {
            continue;
        }
        let Some((_, path)) = argument.split_once('<') else {
            let word = argument.trim_matches('"');
            if !word.contains('.') {
                said.push(word.to_owned());
            }
            continue;
        };
        let path = path.trim_end_matches('>').strip_prefix(root)?;
        let path = path.trim_start_matches('/');
        let shown = if path.starts_with(".tmp/") {
            ".tmp/…"
        } else {
            path
        };
        said.push(format!("<{shown}>"));
    }
    Some(format!("{name} {}", said.join(", ")))
}
