//! Stores that are broken on purpose, each of which the suite must find.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::protocol::answer::{Answer, Digest, Tag};
use stillpoint::storage::{
    BlobStore, Body, Call, Digester, Key, Memory, OpenStore, Opening, Page, Progress, Reader,
    Tagged,
};
use stillpoint_sim::suite::{SEEDS, store};

/// What is wrong with a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Defect {
    /// One put in ten is acknowledged and not stored.
    LostWrite,
    /// A put replaces what is there.
    Overwrite,
    /// The second page of a listing is passed over.
    MissedPage,
    /// A range ends one byte too early, or begins one too early.
    RangeOffByOne,
    /// A swap replaces whatever is there.
    SwapIgnoresTag,
    /// A put whose caller dies in the middle leaves half of the body.
    TornPut,
    /// A delete of what is absent is refused.
    DeleteRefusesAbsent,
    /// A listing shows what was deleted.
    ListShowsDeleted,
    /// What was written is forgotten when the store is opened anew.
    ForgottenAtOpening,
    /// All tags are the same.
    OneTag,
    /// The digest is that of something else.
    WrongDigest,
    /// A size is that of the object before.
    WrongSize,
}

const DEFECTS: [Defect; 12] = [
    Defect::LostWrite,
    Defect::Overwrite,
    Defect::MissedPage,
    Defect::RangeOffByOne,
    Defect::SwapIgnoresTag,
    Defect::TornPut,
    Defect::DeleteRefusesAbsent,
    Defect::ListShowsDeleted,
    Defect::ForgottenAtOpening,
    Defect::OneTag,
    Defect::WrongDigest,
    Defect::WrongSize,
];

#[derive(Clone, Debug)]
struct Defective {
    defect: Option<Defect>,
    store: Memory,
    puts: Arc<AtomicU64>,
    deleted: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Defective {
    fn new(defect: Option<Defect>) -> Self {
        Self {
            defect,
            store: Memory::new(),
            puts: Arc::default(),
            deleted: Arc::default(),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

async fn bytes_of(body: Body) -> Vec<u8> {
    match body.into_reader().await {
        Answer::Done(mut reader) => reader.read_to_end().await.unwrap(),
        other @ (Answer::Refused | Answer::Failed(_) | Answer::Unknown(_)) => panic!("{other:?}"),
    }
}

impl BlobStore for Defective {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        Box::pin(async move {
            let put = self.puts.fetch_add(1, Ordering::Relaxed);
            if self.has(Defect::LostWrite) && put % 10 == 9 {
                return Answer::Done(Digester::of(&bytes_of(body).await));
            }
            if self.has(Defect::Overwrite) {
                self.store.delete(key).await;
            }
            if self.has(Defect::TornPut) {
                let bytes = bytes_of(body).await;
                let half = bytes[..bytes.len() / 2].to_vec();
                let digest = match self.store.put(key, half.into(), progress).await {
                    Answer::Done(_) => Digester::of(&bytes),
                    other @ (Answer::Refused | Answer::Failed(_) | Answer::Unknown(_)) => {
                        return other;
                    }
                };
                tokio::task::yield_now().await;
                self.store.delete(key).await;
                let put = self.store.put(key, bytes.into(), progress).await;
                return put.map(|_| digest);
            }
            let answer = self.store.put(key, body, progress).await;
            answer.map(|mut digest| {
                digest.checksum.0 ^= u64::from(self.has(Defect::WrongDigest));
                digest
            })
        })
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        Box::pin(async move {
            let size = self.store.size(key).await;
            size.map(|size| size + u64::from(self.has(Defect::WrongSize)))
        })
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        self.store.get(key, size_bytes_max)
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        let range = range.map(|range| {
            let off = self.has(Defect::RangeOffByOne) && !range.is_empty();
            range.start..range.end - u64::from(off)
        });
        self.store.stream(key, range)
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        Box::pin(async move {
            let loaded = self.store.load(key, size_bytes_max).await;
            loaded.map(|mut found| {
                if self.has(Defect::OneTag) {
                    found.tag = Tag("the".to_owned());
                }
                found
            })
        })
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        Box::pin(async move {
            let mut expected = expected.cloned();
            if (self.has(Defect::SwapIgnoresTag) || self.has(Defect::OneTag))
                && let Answer::Done(found) = self.store.load(key, u64::MAX).await
            {
                expected = expected.map(|_| found.tag);
            }
            let tag = self.store.swap(key, expected.as_ref(), content).await;
            tag.map(|tag| match self.has(Defect::OneTag) {
                true => Tag("the".to_owned()),
                false => tag,
            })
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(async move {
            let page = self.store.list(prefix, after, limit).await;
            if self.has(Defect::MissedPage)
                && after.is_some()
                && let Answer::Done(Page {
                    names, more: true, ..
                }) = &page
            {
                let last = names.last().map(String::as_str);
                return self.store.list(prefix, last, limit).await;
            }
            let deleted = self.deleted.lock().unwrap().clone();
            page.map(|mut page| {
                if self.has(Defect::ListShowsDeleted) && after.is_none() && !page.more {
                    page.names.extend(deleted);
                    page.names.retain(|name| name.starts_with(prefix));
                    page.names.sort();
                    page.names.dedup();
                    page.names.truncate(limit);
                }
                page
            })
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        Box::pin(async move {
            let is_there = matches!(self.store.size(key).await, Answer::Done(_));
            if self.has(Defect::DeleteRefusesAbsent) && !is_there {
                return Answer::Refused;
            }
            self.deleted.lock().unwrap().push(key.to_string());
            self.store.delete(key).await
        })
    }
}

impl OpenStore for Defective {
    fn open_store(&self) -> Opening<'_> {
        Box::pin(async move {
            let mut opened = self.clone();
            if self.has(Defect::ForgottenAtOpening) {
                opened.store = Memory::new();
            }
            Ok(Arc::new(opened) as Arc<dyn BlobStore>)
        })
    }
}

#[tokio::test]
async fn every_planted_defect_is_found() {
    for defect in DEFECTS {
        let broken = store::check(|| Defective::new(Some(defect)), SEEDS).await;
        let broken = broken.map_err(|broken| broken.to_string());
        let what = broken.expect_err(&format!("{defect:?} was not found"));
        for part in [
            "seed ",
            "step ",
            "STILLPOINT_SEED=",
            "every_planted_defect_is_found",
        ] {
            assert!(what.contains(part), "{defect:?}: {what}");
        }
    }
}

#[tokio::test]
async fn the_same_store_without_a_defect_holds() {
    let counts = store::check(|| Defective::new(None), SEEDS).await;
    assert!(counts.is_ok(), "{counts:?}");
}

/// A failure comes at the same step again.
#[tokio::test]
async fn a_seed_repeats() {
    let broken = async |seeds| {
        let broken = store::check(|| Defective::new(Some(Defect::LostWrite)), seeds).await;
        broken.unwrap_err()
    };
    let first = broken(SEEDS).await;
    assert_eq!(broken(first.seed..first.seed + 1).await, first);
}
