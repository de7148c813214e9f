//! Work on several threads.
//!
//! [`each`] takes numbers one by one and may break off; [`on_threads`] has results that stand in the
//! order of what they are of.
//!
//! What it does not do: say where results go, or share a source of work that grows.

use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// As many threads as there are processors.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Works on each number, lowest first, on so many threads, one at least, until the work breaks off
/// or `goes_on` says no. Whatever was begun is finished: so all that was worked on is all numbers
/// below some limit.
///
/// # Panics
/// When the work does, with its words.
pub fn each(
    threads: usize,
    numbers: Range<u64>,
    goes_on: impl Fn() -> bool + Sync,
    work: impl Fn(u64) -> ControlFlow<()> + Sync,
) {
    let next = AtomicU64::new(numbers.start);
    let is_over = AtomicBool::new(false);
    let one = || {
        let _others = EndsOthers(&is_over);
        while !is_over.load(Ordering::Relaxed) && goes_on() {
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
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one)).collect();
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

/// What comes of each item, worked out on so many threads, one at least. The items of a thread follow
/// each other.
///
/// # Panics
/// When the work does.
pub fn on_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let size = items.len().div_ceil(threads.max(1)).max(1);
    let work = &work;
    std::thread::scope(|scope| {
        let parts = items
            .chunks(size)
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<_>>()));
        let parts: Vec<_> = parts.collect();
        let results = parts
            .into_iter()
            .flat_map(|part| part.join().expect("the work does not panic"));
        results.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn worked_on(numbers: Range<u64>, last: u64) -> Vec<u64> {
        let seen = Mutex::new(Vec::new());
        let work = |number| {
            seen.lock().expect("no work panics").push(number);
            if number == last {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        each(3, numbers, || true, work);
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

    #[test]
    fn results_stand_in_the_order_of_their_items() {
        let items: Vec<u32> = (0..10).collect();
        let doubled: Vec<u32> = items.iter().map(|item| 2 * item).collect();
        for threads in [0, 1, 3, 20] {
            assert_eq!(on_threads(threads, &items, |item| 2 * item), doubled);
        }
        assert!(on_threads(2, &[], |item: &u32| *item).is_empty());
    }
}
