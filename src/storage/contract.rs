//! What every [`BlobStore`] must do, as checks that anybody can run on one.
//!
//! Each check wants a store with nothing in it, a directory of its own for local files, and a
//! tokio runtime; it panics at the first thing that is wrong. What a store does when the power
//! goes or a disk is full only its own tests can tell.
//!
//! ```
//! # use std::sync::Arc;
//! # use stillpoint::storage::{BlobStore, Memory, contract};
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! # let scratch = tempfile::tempdir().unwrap();
//! contract::all(async || Arc::new(Memory::new()) as Arc<dyn BlobStore>, scratch.path()).await;
//! # });
//! ```

#![allow(
    clippy::missing_panics_doc,
    reason = "every function here panics when the store is wrong, as the module says"
)]

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::{BLOCK_BYTES, BlobStore, Body, Chunks, Digester, Key, NextChunk, Progress, Reader};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};

type Store = Arc<dyn BlobStore>;

/// Larger than anything written here.
const SIZE_BYTES_MAX: u64 = 1 << 30;

/// Runs every check, each on a store made by `fresh`.
pub async fn all(fresh: impl AsyncFn() -> Arc<dyn BlobStore>, scratch: &Path) {
    put_stores_every_body(&fresh().await, scratch).await;
    put_creates_once(&fresh().await).await;
    put_refuses_other_lengths(&fresh().await, scratch).await;
    puts_of_one_name_have_one_winner(&fresh().await).await;
    a_dropped_put_leaves_all_or_nothing(&fresh().await, scratch).await;
    what_is_absent_is_not_found(&fresh().await, scratch).await;
    ranges_lie_within_the_object(&fresh().await).await;
    get_is_bounded(&fresh().await).await;
    swap_compares(&fresh().await).await;
    swaps_exclude_each_other(&fresh().await).await;
    list_pages_in_order(&fresh().await).await;
    delete_is_repeatable(&fresh().await).await;
    fetch_makes_a_checked_file(&fresh().await, scratch).await;
    odd_names_are_kept(&fresh().await).await;
}

/// Bodies of all kinds and sizes come out as they went in, with the digest that the put answered.
pub async fn put_stores_every_body(store: &Store, scratch: &Path) {
    let block = BLOCK_BYTES;
    for (case, size) in [0, 1, block - 1, block, block + 1, 3 * block + 7]
        .into_iter()
        .enumerate()
    {
        let bytes = content(size, case);
        let expected = Digester::of(&bytes);
        let path = scratch_file(scratch, &format!("body-{case}"), &bytes);
        let size_bytes = size as u64;
        let bodies = [
            Body::from(bytes.clone()),
            Body::File { path, size_bytes },
            Body::Stream(Reader::new(size_bytes, Pieces::of(&bytes))),
        ];
        for (kind, body) in bodies.into_iter().enumerate() {
            assert_eq!(body.size_bytes(), size_bytes);
            let key = key(&format!("shared/{case}/{kind}"));
            let progress = Progress::default();
            let digest = done(store.put(&key, body, &progress).await, &key);
            assert_eq!(digest, expected, "{key}: the digest of what was put");
            assert_eq!(progress.bytes(), size_bytes, "{key}: progress");
            assert_eq!(
                done(store.size(&key).await, &key),
                size_bytes,
                "{key}: size"
            );
            let found = done(store.get(&key, SIZE_BYTES_MAX).await, &key);
            assert!(found == bytes, "{key}: get gives other bytes");
            let mut reader = done(store.stream(&key, None).await, &key);
            assert_eq!(reader.size_bytes(), size_bytes, "{key}: announced size");
            let found = reader.read_to_end().await;
            assert!(
                found.as_ref() == Ok(&bytes),
                "{key}: stream gives other bytes"
            );
            let digest = super::digest(&**store, &key, &Progress::default()).await;
            assert_eq!(done(digest, &key), expected, "{key}: digest");
        }
    }
}

/// A second put of a name is refused and changes nothing, whatever its body.
pub async fn put_creates_once(store: &Store) {
    let key = key("manifest/1-1-00000000000000aa");
    put(store, &key, b"first").await;
    for second in [&b"first"[..], b"other", b""] {
        let answer = store
            .put(&key, second.to_vec().into(), &Progress::default())
            .await;
        assert_eq!(answer, Answer::Refused, "{key}: a second put");
    }
    assert_eq!(done(store.get(&key, 100).await, &key), b"first");
}

