//! The command line: what is asked, and the exit status.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | every promise held |
//! | 2 | wrong usage, a file that can't be written, or less was done than was asked for |
//! | 3 | a safety promise was broken |
//! | 4 | a liveness promise was broken |
//! | 5 | a machine asserted |

mod bugs;
mod conform;
mod crash_points;
mod digests;
mod explore;
mod marks_report;
mod progress;
mod replay;
mod seeds;
mod soak;
mod trace;
mod walks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stillpoint_sim::invariants::Class;
use stillpoint_sim::profile::Length;

/// Drives stillpoint's machines through seeded worlds full of faults and checks their promises.
#[derive(Parser)]
#[command(version, name = "stillpoint-sim")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run a range of seeds and report every broken promise.
    Run(Range),
    /// Run one seed and tell its story.
    Replay(Replay),
    /// Make a failing seed's run short, tell what is left of it and write it as a scenario.
    Shrink(Shrink),
    /// Hold each guard open in turn and see how soon that is found.
    Bugs(Bugs),
    /// Tell which rare situations are reached, and by which seed first.
    Marks(Range),
    /// Print a line for each seed that tells its run from any other.
    Digests(Range),
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

#[derive(Args)]
struct Range {
    /// The seeds, as `A..B`; B is not among them.
    #[arg(long, value_parser = parse_range, default_value = "0..1000")]
    seeds: std::ops::Range<u64>,
    /// How long each run is.
    #[arg(long, value_enum, default_value = "short")]
    length: LengthArgument,
    /// How many threads run seeds; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 20)]
    failures_max: usize,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = seeds::parse_guard)]
    hold_open: Option<stillpoint::protocol::marks::Guard>,
}

#[derive(Args)]
struct Replay {
    /// The seed.
    #[arg(required_unless_present = "path")]
    seed: Option<u64>,
    /// Instead of a seed, a path that `explore` has printed.
    #[arg(long, conflicts_with = "seed")]
    path: Option<String>,
    /// How long the run is.
    #[arg(long, value_enum, default_value = "short")]
    length: LengthArgument,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = seeds::parse_guard)]
    hold_open: Option<stillpoint::protocol::marks::Guard>,
    /// Write the run as a page for a browser into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Args)]
struct Shrink {
    #[command(flatten)]
    replay: Replay,
    /// Write the scenario into this file; else into one named after guard and seed, here.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
}

#[derive(Args)]
struct Soak {
    /// For how long.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first seed; else one that follows from the time of day and has not been run before.
    #[arg(long)]
    start: Option<u64>,
    /// The most short seeds to run, whatever time is left.
    #[arg(long, default_value_t = u64::MAX)]
    seeds_max: u64,
    /// How many threads run seeds.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 20)]
    failures_max: usize,
    /// Where the result goes; else into a file named after the first seed, here.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = seeds::parse_guard)]
    hold_open: Option<stillpoint::protocol::marks::Guard>,
}

impl Replay {
    /// The seed, which is there if no path is.
    fn seed(&self) -> u64 {
        self.seed.unwrap_or_default()
    }
}

#[derive(Args)]
struct Bugs {
    /// Only this guard.
    #[arg(long, value_parser = seeds::parse_guard)]
    guard: Option<stillpoint::protocol::marks::Guard>,
    /// How many disjoint ranges of seeds are tried.
    #[arg(long, default_value_t = 5)]
    ranges: u64,
    /// How many seeds a range has.
    #[arg(long, default_value_t = 1000)]
    seeds_max: u64,
    /// Shrink the first find of each.
    #[arg(long)]
    stories: bool,
}

#[derive(Args)]
struct Bench {
    /// How many short seeds to run.
    #[arg(long, default_value_t = 2000)]
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
        0 => std::thread::available_parallelism().map_or(1, usize::from),
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

/// Does what the command line asks for.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let json = arguments.json;
    let worst = match arguments.command {
        Command::Run(range) => Ok(seeds::run_range(&range, json)),
        Command::Replay(asked) => match &asked.path {
            None => replay::replay(&asked, json),
            Some(path) => explore::replay_path(path, asked.hold_open, json),
        },
        Command::Shrink(asked) => match &asked.replay.path {
            None => replay::shrink_seed(&asked, json),
            Some(_) => Err("a path is short already; only a seed is shrunk".to_owned()),
        },
        Command::Bugs(wanted) => Ok(bugs::bugs(&wanted, json)),
        Command::Marks(range) => Ok(marks_report::marks(&range, json)),
        Command::Digests(range) => Ok(digests::digests(&range, json)),
        Command::Explore(wanted) => explore::explore(&wanted, json),
        Command::Conform(wanted) => conform::conform(&wanted, json),
        Command::Trace(wanted) => trace::trace(&wanted, json),
        Command::CrashPoints(wanted) => crash_points::crash_points(&wanted, json),
        Command::Bench(bench) => Ok(seeds::bench(&bench, json)),
        Command::Soak(asked) => soak::soak(&asked, json),
    };
    match worst {
        Ok(worst) => ExitCode::from(status(worst)),
        Err(failed) => {
            eprintln!("error: {failed}");
            ExitCode::from(2)
        }
    }
}

fn status(worst: Option<Class>) -> u8 {
    match worst {
        None => 0,
        Some(Class::Safety) => 3,
        Some(Class::Liveness) => 4,
        Some(Class::Crash) => 5,
    }
}
