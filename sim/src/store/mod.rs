//! The stores that the world offers, behind one interface.
//!
//! ```text
//! process --Request--> [on its way] --step--> model --step--> ... --Response--> [on its way] --> process
//!                                       |
//!                                       +--> Effect: what is durably there now, or gone
//! ```
//!
//! A request is carried out in one step by the object store ([`object`]) and in several by the
//! directory ([`directory`]), whose steps die with their process. What the steps change is told
//! as [`Effect`]s, from which alone the invariants know what is durable.
//!
//! What goes wrong on the way (lost requests, lost answers, late landing) is the network's and
//! stands in `world::calls`.

pub mod directory;
pub mod object;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stillpoint::protocol::answer::{Answer, Digest, Failure, FailureKind};
use stillpoint::protocol::id::{FileName, ObjectName};
use stillpoint::protocol::store::{StoreCall, StorePayload, StoreToken};

use crate::choice::Choices;
use crate::lsm::{ContentId, Contents};
use crate::profile::Profile;
use crate::world::ruin::Ruin;

/// What a process asks of the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// A call of a coordinator or a loader.
    Call(StoreCall),
    /// Store a state file or pack under a name that only one attempt can write.
    Upload {
        /// The name.
        name: FileName,
        /// The bytes.
        content: ContentId,
    },
    /// Delete an attempt's own file.
    Delete {
        /// The file.
        name: FileName,
    },
    /// Read a state file or pack whole.
    Fetch {
        /// The file.
        name: FileName,
    },
}

impl Request {
    /// The object that it reads.
    #[must_use]
    pub fn reads(&self) -> Option<ObjectName> {
        match self {
            Self::Call(StoreCall::Read { token }) => token.reads(),
            Self::Fetch { name } => Some(ObjectName::Shared(*name)),
            Self::Call(_) | Self::Upload { .. } | Self::Delete { .. } => None,
        }
    }

    /// The answer to this request that says nothing but this.
    #[must_use]
    pub fn answered(&self, outcome: Plain) -> Response {
        match self {
            Self::Call(call) => Response::Call {
                token: call.token(),
                answer: outcome.into_answer(),
            },
            Self::Upload { name, .. } => Response::Upload {
                name: *name,
                answer: outcome.into_answer(),
            },
            Self::Delete { name } => Response::Delete {
                name: *name,
                answer: outcome.into_answer(),
            },
            Self::Fetch { name } => Response::Fetch {
                name: *name,
                answer: outcome.into_answer(),
            },
        }
    }

    /// Whether it changes the store.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Call(call) => match call {
                StoreCall::Read { .. } | StoreCall::List { .. } => false,
                StoreCall::Put { .. }
                | StoreCall::Create { .. }
                | StoreCall::Swap { .. }
                | StoreCall::DeleteFile { .. }
                | StoreCall::DeleteManifest { .. } => true,
            },
            Self::Upload { .. } | Self::Delete { .. } => true,
            Self::Fetch { .. } => false,
        }
    }

    /// Whether it puts something under a fresh name.
    #[must_use]
    pub fn is_put(&self) -> bool {
        matches!(
            self,
            Self::Upload { .. } | Self::Call(StoreCall::Put { .. })
        )
    }

    /// Whether its answer can be a conflict although nothing was stored.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        matches!(
            self,
            Self::Upload { .. }
                | Self::Call(
                    StoreCall::Swap { .. } | StoreCall::Create { .. } | StoreCall::Put { .. }
                )
        )
    }

    /// Whether it deletes something.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        matches!(
            self,
            Self::Delete { .. }
                | Self::Call(StoreCall::DeleteFile { .. } | StoreCall::DeleteManifest { .. })
        )
    }
}

/// An answer without a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Plain {
    /// The condition did not hold, or so the store says.
    Refused,
    /// Certainly not done.
    Failed(FailureKind, &'static str),
    /// Perhaps done, perhaps later.
    Unknown,
}

impl Plain {
    fn into_answer<T>(self) -> Answer<T> {
        match self {
            Self::Refused => Answer::Refused,
            Self::Failed(kind, cause) => Answer::Failed(Failure::new(kind, cause)),
            Self::Unknown => Answer::Unknown(Failure::new(FailureKind::Deadline, "no answer")),
        }
    }
}

/// What the store answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Response {
    /// To [`Request::Call`].
    Call {
        /// What it answers.
        token: StoreToken,
        /// The answer.
        answer: Answer<StorePayload>,
    },
    /// To [`Request::Upload`].
    Upload {
        /// The name.
        name: FileName,
        /// What was stored.
        answer: Answer<Digest>,
    },
    /// To [`Request::Delete`].
    Delete {
        /// The name.
        name: FileName,
        /// The answer.
        answer: Answer<()>,
    },
    /// To [`Request::Fetch`].
    Fetch {
        /// The name.
        name: FileName,
        /// What was read.
        answer: Answer<Fetched>,
    },
}

impl Response {
    /// Whether it leaves open what happened.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Call { answer, .. } => matches!(answer, Answer::Unknown(_)),
            Self::Upload { answer, .. } => matches!(answer, Answer::Unknown(_)),
            Self::Delete { answer, .. } => matches!(answer, Answer::Unknown(_)),
            Self::Fetch { answer, .. } => matches!(answer, Answer::Unknown(_)),
        }
    }
}

