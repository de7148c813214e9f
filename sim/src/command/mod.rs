//! The command line: what is asked, and the exit status.
//!
//! ```text
//! arguments ──> one module per command ──> what it says: output     how it ends: exit
//!                   ├─ workers: one thing after the other, on threads
//!                   ├─ watch: what loops without end is named, and ends the process
//!                   └─ interrupt: whoever interrupts is told what was found until then
//! ```
//!
//! Invariants: nothing that was found is lost, whatever ends the command; standard output holds the
//! answer and nothing else.

mod bugs;
mod conform;
mod crash_points;
mod digests;
mod exit;
mod explore;
mod interrupt;
mod marks_report;
mod memory;
mod output;
mod progress;
mod replay;
mod seeds;
mod soak;
mod story;
mod trace;
mod walks;
mod watch;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::profile::Length;
use stillpoint_sim::side_by_side;

use self::exit::Exit;

/// Drives stillpoint's machines through seeded worlds full of faults and checks their promises.
#[derive(Parser)]
#[command(version, name = "stillpoint-sim", after_help = Exit::table())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Take what runs for longer than so many milliseconds for an endless loop; else a short seed
    /// after half a minute, and what takes longer later.
    #[arg(long, global = true, value_name = "MILLISECONDS", value_parser = parse_count::<u64>)]
    patience: Option<u64>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a range of seeds and report every broken promise.
    Run(Run),
    /// Run one seed, or play one scenario file, and tell its story.
    Replay(Replay),
    /// Make a failing seed's run short, tell what is left of it and write it as a scenario.
    Shrink(Shrink),
    /// Hold each guard open in turn and see how soon that is found.
    Bugs(Bugs),
    /// Tell which rare situations are reached, and by which seed first.
    Marks(OnThreads),
    /// Print a line for each seed that tells its run from any other.
    Digests(Seeds),
    /// Let everything that can happen happen, in every order, at small bounds.
    Explore(explore::Explore),
    /// Compare the machines' states and steps with the specification's.
    Conform(conform::Conform),
    /// Write what seeds are in the specification's eyes, for TLC to check.
    Trace(trace::Trace),
    /// Cut the power after each step of short stories, and lose each subset of what was not synced.
    CrashPoints(crash_points::CrashPoints),
    /// Measure how many seeds and events go through in a second.
    Bench(Bench),
    /// Run new seeds for a while and write down what came of them.
    Soak(Soak),
}

/// Which seeds, and what they are like.
#[derive(Args)]
struct Seeds {
    /// The seeds, as `A..B`; B is not among them.
    #[arg(long, value_parser = parse_range, default_value = "0..1000")]
    seeds: std::ops::Range<u64>,
    /// How long each run is.
    #[arg(long, value_enum, default_value = "short")]
    length: LengthArgument,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = seeds::parse_guard)]
    hold_open: Option<Guard>,
}

#[derive(Args)]
struct OnThreads {
    #[command(flatten)]
    of: Seeds,
    /// How many threads run seeds; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0, value_parser = parse_threads)]
    threads: usize,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    range: OnThreads,
    /// Stop after so many failures, and report those of the lowest seeds.
    #[arg(long, default_value_t = 20, value_parser = parse_count::<usize>)]
    failures_max: usize,
}

