//! Which worlds are traced: those of which the specification's assumptions hold.
//!
//! The profile is drawn as any other; then whatever the specification leaves out is set to never
//! happen, and what it has as constants to one of a few configurations.

use std::time::Duration;

use crate::choice::Choices;
use crate::conform::bounds::Bounds;
use crate::faults::Fault;
use crate::profile::{Length, Profile, StoreKind};

/// The constants that differ between traces.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Subtasks.
    pub tasks: u32,
    /// Checkpoints retained.
    pub retain: usize,
    /// Checkpoints under way at once.
    pub max_concurrent: usize,
}

/// A seed has that which its remainder tells.
pub const CONFIGURATIONS: [Configuration; 4] = [
    configuration(1, 2, 2),
    configuration(2, 1, 2),
    configuration(1, 1, 3),
    configuration(2, 2, 1),
];

const fn configuration(tasks: u32, retain: usize, max_concurrent: usize) -> Configuration {
    Configuration {
        tasks,
        retain,
        max_concurrent,
    }
}

/// Faults that may strike. Those that are left out: what damages bytes or breaks them off, what
/// leaves an upload in doubt, what a subtask declines, and a good end.
const FAULTS: [Fault; 24] = [
    Fault::LostMessages,
    Fault::DoubledMessages,
    Fault::SlowMessages,
    Fault::AstrayMessages,
    Fault::LostRequests,
    Fault::LostAnswers,
    Fault::LateRequests,
    Fault::SpuriousRefusals,
    Fault::Throttling,
    Fault::SlowStore,
    Fault::BrokenLists,
    Fault::CoordinatorCrashes,
    Fault::CoordinatorPauses,
    Fault::Rivals,
    Fault::WorkerCrashes,
    Fault::WorkerPauses,
    Fault::FalseDeaths,
    Fault::OlderRestores,
    Fault::Cancels,
    Fault::FailedUploads,
    Fault::FailedDeletes,
    Fault::Pins,
    Fault::Guests,
    Fault::HeldBackAcknowledgements,
];

/// Events of a traced run.
const EVENTS: u64 = 500;

/// The configuration of a seed.
pub(super) fn of(seed: u64) -> Configuration {
    let place = seed % CONFIGURATIONS.len() as u64;
    CONFIGURATIONS[usize::try_from(place).unwrap_or(0)]
}

/// The bounds of a seed's trace.
#[must_use]
pub fn bounds(seed: u64) -> Bounds {
    let configuration = of(seed);
    Bounds {
        tasks: (1..=configuration.tasks).map(|n| format!("t{n}")).collect(),
        max_epoch: 6,
        max_ckpt: 14,
        max_file: 28,
        max_attempt: 12,
        retain: configuration.retain,
        max_concurrent: configuration.max_concurrent,
        max_pins: 14,
        go_back: true,
        forget_bases: true,
        max_faults: 0,
    }
}

/// A seed's profile, and the choices that follow.
pub(super) fn drawn(seed: u64, configuration: Configuration) -> (Profile, Choices) {
    let mut choices = Choices::seeded(seed);
    let mut profile = Profile::draw(&mut choices, Length::Short);
    profile.is_modelled = true;
    profile.store = StoreKind::Object;
    profile.operators = 1;
    profile.parallelism = configuration.tasks;
    profile.safety_events = EVENTS;
    for fault in Fault::ALL {
        if !FAULTS.contains(fault) {
            profile.set_intensity(*fault, 0);
        }
    }
    let config = &mut profile.config;
    config.max_concurrent = configuration.max_concurrent;
    config.num_retained = configuration.retain;
    config.limits.tombstones_max = 1_000;
    config.limits.own_deletes_max = 1_000;
    config.limits.pending_checkpoints_max = 64;
    config.limits.snapshots_in_flight_max = 64;
    config.limits.uploads_in_flight_max = 64;
    config.limits.queued_requests_max = 1_000;
    config.limits.acknowledged_files_max = 1 << 20;
    config.limits.forget_delay = config.limits.forget_delay.min(Duration::from_millis(50));
    (profile, choices)
}
