//! The file system's store from inside: the order of what makes things durable, and what an error
//! at each step is answered with.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use rustix::fs::FlockOperation;
use tempfile::TempDir;

use super::copy::Method;
use super::*;

mod lost;

struct Bench {
    directory: TempDir,
    store: FileStore,
}

impl Bench {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = FileSystem::at(directory.path()).open().await.unwrap();
        Self { directory, store }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn probe(&self) -> &probe::Probe {
        &self.store.inner.root.probe
    }

    /// The steps since the last time, temporaries' names left out.
    fn acts(&self) -> Vec<(Act, String)> {
        let acts = self.probe().take().into_iter();
        let unnamed = |(act, at)| match act {
            Act::SyncFile => (act, String::new()),
            _ => (act, at),
        };
        acts.map(unnamed).collect()
    }

    async fn put(&self, name: &str, bytes: &[u8]) -> Answer<Digest> {
        let body = bytes.to_vec().into();
        self.store.put(&key(name), body, &Progress::default()).await
    }

    async fn swap(&self, expected: Option<&Tag>, content: &[u8]) -> Answer<Tag> {
        self.store.swap(&key("CURRENT"), expected, content).await
    }

    async fn names(&self) -> Vec<String> {
        done(self.store.list("", None, 100).await).names
    }

