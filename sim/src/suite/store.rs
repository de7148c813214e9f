//! What every store must do, however its calls end.
//!
//! ```text
//!   put  swap  delete ──> a name's states: the contents that may stand under it now
//!   get  load  size  stream  fetch  list ──> one of them, or the store is broken
//!   a caller killed in the middle ──> its effect may come at any later time; the store is opened
//!                                     anew, and what was done before is still there
//! ```
//!
//! What the oracle takes from the trait: a `Done` or `Refused` that the store gave counts even if
//! nobody heard it, and a call that was never sent has no effect. Only a dropped call leaves a
//! choice, which the first read of the name ends, until its effect can come again.
//!
//! Names are those of the protocol, which is what a store meets in earnest;
//! [`contract`] tries others, and calls that compete.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use stillpoint::protocol::answer::{Answer, FailureKind, Tag};
use stillpoint::storage::{
    BLOCK_BYTES, BlobStore, Body, Digester, Intercepted, Key, OpenStore, Progress, Reader, contract,
};

use super::lossy::{Fate, Lossy, Unheard};
use super::states::{Content, Late, Name, States};
use super::{Broken, SEEDS, asked_for, content};
use crate::choice::{Choices, Label};

/// Steps of one seed.
pub const STEPS: u32 = 60;

const CURRENT: usize = 0;
const NAMES: [&str; 8] = [
    "CURRENT",
    "manifest/1-1-00000000000000aa",
    "manifest/2-1-00000000000000ab",
    "shared/1/1",
    "shared/1/10",
    "shared/1/2",
    "shared/10/1",
    "shared/2/1",
];
const PREFIXES: [&str; 5] = ["", "shared/", "manifest/", "shared/1/", "shared/3/"];
const SIZES: [usize; 7] = [20, 0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 300];
const SIZE_BYTES_MAX: u64 = 1 << 30;

/// What came about: a suite in which nothing was lost has shown less than it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Seeds that held.
    pub seeds: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Calls that never reached the store.
    pub lost_requests: u64,
    /// Answers that were not heard.
    pub lost_answers: u64,
    /// Callers that died with a call under way, after which the store was opened anew.
    pub kills: u64,
}

/// Holds a store to its contract: the checks of [`contract`], then the steps of all [`SEEDS`],
/// or of the one that is [`asked_for`].
///
/// `fresh` says where each of many empty stores is; one is opened several times.
///
/// # Panics
/// When the store is broken, saying how.
pub async fn holds<O: OpenStore + 'static>(fresh: impl Fn() -> O) -> Counts {
    let scratch = scratch();
    let open = async || match fresh().open_store().await {
        Ok(store) => store,
        Err(error) => panic!("{error}"),
    };
    contract::all(open, scratch.path()).await;
    match check(fresh, asked_for(SEEDS)).await {
        Ok(counts) => counts,
        Err(broken) => panic!("{broken}"),
    }
}

/// Tries these seeds, each on a store of its own; [`asked_for`] gives the one that is asked for.
///
/// # Errors
/// The first thing that is wrong.
pub async fn check<O: OpenStore + 'static>(
    fresh: impl Fn() -> O,
    seeds: Range<u64>,
) -> Result<Counts, Broken> {
    let scratch = scratch();
    let mut counts = Counts::default();
    for seed in seeds {
        let directory = scratch.path().join(seed.to_string());
        let broken = |step, what| Broken { seed, step, what };
        std::fs::create_dir(&directory).map_err(|error| broken(0, error.to_string()))?;
        let script = Script::new(seed, fresh(), &directory, &mut counts).await;
        let mut script = script.map_err(|what| broken(0, what))?;
        for step in 0..STEPS {
            let done = script.step().await;
            done.map_err(|what| broken(step, what))?;
        }
        let audited = script.audit().await;
        audited.map_err(|what| broken(STEPS, format!("at the end: {what}")))?;
        counts.seeds += 1;
    }
    Ok(counts)
}

fn scratch() -> tempfile::TempDir {
    match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => panic!("no directory for files: {error}"),
    }
}