/// What a read of a state file brought.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fetched {
    /// The bytes' size and checksum, as read.
    pub digest: Digest,
    /// The bytes; `None` if they are not what is stored.
    pub content: Option<ContentId>,
}

/// What stands under a name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// `CURRENT` or a manifest object.
    Bytes(Arc<[u8]>),
    /// A state file or pack.
    State(ContentId),
}

impl Body {
    /// Its bytes are others from now on, and no fewer.
    fn damage(&mut self, contents: &mut Contents) {
        match self {
            Self::Bytes(bytes) => {
                let mut other = bytes.to_vec();
                flip(&mut other);
                *bytes = other.into();
            }
            Self::State(content) => *content = contents.torn_of_length(*content),
        }
    }
}

/// Damages bytes so that a checksum tells.
fn flip(bytes: &mut [u8]) {
    let place = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(place) {
        *byte ^= 0x40;
    }
}

/// A change of what is durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// This stands under this name now, durably.
    Stored(ObjectName, Body),
    /// Nothing durable stands under this name any more, or nothing that can be read.
    Removed(ObjectName),
}

/// What a step may use.
pub struct StepContext<'a> {
    /// The time.
    pub now: u64,
    /// The source of choices.
    pub choices: &'a mut Choices,
    /// What may go wrong; nothing does when `healed`.
    pub profile: &'a Profile,
    /// Whether faults have stopped.
    pub healed: bool,
    /// Whether what is read is damaged for certain.
    pub damages: bool,
    /// Where changes are told.
    pub effects: &'a mut Vec<Effect>,
    /// Which fault classes have struck.
    pub struck: &'a mut crate::faults::Struck,
}

/// How far a request has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    /// Steps done.
    pub step: u32,
    /// The temporary name it uses, in a directory.
    pub temporary: Option<u64>,
}

/// A store of either kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Store {
    /// An object store.
    Object(object::ObjectStore),
    /// A directory.
    Directory(directory::DirectoryStore),
}

impl Store {
    /// Carries a request one step further; `None` if there are more steps.
    pub fn step(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<Response> {
        match self {
            Self::Object(store) => Some(store.carry_out(request, context)),
            Self::Directory(store) => store.step(request, progress, context),
        }
    }

    /// Whether a request goes on when its process dies.
    #[must_use]
    pub fn outlives_caller(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// What is left of a request whose process died.
    pub fn abandon(&mut self, progress: &Progress) {
        match self {
            Self::Object(_) => {}
            Self::Directory(store) => store.abandon(progress),
        }
    }

    /// An object is ruined for good.
    pub fn ruin(&mut self, name: &ObjectName, ruin: Ruin, contents: &mut Contents) {
        match self {
            Self::Object(store) => store.ruin(name, ruin, contents),
            Self::Directory(store) => store.ruin(name, ruin, contents),
        }
    }

    /// Everything that stands in it, readable and durable.
    #[must_use]
    pub fn durable(&self) -> Vec<(ObjectName, Body)> {
        match self {
            Self::Object(store) => store.all(),
            Self::Directory(store) => store.durable(),
        }
    }

    /// Takes everything in it into a hash but the times.
    pub fn hash_objects(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Object(store) => store.hash_objects(hasher),
            Self::Directory(store) => store.hash(hasher),
        }
    }
}

/// A body's bytes as a caller reads them, perhaps damaged on the way.
pub(crate) fn read_bytes(body: &Body, context: &mut StepContext<'_>) -> Vec<u8> {
    let mut bytes = match body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::State(_) => Vec::new(),
    };
    match read_damage(context) {
        Damage::None => {}
        Damage::Corrupt => flip(&mut bytes),
        Damage::Short => bytes.truncate(bytes.len().saturating_sub(1) / 2),
    }
    bytes
}

/// A state file as a caller reads it, perhaps damaged on the way.
pub(crate) fn read_state(content: ContentId, context: &mut StepContext<'_>) -> Fetched {
    let mut digest = content.digest();
    match read_damage(context) {
        Damage::None => {
            return Fetched {
                digest,
                content: Some(content),
            };
        }
        Damage::Corrupt => digest.checksum.0 ^= 1,
        Damage::Short => digest.size_bytes -= 1,
    }
    Fetched {
        digest,
        content: None,
    }
}

enum Damage {
    None,
    Corrupt,
    Short,
}

fn read_damage(context: &mut StepContext<'_>) -> Damage {
    use crate::choice::Label;
    use crate::faults::Fault;
    if context.damages {
        context.struck.note(Fault::DamagedReads);
        return Damage::Corrupt;
    }
    let rate = context.profile.rate(Fault::DamagedReads, context.healed);
    if !rate.is_possible() {
        return Damage::None;
    }
    let weights = [2 * (rate.among - rate.of), rate.of, rate.of];
    match context.choices.weighted(&weights, Label::ReadDamage) {
        1 => {
            context.struck.note(Fault::DamagedReads);
            Damage::Corrupt
        }
        2 => {
            context.struck.note(Fault::DamagedReads);
            Damage::Short
        }
        _ => Damage::None,
    }
}