/// A local file that is longer or shorter than announced, or absent, and a stream that breaks off
/// store nothing, and the name stays free.
pub async fn put_refuses_other_lengths(store: &Store, scratch: &Path) {
    let key = key("shared/1/1");
    let path = scratch_file(scratch, "length", b"twelve bytes");
    for size_bytes in [0, 11, 13, 1 << 40] {
        let path = path.clone();
        let answer = store
            .put(&key, Body::File { path, size_bytes }, &Progress::default())
            .await;
        assert_eq!(
            failed(answer, &key).kind,
            FailureKind::Corrupt,
            "{size_bytes}"
        );
    }
    let missing = Body::File {
        path: scratch.join("nowhere"),
        size_bytes: 12,
    };
    let answer = store.put(&key, missing, &Progress::default()).await;
    assert_eq!(failed(answer, &key).kind, FailureKind::NotFound);
    for size_bytes in [11, 13] {
        let body = Body::Stream(Reader::new(size_bytes, Pieces::of(b"twelve bytes")));
        let answer = store.put(&key, body, &Progress::default()).await;
        assert_eq!(
            failed(answer, &key).kind,
            FailureKind::Corrupt,
            "{size_bytes}"
        );
    }
    let body = Body::Stream(Reader::new(12, Broken));
    let answer = store.put(&key, body, &Progress::default()).await;
    assert_eq!(
        failed(answer, &key),
        Broken::failure(),
        "the first cause is kept"
    );

    assert_eq!(names(store, "").await, [""; 0]);
    put(store, &key, b"twelve bytes").await;
}

/// Of many puts of one name at once exactly one is done, and its body is there as a whole.
pub async fn puts_of_one_name_have_one_winner(store: &Store) {
    let name = key("shared/1/1");
    let bodies: Vec<Vec<u8>> = (0..16).map(|n| content(100_000, n)).collect();
    let puts: Vec<_> = bodies
        .iter()
        .map(|body| {
            let (store, name, body) = (Arc::clone(store), name.clone(), body.clone());
            tokio::spawn(async move { store.put(&name, body.into(), &Progress::default()).await })
        })
        .collect();
    let mut winners = Vec::new();
    for (n, task) in puts.into_iter().enumerate() {
        match joined(task.await) {
            Answer::Done(_) => winners.push(n),
            Answer::Refused => {}
            Answer::Failed(failure) | Answer::Unknown(failure) => panic!("{name}: {failure}"),
        }
    }
    assert_eq!(winners.len(), 1, "done: {winners:?}");
    let found = done(store.get(&name, SIZE_BYTES_MAX).await, &name);
    assert!(found == bodies[winners[0]], "the winner's body");
}

