//! What the store's node serves: the simulator's models, of which each participant has one.
//!
//! ```text
//! participants/orders/shared/1/2 ──> the model of orders: shared/1/2 ──> step, time, step, time, ...
//! ```
//!
//! The models know the names of the protocol, which are those below a participant's folder.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;

use stillpoint::protocol::answer::{Answer, Digest, Tag};
use stillpoint::storage::{BlobStore, Body, Call, Key, Page, Progress, Reader, Tagged};
use stillpoint_sim::suite::models::ModelStore;

use crate::service::PARTICIPANTS;
use crate::world::{one_in, rest};

/// Less than so much time passes between two steps.
const STEP_MS: u64 = 4;

/// Which model the participants of a history have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Carries a call out in one step.
    Object,
    /// Takes several, and whoever dies in between leaves it at that.
    Directory,
}

impl Kind {
    pub fn draw() -> Self {
        if one_in(2) {
            Self::Object
        } else {
            Self::Directory
        }
    }
}

/// The models of all participants.
#[derive(Debug)]
pub struct Models(BTreeMap<&'static str, ModelStore>);

impl Models {
    pub fn new(kind: Kind) -> Self {
        let fresh = match kind {
            Kind::Object => ModelStore::object,
            Kind::Directory => ModelStore::directory,
        };
        Self(PARTICIPANTS.map(|name| (name, fresh())).into())
    }

    /// The model of this participant.
    pub fn of(&self, name: &str) -> &ModelStore {
        let model = self.0.get(name);
        model.unwrap_or_else(|| panic!("{name} is no participant"))
    }

    /// The model that keeps this, the folder it keeps, and what is left of the name below that.
    fn split<'a>(&self, name: &'a str) -> (&ModelStore, &'a str, &'a str) {
        let participant = name.split('/').nth(1).unwrap_or_default();
        let folder = format!("participants/{participant}/");
        let Some(rest) = name.strip_prefix(&folder) else {
            panic!("{name} is in no participant's folder");
        };
        (self.of(participant), &name[..folder.len()], rest)
    }
}

/// Lets time pass after each step of a model: others run then, and the store's node may be killed.
async fn step_by_step<T>(mut call: Call<'_, T>) -> Answer<T> {
    loop {
        let step = poll_fn(|context| Poll::Ready(call.as_mut().poll(context)));
        match step.await {
            Poll::Ready(answer) => return answer,
            Poll::Pending => rest(STEP_MS).await,
        }
    }
}

/// Has the model carry a call out under the name that it knows.
macro_rules! model {
    ($self:ident, $key:ident, $model:ident => $call:expr) => {
        Box::pin(async move {
            let ($model, _, name) = $self.split($key.as_str());
            let $key = &Key::new(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            step_by_step($call).await
        })
    };
}

impl BlobStore for Models {
    fn put<'a>(&'a self, key: &'a Key, body: Body, progress: &'a Progress) -> Call<'a, Digest> {
        model!(self, key, model => model.put(key, body, progress))
    }

    fn size<'a>(&'a self, key: &'a Key) -> Call<'a, u64> {
        model!(self, key, model => model.size(key))
    }

    fn get<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Vec<u8>> {
        model!(self, key, model => model.get(key, size_bytes_max))
    }

    fn stream<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Call<'a, Reader> {
        model!(self, key, model => model.stream(key, range))
    }

    fn load<'a>(&'a self, key: &'a Key, size_bytes_max: u64) -> Call<'a, Tagged> {
        model!(self, key, model => model.load(key, size_bytes_max))
    }

    fn swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<&'a Tag>,
        content: &'a [u8],
    ) -> Call<'a, Tag> {
        model!(self, key, model => model.swap(key, expected, content))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Call<'a, Page> {
        Box::pin(async move {
            let (model, folder, below) = self.split(prefix);
            let after = after.map(|after| self.split(after).2);
            let listed = step_by_step(model.list(below, after, limit)).await;
            listed.map(|mut page| {
                for name in &mut page.names {
                    name.insert_str(0, folder);
                }
                page
            })
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Call<'a, ()> {
        model!(self, key, model => model.delete(key))
    }
}
