//! Random steps in a random world.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::world::{Step, World};
use super::*;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..20_u8, any::<u8>(), any::<u8>()).prop_map(|(what, which, how)| Step {
        what,
        which,
        how,
    });
    prop::collection::vec(step, 0..400)
}

/// Runs random worlds; the first failure, shrunk.
fn run(limits: &Limits, cases: u32, max_shrink_iters: u32) -> Result<(), alloc::string::String> {
    let config = Config {
        cases,
        max_shrink_iters,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&steps(), |steps| {
        let mut world = World::new(limits.clone());
        for step in steps {
            world.step(step);
        }
        world.end();
        Ok(())
    });
    outcome.map_err(|failed| failed.to_string())
}

fn small() -> Limits {
    Limits {
        uploads_in_flight_max: 1,
        upload_tries_max: 2,
        snapshots_in_flight_max: 3,
        deletes_in_flight_max: 1,
        own_deletes_max: 2,
        pending_checkpoints_max: 2,
        acknowledged_files_max: 8,
        ..Limits::default()
    }
}

#[test]
fn promises_hold_in_a_random_world() {
    assert_eq!(run(&Limits::default(), 1024, 1000), Ok(()));
}

#[test]
fn promises_hold_in_a_small_random_world() {
    assert_eq!(run(&small(), 1024, 1000), Ok(()));
}

#[cfg(feature = "marks")]
mod marked {
    use super::*;
    use crate::protocol::marks::{self, Guard, Mark};

    /// The situations that only a test by hand brings about.
    const BY_HAND: [Mark; 3] = [
        Mark::EpochSeenBeforeLead,
        Mark::AttemptFoundItselfReplaced,
        Mark::AcknowledgementContradicted,
    ];

    #[test]
    fn the_random_worlds_reach_every_situation() {
        marks::reset();
        assert_eq!(run(&Limits::default(), 512, 0), Ok(()));
        assert_eq!(run(&small(), 512, 0), Ok(()));
        let own = Mark::ALL
            .iter()
            .skip_while(|mark| **mark != Mark::UploadSharedBySnapshots);
        let missed: Vec<&str> = own
            .filter(|mark| !BY_HAND.contains(mark) && marks::reached(**mark) == 0)
            .map(|mark| mark.name())
            .collect();
        assert_eq!(missed, [""; 0]);
    }

    #[test]
    fn a_rule_held_open_is_caught() {
        let own = Guard::ALL
            .iter()
            .skip_while(|guard| **guard != Guard::HighestEpochIsObeyed);
        let mut missed = Vec::new();
        for guard in own {
            marks::hold_open(Some(*guard));
            let caught = [Limits::default(), small()]
                .iter()
                .any(|limits| run(limits, 512, 0).is_err());
            if !caught {
                missed.push(guard.name());
            }
        }
        marks::hold_open(None);
        assert_eq!(missed, [""; 0]);
    }
}