/// What is known of how a call ended.
enum Outcome {
    Done,
    Refused,
    NotFound,
    NotSent,
    Dropped,
}

struct Script<'a> {
    opens: Intercepted<Lossy>,
    lossy: Arc<Lossy>,
    store: Arc<dyn BlobStore>,
    choices: Choices,
    names: Vec<Name>,
    bodies: Vec<Vec<u8>>,
    tags: BTreeMap<Tag, usize>,
    scratch: &'a Path,
    fetched: u64,
    counts: &'a mut Counts,
}

impl<'a> Script<'a> {
    async fn new(
        seed: u64,
        opens: impl OpenStore + 'static,
        scratch: &'a Path,
        counts: &'a mut Counts,
    ) -> Result<Self, String> {
        let lossy = Arc::new(Lossy::default());
        let opens = Intercepted::new(opens, Arc::clone(&lossy));
        let store = opens
            .open_store()
            .await
            .map_err(|error| error.to_string())?;
        let name = |name: &&str| {
            Ok(Name {
                key: Key::new(name).map_err(|error| error.to_string())?,
                states: BTreeSet::from([None]),
                late: Vec::new(),
            })
        };
        Ok(Self {
            opens,
            lossy,
            store,
            choices: Choices::seeded(seed),
            names: NAMES.iter().map(name).collect::<Result<_, String>>()?,
            bodies: Vec::new(),
            tags: BTreeMap::new(),
            scratch,
            fetched: 0,
            counts,
        })
    }

    fn draw(&mut self, n: usize) -> usize {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        self.choices.choose(n, Label::Workload) as usize
    }

    /// Any name but `CURRENT`.
    fn draw_name(&mut self) -> usize {
        1 + self.draw(NAMES.len() - 1)
    }

    async fn step(&mut self) -> Result<(), String> {
        let what = self
            .choices
            .weighted(&[6, 5, 3, 3, 3, 2, 2, 2, 1], Label::Workload);
        let fate = match self.choices.weighted(&[12, 1, 2, 2], Label::StoreFate) {
            0 => Fate::Passes,
            1 => Fate::LostRequest,
            2 => Fate::LostAnswer,
            _ => Fate::Killed {
                polls: self.choices.choose(6, Label::CrashStep),
            },
        };
        self.lossy.set(fate);
        self.counts.calls += 1;
        let at = self.draw_name();
        match what {
            0 => self.put(at).await,
            1 => self.swap().await,
            2 => self.delete(at).await,
            3 => self.get(at).await,
            4 => self.list().await,
            5 => self.load().await,
            6 => self.stream(at).await,
            7 => self.fetch(at).await,
            _ => self.size(at).await,
        }?;
        // A step that found nothing to do leaves its fate.
        self.lossy.set(Fate::Passes);
        Ok(())
    }

    /// How the last call ended. Where nothing was lost, a store that works answers it.
    async fn outcome<T>(&mut self, call: &str, answer: &Answer<T>) -> Result<Outcome, String> {
        let unit;
        let heard: &Answer<()> = match self.lossy.take_unheard() {
            None => {
                unit = answered(answer);
                &unit
            }
            Some(Unheard::Answered(answer)) => {
                self.counts.lost_answers += 1;
                unit = answer;
                &unit
            }
            Some(Unheard::NotSent) => {
                self.counts.lost_requests += 1;
                return Ok(Outcome::NotSent);
            }
            Some(Unheard::Dropped) => {
                self.counts.kills += 1;
                let opened = self.opens.open_store().await;
                self.store = opened.map_err(|error| format!("{call}, killed: {error}"))?;
                return Ok(Outcome::Dropped);
            }
        };
        match heard {
            Answer::Done(()) => Ok(Outcome::Done),
            Answer::Refused => Ok(Outcome::Refused),
            Answer::Failed(failure) if failure.kind == FailureKind::NotFound => {
                Ok(Outcome::NotFound)
            }
            Answer::Failed(failure) => Err(format!("{call} failed: {failure}")),
            Answer::Unknown(failure) => Err(format!(
                "{call} has an unknown end, and nothing was lost: {failure}"
            )),
        }
    }

