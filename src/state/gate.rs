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

use std::cell::RefCell;
use std::marker::PhantomData;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

thread_local! {
    /// Where this thread stands: the gates it is inside of, or has closed, once for each guard.
    static STANDS: RefCell<Vec<(usize, Stand)>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    Inside,
    Closed,
}

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
/// A thread that is inside may pass again. One that would wait for itself, because it closes a gate
/// that it is inside of, or passes one that it has closed, panics instead.
///
/// Hold neither guard across an `.await`. The guards are not `Send`, so a task that is spawned can't;
/// but the compiler lets `#[tokio::main]`'s function and `block_on` do it, and then whatever else runs
/// on that thread may wait for the gate, and so for ever.
#[derive(Debug, Default)]
pub struct WriteGate(RwLock<()>);

/// A writer is inside; dropped when its batch is written.
#[derive(Debug)]
#[must_use = "the gate counts the writer as gone as soon as this is dropped"]
pub struct Inside<'a> {
    _guard: RwLockReadGuard<'a, ()>,
    _standing: Standing,
}

/// No writer is inside and none gets in; dropped when the cut is taken.
#[derive(Debug)]
#[must_use = "the gate opens as soon as this is dropped"]
pub struct Closed<'a> {
    _guard: RwLockWriteGuard<'a, ()>,
    _standing: Standing,
}

/// Notes for as long as a guard lives where its thread stands, which therefore stays the same.
#[derive(Debug)]
struct Standing {
    gate: usize,
    stand: Stand,
    _of_this_thread: PhantomData<*const ()>,
}

impl Standing {
    fn new(gate: usize, stand: Stand) -> Self {
        STANDS.with_borrow_mut(|stands| stands.push((gate, stand)));
        Self {
            gate,
            stand,
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // At a thread's end there may be nobody left to tell.
        let _ = STANDS.try_with(|stands| {
            let mut stands = stands.borrow_mut();
            let own = (self.gate, self.stand);
            if let Some(at) = stands.iter().rposition(|stand| *stand == own) {
                stands.swap_remove(at);
            }
        });
    }
}

impl WriteGate {
    /// An open gate.
    #[must_use]
    pub const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Waits while the gate is closed, then lets a writer in.
    ///
    /// # Panics
    /// When this thread has closed the gate: it would wait for itself.
    pub fn pass(&self) -> Inside<'_> {
        let stand = self.stand();
        assert!(
            stand != Some(Stand::Closed),
            "a write gate is passed by the thread that has closed it"
        );
        let guard = match stand {
            // A cut may wait for this thread already, and goes first elsewhere.
            Some(_) => self.0.read_recursive(),
            None => self.0.read(),
        };
        Inside {
            _guard: guard,
            _standing: Standing::new(self.identity(), Stand::Inside),
        }
    }

    /// Lets nobody in any more and waits until those inside are gone.
    ///
    /// # Panics
    /// When this thread is inside, or has closed the gate already: it would wait for itself.
    pub fn close(&self) -> Closed<'_> {
        let stand = self.stand();
        assert!(
            stand.is_none(),
            "a write gate is closed by a thread that is {stand:?}: it would wait for itself"
        );
        Closed {
            _guard: self.0.write(),
            _standing: Standing::new(self.identity(), Stand::Closed),
        }
    }

    /// Its place, which is its own for as long as there is a guard.
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Where this thread stands.
    fn stand(&self) -> Option<Stand> {
        let gate = self.identity();
        STANDS.with_borrow(|stands| {
            let mut here = stands.iter().filter(|(stood_at, _)| *stood_at == gate);
            here.next().map(|(_, stand)| *stand)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_thread_that_would_wait_for_itself_panics() {
        let (gate, other) = (WriteGate::new(), WriteGate::new());
        let panics = |act: &dyn Fn()| {
            let act = std::panic::AssertUnwindSafe(act);
            std::panic::catch_unwind(act).is_err()
        };
        {
            let _inside = gate.pass();
            assert!(panics(&|| drop(gate.close())));
            drop(other.close());
        }
        {
            let _closed = gate.close();
            assert!(panics(&|| drop(gate.pass())));
            assert!(panics(&|| drop(gate.close())));
            drop(other.pass());
        }
        // All of that is over: nothing is left noted.
        drop(gate.close());
        drop(gate.pass());
    }

    #[test]
    fn whoever_is_inside_passes_again_although_a_cut_waits() {
        let gate = WriteGate::new();
        std::thread::scope(|scope| {
            let outer = gate.pass();
            let cut = scope.spawn(|| drop(gate.close()));
            // The cut waits as soon as somebody new can't get in.
            while gate.0.try_read().is_some() {
                std::thread::yield_now();
            }
            drop(gate.pass());
            drop(outer);
            cut.join().unwrap();
        });
    }

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
