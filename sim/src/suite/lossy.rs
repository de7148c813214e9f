//! What comes between a caller and a store: requests and answers that are lost, callers that die.

use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::storage::{Call, Intercept, Operation};

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    /// Nothing is lost.
    #[default]
    Passes,
    /// It never reaches the store.
    LostRequest,
    /// It is carried out, but the caller does not hear so.
    LostAnswer,
    /// The caller dies when it has asked so often whether the call is done.
    Killed {
        /// How often.
        polls: u32,
    },
}

/// What the caller of the last call has not heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unheard {
    /// The store was never asked.
    NotSent,
    /// This was answered.
    Answered(Answer<()>),
    /// It was dropped on its way.
    Dropped,
}

/// Lets each call have the fate that was set for it.
#[derive(Debug, Default)]
pub struct Lossy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    fate: Fate,
    unheard: Option<Unheard>,
}

impl Lossy {
    /// Sets what becomes of the next call; those after it pass.
    pub fn set(&self, fate: Fate) {
        self.with(|state| state.fate = fate);
    }

    /// What was not heard of the last call, if so.
    pub fn take_unheard(&self) -> Option<Unheard> {
        self.with(|state| state.unheard.take())
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lose<T>(&self, unheard: Unheard) -> Answer<T> {
        self.with(|state| state.unheard = Some(unheard));
        Answer::Unknown(Failure::new(FailureKind::Deadline, "no answer"))
    }
}

impl Intercept for Lossy {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        _operation: Operation,
        _name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        Box::pin(async move {
            match self.with(|state| mem::take(&mut state.fate)) {
                Fate::Passes => call.await,
                Fate::LostRequest => self.lose(Unheard::NotSent),
                Fate::LostAnswer => {
                    let answer = call.await.map(|_| ());
                    self.lose(Unheard::Answered(answer))
                }
                Fate::Killed { polls } => match killed(call, polls).await {
                    Some(answer) => answer,
                    None => self.lose(Unheard::Dropped),
                },
            }
        })
    }
}

/// The answer, if it comes before the call has been polled so often.
async fn killed<T>(call: Call<'_, T>, polls: u32) -> Option<Answer<T>> {
    let mut call = call;
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
