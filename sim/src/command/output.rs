//! What goes to standard output and standard error.
//!
//! Whoever reads may have had enough: a pipe that is closed ends nothing but the printing. A full
//! disk is an error, which is told at the end and never hides a broken promise.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::exit::Exit;

/// Why nothing more can be printed.
static TROUBLE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Whether anything was printed on standard output.
static SAID: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output.
macro_rules! say {
    () => { $crate::command::output::line(format_args!("")) };
    ($($words:tt)*) => { $crate::command::output::line(format_args!($($words)*)) };
}

/// Prints a line on standard error.
macro_rules! complain {
    ($($words:tt)*) => { $crate::command::output::error_line(format_args!($($words)*)) };
}

pub(super) use {complain, say};

pub(super) fn line(words: Arguments<'_>) {
    let mut trouble = TROUBLE.lock().unwrap_or_else(PoisonError::into_inner);
    if trouble.is_some() {
        return;
    }
    SAID.store(true, Ordering::Relaxed);
    if let Err(error) = writeln!(io::stdout().lock(), "{words}") {
        *trouble = Some(error);
    }
}

/// Tells what went wrong; as the one document too, where that is wanted and there is none yet.
pub(super) fn fail(failed: &str, json: bool) {
    complain!("error: {failed}");
    if json && !SAID.load(Ordering::Relaxed) {
        say!("{}", json!({"error": failed}));
    }
}

pub(super) fn error_line(words: Arguments<'_>) {
    // There is nobody left to tell if that fails.
    let _ = writeln!(io::stderr().lock(), "{words}");
}

/// Whether printing more is of no use.
pub(super) fn is_over() -> bool {
    let trouble = TROUBLE.lock().unwrap_or_else(PoisonError::into_inner);
    trouble.is_some()
}

/// Ends the printing: the status to end with, which is the given one if all could be printed, if
/// nobody wanted it, or if there is something graver to be said.
pub(super) fn end(exit: Exit) -> Exit {
    let mut trouble = TROUBLE.lock().unwrap_or_else(PoisonError::into_inner);
    let flushed = io::stdout().lock().flush();
    after(trouble.take().map_or(flushed, Err), exit)
}

/// The status to end with after something was printed, or could not be.
pub(super) fn after(printed: io::Result<()>, exit: Exit) -> Exit {
    let Some(error) = printed
        .err()
        .filter(|error| error.kind() != ErrorKind::BrokenPipe)
    else {
        return exit;
    };
    complain!("error: can't write to standard output: {error}");
    exit.unless_unprinted()
}
