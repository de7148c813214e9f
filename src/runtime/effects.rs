//! Carries out what the machines ask for: each in a task of its own, answered exactly once.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{self, at_once, patiently};
use super::core::{Content, Effect, Input, Upload, Work};
use super::driver::Driver;
use super::progress::ParticipantEvent;
use crate::executor::spawn_blocking;
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind};
use crate::protocol::coordinator::Event;
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{CheckpointId, FileName, LocalName, ObjectName};
use crate::protocol::store::{StoreCall, StoreToken};
use crate::protocol::subtask::{Event as SubtaskEvent, OpToken, Payload};
use crate::state::Cut;
use crate::storage::{self, BLOCK_BYTES, Body, Digester, Key, Progress};

/// The buffers of one transfer: one piece being read, one being written.
pub(super) const TRANSFER_BUFFER_BYTES: usize = 2 * BLOCK_BYTES;

/// How long a cut that waits for its checkpoint keeps its state from deleting anything. After that
/// it has links of its own, of all its files: so many that a short wait is not worth them.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

/// The end of an upload.
pub(super) struct Uploaded {
    pub(super) to: FileName,
    pub(super) checkpoint: CheckpointId,
    pub(super) answer: Answer<Digest>,
}

pub(super) async fn perform(driver: Arc<Driver>, effect: Effect) {
    match effect {
        Effect::Store(call) => store(&driver, call).await,
        Effect::Secure(checkpoint, cut, files) => secure(&driver, checkpoint, cut, files).await,
        Effect::Settle(settling) => {
            tokio::time::sleep(SETTLE_AFTER).await;
            // What a panic of the backend leaves, securing the cut will tell.
            let _ = spawn_blocking(move || settling.settle()).await;
        }
        Effect::Upload(upload) => {
            let ended = self::upload(&driver, upload).await;
            driver.uploaded(ended);
        }
        Effect::Delete(name) => delete(&driver, name).await,
        Effect::Prepare(backend, checkpoint) => {
            // What a panic of the backend leaves, the cut will meet again.
            let _ = spawn_blocking(move || backend.prepare()).await;
            driver.prepared(checkpoint);
        }
        Effect::Stored(directory) => {
            let noted = spawn_blocking(move || directory.note_stored()).await;
            if let Ok(Err(failure)) = noted {
                tracing::warn!(%failure, "it was not noted that an adopted state is stored");
            }
        }
        Effect::Release(held) => drop(held),
        Effect::Report(_) => {}
    }
}

async fn store(driver: &Arc<Driver>, call: StoreCall) {
    let around = &driver.around;
    let token = call.token();
    let (work, name) = about(&token);
    let deleted = match &call {
        StoreCall::DeleteFile { name } => Some(*name),
        StoreCall::Read { .. }
        | StoreCall::Put { .. }
        | StoreCall::Create { .. }
        | StoreCall::Swap { .. }
        | StoreCall::DeleteManifest { .. }
        | StoreCall::List { .. } => None,
    };
    let _permit = match deleted {
        Some(_) => Some(around.budget.delete().await),
        None => None,
    };
    around.budget.admit().await;
    let limits = &around.config.checkpoints.limits;
    let deadline = around.config.progress_deadline;
    let answer = calls::execute(&*around.store, call, limits, deadline).await;
    driver.store_answered(work, name, &answer);
    if let (StoreToken::ReadCurrent | StoreToken::LookAtCurrent, Answer::Failed(failure)) =
        (&token, &answer)
        && failure.kind == FailureKind::NotFound
    {
        driver.current_is_gone(failure);
    }
    if let (Some(file), Answer::Done(_)) = (deleted, &answer) {
        driver.report(ParticipantEvent::Deleted {
            file: file.to_string(),
        });
    }
    driver.step(Input::Coordinator(Event::IoCompleted { token, answer }));
}

/// What a call works at, and which object it is about.
fn about(token: &StoreToken) -> (Work, String) {
    match token {
        StoreToken::ReadCurrent | StoreToken::LookAtCurrent => {
            (Work::Read, ObjectName::Current.to_string())
        }
        StoreToken::ReadManifest(name) => (Work::Read, name.to_string()),
        StoreToken::List(listing) => (Work::Read, calls::prefix(*listing).to_owned()),
        StoreToken::PutManifest(name) => (Work::Commit, name.to_string()),
        StoreToken::Swap(_) | StoreToken::Create => (Work::Commit, ObjectName::Current.to_string()),
        StoreToken::DeleteFile(name) => (Work::Delete, name.to_string()),
        StoreToken::DeleteManifest(name) => (Work::Delete, name.to_string()),
    }
}

async fn secure(driver: &Arc<Driver>, checkpoint: CheckpointId, cut: Cut, files: Vec<LocalName>) {
    let secured = spawn_blocking(move || cut.secure(&files)).await;
    let secured = secured.unwrap_or_else(|error| {
        let cause = format!("the state backend failed: {error}");
        Err(Failure::new(FailureKind::Other, cause))
    });
    driver.step(Input::Secured(checkpoint, secured));
}

