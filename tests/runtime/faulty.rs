//! A store that does to its calls what a test says.

use std::fmt;
use std::sync::{Arc, Mutex};

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::storage::{
    BlobStore, Body, Call, Intercept, Intercepted, Key, Memory, OpenStore, Opening, Operation,
    Progress,
};
use tokio::sync::Notify;

/// What becomes of a call.
#[derive(Clone)]
pub enum Fault {
    /// It is made and its answer given.
    None,
    /// It is made, and nobody learns what came of it.
    DoneInSilence,
    /// It is not made, and nobody learns that.
    LostInSilence,
    /// It fails for certain.
    Failed(FailureKind),
    /// It never answers.
    Hangs,
    /// It is made once this is notified.
    Waits(Arc<Notify>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Put,
    Read,
    Swap,
    List,
    Delete,
}

type Rule = dyn FnMut(Verb, &str) -> Fault + Send;

struct Rules(Mutex<Box<Rule>>);

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

/// A store in memory with a rule for its calls.
#[derive(Clone)]
pub struct Faulty {
    inner: Memory,
    rules: Arc<Rules>,
    opens: Intercepted<Rules>,
}

impl Faulty {
    pub fn new() -> Self {
        let inner = Memory::new();
        let rules = Arc::new(Rules(Mutex::new(Box::new(|_, _| Fault::None))));
        let opens = Intercepted::new(inner.clone(), Arc::clone(&rules));
        Self {
            inner,
            rules,
            opens,
        }
    }

    /// From now on calls go by this rule; `key` is seen from the repository.
    pub fn set(&self, rule: impl FnMut(Verb, &str) -> Fault + Send + 'static) {
        *self.rules.0.lock().unwrap() = Box::new(rule);
    }

    pub fn heal(&self) {
        self.set(|_, _| Fault::None);
    }

    /// The names of all objects whose name holds this text.
    pub async fn names(&self, text: &str) -> Vec<String> {
        match self.inner.list("", None, usize::MAX).await {
            Answer::Done(page) => page
                .names
                .into_iter()
                .filter(|name| name.contains(text))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    pub async fn damage(&self, name: &str) {
        let key = Key::new(name).unwrap();
        let Answer::Done(mut bytes) = self.inner.get(&key, u64::MAX).await else {
            panic!("{name} is absent");
        };
        bytes[0] ^= 1;
        self.remove(name).await;
        let put = self
            .inner
            .put(&key, Body::from(bytes), &Progress::default())
            .await;
        assert!(matches!(put, Answer::Done(_)));
    }

    pub async fn remove(&self, name: &str) {
        let deleted = self.inner.delete(&Key::new(name).unwrap()).await;
        assert!(matches!(deleted, Answer::Done(())));
    }
}

impl OpenStore for Faulty {
    fn open_store(&self) -> Opening<'_> {
        self.opens.open_store()
    }
}

impl Intercept for Rules {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        let verb = match operation {
            Operation::Put { .. } => Verb::Put,
            Operation::Swap => Verb::Swap,
            Operation::List => Verb::List,
            Operation::Delete => Verb::Delete,
            _ => Verb::Read,
        };
        Box::pin(async move {
            let fault = (self.0.lock().unwrap())(verb, name);
            let silence = || Answer::Unknown(Failure::new(FailureKind::Unavailable, "silence"));
            match fault {
                Fault::None => call.await,
                Fault::DoneInSilence => {
                    call.await;
                    silence()
                }
                Fault::LostInSilence => silence(),
                Fault::Failed(kind) => {
                    Answer::Failed(Failure::new(kind, format!("{name}: as told")))
                }
                Fault::Hangs => std::future::pending().await,
                Fault::Waits(notify) => {
                    notify.notified().await;
                    call.await
                }
            }
        })
    }
}
