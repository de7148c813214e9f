//! The machines come to as many states of the specification as TLC has found. That they are the same
//! ones, with the same steps, is what `specs/check conform` compares, which takes Java.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use stillpoint_sim::conform;
use stillpoint_sim::conform::bounds::Bounds;
use stillpoint_sim::conform::search::Effort;
use stillpoint_sim::trace::walk;

fn read(name: &str) -> String {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    fs::read_to_string(specs.join(name)).expect("a specification has it")
}

/// The different states that TLC has found at the bounds of a configuration.
fn found(name: &str) -> usize {
    let results = read("results.txt");
    let words = results
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = words.filter(|words| words.starts_with(&["quick", name]));
    let row = rows
        .next()
        .unwrap_or_else(|| panic!("results.txt does not know {name}"));
    row[3].parse().expect("a number of states")
}

fn compare(name: &str) {
    let effort = Effort {
        threads: 1,
        hold_open: None,
        within: None,
    };
    let configuration = read(&format!("{name}.cfg"));
    let explored = conform::explore(name, &configuration, effort).expect("it can be explored");
    assert_eq!(explored.asserted, None);
    assert_eq!(explored.graph.state_count(), found(name));
}

#[test]
fn a_deposed_leader_and_a_replaced_attempt_go_on_as_specified() {
    compare("MCCheckpointLifecycle-small-both");
}

#[test]
fn seeds_take_steps_of_the_graph_alone() {
    let name = "MCCheckpointLifecycle-small-both";
    let configuration = read(&format!("{name}.cfg"));
    let effort = Effort {
        threads: 1,
        hold_open: None,
        within: None,
    };
    let graph = conform::explore(name, &configuration, effort).expect("it can be explored");
    let bounds = Bounds::parse(&configuration).expect("it is a configuration");
    let mut taken = BTreeSet::new();
    for seed in 0..40 {
        let walk = walk(seed, &bounds, &graph.graph);
        assert_eq!(walk.refused, None, "seed {seed}");
        taken.extend(walk.taken);
    }
    assert!(taken.len() > 30, "only {} steps", taken.len());
}

#[test]
fn commits_in_doubt_and_guests_go_on_as_specified() {
    compare("MCLeaderFencing-small-guest");
}
