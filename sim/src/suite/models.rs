//! The simulator's two stores behind the trait that production uses.
//!
//! ```text
//!  BlobStore call -> Request -> step, yield, step, yield, ... -> Response -> answer
//!                                     └ dropped here: the caller died, the rest never happens
//! ```
//!
//! The models know state files by [`ContentId`] alone; their bytes are kept beside them, one id for
//! each put. Between two steps others run, and a call that is dropped there has done the steps
//! before and none after. Names are those of the protocol.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::protocol::id::{Epoch, ManifestName, Nonce, ObjectName, Version};
use stillpoint::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};
use stillpoint::storage::{
    BlobStore, Body, Call, Digester, Key, OpenStore, Opening, Page, Reader, Tagged,
};

use crate::choice::Choices;
use crate::faults::Struck;
use crate::lsm::ContentId;
use crate::profile::Profile;
use crate::store::directory::DirectoryStore;
use crate::store::object::ObjectStore;
use crate::store::{Progress, Request, Response, StepContext, Store};

/// One of the models, without faults of its own. Clones share it.
#[derive(Clone, Debug)]
pub struct ModelStore(Arc<Mutex<Model>>);

#[derive(Debug)]
struct Model {
    store: Store,
    contents: Vec<Arc<[u8]>>,
    profile: Profile,
    choices: Choices,
}

impl ModelStore {
    /// The object store.
    #[must_use]
    pub fn object() -> Self {
        Self::new(Store::Object(ObjectStore::default()))
    }

    /// The directory.
    #[must_use]
    pub fn directory() -> Self {
        Self::new(Store::Directory(DirectoryStore::default()))
    }

