//! What must be true after a restart: what is restored, and what there is on disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillpoint::RestoreOptions;
use stillpoint::protocol::id::ObjectName;
use stillpoint::protocol::manifest::{Current, Manifest};
use stillpoint::rocksdb::DB;
use stillpoint::state::{OWN_FOLDER, SNAPSHOTS_NAME};

use crate::child::{self, Life, PARTICIPANT, Place};
use crate::free::is_free;
use crate::points::{Points, Stop};
use crate::truth::{self, History};

/// Twenty times the usual.
const DEADLINE: Duration = Duration::from_secs(60);

/// Restarts where a process died, in this process. Answers what the next one will find.
pub async fn restart(place: &Place, allowed: &[History]) -> History {
    let points = Arc::new(Points::new(Stop::Never));
    let mut life = within("the restart", Life::begin(place, &points)).await;
    assert!(
        allowed.contains(&life.history),
        "{} was restored, not one of {allowed:?}",
        life.history
    );
    assert_eq!(truth::read(&life.db), life.history.pairs());

    within("the next checkpoint", life.checkpoint()).await;
    let cleaned = within("the cleaner", life.participant.cleaned());
    cleaned.await.unwrap();
    let repository = child::repository(place, &points).await;
    let inspection = repository.inspect(PARTICIPANT).await.unwrap();
    let retained = inspection.checkpoints();
    assert!(retained.len() <= child::config().checkpoints.num_retained);
    store_holds_what_is_retained(place, inspection.manifest()).await;
    local_holds_the_state(place, &life.db).await;

    for checkpoint in &retained {
        let fresh = tempfile::tempdir().unwrap();
        let options = RestoreOptions::new();
        let restored = inspection.restore(checkpoint.checkpoint, fresh.path(), &options);
        within("another restore", restored).await.unwrap();
        let history = History::from_user_bytes(Some(&checkpoint.user_bytes));
        let db = truth::open(fresh.path());
        assert_eq!(
            truth::read(&db),
            history.pairs(),
            "{}",
            checkpoint.checkpoint
        );
    }
    drop(inspection);
    drop(repository);
    let history = life.history.clone();
    end(life, place).await;
    history
}

/// Ends a life in good order; when this is over, another one may begin in the same place.
async fn end(life: Life, place: &Place) {
    life.participant.close().await.unwrap();
    let Life {
        participant, db, ..
    } = life;
    drop(participant);
    let mut db = Some(db);
    wait_for("the database to be let go of", || {
        db = db.take().and_then(|db| Arc::try_unwrap(db).err());
        db.is_none() && is_free(&place.local)
    })
    .await;
    let left = names(&place.local.join(OWN_FOLDER).join(SNAPSHOTS_NAME));
    assert_eq!(left, ["LOCK"], "a closed attempt leaves nothing");
}

/// The raw directory against what the manifest says must be in it.
async fn store_holds_what_is_retained(place: &Place, manifest: &Manifest) {
    let objects = place.objects();
    let current = fs::read(objects.join("CURRENT")).unwrap();
    let current = Current::decode(&current).unwrap();
    assert_eq!(current.version(), manifest.version(), "nobody commits now");
    let mut expected = BTreeSet::from(["CURRENT".to_owned(), "LOCK".to_owned()]);
    expected.extend(current.named().iter().map(ToString::to_string));
    for checkpoint in manifest.retained() {
        for subtask in manifest.checkpoint(checkpoint).unwrap().subtasks.keys() {
            let files = manifest.registry().files(checkpoint, *subtask);
            expected.extend(files.iter().map(|file| file.name.to_string()));
        }
    }
    let mut found: BTreeSet<_> = tree(&objects).into_iter().collect();
    found.retain(|name| expected.contains(name) || !is_next_snapshot(&objects, name, &current));
    assert_eq!(found, expected);
    for name in &found {
        assert!(
            name == "LOCK" || ObjectName::parse(name).is_some(),
            "{name}"
        );
    }
    assert_eq!(names(&place.root), [".tmp", "participants"]);
    // This process has the root open, once or twice, and nobody else has. A leader may just be writing the whole
    // manifest beside its commits.
    wait_for("temporaries to go", || {
        let temporaries = names(&place.root.join(".tmp"));
        temporaries.iter().all(|name| name.ends_with(".lock"))
    })
    .await;
}

/// Whether it is the whole manifest that this leader has written beside its commits, for the next
/// one to name.
fn is_next_snapshot(objects: &Path, name: &str, current: &Current) -> bool {
    let Some(ObjectName::Manifest(parsed)) = ObjectName::parse(name) else {
        return false;
    };
    let whole = Manifest::decode_snapshot(&fs::read(objects.join(name)).unwrap());
    parsed.epoch == current.epoch()
        && parsed.version > current.snapshot_version()
        && whole.is_ok_and(|whole| whole.version() == parsed.version)
}

/// The local directory: the database's own files, none of them linked anywhere else, and the
/// library's few.
async fn local_holds_the_state(place: &Place, db: &DB) {
    let local = &place.local;
    // RocksDB deletes what it needs no more when it comes to it.
    wait_for("the database to delete its obsolete files", || {
        let live = db.live_files().unwrap().into_iter();
        let live: BTreeSet<_> = live
            .map(|file| file.name.trim_start_matches('/').to_owned())
            .collect();
        let tables = names(local).into_iter();
        live == tables.filter(|name| name.ends_with(".sst")).collect()
    })
    .await;
    let mut attempts = 0;
    for name in tree(local) {
        let metadata = fs::symlink_metadata(local.join(&name)).unwrap();
        assert!(
            metadata.is_dir() || metadata.nlink() == 1,
            "{name} is linked"
        );
        let parts: Vec<_> = name.split('/').collect();
        match parts[..] {
            [OWN_FOLDER, file] => assert!(["LOCK", "OURS", "marks"].contains(&file), "{name}"),
            [OWN_FOLDER, SNAPSHOTS_NAME, "LOCK"] => {}
            [OWN_FOLDER, SNAPSHOTS_NAME, _, "LOCK"] => attempts += 1,
            [file] => {
                let database = [
                    "MANIFEST-",
                    "OPTIONS-",
                    "CURRENT",
                    "IDENTITY",
                    "LOCK",
                    "LOG",
                ];
                let known = database.iter().any(|known| file.starts_with(known))
                    || file.ends_with(".sst")
                    || file.ends_with(".log");
                assert!(known, "{name} is nobody's");
            }
            _ => panic!("{name} is nobody's"),
        }
    }
    assert_eq!(attempts, 1, "this life's, and no dead one's");
}

/// Every file below a directory, and every folder that is empty.
fn tree(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(directory) {
        let path = directory.join(&name);
        if !fs::symlink_metadata(&path).unwrap().is_dir() {
            found.push(name);
            continue;
        }
        let below = tree(&path);
        if below.is_empty() {
            found.push(format!("{name}/"));
        }
        found.extend(below.iter().map(|below| format!("{name}/{below}")));
    }
    found
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.unwrap_or_else(|_| panic!("{what} takes too long"))
}

async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
