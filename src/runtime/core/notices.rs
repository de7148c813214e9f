//! What the coordinator tells, and what becomes of each checkpoint.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::cuts::{Fate, HeldCut};
use super::{Attachment, Core, Effect, Input, Restorable, SUBTASK, Standing, Work};
use crate::error::{Error, ErrorKind, Phase};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::coordinator::{self, AbortReason, RefusalReason};
use crate::protocol::id::{AttemptId, CheckpointId, Epoch, FileName, RequestId, SubtaskId};
use crate::protocol::manifest::{LoadWarning, Manifest};
use crate::protocol::subtask::{self, Subtask, SubtaskConfig};
use crate::runtime::progress::{CheckpointReport, ParticipantEvent};
use crate::runtime::{end, load};

/// A checkpoint under way.
pub(super) struct UnderWay {
    pub(super) started: Instant,
    pub(super) periodic: bool,
    pub(super) fate: Option<watch::Sender<Fate>>,
    pub(super) held: Duration,
    pub(super) state_bytes: u64,
    pub(super) files: usize,
    pub(super) uploaded_files: usize,
    pub(super) uploaded_bytes: u64,
    pub(super) request: Option<RequestId>,
    /// What first went wrong with an upload for it.
    pub(super) trouble: Option<Trouble>,
}

/// An upload that did not go well. It is tried again, so that it may be the reason of a time-out.
pub(super) type Trouble = (FileName, Failure);

impl Core {
    pub(super) fn told_by_coordinator(
        &mut self,
        notice: coordinator::Notice,
        effects: &mut Vec<Effect>,
    ) {
        use coordinator::Notice;
        match notice {
            Notice::Leading { epoch } => self.leading(epoch),
            Notice::Deployed {
                request,
                attempts,
                restore,
            } => self.deployed(request, &attempts, restore, effects),
            Notice::Triggered {
                request,
                checkpoint,
            } => self.triggered(request, checkpoint, effects),
            Notice::Completed { checkpoint } => self.completed(checkpoint, effects),
            Notice::Aborted { checkpoint, reason } => {
                self.aborted(checkpoint, self.about(end::aborted(&reason)), effects);
            }
            Notice::Subsumed { checkpoint } => {
                effects.push(Effect::Report(ParticipantEvent::Subsumed { checkpoint }));
            }
            Notice::InDoubt {
                checkpoints,
                failure,
            } => self.in_doubt(checkpoints, failure, effects),
            // The end follows, and says why to whoever waits.
            Notice::Refused {
                reason: RefusalReason::NotLeading | RefusalReason::Closing,
                ..
            } => {}
            Notice::Refused { request, reason } => {
                let error = self.blaming_store(end::refused(reason));
                self.refused(request, error, effects);
            }
            Notice::Done { request: _ } => {}
            Notice::TooManyFailures {
                failures,
                checkpoint,
                first,
            } => self.too_many_failures(failures, checkpoint, &first, effects),
            Notice::Unparsable { names } => self.unparsable(names, effects),
            Notice::Warned { warning } => self.warned(&warning, effects),
            Notice::StoreTrouble { error } => {
                self.store_failed(self.now, Work::Read, load::error(error), effects);
            }
            Notice::CommitFailed { failure } | Notice::SnapshotFailed { failure } => {
                self.store_failed(self.now, Work::Commit, Error::from(failure), effects);
            }
            // A request can only be the deployment: whoever attaches is told of the end, which
            // follows. Whether its attempt is named makes no difference to anybody then.
            Notice::Unknown {
                checkpoints,
                requests: _,
                broken,
            } => {
                let error = self.about(end::unknown(broken));
                for checkpoint in checkpoints {
                    self.aborted(checkpoint, error.clone(), effects);
                }
            }
            Notice::Deposed { by } => self.finish(end::fenced(by), effects),
            Notice::Failed { error } => self.finish(end::failed(error), effects),
            Notice::Closed => {
                self.resigned = self.end.is_none();
                self.finish(end::closed(), effects);
            }
        }
    }

    fn leading(&mut self, epoch: Epoch) {
        tracing::info!(participant = %self.participant, %epoch, "leading");
        self.remember_restorable();
        self.standing.send_replace(Standing::Leading);
    }

    fn in_doubt(
        &self,
        checkpoints: Vec<CheckpointId>,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) {
        let error = self
            .about(Error::from(failure))
            .with_phase(Phase::Checkpoint);
        tracing::warn!(%error, "a commit is in doubt and goes on being repeated");
        effects.push(Effect::Report(ParticipantEvent::InDoubt {
            checkpoints,
            error,
        }));
    }

