//! What is heard of the store, as facts. What the store does itself is told where it does it.

use stillpoint::protocol::answer::{Answer, FailureKind};
use stillpoint::protocol::id::ObjectName;
use stillpoint::protocol::manifest::Current;
use stillpoint::protocol::store::{StorePayload, StoreToken};

use super::World;
use crate::oracle::facts::{Caller, Fact};
use crate::store::Response;

impl World {
    /// Somebody hears that something can't be read.
    pub(super) fn note_failed_read(&mut self, caller: Caller, response: &Response) {
        let Response::Call { token, answer } = response else {
            return;
        };
        let name = token.reads();
        let reads = name.is_some() || matches!(token, StoreToken::List(_));
        if let Answer::Failed(failure) | Answer::Unknown(failure) = answer
            && reads
            && failure.kind != FailureKind::NotFound
            && self.lives(caller)
        {
            self.fact(Fact::ReadFailed(caller, name, failure.kind));
        }
    }

    /// A coordinator hears what is there, or that a put is no use.
    pub(super) fn note_store_heard(&mut self, caller: Caller, response: &Response) {
        let Response::Call { token, answer } = response else {
            return;
        };
        if !matches!(caller, Caller::Coordinator(_)) || !self.lives(caller) {
            return;
        }
        match (token, answer) {
            (StoreToken::PutManifest(name), Answer::Failed(failure))
                if !failure.kind.is_retryable() && failure.kind != FailureKind::NotFound =>
            {
                self.fact(Fact::PutFailedForGood(caller, *name));
            }
            (_, Answer::Done(StorePayload::Content { bytes, .. })) => {
                let name = token.reads();
                self.fact(Fact::ReadAnswered(caller, name));
                if name == Some(ObjectName::Current)
                    && let Ok(current) = Current::decode(bytes)
                {
                    let newest = current.snapshots().last().copied();
                    self.fact(Fact::CurrentHeard(caller, newest, current.last_commit()));
                }
            }
            (_, Answer::Done(StorePayload::Page { .. })) => {
                self.fact(Fact::ReadAnswered(caller, None));
            }
            (_, Answer::Failed(failure)) if failure.kind == FailureKind::NotFound => {
                if let Some(name) = token.reads() {
                    self.fact(Fact::ReadAnswered(caller, Some(name)));
                }
            }
            _ => {}
        }
    }
}
