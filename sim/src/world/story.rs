//! What a run tells a person: one line an event, in lanes, and the facts behind them. It is no part
//! of the world's state.
//!
//! ```text
//! world --Line--> Story <--(time, Fact)-- watch       replay prints the lines;
//!           choice that is not the benign one          the page draws lines and facts
//! ```
//!
//! Invariant: whoever listens changes nothing. Nobody reads a story to decide anything.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use stillpoint::protocol::id::CheckpointId;

use crate::choice::Choice;
use crate::faults::Fault;
use crate::oracle::facts::{Fact, ProcessId};

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
    /// When it was sent or asked for, in microseconds, of what was under way until now.
    pub since: Option<u64>,
    /// How long it lasts from now, in microseconds, of a process that stands still.
    pub until: Option<u64>,
}

impl Line {
    /// A line about one lane.
    #[must_use]
    pub fn new(at: u64, lane: String, kind: Kind, text: String) -> Self {
        Self {
            at,
            lane,
            kind,
            text,
            from: None,
            since: None,
            until: None,
        }
    }
}

/// What kind of thing a line tells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A process is born.
    Begin,
    /// A process ends, in whatever way.
    End,
    /// A process stands still.
    Pause,
    /// A process is somewhere else in its life.
    Process,
    /// A message arrives.
    Message,
    /// A barrier arrives. No line is of this kind before there are channels.
    Barrier,
    /// An attempt takes its cut, or has restored one.
    Cut,
    /// Somebody asks the store for something.
    Call,
    /// The store's answer arrives.
    Answer,
    /// The store changes.
    Store,
    /// A commit becomes durable.
    Commit,
    /// A coordinator tells its user something.
    Notice,
    /// A fault strikes.
    Fault,
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Begin,
        Self::End,
        Self::Pause,
        Self::Process,
        Self::Message,
        Self::Barrier,
        Self::Cut,
        Self::Call,
        Self::Answer,
        Self::Store,
        Self::Commit,
        Self::Notice,
        Self::Fault,
    ];

    /// Its name on the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::End => "end",
            Self::Pause => "pause",
            Self::Process => "process",
            Self::Message => "message",
            Self::Barrier => "barrier",
            Self::Cut => "cut",
            Self::Call => "call",
            Self::Answer => "answer",
            Self::Store => "store",
            Self::Commit => "commit",
            Self::Notice => "notice",
            Self::Fault => "fault",
        }
    }
}

/// How far a coordinator has come with a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// It waits for acknowledgements.
    Pending,
    /// All are in; it waits for its commit.
    Committing,
    /// It is over for this coordinator, whatever became of it.
    Over,
}

/// A choice that was not the benign one, and where it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToldChoice {
    /// The choice.
    pub choice: Choice,
    /// When, in microseconds.
    pub at: u64,
    /// In which event, in words.
    pub during: String,
    /// The first line of that event, by its index.
    pub line: usize,
    /// The first line after it.
    pub line_end: usize,
}

/// All that was told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The lines, in order.
    pub lines: Vec<Line>,
    /// The facts and their times in microseconds, in order.
    pub facts: Vec<(u64, Fact)>,
    /// The choices that were not benign, in order.
    pub choices: Vec<ToldChoice>,
    /// Each change of a checkpoint's phase in a coordinator, with its time in microseconds.
    pub phases: Vec<(u64, ProcessId, CheckpointId, Phase)>,
}

impl Told {
    /// The fault that struck in the event in which a choice was made, if one did; of several lines
    /// the last, which says most.
    #[must_use]
    pub fn fault_of(&self, choice: &ToldChoice) -> Option<&Line> {
        let of_event = self.lines[choice.line.min(choice.line_end)..choice.line_end].iter();
        of_event.rev().find(|line| line.kind == Kind::Fault)
    }
}

/// What was told, if anybody listens.
#[derive(Clone, Debug, Default)]
pub struct Story {
    told: Option<Box<Told>>,
    /// Messages and calls under way: to and from whom, what, and when they were sent.
    under_way: BTreeMap<(String, String, String), Vec<u64>>,
    phases: BTreeMap<(ProcessId, CheckpointId), Phase>,
    /// The faults of the running event that have been told in words.
    faults: Vec<Fault>,
}

