//! Opens the repository that `--root` names, and tells apart what else may be there.
//!
//! | the directory is | answer |
//! |---|---|
//! | absent | not found |
//! | not to be read | denied |
//! | no directory | invalid |
//! | empty, or a repository without participants | no error: there are no participants |
//! | of another kind, or one participant's own | invalid |

use stillpoint::{Config, Error, ErrorKind, FileSystem, Inspection, Repository};

use crate::arguments::{Wanted, Where};
use stillpoint::protocol::id::CheckpointId;

/// What the command is going to do with the repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing is written, not even temporary files of dead writers are removed.
    Read,
    /// Objects may be written and deleted; the directory must be there all the same.
    Write,
}

/// An open repository and the participants that were asked for.
pub struct Root {
    pub repository: Repository,
    pub participants: Vec<String>,
}

impl Root {
    /// Opens the repository; all its participants, or the one that was named.
    pub async fn open(at: &Where, access: Access, config: Config) -> Result<Self, Error> {
        let store = FileSystem::at(&at.root);
        let store = match access {
            Access::Read => store.read_only(),
            Access::Write => store.must_exist(),
        };
        let repository = Repository::builder(store)
            .with_config(config)
            .open()
            .await?;
        let listed = repository.participants().await;
        let participants = match (&at.participant, listed) {
            (None, listed) => listed?,
            (Some(name), Ok(listed)) if !listed.contains(name) => {
                return Err(no_such_participant(name, &listed));
            }
            // The list only helps whoever mistook the name: without it the participant itself answers.
            (Some(name), Ok(_) | Err(_)) => vec![name.clone()],
        };
        Ok(Self {
            repository,
            participants,
        })
    }

    /// The one participant that is meant.
    pub fn one(&self) -> Result<&str, Error> {
        match &*self.participants {
            [one] => Ok(one),
            [] => Err(Error::new(
                ErrorKind::NotFound,
                "the repository is empty: it has no participants",
            )),
            several => {
                let cause = format!(
                    "there are several participants, choose one with --participant: {}",
                    listed(several)
                );
                Err(Error::new(ErrorKind::Invalid, cause))
            }
        }
    }

    /// Looks at the one participant that is meant.
    pub async fn inspect_one(&self) -> Result<Inspection, Error> {
        self.repository.inspect(self.one()?).await
    }
}

/// The checkpoint that is meant.
pub fn resolve(inspection: &Inspection, wanted: Wanted) -> Result<CheckpointId, Error> {
    match wanted {
        Wanted::Id(checkpoint) => Ok(checkpoint),
        Wanted::Newest => inspection.manifest().restore_point().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "no checkpoint has completed yet")
                .with_participant(inspection.participant())
        }),
    }
}

fn no_such_participant(name: &str, participants: &[String]) -> Error {
    let cause = match participants {
        [] => "the repository is empty: it has no participants".to_owned(),
        several => format!(
            "there is no such participant; there are {}",
            listed(several)
        ),
    };
    Error::new(ErrorKind::NotFound, cause).with_participant(name)
}

fn listed(names: &[String]) -> String {
    const SHOWN_MAX: usize = 20;
    let shown: Vec<_> = names
        .iter()
        .take(SHOWN_MAX)
        .map(|name| format!("{name:?}"))
        .collect();
    let rest = names.len().saturating_sub(SHOWN_MAX);
    match rest {
        0 => shown.join(", "),
        _ => format!("{} and {rest} more", shown.join(", ")),
    }
}
