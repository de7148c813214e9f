//! Guards and marks: every rule of the protocol by its name, and every rare situation.
//!
//! `guard!(Name, condition)` is where a rule of ownership, garbage, fencing, unknown outcomes or
//! triggering is written, once. In a normal build it is the condition and nothing else. With the
//! feature `marks`, which only the simulator turns on, a guard counts how often it held and did
//! not, and one guard at a time can be *held open*: it then lets everything pass, which plants
//! the fault that the guard exists to prevent.
//!
//! `sometimes!(Name)` marks a situation that a good simulation must reach. In a normal build it is
//! nothing.
//!
//! Convention: a guard that is true *lets the step happen*.

/// Writes a rule of the protocol by its name; see the module.
#[macro_export]
#[doc(hidden)]
macro_rules! __guard {
    ($name:ident, $condition:expr) => {{
        #[cfg(feature = "marks")]
        {
            $crate::protocol::marks::check($crate::protocol::marks::Guard::$name, $condition)
        }
        #[cfg(not(feature = "marks"))]
        {
            $condition
        }
    }};
}

/// Marks a situation that a good simulation must reach; see the module.
#[macro_export]
#[doc(hidden)]
macro_rules! __sometimes {
    ($name:ident) => {{
        #[cfg(feature = "marks")]
        $crate::protocol::marks::reach($crate::protocol::marks::Mark::$name);
    }};
    ($name:ident, $condition:expr) => {{
        #[cfg(feature = "marks")]
        if $condition {
            $crate::protocol::marks::reach($crate::protocol::marks::Mark::$name);
        }
    }};
}

pub(crate) use __guard as guard;
pub(crate) use __sometimes as sometimes;

#[cfg(feature = "marks")]
pub use counted::{Guard, Mark, check, counts, hold_open, reach, reached, reset};

#[cfg(feature = "marks")]
mod counted {
    use std::cell::{Cell, RefCell};
    use std::vec;
    use std::vec::Vec;

    macro_rules! names {
        ($(#[$doc:meta])* $kind:ident { $($(#[$item_doc:meta])* $name:ident,)* }) => {
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub enum $kind { $($(#[$item_doc])* $name,)* }

            impl $kind {
                /// All of them, in order.
                pub const ALL: &'static [Self] = &[$(Self::$name,)*];

                /// The name as the source writes it.
                #[must_use]
                pub fn name(self) -> &'static str {
                    match self { $(Self::$name => stringify!($name),)* }
                }

                /// The one with this name.
                #[must_use]
                pub fn parse(name: &str) -> Option<Self> {
                    Self::ALL.iter().copied().find(|item| item.name() == name)
                }
            }
        };
    }

    include!("marks_names.rs");

    std::thread_local! {
        static HELD_OPEN: Cell<Option<Guard>> = const { Cell::new(None) };
        static GUARDS: RefCell<Vec<(u64, u64)>> = RefCell::new(vec![(0, 0); Guard::ALL.len()]);
        static MARKS: RefCell<Vec<u64>> = RefCell::new(vec![0; Mark::ALL.len()]);
    }

    /// What a guard answers: its condition, or true while it is held open. Counts the condition.
    pub fn check(guard: Guard, condition: bool) -> bool {
        GUARDS.with_borrow_mut(|counts| {
            let count = &mut counts[guard as usize];
            if condition {
                count.0 += 1
            } else {
                count.1 += 1
            }
        });
        condition || HELD_OPEN.get() == Some(guard)
    }

    /// Counts a situation as reached.
    pub fn reach(mark: Mark) {
        MARKS.with_borrow_mut(|counts| counts[mark as usize] += 1);
    }

    /// Holds one guard open on this thread, or none.
    pub fn hold_open(guard: Option<Guard>) {
        HELD_OPEN.set(guard);
    }

    /// How often a guard's condition was true and false on this thread since the last reset.
    #[must_use]
    pub fn counts(guard: Guard) -> (u64, u64) {
        GUARDS.with_borrow(|counts| counts[guard as usize])
    }

    /// How often a situation was reached on this thread since the last reset.
    #[must_use]
    pub fn reached(mark: Mark) -> u64 {
        MARKS.with_borrow(|counts| counts[mark as usize])
    }

    /// Sets this thread's counts to zero.
    pub fn reset() {
        GUARDS.with_borrow_mut(|counts| counts.fill((0, 0)));
        MARKS.with_borrow_mut(|counts| counts.fill(0));
    }
}