    fn too_many_failures(
        &mut self,
        failures: u32,
        checkpoint: Option<CheckpointId>,
        first: &AbortReason,
        effects: &mut Vec<Effect>,
    ) {
        let trouble = checkpoint.and_then(|checkpoint| self.trouble_of(checkpoint));
        let mut error = self
            .about(end::expired_for(end::aborted(first), trouble))
            .with_phase(Phase::Checkpoint);
        if let Some(checkpoint) = checkpoint {
            error = error.with_checkpoint(checkpoint);
        }
        self.first_trouble = None;
        tracing::warn!(failures, %error, "more checkpoints failed than are tolerated");
        effects.push(Effect::Report(ParticipantEvent::TooManyFailures {
            failures,
            error,
        }));
    }

    fn unparsable(&self, names: Vec<String>, effects: &mut Vec<Effect>) {
        tracing::warn!(participant = %self.participant, ?names, "objects of unknown origin");
        effects.push(Effect::Report(ParticipantEvent::Unparsable { names }));
    }

    fn warned(&self, warning: &LoadWarning, effects: &mut Vec<Effect>) {
        tracing::warn!(participant = %self.participant, %warning, "the manifest is damaged in part");
        effects.push(Effect::Report(ParticipantEvent::Warned {
            warning: warning.to_string(),
        }));
    }

    pub(super) fn remember_restorable(&mut self) {
        let manifest = self.coordinator.view().manifest;
        let checkpoint = manifest.and_then(Manifest::restore_point);
        self.tell_restorable(checkpoint);
    }

    /// Tells that a source need not give again what lies before this checkpoint.
    pub(super) fn tell_restorable(&mut self, checkpoint: Option<CheckpointId>) {
        let manifest = self.coordinator.view().manifest;
        let restorable = manifest.zip(checkpoint).and_then(|(manifest, checkpoint)| {
            let user_bytes = manifest.checkpoint(checkpoint)?.subtasks.get(&SUBTASK)?;
            Some(Restorable {
                checkpoint,
                user_bytes: user_bytes.clone(),
            })
        });
        self.restorable.send_replace(restorable);
    }

    pub(super) fn deployed(
        &mut self,
        request: RequestId,
        attempts: &[(SubtaskId, AttemptId)],
        restore: Option<CheckpointId>,
        effects: &mut Vec<Effect>,
    ) {
        let taken = match std::mem::replace(&mut self.attachment, Attachment::None) {
            Attachment::Deploying(waiting, taken) if waiting == request => taken,
            other @ (Attachment::None | Attachment::Deploying(..) | Attachment::Running(_)) => {
                self.attachment = other;
                return;
            }
        };
        let attempt = attempts
            .iter()
            .find_map(|(subtask, attempt)| (*subtask == SUBTASK).then_some(*attempt));
        let restored = taken.as_ref().map(|taken| taken.checkpoint);
        let (Some(attempt), true) = (attempt, restored == restore) else {
            let cause = format!("{restored:?} was restored, {restore:?} was to be");
            self.finish(Error::new(ErrorKind::Internal, cause), effects);
            return;
        };
        let view = self.coordinator.view();
        let Some(manifest) = view.manifest else {
            return;
        };
        let config = SubtaskConfig {
            subtask: SUBTASK,
            attempt,
            epoch: manifest.epoch(),
            root: manifest.root(),
            limits: self.limits.clone(),
        };
        let restored = taken.map(|taken| (taken.checkpoint, taken.files));
        self.subtask = Some(Subtask::new(self.now, config, restored));
        self.attachment = Attachment::Running(attempt);
        self.remember_restorable();
        let event = coordinator::Event::Running { attempt };
        self.inbox.push_back(Input::Coordinator(event));
        // A cut may have been taken before the attempt was named.
        self.ask_for_checkpoint();
    }

    pub(super) fn triggered(
        &mut self,
        request: Option<RequestId>,
        checkpoint: CheckpointId,
        effects: &mut Vec<Effect>,
    ) {
        let periodic = request.is_none();
        self.under_way.insert(
            checkpoint,
            UnderWay {
                started: Instant::now(),
                periodic,
                fate: None,
                held: Duration::ZERO,
                state_bytes: 0,
                files: 0,
                uploaded_files: 0,
                uploaded_bytes: 0,
                request,
                trouble: None,
            },
        );
        effects.push(Effect::Report(ParticipantEvent::Triggered {
            checkpoint,
            periodic,
        }));
    }

