//! Several processes on one root: swaps that exclude each other, and writers that die.
//!
//! The children are this very test binary, told by the environment what to do.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "tests, and a child that talks to its parent"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use stillpoint::protocol::answer::{Answer, Tag};
use stillpoint::storage::{
    BlobStore, Body, Chunks, Digester, FileStore, FileSystem, Key, NextChunk, Progress, Reader,
};
use tempfile::TempDir;

const ROLE: &str = "STILLPOINT_TEST_ROLE";
const ROOT: &str = "STILLPOINT_TEST_ROOT";
/// What a child says begins with this, to be told from what the test harness says.
const SAYS: &str = "child says ";
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// A child process in a role. Dropped, it is killed.
struct Actor {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    fn start(role: &str, root: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ROOT, root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next thing it says; `None` once it has ended.
    fn hear(&mut self) -> Option<String> {
        for line in self.lines.by_ref() {
            // The harness ends its own words without a new line.
            if let Some((_, said)) = line.unwrap().split_once(SAYS) {
                return Some(said.to_owned());
            }
        }
        None
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(what: impl std::fmt::Display) {
    println!("{SAYS}{what}");
    std::io::stdout().flush().unwrap();
}

/// Not a test: what a child does. In the parent it does nothing.
#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let root = PathBuf::from(std::env::var_os(ROOT).unwrap());
    let (role, argument) = role.split_once(' ').unwrap_or((&role, ""));
    match role {
        "count" => count(&open(&root).await, argument).await,
        "hold" => hold_the_lock(&root),
        "write" => write_for_ever(&open(&root).await, &root).await,
        "slow" => write_slowly(&open(&root).await).await,
        other => panic!("no role {other}"),
    }
}

async fn open(root: &Path) -> FileStore {
    FileSystem::at(root).open().await.unwrap()
}

fn current() -> Key {
    Key::new("CURRENT").unwrap()
}

fn done<T: std::fmt::Debug>(answer: Answer<T>) -> T {
    match answer {
        Answer::Done(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Who has counted how far, as the swapped object holds it.
type Counts = BTreeMap<String, u64>;

async fn load(store: &FileStore) -> (Counts, Tag) {
    let loaded = done(store.load(&current(), CONTENT_BYTES_MAX).await);
    let text = String::from_utf8(loaded.bytes).unwrap();
    let counts = text.lines().map(|line| {
        let (name, count) = line.split_once(' ').unwrap();
        (name.to_owned(), count.parse().unwrap())
    });
    (counts.collect(), loaded.tag)
}

fn write(counts: &Counts) -> Vec<u8> {
    let lines = counts
        .iter()
        .map(|(name, count)| format!("{name} {count}\n"));
    lines.collect::<String>().into_bytes()
}

/// Counts up under its own name, and says how far it has come for certain.
async fn count(store: &FileStore, argument: &str) {
    let (name, steps) = argument.split_once(' ').unwrap();
    for step in 1..=steps.parse::<u64>().unwrap() {
        loop {
            let (mut counts, tag) = load(store).await;
            assert_eq!(
                counts.get(name).copied().unwrap_or(0),
                step - 1,
                "a step was lost"
            );
            counts.insert(name.to_owned(), step);
            match store.swap(&current(), Some(&tag), &write(&counts)).await {
                Answer::Done(_) => break,
                Answer::Refused => {}
                other => panic!("{other:?}"),
            }
        }
        say(step);
    }
}

fn hold_the_lock(root: &Path) {
    let lock = std::fs::File::open(root.join("LOCK")).unwrap();
    lock.lock().unwrap();
    say("held");
    // Until it is killed.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Puts file after file, announced before and confirmed after.
async fn write_for_ever(store: &FileStore, root: &Path) {
    for n in 1_u64.. {
        let path = root.with_extension("source");
        let bytes: Vec<u8> = (0..(3 << 20)).map(|byte: u64| (byte * n) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let key = Key::new(&format!("shared/1/{n}")).unwrap();
        let size_bytes = bytes.len() as u64;
        let (body, progress) = (Body::File { path, size_bytes }, Progress::default());
        let digest = done(store.put(&key, body, &progress).await);
        say(format!("{n} {}", digest.checksum));
    }
}

/// A body whose second piece comes when the parent closes our standard input.
struct Slow(u64);

impl Chunks for Slow {
    fn next(&mut self) -> NextChunk<'_> {
        self.0 += 1;
        let n = self.0;
        Box::pin(async move {
            if n == 2 {
                say("under way");
                let _ = std::io::stdin().read(&mut [0]);
            }
            Ok((n < 3).then(|| vec![n as u8; 10]))
        })
    }
}

async fn write_slowly(store: &FileStore) {
    let body = Body::Stream(Reader::new(20, Slow(0)));
    let key = Key::new("shared/9/1").unwrap();
    done(store.put(&key, body, &Progress::default()).await);
    say("done");
}

/// Names in the folder of the temporaries.
fn temporaries(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join(".tmp")) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

async fn wait_until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_true().await {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{what}: never came"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One holder of the lock is killed, one counter is killed somewhere in its swaps; what the others
/// and the dead one have counted for certain is there, and nothing else.
#[tokio::test]
async fn racing_processes_lose_no_swap() {
    const STEPS: u64 = 40;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("root");
    let store = open(&root).await;
    done(store.swap(&current(), None, b"").await);

    let mut holder = Actor::start("hold", &root);
    assert_eq!(holder.hear().unwrap(), "held");
    let mut counters: Vec<Actor> = (0..4)
        .map(|n| Actor::start(&format!("count survivor-{n} {STEPS}"), &root))
        .collect();
    let mut victim = Actor::start("count victim 1000000", &root);
    wait_until("five swaps that wait for the lock", async || {
        temporaries(&root).len() == 5
    })
    .await;
    assert_eq!(load(&store).await.0, Counts::new(), "the lock was held");
    holder.kill();

    for _ in 0..5 {
        victim.hear().unwrap();
    }
    victim.child.kill().unwrap();
    let mut confirmed = 5;
    while let Some(said) = victim.hear() {
        confirmed = said.parse().unwrap();
    }
    for (n, counter) in counters.iter_mut().enumerate() {
        assert!(counter.wait().success(), "survivor {n}");
    }
    let (mut counts, _) = load(&store).await;
    let victim = counts.remove("victim").unwrap();
    // It may have died between a swap and its word.
    assert!(
        (confirmed..=confirmed + 1).contains(&victim),
        "{victim}, {confirmed} confirmed"
    );
    let expected: Counts = (0..4).map(|n| (format!("survivor-{n}"), STEPS)).collect();
    assert_eq!(counts, expected);
}

/// OpenDAL 788: a file that was half written when its writer died was taken for the whole.
#[tokio::test]
async fn a_killed_writer_leaves_whole_objects_and_no_trace() {
    let directory = TempDir::new().unwrap();
    for round in 1..=10_u64 {
        let root = directory.path().join(format!("root {round}"));
        let mut writer = Actor::start("write", &root);
        let mut confirmed = BTreeMap::new();
        for _ in 0..round.min(3) {
            let (n, checksum) = split(&writer.hear().unwrap());
            confirmed.insert(n, checksum);
        }
        wait_until("a file on its way", async || !temporaries(&root).is_empty()).await;
        writer.child.kill().unwrap();
        while let Some(said) = writer.hear() {
            let (n, checksum) = split(&said);
            confirmed.insert(n, checksum);
        }
        writer.wait();

        let store = open(&root).await;
        assert_eq!(temporaries(&root), [""; 0], "round {round}");
        let page = done(store.list("", None, 1_000).await);
        // The last one may have got its name without a word.
        assert!(
            (0..=1).contains(&(page.names.len() - confirmed.len())),
            "round {round}"
        );
        for name in &page.names {
            let key = Key::new(name).unwrap();
            let n: u64 = key.leaf().parse().unwrap();
            let bytes: Vec<u8> = (0..(3 << 20)).map(|byte: u64| (byte * n) as u8).collect();
            let expected = Digester::of(&bytes);
            let found = stillpoint::storage::digest(&store, &key, &Progress::default()).await;
            assert_eq!(done(found), expected, "{name}");
            if let Some(checksum) = confirmed.remove(&n) {
                assert_eq!(checksum, expected.checksum.to_string());
            }
        }
        assert_eq!(confirmed, BTreeMap::new(), "confirmed and not there");
    }
}

fn split(said: &str) -> (u64, String) {
    let (n, checksum) = said.split_once(' ').unwrap();
    (n.parse().unwrap(), checksum.to_owned())
}

#[tokio::test]
async fn opening_leaves_a_living_neighbours_files_alone() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("root");
    let mut writer = Actor::start("slow", &root);
    assert_eq!(writer.hear().unwrap(), "under way");
    let under_way = temporaries(&root);
    assert_eq!(under_way.len(), 1);
    let store = open(&root).await;
    assert_eq!(temporaries(&root), under_way);
    assert_eq!(done(store.list("", None, 10).await).names, [""; 0]);
    drop(writer.child.stdin.take());
    assert_eq!(writer.hear().unwrap(), "done");
    assert!(writer.wait().success());
    let key = Key::new("shared/9/1").unwrap();
    let expected = [[1; 10], [2; 10]].concat();
    assert_eq!(done(store.get(&key, 100).await), expected);
    assert_eq!(temporaries(&root), [""; 0]);
}
