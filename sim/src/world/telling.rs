//! What the world tells of itself, if anybody listens: nothing here changes what happens.

use super::story::{FactLog, Kind, Line, Phase, Story, Told};
use super::{Happening, World, words};
use crate::choice::Choices;
use crate::faults::Fault;
use crate::oracle::facts::ProcessId;

impl World {
    /// Lets something happen and tells what the world alone knows of it: its choices, and the faults
    /// that struck.
    pub(super) fn happen_and_tell(&mut self, happening: Happening, choices: &mut Choices) {
        let (lane, mut during) = words::happening(&happening);
        if let Happening::StoreStep(id) = &happening
            && let Some(operation) = self.operations.get(id)
        {
            during = operation.describe();
        }
        let line = self.story.line_count();
        let made = choices.made().len();
        let struck = self.struck.clone();
        self.happen(happening, choices);
        let at = self.now;
        let told = self.story.take_faults();
        for fault in Fault::ALL {
            if self.struck.count(*fault) > struck.count(*fault) && !told.contains(fault) {
                let mut text = fault.name().replace('-', " ");
                if lane != "faults" {
                    text = format!("{text}, during: {during}");
                }
                let told = Line::new(at, lane.clone(), Kind::Fault, text);
                self.story.tell_before(line, told);
            }
        }
        let during = format!("{lane}: {during}");
        self.story
            .note_choices(at, &during, line, &choices.made()[made..]);
    }

    /// Has the story and the facts told from now on.
    pub fn listen(&mut self) {
        self.story = Story::told();
        self.watch.log = FactLog::kept();
    }

    /// What was told; nothing more is from now on.
    pub fn take_told(&mut self) -> Told {
        Told {
            facts: self.watch.log.take(),
            ..self.story.take_told()
        }
    }

    /// Tells how far a coordinator has come with its checkpoints.
    pub(super) fn tell_phases(&mut self, id: ProcessId) {
        if !self.story.is_told() {
            return;
        }
        if let Some(process) = self.coordinators.get(&id) {
            let view = process.machine.view();
            let pending = view.pending.keys().map(|id| (*id, Phase::Pending));
            let committing = view.committing.keys().map(|id| (*id, Phase::Committing));
            self.story
                .note_phases(self.now, id, pending.chain(committing));
        }
    }

    /// Tells of a process that stands still.
    pub(super) fn tell_pause(&mut self, lane: String, until: u64) {
        let at = self.now;
        self.story.tell(|| Line {
            until: Some(until),
            ..Line::new(
                at,
                lane,
                Kind::Pause,
                format!("stands still for {} ms", until.saturating_sub(at) / 1000),
            )
        });
    }
}
