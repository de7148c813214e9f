//! An object store: each name is linearizable, listings are not.
//!
//! A request takes effect in one instant. Faults before and after that instant are the network's;
//! here are those of the store itself: listings that lag or break off, reads that are damaged.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use stillpoint::protocol::answer::{Answer, Failure, FailureKind, Tag};
use stillpoint::protocol::id::{MANIFEST_PREFIX, ObjectName, SHARED_PREFIX};
use stillpoint::protocol::store::{Listing, StoreCall, StorePayload};

use super::{Body, Effect, Request, Response, StepContext, read_bytes, read_state};
use crate::choice::Label;
use crate::faults::Fault;
use crate::lsm::Contents;
use crate::world::ruin::Ruin;

/// Objects created or deleted so recently may be missing from a listing, or still stand in it.
const LISTING_LAG_MAX: u64 = 2_000_000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Object {
    body: Body,
    /// How often something was put under this name.
    tag: u64,
    created_at: u64,
}

/// The model.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ObjectStore {
    objects: BTreeMap<ObjectName, Object>,
    deleted: Vec<(u64, ObjectName)>,
}

fn tag_text(tag: u64) -> Tag {
    Tag(format!("etag-{tag}"))
}

impl ObjectStore {
    /// Carries a request out, in this instant.
    pub fn carry_out(&mut self, request: &Request, context: &mut StepContext<'_>) -> Response {
        match request {
            Request::Call(call) => Response::Call {
                token: call.token(),
                answer: self.call(call, context),
            },
            Request::Upload { name, content } => {
                let stored = ObjectName::Shared(*name);
                let answer = match self.objects.get(&stored) {
                    Some(object) if object.body == Body::State(*content) => {
                        Answer::Done(content.digest())
                    }
                    Some(_) => Answer::Refused,
                    None => {
                        self.put(stored, Body::State(*content), context);
                        Answer::Done(content.digest())
                    }
                };
                Response::Upload {
                    name: *name,
                    answer,
                }
            }
            Request::Delete { name } => {
                self.delete(ObjectName::Shared(*name), context);
                Response::Delete {
                    name: *name,
                    answer: Answer::Done(()),
                }
            }
            Request::Fetch { name } => {
                let answer = match self.objects.get(&ObjectName::Shared(*name)) {
                    Some(Object {
                        body: Body::State(content),
                        ..
                    }) => Answer::Done(read_state(*content, context)),
                    Some(_) | None => Answer::Failed(not_found(&name.to_string())),
                };
                Response::Fetch {
                    name: *name,
                    answer,
                }
            }
        }
    }

    /// Takes everything into a hash but the times, which only listings that lag look at.
    pub fn hash_objects(&self, hasher: &mut impl Hasher) {
        for (name, object) in &self.objects {
            (name, &object.body, object.tag).hash(hasher);
        }
    }

    /// Everything in it.
    #[must_use]
    pub fn all(&self) -> Vec<(ObjectName, Body)> {
        self.objects
            .iter()
            .map(|(name, object)| (*name, object.body.clone()))
            .collect()
    }

    /// An object is ruined for good.
    pub fn ruin(&mut self, name: &ObjectName, ruin: Ruin, contents: &mut Contents) {
        match ruin {
            Ruin::Gone => drop(self.objects.remove(name)),
            Ruin::Damaged => {
                if let Some(object) = self.objects.get_mut(name) {
                    object.body.damage(contents);
                }
            }
        }
    }

