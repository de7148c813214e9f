//! A store that holds uploads until a test lets them go, or fails them.
//!
//! ```text
//! upload ──put──> held? ──no───────────────────────> the store below
//!                   └─yes─> waits ──let go──────────> the store below
//!                                 └─failed──────────> the answer that the test gives
//! ```
//!
//! Only puts of state files and packs wait; the manifest's objects, and all that reads, pass.

use std::sync::{Arc, Mutex, MutexGuard};

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::state::pack::PACK_NAME;
use stillpoint::storage::{Call, Intercept, Intercepted, OpenStore, Opening, Operation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// Which uploads wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    Nothing,
    Packs,
    Everything,
}

/// An upload that waits.
#[derive(Debug)]
pub struct Waiting {
    pub key: String,
    pub size_bytes: u64,
    /// The part of a checkpoint that is its own: each has exactly one.
    pub is_pack: bool,
    decide: oneshot::Sender<Result<(), FailureKind>>,
}

impl Waiting {
    pub fn let_go(self) {
        // Who gave up waits no more.
        let _ = self.decide.send(Ok(()));
    }

    pub fn fail(self, kind: FailureKind) {
        let _ = self.decide.send(Err(kind));
    }
}

#[derive(Debug)]
struct State {
    hold: Hold,
    waiting: Vec<Waiting>,
    /// The names and lengths of what was stored, in order.
    stored: Vec<(String, u64)>,
    /// How many deletes are still to be refused.
    deletes_refused: usize,
    /// How many reads there may be at once.
    reads: Option<Arc<Semaphore>>,
}

/// The store, and the test's hand on it. Clones share both.
#[derive(Clone, Debug)]
pub struct Held(Intercepted<Control>, Arc<Control>);

#[derive(Debug)]
struct Control {
    state: Mutex<State>,
    arrived: watch::Sender<u64>,
}

impl Held {
    pub fn new(opens: impl OpenStore + 'static) -> Self {
        let state = State {
            hold: Hold::Nothing,
            waiting: Vec::new(),
            stored: Vec::new(),
            deletes_refused: 0,
            reads: None,
        };
        let control = Arc::new(Control {
            state: Mutex::new(state),
            arrived: watch::Sender::new(0),
        });
        Self(Intercepted::new(opens, Arc::clone(&control)), control)
    }

    /// What of the uploads that arrive from now on waits.
    pub fn hold(&self, hold: Hold) {
        self.1.state().hold = hold;
    }

    /// How many uploads wait, of those like this.
    pub fn count(&self, like: impl Fn(&Waiting) -> bool) -> usize {
        let state = self.1.state();
        let living = state.waiting.iter().filter(|put| !put.decide.is_closed());
        living.filter(|put| like(put)).count()
    }

    /// Waits until at least so many uploads like this wait.
    pub async fn arrived(&self, count: usize, like: impl Fn(&Waiting) -> bool) {
        let mut arrived = self.1.arrived.subscribe();
        super::in_time(arrived.wait_for(|_| self.count(&like) >= count))
            .await
            .unwrap();
    }

    /// Waits until a pack waits under another name than these.
    pub async fn another_pack(&self, known: &[String]) -> String {
        let is_new = |put: &Waiting| put.is_pack && !known.contains(&put.key);
        self.arrived(1, is_new).await;
        let state = self.1.state();
        let found = state.waiting.iter().find(|put| is_new(put));
        found.unwrap().key.clone()
    }

    /// Takes out the uploads like this: the caller decides about each.
    pub fn take(&self, like: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut state = self.1.state();
        let (taken, left) = std::mem::take(&mut state.waiting)
            .into_iter()
            .filter(|put| !put.decide.is_closed())
            .partition(|put| like(put));
        state.waiting = left;
        taken
    }

    pub fn let_go(&self, like: impl Fn(&Waiting) -> bool) {
        self.take(like).into_iter().for_each(Waiting::let_go);
    }

    /// Holds nothing any more.
    pub fn let_all_go(&self) {
        self.hold(Hold::Nothing);
        self.let_go(|_| true);
    }

    /// So many deletes fail from now on; answers how many were still to fail.
    pub fn refuse_deletes(&self, count: usize) -> usize {
        std::mem::replace(&mut self.1.state().deletes_refused, count)
    }

    /// Lets only so many files be read at once: a pool of connections.
    pub fn reads_at_once(&self, count: usize) {
        self.1.state().reads = Some(Arc::new(Semaphore::new(count)));
    }

    /// State files and packs that were stored so far, each with its length.
    pub fn stored(&self) -> Vec<(String, u64)> {
        self.1.state().stored.clone()
    }
}

impl OpenStore for Held {
    fn open_store(&self) -> Opening<'_> {
        self.0.open_store()
    }
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Whether the upload is to be made, once that is decided.
    async fn pass(&self, key: &str, is_pack: bool, size_bytes: u64) -> Result<(), Failure> {
        let decided = {
            let mut state = self.state();
            let held = match state.hold {
                Hold::Nothing => false,
                Hold::Packs => is_pack,
                Hold::Everything => true,
            };
            if !held {
                return Ok(());
            }
            let (decide, decided) = oneshot::channel();
            state.waiting.push(Waiting {
                key: key.to_owned(),
                size_bytes,
                is_pack,
                decide,
            });
            decided
        };
        self.arrived.send_modify(|count| *count += 1);
        match decided.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(kind)) => Err(Failure::new(kind, format!("{key}: as the test says"))),
            // The test is over.
            Err(_) => std::future::pending().await,
        }
    }

    async fn connection(&self) -> Option<OwnedSemaphorePermit> {
        let reads = self.state().reads.clone();
        match reads {
            Some(reads) => Some(reads.acquire_owned().await.unwrap()),
            None => None,
        }
    }

    fn refuses(&self) -> bool {
        let mut state = self.state();
        let refused = state.deletes_refused > 0;
        state.deletes_refused = state.deletes_refused.saturating_sub(1);
        refused
    }
}

impl Intercept for Control {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        match operation {
            Operation::Put { size_bytes, from } if name.contains("/shared/") => {
                Box::pin(async move {
                    let is_pack =
                        from.is_none_or(|path| path.to_string_lossy().ends_with(PACK_NAME));
                    if let Err(failure) = self.pass(name, is_pack, size_bytes).await {
                        return Answer::Failed(failure);
                    }
                    let answer = call.await;
                    if matches!(answer, Answer::Done(_)) {
                        self.state().stored.push((name.to_owned(), size_bytes));
                    }
                    answer
                })
            }
            Operation::Get | Operation::Fetch { .. } => Box::pin(async move {
                let _connection = self.connection().await;
                call.await
            }),
            Operation::Delete if self.refuses() => {
                let cause = format!("{name}: as the test says");
                let failure = Failure::new(FailureKind::Unavailable, cause);
                Box::pin(async move { Answer::Failed(failure) })
            }
            _ => call,
        }
    }
}
