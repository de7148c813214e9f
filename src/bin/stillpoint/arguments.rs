//! What can be asked for on the command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stillpoint::protocol::id::CheckpointId;

use crate::exit::Exit;

/// See, verify, explain, clean and restore the checkpoints in a repository.
///
/// All commands but `gc --take-over` are guests: they disturb no process that holds a participant,
/// and except for `gc` and `restore` they write nothing at all.
#[derive(Parser, Debug)]
#[command(name = "stillpoint", version, after_help = Exit::table(), max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Print one JSON document instead of text, errors included
    #[arg(long, global = true)]
    pub json: bool,
    /// What the library reports on standard error while it works
    #[arg(long, global = true, value_enum, value_name = "LEVEL", default_value_t = Level::Warn)]
    pub log: Level,
}

/// How much of the library's own reports is shown.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Take checkpoints under load, kill the process while it uploads, restore, and compare
    #[command(after_help = Exit::table())]
    Demo(Demo),
    /// List participants and their checkpoints
    #[command(after_help = Exit::table())]
    Ls(Where),
    /// Show a checkpoint and its files
    #[command(after_help = Exit::table())]
    Show(Show),
    /// Check that stored files are there and are what they were
    #[command(after_help = Exit::table())]
    Verify(Verify),
    /// Say who refers to a file, and why it is or isn't garbage
    #[command(after_help = Exit::table())]
    Explain(Explain),
    /// Delete files that are condemned already; with --take-over, everything that is garbage
    #[command(after_help = Exit::table())]
    Gc(Collect),
    /// Make a directory equal to a checkpoint
    #[command(after_help = Exit::table())]
    Restore(Restore),
    /// One life of the demo's worker
    #[command(hide = true)]
    DemoWorker(DemoWorker),
}

impl Command {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Demo(_) => "demo",
            Self::Ls(_) => "ls",
            Self::Show(_) => "show",
            Self::Verify(_) => "verify",
            Self::Explain(_) => "explain",
            Self::Gc(_) => "gc",
            Self::Restore(_) => "restore",
            Self::DemoWorker(_) => "demo-worker",
        }
    }
}

/// Where the checkpoints are.
#[derive(Args, Debug)]
pub struct Where {
    /// The repository's directory
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// One participant of the repository; needed where there are several and one is meant
    #[arg(long, value_name = "NAME")]
    pub participant: Option<String>,
}

/// A checkpoint's id, or the one that a restart would restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    Newest,
    Id(CheckpointId),
}

impl FromStr for Wanted {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "newest" {
            return Ok(Self::Newest);
        }
        let id = text
            .parse()
            .map_err(|_| "a checkpoint's id is a number, or `newest`")?;
        Ok(Self::Id(CheckpointId(id)))
    }
}

#[derive(Args, Debug)]
pub struct Show {
    /// The checkpoint's id, or `newest`: the one that a restart would restore
    #[arg(value_name = "ID")]
    pub checkpoint: Wanted,
    #[command(flatten)]
    pub at: Where,
}

#[derive(Args, Debug)]
pub struct Verify {
    /// The checkpoint's id, or `newest`: the one that a restart would restore
    #[arg(value_name = "ID", default_value = "newest", conflicts_with = "all")]
    pub checkpoint: Wanted,
    /// Verify every retained checkpoint; of every participant, unless one is named
    #[arg(long)]
    pub all: bool,
    /// Read every file in full and compare its checksum, instead of its presence and size
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub at: Where,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// The file: `shared/1/7`, `1/7`, a path that ends so, a name in the state's directory
    /// (`000012.sst`), or anything else in the repository (`CURRENT`)
    #[arg(value_name = "FILE")]
    pub file: String,
    #[command(flatten)]
    pub at: Where,
}

#[derive(Args, Debug)]
pub struct Collect {
    /// Delete nothing, say what would be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// Become the participant's holder first, which fences the process that holds it now: it can't
    /// complete another checkpoint. Then delete all that no retained checkpoint refers to
    #[arg(long, conflicts_with = "dry_run")]
    pub take_over: bool,
    /// Give --take-over up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub deadline: Duration,
    #[command(flatten)]
    pub at: Where,
}

#[derive(Args, Debug)]
pub struct Restore {
    /// The checkpoint's id, or `newest`: the one that a restart would restore
    #[arg(value_name = "ID")]
    pub checkpoint: Wanted,
    /// The directory to fill, outside the repository: absent, empty, or one that a restore of
    /// the same participant has filled before and that nobody uses. Files in it that are right are kept, others are removed
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Read files that are kept in full, and check them
    #[arg(long)]
    pub verify_kept: bool,
    #[command(flatten)]
    pub at: Where,
}

/// Everything happens in a directory of its own, which is removed at the end if all is well.
#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// Keys that are counted
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(16..=1_000_000))]
    pub value_bytes: u64,
    /// Events of the stream
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,
    /// The stream is played so that it takes this long, besides restarts; 0: as fast as possible
    #[arg(long, default_value = "20", value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Duration,
    /// Time between two checkpoints
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub interval_ms: u64,
    /// How often the worker is killed with SIGKILL while it uploads
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub kills: u64,
    /// Chooses the stream and the moments of the kills
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Completed checkpoints that are retained
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub retain: u64,
    /// Where to work, absent or empty, instead of a temporary directory; it is not removed
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct DemoWorker {
    /// What to do, as the demo says it
    #[cfg_attr(
        not(feature = "rocksdb"),
        allow(dead_code, reason = "there is no demo")
    )]
    pub task: String,
}

const SECONDS_MAX: f64 = 1e9;

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let wrong = "a number of seconds";
    let seconds: f64 = text.parse().map_err(|_| wrong)?;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(wrong);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong)
}
