//! The one source of choices. Nothing else in the simulator draws.
//!
//! ```text
//! seeded     draws each choice from a generator
//! replayed   answers the n-th choice of a label with what a list says, everything else with 0
//! scripted   answers choice after choice from a list, then with 0: an explorer counts through it
//! ```
//!
//! A script can be for some labels alone; every other choice is 0 then and takes nothing from it.
//!
//! Choice 0 is always the benign one: nothing fails, nothing is late. So an empty list is a run
//! without faults, and shrinking a failing run is deleting entries of its list. A replayed choice
//! is found by its label, by what it is about (an upload, an acknowledgement, ...) and by its place
//! among those, so that deleting one does not shift the others, and that "the fourth upload fails"
//! means so on later revisions as well.
//!
//! Invariant: no floats; the same source gives the same choices on every machine and build.

use std::collections::BTreeMap;
use std::fmt;

/// A probability as a ratio of integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Ratio {
    /// How many ...
    pub of: u32,
    /// ... in how many.
    pub among: u32,
}

impl Ratio {
    /// Never.
    pub const NEVER: Self = Self { of: 0, among: 1 };

    /// One in `among`.
    #[must_use]
    pub const fn one_in(among: u32) -> Self {
        Self { of: 1, among }
    }

    /// So many times as seldom.
    #[must_use]
    pub const fn rarer(self, times: u32) -> Self {
        Self {
            of: self.of,
            among: self.among * times,
        }
    }

    /// Whether it can happen at all.
    #[must_use]
    pub const fn is_possible(self) -> bool {
        self.of > 0
    }
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $words:literal;)*) => {
        /// What is chosen. The text names it in stories and scenario files.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Label { $($(#[$doc])* $name,)* }

        impl Label {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What another choice than the benign one does, in words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }

            /// The one with this name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|label| label.name() == name)
            }
        }
    };
}

labels! {
    /// What the profile is made of.
    Profile = "profile", "what the world is like";
    /// Which faults the profile has.
    FaultClass = "fault-class", "a class of faults";
    /// What the user does next to the state.
    Workload = "workload", "what is written";
    /// Whether the state is flushed or compacted.
    Compaction = "compaction", "a flush or compaction";
    /// How long a message travels.
    MessageDelay = "message-delay", "a message takes longer";
    /// Whether a message is lost.
    MessageLost = "message-lost", "a message is lost";
    /// Whether a message arrives twice.
    MessageDoubled = "message-doubled", "a message comes twice";
    /// Whether a message goes to a coordinator that does not lead.
    MessageAstray = "message-astray", "a message goes astray";
    /// How long a call of the store takes on its way there.
    StoreDelay = "store-delay", "a call takes longer";
    /// What goes wrong with a call of the store.
    StoreFate = "store-fate", "a call goes wrong";
    /// How late a call lands whose caller has stopped waiting.
    StoreLate = "store-late", "how late a call lands";
    /// What a listing leaves out or still shows.
    ListingLag = "listing-lag", "a listing is not up to date";
    /// Whether a read is corrupted or short.
    ReadDamage = "read-damage", "a read is damaged";
    /// Whether a process crashes after a step.
    CrashStep = "crash-step", "a process dies";
    /// Whether a process crashes between two actions.
    CrashBetween = "crash-between", "how far it came before it died";
    /// What disturbs the world next.
    Disturbance = "disturbance", "something is disturbed";
    /// Whom it strikes.
    Victim = "victim", "whom it strikes";
    /// How long it lasts.
    Duration = "duration", "how long it lasts";
    /// Which worker an attempt is placed on.
    Placement = "placement", "where an attempt is placed";
    /// What a new attempt starts from.
    RestoreFrom = "restore-from", "what is restored";
    /// Which subtasks are started anew.
    Redeploy = "redeploy", "which subtasks start anew";
    /// Whether the synchronous part of a snapshot fails.
    SnapshotFate = "snapshot-fate", "a snapshot fails";
    /// How long a local step takes.
    LocalDelay = "local-delay", "a local step takes longer";
    /// Which unsynced writes survive a power cut.
    PowerCut = "power-cut", "what survives a power cut";
    /// Random bits that are only data: nonces, jitter.
    Data = "data", "a random number";
    /// Damage that stays after the faults have stopped.
    Permanent = "permanent", "what stays damaged";
    /// What a user asks a coordinator for.
    Request = "request", "a user asks for something";
    /// What is wrong with an acknowledgement.
    Garbled = "garbled", "an acknowledgement is garbled";
    /// Whether a put is refused although nothing is there.
    Refusal = "refusal", "a put is refused for no reason";
    /// What is ruined for good, and how.
    Ruin = "ruin", "something is ruined for good";
    /// How many users want the same at the same moment.
    AtOnce = "at-once", "several users want the same at once";
    /// Whether the files of a snapshot can't be secured.
    SecureFate = "secure-fate", "a snapshot is not secured";
    /// Whether a file on a worker's disk changes between two attempts.
    DiskDamage = "disk-damage", "a local file changes";
    /// Whether everything restarts as soon as faults stop.
    Restart = "restart", "everything restarts at once";
    /// What happens next, where an explorer decides.
    Step = "step", "what happens next";
}

