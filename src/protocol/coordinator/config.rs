//! What a coordinator is told once, when it is made.

use alloc::format;
use alloc::string::String;
use core::fmt::Debug;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::limits::Limits;

/// How a coordinator triggers and retains. Defaults are Flink's where the meaning is the same,
/// except `num_retained`: a damaged newest checkpoint must leave a choice.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoordinatorConfig {
    /// The time between two periodic triggers; without one, only requests trigger.
    #[serde(with = "crate::protocol::time::written::optional")]
    pub interval: Option<Duration>,
    /// The least time between the end of any checkpoint, aborted ones included, and the next
    /// periodic trigger. It doubles with each consecutive failure up to `min_pause_max`.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub min_pause: Duration,
    /// The bound of the growing pause.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub min_pause_max: Duration,
    /// Checkpoints that may be pending or committing at once.
    pub max_concurrent: usize,
    /// A checkpoint pending for longer is aborted.
    #[serde(with = "crate::protocol::time::written::duration")]
    pub timeout: Duration,
    /// Consecutive failed checkpoints that are tolerated before the user is told.
    pub tolerable_failures: u32,
    /// Completed checkpoints of the line that are retained.
    pub num_retained: usize,
    /// A leader that has had nothing to commit for so long commits an empty record, so that no
    /// standby takes it for dead. Without one it keeps still.
    #[serde(with = "crate::protocol::time::written::optional")]
    pub renew_interval: Option<Duration>,
    /// A leader that has had nothing to commit for so long reads `CURRENT`, and so learns that it was
    /// deposed. Without one it learns that by its next commit only.
    #[serde(with = "crate::protocol::time::written::optional")]
    pub look_interval: Option<Duration>,
    /// The bounds of the machine.
    pub limits: Limits,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            interval: None,
            min_pause: Duration::ZERO,
            min_pause_max: Duration::from_secs(60),
            max_concurrent: 1,
            timeout: Duration::from_secs(600),
            tolerable_failures: 0,
            num_retained: 3,
            renew_interval: None,
            look_interval: Some(Duration::from_secs(10)),
            limits: Limits::default(),
        }
    }
}

/// A configuration value that is not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key} is {value}; allowed is {wanted}")]
pub struct BadConfig {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub wanted: &'static str,
}

impl BadConfig {
    /// This key has this value, and that is not allowed.
    pub fn new(key: &'static str, value: impl Debug, wanted: &'static str) -> Self {
        let value = format!("{value:?}");
        Self { key, value, wanted }
    }
}

impl CoordinatorConfig {
    /// Checks each value and how they go together.
    ///
    /// # Errors
    /// The first key that is wrong, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), BadConfig> {
        let bad = |key, value: &dyn Debug, wanted| Err(BadConfig::new(key, value, wanted));
        let least = Duration::from_millis(10);
        if let Some(interval) = self.interval.filter(|interval| *interval < least) {
            return bad("interval", &interval, "at least 10 ms");
        }
        if self.timeout < least {
            return bad("timeout", &self.timeout, "at least 10 ms");
        }
        if let Some(interval) = self.renew_interval.filter(|interval| *interval < least) {
            return bad("renew_interval", &interval, "at least 10 ms");
        }
        if let Some(interval) = self.look_interval.filter(|interval| *interval < least) {
            return bad("look_interval", &interval, "at least 10 ms");
        }
        if self.max_concurrent == 0 || self.max_concurrent > self.limits.pending_checkpoints_max {
            let wanted = "from 1 to pending_checkpoints_max";
            return bad("max_concurrent", &self.max_concurrent, wanted);
        }
        if self.num_retained == 0 {
            return bad("num_retained", &self.num_retained, "at least 1");
        }
        if self.min_pause_max < self.min_pause {
            return bad("min_pause_max", &self.min_pause_max, "at least min_pause");
        }
        self.limits.validate().map_err(|bad| BadConfig {
            key: bad.name,
            value: bad.value,
            wanted: bad.wanted,
        })
    }
}
