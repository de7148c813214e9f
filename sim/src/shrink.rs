//! Shrinking: from a failing run to a short story.
//!
//! A run is its profile and its choices, and choice 0 is the benign one. So a run is made shorter
//! by taking choices away, first in large pieces, then one by one, and smaller values are tried for
//! those that stay; whatever still breaks the same promise is kept. Classes of faults that nobody
//! needs are switched off on the way, which takes their choices with them.

use crate::choice::{Choice, Choices, Label};
use crate::faults::Fault;
use crate::profile::{Length, Profile};
use crate::run::{Ended, run};

/// How many runs a shrinking may take.
pub const TRIES: u32 = 3000;

/// A failing run with fewer choices.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What the run is like.
    pub profile: Profile,
    /// The choices that are left.
    pub choices: Vec<Choice>,
    /// How many runs it took.
    pub tries: u32,
}

struct Shrinker {
    promise: &'static str,
    best: Shrunk,
    tries_max: u32,
}

/// Makes a failing run shorter, in at most so many tries.
///
/// # Panics
/// When the run has not failed.
#[must_use]
pub fn shrink(failed: &Ended, tries_max: u32) -> Shrunk {
    let violation = failed.violation.as_ref();
    let promise = violation.expect("only a failing run is shrunk").promise;
    let drawn = |choice: &&Choice| !matches!(choice.label, Label::Profile | Label::FaultClass);
    let mut shrinker = Shrinker {
        promise,
        best: Shrunk {
            profile: failed.profile.clone(),
            choices: failed.choices.iter().filter(drawn).copied().collect(),
            tries: 0,
        },
        tries_max,
    };
    shrinker.shrink();
    shrinker.best
}

impl Shrinker {
    /// Whether this still breaks the promise; if so, it is the best so far.
    fn keeps(&mut self, profile: &Profile, choices: &[Choice]) -> bool {
        if self.best.tries >= self.tries_max {
            return false;
        }
        self.best.tries += 1;
        let ended = run(
            Choices::replayed(choices),
            Length::Short,
            Some(profile.clone()),
            false,
        );
        let breaks = ended
            .violation
            .is_some_and(|found| found.promise == self.promise);
        if breaks {
            // What the run did not come to is gone as well.
            self.best.choices = ended.choices;
            self.best.profile = profile.clone();
        }
        breaks
    }

    fn shrink(&mut self) {
        self.switch_classes_off();
        self.drop_labels();
        let mut before = usize::MAX;
        while self.best.choices.len() < before && self.best.tries < self.tries_max {
            before = self.best.choices.len();
            self.drop_pieces();
        }
        self.lower_values();
    }

    fn switch_classes_off(&mut self) {
        for fault in Fault::ALL {
            if self.best.profile.intensity(*fault) > 0 {
                let mut profile = self.best.profile.clone();
                profile.set_intensity(*fault, 0);
                let choices = self.best.choices.clone();
                self.keeps(&profile, &choices);
            }
        }
    }

    fn drop_labels(&mut self) {
        for label in Label::ALL {
            let fewer: Vec<_> = self.without(|choice| choice.label == *label);
            if fewer.len() < self.best.choices.len() {
                let profile = self.best.profile.clone();
                self.keeps(&profile, &fewer);
            }
        }
    }

    fn without(&self, gone: impl Fn(&Choice) -> bool) -> Vec<Choice> {
        let choices = self.best.choices.iter().copied();
        choices.filter(|choice| !gone(choice)).collect()
    }

    /// Takes pieces away, half of the choices at once, then smaller ones.
    fn drop_pieces(&mut self) {
        let mut size = self.best.choices.len().div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < self.best.choices.len() {
                let mut fewer = self.best.choices.clone();
                let end = (start + size).min(fewer.len());
                fewer.drain(start..end);
                let profile = self.best.profile.clone();
                if !self.keeps(&profile, &fewer) {
                    start += size;
                }
                if self.best.tries >= self.tries_max {
                    return;
                }
            }
            size /= 2;
        }
    }

    fn lower_values(&mut self) {
        let mut index = 0;
        while index < self.best.choices.len() && self.best.tries < self.tries_max {
            if self.best.choices[index].value > 1 {
                let mut lower = self.best.choices.clone();
                lower[index].value = 1;
                let profile = self.best.profile.clone();
                self.keeps(&profile, &lower);
            }
            index += 1;
        }
    }
}
