//! G6: once faults have stopped, the next checkpoint completes within a bound that follows from
//! the configuration, whatever else still hangs.

use std::time::Duration;

use super::{Class, Violation};
use crate::profile::Profile;
use crate::world::{AFTERMATH_MICROS, ROUND_TRIP_MICROS};

/// The promise's name.
pub const NAME: &str = "Progress";

/// Namespace of the promise.
#[derive(Clone, Copy, Debug)]
pub struct Progress;

const ROUND_TRIP: Duration = Duration::from_micros(ROUND_TRIP_MICROS);
const AFTERMATH: Duration = Duration::from_micros(AFTERMATH_MICROS);
/// More files than a state of the model ever has at one cut.
const FILES_MAX: u32 = 64;

/// Within which time a checkpoint completes once faults have stopped, in microseconds.
///
/// In the worst case a checkpoint that hangs must expire first, the pause has grown to its bound,
/// a coordinator waits the longest delay before it claims, and attempts must be started anew.
#[must_use]
pub fn bound(profile: &Profile) -> u64 {
    let config = &profile.config;
    let limits = &config.limits;
    let interval = config.interval.unwrap_or_default();
    // The manifest is read, claimed and deployed: its objects one after another, then two commits.
    let objects = u32::try_from(limits.tail_records_max).unwrap_or(64) * 2 + 4;
    let start = limits.claim_delay_max + ROUND_TRIP * (objects + 4);
    // A checkpoint's uploads, one after another at worst, and its commit.
    let uploads = FILES_MAX
        / u32::try_from(limits.uploads_in_flight_max)
            .unwrap_or(1)
            .max(1);
    let checkpoint = ROUND_TRIP * (uploads + 8);
    let retries = limits.retry_delay_max * 16;
    let bound = AFTERMATH
        + 2 * config.timeout
        + config.min_pause_max
        + 2 * interval
        + 2 * start
        + 3 * checkpoint
        + retries;
    u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)
}

/// Within which time garbage is gone, in microseconds: each page of a listing has its rest, and
/// tombstones go in loads of their limit.
#[must_use]
pub fn garbage_bound(profile: &Profile, objects: usize) -> u64 {
    let limits = &profile.config.limits;
    let pages = u32::try_from(objects / limits.list_page_max).unwrap_or(1_000) + 2;
    let round = limits.sweep_round_pause * 2 + (limits.sweep_pause + ROUND_TRIP) * 2 * pages;
    let loads = u32::try_from(objects / limits.tombstones_max).unwrap_or(1_000) + 3;
    let load = round + limits.forget_delay + limits.retry_delay_max * 4 + ROUND_TRIP * 16;
    let bound = u64::try_from((load * loads).as_micros()).unwrap_or(u64::MAX);
    bound + 2 * self::bound(profile)
}

impl Progress {
    /// The promise, broken.
    #[must_use]
    pub fn broken(what: &str, reasons: &[String]) -> Violation {
        Violation {
            class: Class::Liveness,
            promise: NAME,
            what: format!("{what}; {}", reasons.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_configuration() {
        let mut profile = Profile::benign();
        let before = bound(&profile);
        profile.config.timeout += Duration::from_secs(1);
        assert_eq!(bound(&profile), before + 2_000_000);
        assert!(garbage_bound(&profile, 100) > bound(&profile));
    }

    #[test]
    fn a_stuck_run_says_what_waits() {
        let violation = Progress::broken("no checkpoint", &["x waits for y".to_owned()]);
        assert_eq!(violation.class, Class::Liveness);
        assert!(violation.what.contains("x waits for y"));
    }
}