/// Some of the labels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Labels(u64);

impl Labels {
    /// All of them.
    pub const ALL: Self = Self(u64::MAX);

    /// These.
    #[must_use]
    pub fn of(labels: &[Label]) -> Self {
        Self(
            labels
                .iter()
                .fold(0, |set, label| set | 1 << (*label as u32)),
        )
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(self, label: Label) -> bool {
        self.0 & (1 << (label as u32)) != 0
    }
}

macro_rules! subjects {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a choice is about: each label counts its choices for each subject by itself.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub enum Subject {
            /// Nothing in particular.
            #[default]
            Nothing,
            $($(#[$doc])* $name,)*
        }

        impl Subject {
            /// All of them but [`Subject::Nothing`].
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in scenario files; empty for [`Subject::Nothing`].
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::Nothing => "",
                    $(Self::$name => $text,)*
                }
            }

            /// The one with this name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|subject| subject.name() == name)
            }
        }
    };
}

subjects! {
    /// A message by which a leader makes itself known.
    Lead = "lead",
    /// A message by which an attempt follows a leader.
    Attach = "attach",
    /// The answer to it.
    Attached = "attached",
    /// The answer to an attempt that the manifest does not name.
    NotNamed = "not-named",
    /// A trigger.
    Trigger = "trigger",
    /// An acknowledgement.
    Acknowledge = "acknowledge",
    /// A decline.
    Decline = "decline",
    /// The answer to an acknowledgement or a decline.
    Answered = "answered",
    /// The news that a checkpoint is complete.
    Completed = "completed",
    /// The news that one is aborted.
    Aborted = "aborted",
    /// The news that one is subsumed.
    Subsumed = "subsumed",
    /// A read of `CURRENT` or a manifest object.
    Read = "read",
    /// A put of a manifest object.
    Put = "put",
    /// The creation of `CURRENT`.
    Create = "create",
    /// A swap of `CURRENT`.
    Swap = "swap",
    /// An upload of a state file.
    Upload = "upload",
    /// A delete of a state file.
    Delete = "delete",
    /// A delete of a manifest object.
    DeleteManifest = "delete-manifest",
    /// A listing.
    List = "list",
    /// A read of a state file.
    Fetch = "fetch",
}

/// How many places are counted for each label.
const SUBJECTS: usize = Subject::ALL.len() + 1;

/// A choice that was made: what it was, its place among the like, and the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Choice {
    /// What was chosen.
    pub label: Label,
    /// What it was about.
    pub subject: Subject,
    /// The how-manieth choice of this label and subject it was, from 0.
    pub place: u32,
    /// The answer.
    pub value: u32,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label.name())?;
        if self.subject != Subject::Nothing {
            write!(f, " {}", self.subject.name())?;
        }
        write!(f, " {} {}", self.place, self.value)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Source {
    Seeded(Generator),
    Replayed(BTreeMap<(Label, Subject, u32), u32>),
    Scripted {
        answers: Vec<u32>,
        next: usize,
        labels: Labels,
    },
}

/// The source of choices of one run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Choices {
    source: Source,
    subject: Subject,
    places: Vec<u32>,
    made: Vec<Choice>,
    asked: Vec<u32>,
}