    /// What kept a checkpoint from completing in time, for all that is known.
    fn trouble_of(&self, checkpoint: CheckpointId) -> Option<&Trouble> {
        match self.under_way.get(&checkpoint) {
            Some(under_way) => under_way.trouble.as_ref(),
            None => {
                let (of, trouble) = self.first_trouble.as_ref()?;
                (*of == checkpoint).then_some(trouble)
            }
        }
    }

    pub(super) fn completed(&mut self, checkpoint: CheckpointId, effects: &mut Vec<Effect>) {
        self.remember_restorable();
        self.first_trouble = None;
        if let Some(directory) = &self.directory
            && directory.is_adopted()
        {
            effects.push(Effect::Stored(Arc::clone(directory)));
        }
        let Some(under_way) = self.under_way.remove(&checkpoint) else {
            return;
        };
        let report = CheckpointReport {
            checkpoint,
            periodic: under_way.periodic,
            duration: under_way.started.elapsed(),
            held: under_way.held,
            state_bytes: under_way.state_bytes,
            files: under_way.files,
            uploaded_files: under_way.uploaded_files,
            uploaded_bytes: under_way.uploaded_bytes,
            reused_files: under_way.files.saturating_sub(under_way.uploaded_files),
        };
        tracing::info!(
            participant = %self.participant,
            %checkpoint,
            uploaded_bytes = report.uploaded_bytes,
            state_bytes = report.state_bytes,
            "completed"
        );
        if let Some(fate) = under_way.fate {
            fate.send_replace(Some(Ok(report.clone())));
        }
        effects.push(Effect::Report(ParticipantEvent::Completed(report)));
    }

    pub(super) fn aborted(
        &mut self,
        checkpoint: CheckpointId,
        error: Error,
        effects: &mut Vec<Effect>,
    ) {
        let Some(under_way) = self.under_way.remove(&checkpoint) else {
            return;
        };
        let error = self
            .blaming_store(end::expired_for(error, under_way.trouble.as_ref()))
            .with_checkpoint(checkpoint)
            .with_phase(Phase::Checkpoint);
        if let (ErrorKind::Deadline, None, Some(trouble)) =
            (error.kind(), &self.first_trouble, under_way.trouble)
        {
            self.first_trouble = Some((checkpoint, trouble));
        }
        if self.wanted.contains(&checkpoint) {
            // The subtask waits for the cut: none will come.
            self.wanted.retain(|wanted| *wanted != checkpoint);
            self.tell_wanted();
            let failure = Failure::new(FailureKind::Cancelled, "aborted before its cut");
            let event = subtask::Event::SnapshotFailed {
                checkpoint,
                failure,
            };
            self.inbox.push_back(Input::Subtask(event));
        }
        // The subtask may have declined without ever asking for the cut, which waits for this one.
        let is_its =
            |cut: &HeldCut| under_way.request.is_some() && cut.request == under_way.request;
        if self.cut.as_ref().is_some_and(is_its)
            && let Some(cut) = self.cut.take()
        {
            cut.fate.send_replace(Some(Err(error.clone())));
            effects.push(Effect::Release(Box::new(cut.cut)));
        }
        tracing::info!(%error, "aborted");
        if let Some(fate) = under_way.fate {
            fate.send_replace(Some(Err(error.clone())));
        }
        effects.push(Effect::Report(ParticipantEvent::Aborted {
            checkpoint,
            error,
        }));
    }

    pub(super) fn refused(&mut self, request: RequestId, error: Error, effects: &mut Vec<Effect>) {
        if matches!(&self.attachment, Attachment::Deploying(waiting, _) if *waiting == request) {
            if self.closing {
                // It was closed before its attempt was named: that is no failure to attach.
                self.attachment = Attachment::None;
                return;
            }
            self.finish(error.with_phase(Phase::Attach), effects);
            return;
        }
        let is_it = |cut: &HeldCut| cut.request == Some(request);
        if self.cut.as_ref().is_some_and(is_it)
            && let Some(cut) = self.cut.take()
        {
            cut.fate
                .send_replace(Some(Err(error.with_phase(Phase::Checkpoint))));
            effects.push(Effect::Release(Box::new(cut.cut)));
        }
    }
}
