//! The simulator's command: run seeds, replay and shrink failures, measure.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command talks to its user"
)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