impl Choices {
    fn new(source: Source) -> Self {
        Self {
            source,
            subject: Subject::Nothing,
            places: vec![0; Label::ALL.len() * SUBJECTS],
            made: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Draws every choice from a seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::new(Source::Seeded(Generator::new(seed)))
    }

    /// Answers with these choices, and with 0 wherever they say nothing.
    #[must_use]
    pub fn replayed(choices: &[Choice]) -> Self {
        let map = choices
            .iter()
            .map(|choice| ((choice.label, choice.subject, choice.place), choice.value))
            .collect();
        Self::new(Source::Replayed(map))
    }

    /// Answers with these numbers in order, then with 0.
    #[must_use]
    pub fn scripted(answers: Vec<u32>) -> Self {
        Self::scripted_for(answers, Labels::ALL)
    }

    /// Answers choices of these labels with these numbers in order, then with 0, and every other
    /// choice with 0.
    #[must_use]
    pub fn scripted_for(answers: Vec<u32>, labels: Labels) -> Self {
        Self::new(Source::Scripted {
            answers,
            next: 0,
            labels,
        })
    }

    /// One of `0..n`, all of them equally likely if drawn.
    ///
    /// # Panics
    /// When there is nothing to choose from.
    pub fn choose(&mut self, n: u32, label: Label) -> u32 {
        assert!(n > 0, "nothing to choose from: {}", label.name());
        if n == 1 {
            return 0;
        }
        let place = self.next_place(label);
        let value = match &mut self.source {
            Source::Seeded(generator) => generator.below(n),
            Source::Replayed(map) => replayed(map, (label, self.subject, place), n),
            Source::Scripted {
                answers,
                next,
                labels,
            } if labels.contains(label) => scripted(answers, next, &mut self.asked, n),
            Source::Scripted { .. } => 0,
        };
        self.note(label, place, value)
    }

    /// Yes or no; no is 0. What is impossible takes its place all the same: what else is switched
    /// off shifts no later choice.
    pub fn chance(&mut self, ratio: Ratio, label: Label) -> bool {
        let place = self.next_place(label);
        if !ratio.is_possible() {
            return false;
        }
        let value = match &mut self.source {
            Source::Seeded(generator) => u32::from(generator.below(ratio.among) < ratio.of),
            Source::Replayed(map) => replayed(map, (label, self.subject, place), 2),
            Source::Scripted {
                answers,
                next,
                labels,
            } if labels.contains(label) => scripted(answers, next, &mut self.asked, 2),
            Source::Scripted { .. } => 0,
        };
        self.note(label, place, value) == 1
    }

    /// One of `0..weights.len()`, drawn by weight; the first is the benign one.
    ///
    /// # Panics
    /// When all weights are 0.
    pub fn weighted(&mut self, weights: &[u32], label: Label) -> u32 {
        let total: u32 = weights.iter().sum();
        assert!(total > 0, "nothing to choose from: {}", label.name());
        let place = self.next_place(label);
        let n = u32::try_from(weights.len()).unwrap_or(u32::MAX);
        let value = match &mut self.source {
            Source::Seeded(generator) => by_weight(weights, generator.below(total)),
            Source::Replayed(map) => replayed(map, (label, self.subject, place), n),
            Source::Scripted {
                answers,
                next,
                labels,
            } if labels.contains(label) => scripted(answers, next, &mut self.asked, n),
            Source::Scripted { .. } => 0,
        };
        self.note(label, place, value)
    }

    /// The choices that were not the benign one, in order.
    #[must_use]
    pub fn made(&self) -> &[Choice] {
        &self.made
    }

    /// Of a scripted source: among how many each choice was.
    #[must_use]
    pub fn asked(&self) -> &[u32] {
        &self.asked
    }

    /// Says what the next choices are about; returns what they were about so far.
    pub fn about(&mut self, subject: Subject) -> Subject {
        std::mem::replace(&mut self.subject, subject)
    }

    fn next_place(&mut self, label: Label) -> u32 {
        let place = &mut self.places[label as usize * SUBJECTS + self.subject as usize];
        *place += 1;
        *place - 1
    }

    fn note(&mut self, label: Label, place: u32, value: u32) -> u32 {
        if value != 0 {
            self.made.push(Choice {
                label,
                subject: self.subject,
                place,
                value,
            });
        }
        value
    }
}

fn replayed(map: &BTreeMap<(Label, Subject, u32), u32>, key: (Label, Subject, u32), n: u32) -> u32 {
    map.get(&key).map_or(0, |value| value % n)
}

fn scripted(answers: &[u32], next: &mut usize, asked: &mut Vec<u32>, n: u32) -> u32 {
    let value = answers.get(*next).map_or(0, |value| value % n);
    *next += 1;
    asked.push(n);
    value
}

/// The script after this one, when it was asked for one of `asked[i]` at its `i`-th place: counts
/// through every sequence of answers. `None` after the last.
#[must_use]
pub fn next_script(mut script: Vec<u32>, asked: &[u32]) -> Option<Vec<u32>> {
    script.resize(asked.len(), 0);
    while let Some(last) = script.pop() {
        if last + 1 < asked[script.len()] {
            script.push(last + 1);
            return Some(script);
        }
    }
    None
}

fn by_weight(weights: &[u32], drawn: u32) -> u32 {
    let mut left = drawn;
    for (index, weight) in (0..).zip(weights) {
        if left < *weight {
            return index;
        }
        left -= weight;
    }
    0
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, fast and the same everywhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Generator(u64);

impl Generator {
    fn new(seed: u64) -> Self {
        let mut generator = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        generator.next();
        generator
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, n: u32) -> u32 {
        // Lemire's multiplication; its bias of n in 2^32 does not matter here.
        let word = self.next() >> 32;
        ((word * u64::from(n)) >> 32) as u32
    }
}

/// Stirs 64 bits; every bit of the result depends on every bit of the input.
#[must_use]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_choices(choices: &mut Choices) -> Vec<u32> {
        (0..50)
            .map(|i| match i % 3 {
                0 => choices.choose(7, Label::StoreDelay),
                1 => u32::from(choices.chance(Ratio::one_in(3), Label::MessageLost)),
                _ => choices.weighted(&[5, 0, 2], Label::StoreFate),
            })
            .collect()
    }

