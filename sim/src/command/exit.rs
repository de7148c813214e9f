//! How the command ends. One table: the help prints it, the README quotes it.

use stillpoint_sim::invariants::Class;

/// A status that the process ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exit {
    Held,
    CheckFailed,
    Usage,
    Safety,
    Liveness,
    Crash,
    Interrupted,
    Terminated,
}

impl Exit {
    pub(super) const ALL: [Self; 8] = [
        Self::Held,
        Self::CheckFailed,
        Self::Usage,
        Self::Safety,
        Self::Liveness,
        Self::Crash,
        Self::Interrupted,
        Self::Terminated,
    ];

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::CheckFailed => 1,
            Self::Usage => 2,
            Self::Safety => 3,
            Self::Liveness => 4,
            Self::Crash => 5,
            // What a shell makes of SIGINT and SIGTERM.
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Held => "every promise held",
            Self::CheckFailed => {
                "no promise was broken, but a check of the simulator itself failed: a planted fault \
                 not found, a rare situation not reached, a scenario that ends otherwise than it says, a specification that says otherwise"
            }
            Self::Usage => {
                "wrong usage: arguments, a file that can't be read or written, or a full standard output"
            }
            Self::Safety => "a safety promise was broken",
            Self::Liveness => "a liveness promise was broken",
            Self::Crash => "a machine asserted, or looped without end",
            Self::Interrupted => "interrupted (SIGINT): what was found until then is told",
            Self::Terminated => "terminated (SIGTERM): what was found until then is told",
        }
    }

    /// The table, for the help.
    pub(super) fn table() -> String {
        let rows = Self::ALL
            .iter()
            .map(|exit| format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
        format!("Exit status:\n{}", rows.collect::<String>())
    }

    /// Of the promises that were broken the gravest decides.
    pub(super) fn of(broken: impl IntoIterator<Item = Class>) -> Self {
        let exits = broken.into_iter().map(|class| match class {
            Class::Safety => Self::Safety,
            Class::Liveness => Self::Liveness,
            Class::Crash => Self::Crash,
        });
        exits.max_by_key(|exit| exit.code()).unwrap_or(Self::Held)
    }

    /// This, or that it could not be told if nothing graver is to be said.
    pub(super) fn unless_unprinted(self) -> Self {
        if self == Self::Held {
            Self::Usage
        } else {
            self
        }
    }

    /// This, or that a check of the simulator failed if nothing graver is to be said.
    pub(super) fn unless_missed(self, missed: bool) -> Self {
        if missed && self == Self::Held {
            Self::CheckFailed
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_decides() {
        assert_eq!(Exit::of([]), Exit::Held);
        assert_eq!(Exit::of([Class::Crash, Class::Safety]), Exit::Crash);
        assert_eq!(Exit::Held.unless_missed(true), Exit::CheckFailed);
        assert_eq!(Exit::Safety.unless_missed(true), Exit::Safety);
    }

    #[test]
    fn the_page_lists_every_status() {
        let page = include_str!("../../README.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.code(), exit.meaning());
            assert!(page.contains(&row), "README.md does not have {row:?}");
        }
    }
}
