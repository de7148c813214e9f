//! A repository to look at, and the command to look with.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, Key, OpenStore, Opening, Page, Progress, Reader, Tagged,
};
use stillpoint::{Config, FileSystem, MemoryState, Participant, Repository};
use tempfile::TempDir;

/// Twenty times what anything here takes.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work)
        .await
        .expect("not within the deadline")
}

/// What a run of the command said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_stillpoint"))
}

pub fn say(mut command: Command) -> Said {
    let output = command.output().unwrap();
    let said = Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!said.err.contains("panicked"), "{said:?}");
    said
}

pub fn run<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Said {
    let mut command = command();
    command.args(arguments);
    say(command)
}

/// A command about a root, with `--json`: its status and its document.
pub fn ask(root: &Path, arguments: &[&str]) -> (i32, Value) {
    let mut command = command();
    command
        .args(arguments)
        .arg("--root")
        .arg(root)
        .arg("--json");
    let said = say(command);
    assert_eq!(said.json()["command"], arguments[0], "{said:?}");
    (said.code, said.json())
}

/// The same for what must succeed.
pub fn answer(root: &Path, arguments: &[&str]) -> Value {
    let (code, document) = ask(root, arguments);
    assert_eq!(code, 0, "{document:#}");
    document
}

/// The same for what must end in an error.
pub fn error(root: &Path, arguments: &[&str], code: i32, kind: &str) -> Value {
    let (found, document) = ask(root, arguments);
    assert_eq!(found, code, "{document:#}");
    assert_eq!(document["error"]["kind"], kind, "{document:#}");
    document["error"].clone()
}

/// A repository and the local directories of what runs on it.
pub struct World {
    pub directory: TempDir,
    pub repository: Repository,
    num_retained: usize,
}

impl World {
    pub async fn new(num_retained: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("checkpoints");
        let repository = open(FileSystem::at(root), num_retained).await;
        Self {
            directory,
            repository,
            num_retained,
        }
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("checkpoints")
    }

    /// A participant's objects.
    pub fn folder(&self, participant: &str) -> PathBuf {
        self.root()
            .join(self.repository.folder(participant).unwrap())
    }

    /// Claims a participant and attaches a state in memory, restored if there is a checkpoint.
    pub async fn start(&self, participant: &str) -> Service {
        Service::start(&self.repository, participant, self.directory.path()).await
    }

    /// The same with a store that does not delete anything.
    pub async fn start_without_deletes(&self, participant: &str) -> Service {
        let store = Hoarding(FileSystem::at(self.root()));
        let repository = open(store, self.num_retained).await;
        Service::start(&repository, participant, self.directory.path()).await
    }
}

async fn open(store: impl OpenStore, num_retained: usize) -> Repository {
    let mut config = Config::default();
    config.checkpoints.num_retained = num_retained;
    // So few that whole manifests come up soon.
    config.checkpoints.limits.tail_records_max = 8;
    let opening = Repository::builder(store).with_config(config).open();
    in_time(opening).await.unwrap()
}

/// A participant at work.
pub struct Service {
    pub state: MemoryState,
    pub participant: Arc<Participant>,
    pub local: PathBuf,
}

impl Service {
    async fn start(repository: &Repository, name: &str, directory: &Path) -> Self {
        let claim = in_time(repository.claim(name)).await.unwrap();
        let local = directory.join(format!("local of {}", name.replace('/', "-")));
        let restored = in_time(claim.restore_into(&local)).await.unwrap();
        let state = if restored.is_empty() {
            MemoryState::new()
        } else {
            MemoryState::open(restored.directory()).unwrap()
        };
        let participant = Arc::new(restored.attach(state.clone()).unwrap());
        Self {
            state,
            participant,
            local,
        }
    }

    /// Writes a value and completes a checkpoint of it. Answers its id.
    pub async fn checkpoint(&self, value: &str) -> u64 {
        self.state.put(b"value", value.as_bytes());
        let checkpoint = self.participant.checkpoint(value).unwrap();
        in_time(checkpoint.completed()).await.unwrap().checkpoint.0
    }

    pub async fn close(self) {
        in_time(self.participant.close()).await.unwrap();
    }
}

/// All that lies in a directory: paths, lengths and times of the last change.
pub fn tree(directory: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        found.insert(path, (meta.len(), meta.mtime(), meta.mtime_nsec()));
    }
    found
}

/// The names of the state files and packs of a participant that are stored.
pub fn shared(folder: &Path) -> Vec<String> {
    let files = tree(&folder.join("shared"))
        .into_keys()
        .filter(|path| path.is_file());
    files
        .map(|path| {
            path.strip_prefix(folder)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect()
}

/// Texts of a list in a document.
pub fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().unwrap().iter();
    texts
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

/// Numbers of a list in a document.
pub fn numbers(list: &Value) -> Vec<u64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_u64().unwrap())
        .collect()
}

/// A store in trouble: it deletes nothing.
struct Hoarding(FileSystem);

impl OpenStore for Hoarding {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let store = self.0.open_store().await?;
            Ok(Arc::new(HoardingStore(store)) as Arc<dyn BlobStore>)
        })
    }
}

#[derive(Debug)]
struct HoardingStore(Arc<dyn BlobStore>);

impl BlobStore for HoardingStore {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        self.0.put(key, body, progress)
    }
    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        self.0.size(key)
    }
    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        self.0.get(key, size_bytes_max)
    }
    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        self.0.stream(key, range)
    }
    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        self.0.load(key, size_bytes_max)
    }
    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        self.0.swap(key, expected, content)
    }
    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        self.0.list(prefix, after, limit)
    }
    fn delete<'a>(&'a self, _: &'a Key) -> Call<'a, ()> {
        Box::pin(async {
            Answer::Failed(Failure::new(FailureKind::Unavailable, "deletes are held"))
        })
    }
}
