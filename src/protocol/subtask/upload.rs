//! Uploads: each file under one name, whatever becomes of the snapshot that asked for it.
//!
//! ```text
//!  queued --name given--> in flight --Done----> stored
//!                          ^     |---Unknown--> resting, same name; after some tries a fresh one
//!                          |     |---Refused--> resting, fresh name
//!                          |     |---Failed---> resting, same name; or the file has failed
//!                          `---timer---'
//! ```
//!
//! An upload is wanted while its file is live or in a snapshot in flight. One that is not wanted any
//! more is cancelled, its answer awaited, and whatever may exist under its name is deleted.

use alloc::vec::Vec;

use super::files::{FileKey, Remote};
use super::{Action, OpToken, Payload, Subtask, Timer};
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind};
use crate::protocol::file::FileKind;
use crate::protocol::id::{CheckpointId, FileName};
use crate::protocol::marks::{guard, sometimes};
use crate::protocol::outcome::{Ignored, Outcome};

/// An upload under way, between two tries included.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Upload {
    pub(super) key: FileKey,
    /// The snapshot whose secured copy is read.
    pub(super) source: CheckpointId,
    /// Whether the store has been asked; otherwise it rests until its timer is due.
    pub(super) in_flight: bool,
    /// Tries under this name that did not store the file.
    pub(super) tries: u32,
    /// How many of them may have stored it all the same, or may yet.
    pub(super) unknown: u32,
}

impl Subtask {
    /// Begins uploads of queued files, oldest snapshot first, as many as may be under way.
    pub(super) fn start_uploads(&mut self) {
        while self.uploads.len() < self.config.limits.uploads_in_flight_max {
            let Some(key) = self.queue.pop_first() else {
                return;
            };
            let holder = self.holds.iter().find(|(_, hold)| hold.can_serve(&key));
            let Some((&source, _)) = holder else {
                panic!("{}: nothing holds the queued {key:?}", self.config.attempt);
            };
            let name = self.fresh_name();
            let upload = Upload {
                key: key.clone(),
                source,
                in_flight: false,
                tries: 0,
                unknown: 0,
            };
            self.set_remote(&key, Remote::Uploading(name));
            self.uploads.insert(name, upload);
            self.release(&key);
            self.send_upload(name);
        }
    }

    /// The next number. No name is given twice.
    fn fresh_name(&mut self) -> FileName {
        let number = self.next_number;
        assert!(number < u64::MAX, "{} is out of names", self.config.attempt);
        self.next_number = number + 1;
        self.unnamed.insert(number);
        FileName {
            attempt: self.config.attempt,
            number,
        }
    }

    fn set_remote(&mut self, key: &FileKey, remote: Remote) {
        if let Some(file) = self.files.get_mut(key) {
            file.remote = remote;
        }
    }

    /// Asks the store, for the first time or again.
    pub(super) fn send_upload(&mut self, name: FileName) {
        let Some(upload) = self.uploads.get_mut(&name) else {
            return;
        };
        let Some(file) = self.files.get(&upload.key) else {
            return;
        };
        upload.in_flight = true;
        self.actions.push_back(Action::Upload {
            to: name,
            checkpoint: upload.source,
            local: upload.key.local.clone(),
            kind: file.kind,
            size_bytes: file.size_bytes,
        });
    }

    pub(super) fn on_uploaded(&mut self, name: FileName, answer: Answer<Payload>) -> Outcome {
        let asked = self.uploads.get(&name).filter(|upload| upload.in_flight);
        let Some(upload) = asked.cloned() else {
            return Outcome::Ignored(Ignored::UnknownToken);
        };
        let wanted = self
            .files
            .get(&upload.key)
            .is_some_and(|file| file.remote == Remote::Uploading(name));
        if !wanted {
            self.end_unwanted(name, &upload, &answer);
            return Outcome::Accepted;
        }
        match answer {
            Answer::Done(Payload::Stored(digest)) => self.on_stored(name, &upload, digest),
            Answer::Done(Payload::Nothing) => {
                panic!("{name}: an upload was answered without what it stored")
            }
            Answer::Refused => {
                sometimes!(UploadRefused);
                self.rename(name, upload);
            }
            Answer::Failed(failure) if failure.kind.is_retryable() => self.rest(name, upload),
            Answer::Failed(failure) => {
                self.end_upload(name, &upload, upload.unknown > 0);
                self.fail_file(&upload.key, &failure);
            }
            Answer::Unknown(_) => self.on_upload_in_doubt(name, upload),
        }
        Outcome::Accepted
    }