    fn new_body(&mut self, size: usize) -> usize {
        let number = self.bodies.len();
        self.bodies.push(content(number, size));
        number
    }

    async fn put(&mut self, at: usize) -> Result<(), String> {
        let size = SIZES[self.draw(SIZES.len())];
        let number = self.new_body(size);
        let bytes = self.bodies[number].clone();
        let size_bytes = bytes.len() as u64;
        let body = match self.draw(3) {
            0 => Body::from(bytes.clone()),
            1 => Body::Stream(Reader::from_bytes(bytes.clone())),
            _ => {
                let path = self.scratch.join(format!("body-{number}"));
                std::fs::write(&path, &bytes).map_err(|error| error.to_string())?;
                Body::File { path, size_bytes }
            }
        };
        let key = self.names[at].key.clone();
        let call = format!("put {key}, body {number} of {size_bytes} bytes");
        let answer = self.store.put(&key, body, &Progress::default()).await;
        if let Answer::Done(digest) = &answer
            && *digest != Digester::of(&bytes)
        {
            return Err(format!("{call}: {digest:?} is not what was put"));
        }
        let outcome = self.outcome(&call, &answer).await?;
        let name = &mut self.names[at];
        match outcome {
            Outcome::Done => {
                name.must(|content| content.is_none(), &format!("{call}: done"))?;
                name.states = BTreeSet::from([Some(number)]);
            }
            Outcome::Refused => {
                name.must(|content| content.is_some(), &format!("{call}: refused"))?;
            }
            Outcome::NotFound => return Err(format!("{call}: not found")),
            Outcome::NotSent => {}
            Outcome::Dropped => name.late.push(Late::Put(number)),
        }
        Ok(())
    }

    async fn swap(&mut self) -> Result<(), String> {
        let number = self.new_body(20);
        let bytes = self.bodies[number].clone();
        let known = self.tags.len();
        let tagged: Option<(Tag, Content)> = match self.draw(4) {
            0 => None,
            // The newest, mostly; else any old one, or a stranger's.
            1 | 2 if known > 0 => {
                let newest = self.tags.iter().max_by_key(|(_, body)| **body);
                newest.map(|(tag, body)| (tag.clone(), Some(*body)))
            }
            _ if known > 0 => {
                let which = self.draw(known);
                let tag = self.tags.iter().nth(which);
                tag.map(|(tag, body)| (tag.clone(), Some(*body)))
            }
            _ => Some((Tag("nobody's".to_owned()), Some(usize::MAX))),
        };
        let expected = tagged.as_ref().and_then(|(_, content)| *content);
        let key = self.names[CURRENT].key.clone();
        let tag = tagged.as_ref().map(|(tag, _)| tag);
        let call = format!("swap {key} from {expected:?} to body {number}");
        let answer = self.store.swap(&key, tag, &bytes).await;
        if let Answer::Done(tag) = &answer {
            self.know(tag.clone(), number)?;
        }
        let outcome = self.outcome(&call, &answer).await?;
        let name = &mut self.names[CURRENT];
        match outcome {
            Outcome::Done => {
                name.must(|content| content == expected, &format!("{call}: done"))?;
                name.states = BTreeSet::from([Some(number)]);
            }
            Outcome::Refused => {
                name.must(|content| content != expected, &format!("{call}: refused"))?;
            }
            Outcome::NotFound => return Err(format!("{call}: not found")),
            Outcome::NotSent => {}
            Outcome::Dropped => name.late.push(Late::Swap {
                expected,
                to: number,
            }),
        }
        Ok(())
    }

    /// A tag stands for one content.
    fn know(&mut self, tag: Tag, body: usize) -> Result<(), String> {
        match self.tags.get(&tag) {
            Some(other) if *other != body => {
                Err(format!("{tag:?} is the tag of bodies {other} and {body}"))
            }
            Some(_) => Ok(()),
            None => {
                self.tags.insert(tag, body);
                Ok(())
            }
        }
    }

