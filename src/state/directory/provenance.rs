//! Decides what becomes of what lies in a state's directory, and notes where it has come from.
//!
//! | there is no checkpoint, and here lies | without an option | to be adopted |
//! |---|---|---|
//! | nothing, or what the note allows to be removed | removed | removed |
//! | the books of a database that was only just made | kept | kept |
//! | a database | refused | kept, if all that lies here is RocksDB's |
//! | anything else | refused | refused |
//!
//! Where there is a checkpoint, all that the note does not allow to be removed is refused. What may be
//! removed, the option to replace it allows in each case.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

use super::books::{self, Found};
use super::entries::{found, remove};
use super::ownership::{Origin, Ownership};
use super::{
    DATABASE, DirectoryError, Existing, LOCK, MARKS, OURS, OURS_UNFINISHED, OWN_FOLDER,
    StateDirectory,
};
use crate::protocol::answer::Failure;
use crate::protocol::file::FileDescription;
use crate::protocol::id::{Epoch, RootId};
use crate::state::failure::failed;
use crate::state::folders::sync_directory;
use crate::state::marks_of_files::Mark;
use crate::state::unlinked;
use crate::steps::step;

/// What a state that is opened in the directory begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// With nothing, or with a checkpoint.
    Known,
    /// With a database that was only just made, as it seems.
    Kept,
    /// With what is adopted.
    Adopted,
}

const ADOPT: &str = "if it is the participant's state, adopt it (RestoreOptions::adopt_existing); if nobody \
     needs it, clear the directory or let it be removed (RestoreOptions::replace_foreign_state)";
const HAS_CHECKPOINT: &str = "since the participant has a checkpoint, it can't be adopted: move it elsewhere if \
     anybody may need it, or let it be removed (RestoreOptions::replace_foreign_state)";
const NO_DATABASE: &str = "since it is no database, it can't be adopted: move it elsewhere if anybody may need it, \
     or let it be removed (RestoreOptions::replace_foreign_state)";

impl StateDirectory {
    /// Whether all that lies in the directory may be removed: the participant's last checkpoint, if
    /// there is one, was completed in the epoch `completed_in`.
    ///
    /// # Errors
    /// [`DirectoryError::Unexplained`], and trouble with the file system.
    pub fn check_replaceable(&self, completed_in: Option<Epoch>) -> Result<(), DirectoryError> {
        if self.is_removable(completed_in)? {
            return Ok(());
        }
        match self.look()? {
            Found::Nothing => Ok(()),
            Found::Beginning(found) | Found::Worth(found) => {
                Err(self.unexplained(found, completed_in)?)
            }
        }
    }

    /// [As above](Self::check_replaceable), for a restore of these files of a checkpoint.
    ///
    /// # Errors
    /// As there.
    pub fn check_replaceable_by(
        &self,
        completed_in: Epoch,
        root: RootId,
        files: &[FileDescription],
    ) -> Result<(), DirectoryError> {
        if self.is_known_stored(root, files) {
            return Ok(());
        }
        self.check_replaceable(Some(completed_in))
    }

    /// Whether an adopted state is stored although that was not noted, since its holder died before
    /// that. No checkpoint has a file that was stored from here, unless one of its holder's was completed.
    fn is_known_stored(&self, root: RootId, files: &[FileDescription]) -> bool {
        let Origin::Adopted(_, identity) = self.ownership.lock().origin.clone() else {
            return false;
        };
        let names: BTreeSet<_> = files.iter().map(|file| file.name).collect();
        let is_in = |mark: &Mark| mark.root == root && names.contains(&mark.name);
        identity == books::identity(&self.path) && self.living_marks().values().any(is_in)
    }

    fn is_removable(&self, completed_in: Option<Epoch>) -> Result<bool, Failure> {
        let origin = self.ownership.lock().origin.clone();
        Ok(self.existing == Existing::Replaced
            || origin.allows_removal(&self.path, completed_in)?)
    }

    fn look(&self) -> Result<Found, Failure> {
        books::look(&self.path).map_err(|error| self.reading(&error))
    }

    fn reading(&self, error: &io::Error) -> Failure {
        failed(error, format_args!("reading {}", self.path.display()))
    }

    fn has_database(&self) -> Result<bool, Failure> {
        Ok(found(&self.path.join(DATABASE))?.is_some())
    }

    fn unexplained(
        &self,
        found: String,
        completed_in: Option<Epoch>,
    ) -> Result<DirectoryError, Failure> {
        let is_same = |noted: &Vec<u8>| *noted == books::identity(&self.path);
        let why = match (&self.ownership.lock().origin, completed_in) {
            (Origin::Adopted(_, noted), None) if is_same(noted) => {
                "which was adopted and has no complete checkpoint yet".to_owned()
            }
            (Origin::Adopted(epoch, noted), Some(completed_in)) if is_same(noted) => format!(
                "which was adopted in epoch {}; whether a checkpoint of it was completed is not known, \
                 since the last one was in epoch {}, by a start elsewhere",
                epoch.0, completed_in.0
            ),
            _ => "which came neither out of a checkpoint nor from a state that began there"
                .to_owned(),
        };
        let advice = match completed_in {
            Some(_) => HAS_CHECKPOINT,
            None if self.has_database()? => ADOPT,
            None => NO_DATABASE,
        };
        Ok(DirectoryError::Unexplained {
            path: self.path.clone(),
            found,
            why,
            advice,
        })
    }

