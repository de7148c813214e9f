//! The loop of all commands that run one thing after the other on several threads: with a planted
//! fault or none, and until the user has enough.

use std::ops::{ControlFlow, Range};

use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::side_by_side;

use super::interrupt;

/// More threads than any machine here has a use for.
pub(super) const THREADS_MAX: usize = 1024;

/// Works on each number, lowest first, on so many threads (0: as many as there are processors),
/// until the work breaks off or the user does. Whatever was begun is finished.
pub(super) fn each(
    threads: usize,
    numbers: Range<u64>,
    hold_open: Option<Guard>,
    work: impl Fn(u64) -> ControlFlow<()> + Sync,
) {
    let count = super::threads(threads).clamp(1, THREADS_MAX);
    side_by_side::each(
        count,
        numbers,
        || !interrupt::came(),
        |number| {
            marks::hold_open(hold_open);
            work(number)
        },
    );
}