    async fn delete(&mut self, at: usize) -> Result<(), String> {
        let key = self.names[at].key.clone();
        let call = format!("delete {key}");
        let answer = self.store.delete(&key).await;
        let outcome = self.outcome(&call, &answer).await?;
        let name = &mut self.names[at];
        match outcome {
            Outcome::Done => name.states = BTreeSet::from([None]),
            Outcome::Refused => return Err(format!("{call}: refused")),
            Outcome::NotFound => return Err(format!("{call}: what is absent is deleted")),
            Outcome::NotSent => {}
            Outcome::Dropped => name.late.push(Late::Delete),
        }
        Ok(())
    }

    /// Holds what a read brought against what may be there.
    async fn read<T>(
        &mut self,
        at: usize,
        call: &str,
        answer: &Answer<T>,
        is_that: impl Fn(&T, &[u8]) -> bool,
    ) -> Result<(), String> {
        let outcome = self.outcome(call, answer).await?;
        let bodies = &self.bodies;
        let name = &mut self.names[at];
        match (outcome, answer) {
            (Outcome::Done, Answer::Done(found)) => name.must(
                |content| content.is_some_and(|body| is_that(found, &bodies[body])),
                &format!("{call} gives something else"),
            ),
            (Outcome::Done, Answer::Refused | Answer::Failed(_) | Answer::Unknown(_)) => name.must(
                |content| content.is_some(),
                &format!("{call}: done, unheard"),
            ),
            (Outcome::NotFound, _) => {
                name.must(|content| content.is_none(), &format!("{call}: not found"))
            }
            (Outcome::Refused, _) => Err(format!("{call}: refused")),
            (Outcome::NotSent | Outcome::Dropped, _) => Ok(()),
        }
    }

    async fn get(&mut self, at: usize) -> Result<(), String> {
        let key = self.names[at].key.clone();
        let answer = self.store.get(&key, SIZE_BYTES_MAX).await;
        self.read(at, &format!("get {key}"), &answer, |found, bytes| {
            found == bytes
        })
        .await
    }

    async fn load(&mut self) -> Result<(), String> {
        let key = self.names[CURRENT].key.clone();
        let answer = self.store.load(&key, SIZE_BYTES_MAX).await;
        let call = format!("load {key}");
        self.read(CURRENT, &call, &answer, |found, bytes| found.bytes == bytes)
            .await?;
        if let Answer::Done(found) = &answer
            && let Some(body) = self.bodies.iter().position(|body| *body == found.bytes)
        {
            self.know(found.tag.clone(), body)?;
        }
        Ok(())
    }

    async fn size(&mut self, at: usize) -> Result<(), String> {
        let key = self.names[at].key.clone();
        let answer = self.store.size(&key).await;
        self.read(at, &format!("size {key}"), &answer, |found, bytes| {
            *found == bytes.len() as u64
        })
        .await
    }

    /// A range that lies within the object, if anything is known of it.
    async fn stream(&mut self, at: usize) -> Result<(), String> {
        let longest = self.names[at].states.iter().flatten();
        let shortest = longest.map(|body| self.bodies[*body].len()).min();
        let size = shortest.filter(|_| self.names[at].late.is_empty());
        let range = match size {
            Some(size) if self.draw(4) > 0 => {
                let (one, other) = (self.draw(size + 1), self.draw(size + 1));
                Some(one.min(other) as u64..one.max(other) as u64)
            }
            Some(_) | None => None,
        };
        let key = self.names[at].key.clone();
        let call = format!("stream {key}, {range:?}");
        let answer = self.store.stream(&key, range.clone()).await;
        let answer = match answer {
            Answer::Done(mut reader) => match reader.read_to_end().await {
                Ok(bytes) => Answer::Done(bytes),
                Err(failure) => Answer::Failed(failure),
            },
            Answer::Refused => Answer::Refused,
            Answer::Failed(failure) => Answer::Failed(failure),
            Answer::Unknown(failure) => Answer::Unknown(failure),
        };
        self.read(at, &call, &answer, |found, bytes| match &range {
            None => found == bytes,
            Some(range) => {
                let (from, to) = (range.start as usize, range.end as usize);
                bytes.get(from..to).is_some_and(|part| part == found)
            }
        })
        .await
    }

