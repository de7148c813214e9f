//! What lies in the store: damage, strangers, names, order on the disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::id::CheckpointId;
use stillpoint::rocksdb::{BlockBasedOptions, ColumnFamilyDescriptor, DB};
use stillpoint::storage::{BlobStore, Body, FileSystem, Key, Progress};
use stillpoint::{
    ErrorKind, FileStanding, ParticipantEvent, Repository, RestoreOptions, VerifyDepth,
};

use crate::child;
use crate::common::database::{self, Content, FAMILIES};
use crate::common::held::{Held, Hold};
use crate::common::in_time;
use crate::common::service::{self, Service};
use crate::common::skipped::skipped;

/// Where the objects of the participant lie.
fn participant_root(root: &Path) -> PathBuf {
    root.join("participants/orders%2F7")
}

/// FLINK-38909, FLINK-13856: a left-over in a folder keeps the folder, and the error is swallowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b24_strangers_keep_nothing_but_themselves() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let held = Held::new(FileSystem::at(&root));
    let repository = service::repository(held.clone(), service::config()).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    let mut events = service.participant.events();
    service.checkpoint("1").await;
    let shared = participant_root(&root).join("shared");
    let attempt = fs::read_dir(&shared)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let strangers = [
        attempt.join(".DS_Store"),
        attempt.join("marker"),
        attempt.join("unreadable/child"),
        shared.join("7.tmp"),
        participant_root(&root).join("manifest/.DS_Store"),
    ];
    for stranger in &strangers {
        fs::create_dir_all(stranger.parent().unwrap()).unwrap();
        fs::write(stranger, b"").unwrap();
    }
    fs::set_permissions(
        attempt.join("unreadable"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    held.refuse_deletes(3);
    for number in 0..6 {
        service.fill("default", 400, number);
        database::compact(&service.db);
        service.checkpoint("more").await;
    }
    in_time(service.participant.cleaned()).await.unwrap();
    assert_eq!(
        held.refuse_deletes(0),
        0,
        "three deletes were refused, and repeated"
    );
    fs::set_permissions(
        attempt.join("unreadable"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    for stranger in &strangers {
        assert!(
            stranger.exists(),
            "{} is nobody's to delete",
            stranger.display()
        );
        fs::remove_file(stranger).unwrap();
    }
    service::assert_no_garbage(&repository, &root, &service.participant).await;
    let mut reported = BTreeSet::new();
    while let Some(event) = events.try_next() {
        if let ParticipantEvent::Unparsable { names } = event {
            reported.extend(names);
        }
    }
    for name in [
        ".DS_Store",
        "marker",
        "unreadable/child",
        "7.tmp",
        "manifest/.DS_Store",
    ] {
        assert!(
            reported.iter().any(|found| found.ends_with(name)),
            "{name} in {reported:?}"
        );
    }
}

/// Three checkpoints with their truths, oldest first; the service has ended.
async fn three(repository: &Repository, state: &Path) -> Vec<(CheckpointId, Content)> {
    let service = Service::start(repository, state).await;
    let mut made = Vec::new();
    for number in 1..=3 {
        service.fill("default", 300, number);
        service.fill("ranges", 100 * number, number);
        database::compact(&service.db);
        let report = service.checkpoint(&number.to_string()).await;
        made.push((report.checkpoint, service.content()));
    }
    in_time(service.participant.close()).await.unwrap();
    made
}

/// Files that this checkpoint has and none of the others.
async fn own_files(repository: &Repository, root: &Path, checkpoint: CheckpointId) -> Vec<PathBuf> {
    let inspection = in_time(repository.inspect(service::NAME)).await.unwrap();
    let files = inspection.files(checkpoint).unwrap().into_iter();
    files
        .filter(|file| file.references == 1)
        .map(|file| participant_root(root).join(file.name.to_string()))
        .collect()
}

/// Restate 4892, 3930: the newest is damaged, older ones are good, and every start meets the damage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b42_going_back_is_the_callers_choice() {
    for damaged in 1..=3_usize {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("checkpoints");
        let mut config = service::config();
        config.checkpoints.num_retained = 3;
        config.restore_tries_max = 2;
        let repository = service::repository(FileSystem::at(&root), config).await;
        let made = three(&repository, &place.path().join("first")).await;
        for (index, (checkpoint, _)) in made.iter().rev().take(damaged).enumerate() {
            let own = own_files(&repository, &root, *checkpoint).await;
            let victim = own.first().expect("a file of its own");
            match index {
                0 => fs::write(victim, b"short").unwrap(),
                1 => fs::remove_file(victim).unwrap(),
                _ => {
                    let mut bytes = fs::read(victim).unwrap();
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    fs::write(victim, bytes).unwrap();
                }
            }
        }
        // Elsewhere, so that nothing is there already; the same directory for every try.
        let directory = place.path().join("second");
        let claim = service::claim(&repository).await;
        for back in 0..damaged {
            let wanted = made[2 - back].0;
            let options = RestoreOptions::new().fallback(back);
            for _ in 0..2 {
                let error = service::restore(&claim, &directory, &options)
                    .await
                    .unwrap_err();
                let kind = if back == 1 {
                    ErrorKind::Missing
                } else {
                    ErrorKind::Corrupt
                };
                assert_eq!(error.kind(), kind, "{error}");
                assert_eq!(error.checkpoint(), Some(wanted), "{error}");
                assert!(error.file().is_some(), "{error}");
                let older: Vec<_> = made[..2 - back].iter().map(|(older, _)| *older).collect();
                assert_eq!(error.alternatives(), older, "{error}");
            }
        }
        if damaged < 3 {
            drop(claim);
            let options = RestoreOptions::new().fallback(damaged);
            let service = Service::start_from(&repository, &directory, &options).await;
            let (wanted, truth) = &made[2 - damaged];
            assert_eq!(service.restored, Some(*wanted));
            database::assert_same(&service.content(), truth, "an older one");
            // From here it goes on, and what was damaged goes with its line.
            service.fill("counts", 50, 9);
            let report = service.checkpoint("on").await;
            assert!(
                service::retained(&repository)
                    .await
                    .ends_with(&[*wanted, report.checkpoint])
            );
        } else {
            let error = in_time(claim.restore_with(&directory, &RestoreOptions::new().fallback(3)))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
    }
}

/// FLINK-39482: more parallel reads than the store has connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b44_a_small_pool_is_waited_for() {
    let place = tempfile::tempdir().unwrap();
    for (pool, transfers) in [(1, 16), (2, 64), (5, 3)] {
        let held = Held::new(FileSystem::at(
            place.path().join(format!("checkpoints-{pool}")),
        ));
        held.reads_at_once(pool);
        let mut config = service::config();
        config.transfers_max = transfers;
        let repository = service::repository(held, config).await;
        let name = |life| place.path().join(format!("{life}-{pool}"));
        let made = three(&repository, &name("first")).await;
        let service = Service::start(&repository, &name("second")).await;
        assert!(service.report.fetched_files > pool, "{:?}", service.report);
        database::assert_same(&service.content(), &made[2].1, "through a small pool");
    }
}

/// arrow-rs-object-store 643: acknowledged, and gone with the power.
#[test]
fn b89_everything_is_synced_before_what_names_it() {
    let place = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(place.path()).unwrap();
    let trace = base.join("trace");
    let probe = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        skipped("b89", "no strace, or it may not trace");
        return;
    }
    let calls = "trace=fsync,fdatasync,renameat,renameat2,linkat";
    let arguments = ["-f", "-y", "-e", calls, "-o", trace.to_str().unwrap()];
    if !child::run("b89", &base, child::below("strace", &arguments)) {
        return;
    }
    let root = participant_root(&base.join("checkpoints"))
        .display()
        .to_string();
    let trace = fs::read_to_string(&trace).unwrap();
    let mut named: BTreeSet<String> = BTreeSet::new();
    let mut unsynced_folders: BTreeSet<String> = BTreeSet::new();
    let mut synced_files: BTreeSet<String> = BTreeSet::new();
    let mut commits = 0;
    for line in whole_lines(&trace) {
        if !line.trim_end().ends_with("= 0") {
            continue;
        }
        let paths: Vec<&str> = line
            .split('<')
            .skip(1)
            .filter_map(|part| Some(part.split_once('>')?.0))
            .collect();
        if line.starts_with("rename") || line.starts_with("linkat") {
            // The folder that a name comes into is the second one.
            let Some(folder) = paths.get(1).filter(|folder| folder.starts_with(&root)) else {
                continue;
            };
            let name = line.split('"').nth(1).unwrap();
            let file = format!("{}/{name}", paths[0]);
            assert!(synced_files.remove(&file), "{file} was not synced: {line}");
            if line.contains("\"CURRENT\"") {
                commits += 1;
                assert_eq!(
                    unsynced_folders,
                    BTreeSet::new(),
                    "at commit {commits}: {line}"
                );
            } else {
                unsynced_folders.insert((*folder).to_owned());
                named.insert((*folder).to_owned());
            }
        } else if let Some(path) = paths.first() {
            unsynced_folders.remove(*path);
            synced_files.insert((*path).to_owned());
        }
    }
    // The claim, the attempt, and one for each of three checkpoints at least.
    assert!(commits >= 5, "{commits} commits in {trace}");
    for folder in ["shared", "manifest"] {
        let below = format!("{root}/{folder}");
        assert!(
            named.iter().any(|name| name.starts_with(&below)),
            "{folder} in {named:?}"
        );
    }
}

pub async fn traced(place: &Path) {
    let repository =
        service::repository(FileSystem::at(place.join("checkpoints")), service::config()).await;
    three(&repository, &place.join("state")).await;
}

/// A trace without process numbers; a call that others interrupted stands where it ended.
fn whole_lines(trace: &str) -> Vec<String> {
    let mut begun = std::collections::BTreeMap::new();
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

/// OpenDAL 788, the half of it that needs no crash: two writers of one name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b91_two_writers_of_one_name_make_one_object() {
    let place = tempfile::tempdir().unwrap();
    let store = FileSystem::at(place.path()).open().await.unwrap();
    for number in 0..50 {
        let key = Key::new(&format!("shared/1/{number}")).unwrap();
        let body = |byte: u8| Body::from(vec![byte; 300_000]);
        let (one, other) = (Progress::default(), Progress::default());
        let (one, other) = tokio::join!(
            store.put(&key, body(1), &one),
            store.put(&key, body(2), &other)
        );
        let winner = match (one, other) {
            (Answer::Done(_), Answer::Refused) => 1,
            (Answer::Refused, Answer::Done(_)) => 2,
            both => panic!("{both:?}"),
        };
        let Answer::Done(found) = store.get(&key, 1 << 20).await else {
            panic!("{key} is absent");
        };
        assert!(
            found == vec![winner; 300_000],
            "one of the two bodies, whole"
        );
    }
    let Answer::Done(page) = store.list("", None, 1_000).await else {
        panic!("no list");
    };
    assert_eq!(page.names.len(), 50, "no temporary name is listed");
}

/// arrow-rs-object-store 457: names that are encoded twice, or not the same way everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b104_odd_names_go_round() {
    let odd = [
        "é",
        "e\u{301}",
        "中文",
        "🦀 emoji",
        "a b",
        "a+b=c",
        "données/état",
        "100%25",
        "..",
        "a\nb",
        "LOCK",
        "CURRENT",
    ];
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("données/e\u{301}tat 中文 🦀 +=%20");
    let root = base.join("checkpoints");
    let repository = service::repository(FileSystem::at(&root), service::config()).await;
    for (number, name) in odd.iter().enumerate() {
        let number = number as u64;
        let local = base.join("états").join(format!("{number} é"));
        let claim = in_time(repository.claim(name)).await.unwrap();
        let restored = in_time(claim.restore_into(&local)).await.unwrap();
        assert!(restored.is_empty(), "{name:?} is another's");
        let db = database::open(&local);
        let state = stillpoint::RocksDb::new(std::sync::Arc::clone(&db));
        let participant = restored.attach(state).unwrap();
        let family = db.cf_handle("default").unwrap();
        for round in 0..3_u64 {
            for key in 0..50_u64 {
                let value = format!("{name} {}", round * number);
                db.put_cf(&family, key.to_be_bytes(), value).unwrap();
            }
            let checkpoint = participant.checkpoint(*name).unwrap();
            in_time(checkpoint.completed()).await.unwrap();
        }
        in_time(participant.cleaned()).await.unwrap();
        let truth = database::content_of(&db);
        drop((participant, db, claim));

        let elsewhere = base
            .join("ailleurs")
            .join(name.replace(['/', '\0'], "_"))
            .join("x");
        let claim = in_time(repository.claim(name)).await.unwrap();
        let restored = in_time(claim.restore_into(&elsewhere)).await.unwrap();
        assert_eq!(restored.user_bytes(), Some(name.as_bytes()));
        drop(restored);
        database::assert_same(&database::read(&elsewhere).unwrap(), &truth, name);
        let inspection = in_time(repository.inspect(name)).await.unwrap();
        let report = in_time(inspection.collect(false)).await.unwrap();
        assert_eq!(report.unparsable, Vec::<String>::new(), "{name:?}");
    }
    let listed: BTreeSet<_> = in_time(repository.participants())
        .await
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(listed, odd.iter().map(|name| (*name).to_owned()).collect());
    // Straight from the disk: one folder for each, below one folder, and nothing beside it.
    let folders = fs::read_dir(root.join("participants")).unwrap().count();
    assert_eq!(folders, odd.len());
    let outside = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let outside: BTreeSet<_> = outside.collect();
    assert!(
        outside.is_subset(&[".tmp", "participants", "LOCK"].map(Into::into).into()),
        "{outside:?}"
    );
}

