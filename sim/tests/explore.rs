//! The explorer at small bounds: it sees everything there is, sees it again, and sees planted
//! faults. The large bounds are explored by `stillpoint-sim explore`, which `make test` runs.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test stops")]

use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::explore::{Effort, Explored, bounds, explore, parse_path, replay, unwatched};

/// Faults and the bounds that see them.
const PLANTED: &[(&str, Guard)] = &[
    ("plain", Guard::MaxConcurrent),
    ("subtasks", Guard::AllAcknowledged),
    ("pair", Guard::CommitsInOrder),
    ("pair", Guard::RetentionKeepsNewest),
    ("pair", Guard::SweepsOnlyUnnamed),
    ("messages", Guard::LaterAckWithoutIt),
    ("attempts", Guard::AttemptIsNamed),
    ("timers", Guard::TriggerIsNotAborted),
];

/// Everything within the bounds, unless a failure is found before.
fn explored(name: &str, threads: usize, hold_open: Option<Guard>) -> Explored {
    std::panic::set_hook(Box::new(|_| {}));
    let effort = Effort {
        states_max: 200_000,
        failures_max: 1,
        threads,
        hold_open,
        goes_on: || true,
        watch: unwatched,
    };
    let explored = explore(&bounds::named(name).unwrap(), effort);
    let _ = std::panic::take_hook();
    explored
}

#[test]
fn every_promise_holds_whatever_the_order() {
    for name in ["pair", "commits"] {
        let explored = explored(name, 2, None);
        assert!(explored.failures.is_empty(), "{:?}", explored.failures);
        assert!(explored.is_complete, "{name}: {} states", explored.states);
        assert!(
            explored.states > 3_000,
            "{name}: {} states",
            explored.states
        );
    }
}

#[test]
fn all_there_is_does_not_depend_on_the_order_of_the_search() {
    let count = |threads| {
        let explored = explored("pair", threads, None);
        (explored.states, explored.transitions)
    };
    assert_eq!(count(1), count(3));
}

#[test]
fn planted_faults_are_found_and_their_paths_taken_again() {
    for (name, guard) in PLANTED {
        let explored = explored(name, 1, Some(*guard));
        let failure = explored.failures.first();
        let failure = failure.unwrap_or_else(|| panic!("{} is not found", guard.name()));
        let bounds = bounds::named(name).unwrap();
        let (bounds, path) = parse_path(&failure.path_text(&bounds)).unwrap();

        marks::hold_open(Some(*guard));
        let (violation, lines) = replay(&bounds, &path);
        marks::hold_open(None);
        let violation = violation.unwrap_or_else(|| panic!("{} has gone", guard.name()));
        assert_eq!(violation.promise, failure.violation.promise);
        assert!(!lines.is_empty());

        let (violation, _) = replay(&bounds, &path);
        assert_eq!(violation, None, "{} was not the reason", guard.name());
    }
}

#[test]
fn a_timer_that_overtakes_a_message_is_seen_only_where_timers_are_early() {
    let late = explored("pair", 2, Some(Guard::TriggerIsNotAborted));
    assert!(late.is_complete && late.failures.is_empty());
    let early = explored("timers", 2, Some(Guard::TriggerIsNotAborted));
    let failure = early.failures.first().unwrap();
    assert_eq!(failure.violation.promise, "AbortedIsNotStarted");
}

#[test]
fn what_is_no_path_is_refused() {
    assert!(parse_path("3.0.1").is_err());
    assert!(parse_path("plain:3.0.1").is_err());
    assert!(parse_path("nowhere:9:3.0.1").is_err());
    assert!(parse_path("plain:9:3.x").is_err());
    assert!(parse_path("plain:9:3.0.1").is_ok());
}
