//! A repository: one store, many participants, and what they share.

use std::fmt;
use std::sync::Arc;

use super::budget::Budget;
use super::calls::at_once;
use super::driver::Surroundings;
use super::inspect::Inspection;
use super::name::{self, PARTICIPANTS_PREFIX};
use super::participant::Claim;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::executor::Handle;
use crate::protocol::answer::Answer;
use crate::storage::{BlobStore, OpenError, OpenErrorKind, OpenStore, Prefixed};

/// Checkpoints of many participants in one store. Cheap to clone; clones are the same repository.
///
/// A participant is one state with its own checkpoints, of one partition for instance. Each has a
/// directory of its own in the repository, `participants/<name>/`, and one holder at a time.
/// Transfers, memory and failures are bounded over all participants together.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// # let directory = tempfile::tempdir().expect("a temporary directory");
/// use stillpoint::{FileSystem, Repository};
///
/// let repository = Repository::open(FileSystem::at(directory.path())).await?;
/// assert!(repository.participants().await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Repository {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn BlobStore>,
    budget: Arc<Budget>,
    config: Arc<Config>,
    runtime: Handle,
}

/// Opens a repository with a configuration of the caller's.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> stillpoint::Result<()> {
/// use stillpoint::{Config, Memory, Repository};
///
/// let mut config = Config::default();
/// config.checkpoints.num_retained = 1;
/// let repository = Repository::builder(Memory::new()).with_config(config).open().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct RepositoryBuilder<S> {
    store: S,
    config: Config,
}

impl<S: OpenStore> RepositoryBuilder<S> {
    /// Sets how the repository behaves.
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Opens the repository. Its work runs in the tokio runtime that this is called in; a program
    /// without one opens it in a [`Runtime`](crate::Runtime).
    ///
    /// Cancel safe: dropped, it has made a directory at most.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a wrong configuration; what the store says, if it can't be
    /// opened.
    pub async fn open(self) -> Result<Repository> {
        self.config.validate().map_err(|bad| {
            Error::new(ErrorKind::Invalid, bad.to_string())
                .with_phase(Phase::Open)
                .with_source(bad)
        })?;
        let store = self.store.open_store().await.map_err(open_error)?;
        let shared = Shared {
            store,
            budget: Arc::new(Budget::new(&self.config)),
            config: Arc::new(self.config),
            runtime: Handle::current(),
        };
        Ok(Repository {
            shared: Arc::new(shared),
        })
    }
}

impl Repository {
    /// Opens a repository with the default configuration. Its work runs in the tokio runtime that
    /// this is called in; a program without one opens it in a [`Runtime`](crate::Runtime).
    ///
    /// Cancel safe: dropped, it has made a directory at most.
    ///
    /// # Errors
    /// What the store says, if it can't be opened; [`ErrorKind::Invalid`] for a directory that is
    /// neither absent, empty nor a repository, or that lies in that of a state.
    pub async fn open(store: impl OpenStore) -> Result<Self> {
        Self::builder(store).open().await
    }

    /// A repository in this store, with a configuration to be set.
    pub fn builder<S: OpenStore>(store: S) -> RepositoryBuilder<S> {
        RepositoryBuilder {
            store,
            config: Config::default(),
        }
    }

    /// How the repository behaves.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Becomes the holder of a participant, which need not exist yet. Whoever held it before is
    /// fenced: none of its checkpoints completes any more, and it is told so.
    ///
    /// Cancel safe: dropped, nobody holds the participant by this call. Whoever held it before may be
    /// fenced by then, or not.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name that can't be; [`ErrorKind::Corrupt`],
    /// [`ErrorKind::Missing`], [`ErrorKind::Incompatible`] or [`ErrorKind::Denied`] when what is stored
    /// can't be read;
    /// [`ErrorKind::Deadline`] after [`Config::claim_deadline`].
    pub async fn claim(&self, participant: &str) -> Result<Claim> {
        let around = self.around(participant)?;
        Claim::make(participant, around).await
    }