async fn delete(driver: &Arc<Driver>, name: FileName) {
    let around = &driver.around;
    let _permit = around.budget.delete().await;
    around.budget.admit().await;
    let key = Key::from(name);
    let answer = at_once(around.store.delete(&key), around.config.progress_deadline).await;
    driver.store_answered(Work::Delete, name, &answer);
    driver.io_completed(SubtaskEvent::IoCompleted {
        token: OpToken::Delete(name),
        answer: answer.map(|()| Payload::Nothing),
    });
}

async fn upload(driver: &Arc<Driver>, upload: Upload) -> Uploaded {
    let Upload {
        to,
        checkpoint,
        local,
        kind,
        content,
        cancelled,
    } = upload;
    let answer = tokio::select! {
        answer = put(driver, to, &content) => answer,
        _ = cancelled => {
            Answer::Unknown(Failure::new(FailureKind::Cancelled, "the upload was given up"))
        }
    };
    driver.store_answered(Work::Upload, to, &answer);
    if let (Answer::Done(digest), FileKind::State, Content::File(file)) = (&answer, kind, &content)
    {
        let description = FileDescription {
            name: to,
            local,
            kind,
            digest: *digest,
        };
        mark(driver, description, Arc::clone(file)).await;
    }
    // The file on its way may be held for its snapshot no more: its link goes where it may block.
    drop(spawn_blocking(move || drop(content)));
    Uploaded {
        to,
        checkpoint,
        answer,
    }
}

async fn put(driver: &Arc<Driver>, to: FileName, content: &Content) -> Answer<Digest> {
    let around = &driver.around;
    let Some(body) = body(content) else {
        let cause = format!("{to}: its snapshot was released before it was stored");
        return Answer::Failed(Failure::new(FailureKind::NotFound, cause));
    };
    let buffer_bytes = match &body {
        Body::Bytes(bytes) => bytes.len(),
        Body::File { .. } | Body::Stream(_) => TRANSFER_BUFFER_BYTES,
    };
    let _permit = around.budget.transfer(buffer_bytes).await;
    around.budget.admit().await;
    let (key, progress) = (Key::from(to), Progress::default());
    let deadline = around.config.progress_deadline;
    let answer = patiently(around.store.put(&key, body, &progress), &progress, deadline).await;
    match answer {
        Answer::Refused => compare(driver, &key, content).await,
        Answer::Done(_) | Answer::Failed(_) | Answer::Unknown(_) => answer,
    }
}

/// The name is taken, and only this attempt can write under it: an earlier try has done it, if
/// what is there is what was to be stored.
async fn compare(driver: &Arc<Driver>, key: &Key, content: &Content) -> Answer<Digest> {
    let around = &driver.around;
    let Some(wanted) = body(content) else {
        return Answer::Refused;
    };
    // One of another length is not read: it may be any size.
    match at_once(around.store.size(key), around.config.progress_deadline).await {
        Answer::Done(size_bytes) if size_bytes == wanted.size_bytes() => {}
        Answer::Done(_) | Answer::Refused => return Answer::Refused,
        Answer::Failed(failure) => return Answer::Failed(failure),
        Answer::Unknown(failure) => return Answer::Unknown(failure),
    }
    let progress = Progress::default();
    let stored = Box::pin(storage::digest(&*around.store, key, &progress));
    let stored = match patiently(stored, &progress, around.config.progress_deadline).await {
        Answer::Done(stored) => stored,
        other @ (Answer::Refused | Answer::Failed(_) | Answer::Unknown(_)) => return other,
    };
    let local = match wanted.into_reader().await {
        Answer::Done(reader) => reader,
        Answer::Refused => return Answer::Refused,
        Answer::Failed(failure) => return Answer::Failed(failure),
        Answer::Unknown(failure) => return Answer::Unknown(failure),
    };
    match digest(local).await {
        Ok(local) if local == stored => Answer::Done(stored),
        Ok(_) => Answer::Refused,
        Err(failure) => Answer::Failed(failure),
    }
}

async fn digest(mut reader: storage::Reader) -> Result<Digest, Failure> {
    let mut digester = Digester::new();
    while let Some(chunk) = reader.next().await? {
        digester.update(&chunk);
    }
    Ok(digester.digest())
}

fn body(content: &Content) -> Option<Body> {
    match content {
        Content::File(file) => Some(Body::File {
            path: file.path().to_owned(),
            size_bytes: file.size_bytes(),
        }),
        Content::Bytes(bytes) => Some(Body::Bytes(Arc::clone(bytes))),
        Content::Gone => None,
    }
}

/// Notes in the state's directory which stored file a local one is, so that a restart need not
/// fetch it. Losing the note costs that and nothing else.
async fn mark(
    driver: &Arc<Driver>,
    description: FileDescription,
    file: Arc<crate::state::SecuredFile>,
) {
    let (Some(directory), Some(root)) = (
        driver.directory(),
        driver.with_manifest(|manifest| manifest.root()),
    ) else {
        return;
    };
    let marked = spawn_blocking(move || directory.mark(root, &description, file.path()));
    if let Ok(Err(failure)) = marked.await {
        tracing::debug!(%failure, "a stored file was not marked");
    }
}
