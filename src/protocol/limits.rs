//! Every bound of the protocol, by name. Each queue, map and loop ends at one of these.
//!
//! Limits are a value and not constants, so that an explorer of small worlds can set them to one
//! or two; [`Limits::default`] is what production uses, and [`Limits::validate`] relates them.

use alloc::format;
use alloc::string::String;
use core::fmt::Debug;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of the machines.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How many checkpoint ids one commit reserves. A crash skips at most so many.
    pub checkpoint_id_block: u64,
    /// How many attempt numbers one commit reserves.
    pub attempt_id_block: u64,
    /// Requests for checkpoints that may wait for their turn, and others that may wait for a commit;
    /// Flink's queue has the same length.
    pub queued_requests_max: usize,
    /// Checkpoints pending at once, whatever the configuration asks for.
    pub pending_checkpoints_max: usize,
    /// Tombstones in the manifest; past it garbage is left to the sweep, which finds it again, and
    /// condemns it, once deletes are confirmed.
    pub tombstones_max: usize,
    /// Garbage found by listing that is remembered while there is no room for more tombstones; past
    /// it, it is left to be found again.
    pub swept_files_max: usize,
    /// Deletes under way at once.
    pub deletes_in_flight_max: usize,
    /// Records in the log tail before a full snapshot of the manifest is written.
    pub tail_records_max: usize,
    /// Objects of its own that a subtask remembers to delete; past it they are left to the sweep.
    pub own_deletes_max: usize,
    /// Objects of the manifest that a leader remembers to delete; past it they are left to the sweep
    /// of the next one.
    pub manifest_deletes_max: usize,
    /// Names asked of a listing at once.
    pub list_page_max: usize,
    /// The rest of the sweep between two pages.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub sweep_pause: Duration,
    /// The rest of the sweep after the last page.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub sweep_round_pause: Duration,
    /// How long confirmed deletes may wait for another commit to be forgotten with.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub forget_delay: Duration,
    /// Uploads that a subtask has under way at once.
    pub uploads_in_flight_max: usize,
    /// Tries of one upload under one name before the next name is taken.
    pub upload_tries_max: u32,
    /// Snapshots of one subtask under way at once.
    pub snapshots_in_flight_max: usize,
    /// Bytes a user may attach to one subtask's snapshot.
    pub user_bytes_max: usize,
    /// Bytes of the names of one subtask's column families.
    pub family_bytes_max: usize,
    /// Files in one acknowledgement. From so many names on that its leader has not settled, a subtask
    /// leaves those that it does not need any more to the sweep.
    pub acknowledged_files_max: usize,
    /// The first wait before something is tried again; it doubles with each further try.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub retry_delay: Duration,
    /// The longest wait before something is tried again.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub retry_delay_max: Duration,
    /// Manifest objects that a loader reads at once.
    pub reads_in_flight_max: usize,
    /// Tries of one read before a loader gives up, and how often it starts anew because others
    /// commit faster than it reads.
    pub read_tries_max: u32,
    /// Bytes of `CURRENT` that a reader takes.
    pub current_bytes_max: usize,
    /// Bytes of one manifest object that a reader takes.
    pub manifest_object_bytes_max: usize,
    /// The unit of the random wait before a claim; it doubles with each claim since the last
    /// completed checkpoint.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub claim_delay: Duration,
    /// The longest wait before a claim.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub claim_delay_max: Duration,
    /// Pins of one root.
    pub pins_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            checkpoint_id_block: 64,
            attempt_id_block: 16,
            queued_requests_max: 1000,
            pending_checkpoints_max: 64,
            tombstones_max: 100_000,
            swept_files_max: 100_000,
            deletes_in_flight_max: 16,
            tail_records_max: 64,
            own_deletes_max: 1024,
            manifest_deletes_max: 10_000,
            list_page_max: 1000,
            sweep_pause: Duration::from_secs(1),
            sweep_round_pause: Duration::from_secs(600),
            forget_delay: Duration::from_secs(1),
            uploads_in_flight_max: 8,
            upload_tries_max: 5,
            snapshots_in_flight_max: 8,
            user_bytes_max: 1 << 20,
            family_bytes_max: 1 << 20,
            acknowledged_files_max: 1 << 20,
            retry_delay: Duration::from_millis(100),
            retry_delay_max: Duration::from_secs(10),
            reads_in_flight_max: 8,
            read_tries_max: 10,
            current_bytes_max: 1 << 20,
            manifest_object_bytes_max: 1 << 30,
            claim_delay: Duration::from_millis(50),
            claim_delay_max: Duration::from_secs(30),
            pins_max: 10_000,
        }
    }
}

/// A block is added to ids that end at [`NUMBER_MAX`](super::id::NUMBER_MAX): so many claims skip
/// whole blocks without coming near it.
const BLOCK_MOST: u64 = 1 << 20;
const IN_FLIGHT_MOST: usize = 1 << 16;
const COUNT_MOST: u64 = 1 << 30;
const DELAY_LEAST: Duration = Duration::from_millis(1);

