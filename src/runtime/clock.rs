//! The runtime's clock and randomness, as the data that machines take.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::protocol::id::{Nonce, RootId};
use crate::protocol::time::{Timestamp, WallClock};

/// A monotonic clock that starts when it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    pub(super) fn now(self) -> Timestamp {
        Timestamp(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant of a machine's timer; far in the future if the clock can't say it.
    pub(super) fn instant(self, at: Timestamp) -> Instant {
        let since = std::time::Duration::from_micros(at.0);
        let far = std::time::Duration::from_secs(365 * 24 * 3600);
        self.start
            .checked_add(since)
            .unwrap_or_else(|| Instant::now() + far)
    }
}

/// The calendar, to be stored and shown.
pub(super) fn wall_clock() -> WallClock {
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    WallClock(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// A new life's nonce. Of its random bits only the upper 40 tell lives apart: the machine counts in
/// the others.
pub(super) fn life() -> Result<Nonce, Error> {
    Ok(Nonce(u64::from_le_bytes(random()?) << 16))
}

/// A new root's identity.
pub(super) fn root() -> Result<RootId, Error> {
    Ok(RootId(u128::from_le_bytes(random()?)))
}

/// What a claim's random wait is made of.
pub(super) fn jitter() -> Result<u32, Error> {
    Ok(u32::from_le_bytes(random()?))
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(
            ErrorKind::Other,
            format!("the system gives no random numbers: {error}"),
        )
    })?;
    Ok(bytes)
}
