//! What a user can set, with the defaults that production uses.
//!
//! Plain values with `serde`, so that they can stand in the user's own configuration file; reading
//! files and environments is the user's.

use std::fmt::Debug;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub mod flink;

pub use crate::protocol::coordinator::{BadConfig, CoordinatorConfig};

/// How a repository behaves. Permits and budgets are shared by all its participants.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::Config;
///
/// let mut config = Config::default();
/// config.checkpoints.interval = Some(Duration::from_secs(60));
/// config.checkpoints.num_retained = 2;
/// config.validate().expect("a valid configuration");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// When checkpoints are triggered, and how many are retained; the same for each participant.
    pub checkpoints: CoordinatorConfig,
    /// Files being transferred at once, up and down together. A directory takes 32 of them at once
    /// ([`BLOCKING_CALLS_MAX`](crate::storage::fs::BLOCKING_CALLS_MAX)); more wait for their turn there,
    /// which is no standstill as long as those before them move.
    pub transfers_max: usize,
    /// Bytes of files in memory at once; a transfer waits until there is room for its buffer.
    pub transfer_memory_bytes_max: usize,
    /// Calls of the store that may fail in a row, over all participants, before further calls are
    /// held back; see `failures_per_second`.
    pub failure_burst_max: u32,
    /// Once `failure_burst_max` is used up, failing calls are let through at this rate, so that a
    /// store in trouble is not kept there by its clients.
    pub failures_per_second: u32,
    /// A call of the store that has made no progress for so long counts as unknown.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub progress_deadline: Duration,
    /// Tries of one file in a restore, or by whoever verifies it, before that fails; tries that brought
    /// something damaged count by themselves.
    pub restore_tries_max: u32,
    /// How long a claim may take before it fails; without a value it goes on trying.
    #[serde(with = "crate::protocol::time::written::optional")]
    pub claim_deadline: Option<Duration>,
    /// How long closing may take before it is given up; whatever is left is cleaned by the next
    /// claim. More than twice `progress_deadline`: a store that is silent to deletes has used that up
    /// once or twice before the rest of closing begins.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub close_deadline: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            checkpoints: CoordinatorConfig::default(),
            transfers_max: 16,
            transfer_memory_bytes_max: 64 << 20,
            failure_burst_max: 100,
            failures_per_second: 20,
            progress_deadline: Duration::from_secs(30),
            restore_tries_max: 5,
            claim_deadline: None,
            close_deadline: Duration::from_secs(90),
        }
    }
}

