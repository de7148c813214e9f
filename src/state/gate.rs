//! The write gate: writers pass through it, a checkpoint's cut closes it.
//!
//! ```text
//! writer     gate.pass()  ── one batch ──  drop      many at once
//! cut        gate.close() ── snapshot ──   drop      alone; waits for those inside, holds the rest
//! ```
//!
//! What a cut promises, that everything written before it is in the checkpoint and nothing after
//! it, holds as long as nobody writes during the cut. A program with one writing thread that also
//! asks for the checkpoints needs no gate; a program with more takes one, or any lock of its own.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Lets many writers pass and closes for a cut. A waiting cut goes before later writers, so it
/// waits for the batches under way and no longer.
///
/// ```
/// use std::thread;
/// use stillpoint::MemoryState;
/// use stillpoint::state::{StateBackend, WriteGate};
///
/// let (gate, state) = (WriteGate::new(), MemoryState::new());
/// let cut = thread::scope(|scope| {
///     for writer in [b"one", b"two"] {
///         let (gate, state) = (&gate, &state);
///         scope.spawn(move || {
///             for number in 0..100_u8 {
///                 let _inside = gate.pass(); // both writes are in a cut, or neither is
///                 state.put(writer, &[number]);
///                 state.put(&[writer, &b"again"[..]].concat(), &[number]);
///             }
///         });
///     }
///     let _closed = gate.close(); // nobody is in the middle of a batch
///     state.snapshot()
/// })?;
/// assert!(cut.files().is_empty(), "all of such a state is in the pack");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Neither guard can be held across an `.await`, and a thread that is inside must not pass again:
/// a cut that waits in between would stop both.
#[derive(Debug, Default)]
pub struct WriteGate(RwLock<()>);

/// A writer is inside; dropped when its batch is written.
#[derive(Debug)]
#[must_use = "the gate counts the writer as gone as soon as this is dropped"]
pub struct Inside<'a>(#[expect(dead_code, reason = "held for its drop")] RwLockReadGuard<'a, ()>);

/// No writer is inside and none gets in; dropped when the cut is taken.
#[derive(Debug)]
#[must_use = "the gate opens as soon as this is dropped"]
pub struct Closed<'a>(#[expect(dead_code, reason = "held for its drop")] RwLockWriteGuard<'a, ()>);

impl WriteGate {
    /// An open gate.
    #[must_use]
    pub const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Waits while the gate is closed, then lets a writer in.
    pub fn pass(&self) -> Inside<'_> {
        Inside(self.0.read())
    }

    /// Lets nobody in any more and waits until those inside are gone.
    pub fn close(&self) -> Closed<'_> {
        Closed(self.0.write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let gate = WriteGate::new();
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let _inside = gate.pass();
                        begun.fetch_add(1, Ordering::SeqCst);
                        ended.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                let _closed = gate.close();
                let before = begun.load(Ordering::SeqCst);
                std::thread::yield_now();
                assert_eq!(before, ended.load(Ordering::SeqCst));
                assert_eq!(before, begun.load(Ordering::SeqCst));
            }
        });
        assert_eq!(ended.load(Ordering::SeqCst), 8_000);
    }
}
