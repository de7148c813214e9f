//! What a run tells a person: one line an event, in lanes. It is no part of the world's state.

use std::hash::{Hash, Hasher};

/// One thing that a person sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// When, in microseconds.
    pub at: u64,
    /// Whose lane it stands in.
    pub lane: String,
    /// What kind of thing it is, which decides how it is drawn.
    pub kind: Kind,
    /// What happened.
    pub text: String,
    /// The lane of the other side, for messages and calls.
    pub from: Option<String>,
}

/// What kind of thing a line tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message or answer arrives.
    Message,
    /// The store changes.
    Store,
    /// A process is born, dies, stops or wakes up.
    Process,
    /// A coordinator tells its user something.
    Notice,
    /// A fault strikes.
    Fault,
    /// A commit becomes durable.
    Commit,
}

/// The lines, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub struct Story {
    lines: Option<Vec<Line>>,
}

impl Story {
    /// A story that is told.
    #[must_use]
    pub fn told() -> Self {
        Self {
            lines: Some(Vec::new()),
        }
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds a line, if anybody listens.
    pub fn tell(&mut self, line: impl FnOnce() -> Line) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        self.lines.as_deref().unwrap_or_default()
    }
}

// Two worlds are equal whoever listens to them.
impl PartialEq for Story {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Story {}

impl Hash for Story {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