    fn call(&mut self, call: &StoreCall, context: &mut StepContext<'_>) -> Answer<StorePayload> {
        match call {
            StoreCall::Read { token } => {
                let Some(name) = token.reads() else {
                    panic!("a read that says it is {token:?}");
                };
                match self.objects.get(&name) {
                    None => Answer::Failed(not_found(&name.to_string())),
                    Some(object) => Answer::Done(StorePayload::Content {
                        bytes: read_bytes(&object.body, context),
                        tag: tag_text(object.tag),
                    }),
                }
            }
            StoreCall::Put { name, body } => {
                let name = ObjectName::Manifest(*name);
                if self.objects.contains_key(&name) {
                    return Answer::Refused;
                }
                self.put(name, Body::Bytes(body.as_slice().into()), context);
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::Create { body } => {
                if self.objects.contains_key(&ObjectName::Current) {
                    return Answer::Refused;
                }
                let tag = self.put(
                    ObjectName::Current,
                    Body::Bytes(body.as_slice().into()),
                    context,
                );
                Answer::Done(StorePayload::Swapped(tag))
            }
            StoreCall::Swap { expected, body, .. } => {
                let matches = self
                    .objects
                    .get(&ObjectName::Current)
                    .is_some_and(|object| tag_text(object.tag) == *expected);
                if !matches {
                    return Answer::Refused;
                }
                let tag = self.put(
                    ObjectName::Current,
                    Body::Bytes(body.as_slice().into()),
                    context,
                );
                Answer::Done(StorePayload::Swapped(tag))
            }
            StoreCall::DeleteFile { name } => {
                self.delete(ObjectName::Shared(*name), context);
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::DeleteManifest { name } => {
                self.delete(ObjectName::Manifest(*name), context);
                Answer::Done(StorePayload::Nothing)
            }
            StoreCall::List {
                listing,
                after,
                limit,
            } => self.list(*listing, after.as_deref(), *limit, context),
        }
    }

    fn list(
        &mut self,
        listing: Listing,
        after: Option<&str>,
        limit: usize,
        context: &mut StepContext<'_>,
    ) -> Answer<StorePayload> {
        let broken = context.profile.rate(Fault::BrokenLists, context.healed);
        if context.choices.chance(broken, Label::ListingLag) {
            context.struck.note(Fault::BrokenLists);
            return Answer::Unknown(Failure::new(
                FailureKind::Unavailable,
                "the listing broke off",
            ));
        }
        let lagging = context.profile.rate(Fault::LaggingLists, context.healed);
        let lag = context.choices.chance(lagging, Label::ListingLag);
        let new = context.now.saturating_sub(LISTING_LAG_MAX);
        let mut names: Vec<ObjectName> = self
            .objects
            .iter()
            .filter(|(name, object)| is_listed(listing, name) && !(lag && object.created_at > new))
            .map(|(name, _)| *name)
            .collect();
        if lag {
            context.struck.note(Fault::LaggingLists);
            self.deleted.retain(|(at, _)| *at > new);
            for (_, name) in &self.deleted {
                if is_listed(listing, name) && !self.objects.contains_key(name) {
                    names.push(*name);
                }
            }
        }
        page(names, after, limit)
    }

    fn put(&mut self, name: ObjectName, body: Body, context: &mut StepContext<'_>) -> Tag {
        let tag = self.objects.get(&name).map_or(1, |object| object.tag + 1);
        context.effects.push(Effect::Stored(name, body.clone()));
        self.objects.insert(
            name,
            Object {
                body,
                tag,
                created_at: context.now,
            },
        );
        tag_text(tag)
    }

    fn delete(&mut self, name: ObjectName, context: &mut StepContext<'_>) {
        if self.objects.remove(&name).is_some() {
            context.effects.push(Effect::Removed(name));
            let old = context.now.saturating_sub(LISTING_LAG_MAX);
            self.deleted.retain(|(at, _)| *at > old);
            self.deleted.push((context.now, name));
        }
    }
}

/// Whether a listing is to show this name.
pub(super) fn is_listed(listing: Listing, name: &ObjectName) -> bool {
    match (listing, name) {
        (Listing::Root, _)
        | (Listing::Shared, ObjectName::Shared(_))
        | (Listing::Manifest, ObjectName::Manifest(_)) => true,
        (
            Listing::Shared | Listing::Manifest,
            ObjectName::Current | ObjectName::Manifest(_) | ObjectName::Shared(_),
        ) => false,
    }
}

/// Cuts one page out of a listing, in the order of the names' texts.
pub(super) fn page(
    mut names: Vec<ObjectName>,
    after: Option<&str>,
    limit: usize,
) -> Answer<StorePayload> {
    names.sort_unstable_by_key(place);
    names.dedup();
    let begin = after.map_or(0, |after| {
        names.partition_point(|name| name.to_string().as_str() <= after)
    });
    let left = &names[begin..];
    let names: Vec<String> = left.iter().take(limit).map(ToString::to_string).collect();
    let more = left.len() > limit;
    let next = if more { names.last().cloned() } else { None };
    Answer::Done(StorePayload::Page { names, next })
}

/// A name's place in the order of the names' texts, without their texts: each page would need all.
fn place(name: &ObjectName) -> (u8, u128, u128, u64) {
    match name {
        ObjectName::Current => (0, 0, 0, 0),
        ObjectName::Manifest(name) => {
            let (version, epoch) = (digits(name.version.0), digits(name.epoch.0));
            (1, version, epoch, name.nonce.0)
        }
        ObjectName::Shared(name) => (2, digits(name.attempt.0), digits(name.number), 0),
    }
}

/// Orders numbers as their decimal digits are ordered: 9 comes after 10. What stands behind a number
/// in a name comes before any digit.
fn digits(number: u64) -> u128 {
    const MOST: u32 = 20;
    let count = number.checked_ilog10().unwrap_or(0) + 1;
    let aligned = u128::from(number) * 10_u128.pow(MOST - count);
    aligned * u128::from(MOST + 1) + u128::from(count)
}

pub(super) fn not_found(name: &str) -> Failure {
    debug_assert!(
        name == "CURRENT" || name.starts_with(SHARED_PREFIX) || name.starts_with(MANIFEST_PREFIX)
    );
    Failure::new(FailureKind::NotFound, name)
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, Epoch, FileName, ManifestName, Nonce, Version};

    use super::*;

    #[test]
    fn names_are_listed_in_the_order_of_their_texts() {
        let numbers = [
            0,
            1,
            9,
            10,
            11,
            19,
            99,
            100,
            101,
            1_000,
            u64::MAX - 1,
            u64::MAX,
        ];
        let mut names = vec![ObjectName::Current];
        for first in numbers {
            for second in numbers {
                names.push(ObjectName::Shared(FileName {
                    attempt: AttemptId(first),
                    number: second,
                }));
                names.extend([0, 0x9f, u64::MAX].map(|nonce| {
                    ObjectName::Manifest(ManifestName {
                        version: Version(first),
                        epoch: Epoch(second),
                        nonce: Nonce(nonce),
                    })
                }));
            }
        }
        let mut by_text = names.clone();
        by_text.sort_by_key(ToString::to_string);
        names.sort_by_key(place);
        assert_eq!(names, by_text);
    }
}
