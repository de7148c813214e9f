//! A directory of a file system: what is written is not durable yet, what is named may be lost.
//!
//! ```text
//! write aside -> sync the file -> rename, never over anything -> sync the folder -> Done
//!                                 (CURRENT: lock, compare, rename over, sync, unlock)
//! ```
//!
//! Each arrow is a step after which the process can die, and with the power cut whatever was not
//! synced is there or not, entry by entry. The steps are those of the library's file-system store:
//! a refusal is durable as well, a delete is synced before it is done, and a load syncs the folder
//! before it answers.
//!
//! Not modelled: that a process which dies leaves its file aside. No name leads to it and no list
//! shows it; the library's store clears what dead processes left, and its own tests show that.
//!
//! Invariant: what is told as an effect is seen by every reader and survives a power cut.

use std::collections::{BTreeMap, BTreeSet};

use stillpoint::protocol::answer::{Answer, Failure, FailureKind, Tag};
use stillpoint::protocol::id::{AttemptId, ObjectName};
use stillpoint::protocol::store::{Listing, StoreCall, StorePayload, StoreToken};

use super::object::{is_listed, not_found, page};
use super::{
    Body, Effect, Fetched, Plain, Progress, Request, Response, StepContext, read_bytes, read_state,
};
use crate::choice::{Choices, Label};
use crate::faults::Fault;
use crate::lsm::Contents;
use crate::world::ruin::Ruin;

/// A file's identity, whatever it is named.
type Inode = u64;

/// A folder of the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Folder {
    Root,
    Manifest,
    Shared(AttemptId),
}

fn folder_of(name: &ObjectName) -> Folder {
    match name {
        ObjectName::Current => Folder::Root,
        ObjectName::Manifest(_) => Folder::Manifest,
        ObjectName::Shared(file) => Folder::Shared(file.attempt),
    }
}

/// The model.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DirectoryStore {
    inodes: BTreeMap<Inode, Body>,
    next_inode: Inode,
    /// Entries as every process sees them.
    seen: BTreeMap<ObjectName, Inode>,
    /// Of the entries that are not synced as they are seen: what is there after a power cut, if they
    /// do not survive it.
    unsynced: BTreeMap<ObjectName, Option<Inode>>,
    /// Files written aside and not named yet.
    aside: BTreeSet<Inode>,
    /// What has been told.
    told: BTreeMap<ObjectName, Inode>,
    /// The file aside whose swap holds the lock.
    lock: Option<Inode>,
}

fn tag_of(inode: Inode) -> Tag {
    Tag(format!("inode-{inode}"))
}

/// What a finished put found.
enum Put {
    Done(Inode),
    /// The name is taken, durably.
    Taken(Inode),
    Failed(Plain),
}