/// SPARK-36519: another version of the table format, forward and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b117_table_formats_mix() {
    let open = |version: i32| {
        move |path: &Path| {
            let families = FAMILIES.map(|name| {
                let mut options = database::options();
                let mut blocks = BlockBasedOptions::default();
                blocks.set_format_version(version);
                options.set_block_based_table_factory(&blocks);
                ColumnFamilyDescriptor::new(name, options)
            });
            let db = DB::open_cf_descriptors(&database::options(), path, families);
            std::sync::Arc::new(db.unwrap())
        }
    };
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let repository = service::repository_in(place.path()).await;
    let newest = RestoreOptions::new();
    let mut truth: Option<Content> = None;
    for (number, version) in [2, 6, 5, 2].into_iter().enumerate() {
        let number = number as u64;
        let service = Service::start_with(&repository, &state, &newest, open(version)).await;
        if let Some(truth) = &truth {
            database::assert_same(&service.content(), truth, &format!("format {version}"));
        }
        service.fill(FAMILIES[usize::try_from(number).unwrap()], 300, number);
        service.checkpoint(&version.to_string()).await;
        truth = Some(service.content());
    }
    let service =
        Service::start_with(&repository, &place.path().join("new"), &newest, open(6)).await;
    database::assert_same(&service.content(), &truth.unwrap(), "all versions together");
}

