//! Closing a participant: once begun it goes on to its end, whoever waits for that.
//!
//! ```text
//! close() ──begins──> the subtask owns nothing ──> the coordinator resigns ──> the tasks have ended
//!    └──── waits for the outcome, as any number of callers may; none of them has to ────┘
//! ```
//!
//! Invariant: it takes no longer than [`Config::close_deadline`](crate::Config::close_deadline);
//! after that the participant has come to its end, one way or the other.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::core::{Input, Standing};
use super::driver::Driver;
use super::end;
use crate::error::{Error, Phase};
use crate::executor::spawn_blocking;
use crate::protocol::coordinator::Event;

type Outcome = Option<Result<(), Error>>;

/// The closing of a participant, once somebody has asked for it.
#[derive(Default)]
pub(super) struct Closing(OnceLock<watch::Receiver<Outcome>>);

impl Driver {
    /// Shuts down: the subtask gives up what is its own, the coordinator resigns, every task ends.
    /// `session` is kept until then. A caller that is dropped stops waiting and nothing else.
    pub(super) async fn close(self: &Arc<Self>, session: impl Send + 'static) -> Result<(), Error> {
        let begin = || {
            let told = watch::Sender::new(None);
            let outcome = told.subscribe();
            self.close_subtask();
            let driver = Arc::clone(self);
            self.around.runtime.spawn(async move {
                told.send_replace(Some(driver.close_in_time().await));
                drop(session);
            });
            outcome
        };
        let mut outcome = self.closing.0.get_or_init(begin).clone();
        let closed = outcome.wait_for(Option::is_some).await;
        match closed.as_deref() {
            Ok(Some(closed)) => closed.clone(),
            Ok(None) | Err(_) => Err(self.about(end::without_runtime()).with_phase(Phase::Close)),
        }
    }

    async fn close_in_time(self: &Arc<Self>) -> Result<(), Error> {
        let deadline = self.around.config.close_deadline;
        // What took too long is given up below.
        let _ = tokio::time::timeout(deadline, self.close_now()).await;
        let closed = self.closed();
        let late = self.late(format!(
            "not closed within {} ms; the next claim puts in order what is left",
            deadline.as_millis()
        ));
        self.abandon();
        closed.unwrap_or_else(|| Err(late.with_phase(Phase::Close)))
    }

    async fn close_now(self: &Arc<Self>) {
        let mut standing = self.standing();
        let ended = |standing: &Standing| match standing {
            Standing::Ended(_) | Standing::SubtaskClosed => true,
            Standing::Claiming | Standing::Leading => false,
        };
        // The sender lives in this driver's core.
        let _ = standing.wait_for(ended).await;
        self.step(Input::Coordinator(Event::Close));
        let ended = |standing: &Standing| matches!(standing, Standing::Ended(_));
        let _ = standing.wait_for(ended).await;
        let mut tasks = self.take_tasks();
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        // Whoever closes the state next finds nobody else at it.
        let held = self.let_go();
        let _ = spawn_blocking(move || drop(held)).await;
    }
}
