//! Comparing the machines with the specification.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::conform::bounds::Bounds;
use stillpoint_sim::conform::graph::Graph;
use stillpoint_sim::conform::search::{self, Limit};
use stillpoint_sim::invariants::Class;

/// What is compared.
#[derive(Args)]
pub(super) struct Conform {
    /// The folder of the specifications and their configurations.
    #[arg(long, default_value = "specs")]
    specs: PathBuf,
    /// The folder of the graphs that TLC has dumped, NAME.dot for each configuration.
    #[arg(long, default_value = "target/conform")]
    dumps: PathBuf,
    /// Only configurations with this in their name.
    #[arg(long, default_value = "")]
    only: String,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
}

/// Compares.
pub(super) fn conform(wanted: &Conform, json: bool) -> Result<Option<Class>, String> {
    super::seeds::silence_panics();
    let _ = json;
    let name = &wanted.only;
    let text = read(&wanted.specs.join(format!("{name}.cfg")))?;
    let bounds = Bounds::parse(&text)?;
    let dump = wanted.dumps.join(format!("{name}.dot"));
    let file = File::open(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
    let started = Instant::now();
    let spec = Graph::read(BufReader::new(file))?;
    println!("spec {} {} {:?}", spec.state_count(), spec.step_count(), started.elapsed());
    let started = Instant::now();
    let limit = Limit {
        hold_open: wanted.hold_open,
        within: Some(&spec),
    };
    let code = search::explore(bounds, limit);
    println!("code {} {} worlds {} {:?}", code.graph.state_count(), code.graph.step_count(), code.worlds, started.elapsed());
    if let Some((what, state)) = &code.asserted {
        println!("asserted {what} at {}", code.graph.text(*state));
        println!("way {:?}", code.graph.way_to(*state, &code.graph.ways()));
    }
    show("only_spec", &spec, &code.graph);
    show("only_code", &code.graph, &spec);
    Ok(None)
}

fn show(what: &str, one: &Graph, other: &Graph) {
    let states = one.states_beyond(other);
    let steps = one.steps_beyond(other);
    println!("{what}: {} states {} steps", states.len(), steps.len());
    let ways = one.ways();
    let mut shown: Vec<_> = steps.iter().map(|step| (one.way_to(step.0, &ways), step)).collect();
    shown.sort_by_key(|(way, _)| way.len());
    for (way, step) in shown.iter().take(3) {
        println!("  {} after {:?}", one.action_of(step), way);
        println!("    from {}", one.text(step.0));
        println!("    to   {}", one.text(step.2));
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
