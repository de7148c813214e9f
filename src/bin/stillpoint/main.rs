//! The `stillpoint` command: see, verify, explain, clean and restore checkpoints, and try them out.
//!
//! ```text
//! arguments ──> one module per command ──> Outcome ──> text or JSON on standard output, exit status
//!                   └─ root: the repository        errors, logs and bars on standard error
//! ```
//!
//! Invariants: nothing is asked of the user; standard output holds the answer and nothing else;
//! commands that only read open the repository for reading and create nothing, anywhere.

mod arguments;
mod bar;
mod collect;
#[cfg(feature = "rocksdb")]
mod demo;
mod exit;
mod explain;
mod list;
mod objects;
mod output;
mod restore;
mod root;
mod show;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use stillpoint::{Error, ErrorKind};
use tracing_subscriber::filter::LevelFilter;

use crate::arguments::{Arguments, Command, Level};
use crate::exit::Exit;
use crate::output::Outcome;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(refuse(&error).code()),
    };
    log_to_stderr(arguments.log);
    let command = arguments.command.name();
    let exit = match run(&arguments.command) {
        Ok(outcome) => outcome.print(command, arguments.json),
        Err(error) => output::print_error(command, &error, arguments.json),
    };
    ExitCode::from(exit.code())
}

fn run(command: &Command) -> Result<Outcome, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
    let outcome = runtime.block_on(async {
        match command {
            // The demo has processes and directories to clear away first.
            Command::Demo(asked) => run_demo(asked).await,
            Command::DemoWorker(asked) => run_demo_worker(asked).await,
            Command::Ls(_)
            | Command::Show(_)
            | Command::Verify(_)
            | Command::Explain(_)
            | Command::Gc(_)
            | Command::Restore(_) => tokio::select! {
                outcome = dispatch(command) => outcome,
                _ = tokio::signal::ctrl_c() => Err(interrupted()),
            },
        }
    });
    // Calls of the file system that were given up are not waited for.
    runtime.shutdown_background();
    outcome
}

async fn dispatch(command: &Command) -> Result<Outcome, Error> {
    match command {
        Command::Ls(at) => list::run(at).await,
        Command::Show(asked) => show::run(asked).await,
        Command::Verify(asked) => verify::run(asked).await,
        Command::Explain(asked) => explain::run(asked).await,
        Command::Gc(asked) => collect::run(asked).await,
        Command::Restore(asked) => restore::run(asked).await,
        Command::Demo(_) | Command::DemoWorker(_) => {
            Err(Error::new(ErrorKind::Internal, "the demo runs by itself"))
        }
    }
}

fn interrupted() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "interrupted; the same command may be given again",
    )
}

#[cfg(feature = "rocksdb")]
async fn run_demo(asked: &arguments::Demo) -> Result<Outcome, Error> {
    demo::run(asked).await
}

#[cfg(feature = "rocksdb")]
async fn run_demo_worker(asked: &arguments::DemoWorker) -> Result<Outcome, Error> {
    demo::worker::run(&asked.task).await
}

#[cfg(not(feature = "rocksdb"))]
async fn run_demo(_: &arguments::Demo) -> Result<Outcome, Error> {
    Err(without_rocksdb())
}

#[cfg(not(feature = "rocksdb"))]
async fn run_demo_worker(_: &arguments::DemoWorker) -> Result<Outcome, Error> {
    Err(without_rocksdb())
}

#[cfg(not(feature = "rocksdb"))]
fn without_rocksdb() -> Error {
    let cause = "the demo needs RocksDB, which this program was built without: build it with --features cli,rocksdb";
    Error::new(ErrorKind::Invalid, cause)
}

fn log_to_stderr(level: Level) {
    let level = match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// Help and version are printed; anything else that could not be parsed is wrong usage, told as
/// JSON to whoever asked for that.
fn refuse(error: &clap::Error) -> Exit {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !wants_json {
        // Whoever reads the help may have had enough of it.
        let _ = error.print();
        return if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Done
        };
    }
    let rendered = error.render().to_string();
    let cause = rendered.trim().trim_start_matches("error: ");
    let cause = output::in_a_line(cause);
    output::print_error("", &Error::new(ErrorKind::Invalid, cause), true)
}