    fn on_stored(&mut self, name: FileName, upload: &Upload, digest: Digest) {
        let key = &upload.key;
        let Some(file) = self.files.get(key) else {
            return;
        };
        let as_cut = match file.kind {
            FileKind::State => digest.size_bytes == file.size_bytes,
            FileKind::Pack => true,
        };
        if !guard!(LengthIsThatOfTheCut, as_cut) {
            let cause = alloc::format!(
                "{} had {} bytes at the cut of {} and {} when it was read",
                key.local,
                file.size_bytes,
                upload.source,
                digest.size_bytes
            );
            self.end_upload(name, upload, true);
            self.fail_file(key, &Failure::new(FailureKind::Corrupt, cause));
            return;
        }
        sometimes!(
            UploadOutlivesItsSnapshot,
            !self.snapshots.contains_key(&upload.source)
        );
        let named = false;
        let stored = Remote::Stored {
            name,
            digest,
            named,
        };
        self.set_remote(key, stored);
        self.uploads.remove(&name);
        for (&checkpoint, snapshot) in &mut self.snapshots {
            if self.files.holds(checkpoint, key) {
                snapshot.one_is_stored();
            }
        }
        self.release(key);
    }

    fn on_upload_in_doubt(&mut self, name: FileName, mut upload: Upload) {
        upload.unknown += 1;
        if guard!(
            NameInDoubtIsRepeatedOnlySoOften,
            upload.unknown < self.config.limits.upload_tries_max
        ) {
            self.rest(name, upload);
        } else {
            sometimes!(UploadInDoubtRenamed);
            self.rename(name, upload);
        }
    }

    /// Tries again under the same name, later.
    fn rest(&mut self, name: FileName, upload: Upload) {
        let tries = self.one_more_try(upload.tries);
        let upload = Upload {
            in_flight: false,
            tries,
            ..upload
        };
        self.uploads.insert(name, upload);
        self.set_timer(Timer::Upload(name), self.wait_after(tries));
    }

    /// Tries again under a fresh name, later. The old one is the attempt's to delete: what it holds
    /// is not the file, or can't be known.
    fn rename(&mut self, name: FileName, upload: Upload) {
        self.uploads.remove(&name);
        self.delete_own(name, false);
        let fresh = self.fresh_name();
        self.set_remote(&upload.key, Remote::Uploading(fresh));
        let upload = Upload {
            unknown: 0,
            ..upload
        };
        self.rest(fresh, upload);
    }

    /// The answer to an upload that nobody wants any more.
    fn end_unwanted(&mut self, name: FileName, upload: &Upload, answer: &Answer<Payload>) {
        let this_may_exist = match answer {
            Answer::Done(_) | Answer::Refused | Answer::Unknown(_) => true,
            Answer::Failed(_) => false,
        };
        self.end_upload(name, upload, this_may_exist || upload.unknown > 0);
    }

    /// An upload is over without success.
    fn end_upload(&mut self, name: FileName, upload: &Upload, may_exist: bool) {
        self.uploads.remove(&name);
        self.timers.disarm(Timer::Upload(name));
        self.unnamed.remove(&name.number);
        if guard!(NameIsForgottenOnlyIfNothingMayExist, !may_exist) {
            // Failed for certain each time: there is nothing to delete.
        } else {
            self.delete_own(name, false);
        }
        self.set_remote(&upload.key, Remote::Absent);
        self.release(&upload.key);
    }

    /// A file can't be stored: the snapshots that hold it are declined, and its mapping ends.
    fn fail_file(&mut self, key: &FileKey, failure: &Failure) {
        self.files.end_after_latest(key);
        let declined: Vec<CheckpointId> = self
            .snapshots
            .keys()
            .copied()
            .filter(|&checkpoint| self.files.holds(checkpoint, key))
            .collect();
        for checkpoint in declined {
            self.decline(checkpoint, failure.clone());
        }
        self.drop_unless_held(key);
    }

    /// Forgets an ended file that no snapshot in flight and no base holds.
    pub(super) fn drop_unless_held(&mut self, key: &FileKey) {
        let Some((first, left)) = self.files.ended_interval(key) else {
            return;
        };
        let in_flight = self.snapshots.range(first..left).next().is_some();
        let in_base = self.bases.range(first..left).next().is_some();
        if guard!(OnlyWhatNoSnapshotHoldsIsDropped, !in_flight && !in_base) {
            self.drop_file(key);
        }
    }

    /// Forgets a file, gives up its upload, deletes it if it is the attempt's own.
    pub(super) fn drop_file(&mut self, key: &FileKey) {
        let Some(file) = self.files.remove(key) else {
            return;
        };
        self.queue.remove(key);
        match file.remote {
            Remote::Absent => self.release(key),
            Remote::Stored { name, named, .. } => self.delete_own(name, named),
            Remote::Uploading(name) => {
                let Some(upload) = self.uploads.get(&name).cloned() else {
                    panic!("{name} of {key:?} is not under way");
                };
                if upload.in_flight {
                    sometimes!(UploadCancelled);
                    let token = OpToken::Upload(name);
                    self.unnamed.remove(&name.number);
                    self.actions.push_back(Action::CancelUpload { token });
                } else {
                    self.end_upload(name, &upload, upload.unknown > 0);
                }
            }
        }
    }
}