impl Config {
    /// Checks each value and how they go together.
    ///
    /// # Errors
    /// The first key that is wrong, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), BadConfig> {
        let bad = |key, value: &dyn Debug, wanted| Err(BadConfig::new(key, value, wanted));
        if self.transfers_max == 0 || self.transfers_max > TRANSFERS_MAX {
            return bad("transfers_max", &self.transfers_max, "from 1 to 65536");
        }
        if self.transfer_memory_bytes_max < TRANSFER_MEMORY_BYTES_LEAST
            || self.transfer_memory_bytes_max > TRANSFER_MEMORY_BYTES_MOST
        {
            return bad(
                "transfer_memory_bytes_max",
                &self.transfer_memory_bytes_max,
                "from 1 MiB to 1 TiB",
            );
        }
        if self.failure_burst_max == 0 {
            return bad("failure_burst_max", &self.failure_burst_max, "at least 1");
        }
        if self.failures_per_second == 0 {
            return bad(
                "failures_per_second",
                &self.failures_per_second,
                "at least 1",
            );
        }
        if self.progress_deadline < Duration::from_millis(10) {
            return bad(
                "progress_deadline",
                &self.progress_deadline,
                "at least 10 ms",
            );
        }
        if self.restore_tries_max == 0 {
            return bad("restore_tries_max", &self.restore_tries_max, "at least 1");
        }
        let least = Duration::from_millis(10);
        if let Some(deadline) = self.claim_deadline.filter(|deadline| *deadline < least) {
            return bad("claim_deadline", &deadline, "at least 10 ms");
        }
        if self.close_deadline < least {
            return bad("close_deadline", &self.close_deadline, "at least 10 ms");
        }
        if self.close_deadline <= self.progress_deadline.saturating_mul(2) {
            let wanted = "more than twice progress_deadline";
            return bad("close_deadline", &self.close_deadline, wanted);
        }
        let checkpoints = &self.checkpoints;
        // A participant has one subtask, which would decline whatever is beyond its limit. A
        // coordinator may have others.
        if checkpoints.max_concurrent > checkpoints.limits.snapshots_in_flight_max {
            let wanted = "at most snapshots_in_flight_max";
            return bad("max_concurrent", &checkpoints.max_concurrent, wanted);
        }
        checkpoints.validate()?;
        self.validate_sizes()
    }

    /// Whether whatever the limits allow to be written, they allow to be read. A machine by itself
    /// refuses what is too large; a repository would be one that can't go on.
    fn validate_sizes(&self) -> Result<(), BadConfig> {
        let bad = |key, value: &dyn Debug, wanted| Err(BadConfig::new(key, value, wanted));
        let checkpoints = &self.checkpoints;
        let limits = &checkpoints.limits;
        if limits.family_bytes_max < FAMILY_BYTES_LEAST {
            let wanted = "at least 7, the length of default";
            return bad("family_bytes_max", &limits.family_bytes_max, wanted);
        }
        let records = limits.tail_records_max.saturating_mul(RECORD_BYTES);
        if limits.current_bytes_max < CURRENT_BYTES_LEAST.saturating_add(records) {
            let wanted = "at least 64 KiB and 256 bytes for each of tail_records_max";
            return bad("current_bytes_max", &limits.current_bytes_max, wanted);
        }
        // The other half is for files, pins and tombstones.
        let described = (limits.user_bytes_max)
            .saturating_add(limits.family_bytes_max)
            .saturating_mul((checkpoints.num_retained).saturating_add(checkpoints.max_concurrent));
        let largest = limits.manifest_object_bytes_max;
        if largest < MANIFEST_OBJECT_BYTES_LEAST || largest / 2 < described {
            let wanted = "at least 1 MiB and twice user_bytes_max + family_bytes_max for each of \
                          num_retained + max_concurrent checkpoints";
            return bad("manifest_object_bytes_max", &largest, wanted);
        }
        Ok(())
    }
}

/// RocksDB's first column family is called `default`.
const FAMILY_BYTES_LEAST: usize = "default".len();
const CURRENT_BYTES_LEAST: usize = 1 << 16;
/// What `CURRENT` may need for one record: a name of at most 32 bytes, of the tails of two
/// snapshots, each of which may have grown to four times its limit while a snapshot was written.
const RECORD_BYTES: usize = 256;
const MANIFEST_OBJECT_BYTES_LEAST: usize = 1 << 20;
const TRANSFERS_MAX: usize = 1 << 16;
const TRANSFER_MEMORY_BYTES_LEAST: usize = 1 << 20;
const TRANSFER_MEMORY_BYTES_MOST: usize = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn wrong_values_are_named() {
        let wrong = |change: &dyn Fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(
            wrong(&|config| config.transfers_max = 0),
            "transfers_max is 0; allowed is from 1 to 65536"
        );
        assert_eq!(
            wrong(&|config| config.checkpoints.num_retained = 0),
            "num_retained is 0; allowed is at least 1"
        );
        assert_eq!(
            wrong(&|config| config.checkpoints.limits.retry_delay = Duration::ZERO),
            "retry_delay is 0ns; allowed is at least 1 ms"
        );
        assert_eq!(
            wrong(&|config| config.progress_deadline = config.close_deadline / 2),
            "close_deadline is 90s; allowed is more than twice progress_deadline"
        );
    }

    #[test]
    fn no_more_checkpoints_at_once_than_a_subtask_takes_snapshots() {
        let mut config = Config::default();
        config.checkpoints.max_concurrent = 3;
        config.checkpoints.limits.snapshots_in_flight_max = 2;
        assert_eq!(config.checkpoints.validate(), Ok(()), "for a coordinator");
        let wanted = "at most snapshots_in_flight_max";
        let bad = BadConfig::new("max_concurrent", 3, wanted);
        assert_eq!(config.validate(), Err(bad));
        config.checkpoints.limits.snapshots_in_flight_max = 3;
        assert_eq!(config.validate(), Ok(()));
    }
}