impl DirectoryStore {
    /// Carries a request one step further.
    pub fn step(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<Response> {
        match request {
            Request::Call(call) => self.call(request, call, progress, context),
            Request::Upload { name, content } => {
                let body = Body::State(*content);
                let put = self.put(ObjectName::Shared(*name), body, progress, context)?;
                let answer = match put {
                    Put::Done(_) => Answer::Done(content.digest()),
                    Put::Taken(inode)
                        if self.inodes.get(&inode) == Some(&Body::State(*content)) =>
                    {
                        Answer::Done(content.digest())
                    }
                    Put::Taken(_) => Answer::Refused,
                    Put::Failed(plain) => return Some(request.answered(plain)),
                };
                Some(Response::Upload {
                    name: *name,
                    answer,
                })
            }
            Request::Delete { name } => {
                self.delete(ObjectName::Shared(*name), progress, context)?;
                Some(Response::Delete {
                    name: *name,
                    answer: Answer::Done(()),
                })
            }
            Request::Fetch { name } => Some(Response::Fetch {
                name: *name,
                answer: self.fetch(ObjectName::Shared(*name), context),
            }),
        }
    }

    fn call(
        &mut self,
        request: &Request,
        call: &StoreCall,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<Response> {
        match call {
            StoreCall::Put { name, body } => {
                let body = Body::Bytes(body.as_slice().into());
                let put = self.put(ObjectName::Manifest(*name), body, progress, context)?;
                Some(call_answer(request, put, |_| StorePayload::Nothing))
            }
            StoreCall::Create { body } => {
                let body = Body::Bytes(body.as_slice().into());
                let put = self.put(ObjectName::Current, body, progress, context)?;
                let swapped = |inode| StorePayload::Swapped(tag_of(inode));
                Some(call_answer(request, put, swapped))
            }
            StoreCall::Swap { expected, body, .. } => {
                let body = Body::Bytes(body.as_slice().into());
                let put = self.swap(expected, body, progress, context)?;
                let swapped = |inode| StorePayload::Swapped(tag_of(inode));
                Some(call_answer(request, put, swapped))
            }
            StoreCall::DeleteFile { name } => {
                self.delete(ObjectName::Shared(*name), progress, context)?;
                Some(done(request, StorePayload::Nothing))
            }
            StoreCall::DeleteManifest { name } => {
                self.delete(ObjectName::Manifest(*name), progress, context)?;
                Some(done(request, StorePayload::Nothing))
            }
            StoreCall::Read { token } => {
                let Some(name) = token.reads() else {
                    panic!("a read that says it is {token:?}");
                };
                Some(self.read(request, name, context))
            }
            StoreCall::List {
                listing,
                after,
                limit,
            } => Some(Response::Call {
                token: StoreToken::List(*listing),
                answer: self.list(*listing, after.as_deref(), *limit, context),
            }),
        }
    }

    /// What a request leaves whose process died: its lock is freed, and its file aside is nobody's.
    pub fn abandon(&mut self, progress: &Progress) {
        if progress.temporary.is_some() && self.lock == progress.temporary {
            self.lock = None;
        }
        if let Some(inode) = progress.temporary
            && self.aside.contains(&inode)
        {
            self.drop_aside(inode);
        }
    }

    /// Everything that is seen and durable.
    #[must_use]
    pub fn durable(&self) -> Vec<(ObjectName, Body)> {
        let told = self.told.iter();
        told.filter_map(|(name, inode)| Some((*name, self.inodes.get(inode)?.clone())))
            .collect()
    }

    /// The power fails: of what was not synced, each entry survives or does not.
    pub fn cut_power(&mut self, choices: &mut Choices, effects: &mut Vec<Effect>) {
        for (name, synced) in std::mem::take(&mut self.unsynced) {
            // 0: it survives.
            let mut lost = synced;
            if choices.choose(2, Label::PowerCut) != 0 {
                lost = match synced {
                    Some(inode) => self.seen.insert(name, inode),
                    None => self.seen.remove(&name),
                };
            }
            self.tell(name, effects);
            self.free(name, lost);
        }
        for inode in std::mem::take(&mut self.aside) {
            self.inodes.remove(&inode);
        }
        self.lock = None;
    }

    /// A file is ruined for good, after a power cut.
    pub fn ruin(&mut self, name: &ObjectName, ruin: Ruin, contents: &mut Contents) {
        let Some(inode) = self.seen.get(name).copied() else {
            return;
        };
        match ruin {
            Ruin::Gone => {
                self.seen.remove(name);
                self.told.remove(name);
                self.inodes.remove(&inode);
            }
            Ruin::Damaged => {
                if let Some(body) = self.inodes.get_mut(&inode) {
                    body.damage(contents);
                }
            }
        }
    }

    /// Writes aside and syncs: the first two steps of whatever names something. `Err` when that
    /// fails for certain.
    fn write_aside(
        &mut self,
        body: Body,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Result<Option<Inode>, Plain> {
        match (progress.step, progress.temporary) {
            (0, _) | (_, None) => {
                let rate = context.profile.rate(Fault::NoSpace, context.healed);
                if context.choices.chance(rate, Label::StoreFate) {
                    context.struck.note(Fault::NoSpace);
                    return Err(Plain::Failed(FailureKind::NoSpace, "the disk is full"));
                }
                self.next_inode += 1;
                let inode = self.next_inode;
                self.inodes.insert(inode, body);
                self.aside.insert(inode);
                progress.temporary = Some(inode);
                progress.step = 1;
                Ok(None)
            }
            (1, Some(_)) => {
                // The file is synced.
                progress.step = 2;
                Ok(None)
            }
            (_, Some(inode)) => Ok(Some(inode)),
        }
    }

    fn put(
        &mut self,
        name: ObjectName,
        body: Body,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<Put> {
        let inode = match self.write_aside(body, progress, context) {
            Ok(None) => return None,
            Ok(Some(inode)) => inode,
            Err(plain) => return Some(Put::Failed(plain)),
        };
        if progress.step == 2 {
            if let Some(other) = self.seen.get(&name).copied() {
                // A refusal is durable as well.
                self.sync(folder_of(&name), context.effects);
                self.drop_aside(inode);
                return Some(Put::Taken(other));
            }
            self.show(name, Some(inode));
            self.aside.remove(&inode);
            progress.step = 3;
            return None;
        }
        self.sync(folder_of(&name), context.effects);
        Some(Put::Done(inode))
    }

    fn swap(
        &mut self,
        expected: &Tag,
        body: Body,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<Put> {
        let inode = match self.write_aside(body, progress, context) {
            Ok(None) => return None,
            Ok(Some(inode)) => inode,
            Err(plain) => return Some(Put::Failed(plain)),
        };
        if progress.step == 2 {
            if self.lock.is_some_and(|owner| owner != inode) {
                return None;
            }
            let current = self.seen.get(&ObjectName::Current).copied();
            if current.map(tag_of).as_ref() != Some(expected) {
                self.drop_aside(inode);
                return Some(Put::Taken(current.unwrap_or_default()));
            }
            self.lock = Some(inode);
            self.show(ObjectName::Current, Some(inode));
            self.aside.remove(&inode);
            progress.step = 3;
            return None;
        }
        self.sync(Folder::Root, context.effects);
        if self.lock == Some(inode) {
            self.lock = None;
        }
        Some(Put::Done(inode))
    }

    fn delete(
        &mut self,
        name: ObjectName,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<()> {
        if progress.step == 0 {
            self.show(name, None);
            self.tell(name, context.effects);
            progress.step = 1;
            return None;
        }
        self.sync(folder_of(&name), context.effects);
        Some(())
    }

    fn read(
        &mut self,
        request: &Request,
        name: ObjectName,
        context: &mut StepContext<'_>,
    ) -> Response {
        self.sync(folder_of(&name), context.effects);
        let found = self.seen.get(&name).copied();
        let Some((inode, body)) = found.and_then(|inode| Some((inode, self.inodes.get(&inode)?)))
        else {
            let missing = Answer::Failed(not_found(&name.to_string()));
            return with_answer(request, missing);
        };
        let body = body.clone();
        let bytes = read_bytes(&body, context);
        let tag = tag_of(inode);
        done(request, StorePayload::Content { bytes, tag })
    }

    fn fetch(&mut self, name: ObjectName, context: &mut StepContext<'_>) -> Answer<Fetched> {
        let found = self
            .seen
            .get(&name)
            .and_then(|inode| self.inodes.get(inode));
        match found {
            Some(Body::State(content)) => Answer::Done(read_state(*content, context)),
            Some(Body::Bytes(_)) | None => Answer::Failed(not_found(&name.to_string())),
        }
    }

    fn list(
        &self,
        listing: Listing,
        after: Option<&str>,
        limit: usize,
        context: &mut StepContext<'_>,
    ) -> Answer<StorePayload> {
        let broken = context.profile.rate(Fault::BrokenLists, context.healed);
        if context.choices.chance(broken, Label::ListingLag) {
            context.struck.note(Fault::BrokenLists);
            let cause = "the listing broke off";
            return Answer::Unknown(Failure::new(FailureKind::Unavailable, cause));
        }
        let names = self.seen.keys();
        let names = names.filter(|name| is_listed(listing, name)).copied();
        page(names.collect(), after, limit)
    }

    /// Every process sees another entry from now on.
    fn show(&mut self, name: ObjectName, inode: Option<Inode>) {
        let before = match inode {
            Some(inode) => self.seen.insert(name, inode),
            None => self.seen.remove(&name),
        };
        if *self.unsynced.entry(name).or_insert(before) == inode {
            self.unsynced.remove(&name);
        }
    }

    /// Makes every entry of a folder durable.
    fn sync(&mut self, folder: Folder, effects: &mut Vec<Effect>) {
        let synced: Vec<_> = self
            .unsynced
            .extract_if(.., |name, _| folder_of(name) == folder)
            .collect();
        for (name, before) in synced {
            self.tell(name, effects);
            self.free(name, before);
        }
    }

    /// A file that a name can't lead to any more is gone with its last name.
    fn free(&mut self, name: ObjectName, inode: Option<Inode>) {
        if let Some(inode) = inode
            && self.seen.get(&name) != Some(&inode)
        {
            self.inodes.remove(&inode);
        }
    }

    fn drop_aside(&mut self, inode: Inode) {
        self.aside.remove(&inode);
        self.inodes.remove(&inode);
    }

    /// Tells what has come to be seen and durable under a name, or is so no more.
    fn tell(&mut self, name: ObjectName, effects: &mut Vec<Effect>) {
        let seen = self.seen.get(&name).copied();
        let synced = self.unsynced.get(&name).copied().unwrap_or(seen);
        let told = self.told.get(&name).copied();
        match (seen, synced) {
            (Some(seen), Some(synced)) if seen == synced => {
                if told != Some(seen)
                    && let Some(body) = self.inodes.get(&seen)
                {
                    effects.push(Effect::Stored(name, body.clone()));
                    self.told.insert(name, seen);
                }
            }
            // One of two contents of CURRENT is there, whatever happens.
            (Some(_), Some(_)) => {}
            (Some(_) | None, Some(_) | None) => {
                if told.is_some() {
                    effects.push(Effect::Removed(name));
                    self.told.remove(&name);
                }
            }
        }
    }
}

fn done(request: &Request, payload: StorePayload) -> Response {
    with_answer(request, Answer::Done(payload))
}

fn with_answer(request: &Request, answer: Answer<StorePayload>) -> Response {
    match request {
        Request::Call(call) => Response::Call {
            token: call.token(),
            answer,
        },
        Request::Upload { .. } | Request::Delete { .. } | Request::Fetch { .. } => {
            panic!("{request:?} is no call")
        }
    }
}

fn call_answer(
    request: &Request,
    put: Put,
    payload: impl FnOnce(Inode) -> StorePayload,
) -> Response {
    match put {
        Put::Done(inode) => done(request, payload(inode)),
        Put::Taken(_) => with_answer(request, Answer::Refused),
        Put::Failed(plain) => request.answered(plain),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::faults::Struck;
    use crate::lsm::ContentId;
    use crate::profile::Profile;
    use stillpoint::protocol::id::FileName;

    struct Bench {
        store: DirectoryStore,
        choices: Choices,
        profile: Profile,
        struck: Struck,
        effects: Vec<Effect>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                store: DirectoryStore::default(),
                choices: Choices::replayed(&[]),
                profile: Profile::benign(),
                struck: Struck::default(),
                effects: Vec::new(),
            }
        }

        fn steps(&mut self, request: &Request, steps: u32) -> Option<Response> {
            let mut progress = Progress::default();
            let mut answer = None;
            for _ in 0..steps {
                let mut context = StepContext {
                    now: 0,
                    choices: &mut self.choices,
                    profile: &self.profile,
                    healed: false,
                    damages: false,
                    effects: &mut self.effects,
                    struck: &mut self.struck,
                };
                answer = self.store.step(request, &mut progress, &mut context);
                if answer.is_some() {
                    return answer;
                }
            }
            self.store.abandon(&progress);
            answer
        }
    }

    fn upload(content: u32) -> Request {
        Request::Upload {
            name: FileName {
                attempt: AttemptId(1),
                number: 1,
            },
            content: ContentId(content),
        }
    }

    fn is_done(response: Option<&Response>) -> bool {
        matches!(
            response,
            Some(Response::Upload {
                answer: Answer::Done(_),
                ..
            })
        )
    }

    #[test]
    fn a_put_is_durable_only_with_its_last_step() {
        for steps in 0..4 {
            let mut bench = Bench::new();
            assert_eq!(bench.steps(&upload(1), steps), None);
            assert!(bench.store.durable().is_empty(), "after {steps} steps");
        }
        let mut bench = Bench::new();
        assert!(is_done(bench.steps(&upload(1), 4).as_ref()));
        assert_eq!(bench.store.durable().len(), 1);
    }

    #[test]
    fn an_unsynced_name_is_lost_or_not() {
        for (choice, there) in [(0, 1), (1, 0)] {
            let mut bench = Bench::new();
            bench.steps(&upload(1), 3);
            let mut choices = Choices::scripted(vec![choice]);
            bench.store.cut_power(&mut choices, &mut bench.effects);
            assert_eq!(bench.store.durable().len(), there);
        }
    }

    #[test]
    fn what_is_done_survives_whatever_is_chosen() {
        let mut bench = Bench::new();
        bench.steps(&upload(1), 4);
        let mut choices = Choices::scripted(vec![1; 8]);
        bench.store.cut_power(&mut choices, &mut bench.effects);
        assert_eq!(bench.store.durable().len(), 1);
    }

    #[test]
    fn a_name_is_taken_once() {
        let mut bench = Bench::new();
        bench.steps(&upload(1), 3);
        // The same bytes are done, durably, although the first process died before its sync.
        assert!(is_done(bench.steps(&upload(1), 4).as_ref()));
        assert_eq!(bench.store.durable().len(), 1);
        let other = bench.steps(&upload(2), 4).unwrap();
        assert!(matches!(
            other,
            Response::Upload {
                answer: Answer::Refused,
                ..
            }
        ));
    }

    #[test]
    fn a_dead_swap_frees_its_lock() {
        let mut bench = Bench::new();
        let create = Request::Call(StoreCall::Create { body: vec![1] });
        bench.steps(&create, 4).unwrap();
        let name = stillpoint::protocol::id::ManifestName {
            version: stillpoint::protocol::id::Version(1),
            epoch: stillpoint::protocol::id::Epoch(1),
            nonce: stillpoint::protocol::id::Nonce(1),
        };
        let swap = |expected| {
            Request::Call(StoreCall::Swap {
                name,
                expected,
                body: vec![2],
            })
        };
        assert_eq!(bench.steps(&swap(tag_of(1)), 3), None);
        let answer = bench.steps(&swap(tag_of(2)), 8).unwrap();
        assert!(matches!(
            answer,
            Response::Call {
                answer: Answer::Done(_),
                ..
            }
        ));
    }
}
