//! Many tasks of one kind, a few at a time.

use std::ops::ControlFlow;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::JoinSet;

/// Runs tasks beside each other, so many at once, and tells the end of each as it comes. Once that is
/// answered with a break, no more are begun. Returns when all that were begun have ended; dropped, it
/// ends them.
pub(super) async fn side_by_side<T: Send + 'static>(
    at_once: usize,
    mut tasks: impl Iterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
    mut ended: impl FnMut(Result<T>) -> ControlFlow<()>,
) {
    let mut running = JoinSet::new();
    let mut flow = ControlFlow::Continue(());
    loop {
        while flow.is_continue() && running.len() < at_once {
            let Some(task) = tasks.next() else { break };
            running.spawn(task);
        }
        let Some(joined) = running.join_next().await else {
            return;
        };
        let result = joined.unwrap_or_else(|error| {
            let cause = format!("a task failed: {error}");
            Err(Error::new(ErrorKind::Internal, cause))
        });
        if ended(result).is_break() {
            flow = ControlFlow::Break(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn so_many_at_once_and_none_after_a_break() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut begun = 0;
        let tasks = (0..100).map(|number| {
            begun += 1;
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                match number {
                    7 => panic!("it is told like any other end"),
                    20 => Err(Error::new(ErrorKind::Other, "the first")),
                    _ => Ok(number),
                }
            }
        });
        let mut ends = Vec::new();
        side_by_side(4, tasks, |end| {
            let is_first = matches!(&end, Err(error) if error.kind() == ErrorKind::Other);
            ends.push(end);
            if is_first {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .await;
        assert_eq!(most.load(Ordering::SeqCst), 4);
        assert_eq!(ends.len(), begun, "all that were begun have ended");
        assert!((21..30).contains(&begun), "{begun}");
        let panics = ends.iter().filter_map(|end| end.as_ref().err());
        assert_eq!(
            panics
                .filter(|error| error.kind() == ErrorKind::Internal)
                .count(),
            1
        );
    }
}
