//! Seeds of the simulator, looked up in the graphs that the machines are compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;

use serde_json::{Value, json};
use stillpoint_sim::conform::bounds::Bounds;
use stillpoint_sim::conform::graph::{Graph, Step};
use stillpoint_sim::side_by_side::on_threads;
use stillpoint_sim::trace::{Walk, walk};

use super::conform::{Conform, read};
use super::output::say;
use super::watch::{self, Doing};

/// What came of the seeds in all graphs together.
#[derive(Default)]
pub(super) struct Walks {
    pub(super) configurations: Vec<Value>,
    /// The seeds that took a step which is in no graph.
    pub(super) refused: Vec<String>,
    taken: usize,
    steps: usize,
}

impl Walks {
    /// Walks through a graph, if that is asked for.
    pub(super) fn add(
        &mut self,
        wanted: &Conform,
        name: &str,
        graph: &Graph,
        json: bool,
    ) -> Result<(), String> {
        let Some(seeds) = &wanted.seeds else {
            return Ok(());
        };
        let bounds = Bounds::parse(&read(&wanted.specs.join(format!("{name}.cfg")))?)?;
        let mut taken = BTreeSet::new();
        let mut refused = Vec::new();
        let threads = super::threads(wanted.threads);
        for (seed, walk) in all(name, seeds, threads, &bounds, graph) {
            taken.extend(walk.taken);
            refused.extend(
                walk.refused
                    .map(|what| format!("{name}, seed {seed}: {what}")),
            );
        }
        let (text, by_action) = untaken(graph, &taken);
        let path = wanted.dumps.join(format!("{name}.untaken.txt"));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        self.taken += taken.len();
        self.steps += graph.step_count();
        if !json {
            say!(
                "  seeds took {} of {} steps, {} were refused; the others: {}",
                taken.len(),
                graph.step_count(),
                refused.len(),
                path.display()
            );
        }
        self.configurations.push(json!({
            "name": name,
            "steps": graph.step_count(),
            "taken": taken.len(),
            "untaken": by_action,
            "refused": refused.len(),
        }));
        self.refused.extend(refused);
        Ok(())
    }

    /// The share of the graphs' steps that the seeds took; none if none was asked for.
    pub(super) fn coverage(&self) -> Option<f64> {
        let millionths = (self.taken * 1_000_000).checked_div(self.steps)?;
        format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
            .parse()
            .ok()
    }

    pub(super) fn text(&self) -> String {
        match self.coverage() {
            None => String::new(),
            Some(share) => format!(
                "; seeds took {} of {} steps, edge coverage {share}",
                self.taken, self.steps
            ),
        }
    }
}

/// What each seed was in a graph.
fn all(
    name: &str,
    seeds: &Range<u64>,
    threads: usize,
    bounds: &Bounds,
    graph: &Graph,
) -> Vec<(u64, Walk)> {
    let seeds: Vec<u64> = seeds.clone().collect();
    on_threads(threads, &seeds, |seed| {
        let doing = Doing::Other(
            format!("the walk of seed {seed} through {name}"),
            format!("conform --only {name} --seeds {seed}..{}", seed + 1),
        );
        let walk = watch::during(doing, || walk(*seed, bounds, graph));
        (*seed, walk)
    })
}

/// The steps that no seed took, each with a shortest way to it; and how many of each action.
fn untaken(graph: &Graph, taken: &BTreeSet<Step>) -> (String, BTreeMap<String, usize>) {
    let ways = graph.ways();
    let mut by_action: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for step in graph.steps().filter(|step| !taken.contains(step)) {
        let action = graph.action_of(step);
        *by_action.entry(action.to_owned()).or_default() += 1;
        let way = graph.way_to(step.0, &ways);
        lines.push((way.len(), format!("{action} after {}", way.join(", "))));
    }
    lines.sort();
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    (lines.join("\n") + "\n", by_action)
}
