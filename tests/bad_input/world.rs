//! A good root to be spoiled, and what may be asked of a spoiled one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::id::ObjectName;
use stillpoint::protocol::manifest::Current;
use stillpoint::storage::{BlobStore, Key, OpenStore, Progress};
use stillpoint::{Config, ErrorKind, Memory, Repository, Result, VerifyDepth};

use crate::files::Files;

pub const PARTICIPANT: &str = "orders/7";
/// The participant's folder in the store.
pub const FOLDER: &str = "participants/orders%2F7/";
const OBJECT_BYTES_MAX: u64 = 1 << 20;
/// Twenty times the usual.
const DEADLINE: Duration = Duration::from_secs(60);

/// Objects by their names in the whole store.
pub type Objects = BTreeMap<String, Vec<u8>>;
/// Files of a state by their names.
pub type Content = BTreeMap<String, Vec<u8>>;

/// Short waits and few tries: what is wrong stays wrong.
pub fn config() -> Config {
    let mut config = Config::default();
    config.checkpoints.num_retained = 2;
    config.restore_tries_max = 2;
    config.failure_burst_max = 1_000_000;
    config.claim_deadline = Some(DEADLINE);
    let limits = &mut config.checkpoints.limits;
    limits.tail_records_max = 3;
    limits.sweep_pause = Duration::from_millis(1);
    limits.sweep_round_pause = Duration::from_millis(5);
    limits.forget_delay = Duration::from_millis(1);
    limits.retry_delay = Duration::from_millis(1);
    limits.retry_delay_max = Duration::from_millis(4);
    limits.read_tries_max = 2;
    limits.claim_delay = Duration::ZERO;
    limits.manifest_object_bytes_max = 1 << 20;
    limits.user_bytes_max = 1 << 16;
    limits.family_bytes_max = 1 << 16;
    config
}

pub async fn open(store: impl OpenStore) -> Repository {
    let builder = Repository::builder(store).with_config(config());
    builder.open().await.unwrap()
}

pub async fn within<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.expect("it takes too long")
}

/// What several lives left in good order.
pub struct Template {
    pub objects: Objects,
    /// What each retained checkpoint holds, by the user's bytes.
    pub truths: BTreeMap<Vec<u8>, Content>,
}

impl Template {
    pub async fn make(participant: &str) -> Self {
        let store = Memory::new();
        let mut truths = BTreeMap::new();
        for life in 0..3 {
            let directory = tempfile::tempdir().unwrap();
            let repository = open(store.clone()).await;
            let claim = repository.claim(participant).await.unwrap();
            let restored = claim.restore_into(directory.path()).await.unwrap();
            let state = Files::open(directory.path());
            let participant = restored.attach(state.clone()).unwrap();
            for round in 0..2 {
                let number = 1 + life * 2 + round;
                state.write(&format!("{number:06}.sst"), &[number; 60]);
                if number > 2 {
                    state.delete(&format!("{:06}.sst", number - 2));
                }
                let user_bytes = format!("offset {number}");
                let checkpoint = participant.checkpoint(user_bytes.clone()).unwrap();
                checkpoint.completed().await.unwrap();
                truths.insert(user_bytes.into_bytes(), state.read());
            }
            participant.cleaned().await.unwrap();
            participant.close().await.unwrap();
        }
        let inspection = open(store.clone()).await.inspect(participant).await;
        let retained = inspection.unwrap().checkpoints();
        let retained: Vec<_> = retained.into_iter().map(|info| info.user_bytes).collect();
        truths.retain(|user_bytes, _| retained.contains(user_bytes));
        assert_eq!(truths.len(), 2);
        let mut objects = objects_of(&store).await;
        // What lies about may be a snapshot that nobody names yet.
        let current = current(&objects);
        objects.retain(|name, _| match parse(name) {
            ObjectName::Manifest(name) => current.named().contains(&name),
            ObjectName::Current | ObjectName::Shared(_) => true,
        });
        assert_eq!(current.snapshots().len(), 2, "an older one as well");
        assert!(current.version() > current.snapshot_version(), "a tail");
        Self { objects, truths }
    }