/// A put that is dropped in the middle has stored its whole body or nothing, and a repeated one
/// settles it.
pub async fn a_dropped_put_leaves_all_or_nothing(store: &Store, scratch: &Path) {
    let bytes = content(5 * BLOCK_BYTES, 1);
    let path = scratch_file(scratch, "dropped", &bytes);
    for n in 0..8 {
        let key = key(&format!("shared/1/{n}"));
        let body = || Body::File {
            path: path.clone(),
            size_bytes: bytes.len() as u64,
        };
        let progress = Progress::default();
        {
            let mut put = pin!(store.put(&key, body(), &progress));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..n {
                if put.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        match store.put(&key, body(), &Progress::default()).await {
            Answer::Done(_) | Answer::Refused => {}
            Answer::Failed(failure) | Answer::Unknown(failure) => panic!("{key}: {failure}"),
        }
        let found = done(store.get(&key, SIZE_BYTES_MAX).await, &key);
        assert!(found == bytes, "{key}: a part of the body");
    }
    assert_eq!(names(store, "").await.len(), 8);
}

/// Every way to read an absent object says that it is not found, and deleting it is done.
pub async fn what_is_absent_is_not_found(store: &Store, scratch: &Path) {
    let target = scratch.join("absent");
    for name in ["CURRENT", "shared/1/1"] {
        let key = key(name);
        let digest = Digester::of(b"");
        let progress = Progress::default();
        let kinds = [
            failed(store.size(&key).await, &key).kind,
            failed(store.get(&key, 10).await, &key).kind,
            failed(store.load(&key, 10).await, &key).kind,
            failed(store.stream(&key, None).await, &key).kind,
            failed(store.stream(&key, Some(0..1)).await, &key).kind,
            failed(store.fetch(&key, &target, digest, &progress).await, &key).kind,
        ];
        assert_eq!(kinds, [FailureKind::NotFound; 6], "{key}");
        done(store.delete(&key).await, &key);
    }
    assert!(!target.exists(), "a target without an object");
}

/// A range gives its bytes; one that leads out of the object fails.
pub async fn ranges_lie_within_the_object(store: &Store) {
    let key = key("shared/1/1");
    let bytes = content(2 * BLOCK_BYTES + 10, 0);
    let size = bytes.len() as u64;
    put(store, &key, &bytes).await;
    let block = BLOCK_BYTES as u64;
    for range in [
        0..0,
        0..1,
        5..5,
        3..block + 3,
        block..size,
        size..size,
        0..size,
    ] {
        let mut reader = done(store.stream(&key, Some(range.clone())).await, &key);
        assert_eq!(reader.size_bytes(), range.end - range.start, "{range:?}");
        let found = reader.read_to_end().await;
        let expected = bytes[range.start as usize..range.end as usize].to_vec();
        assert!(found == Ok(expected), "{range:?}: other bytes");
    }
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tried")]
    for range in [0..size + 1, size + 1..size + 1, size..u64::MAX, 7..3] {
        let answer = store.stream(&key, Some(range.clone())).await;
        assert_eq!(failed(answer, &key).kind, FailureKind::Corrupt, "{range:?}");
    }
}

/// Reading a small object as a whole stops at the length that is allowed.
pub async fn get_is_bounded(store: &Store) {
    let (object, current) = (key("shared/1/1"), key("CURRENT"));
    put(store, &object, b"12345").await;
    done(store.swap(&current, None, b"12345").await, &current);
    for size_bytes_max in [0, 4] {
        let got = failed(store.get(&object, size_bytes_max).await, &object);
        assert_eq!(got.kind, FailureKind::TooLarge);
        let loaded = failed(store.load(&current, size_bytes_max).await, &current);
        assert_eq!(loaded.kind, FailureKind::TooLarge);
    }
    for size_bytes_max in [5, u64::MAX] {
        assert_eq!(
            done(store.get(&object, size_bytes_max).await, &object),
            b"12345"
        );
        assert_eq!(
            done(store.load(&current, size_bytes_max).await, &current).bytes,
            b"12345"
        );
    }
}

/// A swap replaces what it expected and nothing else, and its tag is what a load shows.
pub async fn swap_compares(store: &Store) {
    let key = key("CURRENT");
    let foreign = Tag("none of this store's".to_owned());
    assert_eq!(
        store.swap(&key, Some(&foreign), b"0").await,
        Answer::Refused
    );
    let first = done(store.swap(&key, None, b"1").await, &key);
    assert_eq!(store.swap(&key, None, b"2").await, Answer::Refused);
    assert_eq!(
        store.swap(&key, Some(&foreign), b"2").await,
        Answer::Refused
    );
    let loaded = done(store.load(&key, 10).await, &key);
    assert_eq!((&*loaded.bytes, &loaded.tag), (&b"1"[..], &first));

    let second = done(store.swap(&key, Some(&first), b"22").await, &key);
    assert_ne!(first, second);
    assert_eq!(store.swap(&key, Some(&first), b"3").await, Answer::Refused);
    assert_eq!(store.swap(&key, None, b"3").await, Answer::Refused);
    let loaded = done(store.load(&key, 10).await, &key);
    assert_eq!((&*loaded.bytes, &loaded.tag), (&b"22"[..], &second));
    assert_eq!(names(store, "").await, ["CURRENT"]);
}

/// Many tasks that count in one object by swaps lose none of their steps.
pub async fn swaps_exclude_each_other(store: &Store) {
    const TASKS: u64 = 8;
    const STEPS: u64 = 12;
    let key = key("CURRENT");
    done(store.swap(&key, None, &0_u64.to_le_bytes()).await, &key);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (store, key) = (Arc::clone(store), key.clone());
            tokio::spawn(async move {
                for _ in 0..STEPS {
                    count_up(&store, &key).await;
                }
            })
        })
        .collect();
    for task in tasks {
        joined(task.await);
    }
    assert_eq!(
        count(&done(store.load(&key, 8).await, &key).bytes),
        TASKS * STEPS
    );
}

/// One step: loads and swaps until a swap is done.
async fn count_up(store: &Store, key: &Key) {
    loop {
        let loaded = done(store.load(key, 8).await, key);
        let next = count(&loaded.bytes) + 1;
        match store
            .swap(key, Some(&loaded.tag), &next.to_le_bytes())
            .await
        {
            Answer::Done(_) => return,
            Answer::Refused => {}
            Answer::Failed(failure) | Answer::Unknown(failure) => panic!("{key}: {failure}"),
        }
    }
}

