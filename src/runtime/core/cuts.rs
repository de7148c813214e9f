//! Cuts: from the caller's thread to a checkpoint, and what is held for their uploads.
//!
//! ```text
//! cut taken ──> held ──a checkpoint is there──> SnapshotTaken ──> Secure ──> Upload ... Release
//!                └── a request asks for one ──┘
//! ```
//!
//! A cut that waits for its checkpoint goes to the first one that wants a cut, whoever asked for
//! it; so cuts reach checkpoints in the order in which they were taken. One that waits for long is
//! settled: it holds its own files then, and the state goes on deleting all others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::{Attachment, Core, Effect, Input};
use crate::error::{Error, ErrorKind};
use crate::protocol::answer::{Answer, Digest, Failure};
use crate::protocol::coordinator::{self, TriggerKind};
use crate::protocol::file::FileKind;
use crate::protocol::id::{CheckpointId, FileName, LocalName, RequestId};
use crate::protocol::subtask::{self, LiveFile, OpToken, Payload};
use crate::protocol::time::{Timestamp, WallClock};
use crate::runtime::progress::{CheckpointReport, ParticipantEvent};
use crate::state::pack::PACK_NAME;
use crate::state::{Cut, Secured, SecuredFile, SecuredPack};

/// A file to be stored.
pub(in crate::runtime) struct Upload {
    pub(in crate::runtime) to: FileName,
    pub(in crate::runtime) checkpoint: CheckpointId,
    pub(in crate::runtime) local: LocalName,
    pub(in crate::runtime) kind: FileKind,
    pub(in crate::runtime) content: Content,
    /// Resolves when the upload is to be given up.
    pub(in crate::runtime) cancelled: oneshot::Receiver<()>,
}

/// Where an upload reads.
#[derive(Clone)]
pub(in crate::runtime) enum Content {
    File(Arc<SecuredFile>),
    Bytes(Arc<[u8]>),
    /// The snapshot was released: there is nothing to read.
    Gone,
}

/// How a checkpoint ends for its caller.
pub(in crate::runtime) type Fate = Option<Result<CheckpointReport, Error>>;

/// A cut that waits for its checkpoint, with the request for that.
pub(super) struct HeldCut {
    pub(super) cut: Cut,
    pub(super) taken: CutTaken,
    pub(super) request: Option<RequestId>,
    pub(super) fate: watch::Sender<Fate>,
}

/// What is known of a cut besides its files.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct CutTaken {
    pub(in crate::runtime) user_bytes: Vec<u8>,
    pub(in crate::runtime) cut_at: WallClock,
    pub(in crate::runtime) held: Duration,
}

/// A snapshot of which something is still held.
pub(super) enum Held {
    Cut(Cut),
    Securing,
    Secured {
        files: BTreeMap<LocalName, Arc<SecuredFile>>,
        pack: Content,
    },
}

impl From<SecuredPack> for Content {
    fn from(pack: SecuredPack) -> Self {
        match pack {
            SecuredPack::Bytes(bytes) => Self::Bytes(bytes.into()),
            SecuredPack::File(file) => Self::File(Arc::new(file)),
        }
    }
}

impl Core {
    /// Whether another cut may be taken now.
    pub(in crate::runtime) fn check_cut(&self, user_bytes: usize) -> Result<(), Error> {
        self.check()?;
        if user_bytes > self.limits.user_bytes_max {
            let most = self.limits.user_bytes_max;
            let cause = format!("{user_bytes} bytes of the user's, at most {most} may be attached");
            return Err(self.about(Error::new(ErrorKind::Invalid, cause)));
        }
        if self.cut.is_some() {
            let cause = "a cut waits for its checkpoint already";
            return Err(self.blaming_store(Error::new(ErrorKind::Busy, cause)));
        }
        Ok(())
    }