/// Lyft's operator, issue 289: the newest folder is taken, which is no checkpoint, or not yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b119_the_newest_is_the_newest_that_is_complete() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("checkpoints");
    let held = Held::new(FileSystem::at(&root));
    let mut config = service::config();
    config.checkpoints.num_retained = 3;
    let repository = service::repository(held.clone(), config).await;
    let service = Service::start(&repository, &place.path().join("state")).await;
    let mut ids = Vec::new();
    // Far enough that the order of the ids is not that of their digits.
    for number in 0..11 {
        service.fill("counts", 20, number);
        ids.push(service.checkpoint(&number.to_string()).await.checkpoint);
    }
    assert!(
        ids.iter().any(|id| id.0 == 9) && ids.iter().any(|id| id.0 == 10),
        "{ids:?}"
    );
    let (newest, truth) = (ids[10], service.content());

    // One that was given up with its files stored, and one that is under way.
    held.hold(Hold::Packs);
    service.fill("default", 200, 50);
    let given_up = service.participant.checkpoint("given up").unwrap();
    let pack = held.another_pack(&[]).await;
    given_up.cancel();
    assert!(in_time(given_up.completed()).await.is_err());
    service.fill("ranges", 200, 51);
    let under_way = service.participant.checkpoint("under way").unwrap();
    held.another_pack(std::slice::from_ref(&pack)).await;

    let inspection = in_time(repository.inspect(service::NAME)).await.unwrap();
    let infos = inspection.checkpoints();
    let listed: Vec<_> = infos.iter().map(|info| info.checkpoint).collect();
    assert_eq!(listed, ids[8..]);
    let latest: Vec<_> = infos.iter().filter(|info| info.is_restore_point).collect();
    assert_eq!(latest.len(), 1);
    assert_eq!(latest[0].checkpoint, newest);
    assert!(
        in_time(inspection.verify(newest, VerifyDepth::Checksums))
            .await
            .unwrap()
            .is_sound()
    );
    // What is there and belongs to neither says why.
    let report = in_time(inspection.collect(true)).await.unwrap();
    assert!(!report.left.is_empty());
    for (file, standing) in &report.left {
        assert_eq!(*standing, FileStanding::OfLiveAttempt, "{file}");
    }
    drop((under_way, service));

    let service = Service::start(&repository, &place.path().join("elsewhere")).await;
    assert_eq!(service.restored, Some(newest));
    database::assert_same(&service.content(), &truth, "the newest complete one");
}