/// A limit that is out of its range, or does not go with another one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("limit {name} is {value}; allowed is {wanted}")]
pub struct BadLimit {
    /// The limit's name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub wanted: &'static str,
}

impl Limits {
    /// Whether one subtask may have column families of these names.
    #[must_use]
    pub fn allow_families(&self, names: &[String]) -> bool {
        names.iter().map(String::len).sum::<usize>() <= self.family_bytes_max
    }

    /// Checks that the limits go together.
    ///
    /// # Errors
    /// The first limit that does not, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), BadLimit> {
        let bad = |name, value: &dyn Debug, wanted| {
            let value = format!("{value:?}");
            Err(BadLimit {
                name,
                value,
                wanted,
            })
        };
        for (name, value) in self.blocks() {
            if value == 0 || value > BLOCK_MOST {
                return bad(name, &value, "from 1 to 1048576");
            }
        }
        for (name, value) in self.in_flight() {
            if value == 0 || value > IN_FLIGHT_MOST {
                return bad(name, &value, "from 1 to 65536");
            }
        }
        for (name, value) in self.counts() {
            if value == 0 || value > COUNT_MOST {
                return bad(name, &value, "from 1 to 1073741824");
            }
        }
        // Shorter ones would be waits in name only, and a store in trouble be asked without end.
        for (name, value) in [
            ("retry_delay", self.retry_delay),
            ("sweep_round_pause", self.sweep_round_pause),
        ] {
            if value < DELAY_LEAST {
                return bad(name, &value, "at least 1 ms");
            }
        }
        if self.retry_delay_max < self.retry_delay {
            return bad(
                "retry_delay_max",
                &self.retry_delay_max,
                "at least retry_delay",
            );
        }
        if self.claim_delay_max < self.claim_delay {
            return bad(
                "claim_delay_max",
                &self.claim_delay_max,
                "at least claim_delay",
            );
        }
        Ok(())
    }

    /// Ids that one commit reserves.
    fn blocks(&self) -> [(&'static str, u64); 2] {
        [
            ("checkpoint_id_block", self.checkpoint_id_block),
            ("attempt_id_block", self.attempt_id_block),
        ]
    }

    /// What each has a task or a permit of its own.
    fn in_flight(&self) -> [(&'static str, usize); 5] {
        [
            ("pending_checkpoints_max", self.pending_checkpoints_max),
            ("deletes_in_flight_max", self.deletes_in_flight_max),
            ("uploads_in_flight_max", self.uploads_in_flight_max),
            ("snapshots_in_flight_max", self.snapshots_in_flight_max),
            ("reads_in_flight_max", self.reads_in_flight_max),
        ]
    }

    /// What is only counted.
    fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("queued_requests_max", self.queued_requests_max as u64),
            ("tombstones_max", self.tombstones_max as u64),
            ("swept_files_max", self.swept_files_max as u64),
            ("tail_records_max", self.tail_records_max as u64),
            ("own_deletes_max", self.own_deletes_max as u64),
            ("manifest_deletes_max", self.manifest_deletes_max as u64),
            ("list_page_max", self.list_page_max as u64),
            ("upload_tries_max", u64::from(self.upload_tries_max)),
            ("acknowledged_files_max", self.acknowledged_files_max as u64),
            ("read_tries_max", u64::from(self.read_tries_max)),
            ("pins_max", self.pins_max as u64),
        ]
    }

    /// Counts a try. Once the wait grows no more, tries are not told apart: the future is the same.
    #[must_use]
    pub fn one_more_try(&self, tries: u32) -> u32 {
        let next = tries.saturating_add(1);
        if tries > 0 && self.retry_delay_after(tries) == self.retry_delay_after(next) {
            tries
        } else {
            next
        }
    }

    /// The least number of tries after which the wait grows no more.
    #[must_use]
    pub fn tries_told_apart(&self) -> u32 {
        let mut tries = 1;
        while self.one_more_try(tries) > tries {
            tries += 1;
        }
        tries
    }

    /// The wait before try number `tries` (from 1): `retry_delay`, doubled each time, bounded.
    #[must_use]
    pub fn retry_delay_after(&self, tries: u32) -> Duration {
        doubled(
            self.retry_delay,
            tries.saturating_sub(1),
            self.retry_delay_max,
        )
    }
}

/// `base` doubled `times` times, but at most `bound`.
#[must_use]
pub fn doubled(base: Duration, times: u32, bound: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times.min(20)).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_limits_go_together() {
        assert_eq!(Limits::default().validate(), Ok(()));
    }

    #[test]
    fn delays_double_up_to_their_bound() {
        let limits = Limits {
            retry_delay: Duration::from_millis(3),
            retry_delay_max: Duration::from_millis(20),
            ..Limits::default()
        };
        let delays: alloc::vec::Vec<_> = (1..6)
            .map(|tries| limits.retry_delay_after(tries).as_millis())
            .collect();
        assert_eq!(delays, [3, 6, 12, 20, 20]);
        assert_eq!(limits.retry_delay_after(u32::MAX).as_millis(), 20);
    }
}
