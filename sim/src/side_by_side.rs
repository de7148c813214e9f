//! Work on several threads, whose results stand in the order of what they are of.
//!
//! What it does not do: share a source of work that grows, or end early.

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
