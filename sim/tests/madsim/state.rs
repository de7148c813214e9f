//! The states that are checkpointed: the library's own in memory, whose checkpoints are one pack, and
//! one of immutable files, whose checkpoints are many.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::protocol::answer::{Failure, FailureKind};
use stillpoint::protocol::id::LocalName;
use stillpoint::state::pack::Pack;
use stillpoint::state::{
    AttemptDirectory, Copied, Cut, MemoryState, OWN_FOLDER, SNAPSHOTS_NAME, Secured, SecuredFile,
    SecuredPack, StateBackend, StateFile,
};

use crate::oracle::Pairs;
use crate::world::{below, one_in};

const KEYS: u64 = 8;
const VALUE_BYTES_MAX: u64 = 300;
/// The files of a state lie side by side; whatever else is there has another ending.
const ENDING: &str = ".data";

/// A state that is open.
pub enum State {
    Memory(MemoryState),
    Files(Files),
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new(FailureKind::Other, error.kind().to_string())
}

impl State {
    /// What a restore has left in a directory, or a new one.
    pub fn open(participant: &str, directory: &Path, is_new: bool) -> Result<Self, Failure> {
        Ok(match participant {
            "orders" if is_new => Self::Memory(MemoryState::new()),
            "orders" => Self::Memory(MemoryState::open(directory)?),
            _ => Self::Files(Files::open(directory)?),
        })
    }

    pub fn backend(&self, cuts_late: bool) -> Backend {
        match self {
            Self::Memory(state) if cuts_late => Backend::Late(state.clone()),
            Self::Memory(state) => Backend::Memory(state.clone()),
            Self::Files(state) => Backend::Files(state.clone()),
        }
    }

    /// Changes something.
    pub fn change(&self) -> Result<(), Failure> {
        let key = format!("{:02}", below(KEYS)).into_bytes();
        if one_in(4) {
            match self {
                Self::Memory(state) => state.delete(&key),
                Self::Files(state) => state.delete_one()?,
            }
            return Ok(());
        }
        let length = 1 + below(VALUE_BYTES_MAX);
        let value: Vec<u8> = (0..length).map(|_| below(256).to_le_bytes()[0]).collect();
        match self {
            Self::Memory(state) => state.put(&key, &value),
            Self::Files(state) => state.add(&value)?,
        }
        Ok(())
    }

    pub fn read(&self) -> Result<Pairs, Failure> {
        match self {
            Self::Memory(state) => {
                let view = state.read();
                let pairs = view.iter();
                Ok(pairs
                    .map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .collect())
            }
            Self::Files(state) => state.read(),
        }
    }
}

/// A state's backend, whichever it is.
pub enum Backend {
    Memory(MemoryState),
    Files(Files),
    /// Takes its cut when it is secured.
    Late(MemoryState),
}

impl StateBackend for Backend {
    fn kind(&self) -> &'static str {
        match self {
            Self::Memory(state) | Self::Late(state) => state.kind(),
            Self::Files(_) => "files",
        }
    }

    fn attach(&self) -> Result<(), Failure> {
        match self {
            Self::Memory(state) | Self::Late(state) => state.attach(),
            Self::Files(state) => AttemptDirectory::remove_dead(&state.snapshots()).map(drop),
        }
    }

    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Memory(_) | Self::Late(_) => None,
            Self::Files(state) => Some(&state.directory),
        }
    }

    fn is_restored_from(&self, directory: &Path) -> bool {
        match self {
            Self::Memory(state) | Self::Late(state) => state.is_restored_from(directory),
            Self::Files(state) => *state.directory == directory,
        }
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        match self {
            Self::Memory(state) => state.snapshot(),
            Self::Late(state) => {
                let state = state.clone();
                Ok(Cut::new(Vec::new(), move |_| state.snapshot()?.secure(&[])))
            }
            Self::Files(state) => state.snapshot(),
        }
    }
}

/// A directory of files that are written once.
#[derive(Clone)]
pub struct Files {
    directory: Arc<PathBuf>,
    next: Arc<AtomicU64>,
}

impl Files {
    fn open(directory: &Path) -> Result<Self, Failure> {
        let state = Self {
            directory: Arc::new(directory.to_owned()),
            next: Arc::default(),
        };
        let newest = state.names()?.into_iter().next_back();
        let newest = newest.and_then(|name| name.trim_end_matches(ENDING).parse::<u64>().ok());
        let next = newest.map_or(0, |newest| newest + 1);
        state.next.store(next, Ordering::SeqCst);
        Ok(state)
    }

    fn snapshots(&self) -> PathBuf {
        self.directory.join(OWN_FOLDER).join(SNAPSHOTS_NAME)
    }

    fn names(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&*self.directory).map_err(|error| failed(&error))? {
            let name = entry.map_err(|error| failed(&error))?.file_name();
            names.extend(
                name.into_string()
                    .ok()
                    .filter(|name| name.ends_with(ENDING)),
            );
        }
        names.sort_unstable();
        Ok(names)
    }

    fn add(&self, value: &[u8]) -> Result<(), Failure> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let path = self.directory.join(format!("{number:06}{ENDING}"));
        fs::write(path, value).map_err(|error| failed(&error))
    }

    fn delete_one(&self) -> Result<(), Failure> {
        let names = self.names()?;
        if names.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(below(names.len() as u64)).unwrap_or(0);
        fs::remove_file(self.directory.join(&names[at])).map_err(|error| failed(&error))
    }

    fn read(&self) -> Result<Pairs, Failure> {
        let mut pairs = Pairs::new();
        for name in self.names()? {
            let value = fs::read(self.directory.join(&name)).map_err(|error| failed(&error))?;
            pairs.insert(name.into_bytes(), value);
        }
        Ok(pairs)
    }

    /// Links all files at once, so that nothing has to be held back from being deleted.
    fn snapshot(&self) -> Result<Cut, Failure> {
        let directory = Arc::new(AttemptDirectory::create(&self.snapshots())?);
        let mut copied = Copied::default();
        let (mut files, mut linked) = (Vec::new(), Vec::new());
        for name in self.names()? {
            let path = self.directory.join(&name);
            let size_bytes = fs::metadata(&path).map_err(|error| failed(&error))?.len();
            let bad = |error| Failure::new(FailureKind::Other, format!("{error}"));
            let name = LocalName::new(&name).map_err(bad)?;
            let file = StateFile { name, size_bytes };
            linked.push(SecuredFile::link(&path, &file, &directory, &mut copied)?);
            files.push(file);
        }
        Ok(Cut::new(files, move |wanted| {
            let mut pack = Pack::new();
            let name = LocalName::new("files")
                .map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
            pack.push(name, b"side by side".to_vec())?;
            let is_wanted =
                |file: &SecuredFile| wanted.iter().any(|wanted| wanted.name == *file.name());
            linked.retain(is_wanted);
            Ok(Secured {
                files: linked,
                pack: SecuredPack::Bytes(pack.encode()?),
                copied,
            })
        }))
    }
}