#[derive(Args)]
struct Replay {
    /// The seed, or a scenario file.
    #[arg(required_unless_present = "path", value_name = "SEED|FILE", value_parser = parse_told)]
    told: Option<Told>,
    /// Instead of a seed, a path that `explore` has printed.
    #[arg(long, conflicts_with_all = ["told", "length", "html"])]
    path: Option<String>,
    /// How long the run of a seed is; short if nothing is said.
    #[arg(long, value_enum)]
    length: Option<LengthArgument>,
    /// Hold this guard open: a planted fault. A scenario names its own.
    #[arg(long, value_parser = seeds::parse_guard)]
    hold_open: Option<Guard>,
    /// Write the run as a page for a browser into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What is told again.
#[derive(Clone, Debug)]
enum Told {
    Seed(u64),
    Scenario(PathBuf),
}

#[derive(Args)]
struct Shrink {
    #[command(flatten)]
    replay: Replay,
    /// Write the scenario into this file; else into one named after guard and seed, here.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
}

/// The most minutes that are a time in seconds.
const MINUTES_MAX: u64 = u64::MAX / 60;

#[derive(Args)]
struct Soak {
    /// For how long.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    minutes: u64,
    /// The first seed; else one that follows from the time of day and has not been run before.
    #[arg(long)]
    start: Option<u64>,
    /// The most short seeds to run, whatever time is left.
    #[arg(long, default_value_t = u64::MAX, value_parser = parse_count::<u64>)]
    seeds_max: u64,
    /// How many threads run seeds; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 2, value_parser = parse_threads)]
    threads: usize,
    /// Stop after so many failures. All that are found until every thread has stopped are written
    /// down.
    #[arg(long, default_value_t = 20, value_parser = parse_count::<usize>)]
    failures_max: usize,
    /// Where the result goes; else into a file named after the first seed, here.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = seeds::parse_guard)]
    hold_open: Option<Guard>,
}

#[derive(Args)]
struct Bugs {
    /// Only this guard.
    #[arg(long, value_parser = seeds::parse_guard)]
    guard: Option<Guard>,
    /// How many disjoint ranges of seeds are tried, from seed 1,000,000 on; a range in which nothing is
    /// found ends it.
    #[arg(long, default_value_t = 5, value_parser = parse_count::<u64>)]
    ranges: u64,
    /// How many seeds a range has.
    #[arg(long, default_value_t = 1000, value_parser = parse_count::<u64>)]
    seeds_max: u64,
    /// Shrink the first find of each.
    #[arg(long)]
    stories: bool,
    /// How many threads run seeds; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0, value_parser = parse_threads)]
    threads: usize,
}

#[derive(Args)]
struct Bench {
    /// How many short seeds to run, five times over: the median counts.
    #[arg(long, default_value_t = 2000, value_parser = parse_count::<u64>)]
    seeds: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum LengthArgument {
    /// A few hundred events.
    Short,
    /// Twenty thousand events.
    Long,
}

impl From<LengthArgument> for Length {
    fn from(argument: LengthArgument) -> Self {
        match argument {
            LengthArgument::Short => Self::Short,
            LengthArgument::Long => Self::Long,
        }
    }
}

/// So many threads as are asked for; 0 asks for as many as there are processors.
fn threads(asked: usize) -> usize {
    match asked {
        0 => side_by_side::processors(),
        asked => asked,
    }
}

fn parse_range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range is written A..B")?;
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|error| format!("{text:?}: {error}"))
    };
    let range = number(from)?..number(to)?;
    if range.is_empty() {
        return Err("the range is empty".to_owned());
    }
    Ok(range)
}

/// A number of things to do; none would do nothing and say that all is well.
fn parse_count<T: FromStr<Err: std::fmt::Display> + From<u8> + PartialEq>(
    text: &str,
) -> Result<T, String> {
    let count: T = text.parse().map_err(|error: T::Err| error.to_string())?;
    if count == T::from(0) {
        return Err("0 would do nothing".to_owned());
    }
    Ok(count)
}

fn parse_threads(text: &str) -> Result<usize, String> {
    let most = workers::THREADS_MAX;
    match text.parse::<usize>() {
        Ok(threads) if threads <= most => Ok(threads),
        Ok(_) => Err(format!("{most} are the most")),
        Err(error) => Err(error.to_string()),
    }
}

/// A number is a seed; a file with a number for a name is written with its folder.
fn parse_told(text: &str) -> Result<Told, String> {
    match text.parse() {
        Ok(seed) => Ok(Told::Seed(seed)),
        Err(error) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err(error.to_string()),
        Err(_) => Ok(Told::Scenario(PathBuf::from(text))),
    }
}

/// Does what the command line asks for.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Held
            };
            return ExitCode::from(output::after(error.print(), exit).code());
        }
    };
    watch::start(arguments.patience.map(Duration::from_millis));
    let done = catch_unwind(AssertUnwindSafe(|| {
        obey(&arguments.command, arguments.json)
    }));
    let exit = match done {
        Ok(Ok(exit)) => exit,
        Ok(Err(failed)) => {
            output::fail(&failed, arguments.json);
            Exit::Usage
        }
        // Machines' panics are caught where they run, so this one is the simulator's.
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|&it| it.to_owned()));
            let words = words.unwrap_or_else(|| "it does not say how".to_owned());
            let failed = format!("the simulator itself failed: {words}");
            output::fail(&failed, arguments.json);
            Exit::CheckFailed
        }
    };
    ExitCode::from(interrupt::or(output::end(exit)).code())
}

fn obey(command: &Command, json: bool) -> Result<Exit, String> {
    match command {
        Command::Run(asked) => seeds::run(asked, json),
        Command::Replay(asked) => match &asked.path {
            None => replay::replay(asked, json),
            Some(path) => explore::replay_path(path, asked.hold_open, json),
        },
        Command::Shrink(asked) => replay::shrink(asked, json),
        Command::Bugs(wanted) => bugs::bugs(wanted, json),
        Command::Marks(range) => marks_report::marks(range, json),
        Command::Digests(range) => digests::digests(range, json),
        Command::Explore(wanted) => explore::explore(wanted, json),
        Command::Conform(wanted) => conform::conform(wanted, json),
        Command::Trace(wanted) => trace::trace(wanted, json),
        Command::CrashPoints(wanted) => crash_points::crash_points(wanted, json),
        Command::Bench(bench) => seeds::bench(bench, json),
        Command::Soak(asked) => soak::soak(asked, json),
    }
}
