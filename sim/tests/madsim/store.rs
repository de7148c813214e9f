//! A store on a node of its own, and how processes reach it: over a network that loses and delays.
//!
//! ```text
//! Remote (in a process) ──Request──> server ──maybe refuses, maybe late──> a model
//!        └── waits, for ever ──<──Answer──┘ maybe lost
//! ```
//!
//! A put goes in pieces, each of which is progress; so does what is read. Nobody asks again by
//! himself: a message that is lost is silence, and what becomes of a call then is the library's to
//! decide.
//!
//! The objects outlive the node that serves them; pieces that are on their way do not.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use madsim::net::{Endpoint, Payload};
use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, Chunks, Digester, Key, NextChunk, OpenStore, Opening, Page, Progress,
    Reader, Tagged,
};

use crate::world::{Planted, Struck, World, millis_below, now, one_in};

/// Where the store's node listens.
pub const ADDRESS: &str = "10.0.0.1:1";
/// How a call is answered that the store has not carried out, or may have.
type Fail = fn(Failure, bool) -> Payload;
type Served = Pin<Box<dyn Future<Output = (Payload, &'static str)> + Send>>;
type CarryOut = Box<dyn FnOnce(Server) -> Served + Send + Sync>;

/// Its number among the processes, whose own begin at one.
pub const NODE: u32 = 0;
const REQUESTS: u64 = 0;
const PIECE_BYTES: usize = 200;
/// Longer than a call is waited for.
const LATE_MS: u64 = 6000;

/// What the store's node does for one caller.
struct Request {
    number: u64,
    process: u32,
    what: &'static str,
    name: String,
    carry_out: CarryOut,
    fail: Fail,
}

/// A node of the store, and the pieces of objects that are on their way to it.
#[derive(Clone)]
pub struct Server {
    pub world: Arc<World>,
    pieces: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
}

impl Server {
    /// For a node that is being started.
    pub async fn start(world: Arc<World>) -> Self {
        for forgotten in world.take_stored().iter().rev().take(3) {
            if world.is(Planted::ForgetsAtRestart) {
                world.objects.delete(forgotten).await;
            }
        }
        Self {
            world,
            pieces: Arc::default(),
        }
    }

    /// Serves until the node dies.
    pub async fn serve(self) {
        let endpoint = loop {
            match Endpoint::bind(ADDRESS).await {
                Ok(endpoint) => break Arc::new(endpoint),
                Err(_) => madsim::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.world.note("store: serves");
        while let Ok((payload, from)) = endpoint.recv_from_raw(REQUESTS).await {
            if let Ok(request) = payload.downcast::<Request>() {
                let answering = self.clone().answer(*request, Arc::clone(&endpoint), from);
                drop(madsim::task::spawn(answering));
            }
        }
    }

    async fn answer(self, request: Request, endpoint: Arc<Endpoint>, from: SocketAddr) {
        let Request {
            number,
            process,
            what,
            name,
            carry_out,
            fail,
        } = request;
        let world = Arc::clone(&self.world);
        let (faulty, profile) = (world.is_faulty(), world.profile);
        let begun = now();
        if matches!(what, "piece" | "put" | "swap") && faulty && one_in(profile.ambushed_one_in) {
            world.ambush.notify_one();
        }
        if faulty && profile.slow && one_in(10) {
            madsim::time::sleep(millis_below(LATE_MS)).await;
        }
        let failure = |kind| Failure::new(kind, "the store is in trouble");
        let (payload, outcome) = if faulty && profile.refusals && one_in(10) {
            world.struck(Struck::RequestRefused);
            (fail(failure(FailureKind::Unavailable), true), "refused to")
        } else {
            let _between_steps = world.at(NODE, "step");
            carry_out(self).await
        };
        if now() - begun > Duration::from_secs(2) {
            world.struck(Struck::LandedLate);
        }
        let mut told = true;
        let mut payload = payload;
        if faulty && profile.lost_answers && one_in(12) {
            world.struck(Struck::AnswerLost);
            told = false;
        } else if faulty && profile.lost_answers && one_in(20) {
            world.struck(Struck::AnswerUnknown);
            payload = fail(failure(FailureKind::Unavailable), false);
        }
        world.note(format_args!(
            "store: {what} {name} of process {process}, call {number}: {outcome}, told {told}"
        ));
        if told {
            // A message is sent, and arrives or doesn't.
            let _ = endpoint.send_to_raw(from, number, payload).await;
        }
    }

    fn take_pieces(&self, upload: u64) -> Option<Vec<u8>> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.remove(&upload)
    }

    fn add_piece(&self, upload: u64, piece: &[u8]) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.entry(upload).or_default().extend_from_slice(piece);
    }
}

/// The store as a process knows it. Opened once for each repository.
#[derive(Clone)]
pub struct Remote {
    pub world: Arc<World>,
    pub process: u32,
}

impl OpenStore for Remote {
    fn open_store(&self) -> Opening<'_> {
        let (world, process) = (Arc::clone(&self.world), self.process);
        Box::pin(async move {
            let endpoint = loop {
                match Endpoint::bind("0.0.0.0:0").await {
                    Ok(endpoint) => break endpoint,
                    Err(_) => madsim::time::sleep(Duration::from_millis(10)).await,
                }
            };
            Ok(Arc::new(Connected {
                world,
                process,
                endpoint,
            }) as Arc<dyn BlobStore>)
        })
    }
}

