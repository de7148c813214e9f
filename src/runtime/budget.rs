//! What the participants of a repository share: permits, memory and failures.
//!
//! ```text
//! transfer ── permits (transfers_max) ── memory (transfer_memory_bytes_max) ── failures ──> store
//! ```
//!
//! Commits, reads of the manifest and deletes take no transfer permit: a slow upload of one
//! participant never holds up another one's commit. Failures are counted over all calls.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::Config;

/// Memory is handed out in units of this size, so that a permit count fits a semaphore.
const MEMORY_UNIT_BYTES: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Budget {
    transfers: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_units: usize,
    deletes: Arc<Semaphore>,
    failures: Failures,
}

/// Held while a file is being transferred.
#[derive(Debug)]
pub(super) struct TransferPermit {
    _transfer: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Budget {
    pub(super) fn new(config: &Config) -> Self {
        let memory_units = config.transfer_memory_bytes_max / MEMORY_UNIT_BYTES;
        Self {
            transfers: Arc::new(Semaphore::new(config.transfers_max)),
            memory: Arc::new(Semaphore::new(memory_units)),
            memory_units,
            deletes: Arc::new(Semaphore::new(
                config.checkpoints.limits.deletes_in_flight_max,
            )),
            failures: Failures::new(config.failure_burst_max, config.failures_per_second),
        }
    }

    /// Waits for the right to transfer a file that keeps `buffer_bytes` in memory meanwhile.
    pub(super) async fn transfer(&self, buffer_bytes: usize) -> TransferPermit {
        let units = buffer_bytes
            .div_ceil(MEMORY_UNIT_BYTES)
            .clamp(1, self.memory_units);
        let transfer = acquire(&self.transfers, 1).await;
        let memory = acquire(&self.memory, units).await;
        TransferPermit {
            _transfer: transfer,
            _memory: memory,
        }
    }

    /// Waits for the right to delete an object.
    pub(super) async fn delete(&self) -> OwnedSemaphorePermit {
        acquire(&self.deletes, 1).await
    }

    /// Waits while the store has failed too often.
    pub(super) async fn admit(&self) {
        while let Some(wait) = self.failures.wait(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a call that failed and may be tried again.
    pub(super) fn failed(&self) {
        self.failures.spend(Instant::now());
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, units: usize) -> OwnedSemaphorePermit {
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    Arc::clone(semaphore)
        .acquire_many_owned(units)
        .await
        .unwrap_or_else(|_| unreachable!("the budget's semaphores are never closed"))
}

/// A bucket of failures: it holds `burst`, and fills up again at `per_second`.
#[derive(Debug)]
struct Failures {
    burst: u32,
    refill: Duration,
    /// The time at which the bucket is full again.
    full_at: Mutex<Option<Instant>>,
}

impl Failures {
    fn new(burst: u32, per_second: u32) -> Self {
        Self {
            burst,
            refill: Duration::from_secs(1) / per_second,
            full_at: Mutex::new(None),
        }
    }

    fn spend(&self, now: Instant) {
        let mut full_at = self.full_at.lock();
        let most = now + self.refill * self.burst;
        let next = full_at.map_or(now, |at| at.max(now)) + self.refill;
        *full_at = Some(next.min(most));
    }

    /// How long until there is room for one more failure; `None` if there is.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let full_at = (*self.full_at.lock())?;
        let owed = full_at.saturating_duration_since(now);
        let allowed = self.refill * self.burst.saturating_sub(1);
        owed.checked_sub(allowed).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_held_back_after_a_burst_and_let_through_at_a_rate() {
        let now = Instant::now();
        let failures = Failures::new(3, 10);
        assert_eq!(failures.wait(now), None);
        failures.spend(now);
        failures.spend(now);
        assert_eq!(failures.wait(now), None);
        failures.spend(now);
        assert_eq!(failures.wait(now), Some(Duration::from_millis(100)));
        let later = now + Duration::from_millis(100);
        assert_eq!(failures.wait(later), None);
        failures.spend(later);
        failures.spend(later);
        assert_eq!(failures.wait(later), Some(Duration::from_millis(100)));
        assert_eq!(failures.wait(now + Duration::from_secs(9)), None);
    }
}