    /// Begins without a checkpoint: with nothing, or with the state that is to be adopted. Answers
    /// whether it was.
    ///
    /// # Errors
    /// [`DirectoryError::Unexplained`] if there is a state and it is not to be adopted,
    /// [`DirectoryError::Mixed`] if it is and something else lies beside it, and trouble with the file
    /// system.
    pub fn begin_anew(&self) -> Result<bool, DirectoryError> {
        let found = if self.is_removable(None)? {
            Found::Nothing
        } else {
            self.look()?
        };
        let is_adopted = self.existing == Existing::Adopted && self.has_database()?;
        let beginning = match found {
            Found::Nothing => {
                self.clear()?;
                Beginning::Known
            }
            Found::Beginning(_) | Found::Worth(_) if is_adopted => {
                self.check_only_database()?;
                Beginning::Adopted
            }
            Found::Beginning(_) => Beginning::Kept,
            Found::Worth(found) => return Err(self.unexplained(found, None)?),
        };
        *self.beginning.lock() = beginning;
        Ok(beginning == Beginning::Adopted)
    }

    fn check_only_database(&self) -> Result<(), DirectoryError> {
        let other = books::other_than_database(&self.path).map_err(|error| self.reading(&error))?;
        match other {
            None => Ok(()),
            Some(found) => Err(DirectoryError::Mixed {
                path: self.path.clone(),
                found,
            }),
        }
    }

    /// A state was opened in the directory, without a checkpoint, and is attached by the holder of
    /// this epoch; `holds` tells something that it holds, wherever that lies. Answers something that
    /// it holds already, if it does: then it is not removed before a checkpoint of it is complete.
    ///
    /// # Errors
    /// [`DirectoryError::Unexplained`] if it was kept as one in which nothing was ever written, and
    /// that is not so; trouble with the file system, naming the path.
    pub fn note_attached(
        &self,
        epoch: Epoch,
        holds: Option<String>,
    ) -> Result<Option<String>, DirectoryError> {
        let found = match self.look()? {
            Found::Worth(found) if found != DATABASE => Some(found),
            Found::Worth(_) | Found::Beginning(_) | Found::Nothing => holds,
        };
        let beginning = *self.beginning.lock();
        let found = match (beginning, found) {
            (Beginning::Kept, Some(found)) => return Err(self.unexplained(found, None)?),
            (Beginning::Adopted, None) => Some(DATABASE.to_owned()),
            (_, found) => found,
        };
        // From now on a mark says that a file was stored from here.
        self.rewrite_marks(BTreeMap::new())?;
        let identity = books::identity(&self.path);
        self.note_origin(match found {
            None => Origin::Made(identity),
            Some(_) => Origin::Adopted(epoch, identity),
        })?;
        Ok(found)
    }

    /// A state was opened in the directory that came out of a checkpoint: from now on it is known by
    /// its name.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn note_opened(&self) -> Result<(), Failure> {
        self.note_origin(Origin::Restored(Some(books::identity(&self.path))))
    }

    /// A checkpoint was put in its place, in whole.
    pub(super) fn note_restored(&self) -> Result<(), Failure> {
        let identity = books::identity(&self.path);
        let is_known = !identity.is_empty() || !self.has_database()?;
        self.note_origin(Origin::Restored(is_known.then_some(identity)))
    }

    /// Whether it holds a state of which no checkpoint is known to be complete, and that was there
    /// before it was attached.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        matches!(self.ownership.lock().origin, Origin::Adopted(..))
    }

    /// A checkpoint of the state is complete: from now on it can be had from the store.
    ///
    /// # Errors
    /// Trouble with the file system, naming the path.
    pub fn note_stored(&self) -> Result<(), Failure> {
        let Origin::Adopted(_, identity) = self.ownership.lock().origin.clone() else {
            return Ok(());
        };
        self.note_origin(Origin::Restored(Some(identity)))
    }

    /// Whether it is noted on disk whose the directory is. An adoption is noted only once the state is
    /// attached: whoever adopts another's by mistake leaves nothing behind.
    pub(super) fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Relaxed)
    }

    /// Notes where what lies here has come from.
    pub(super) fn note_origin(&self, origin: Origin) -> Result<(), Failure> {
        let mut ownership = self.ownership.lock();
        if self.is_noted() && ownership.origin == origin {
            return Ok(());
        }
        let noted = Ownership {
            owner: ownership.owner.clone(),
            origin,
        };
        self.note(&noted)?;
        *ownership = noted;
        Ok(())
    }

    pub(super) fn note(&self, ownership: &Ownership) -> Result<(), Failure> {
        let path = self.own(OURS);
        let unfinished = self.own(OURS_UNFINISHED);
        step("write", &unfinished);
        ownership
            .encode()
            .and_then(|bytes| {
                let mut file = unlinked::create_anew(&unfinished)?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                step("rename", &path);
                fs::rename(&unfinished, &path)
            })
            .map_err(|error| failed(&error, format_args!("writing {}", path.display())))?;
        self.is_noted.store(true, Ordering::Relaxed);
        sync_directory(&self.path.join(OWN_FOLDER))
    }

    /// Nothing of ours is left in a directory that was never noted as ours.
    pub(super) fn take_back(&self) {
        if self.is_noted() {
            return;
        }
        let own = self.path.join(OWN_FOLDER);
        for name in [OURS_UNFINISHED, MARKS, LOCK] {
            if let Err(failure) = remove(&own.join(name)) {
                tracing::debug!(%failure, "a file was left in a directory that was not taken");
            }
        }
        step("remove directory", &own);
        // What a backend has put there stays.
        let _ = fs::remove_dir(&own);
    }
}