    fn new(store: Store) -> Self {
        Self(Arc::new(Mutex::new(Model {
            store,
            contents: Vec::new(),
            profile: Profile::benign(),
            choices: Choices::replayed(&[]),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Step after step, others in between.
    async fn carry_out(&self, request: Request) -> Response {
        let mut steps = Steps {
            model: self,
            progress: Progress::default(),
        };
        loop {
            if let Some(response) = self.lock().step(&request, &mut steps.progress) {
                return response;
            }
            yielded().await;
        }
    }

    async fn call(&self, call: StoreCall) -> Answer<StorePayload> {
        match self.carry_out(Request::Call(call)).await {
            Response::Call { answer, .. } => answer,
            other
            @ (Response::Upload { .. } | Response::Delete { .. } | Response::Fetch { .. }) => {
                panic!("a call was answered with {other:?}")
            }
        }
    }

    /// An object's bytes and, but for state files, its tag.
    async fn read(&self, key: &Key) -> Answer<(Arc<[u8]>, Option<Tag>)> {
        let token = match named(key) {
            Err(failure) => return Answer::Failed(failure),
            Ok(ObjectName::Current) => StoreToken::ReadCurrent,
            Ok(ObjectName::Manifest(name)) => StoreToken::ReadManifest(name),
            Ok(ObjectName::Shared(name)) => {
                return match self.carry_out(Request::Fetch { name }).await {
                    Response::Fetch { answer, .. } => answer.map(|fetched| {
                        let content = fetched.content.map(|content| content.0 as usize);
                        let bytes = content.and_then(|at| self.lock().contents.get(at).cloned());
                        (bytes.unwrap_or_default(), None)
                    }),
                    other @ (Response::Call { .. }
                    | Response::Upload { .. }
                    | Response::Delete { .. }) => panic!("a fetch was answered with {other:?}"),
                };
            }
        };
        self.call(StoreCall::Read { token })
            .await
            .map(|payload| match payload {
                StorePayload::Content { bytes, tag } => (bytes.into(), Some(tag)),
                other @ (StorePayload::Nothing
                | StorePayload::Swapped(_)
                | StorePayload::Page { .. }) => panic!("a read was answered with {other:?}"),
            })
    }

    /// The same of an object that is no longer than allowed.
    async fn read_small(&self, key: &Key, size_bytes_max: u64) -> Answer<(Arc<[u8]>, Option<Tag>)> {
        match self.read(key).await {
            Answer::Done((bytes, _)) if bytes.len() as u64 > size_bytes_max => {
                let cause = format!("{key} has {} bytes", bytes.len());
                Answer::Failed(Failure::new(FailureKind::TooLarge, cause))
            }
            answer @ (Answer::Done(_)
            | Answer::Refused
            | Answer::Failed(_)
            | Answer::Unknown(_)) => answer,
        }
    }

    async fn store(&self, key: &Key, bytes: Vec<u8>) -> Answer<()> {
        match named(key) {
            Err(failure) => Answer::Failed(failure),
            Ok(ObjectName::Current) => self
                .call(StoreCall::Create { body: bytes })
                .await
                .map(|_| ()),
            Ok(ObjectName::Manifest(name)) => self
                .call(StoreCall::Put { name, body: bytes })
                .await
                .map(|_| ()),
            Ok(ObjectName::Shared(name)) => {
                let content = {
                    let mut model = self.lock();
                    model.contents.push(bytes.into());
                    let number = model.contents.len() - 1;
                    ContentId(u32::try_from(number).unwrap_or(u32::MAX))
                };
                match self.carry_out(Request::Upload { name, content }).await {
                    Response::Upload { answer, .. } => answer.map(|_| ()),
                    other @ (Response::Call { .. }
                    | Response::Delete { .. }
                    | Response::Fetch { .. }) => panic!("an upload was answered with {other:?}"),
                }
            }
        }
    }
}

impl Model {
    fn step(&mut self, request: &Request, progress: &mut Progress) -> Option<Response> {
        let mut context = StepContext {
            now: 0,
            choices: &mut self.choices,
            profile: &self.profile,
            healed: true,
            damages: false,
            effects: &mut Vec::new(),
            struck: &mut Struck::default(),
        };
        self.store.step(request, progress, &mut context)
    }
}

/// A request under way. What is left of it when its caller dies is the model's to say.
struct Steps<'a> {
    model: &'a ModelStore,
    progress: Progress,
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.model.lock().store.abandon(&self.progress);
    }
}

async fn yielded() {
    let mut again = false;
    poll_fn(|context| {
        if again {
            return Poll::Ready(());
        }
        again = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn named(key: &Key) -> Result<ObjectName, Failure> {
    ObjectName::parse(key.as_str()).ok_or_else(|| {
        let cause = format!("{key} is no name of the protocol");
        Failure::new(FailureKind::Unsupported, cause)
    })
}

impl BlobStore for ModelStore {
    fn put<'a>(
        &'a self,
        key: &'a Key,
        body: Body,
        progress: &'a stillpoint::storage::Progress,
    ) -> Call<'a, Digest> {
        Box::pin(async move {
            let bytes = match body.into_reader().await {
                Answer::Done(mut reader) => match reader.read_to_end().await {
                    Ok(bytes) => bytes,
                    Err(failure) => return Answer::Failed(failure),
                },
                Answer::Refused => return Answer::Refused,
                Answer::Failed(failure) => return Answer::Failed(failure),
                Answer::Unknown(failure) => return Answer::Unknown(failure),
            };
            progress.add(bytes.len() as u64);
            let digest = Digester::of(&bytes);
            self.store(key, bytes).await.map(|()| digest)
        })
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        Box::pin(async move { self.read(key).await.map(|(bytes, _)| bytes.len() as u64) })
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        Box::pin(async move {
            let read = self.read_small(key, size_bytes_max).await;
            read.map(|(bytes, _)| bytes.to_vec())
        })
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        Box::pin(async move {
            let bytes = match self.read(key).await {
                Answer::Done((bytes, _)) => bytes,
                Answer::Refused => return Answer::Refused,
                Answer::Failed(failure) => return Answer::Failed(failure),
                Answer::Unknown(failure) => return Answer::Unknown(failure),
            };
            let range = range.unwrap_or(0..bytes.len() as u64);
            let part = usize::try_from(range.start)
                .ok()
                .zip(usize::try_from(range.end).ok())
                .and_then(|(from, to)| bytes.get(from..to));
            match part {
                Some(part) => Answer::Done(Reader::from_bytes(part.to_vec())),
                None => {
                    let cause = format!("{key} has {} bytes, not {range:?}", bytes.len());
                    Answer::Failed(Failure::new(FailureKind::Corrupt, cause))
                }
            }
        })
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        Box::pin(async move {
            let read = self.read_small(key, size_bytes_max).await;
            read.map(|(bytes, tag)| Tagged {
                bytes: bytes.to_vec(),
                tag: tag.unwrap_or(Tag(String::new())),
            })
        })
    }

    fn swap<'a>(
        &'a self,
        _key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        Box::pin(async move {
            let body = content.to_vec();
            let call = match expected.cloned() {
                None => StoreCall::Create { body },
                // The model does not look at the name of the commit.
                Some(expected) => StoreCall::Swap {
                    name: ManifestName {
                        version: Version(1),
                        epoch: Epoch(1),
                        nonce: Nonce(1),
                    },
                    expected,
                    body,
                },
            };
            self.call(call).await.map(|payload| match payload {
                StorePayload::Swapped(tag) => tag,
                other @ (StorePayload::Nothing
                | StorePayload::Content { .. }
                | StorePayload::Page { .. }) => panic!("a swap was answered with {other:?}"),
            })
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(async move {
            let listing = match prefix {
                "shared/" => Listing::Shared,
                "manifest/" => Listing::Manifest,
                _ => Listing::Root,
            };
            let mut page = Page::default();
            let mut after = after.map(ToOwned::to_owned);
            // The model lists its folders and no other prefixes: what else is there is passed over.
            loop {
                let call = StoreCall::List {
                    listing,
                    after: after.clone(),
                    limit: limit.max(1),
                };
                let (names, next) = match self.call(call).await {
                    Answer::Done(StorePayload::Page { names, next }) => (names, next),
                    Answer::Done(other) => panic!("a listing was answered with {other:?}"),
                    Answer::Refused => return Answer::Refused,
                    Answer::Failed(failure) => return Answer::Failed(failure),
                    Answer::Unknown(failure) => return Answer::Unknown(failure),
                };
                for name in names.into_iter().filter(|name| name.starts_with(prefix)) {
                    if page.names.len() == limit.max(1) {
                        page.more = true;
                        return Answer::Done(page);
                    }
                    page.names.push(name);
                }
                match next {
                    None => return Answer::Done(page),
                    Some(next) => after = Some(next),
                }
            }
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        Box::pin(async move {
            match named(key) {
                Err(failure) => Answer::Failed(failure),
                // The model has no such call, since the protocol never makes it.
                Ok(ObjectName::Current) => match self.read(key).await {
                    Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                        Answer::Done(())
                    }
                    Answer::Done(_) | Answer::Refused | Answer::Failed(_) | Answer::Unknown(_) => {
                        Answer::Failed(Failure::new(
                            FailureKind::Unsupported,
                            "CURRENT is never deleted",
                        ))
                    }
                },
                Ok(ObjectName::Manifest(name)) => self
                    .call(StoreCall::DeleteManifest { name })
                    .await
                    .map(|_| ()),
                Ok(ObjectName::Shared(name)) => {
                    self.carry_out(Request::Delete { name }).await;
                    Answer::Done(())
                }
            }
        })
    }
}

impl OpenStore for ModelStore {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn BlobStore>) })
    }
}