    /// The names of the participants that have a directory here, in order of their escaped form. One
    /// whose directory can't be read is among them.
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// What the store says, if it can't be listed.
    pub async fn participants(&self) -> Result<Vec<String>> {
        Ok(self.listed(PARTICIPANTS_PREFIX).await?.0)
    }

    /// What lies in the repository beside its participants: it is nobody's to delete, and disturbs
    /// nobody. What lies in a participant's part, [`Inspection::unparsable`] tells.
    ///
    /// # Errors
    /// What the store says, if it can't be listed.
    pub async fn unparsable(&self) -> Result<Vec<String>> {
        Ok(self.listed("").await?.1)
    }

    /// The participants whose parts have names that begin so, and what else does: a folder, of a
    /// participant or not, is passed over as soon as a name in it is met. One that can't be looked
    /// into keeps nobody from the others: whoever asks for it is told.
    async fn listed(&self, prefix: &str) -> Result<(Vec<String>, Vec<String>)> {
        let (mut participants, mut others) = (Vec::new(), Vec::new());
        let mut after: Option<String> = None;
        let deadline = self.shared.config.progress_deadline;
        loop {
            let list = self.shared.store.list(prefix, after.as_deref(), 1);
            let page = done(at_once(list, deadline).await)
                .map_err(|error| error.with_phase(Phase::Inspect))?;
            let Some(found) = page.names.into_iter().next() else {
                participants.dedup();
                others.dedup();
                return Ok((participants, others));
            };
            let (above, rest) = match found.strip_prefix(PARTICIPANTS_PREFIX) {
                Some(rest) => (PARTICIPANTS_PREFIX, rest),
                None => ("", &*found),
            };
            let Some((folder, _)) = rest.split_once('/') else {
                after = Some(found.clone());
                others.push(found);
                continue;
            };
            // Hardly a name in the folder comes after this one; one that does is passed over by itself.
            let last = format!("{above}{folder}/{}", char::MAX);
            after = Some(last.max(found.clone()));
            let participant = name::unescape(folder).filter(|_| !above.is_empty());
            match participant {
                Some(participant) => participants.push(participant),
                None => others.push(format!("{above}{folder}/")),
            }
        }
    }

    /// Looks at a participant without holding it, as a guest: nothing it does disturbs the holder.
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such participant; otherwise as for
    /// [`Repository::claim`].
    pub async fn inspect(&self, participant: &str) -> Result<Inspection> {
        Inspection::load(participant, self.around(participant)?).await
    }

    /// The folder of a participant's objects, seen from the repository:
    /// `participants/orders%2F7` for `orders/7`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name that can't be.
    pub fn folder(&self, participant: &str) -> Result<String> {
        Ok(name::folder(participant)?.to_string())
    }

    fn around(&self, participant: &str) -> Result<Surroundings> {
        let folder = name::folder(participant)?;
        let shared = &self.shared;
        Ok(Surroundings {
            store: Arc::new(Prefixed::new(Arc::clone(&shared.store), folder)),
            budget: Arc::clone(&shared.budget),
            config: Arc::clone(&shared.config),
            runtime: shared.runtime.clone(),
        })
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository")
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}

/// The value of an answer, or what is wrong.
pub(super) fn done<T>(answer: Answer<T>) -> Result<T> {
    match answer {
        Answer::Done(value) => Ok(value),
        Answer::Refused => Err(Error::new(ErrorKind::Other, "the store refused the call")),
        Answer::Failed(failure) | Answer::Unknown(failure) => Err(failure.into()),
    }
}

fn open_error(error: OpenError) -> Error {
    let kind = match error.kind() {
        OpenErrorKind::Absent => ErrorKind::NotFound,
        OpenErrorKind::Denied | OpenErrorKind::ReadOnly => ErrorKind::Denied,
        OpenErrorKind::NotADirectory | OpenErrorKind::NotARepository => ErrorKind::Invalid,
        OpenErrorKind::Failed => ErrorKind::Other,
    };
    Error::new(kind, error.to_string())
        .with_phase(Phase::Open)
        .with_source(error)
}