    #[test]
    fn a_recorded_run_replays() {
        let mut seeded = Choices::seeded(42);
        let drawn = some_choices(&mut seeded);
        assert!(drawn.iter().any(|value| *value != 0));
        let mut replayed = Choices::replayed(seeded.made());
        assert_eq!(some_choices(&mut replayed), drawn);
        assert_eq!(replayed.made(), seeded.made());
    }

    #[test]
    fn an_empty_list_is_all_benign() {
        assert!(
            some_choices(&mut Choices::replayed(&[]))
                .iter()
                .all(|value| *value == 0)
        );
    }

    #[test]
    fn a_weight_of_nothing_is_never_drawn() {
        let mut choices = Choices::seeded(1);
        for _ in 0..1000 {
            assert_ne!(choices.weighted(&[5, 0, 2], Label::StoreFate), 1);
        }
    }

    #[test]
    fn deleting_a_choice_leaves_other_labels_alone() {
        let mut seeded = Choices::seeded(7);
        let drawn = some_choices(&mut seeded);
        let kept: Vec<_> = seeded
            .made()
            .iter()
            .copied()
            .filter(|choice| choice.label != Label::StoreDelay)
            .collect();
        let again = some_choices(&mut Choices::replayed(&kept));
        for (index, (before, after)) in drawn.iter().zip(&again).enumerate() {
            assert_eq!(*after, if index % 3 == 0 { 0 } else { *before });
        }
    }

    #[test]
    fn each_subject_has_places_of_its_own() {
        let lost = Choice {
            label: Label::MessageLost,
            subject: Subject::Trigger,
            place: 0,
            value: 1,
        };
        let mut choices = Choices::replayed(&[lost]);
        let mut is_lost = |subject| {
            choices.about(subject);
            choices.chance(Ratio::one_in(2), Label::MessageLost)
        };
        assert!(!is_lost(Subject::Acknowledge));
        assert!(is_lost(Subject::Trigger));
        assert!(!is_lost(Subject::Trigger));
        for subject in Subject::ALL {
            assert_eq!(Subject::parse(subject.name()), Some(*subject));
        }
    }

    #[test]
    fn what_is_impossible_takes_its_place() {
        let third = Choice {
            label: Label::MessageLost,
            subject: Subject::Nothing,
            place: 2,
            value: 1,
        };
        for first in [Ratio::NEVER, Ratio::one_in(3)] {
            let mut choices = Choices::replayed(&[third]);
            assert!(!choices.chance(first, Label::MessageLost));
            assert!(!choices.chance(Ratio::one_in(2), Label::MessageLost));
            assert!(choices.chance(Ratio::one_in(2), Label::MessageLost));
        }
    }

    #[test]
    fn a_script_can_be_counted_through() {
        // Every pair of a choice of 3 and one of 2, in order; other labels take nothing of it.
        let mut seen = Vec::new();
        let mut next = Some(Vec::new());
        while let Some(script) = next {
            let labels = Labels::of(&[Label::Victim]);
            let mut choices = Choices::scripted_for(script.clone(), labels);
            let first = choices.choose(3, Label::Victim);
            assert_eq!(choices.choose(9, Label::Duration), 0);
            seen.push((first, choices.choose(2, Label::Victim)));
            next = next_script(script, choices.asked());
        }
        assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    }
}
