//! Carries out what the machines ask of a store.
//!
//! ```text
//! StoreCall ──> BlobStore, watched for a standstill ──> Answer<StorePayload>
//! ```
//!
//! The one place where a protocol's call becomes a store's. A call that makes no progress for the
//! deadline is given up and answered `Unknown`: its effect may still come.

use std::time::Duration;

use crate::protocol::answer::{Answer, Failure, FailureKind};
use crate::protocol::id::{MANIFEST_PREFIX, ObjectName, SHARED_PREFIX};
use crate::protocol::limits::Limits;
use crate::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use crate::storage::{BlobStore, Body, Call, Key, Page, Progress, Tagged};

/// Does one call and says what came of it.
pub(super) async fn execute(
    store: &dyn BlobStore,
    call: StoreCall,
    limits: &Limits,
    deadline: Duration,
) -> Answer<StorePayload> {
    match call {
        StoreCall::Read { token } => read(store, &token, limits, deadline).await,
        StoreCall::Put { name, body } => {
            let (key, progress) = (Key::from(name), Progress::default());
            let call = store.put(&key, Body::from(body), &progress);
            let answer = patiently(call, &progress, deadline).await;
            answer.map(|_| StorePayload::Nothing)
        }
        StoreCall::Create { body } => {
            let key = Key::from(ObjectName::Current);
            let answer = at_once(store.swap(&key, None, &body), deadline).await;
            answer.map(StorePayload::Swapped)
        }
        StoreCall::Swap { expected, body, .. } => {
            let key = Key::from(ObjectName::Current);
            let answer = at_once(store.swap(&key, Some(&expected), &body), deadline).await;
            answer.map(StorePayload::Swapped)
        }
        StoreCall::DeleteFile { name } => {
            let key = Key::from(name);
            let answer = at_once(store.delete(&key), deadline).await;
            answer.map(|()| StorePayload::Nothing)
        }
        StoreCall::DeleteManifest { name } => {
            let key = Key::from(name);
            let answer = at_once(store.delete(&key), deadline).await;
            answer.map(|()| StorePayload::Nothing)
        }
        StoreCall::List {
            listing,
            after,
            limit,
        } => {
            let call = whole(store.list(prefix(listing), after.as_deref(), limit));
            at_once(call, deadline)
                .await
                .map(|found| page(found, listing))
        }
    }
}

async fn read(
    store: &dyn BlobStore,
    token: &StoreToken,
    limits: &Limits,
    deadline: Duration,
) -> Answer<StorePayload> {
    match token {
        StoreToken::ReadCurrent | StoreToken::LookAtCurrent => {
            let key = Key::from(ObjectName::Current);
            let size_bytes_max = limits.current_bytes_max as u64;
            let answer = at_once(store.load(&key, size_bytes_max), deadline).await;
            answer.map(|Tagged { bytes, tag }| StorePayload::Content { bytes, tag })
        }
        StoreToken::ReadManifest(name) => {
            let key = Key::from(*name);
            let size_bytes_max = limits.manifest_object_bytes_max as u64;
            let answer = at_once(store.get(&key, size_bytes_max), deadline).await;
            // Manifest objects never change, so that their name says all that a tag would.
            let tag = crate::protocol::answer::Tag(key.to_string());
            answer.map(|bytes| StorePayload::Content { bytes, tag })
        }
        StoreToken::PutManifest(_)
        | StoreToken::Swap(_)
        | StoreToken::DeleteFile(_)
        | StoreToken::DeleteManifest(_)
        | StoreToken::List(_)
        | StoreToken::Create => unreachable!("{token:?} is not the token of a read"),
    }
}

pub(super) fn prefix(listing: Listing) -> &'static str {
    match listing {
        Listing::Shared => SHARED_PREFIX,
        Listing::Manifest => MANIFEST_PREFIX,
        Listing::Root => "",
    }
}

/// A call for a page in which nothing may be missing.
pub(super) fn whole(list: Call<'_, Page>) -> Call<'_, Page> {
    Box::pin(async move {
        match list.await {
            Answer::Done(page) => page.whole().map_or_else(Answer::Failed, Answer::Done),
            other @ (Answer::Refused | Answer::Failed(_) | Answer::Unknown(_)) => other,
        }
    })
}

/// A page of names. Whether a root holds objects is not told by what can be none: file systems and
/// their tools leave names like `.nfs0001` and `.DS_Store` in any directory.
fn page(mut page: Page, listing: Listing) -> StorePayload {
    let next = page.more.then(|| page.names.last().cloned()).flatten();
    match listing {
        Listing::Root => page.names.retain(|name| Key::new(name).is_ok()),
        Listing::Shared | Listing::Manifest => {}
    }
    StorePayload::Page {
        names: page.names,
        next,
    }
}

/// Waits for a small call, which shows no progress before it ends.
pub(super) async fn at_once<T>(call: Call<'_, T>, deadline: Duration) -> Answer<T> {
    tokio::time::timeout(deadline, call)
        .await
        .unwrap_or_else(|_| standstill(deadline))
}

/// Waits for a transfer for as long as it moves.
pub(super) async fn patiently<T>(
    mut call: Call<'_, T>,
    progress: &Progress,
    deadline: Duration,
) -> Answer<T> {
    loop {
        let before = progress.movement();
        match tokio::time::timeout(deadline, &mut call).await {
            Ok(answer) => return answer,
            Err(_) if progress.movement() == before => return standstill(deadline),
            Err(_) => {}
        }
    }
}

fn standstill<T>(deadline: Duration) -> Answer<T> {
    Answer::Unknown(Failure::new(
        FailureKind::Deadline,
        format!("no progress for {} ms", deadline.as_millis()),
    ))
}