fn count(bytes: &[u8]) -> u64 {
    match bytes.try_into() {
        Ok(bytes) => u64::from_le_bytes(bytes),
        Err(error) => panic!("{error}: a count of {} bytes", bytes.len()),
    }
}

/// Pages of every size give all names once, in the order of their bytes; a page may begin at a
/// name that is gone.
pub async fn list_pages_in_order(store: &Store) {
    let mut all = vec![
        "CURRENT",
        "a",
        "a-b",
        "b/c/d/e",
        "manifest/1-1-00000000000000aa",
        "shared-x",
        "shared/1/1",
        "shared/1/10",
        "shared/1/2",
        "shared/10/1",
        "shared/2/1",
        "shared/é/中",
        "z",
    ];
    for name in all.iter().rev() {
        put(store, &key(name), name.as_bytes()).await;
    }
    all.sort_unstable();
    for prefix in [
        "",
        "a",
        "s",
        "shared",
        "shared/",
        "shared/1",
        "shared/1/",
        "b/",
        "b/c/d/e",
        "y",
    ] {
        let expected: Vec<&str> = all
            .iter()
            .copied()
            .filter(|n| n.starts_with(prefix))
            .collect();
        for limit in [1, 2, 5, expected.len().max(1), 100] {
            let mut found = Vec::new();
            let mut more = true;
            while more {
                let after = found.last().cloned();
                let page = store.list(prefix, after.as_deref(), limit).await;
                let page = done(page, &key("CURRENT"));
                assert!(
                    page.names.len() <= limit,
                    "{prefix:?}: {} names",
                    page.names.len()
                );
                assert!(
                    !page.more || !page.names.is_empty(),
                    "{prefix:?}: more, but nothing"
                );
                found.extend(page.names);
                more = page.more;
            }
            assert_eq!(found, expected, "{prefix:?} in pages of {limit}");
        }
        // Continued from between two names and from a name that was never there.
        for after in ["", "a-", "shared/1/1", "shared/1/100", "shared/11", "zz"] {
            let rest: Vec<&str> = expected.iter().copied().filter(|n| *n > after).collect();
            let page = done(store.list(prefix, Some(after), 100).await, &key("CURRENT"));
            assert_eq!(page.names, rest, "{prefix:?} after {after:?}");
            assert!(!page.more);
        }
    }
}

/// A deleted object is gone at once, deleting it again is done, and its name is free.
pub async fn delete_is_repeatable(store: &Store) {
    let (one, other) = (key("shared/1/1"), key("shared/1/2"));
    put(store, &one, b"one").await;
    put(store, &other, b"other").await;
    for _ in 0..2 {
        done(store.delete(&one).await, &one);
        assert_eq!(
            failed(store.get(&one, 10).await, &one).kind,
            FailureKind::NotFound
        );
        assert_eq!(names(store, "").await, ["shared/1/2"]);
    }
    done(store.delete(&other).await, &other);
    assert_eq!(names(store, "").await, [""; 0]);
    put(store, &one, b"again").await;
    assert_eq!(done(store.get(&one, 10).await, &one), b"again");
}

/// A fetched file has the object's content; a wrong one is not there, and nothing is written over.
pub async fn fetch_makes_a_checked_file(store: &Store, scratch: &Path) {
    let directory = scratch.join("fetch état");
    fs::create_dir(&directory).unwrap_or_else(|error| panic!("make {directory:?}: {error}"));
    let there = || {
        let listed = fs::read_dir(&directory).unwrap_or_else(|error| panic!("list: {error}"));
        listed.count()
    };
    for (case, size) in [0, 1, BLOCK_BYTES, 9 * BLOCK_BYTES + 3]
        .into_iter()
        .enumerate()
    {
        let key = key(&format!("shared/1/{case}"));
        let bytes = content(size, case);
        let right = put(store, &key, &bytes).await;
        let target = directory.join(format!("{case:06}.sst"));
        let wrong_size = Digest {
            size_bytes: right.size_bytes + 1,
            ..right
        };
        let mut wrong_checksum = right;
        wrong_checksum.checksum.0 ^= 1;
        for wrong in [wrong_size, wrong_checksum] {
            let answer = store
                .fetch(&key, &target, wrong, &Progress::default())
                .await;
            assert_eq!(failed(answer, &key).kind, FailureKind::Corrupt);
            assert_eq!(there(), case, "{key}: something is left of a wrong content");
        }
        let progress = Progress::default();
        done(store.fetch(&key, &target, right, &progress).await, &key);
        assert_eq!(progress.bytes(), size as u64);
        let found = fs::read(&target).unwrap_or_else(|error| panic!("read {target:?}: {error}"));
        assert!(found == bytes, "{key}: other bytes were fetched");

        let mine = scratch_file(&directory, &format!("{case:06}.sst"), b"mine");
        let answer = store.fetch(&key, &mine, right, &Progress::default()).await;
        assert_eq!(answer, Answer::Refused, "{key}: the file is there");
        assert!(fs::read(&mine).is_ok_and(|found| found == b"mine"));
        assert_eq!(there(), case + 1);
    }
    let (missing, first) = (directory.join("nowhere/1.sst"), key("shared/1/0"));
    let (digest, progress) = (Digester::of(b""), Progress::default());
    let answer = store.fetch(&first, &missing, digest, &progress).await;
    assert_eq!(failed(answer, &first).kind, FailureKind::NotFound);
}