    /// A cut was taken: it goes to the checkpoint that waits for one, or asks for a checkpoint.
    pub(in crate::runtime) fn cut_taken(
        &mut self,
        now: Timestamp,
        cut: Cut,
        taken: CutTaken,
        effects: &mut Vec<Effect>,
    ) -> Result<watch::Receiver<Fate>, Error> {
        if let Err(error) = self.check() {
            effects.push(Effect::Release(Box::new(cut)));
            return Err(error);
        }
        let fate = watch::Sender::new(None);
        let receiver = fate.subscribe();
        self.cut = Some(HeldCut {
            cut,
            taken,
            request: None,
            fate,
        });
        if self.wanted.is_empty() {
            self.ask_for_checkpoint();
        } else {
            self.serve(effects);
        }
        self.run(now, Input::Time, effects);
        if let Some(waiting) = &self.cut {
            effects.push(Effect::Settle(waiting.cut.settling()));
        }
        match &self.end {
            Some(error) => Err(error.clone()),
            None => Ok(receiver),
        }
    }

    /// A cut could not be taken: the checkpoint that waits for one is told.
    pub(in crate::runtime) fn cut_failed(
        &mut self,
        now: Timestamp,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(checkpoint) = self.wanted.pop_front() {
            self.tell_wanted();
            let event = subtask::Event::SnapshotFailed {
                checkpoint,
                failure,
            };
            self.run(now, Input::Subtask(event), effects);
        }
    }

    /// Asks for a checkpoint with the cut that waits, if it may be asked for and was not yet.
    pub(super) fn ask_for_checkpoint(&mut self) {
        let running = matches!(self.attachment, Attachment::Running(_));
        let asked = self.cut.as_ref().is_none_or(|cut| cut.request.is_some());
        if asked || !running || self.closing {
            return;
        }
        let request = self.request();
        if let Some(cut) = &mut self.cut {
            cut.request = Some(request);
        }
        let event = coordinator::Event::Trigger {
            request,
            kind: TriggerKind::Manual,
            now_or_never: false,
        };
        self.inbox.push_back(Input::Coordinator(event));
    }

    /// Gives the held cut to the oldest checkpoint that waits for one.
    pub(super) fn serve(&mut self, effects: &mut Vec<Effect>) {
        if self.wanted.is_empty() {
            return;
        }
        let Some(HeldCut {
            cut,
            taken,
            request,
            fate,
        }) = self.cut.take()
        else {
            return;
        };
        let Some(checkpoint) = self.wanted.pop_front() else {
            return;
        };
        self.tell_wanted();
        let mut files: Vec<LiveFile> = cut
            .files()
            .iter()
            .map(|file| LiveFile {
                local: file.name.clone(),
                kind: FileKind::State,
                size_bytes: file.size_bytes,
            })
            .collect();
        files.extend(LocalName::new(PACK_NAME).ok().map(|local| LiveFile {
            local,
            kind: FileKind::Pack,
            size_bytes: 0,
        }));
        files.sort_unstable();
        if let Some(under_way) = self.under_way.get_mut(&checkpoint) {
            under_way.state_bytes = files.iter().map(|file| file.size_bytes).sum();
            under_way.files = files.len();
            under_way.held = taken.held;
            under_way.fate = Some(fate);
        } else {
            let error = Error::new(ErrorKind::Aborted, "it was aborted before its cut");
            fate.send_replace(Some(Err(self.about(error).with_checkpoint(checkpoint))));
        }
        // The interval's checkpoint was there first: it takes the cut that was meant for another.
        let other = request.filter(|request| {
            self.under_way
                .get(&checkpoint)
                .is_none_or(|under_way| under_way.request != Some(*request))
        });
        if let Some(request) = other {
            let event = coordinator::Event::Cancel { request };
            self.inbox.push_back(Input::Coordinator(event));
        }
        effects.push(Effect::Report(ParticipantEvent::Cut {
            checkpoint,
            held: taken.held,
        }));
        let families = cut.families().to_vec();
        self.snapshots.insert(checkpoint, Held::Cut(cut));
        self.inbox
            .push_back(Input::Subtask(subtask::Event::SnapshotTaken {
                checkpoint,
                files,
                user_bytes: taken.user_bytes,
                families,
                cut_at: taken.cut_at,
            }));
    }

