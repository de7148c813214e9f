//! The loop of all commands that run one thing after the other on several threads.

use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stillpoint::protocol::marks::{self, Guard};

use super::interrupt;

/// More threads than any machine here has a use for.
pub(super) const THREADS_MAX: usize = 1024;

/// Works on each number, lowest first, on so many threads (0: as many as there are processors),
/// until the work breaks off or the user does. Whatever was begun is finished: so all that was
/// worked on is all numbers below some limit.
pub(super) fn each(
    threads: usize,
    numbers: Range<u64>,
    hold_open: Option<Guard>,
    work: impl Fn(u64) -> ControlFlow<()> + Sync,
) {
    let next = AtomicU64::new(numbers.start);
    let is_over = AtomicBool::new(false);
    let one = || {
        let _others = EndsOthers(&is_over);
        marks::hold_open(hold_open);
        while !is_over.load(Ordering::Relaxed) && !interrupt::came() {
            // Never beyond the end: there the numbers would begin anew.
            let claimed = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| {
                (number < numbers.end).then(|| number + 1)
            });
            let Ok(number) = claimed else {
                break;
            };
            if work(number).is_break() {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        marks::hold_open(None);
    };
    std::thread::scope(|scope| {
        let count = super::threads(threads).clamp(1, THREADS_MAX);
        let handles: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        for handle in handles {
            if let Err(panic) = handle.join() {
                // Its words, and not that a thread has panicked.
                resume_unwind(panic);
            }
        }
    });
}

/// Work that panics is a defect of the simulator's: the other threads need not go on.
struct EndsOthers<'a>(&'a AtomicBool);

impl Drop for EndsOthers<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn worked_on(numbers: Range<u64>, last: u64) -> Vec<u64> {
        let seen = Mutex::new(Vec::new());
        each(3, numbers, None, |number| {
            seen.lock().expect("no work panics").push(number);
            if number == last {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let mut seen = seen.into_inner().expect("no work panics");
        seen.sort_unstable();
        seen
    }

    #[test]
    fn the_last_numbers_of_all_are_worked_on_once() {
        let numbers = u64::MAX - 5..u64::MAX;
        let all: Vec<u64> = numbers.clone().collect();
        assert_eq!(worked_on(numbers, 0), all);
    }

    #[test]
    fn all_below_the_one_that_broke_off_are_worked_on() {
        let seen = worked_on(0..1_000_000, 100);
        assert!(seen.len() > 100 && seen.len() < 1_000_000);
        assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
    }
}