#[derive(Clone)]
struct Connected {
    world: Arc<World>,
    process: u32,
    endpoint: Endpoint,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of process {}", self.process)
    }
}

fn fail<T: Send + Sync + 'static>(failure: Failure, certainly: bool) -> Payload {
    Box::new(if certainly {
        Answer::<T>::Failed(failure)
    } else {
        Answer::<T>::Unknown(failure)
    })
}

fn outcome<T>(answer: &Answer<T>) -> &'static str {
    match answer {
        Answer::Done(_) => "done",
        Answer::Refused => "refused",
        Answer::Failed(failure) if failure.kind == FailureKind::NotFound => "not found",
        Answer::Failed(_) => "failed",
        Answer::Unknown(_) => "unknown",
    }
}

impl Connected {
    /// Has the store's node do this, and waits for the answer, which may never come.
    async fn ask<T, F>(
        &self,
        what: &'static str,
        name: &str,
        carry_out: impl FnOnce(Server) -> F + Send + Sync + 'static,
    ) -> Answer<T>
    where
        T: Send + Sync + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let number = self.world.next_call();
        let process = self.process;
        if self.world.must_be_silent(process, name) {
            let broken = format!("process {process}: {what} {name} after it was closed");
            self.world.broken(broken);
        }
        let request = Request {
            number,
            process,
            what,
            name: name.to_owned(),
            carry_out: Box::new(move |server| {
                let done = carry_out(server);
                Box::pin(async move {
                    let answer = done.await;
                    let outcome = outcome(&answer);
                    (Box::new(answer) as Payload, outcome)
                })
            }),
            fail: fail::<T>,
        };
        let Ok(address) = ADDRESS.parse() else {
            unreachable!("{ADDRESS} is an address");
        };
        let sent = self
            .endpoint
            .send_to_raw(address, REQUESTS, Box::new(request));
        let answer = match sent.await {
            Ok(()) => self.endpoint.recv_from_raw(number).await,
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok((payload, _)) => *payload
                .downcast::<Answer<T>>()
                .unwrap_or_else(|_| unreachable!("call {number} is answered as it was asked")),
            Err(error) => {
                Answer::Unknown(Failure::new(FailureKind::Unavailable, error.to_string()))
            }
        };
        self.world.note(format_args!(
            "process {process}: {what} {name}, call {number}: {}",
            outcome(&answer)
        ));
        answer
    }

    async fn put_in_pieces(&self, key: &Key, body: Body, progress: &Progress) -> Answer<Digest> {
        let _uploading = self.world.at(self.process, "upload");
        let reader = match body.into_reader().await {
            Answer::Done(mut reader) => reader.read_to_end().await,
            Answer::Refused => return Answer::Refused,
            Answer::Failed(failure) | Answer::Unknown(failure) => Err(failure),
        };
        let content = match reader {
            Ok(content) => content,
            Err(failure) => return Answer::Failed(failure),
        };
        let upload = self.world.next_call();
        for piece in content.chunks(PIECE_BYTES) {
            let (sent, piece) = (piece.len(), piece.to_vec());
            let taken = self.ask("piece", key.as_str(), move |server| async move {
                server.add_piece(upload, &piece);
                Answer::Done(())
            });
            match taken.await {
                Answer::Done(()) => progress.add(sent as u64),
                Answer::Refused => return Answer::Refused,
                Answer::Failed(failure) => return Answer::Failed(failure),
                Answer::Unknown(failure) => return Answer::Unknown(failure),
            }
        }
        let (name, size_bytes) = (key.clone(), content.len());
        self.ask("put", key.as_str(), move |server| async move {
            let content = server.take_pieces(upload).unwrap_or_default();
            if content.len() != size_bytes {
                let cause = "its pieces went down with the store's node";
                return Answer::Failed(Failure::new(FailureKind::Unavailable, cause));
            }
            if server.world.is(Planted::PutsNothing) && name.as_str().contains("/shared/") {
                return Answer::Done(Digester::of(&content));
            }
            let put = server
                .world
                .objects
                .put(&name, content.into(), &Progress::default())
                .await;
            if matches!(put, Answer::Done(_)) && name.as_str().contains("/shared/") {
                server.world.stored(&name);
            }
            put
        })
        .await
    }
}

