//! The simulator's command: run seeds, replay and shrink failures, measure.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command talks to its user"
)]

mod command;

use std::process::ExitCode;

/// A run is some ten thousand small allocations: a sixth of its time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::main()
}