    fn temporaries(&self) -> usize {
        let listed = match fs::read_dir(self.path(".tmp")) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return 0,
            Err(error) => panic!("{error}"),
        };
        let is_temporary = |name: &str| !name.ends_with(".lock");
        listed
            .filter(|entry| is_temporary(entry.as_ref().unwrap().file_name().to_str().unwrap()))
            .count()
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn done<T: fmt::Debug>(answer: Answer<T>) -> T {
    match answer {
        Answer::Done(value) => value,
        other => panic!("{other:?}"),
    }
}

fn kind<T: fmt::Debug>(answer: Answer<T>) -> (&'static str, FailureKind) {
    match answer {
        Answer::Failed(failure) => ("failed", failure.kind),
        Answer::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

fn acts<const N: usize>(acts: [(Act, &str); N]) -> Vec<(Act, String)> {
    acts.map(|(act, at)| (act, at.to_owned())).to_vec()
}

/// arrow-rs-object-store 643: a put was acknowledged that had never been synced.
#[tokio::test]
async fn a_put_is_durable_with_every_folder_on_the_way() {
    let bench = Bench::new().await;
    done(bench.put("shared/7/1", b"one").await);
    let first = acts([
        (Act::SyncFile, ""),
        (Act::MakeFolder, "shared"),
        (Act::SyncFolder, ""),
        (Act::MakeFolder, "shared/7"),
        (Act::SyncFolder, "shared"),
        (Act::Publish, "shared/7/1"),
        (Act::SyncFolder, "shared/7"),
    ]);
    assert_eq!(bench.acts(), first);
    done(bench.put("shared/7/2", b"two").await);
    let second = acts([
        (Act::SyncFile, ""),
        (Act::Publish, "shared/7/2"),
        (Act::SyncFolder, "shared/7"),
    ]);
    assert_eq!(bench.acts(), second);
    assert_eq!(bench.temporaries(), 0);
}

/// A folder that another process made a moment ago may not be durable.
#[tokio::test]
async fn a_folder_made_by_somebody_else_is_synced_too() {
    let bench = Bench::new().await;
    fs::create_dir_all(bench.path("shared/7")).unwrap();
    done(bench.put("shared/7/1", b"one").await);
    let expected = acts([
        (Act::SyncFile, ""),
        (Act::SyncFolder, ""),
        (Act::SyncFolder, "shared"),
        (Act::Publish, "shared/7/1"),
        (Act::SyncFolder, "shared/7"),
    ]);
    assert_eq!(bench.acts(), expected);
}

#[tokio::test]
async fn a_swap_syncs_before_the_lock_and_the_folder_under_it() {
    let bench = Bench::new().await;
    let tag = done(bench.swap(None, b"1").await);
    let expected = acts([
        (Act::SyncFile, ""),
        (Act::Lock, ""),
        (Act::Replace, "CURRENT"),
        (Act::SyncFolder, ""),
    ]);
    assert_eq!(bench.acts(), expected);
    let lock = fs::metadata(bench.path("LOCK")).unwrap().ino();
    assert_eq!(bench.swap(None, b"2").await, Answer::Refused);
    assert_eq!(bench.acts(), expected[..2]);
    done(bench.swap(Some(&tag), b"2").await);
    assert_eq!(fs::metadata(bench.path("LOCK")).unwrap().ino(), lock);
    assert_eq!(bench.temporaries(), 0);
}

/// Who acts on a `CURRENT` it did not write syncs the folder first.
#[tokio::test]
async fn a_load_answers_what_is_durable() {
    let bench = Bench::new().await;
    let other = FileSystem::at(bench.directory.path()).open().await.unwrap();
    let current = key("CURRENT");
    let tag = done(other.swap(&current, None, b"1").await);
    let synced = acts([(Act::SyncFolder, "")]);
    done(bench.store.load(&current, 10).await);
    assert_eq!(bench.acts(), synced);
    done(bench.store.load(&current, 10).await);
    assert_eq!(bench.acts(), [], "known to be durable");
    done(other.swap(&current, Some(&tag), b"2").await);
    assert_eq!(done(bench.store.load(&current, 10).await).bytes, b"2");
    assert_eq!(bench.acts(), synced);

    let tag = done(bench.store.load(&current, 10).await).tag;
    done(other.swap(&current, Some(&tag), b"3").await);
    bench.probe().break_next(Act::SyncFolder, Errno::IO);
    let answer = bench.store.load(&current, 10).await;
    assert_eq!(kind(answer), ("failed", FailureKind::Other));
    bench.acts();
    assert_eq!(done(bench.store.load(&current, 10).await).bytes, b"3");
    assert_eq!(bench.acts(), synced, "the failed one does not count");
}

#[tokio::test]
async fn an_error_up_to_the_naming_is_failed_and_leaves_nothing() {
    for (act, errno, expected) in [
        (Act::SyncFile, Errno::IO, ("failed", FailureKind::Other)),
        (
            Act::SyncFile,
            Errno::NOSPC,
            ("failed", FailureKind::NoSpace),
        ),
        (
            Act::MakeFolder,
            Errno::DQUOT,
            ("failed", FailureKind::NoSpace),
        ),
        (
            Act::MakeFolder,
            Errno::ROFS,
            ("failed", FailureKind::ReadOnly),
        ),
        (Act::SyncFolder, Errno::IO, ("failed", FailureKind::Other)),
        (Act::Publish, Errno::NOSPC, ("failed", FailureKind::NoSpace)),
        (
            Act::Publish,
            Errno::XDEV,
            ("failed", FailureKind::CrossDevice),
        ),
        (Act::Publish, Errno::ACCESS, ("failed", FailureKind::Denied)),
        (Act::Publish, Errno::IO, ("unknown", FailureKind::Other)),
        (
            Act::Publish,
            Errno::STALE,
            ("unknown", FailureKind::Unavailable),
        ),
        (
            Act::Publish,
            Errno::NOMEM,
            ("unknown", FailureKind::Exhausted),
        ),
    ] {
        let bench = Bench::new().await;
        bench.probe().break_next(act, errno);
        assert_eq!(
            kind(bench.put("shared/7/1", b"one").await),
            expected,
            "{act:?} {errno:?}"
        );
        assert_eq!(bench.names().await, [""; 0]);
        assert_eq!(bench.temporaries(), 0);
        done(bench.put("shared/7/1", b"one").await);
    }
}

#[tokio::test]
async fn a_folder_that_was_not_synced_is_synced_by_the_next_put() {
    let bench = Bench::new().await;
    bench.probe().break_next(Act::SyncFolder, Errno::IO);
    assert_eq!(kind(bench.put("shared/7/1", b"one").await).0, "failed");
    bench.acts();
    done(bench.put("shared/7/1", b"one").await);
    assert!(bench.acts().contains(&(Act::SyncFolder, String::new())));
}

#[tokio::test]
async fn a_sync_behind_the_naming_is_unknown_until_a_refusal_has_synced() {
    let bench = Bench::new().await;
    done(bench.put("shared/7/1", b"one").await);
    bench.probe().break_next(Act::SyncFolder, Errno::IO);
    assert_eq!(kind(bench.put("shared/7/2", b"two").await).0, "unknown");
    bench.probe().break_next(Act::SyncFolder, Errno::IO);
    assert_eq!(kind(bench.put("shared/7/2", b"two").await).0, "unknown");
    bench.acts();
    assert_eq!(bench.put("shared/7/2", b"two").await, Answer::Refused);
    assert_eq!(bench.acts(), acts([(Act::SyncFolder, "shared/7")]));
}

#[tokio::test]
async fn a_swap_is_failed_before_the_rename_and_unknown_after() {
    for (act, errno, expected) in [
        (Act::SyncFile, Errno::IO, ("failed", FailureKind::Other)),
        (Act::Lock, Errno::NOLCK, ("failed", FailureKind::Exhausted)),
        (Act::Replace, Errno::NOSPC, ("failed", FailureKind::NoSpace)),
        (Act::Replace, Errno::ACCESS, ("failed", FailureKind::Denied)),
        (Act::Replace, Errno::IO, ("unknown", FailureKind::Other)),
        (
            Act::Replace,
            Errno::NOENT,
            ("unknown", FailureKind::NotFound),
        ),
    ] {
        let bench = Bench::new().await;
        let tag = done(bench.swap(None, b"1").await);
        bench.probe().break_next(act, errno);
        assert_eq!(
            kind(bench.swap(Some(&tag), b"2").await),
            expected,
            "{act:?} {errno:?}"
        );
        assert_eq!(
            done(bench.store.load(&key("CURRENT"), 10).await).bytes,
            b"1"
        );
        assert_eq!(bench.temporaries(), 0);
        done(bench.swap(Some(&tag), b"2").await);
    }
    let bench = Bench::new().await;
    bench.probe().break_next(Act::SyncFolder, Errno::IO);
    assert_eq!(kind(bench.swap(None, b"1").await).0, "unknown");
    assert_eq!(bench.swap(None, b"1").await, Answer::Refused);
    assert_eq!(
        done(bench.store.load(&key("CURRENT"), 10).await).bytes,
        b"1"
    );
}

#[tokio::test]
async fn a_delete_is_done_once_it_is_durable() {
    let bench = Bench::new().await;
    for (act, errno, expected) in [
        (Act::Unlink, Errno::ACCESS, ("failed", FailureKind::Denied)),
        (Act::Unlink, Errno::IO, ("unknown", FailureKind::Other)),
        (Act::SyncFolder, Errno::IO, ("unknown", FailureKind::Other)),
    ] {
        let name = key("shared/7/1");
        done(bench.put("shared/7/1", b"one").await);
        bench.probe().break_next(act, errno);
        assert_eq!(
            kind(bench.store.delete(&name).await),
            expected,
            "{act:?} {errno:?}"
        );
        bench.acts();
        done(bench.store.delete(&name).await);
        assert_eq!(
            bench.acts().last(),
            Some(&(Act::SyncFolder, "shared".to_owned()))
        );
        assert!(
            !bench.path("shared/7").exists(),
            "the emptied folder went too"
        );
    }
    assert!(bench.path("shared").exists());
}

#[tokio::test]
async fn where_a_rename_may_overwrite_a_link_publishes() {
    let bench = Bench::new().await;
    for errno in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
        let name = format!("shared/7/{}", errno.raw_os_error());
        bench.probe().break_next(Act::Publish, errno);
        done(bench.put(&name, b"linked").await);
        assert_eq!(fs::read(bench.path(&name)).unwrap(), b"linked");
        assert_eq!(fs::metadata(bench.path(&name)).unwrap().nlink(), 1);
        assert_eq!(bench.temporaries(), 0);
    }
    // Taken between the first look and the naming.
    fs::write(bench.path("shared/7/9"), b"taken").unwrap();
    let temporary = temporary_of(&bench, b"second");
    bench.probe().break_next(Act::Publish, Errno::INVAL);
    let cancellation = Cancellation::default();
    let root = &bench.store.inner.root;
    let published = publish::publish(root, temporary, &key("shared/7/9"), &cancellation);
    assert!(matches!(published, Err(Stop::Refused)));
    assert_eq!(fs::read(bench.path("shared/7/9")).unwrap(), b"taken");

    bench.probe().break_next(Act::Publish, Errno::INVAL);
    bench.probe().break_next(Act::Link, Errno::PERM);
    assert_eq!(
        kind(bench.put("shared/7/10", b"").await),
        ("failed", FailureKind::Denied)
    );
    assert_eq!(bench.temporaries(), 0);
}

/// A server answers "exists" to a link that it has made, because its first answer was lost.
#[tokio::test]
async fn a_link_whose_answer_was_lost_is_done() {
    let bench = Bench::new().await;
    done(bench.put("shared/7/1", b"one").await);
    let temporary = temporary_of(&bench, b"linked");
    fs::hard_link(temporary.shown(), bench.path("shared/7/2")).unwrap();
    bench.probe().break_next(Act::Publish, Errno::INVAL);
    let cancellation = Cancellation::default();
    let root = &bench.store.inner.root;
    publish::publish(root, temporary, &key("shared/7/2"), &cancellation).unwrap();
    assert_eq!(fs::read(bench.path("shared/7/2")).unwrap(), b"linked");
    assert_eq!(bench.temporaries(), 0);
}

fn temporary_of(bench: &Bench, bytes: &[u8]) -> temporary::Temporary {
    let mut temporary = bench.store.inner.temporaries.create().unwrap();
    temporary.write(bytes).unwrap();
    temporary
}

#[tokio::test]
async fn folders_that_vanish_are_made_again() {
    let bench = Bench::new().await;
    done(bench.put("shared/7/1", b"one").await);
    fs::remove_dir_all(bench.path("shared")).unwrap();
    done(bench.put("shared/7/2", b"two").await);
    fs::remove_dir_all(bench.path(".tmp")).unwrap();
    done(bench.put("shared/7/3", b"three").await);
    // Emptied by a delete between the opening of the folder and the naming in it.
    bench.probe().break_next(Act::Publish, Errno::NOENT);
    done(bench.put("shared/7/4", b"four").await);
    assert_eq!(
        bench.names().await,
        ["shared/7/2", "shared/7/3", "shared/7/4"]
    );

    for _ in 0..root::FOLDER_TRIES_MAX {
        bench.probe().break_next(Act::Publish, Errno::NOENT);
    }
    let answer = bench.put("shared/7/5", b"five").await;
    assert_eq!(
        kind(answer),
        ("unknown", FailureKind::Unavailable),
        "not for ever"
    );
}

#[tokio::test]
async fn opening_removes_what_dead_writers_left_and_nothing_else() {
    let bench = Bench::new().await;
    let living = temporary_of(&bench, b"living");
    let temporaries = bench.path(".tmp");
    let dead = "0123456789abcdef";
    for name in [
        format!("{dead}.lock"),
        format!("{dead}.1"),
        format!("{dead}.22"),
    ] {
        fs::write(temporaries.join(name), b"dead").unwrap();
    }
    // Its lock's name was lost with the power.
    fs::write(temporaries.join("00000000000000ff.1"), b"dead").unwrap();
    let foreign = ["notes.txt", "0123456789ABCDEF.1", "12.lock", "README"];
    for name in foreign {
        fs::write(temporaries.join(name), b"foreign").unwrap();
    }
    FileSystem::at(bench.directory.path())
        .read_only()
        .open()
        .await
        .unwrap();
    assert!(
        temporaries.join(format!("{dead}.1")).exists(),
        "looking on removes nothing"
    );
    let second = FileSystem::at(bench.directory.path()).open().await.unwrap();
    let mut left: Vec<String> = fs::read_dir(&temporaries)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let own = living.name().split_once('.').unwrap().0.to_owned();
    let mut expected: Vec<String> = foreign.map(str::to_owned).to_vec();
    expected.extend([format!("{own}.1"), format!("{own}.lock")]);
    expected.sort();
    assert_eq!(left, expected);

    // The living one's file is as good as before.
    let (root, cancellation) = (&bench.store.inner.root, Cancellation::default());
    publish::publish(root, living, &key("shared/7/1"), &cancellation).unwrap();
    assert_eq!(done(second.get(&key("shared/7/1"), 10).await), b"living");
}

#[tokio::test]
async fn a_closed_store_leaves_no_lock() {
    let bench = Bench::new().await;
    done(bench.put("shared/7/1", b"one").await);
    let Bench { directory, store } = bench;
    assert_eq!(
        fs::read_dir(directory.path().join(".tmp")).unwrap().count(),
        1
    );
    drop(store);
    assert_eq!(
        fs::read_dir(directory.path().join(".tmp")).unwrap().count(),
        0
    );
}

#[tokio::test]
async fn what_is_no_regular_file_is_not_read() {
    let bench = Bench::new().await;
    fs::create_dir_all(bench.path("shared/7")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.path("shared/7/1"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    // A reader that opened the pipe in the blocking way would stay there.
    for name in ["shared/7/1", "shared/7"] {
        let answer = bench.store.get(&key(name), 10).await;
        assert_eq!(kind(answer), ("failed", FailureKind::Corrupt), "{name}");
    }
    let body = Body::File {
        path: bench.path("shared/7/1"),
        size_bytes: 0,
    };
    let answer = bench
        .store
        .put(&key("shared/7/2"), body, &Progress::default())
        .await;
    assert_eq!(kind(answer), ("failed", FailureKind::Other));
    assert_eq!(bench.put("shared/7/1", b"").await, Answer::Refused);
}

#[tokio::test]
async fn links_do_not_lead_out_of_the_root() {
    let bench = Bench::new().await;
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("1"), b"secret").unwrap();
    symlink(elsewhere.path(), bench.path("shared")).unwrap();
    symlink(elsewhere.path().join("1"), bench.path("CURRENT")).unwrap();
    fs::create_dir(bench.path("manifest")).unwrap();
    symlink(elsewhere.path().join("1"), bench.path("manifest/1")).unwrap();

    for name in ["shared/1", "CURRENT", "manifest/1"] {
        let name = key(name);
        assert_eq!(kind(bench.store.get(&name, 10).await).0, "failed", "{name}");
        assert_eq!(
            kind(bench.store.load(&name, 10).await).0,
            "failed",
            "{name}"
        );
    }
    assert_eq!(kind(bench.put("shared/2", b"out").await).0, "failed");
    assert_eq!(kind(bench.swap(None, b"out").await).0, "failed");
    assert_eq!(kind(bench.store.delete(&key("shared/1")).await).0, "failed");
    // A link is a name like any other: shown, and removed as what it is.
    assert_eq!(bench.names().await, ["CURRENT", "manifest/1", "shared"]);
    done(bench.store.delete(&key("manifest/1")).await);
    assert_eq!(fs::read(elsewhere.path().join("1")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_prefix_that_climbs_out_is_refused() {
    let bench = Bench::new().await;
    for prefix in ["../", "/", "/etc/", "shared/../../", "a//b", ".tmp/"] {
        let answer = bench.store.list(prefix, None, 10).await;
        assert_eq!(kind(answer), ("failed", FailureKind::Denied), "{prefix:?}");
    }
}

#[tokio::test]
async fn a_store_for_looking_on_writes_nothing() {
    let directory = TempDir::new().unwrap();
    let store = FileSystem::at(directory.path())
        .read_only()
        .open()
        .await
        .unwrap();
    let name = key("CURRENT");
    let read_only = ("failed", FailureKind::ReadOnly);
    let put = store
        .put(&name, b"1".to_vec().into(), &Progress::default())
        .await;
    assert_eq!(kind(put), read_only);
    assert_eq!(kind(store.swap(&name, None, b"1").await), read_only);
    assert_eq!(kind(store.delete(&name).await), read_only);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Comes true, or the test fails after far longer than it can take.
#[tokio::test]
async fn a_list_removes_the_empty_folders_of_dead_writers() {
    let bench = Bench::new().await;
    done(bench.put("orders/shared/1/1", b"1").await);
    for empty in ["empty", "orders/shared/2", "orders/shared/3/4"] {
        fs::create_dir_all(bench.path(empty)).unwrap();
    }
    let looking = FileSystem::at(bench.path("")).read_only();
    let looking = looking.open().await.unwrap();
    done(looking.list("", None, 100).await);
    assert!(bench.path("orders/shared/2").exists(), "only looked at");
    assert_eq!(bench.names().await, ["orders/shared/1/1"]);
    assert!(!bench.path("orders/shared/2").exists());
    assert!(!bench.path("orders/shared/3").exists());
    assert!(bench.path("empty").exists(), "directly below the root");
    done(bench.put("orders/shared/2/1", b"2").await);
    assert_eq!(
        bench.names().await,
        ["orders/shared/1/1", "orders/shared/2/1"]
    );
}

async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what}: never came");
}

#[tokio::test]
async fn a_swap_dropped_while_a_neighbour_holds_the_lock_does_nothing() {
    let bench = Bench::new().await;
    let tag = done(bench.swap(None, b"1").await);
    let lock = fs::File::open(bench.path("LOCK")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let store = bench.store.clone();
    let swap = tokio::spawn(async move { store.swap(&key("CURRENT"), Some(&tag), b"2").await });
    until("the swap waits", || bench.temporaries() == 1).await;
    swap.abort();
    until("the swap gave up", || bench.temporaries() == 0).await;
    drop(lock);
    assert_eq!(
        done(bench.store.load(&key("CURRENT"), 10).await).bytes,
        b"1"
    );
}

#[tokio::test]
async fn a_lock_that_somebody_removed_holds_nobody() {
    let bench = Bench::new().await;
    let tag = done(bench.swap(None, b"1").await);
    let lock = fs::File::open(bench.path("LOCK")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let store = bench.store.clone();
    let swap = tokio::spawn(async move { store.swap(&key("CURRENT"), Some(&tag), b"2").await });
    until("the swap waits", || bench.temporaries() == 1).await;
    fs::remove_file(bench.path("LOCK")).unwrap();
    done(swap.await.unwrap());
    assert!(bench.path("LOCK").exists());
}

#[tokio::test]
async fn every_way_to_copy_gives_the_same() {
    let directory = TempDir::new().unwrap();
    let source_path = directory.path().join("source");
    for size in [0, 1, 1 << 20, (17 << 20) + 11] {
        let bytes: Vec<u8> = (0..size)
            .map(|n: u32| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        fs::write(&source_path, &bytes).unwrap();
        let source = fs::File::open(&source_path).unwrap();
        for method in [Method::Plain, Method::Offload] {
            let target_path = directory.path().join(format!("{method:?}"));
            let target = fs::File::create(&target_path).unwrap();
            let copy = |size_bytes| {
                Copy {
                    source: &source,
                    source_path: &source_path,
                    target: &target,
                    target_path: &target_path,
                    size_bytes,
                    progress: &Progress::default(),
                    cancellation: &Cancellation::default(),
                }
                .run_as(method)
            };
            let size = u64::from(size);
            assert_eq!(copy(size).unwrap(), Digester::of(&bytes));
            let copied = fs::read(&target_path).unwrap();
            assert!(copied == bytes, "{method:?} {size}");
            // The source grew or shrank after it was listed.
            for other in [Some(size + 1), size.checked_sub(1)].into_iter().flatten() {
                let Err(Stop::Failed(failure)) = copy(other) else {
                    panic!("{method:?} copied {other} of {size} bytes");
                };
                assert_eq!(failure.kind, FailureKind::Corrupt);
            }
        }
    }
}

/// What stands in the object's place may be of any size; a swap reads no more than it compares.
#[tokio::test]
async fn a_swap_is_refused_by_length_before_it_reads() {
    let bench = Bench::new().await;
    let tag = done(bench.swap(None, b"1").await);
    // A file of a tebibyte, all of it a hole.
    let file = fs::File::create(bench.path("CURRENT")).unwrap();
    file.set_len(1 << 40).unwrap();
    assert_eq!(bench.swap(Some(&tag), b"2").await, Answer::Refused);
    assert_eq!(bench.swap(None, b"2").await, Answer::Refused);
    let answer = bench.store.load(&key("CURRENT"), 1 << 20).await;
    assert_eq!(kind(answer), ("failed", FailureKind::TooLarge));
}
