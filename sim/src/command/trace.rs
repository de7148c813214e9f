//! Writing traces for TLC: of seeds, and of planted faults that the specification must not accept.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::side_by_side::on_threads;
use stillpoint_sim::trace;

use super::exit::Exit;
use super::output::say;
use super::watch::{self, Doing};

/// What is traced.
#[derive(Args)]
pub(super) struct Trace {
    /// The seeds, as `A..B`; B is not among them.
    #[arg(long, value_parser = super::parse_range, default_value = "0..240")]
    seeds: std::ops::Range<u64>,
    /// The folder that the traces go to, in one folder for each configuration.
    #[arg(long, default_value = "target/traces")]
    out: PathBuf,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
    /// Trace the planted faults of this table besides.
    #[arg(long)]
    planted: Option<PathBuf>,
    /// How many threads run seeds; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0, value_parser = super::parse_threads)]
    threads: usize,
}

/// What is to be traced: a seed, with a guard held open, up to a line.
#[derive(Clone, Copy)]
struct Row {
    seed: u64,
    guard: Option<Guard>,
    lines_max: usize,
}

/// Traces whatever is asked for.
pub(super) fn trace(wanted: &Trace, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    let seeds = wanted.seeds.clone().map(|seed| Row {
        seed,
        guard: wanted.hold_open,
        lines_max: usize::MAX,
    });
    let mut rows: Vec<Row> = seeds.collect();
    if let Some(path) = &wanted.planted {
        rows.extend(planted(path)?);
    }
    let configurations = trace::CONFIGURATIONS.len() as u64;
    let (mut files, mut lines) = (Vec::new(), 0);
    for place in 0..configurations {
        let of = rows.iter().filter(|row| row.seed % configurations == place);
        let of: Vec<Row> = of.copied().collect();
        if of.is_empty() {
            continue;
        }
        let traces = run(&of, super::threads(wanted.threads));
        let folder = wanted.out.join(place.to_string());
        trace::write(&folder, &traces, &trace::bounds(place))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        lines += traces.iter().map(|trace| trace.lines.len()).sum::<usize>();
        let told: Vec<Value> = of
            .iter()
            .zip(&traces)
            .map(|(row, trace)| tell(row, trace))
            .collect();
        files.push(json!({ "folder": folder, "traces": told }));
    }
    if json {
        say!("{}", json!({ "files": files }));
    } else {
        say!(
            "{} traces of {lines} lines in {}",
            rows.len(),
            wanted.out.display()
        );
    }
    Ok(Exit::Held)
}

/// The rows of a table: guard, seed, line and action.
fn planted(path: &Path) -> Result<Vec<Row>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let rows = lines.filter(|line| !line.trim().is_empty()).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [guard, seed, line, _action] = words[..] else {
            return Err(format!("{}: {line:?} is no row", path.display()));
        };
        let bad = |what: &str| format!("{}: {what:?} is no number", path.display());
        Ok(Row {
            guard: Some(super::seeds::parse_guard(guard)?),
            seed: seed.parse().map_err(|_| bad(seed))?,
            lines_max: line.parse().map_err(|_| bad(line))?,
        })
    });
    rows.collect()
}

/// The traces of rows, in their order.
fn run(rows: &[Row], threads: usize) -> Vec<trace::Trace> {
    on_threads(threads, rows, |row| {
        let mut traced = watch::during(doing(row), || trace::trace(row.seed, row.guard));
        traced.lines.truncate(row.lines_max);
        traced
    })
}

fn doing(row: &Row) -> Doing {
    let mut arguments = format!("trace --seeds {}..{}", row.seed, row.seed.saturating_add(1));
    if let Some(guard) = row.guard {
        arguments.push_str(" --hold-open ");
        arguments.push_str(guard.name());
    }
    Doing::Other(format!("the trace of seed {}", row.seed), arguments)
}

fn tell(row: &Row, trace: &trace::Trace) -> Value {
    let actions = trace.lines.iter().map(|line| line.by.join("+"));
    json!({
        "seed": trace.seed,
        "guard": row.guard.map(Guard::name),
        "lines": trace.lines.len(),
        "ended": trace.ended,
        "actions": actions.collect::<Vec<_>>(),
        "at": trace.lines.iter().map(|line| line.at).collect::<Vec<_>>(),
    })
}
