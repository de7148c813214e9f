//! The bounds that are explored, each for what it is to see.

use crate::faults::Fault;
use crate::world::small::Bounds;

/// What can go wrong with messages.
const MESSAGES: &[Fault] = &[Fault::LostMessages, Fault::DoubledMessages];
/// What can go wrong with the store.
const STORE: &[Fault] = &[
    Fault::LostRequests,
    Fault::LostAnswers,
    Fault::SpuriousRefusals,
    Fault::Throttling,
];
/// Both.
const BOTH: &[Fault] = &[
    Fault::LostMessages,
    Fault::DoubledMessages,
    Fault::LostRequests,
    Fault::LostAnswers,
];
/// How coordinators come to follow each other.
const LEADERS: &[Fault] = &[Fault::CoordinatorCrashes, Fault::Rivals];
/// How attempts come to follow each other.
const ATTEMPTS: &[Fault] = &[Fault::WorkerCrashes, Fault::FalseDeaths];
/// All of it.
const DEATHS: &[Fault] = &[
    Fault::CoordinatorCrashes,
    Fault::Rivals,
    Fault::WorkerCrashes,
    Fault::FalseDeaths,
];

/// Nothing goes wrong, one checkpoint after another.
const PLAIN: Bounds = Bounds {
    name: "plain",
    subtasks: 1,
    retained: 1,
    concurrent: 1,
    waiting: 1,
    completed_before: 0,
    checkpoints: 3,
    coordinators: 1,
    attempts: 1,
    troubles: (&[], 0),
    deaths: (&[], 0),
    early_timers: 0,
    answers_travel: false,
};

/// All bounds.
#[must_use]
pub fn all() -> Vec<Bounds> {
    vec![
        PLAIN,
        Bounds {
            name: "pair",
            concurrent: 2,
            checkpoints: 2,
            ..PLAIN
        },
        Bounds {
            name: "overlapping",
            concurrent: 2,
            ..PLAIN
        },
        Bounds {
            name: "subtasks",
            subtasks: 2,
            attempts: 2,
            waiting: 0,
            checkpoints: 2,
            ..PLAIN
        },
        Bounds {
            name: "messages",
            concurrent: 2,
            checkpoints: 2,
            troubles: (MESSAGES, 1),
            ..PLAIN
        },
        // What a timer ends is still on its way: a trigger that comes after its checkpoint was aborted.
        Bounds {
            name: "timers",
            concurrent: 2,
            checkpoints: 2,
            early_timers: 1,
            ..PLAIN
        },
        // What is done in the store is seen by others before whoever asked hears of it.
        Bounds {
            name: "answers",
            waiting: 0,
            checkpoints: 2,
            troubles: (STORE, 1),
            answers_travel: true,
            ..PLAIN
        },
        Bounds {
            name: "commits",
            waiting: 0,
            checkpoints: 2,
            troubles: (STORE, 1),
            ..PLAIN
        },
        Bounds {
            name: "leaders",
            completed_before: 1,
            checkpoints: 1,
            coordinators: 2,
            deaths: (LEADERS, 1),
            ..PLAIN
        },
        Bounds {
            name: "attempts",
            completed_before: 1,
            checkpoints: 1,
            attempts: 2,
            deaths: (ATTEMPTS, 1),
            ..PLAIN
        },
        Bounds {
            name: "everything",
            completed_before: 1,
            checkpoints: 2,
            attempts: 2,
            coordinators: 2,
            waiting: 0,
            troubles: (BOTH, 0),
            deaths: (DEATHS, 2),
            ..PLAIN
        },
    ]
}

/// The bounds of this name.
#[must_use]
pub fn named(name: &str) -> Option<Bounds> {
    all().into_iter().find(|bounds| bounds.name == name)
}
