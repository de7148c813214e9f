//! How far a command is, on a terminal and nowhere else.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, or nothing if that is no terminal.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Of so many seeds.
    pub(super) fn of_seeds(total: u64) -> Self {
        Self::new(total, "{pos} of {len} seeds {wide_bar} {eta} left")
    }

    /// Of so much time; the message says the rest.
    pub(super) fn of_time(total: Duration) -> Self {
        Self::new(total.as_secs(), "{elapsed} of {len} s {wide_bar} {msg}")
    }

    fn new(total: u64, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// One more is done.
    pub(super) fn advance(&self) {
        self.0.inc(1);
    }

    /// So much time is over, with these words.
    pub(super) fn at(&self, elapsed: Duration, words: String) {
        self.0.set_position(elapsed.as_secs());
        self.0.set_message(words);
    }

    /// Takes it off the terminal.
    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}