    /// Whether a reader of the manifest or of the files needs the object, and no other will do.
    pub fn is_needed(&self, name: &str) -> bool {
        let current = current(&self.objects);
        match parse(name) {
            ObjectName::Current | ObjectName::Shared(_) => true,
            ObjectName::Manifest(name) => {
                !current.snapshots().contains(&name) && name.version > current.snapshot_version()
            }
        }
    }

    /// Reads all that is retained, as a guest.
    ///
    /// # Panics
    /// When what is read without an error is not the truth.
    pub async fn look(&self, repository: &Repository) -> Result<()> {
        let inspection = within(repository.inspect(PARTICIPANT)).await?;
        let retained = inspection.checkpoints();
        let said = retained.iter().map(|info| &info.user_bytes);
        assert!(said.eq(self.truths.keys()), "{retained:?}");
        for info in retained {
            let checked = inspection.verify(info.checkpoint, VerifyDepth::Checksums);
            if let Some(fault) = within(checked).await?.faults.into_iter().next() {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Becomes the holder, and restores.
    ///
    /// # Panics
    /// When what is restored without an error is not the truth.
    pub async fn take_over(&self, repository: &Repository, directory: &Path) -> Result<()> {
        let claim = within(repository.claim(PARTICIPANT)).await?;
        let restored = within(claim.restore_into(directory)).await?;
        let user_bytes = restored.user_bytes().expect("there are checkpoints");
        let (newest, _) = self.truths.last_key_value().unwrap();
        assert_eq!(user_bytes, newest, "nothing falls back in silence");
        assert_eq!(Files::open(directory).read(), self.truths[user_bytes]);
        within(claim.close()).await
    }
}

/// Whether an error is one that bad input may have. A defect of the library's is not.
pub fn is_typed(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Corrupt
        | ErrorKind::Missing
        | ErrorKind::Incompatible
        | ErrorKind::NotFound
        | ErrorKind::Denied
        | ErrorKind::Invalid
        | ErrorKind::Unsupported => true,
        ErrorKind::Internal | ErrorKind::Other | ErrorKind::Deadline => false,
        _ => false,
    }
}

pub fn parse(name: &str) -> ObjectName {
    ObjectName::parse(name.strip_prefix(FOLDER).unwrap()).unwrap()
}

pub fn current(objects: &Objects) -> Current {
    Current::decode(&objects[&format!("{FOLDER}CURRENT")]).unwrap()
}

pub async fn store_of(objects: &Objects) -> Memory {
    let store = Memory::new();
    for (name, bytes) in objects {
        let key = Key::new(name).unwrap();
        if key.leaf() == "CURRENT" {
            let swapped = store.swap(&key, None, bytes).await;
            assert!(matches!(swapped, Answer::Done(_)), "{swapped:?}");
        } else {
            let progress = Progress::default();
            let put = store.put(&key, bytes.clone().into(), &progress).await;
            assert!(matches!(put, Answer::Done(_)), "{put:?}");
        }
    }
    store
}

pub async fn objects_of(store: &Memory) -> Objects {
    let Answer::Done(page) = store.list("", None, usize::MAX).await else {
        panic!("it can be listed");
    };
    let mut objects = Objects::new();
    for name in page.names {
        let key = Key::new(&name).unwrap();
        let Answer::Done(bytes) = store.get(&key, OBJECT_BYTES_MAX).await else {
            panic!("{name} can be read");
        };
        objects.insert(name, bytes);
    }
    objects
}

/// The objects as files, as a file system's store has them.
pub fn write_tree(root: &Path, objects: &Objects) {
    for (name, bytes) in objects {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(root.join(FOLDER).join("LOCK"), b"").unwrap();
}

/// Everything below a directory: what it is and what is in it. Only the names of temporary files'
/// owners, which every writer has, are left out.
pub fn tree(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(directory, "", &mut found);
    found
}

fn walk(directory: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            if entry.file_name() == ".tmp" {
                continue;
            }
            found.insert(name.clone(), "directory".to_owned());
            walk(&entry.path(), &format!("{name}/"), found);
        } else if kind.is_file() {
            let length = entry.metadata().unwrap().len();
            let what = if length > OBJECT_BYTES_MAX {
                format!("{length} bytes")
            } else {
                format!("{:?}", fs::read(entry.path()).unwrap())
            };
            found.insert(name, what);
        } else {
            found.insert(name, format!("{kind:?}"));
        }
    }
}
