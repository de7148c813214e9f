//! Progress on standard error, if that is a terminal; nothing otherwise.

use std::future::Future;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stillpoint::RestoreProgress;

const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// A bar of bytes that `work` moves, from when it is known how many they are.
pub async fn of_bytes<T>(
    what: &str,
    progress: &RestoreProgress,
    work: impl Future<Output = T>,
) -> T {
    const TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    let mut shown: Option<ProgressBar> = None;
    let result = follow(work, || {
        let total_bytes = progress.total_bytes();
        if total_bytes > 0 {
            let bar = shown.get_or_insert_with(|| bar(TEMPLATE, what, total_bytes));
            bar.set_length(total_bytes);
            bar.set_position(progress.fetched_bytes());
        }
    });
    let result = result.await;
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    result
}

/// A sign of life while `work` goes on.
pub async fn of_waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    let bar = bar("{spinner} {msg} {elapsed}", what, 1);
    let result = follow(work, || bar.tick()).await;
    bar.finish_and_clear();
    result
}

/// A bar that the caller moves.
#[cfg(feature = "rocksdb")]
pub fn of_steps(what: &str, steps: u64) -> ProgressBar {
    bar(
        "{msg} {wide_bar} {human_pos}/{human_len}, {eta} left",
        what,
        steps,
    )
}

fn bar(template: &str, what: &str, length: u64) -> ProgressBar {
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

async fn follow<T>(work: impl Future<Output = T>, mut redraw: impl FnMut()) -> T {
    let mut ticks = tokio::time::interval(REDRAWN_EVERY);
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result,
            _ = ticks.tick() => redraw(),
        }
    }
}
