//! Shrinking: from a failing run to a short story.
//!
//! A run is its choices, and choice 0 is the benign one. So a run is made shorter by taking choices
//! away, first whole classes of faults and settings, then large pieces, then one by one, and
//! smaller values are tried for those that stay; whatever still breaks the same promise is kept.
//! What the profile is drawn from are choices as well and shrinks with them.

use crate::choice::{Choice, Choices, Label};
use crate::profile::{Length, Profile};
use crate::run::{Attention, Ended, run};

/// How many runs a shrinking may take.
pub const TRIES: u32 = 6000;

/// How far from its place a choice is tried while others are taken away.
const AIM_DISTANCE: u32 = 12;

/// What shifts others in time and does nothing else.
const DELAYS: &[Label] = &[
    Label::StoreDelay,
    Label::MessageDelay,
    Label::LocalDelay,
    Label::Workload,
];

/// The longest that each of the first three can be.
const DELAY_MAX: u32 = 3;
/// How far apart two delays may stand that are made one.
const JOIN_REACH: usize = 6;

/// Whether a choice is a delay whose longest is [`DELAY_MAX`].
fn is_delay(choice: &Choice) -> bool {
    matches!(
        choice.label,
        Label::StoreDelay | Label::MessageDelay | Label::LocalDelay
    )
}

/// A failing run with fewer choices.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What the run is like.
    pub profile: Profile,
    /// Events of the part with faults.
    pub events: u64,
    /// The choices that are left, those of the profile among them.
    pub choices: Vec<Choice>,
    /// How many runs it took.
    pub tries: u32,
}

impl Shrunk {
    /// The choices that are left of what happens.
    #[must_use]
    pub fn steps(&self) -> Vec<Choice> {
        let choices = self.choices.iter().copied();
        choices.filter(|choice| !is_setting(choice)).collect()
    }

    /// How many choices are left of what the world is like.
    #[must_use]
    pub fn setting_count(&self) -> usize {
        self.choices.len() - self.steps().len()
    }

    /// Runs it and listens.
    #[must_use]
    pub fn tell(&self) -> Ended {
        replayed(&self.choices, self.events, Attention::Story)
    }
}

/// Runs choices, those of the profile among them, with faults for so many events.
fn replayed(choices: &[Choice], events: u64, attention: Attention) -> Ended {
    let mut choices = Choices::replayed(choices);
    let mut profile = Profile::draw(&mut choices, Length::Short);
    profile.safety_events = events;
    run(choices, Length::Short, Some(profile), attention)
}

/// Whether a choice says what the world is like, not what happens in it.
#[must_use]
pub fn is_setting(choice: &Choice) -> bool {
    matches!(choice.label, Label::Profile | Label::FaultClass)
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
    let violation = violation.expect("only a failing run is shrunk");
    let mut shrinker = Shrinker {
        promise: violation.promise,
        best: Shrunk {
            profile: failed.profile.clone(),
            events: failed.profile.safety_events,
            choices: failed.choices.clone(),
            tries: 0,
        },
        tries_max,
    };
    shrinker.shrink();
    shrinker.best
}

impl Shrinker {
    /// Whether this still breaks the promise; if so, it is the best so far.
    fn keeps(&mut self, events: u64, choices: &[Choice]) -> bool {
        if self.best.tries >= self.tries_max {
            return false;
        }
        self.best.tries += 1;
        let ended = replayed(choices, events, Attention::None);
        let breaks = ended
            .violation
            .is_some_and(|found| found.promise == self.promise);
        if breaks {
            // What the run did not come to is gone as well.
            self.best.choices = ended.choices;
            self.best.profile = ended.profile;
            self.best.events = events;
        }
        breaks
    }

    fn shrink(&mut self) {
        let all = self.best.choices.clone();
        self.keeps(Profile::benign().safety_events, &all);
        self.drop_settings();
        self.drop_labels();
        let mut before = usize::MAX;
        while self.best.choices.len() < before && self.best.tries < self.tries_max {
            before = self.best.choices.len();
            self.drop_pieces();
            self.aim_anew();
            self.join_delays();
            self.lower_values();
        }
    }

    /// Many small delays often do nothing but let a fault strike the right request. They go, and
    /// the fault is aimed at its neighbours instead.
    fn aim_anew(&mut self) {
        for label in DELAYS {
            let all = self.best.choices.iter();
            let delays = all.filter(|choice| choice.label == *label).count();
            for part in [delays, delays / 2, delays / 4] {
                if part < 2 || !self.aim_without(*label, part) {
                    continue;
                }
                self.drop_pieces();
                break;
            }
        }
    }

    /// Several short delays are often one long one: the first grows, and another goes.
    fn join_delays(&mut self) {
        let mut first = 0;
        while first < self.best.choices.len() {
            let mut other = first + 1;
            let reach = (first + JOIN_REACH).min(self.best.choices.len());
            let mut joined = false;
            while other < reach && !joined && self.best.tries < self.tries_max {
                let choices = &self.best.choices;
                if is_delay(&choices[first]) && is_delay(&choices[other]) {
                    let mut fewer = choices.clone();
                    fewer[first].value = DELAY_MAX;
                    fewer.remove(other);
                    joined = self.keeps(self.best.events, &fewer);
                }
                other += 1;
            }
            first += usize::from(!joined);
        }
    }

    /// Takes so many of a label's choices away, the last ones first, and aims each other choice anew.
    fn aim_without(&mut self, label: Label, part: usize) -> bool {
        let mut fewer = self.best.choices.clone();
        let mut left = part;
        for index in (0..fewer.len()).rev() {
            if left > 0 && fewer[index].label == label {
                fewer.remove(index);
                left -= 1;
            }
        }
        for index in 0..fewer.len() {
            if is_setting(&fewer[index]) || DELAYS.contains(&fewer[index].label) {
                continue;
            }
            let place = fewer[index].place;
            for distance in 1..=AIM_DISTANCE {
                for aimed in [place.checked_sub(distance), place.checked_add(distance)] {
                    let Some(aimed) = aimed else {
                        continue;
                    };
                    fewer[index].place = aimed;
                    if self.keeps(self.best.events, &fewer) {
                        return true;
                    }
                }
            }
            fewer[index].place = place;
        }
        false
    }

    /// Classes of faults and settings, one by one: with a class go all choices that it alone has.
    fn drop_settings(&mut self) {
        let settings = self.best.choices.iter().copied();
        let settings: Vec<Choice> = settings.filter(is_setting).collect();
        for setting in settings {
            let fewer = self.without(|choice| *choice == setting);
            self.keeps(self.best.events, &fewer);
        }
    }

    fn drop_labels(&mut self) {
        for label in Label::ALL {
            let fewer = self.without(|choice| choice.label == *label);
            if fewer.len() < self.best.choices.len() {
                self.keeps(self.best.events, &fewer);
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
                if !self.keeps(self.best.events, &fewer) {
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
            let value = self.best.choices[index].value;
            for lower in [1, value / 2] {
                if lower > 0 && lower < self.best.choices[index].value {
                    let mut lowered = self.best.choices.clone();
                    lowered[index].value = lower;
                    if self.keeps(self.best.events, &lowered) {
                        break;
                    }
                }
            }
            index += 1;
        }
    }
}