impl BlobStore for Connected {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        Box::pin(self.put_in_pieces(key, body, progress))
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        let name = key.clone();
        Box::pin(self.ask("size", key.as_str(), move |server| async move {
            server.world.objects.size(&name).await
        }))
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        let name = key.clone();
        Box::pin(self.ask("get", key.as_str(), move |server| async move {
            server.world.objects.get(&name, size_bytes_max).await
        }))
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        Box::pin(async move {
            self.size(key).await.map(|size_bytes| {
                let range = range.unwrap_or(0..size_bytes);
                let chunks = Pieces {
                    store: self.clone(),
                    key: key.clone(),
                    left: range.clone(),
                };
                Reader::new(range.end.saturating_sub(range.start), chunks)
            })
        })
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        let name = key.clone();
        Box::pin(self.ask("load", key.as_str(), move |server| async move {
            server.world.objects.load(&name, size_bytes_max).await
        }))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        let (name, expected, content) = (key.clone(), expected.cloned(), content.to_vec());
        Box::pin(async move {
            let _swapping = self.world.at(self.process, "swap");
            if self.world.is(Planted::TakesSwapsForDone) && self.world.is_faulty() && one_in(10) {
                return Answer::Done(Tag("sent by nobody".to_owned()));
            }
            self.ask("swap", key.as_str(), move |server| async move {
                let mut expected = expected;
                if server.world.is(Planted::SwapsAnything)
                    && let Answer::Done(now) = server.world.objects.load(&name, u64::MAX).await
                {
                    expected = Some(now.tag);
                }
                server
                    .world
                    .objects
                    .swap(&name, expected.as_ref(), &content)
                    .await
            })
            .await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        let (wanted, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(self.ask("list", prefix, move |server| async move {
            let objects = &server.world.objects;
            objects.list(&wanted, after.as_deref(), limit).await
        }))
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        let name = key.clone();
        Box::pin(self.ask("delete", key.as_str(), move |server| async move {
            if server.world.is(Planted::DeletesNothing) {
                return Answer::Done(());
            }
            server.world.objects.delete(&name).await
        }))
    }
}

/// What is read of an object, each piece asked for by itself.
struct Pieces {
    store: Connected,
    key: Key,
    left: Range<u64>,
}

impl Chunks for Pieces {
    fn next(&mut self) -> NextChunk<'_> {
        Box::pin(async move {
            if self.left.is_empty() {
                return Ok(None);
            }
            let end = self.left.end.min(self.left.start + PIECE_BYTES as u64);
            let (name, range) = (self.key.clone(), self.left.start..end);
            let _reading = self.store.world.at(self.store.process, "restore");
            let read = self
                .store
                .ask("read", self.key.as_str(), move |server| async move {
                    match server.world.objects.stream(&name, Some(range)).await {
                        Answer::Done(mut reader) => match reader.read_to_end().await {
                            Ok(bytes) => Answer::Done(bytes),
                            Err(failure) => Answer::Failed(failure),
                        },
                        Answer::Refused => Answer::Refused,
                        Answer::Failed(failure) => Answer::Failed(failure),
                        Answer::Unknown(failure) => Answer::Unknown(failure),
                    }
                });
            match read.await {
                Answer::Done(bytes) => {
                    self.left.start = end;
                    Ok(Some(bytes))
                }
                Answer::Refused => Err(Failure::new(FailureKind::Other, "refused to be read")),
                Answer::Failed(failure) | Answer::Unknown(failure) => Err(failure),
            }
        })
    }
}
