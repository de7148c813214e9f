//! Whoever runs the library's tasks: the one place that names what of it two builds call differently.
//!
//! ```text
//! storage, runtime ──> Handle · JoinSet · spawn_blocking ──> tokio
//!                                                       └──> cfg(madsim): the simulated executor
//! ```
//!
//! A user's build takes tokio's as they are. The simulated executor, which this library's own tests
//! run under, has the name and the clock of tokio's but not all of its types: what it lacks stands
//! here, and nowhere else.
//!
//! What this module does not do: `tokio::time`, `tokio::sync` and `tokio::select` are the same to
//! both, and named where they are used.

#[cfg(not(madsim))]
pub(crate) use tokio::{
    runtime::Handle,
    task::{JoinError, JoinSet, spawn_blocking},
};

#[cfg(madsim)]
pub(crate) use simulated::{Handle, JoinError, JoinSet, spawn_blocking};

/// Goes on with a task's panic; whatever else ended the task comes back.
#[cfg(not(madsim))]
pub(crate) fn resume_panic(error: JoinError) -> JoinError {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => error,
    }
}

/// A panic of any task has ended the simulation before anybody could ask.
#[cfg(madsim)]
pub(crate) fn resume_panic(error: JoinError) -> JoinError {
    error
}

#[cfg(madsim)]
mod simulated {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::task::{AbortHandle, JoinHandle};

    pub(crate) use tokio::runtime::Handle;
    pub(crate) use tokio::task::JoinError;

    /// Runs something that blocks: there are no threads, so it is a task of one step, in which no
    /// time passes.
    pub(crate) fn spawn_blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::task::spawn(async move { work() })
    }

    /// Tasks that end with it, as tokio's of that name.
    #[derive(Debug)]
    pub(crate) struct JoinSet<T>(Vec<JoinHandle<T>>);

    impl<T> Default for JoinSet<T> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<T> JoinSet<T> {
        pub(crate) fn new() -> Self {
            Self(Vec::new())
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn abort_all(&self) {
            for task in &self.0 {
                task.abort();
            }
        }

        fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
            for at in 0..self.0.len() {
                if let Poll::Ready(joined) = Pin::new(&mut self.0[at]).poll(context) {
                    drop(self.0.swap_remove(at));
                    return Poll::Ready(Some(joined));
                }
            }
            if self.0.is_empty() {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }

        pub(crate) async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
            poll_fn(|context| self.poll_next(context)).await
        }

        pub(crate) fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
            let at = self.0.iter().position(JoinHandle::is_finished)?;
            let task = self.0.swap_remove(at);
            let mut set = Self(vec![task]);
            let mut context = Context::from_waker(std::task::Waker::noop());
            match set.poll_next(&mut context) {
                Poll::Ready(joined) => joined,
                Poll::Pending => None,
            }
        }
    }

    impl<T: Send + 'static> JoinSet<T> {
        pub(crate) fn spawn(
            &mut self,
            work: impl Future<Output = T> + Send + 'static,
        ) -> AbortHandle {
            self.add(tokio::task::spawn(work))
        }

        pub(crate) fn spawn_on(
            &mut self,
            work: impl Future<Output = T> + Send + 'static,
            on: &Handle,
        ) -> AbortHandle {
            self.add(on.spawn(work))
        }

        pub(crate) fn spawn_blocking_on(
            &mut self,
            work: impl FnOnce() -> T + Send + 'static,
            on: &Handle,
        ) -> AbortHandle {
            self.add(on.spawn(async move { work() }))
        }

        fn add(&mut self, task: JoinHandle<T>) -> AbortHandle {
            let aborts = task.abort_handle();
            self.0.push(task);
            aborts
        }
    }

    impl<T> Drop for JoinSet<T> {
        fn drop(&mut self) {
            self.abort_all();
        }
    }
}