    async fn fetch(&mut self, at: usize) -> Result<(), String> {
        // What is expected is known where one content may be there.
        let expected = match self.names[at].states.first() {
            Some(Some(body)) => Digester::of(&self.bodies[*body]),
            Some(None) | None => Digester::of(b""),
        };
        if self.names[at].states.len() > 1 || !self.names[at].late.is_empty() {
            return Ok(());
        }
        self.fetched += 1;
        let target = self.scratch.join(format!("fetched-{}", self.fetched));
        let key = self.names[at].key.clone();
        let call = format!("fetch {key}");
        let progress = Progress::default();
        let answer = self.store.fetch(&key, &target, expected, &progress).await;
        let answer = match answer {
            Answer::Done(()) => match std::fs::read(&target) {
                Ok(bytes) => Answer::Done(bytes),
                Err(error) => {
                    return Err(format!("{call}: done, and {}: {error}", target.display()));
                }
            },
            Answer::Refused => Answer::Refused,
            Answer::Failed(failure) => Answer::Failed(failure),
            Answer::Unknown(failure) => Answer::Unknown(failure),
        };
        self.read(at, &call, &answer, |found, bytes| found == bytes)
            .await
    }

    /// All pages of a listing.
    async fn list(&mut self) -> Result<(), String> {
        let prefix = PREFIXES[self.draw(PREFIXES.len())];
        let limit = [1, 2, 3, 100][self.draw(4)];
        self.list_all(prefix, limit).await
    }

    async fn list_all(&mut self, prefix: &str, limit: usize) -> Result<(), String> {
        let call = format!("list {prefix:?} in pages of {limit}");
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().cloned();
            let answer = self.store.list(prefix, after.as_deref(), limit).await;
            let outcome = self.outcome(&call, &answer).await?;
            let page = match (outcome, answer) {
                (Outcome::Done, Answer::Done(page)) => page,
                (Outcome::Done | Outcome::NotSent | Outcome::Dropped, _) => return Ok(()),
                (Outcome::Refused | Outcome::NotFound, _) => {
                    return Err(format!("{call}: no listing does that"));
                }
            };
            if page.names.len() > limit || (page.more && page.names.is_empty()) {
                return Err(format!("{call}: a page of {} names", page.names.len()));
            }
            found.extend(page.names);
            if !found.is_sorted_by(|one, other| one < other) {
                return Err(format!("{call}: {found:?} is not in order"));
            }
            if !page.more {
                break;
            }
        }
        for name in &mut self.names {
            name.land();
            let text = name.key.as_str();
            let is_listed = found.iter().any(|found| found == text);
            let agrees = name.states.iter().any(|state| state.is_some() == is_listed);
            if text.starts_with(prefix) && !agrees {
                let states = States(&name.states);
                return Err(format!(
                    "{call}: {found:?}, and under {text} there may be {states}"
                ));
            }
        }
        let is_known = |name: &&String| name.starts_with(prefix) && NAMES.contains(&name.as_str());
        match found.iter().find(|name| !is_known(name)) {
            Some(stranger) => Err(format!("{call}: {stranger} was never put there")),
            None => Ok(()),
        }
    }

    /// Everything is looked at, on a store that was opened anew.
    async fn audit(&mut self) -> Result<(), String> {
        let opened = self.opens.open_store().await;
        self.store = opened.map_err(|error| error.to_string())?;
        self.load().await?;
        for at in 1..NAMES.len() {
            self.get(at).await?;
            self.size(at).await?;
        }
        self.list_all("", 2).await
    }
}

/// The answer without its value.
fn answered<T>(answer: &Answer<T>) -> Answer<()> {
    match answer {
        Answer::Done(_) => Answer::Done(()),
        Answer::Refused => Answer::Refused,
        Answer::Failed(failure) => Answer::Failed(failure.clone()),
        Answer::Unknown(failure) => Answer::Unknown(failure.clone()),
    }
}
