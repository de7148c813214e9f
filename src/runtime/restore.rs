//! Makes a local directory equal to a checkpoint.
//!
//! ```text
//! plan ──> keep what a mark speaks for ──> remove the rest ──> fetch what is missing, in parallel,
//!      the pack with it ──> check the pack ──> everything synced ──> unpack it, its last file last
//! ```
//!
//! What was fetched is marked at once, so that a restore that was broken off goes on where it was.
//! After a failure, when the deadline is over and when the caller is gone, nothing more begins and every transfer is awaited
//! before anything else happens to the directory. One that has stood still for too long is not awaited: its thread may
//! hang in the file system, which nothing can end. It gives its file no name any more once it comes back, unless it was
//! in that very step; a file that gets its name so late is one of this checkpoint, whole and checked, and the next
//! restore keeps or removes it as any other.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::calls::patiently;
use super::core::SUBTASK;
use super::driver::Surroundings;
use super::effects::TRANSFER_BUFFER_BYTES;
use super::end;
use super::progress::RestoreProgress;
use super::side_by_side::side_by_side;
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::executor;
use crate::protocol::answer::{Answer, Digest, Failure, FailureKind};
use crate::protocol::file::{FileDescription, FileKind};
use crate::protocol::id::{CheckpointId, Epoch, FileName, LocalName, RootId};
use crate::protocol::manifest::Manifest;
use crate::protocol::restore::{FileMark, PresentFile, RestorePlan};
use crate::state::pack::PackError;
use crate::state::{DirectoryError, Existing, Owner, StateDirectory, is_own};
use crate::storage::{Body, Digester, Key};

/// What a restore takes, and how far it trusts what is there.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::RestoreOptions;
///
/// let options = RestoreOptions::new().fallback(1).verify_kept_files().deadline(Duration::from_secs(600));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct RestoreOptions {
    pub(super) from: From,
    pub(super) verify_kept: bool,
    pub(super) existing: Existing,
    pub(super) deadline: Option<Duration>,
    pub(super) progress: RestoreProgress,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    Newest,
    Fallback(usize),
    Checkpoint(CheckpointId),
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl RestoreOptions {
    /// The newest checkpoint; local files that are known to be right are kept.
    pub fn new() -> Self {
        Self {
            from: From::Newest,
            verify_kept: false,
            existing: Existing::Refused,
            deadline: None,
            progress: RestoreProgress::default(),
        }
    }

    /// Takes the `n`-th older retained checkpoint of the line; 0 is the newest.
    pub fn fallback(mut self, n: usize) -> Self {
        self.from = From::Fallback(n);
        self
    }

    /// Takes this retained checkpoint.
    pub fn checkpoint(mut self, checkpoint: CheckpointId) -> Self {
        self.from = From::Checkpoint(checkpoint);
        self
    }

    /// Reads in full, and checks, the local files that are kept.
    pub fn verify_kept_files(mut self) -> Self {
        self.verify_kept = true;
        self
    }

    /// Takes the directory even if it belongs to another participant or repository, if its mark can't
    /// be understood, or if it holds what is in no checkpoint, and removes what is there. Without this
    /// it is refused. One that has no mark of this library is refused all the same.
    pub fn replace_foreign_state(mut self) -> Self {
        self.existing = Existing::Replaced;
        self
    }

    /// Takes over the closed database that lies in the directory if the participant has no checkpoint
    /// yet: it stays as it is, to be opened and attached, and the directory belongs to the library
    /// once it is. Without this, such a directory is refused. Once there is a checkpoint, this
    /// changes nothing. It takes back [`replace_foreign_state`](Self::replace_foreign_state).
    ///
    /// Refused, by name, is whatever lies beside the database and is no file of RocksDB's: a later
    /// restore would remove it.
    ///
    /// What is written to the database before its first checkpoint is complete stays in it if the
    /// process dies. So take that checkpoint before anything is written.
    ///
    /// A state that is attached after an empty start, and that holds something by then, counts as
    /// adopted as well: the next start needs this, until a checkpoint is complete.
    pub fn adopt_existing(mut self) -> Self {
        self.existing = Existing::Adopted;
        self
    }

    /// Gives up after this time: nothing more is begun, and what is being fetched is awaited. What
    /// was fetched by then stays for the next try of a [`Claim`](super::Claim), and for that of a
    /// guest if the directory held state before.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Reports how far the restore has come.
    pub fn progress(mut self, progress: RestoreProgress) -> Self {
        self.progress = progress;
        self
    }
}