    /// Gives a checkpoint up.
    pub(in crate::runtime) fn cancel(
        &mut self,
        now: Timestamp,
        fate: &watch::Receiver<Fate>,
        effects: &mut Vec<Effect>,
    ) {
        let is_it = |sender: &watch::Sender<Fate>| sender.subscribe().same_channel(fate);
        let event = if self.cut.as_ref().is_some_and(|cut| is_it(&cut.fate)) {
            self.cut.take().and_then(|cut| {
                let error = Error::new(ErrorKind::Cancelled, "the caller gave it up");
                cut.fate.send_replace(Some(Err(self.about(error))));
                effects.push(Effect::Release(Box::new(cut.cut)));
                let request = cut.request?;
                Some(coordinator::Event::Cancel { request })
            })
        } else {
            // By its id: the interval may have asked for it.
            let mut under_way = self.under_way.iter();
            under_way
                .find(|(_, under_way)| under_way.fate.as_ref().is_some_and(is_it))
                .map(|(&checkpoint, _)| coordinator::Event::CancelCheckpoint { checkpoint })
        };
        if let Some(event) = event {
            self.run(now, Input::Coordinator(event), effects);
        }
    }

    pub(super) fn take_secured(
        &mut self,
        checkpoint: CheckpointId,
        secured: Result<Secured, Failure>,
        effects: &mut Vec<Effect>,
    ) -> Answer<Payload> {
        let secured = match secured {
            Ok(secured) => secured,
            Err(failure) => {
                self.snapshots.remove(&checkpoint);
                return Answer::Failed(failure);
            }
        };
        if let Some(under_way) = self.under_way.get_mut(&checkpoint) {
            under_way.state_bytes += secured.pack.size_bytes();
        }
        match self.snapshots.get_mut(&checkpoint) {
            Some(held) => {
                let files = secured.files.into_iter();
                *held = Held::Secured {
                    files: files
                        .map(|file| (file.name().clone(), Arc::new(file)))
                        .collect(),
                    pack: secured.pack.into(),
                };
            }
            // It was given up meanwhile: nothing is kept.
            None => effects.push(Effect::Release(Box::new(secured))),
        }
        Answer::Done(Payload::Nothing)
    }

    pub(super) fn content(
        &self,
        checkpoint: CheckpointId,
        local: &LocalName,
        kind: FileKind,
    ) -> Content {
        let Some(Held::Secured { files, pack }) = self.snapshots.get(&checkpoint) else {
            return Content::Gone;
        };
        match kind {
            FileKind::Pack => pack.clone(),
            FileKind::State => files
                .get(local)
                .cloned()
                .map_or(Content::Gone, Content::File),
        }
    }

    pub(super) fn release(
        &mut self,
        checkpoint: CheckpointId,
        local: &LocalName,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Held::Secured { files, pack }) = self.snapshots.get_mut(&checkpoint) else {
            return;
        };
        if local.as_str() == PACK_NAME {
            let pack = std::mem::replace(pack, Content::Gone);
            effects.push(Effect::Release(Box::new(pack)));
        } else if let Some(file) = files.remove(local) {
            effects.push(Effect::Release(Box::new(file)));
        }
    }

    /// An upload has ended: what it stored counts for its checkpoint.
    pub(in crate::runtime) fn uploaded(
        &mut self,
        now: Timestamp,
        to: FileName,
        checkpoint: CheckpointId,
        answer: Answer<Digest>,
        effects: &mut Vec<Effect>,
    ) {
        self.uploads.remove(&to);
        let under_way = self.under_way.get_mut(&checkpoint);
        match &answer {
            Answer::Done(digest) => {
                if let Some(under_way) = under_way {
                    under_way.uploaded_files += 1;
                    under_way.uploaded_bytes += digest.size_bytes;
                }
                effects.push(Effect::Report(ParticipantEvent::Uploaded {
                    checkpoint,
                    size_bytes: digest.size_bytes,
                }));
            }
            Answer::Failed(failure) | Answer::Unknown(failure) => {
                if let Some(under_way) = under_way {
                    under_way.trouble.get_or_insert((to, failure.clone()));
                }
            }
            Answer::Refused => {}
        }
        let event = subtask::Event::IoCompleted {
            token: OpToken::Upload(to),
            answer: answer.map(Payload::Stored),
        };
        self.run(now, Input::Subtask(event), effects);
    }

    pub(super) fn tell_wanted(&self) {
        if self.wanted.is_empty() {
            self.wanted_told.send_replace(None);
        }
    }

    /// A wanted checkpoint is ready for its cut: the user may be told.
    pub(in crate::runtime) fn prepared(&self, checkpoint: CheckpointId) {
        if self.wanted.contains(&checkpoint) {
            self.wanted_told.send_replace(Some(checkpoint));
        }
    }
}