/// Names with spaces and letters of all kinds come back from a list as they were put
/// (arrow-rs-object-store 457).
pub async fn odd_names_are_kept(store: &Store) {
    let mut expected = Vec::new();
    for part in [
        "état",
        "e\u{301}tat",
        "中文",
        "🦀",
        "a b",
        "a+b",
        "a=b",
        "%41",
        "a%2Fb",
        "a:b",
        "~",
    ] {
        let name = format!("savepoints/{part}/{part}");
        put(store, &key(&name), part.as_bytes()).await;
        assert_eq!(
            done(store.get(&key(&name), 100).await, &key(&name)),
            part.as_bytes()
        );
        expected.push(name);
    }
    expected.sort_unstable();
    assert_eq!(names(store, "savepoints/").await, expected);
    for name in expected {
        done(store.delete(&key(&name)).await, &key(&name));
    }
    assert_eq!(names(store, "").await, [""; 0]);
}

/// The whole body in pieces of different sizes, empty ones among them.
struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    fn of(bytes: &[u8]) -> Self {
        let mut pieces = vec![Vec::new()];
        let mut rest = bytes;
        let mut length = 1;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            pieces.push(piece.to_vec());
            rest = behind;
            length = (length * 7).min(BLOCK_BYTES);
        }
        pieces.push(Vec::new());
        pieces.reverse();
        Self(pieces)
    }
}

impl Chunks for Pieces {
    fn next(&mut self) -> NextChunk<'_> {
        let next = self.0.pop();
        Box::pin(async move { Ok(next) })
    }
}

/// A stream that breaks off at once.
struct Broken;

impl Broken {
    fn failure() -> Failure {
        Failure::new(FailureKind::Unavailable, "connection reset")
    }
}

impl Chunks for Broken {
    fn next(&mut self) -> NextChunk<'_> {
        Box::pin(async { Err(Self::failure()) })
    }
}

fn key(name: &str) -> Key {
    match Key::new(name) {
        Ok(key) => key,
        Err(error) => panic!("{error}"),
    }
}

/// Bytes that repeat neither within a block nor between cases.
fn content(size: usize, case: usize) -> Vec<u8> {
    let mut state = (case as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

fn scratch_file(scratch: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch.join(name);
    if let Err(error) = fs::write(&path, bytes) {
        panic!("write {}: {error}", path.display());
    }
    path
}

async fn put(store: &Store, key: &Key, bytes: &[u8]) -> Digest {
    done(
        store
            .put(key, bytes.to_vec().into(), &Progress::default())
            .await,
        key,
    )
}

async fn names(store: &Store, prefix: &str) -> Vec<String> {
    let page = done(store.list(prefix, None, 1_000).await, &key("CURRENT"));
    assert!(!page.more);
    page.names
}

fn done<T>(answer: Answer<T>, key: &Key) -> T {
    match answer {
        Answer::Done(value) => value,
        Answer::Refused => panic!("{key}: refused instead of done"),
        Answer::Failed(failure) => panic!("{key}: failed instead of done: {failure}"),
        Answer::Unknown(failure) => panic!("{key}: unknown instead of done: {failure}"),
    }
}

fn failed<T: Debug>(answer: Answer<T>, key: &Key) -> Failure {
    match answer {
        Answer::Failed(failure) => failure,
        Answer::Done(value) => panic!("{key}: done instead of failed: {value:?}"),
        Answer::Refused => panic!("{key}: refused instead of failed"),
        Answer::Unknown(failure) => panic!("{key}: unknown instead of failed: {failure}"),
    }
}

fn joined<T>(result: Result<T, tokio::task::JoinError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a task of the check: {error}"),
    }
}