/// What a restore did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Files that were there already.
    pub kept_files: usize,
    /// Files that were fetched, the pack included.
    pub fetched_files: usize,
    /// The length of the files that were fetched.
    pub fetched_bytes: u64,
    /// How often the directory's notes on its own files could not be read in full, so that files
    /// were fetched although they may have been there. A process that was killed may leave such notes.
    pub lost_marks: usize,
}

/// A checkpoint's files, and the root that they are in.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) root: RootId,
    pub(super) checkpoint: CheckpointId,
    pub(super) files: Vec<FileDescription>,
    /// The epoch in which the last checkpoint was completed.
    pub(super) completed_in: Epoch,
}

/// How long a directory that is in use is waited for: a holder of this process that was dropped
/// lets go of its state, and closes it, beside everything else.
const LETTING_GO: Duration = Duration::from_secs(1);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Takes a directory for a restore of the owner's state. What is another's is refused: somebody mixed
/// up two directories, or two repositories.
pub(super) async fn take(
    path: PathBuf,
    owner: &Owner,
    options: &RestoreOptions,
) -> Result<Arc<StateDirectory>> {
    let end = tokio::time::Instant::now() + LETTING_GO;
    let existing = options.existing;
    loop {
        let (path, owner) = (path.clone(), owner.clone());
        let taken = blocking(move || Ok(StateDirectory::take(&path, &owner, existing))).await?;
        let is_in_use = matches!(taken, Err(DirectoryError::InUse { .. }));
        if !is_in_use || tokio::time::Instant::now() >= end {
            return taken.map(Arc::new).map_err(refused);
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

pub(super) fn refused(error: DirectoryError) -> Error {
    let kind = match &error {
        DirectoryError::Foreign { .. }
        | DirectoryError::Unexplained { .. }
        | DirectoryError::Mixed { .. }
        | DirectoryError::Repository { .. }
        | DirectoryError::Inside { .. }
        | DirectoryError::UnreadableMark { .. }
        | DirectoryError::NotADirectory { .. } => ErrorKind::Invalid,
        DirectoryError::AnotherOwner { .. } => ErrorKind::Incompatible,
        DirectoryError::InUse { .. } => ErrorKind::Busy,
        // Of a place: none can be made there, or it holds a name that no state has. That says
        // nothing of what is stored.
        DirectoryError::Failed(failure)
            if matches!(failure.kind, FailureKind::NotFound | FailureKind::Corrupt) =>
        {
            ErrorKind::Invalid
        }
        // With its own words: the kind's name is said by the error itself.
        DirectoryError::Failed(failure) => return failure.clone().into(),
    };
    Error::new(kind, error.to_string()).with_source(error)
}

/// Makes the directory hold no state at all, which a first start begins with, or the one that is to
/// be adopted.
pub(super) async fn begin_anew(directory: Arc<StateDirectory>) -> Result<()> {
    let begun = blocking(move || Ok(directory.begin_anew())).await?;
    begun.map(drop).map_err(refused)
}

/// Refuses a directory that holds what may be the only copy.
async fn check(directory: &Arc<StateDirectory>, wanted: &Wanted) -> Result<()> {
    let (directory, wanted) = (Arc::clone(directory), wanted.clone());
    let check = move || {
        let Wanted { root, files, .. } = wanted;
        Ok(directory.check_replaceable_by(wanted.completed_in, root, &files))
    };
    blocking(check).await?.map_err(refused)
}

/// The epoch in which the last of the completed checkpoints was completed: each claim begins one.
pub(super) fn completed_in(manifest: &Manifest) -> Epoch {
    let since = u64::from(manifest.claims_since_completion());
    Epoch(manifest.epoch().0.saturating_sub(since))
}

/// What becomes of a directory that could not be filled.
#[derive(PartialEq, Eq)]
pub(super) enum Unfilled {
    /// It stays as it is, for the next try.
    Kept,
    /// One that was empty or absent is so again; one that held state before stays for the next try.
    Discarded,
}

/// Makes the directory equal to the checkpoint, in a task of its own: a caller that is dropped gives
/// the restore up, and the directory stays locked until nothing is at it any more; what was fetched is
/// kept for the next try.
pub(super) async fn fill(
    around: &Surroundings,
    directory: Arc<StateDirectory>,
    wanted: &Wanted,
    options: &RestoreOptions,
    unfilled: Unfilled,
) -> Result<RestoreReport> {
    let giving_up = watch::Sender::new(false);
    let _gives_up = GiveUp(giving_up.clone());
    let runtime = around.runtime.clone();
    let (around, wanted, options) = (around.clone(), wanted.clone(), options.clone());
    let filling = runtime.spawn(async move {
        let filled = fill_in_time(&around, &directory, &wanted, &options, giving_up).await;
        (filled, directory)
    });
    let (filled, directory) = filling.await.map_err(|error| {
        if error.is_cancelled() {
            end::without_runtime()
        } else {
            Error::new(ErrorKind::Internal, format!("the restore failed: {error}"))
        }
    })?;
    if filled.is_err() && unfilled == Unfilled::Discarded {
        discard(directory).await;
    }
    filled
}

/// Gives a restore up when its caller is dropped. After its end nobody listens.
struct GiveUp(watch::Sender<bool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

async fn discard(directory: Arc<StateDirectory>) {
    let in_use = || {
        Failure::new(
            FailureKind::Other,
            "something of the restore is still at it",
        )
    };
    let discarded = blocking(move || {
        let alone = Arc::into_inner(directory).ok_or_else(in_use)?;
        alone.discard()
    });
    if let Err(error) = discarded.await {
        tracing::warn!(%error, "a half-filled directory was left");
    }
}

async fn fill_in_time(
    around: &Surroundings,
    directory: &Arc<StateDirectory>,
    wanted: &Wanted,
    options: &RestoreOptions,
    giving_up: watch::Sender<bool>,
) -> Result<RestoreReport> {
    let filling = fill_now(around, directory, wanted, options, &giving_up);
    let filled = match options.deadline {
        None => filling.await,
        Some(deadline) => {
            let mut filling = pin!(filling);
            match tokio::time::timeout(deadline, &mut filling).await {
                Ok(filled) => filled,
                Err(_) => {
                    giving_up.send_replace(true);
                    filling.await.map_err(|error| {
                        let cause = format!("not restored within {} ms", deadline.as_millis());
                        Error::new(ErrorKind::Deadline, cause).with_source(error)
                    })
                }
            }
        }
    };
    filled.map_err(|error| {
        error
            .with_phase(Phase::Restore)
            .with_checkpoint(wanted.checkpoint)
    })
}

async fn fill_now(
    around: &Surroundings,
    directory: &Arc<StateDirectory>,
    wanted: &Wanted,
    options: &RestoreOptions,
    giving_up: &watch::Sender<bool>,
) -> Result<RestoreReport> {
    check(directory, wanted).await?;
    let mut present = present(directory, wanted.root).await?;
    if options.verify_kept {
        distrust(directory, &mut present, giving_up).await;
    }
    go_on(giving_up)?;
    // What the manifest says comes from outside: it may not reach for this library's own files.
    if let Some(file) = wanted.files.iter().find(|file| is_own(&file.local)) {
        let cause = format!("{} is a name of this library's own", file.local);
        return Err(Error::new(ErrorKind::Corrupt, cause).with_file(file.name));
    }
    let plan = RestorePlan::new(wanted.checkpoint, SUBTASK, &wanted.files, &present)
        .map_err(|damage| Error::new(ErrorKind::Corrupt, damage.to_string()).with_source(damage))?;
    let report = RestoreReport {
        kept_files: plan.keep.len(),
        fetched_files: plan.fetch.len() + usize::from(plan.pack.is_some()),
        fetched_bytes: plan.fetch_bytes(),
        lost_marks: directory.lost_marks(),
    };
    options.progress.expect(plan.fetch_bytes());
    let kept: BTreeSet<_> = plan.keep.iter().map(|file| file.local.clone()).collect();
    let fetched: Vec<_> = plan.fetch.into_iter().chain(plan.pack.clone()).collect();
    {
        let (directory, fetched) = (Arc::clone(directory), fetched.clone());
        blocking(move || directory.begin(&kept, fetched.iter())).await?;
    }
    fetch_all(
        around,
        directory,
        wanted.root,
        &fetched,
        &options.progress,
        giving_up,
    )
    .await?;
    go_on(giving_up)?;
    let pack = match &plan.pack {
        Some(pack) => {
            let directory = Arc::clone(directory);
            let opened = blocking(move || Ok(directory.open_pack())).await?;
            Some(opened.map_err(|error| bad_pack(error, pack.name))?)
        }
        None => None,
    };
    go_on(giving_up)?;
    let directory = Arc::clone(directory);
    blocking(move || {
        let placed = plan.keep.iter().chain(&fetched);
        directory.finish(placed.map(|file| &file.local), pack)
    })
    .await?;
    Ok(report)
}

/// A pack that was fetched whole and can't be understood is damage of the stored file.
fn bad_pack(error: PackError, pack: FileName) -> Error {
    match error {
        PackError::Unreadable(failure) => failure.into(),
        damage @ (PackError::Frame(_)
        | PackError::Length { .. }
        | PackError::Name(_)
        | PackError::Own { .. }
        | PackError::Twice { .. }) => Error::from(Failure::from(damage)).with_file(pack),
    }
}

/// The local files that marks speak for. What else is there, the directory removes by itself.
async fn present(directory: &Arc<StateDirectory>, root: RootId) -> Result<Vec<PresentFile>> {
    let directory = Arc::clone(directory);
    let marked = blocking(move || Ok(directory.marked())).await?;
    let of_root = marked.into_iter().filter(|file| file.root == root);
    Ok(of_root
        .map(|file| PresentFile {
            local: file.local,
            mark: Some(FileMark {
                name: file.name,
                digest: file.digest,
            }),
        })
        .collect())
}

fn go_on(giving_up: &watch::Sender<bool>) -> Result<()> {
    if *giving_up.borrow() {
        return Err(given_up());
    }
    Ok(())
}

fn given_up() -> Error {
    Error::new(ErrorKind::Cancelled, "the restore was given up")
}

/// Waits for something, but no longer than the restore goes on. Not for what changes the directory.
async fn unless<T>(giving_up: &watch::Sender<bool>, work: impl Future<Output = T>) -> Result<T> {
    let mut told = giving_up.subscribe();
    tokio::select! {
        biased;
        _ = told.wait_for(|giving_up| *giving_up) => Err(given_up()),
        done = work => Ok(done),
    }
}

/// Reads the files in full: a mark that does not say what is there is none.
async fn distrust(
    directory: &StateDirectory,
    present: &mut [PresentFile],
    giving_up: &watch::Sender<bool>,
) {
    let place = |local: &LocalName| directory.path().join(local.as_str());
    for file in present {
        if *giving_up.borrow() {
            return;
        }
        if let Some(mark) = file.mark
            && local_digest(place(&file.local), mark.digest.size_bytes).await != Ok(mark.digest)
        {
            tracing::warn!(file = %file.local, "a local file is not what it was: it is fetched again");
            file.mark = None;
        }
    }
}

async fn local_digest(path: PathBuf, size_bytes: u64) -> std::result::Result<Digest, Failure> {
    let body = Body::File { path, size_bytes };
    let mut reader = match body.into_reader().await {
        Answer::Done(reader) => reader,
        Answer::Refused => return Err(Failure::new(FailureKind::Other, "refused")),
        Answer::Failed(failure) | Answer::Unknown(failure) => return Err(failure),
    };
    let mut digester = Digester::new();
    while let Some(chunk) = reader.next().await? {
        digester.update(&chunk);
    }
    Ok(digester.digest())
}

/// Fetches files in parallel, as many at once as the repository's permits allow.
async fn fetch_all(
    around: &Surroundings,
    directory: &Arc<StateDirectory>,
    root: RootId,
    files: &[FileDescription],
    progress: &RestoreProgress,
    giving_up: &watch::Sender<bool>,
) -> Result<()> {
    let mut first = Ok(());
    let fetches = files.iter().cloned().map(|file| {
        let (around, directory) = (around.clone(), Arc::clone(directory));
        let (progress, giving_up) = (progress.clone(), giving_up.clone());
        async move {
            fetch(&around, &directory, root, &file, &progress, &giving_up)
                .await
                .map_err(|error| error.with_file(file.name))
        }
    });
    // No more tasks than can have a permit.
    side_by_side(around.config.transfers_max, fetches, |fetched| {
        if fetched.is_ok() {
            return ControlFlow::Continue(());
        }
        // The others end what they are at, and begin nothing more.
        giving_up.send_replace(true);
        if first.is_ok() {
            first = fetched;
        }
        ControlFlow::Break(())
    })
    .await;
    first
}

async fn fetch(
    around: &Surroundings,
    directory: &Arc<StateDirectory>,
    root: RootId,
    file: &FileDescription,
    progress: &RestoreProgress,
    giving_up: &watch::Sender<bool>,
) -> Result<()> {
    let target = directory.place(file);
    let key = Key::from(file.name);
    let deadline = around.config.progress_deadline;
    let mut tries = Tries::default();
    loop {
        let admitted = async {
            let permit = around.budget.transfer(TRANSFER_BUFFER_BYTES).await;
            around.budget.admit().await;
            permit
        };
        let permit = unless(giving_up, admitted).await?;
        let moved = progress.one_more();
        let call = around.store.fetch(&key, &target, file.digest, &moved);
        let answer = patiently(call, &moved, deadline).await;
        drop(permit);
        let failure = match answer {
            Answer::Done(()) => break,
            // An earlier try that was given up has come to its end after all.
            Answer::Refused
                if local_digest(target.clone(), file.digest.size_bytes).await
                    == Ok(file.digest) =>
            {
                break;
            }
            Answer::Refused => {
                let (directory, file) = (Arc::clone(directory), file.clone());
                blocking(move || directory.remove(&file)).await?;
                Failure::new(
                    FailureKind::Corrupt,
                    "a file of that name came up meanwhile",
                )
            }
            Answer::Failed(failure) | Answer::Unknown(failure) => failure,
        };
        unless(giving_up, again(around, failure, &mut tries)).await??;
    }
    // A pack is unpacked and gone.
    if file.kind == FileKind::Pack {
        return Ok(());
    }
    let (directory, file) = (Arc::clone(directory), file.clone());
    let marked = blocking(move || directory.mark(root, &file, &target)).await;
    if let Err(error) = marked {
        tracing::debug!(%error, "a fetched file was not marked");
    }
    Ok(())
}

/// How often something was tried in vain. Damage counts by itself: one read may be damaged on its
/// way, whatever failed before it.
#[derive(Default)]
pub(super) struct Tries {
    failed: u32,
    damaged: u32,
}

impl Tries {
    fn one_more(&mut self, failure: &Failure) -> u32 {
        let count = if failure.kind == FailureKind::Corrupt {
            &mut self.damaged
        } else {
            &mut self.failed
        };
        *count += 1;
        *count
    }
}

/// Waits before the next try, or gives up. What looks damaged is tried again as well.
pub(super) async fn again(
    around: &Surroundings,
    failure: Failure,
    tries: &mut Tries,
) -> Result<()> {
    let retried = failure.kind.is_retryable() || failure.kind == FailureKind::Corrupt;
    let count = tries.one_more(&failure);
    if !retried || count >= around.config.restore_tries_max {
        return Err(failure.into());
    }
    tracing::debug!(%failure, count, "trying again");
    around.budget.failed();
    tokio::time::sleep(around.config.checkpoints.limits.retry_delay_after(count)).await;
    Ok(())
}

/// Runs something that blocks, off the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, Failure> + Send + 'static,
) -> Result<T> {
    match executor::spawn_blocking(work).await {
        Ok(result) => result.map_err(Error::from),
        Err(error) => Err(Error::new(ErrorKind::Internal, error.to_string())),
    }
}

/// A checkpoint's object was not found. Whether that is damage is told by reading the manifest
/// again.
pub(super) fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && error.file().is_some()
}
