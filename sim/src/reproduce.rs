//! How a run is repeated: revision, features, build, seed, and the whole command.

use std::fmt;

use stillpoint::protocol::marks::Guard;

use crate::profile::Length;

/// The revision that was built, with `-modified` if files differed from it.
#[must_use]
pub const fn revision() -> &'static str {
    env!("STILLPOINT_REVISION")
}

/// The features of the library that is simulated.
#[must_use]
pub const fn features() -> &'static str {
    "marks"
}

/// How it was built.
#[must_use]
pub const fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "with debug assertions"
    } else {
        "without debug assertions"
    }
}

/// What was built, in words.
#[must_use]
pub fn provenance() -> String {
    format!(
        "revision {}, features {}, built {}",
        revision(),
        features(),
        build()
    )
}

/// The whole command that has the simulator do what these arguments say.
#[must_use]
pub fn whole_command(arguments: &str) -> String {
    format!("cargo run --release -p stillpoint-sim -- {arguments}")
}

/// The name of a length, as the command line takes it.
#[must_use]
pub const fn length_name(length: Length) -> &'static str {
    match length {
        Length::Short => "short",
        Length::Long => "long",
    }
}

/// One run, as it can be asked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reproduction {
    /// The seed.
    pub seed: u64,
    /// How long the run is.
    pub length: Length,
    /// The planted fault, if there is one.
    pub hold_open: Option<Guard>,
}

impl Reproduction {
    /// The whole command that does this again: `replay` it, or `shrink` it.
    #[must_use]
    pub fn command(&self, what: &str) -> String {
        let mut command = whole_command(&format!("{what} {}", self.seed));
        match self.length {
            Length::Short => {}
            Length::Long => command.push_str(" --length long"),
        }
        if let Some(guard) = self.hold_open {
            command.push_str(" --hold-open ");
            command.push_str(guard.name());
        }
        command
    }
}

impl fmt::Display for Reproduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = length_name(self.length);
        write!(f, "seed {}, {length}", self.seed)?;
        if let Some(guard) = self.hold_open {
            write!(f, ", {} held open", guard.name())?;
        }
        write!(f, "; {}", provenance())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_all_that_differs_from_the_default() {
        let mut run = Reproduction {
            seed: 7,
            length: Length::Short,
            hold_open: None,
        };
        let plain = "cargo run --release -p stillpoint-sim -- replay 7";
        assert_eq!(run.command("replay"), plain);
        run.length = Length::Long;
        run.hold_open = Guard::parse("PinnedIsKept");
        let full = format!("{plain} --length long --hold-open PinnedIsKept");
        assert_eq!(run.command("replay"), full);
        assert!(run.to_string().contains(revision()));
    }
}
