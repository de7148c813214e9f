//! SIGINT and SIGTERM: the first one ends a command at its next seed, so that it tells what it has
//! found; a second one ends the process at once.
//!
//! Only commands that look for it heed them. All others die of them, as processes do.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Exit;
use super::output::complain;

/// The status that the first signal asks for; 0 before it.
static ASKED: AtomicU8 = AtomicU8::new(0);

/// Heeds them from now on.
///
/// # Errors
/// What the system says if it does not let signals be heeded.
pub(super) fn heed() -> Result<(), String> {
    let failed = |error| format!("signals can't be heeded: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let entered = runtime.enter();
    let mut interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(failed)?;
    drop(entered);
    std::thread::spawn(move || {
        loop {
            let exit = runtime.block_on(next(&mut interrupts, &mut terminations));
            if ASKED.swap(exit.code(), Ordering::Relaxed) != 0 {
                std::process::exit(i32::from(exit.code()));
            }
            complain!("ending after what is under way; once more ends at once");
        }
    });
    Ok(())
}

async fn next(interrupts: &mut Signal, terminations: &mut Signal) -> Exit {
    poll_fn(|context| {
        if interrupts.poll_recv(context).is_ready() {
            Poll::Ready(Exit::Interrupted)
        } else if terminations.poll_recv(context).is_ready() {
            Poll::Ready(Exit::Terminated)
        } else {
            Poll::Pending
        }
    })
    .await
}

/// Whether one has come.
pub(super) fn came() -> bool {
    ASKED.load(Ordering::Relaxed) != 0
}

/// What the last line of a text says of it.
pub(super) fn words() -> &'static str {
    if came() { "; interrupted" } else { "" }
}

/// A document that is a list: as it is, unless it is cut short.
pub(super) fn document(rows: Value) -> Value {
    if came() {
        json!({"interrupted": true, "rows": rows})
    } else {
        rows
    }
}

/// The status to end with if one has come, whatever was found.
pub(super) fn or(exit: Exit) -> Exit {
    let asked = ASKED.load(Ordering::Relaxed);
    let mut all = Exit::ALL.into_iter();
    let of_signal = all.find(|exit| asked != 0 && exit.code() == asked);
    of_signal.unwrap_or(exit)
}