impl Story {
    /// A story that is told.
    #[must_use]
    pub fn told() -> Self {
        Self {
            told: Some(Box::default()),
            ..Self::default()
        }
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Adds a line, if anybody listens.
    pub fn tell(&mut self, line: impl FnOnce() -> Line) {
        if let Some(told) = &mut self.told {
            told.lines.push(line());
        }
    }

    /// Adds a line about a fault that strikes, if anybody listens.
    pub fn tell_fault(&mut self, fault: Fault, line: impl FnOnce() -> Line) {
        if self.told.is_some() {
            self.faults.push(fault);
            self.tell(line);
        }
    }

    /// Adds a line before those that follow from it, if anybody listens.
    pub fn tell_before(&mut self, index: usize, line: Line) {
        if let Some(told) = &mut self.told {
            told.lines.insert(index.min(told.lines.len()), line);
        }
    }

    /// The faults that were told in words since the last call.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Adds choices that were made in one event, if anybody listens.
    pub fn note_choices(&mut self, at: u64, during: &str, line: usize, choices: &[Choice]) {
        if let Some(told) = &mut self.told {
            let line_end = told.lines.len();
            told.choices.extend(choices.iter().map(|choice| ToldChoice {
                choice: *choice,
                at,
                during: during.to_owned(),
                line,
                line_end,
            }));
        }
    }

    /// Notes that something has been sent, if anybody listens.
    pub fn send(&mut self, at: u64, from: &str, to: &str, what: &str) {
        if self.told.is_some() {
            let key = (to.to_owned(), from.to_owned(), what.to_owned());
            self.under_way.entry(key).or_default().push(at);
        }
    }

    /// When what arrives now was sent; the earliest of equal ones.
    pub fn arrive(&mut self, from: &str, to: &str, what: &str) -> Option<u64> {
        let key = (to.to_owned(), from.to_owned(), what.to_owned());
        let sent = self.under_way.get_mut(&key)?;
        (!sent.is_empty()).then(|| sent.remove(0))
    }

    /// Notes the phases that a coordinator's checkpoints are in now, if anybody listens.
    pub fn note_phases(
        &mut self,
        at: u64,
        process: ProcessId,
        now: impl Iterator<Item = (CheckpointId, Phase)>,
    ) {
        let Some(told) = &mut self.told else {
            return;
        };
        let now: BTreeMap<CheckpointId, Phase> = now.collect();
        for (checkpoint, phase) in &now {
            if self.phases.insert((process, *checkpoint), *phase) != Some(*phase) {
                told.phases.push((at, process, *checkpoint, *phase));
            }
        }
        self.phases.retain(|(other, checkpoint), _| {
            let stays = *other != process || now.contains_key(checkpoint);
            if !stays {
                told.phases.push((at, process, *checkpoint, Phase::Over));
            }
            stays
        });
    }

    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        self.told.as_ref().map_or(&[], |told| &told.lines)
    }

    /// How many lines there are.
    #[must_use]
    pub fn line_count(&self) -> usize {
        self.lines().len()
    }

    /// What was told; nothing if nobody listened.
    #[must_use]
    pub fn take_told(&mut self) -> Told {
        self.told.take().map_or_else(Told::default, |told| *told)
    }
}

/// The facts of a run with their times in microseconds, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub struct FactLog(Option<Vec<(u64, Fact)>>);

impl FactLog {
    /// A log that is kept.
    #[must_use]
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    /// Adds a fact, if anybody wants it.
    pub fn note(&mut self, at: u64, fact: &Fact) {
        if let Some(facts) = &mut self.0 {
            facts.push((at, fact.clone()));
        }
    }

    /// The facts so far; none if nobody wants them.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.0.iter().flatten().map(|(_, fact)| fact)
    }

    /// The facts; none if nobody wanted them.
    #[must_use]
    pub fn take(&mut self) -> Vec<(u64, Fact)> {
        self.0.take().unwrap_or_default()
    }
}

macro_rules! equal_whoever_listens {
    ($($kind:ident),*) => {
        $(
            impl PartialEq for $kind {
                fn eq(&self, _: &Self) -> bool {
                    true
                }
            }

            impl Eq for $kind {}

            impl Hash for $kind {
                fn hash<H: Hasher>(&self, _: &mut H) {}
            }
        )*
    };
}

// Two worlds are equal whoever listens to them.
equal_whoever_listens!(Story, FactLog);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_arrives_knows_when_it_was_sent() {
        let mut story = Story::told();
        story.send(1, "a", "b", "hello");
        story.send(5, "a", "b", "hello");
        assert_eq!(story.arrive("a", "b", "hello"), Some(1));
        assert_eq!(story.arrive("a", "b", "hello"), Some(5));
        assert_eq!(story.arrive("a", "b", "hello"), None);
    }

    #[test]
    fn a_phase_is_told_once_and_ends() {
        let mut story = Story::told();
        let (process, checkpoint) = (ProcessId(0), CheckpointId(1));
        for at in [1, 2] {
            story.note_phases(at, process, [(checkpoint, Phase::Pending)].into_iter());
        }
        story.note_phases(3, process, std::iter::empty());
        let phases = story.take_told().phases;
        assert_eq!(
            phases,
            [
                (1, process, checkpoint, Phase::Pending),
                (3, process, checkpoint, Phase::Over),
            ]
        );
    }

    #[test]
    fn nobody_listens_by_default() {
        let mut story = Story::default();
        story.tell(|| unreachable!("nobody listens"));
        assert!(story.take_told().lines.is_empty());
    }
}
