//! Comparing the machines with the specification.
//!
//! `specs/conform.txt` says which configurations are compared, and at which of them each guard, held
//! open, makes a difference. What TLC has found stands in dumps that `specs/check conform` writes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::conform;
use stillpoint_sim::conform::graph::Graph;
use stillpoint_sim::conform::search::{Effort, Explored};

use super::exit::Exit;
use super::output::{complain, say};
use super::walks::Walks;

/// Steps that are told of each that only one side has.
const TOLD_MAX: usize = 3;

/// What is compared.
#[derive(Args)]
pub(super) struct Conform {
    /// The folder of the specifications.
    #[arg(long, default_value = "specs")]
    pub(super) specs: PathBuf,
    /// The folder of TLC's dumps.
    #[arg(long, default_value = "target/conform")]
    pub(super) dumps: PathBuf,
    /// Only what has this in its name.
    #[arg(long, default_value = "")]
    only: String,
    /// How many threads explore; 0 takes as many as there are processors.
    #[arg(long, default_value_t = 0, value_parser = super::parse_threads)]
    pub(super) threads: usize,
    /// Hold this guard open: a planted fault. Ends at the first difference.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
    /// Also hold each guard of the table open in turn: each must make a difference.
    #[arg(long)]
    guards: bool,
    /// Also look up what these seeds of the simulator do, step by step: `A..B`, B is not among them.
    /// Steps of a graph that none takes go to a file beside its dump, with a shortest way to each.
    #[arg(long, value_parser = super::parse_range)]
    pub(super) seeds: Option<std::ops::Range<u64>>,
}

/// A row of the table.
struct Row {
    guard: Option<Guard>,
    name: String,
}

/// A configuration, compared.
struct Compared<'a> {
    name: &'a str,
    spec: &'a Graph,
    code: Explored,
    seconds: f64,
}

/// What TLC has found, by configuration.
type Dumps = BTreeMap<String, Graph>;

/// Compares everything that is asked for.
pub(super) fn conform(wanted: &Conform, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    let rows = rows(&wanted.specs.join("conform.txt"))?;
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.name.contains(&wanted.only))
        .collect();
    let mut dumps = Dumps::new();
    for row in &rows {
        if !dumps.contains_key(&row.name) {
            dumps.insert(row.name.clone(), dumped(wanted, &row.name)?);
        }
    }
    let mut sum = Sum::default();
    for row in rows.iter().filter(|row| row.guard.is_none()) {
        let compared = compare(wanted, &row.name, &dumps, wanted.hold_open)?;
        if !json {
            tell(&compared);
        }
        sum.add(&compared);
        if row.name.starts_with("MCCheckpointLifecycle") {
            sum.walks.add(wanted, &row.name, compared.spec, json)?;
        }
    }
    if sum.configurations.is_empty() {
        return Err(format!(
            "no configuration has {:?} in its name",
            wanted.only
        ));
    }
    let mut unseen = Vec::new();
    let held = rows.iter().filter(|_| wanted.guards);
    for (guard, name) in held.filter_map(|row| Some((row.guard?, &row.name))) {
        let differs = compare(wanted, name, &dumps, Some(guard))?.differs();
        if !json {
            let verdict = if differs { "differs" } else { "IS NOT SEEN" };
            say!("{:<32} held open at {name}: {verdict}", guard.name());
        }
        if !differs {
            unseen.push(guard.name());
        }
    }
    if json {
        say!("{:#}", sum.json(&unseen));
    } else {
        say!("{}", sum.text());
    }
    let is_equal = sum.only_spec == 0 && sum.only_code == 0 && sum.asserted == 0;
    let missed = if wanted.hold_open.is_none() && !sum.walks.refused.is_empty() {
        let refused = sum.walks.refused.join("; ");
        Some(format!("seeds took steps that are in no graph: {refused}"))
    } else if !unseen.is_empty() {
        let unseen = unseen.join(", ");
        Some(format!("held open, these make no difference: {unseen}"))
    } else if wanted.hold_open.is_none() && !is_equal {
        Some("the machines and the specification differ".to_owned())
    } else {
        None
    };
    if let Some(missed) = &missed {
        complain!("error: {missed}");
    }
    Ok(Exit::Held.unless_missed(missed.is_some()))
}

fn rows(path: &Path) -> Result<Vec<Row>, String> {
    let text = read(path)?;
    let mut rows = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let (guard, name) = match words.as_slice() {
            [] => continue,
            ["graph", name] => (None, name),
            ["guard", guard, name] => (Some(super::seeds::parse_guard(guard)?), name),
            _ => return Err(format!("{}: {line:?} is no row", path.display())),
        };
        let name = (*name).to_owned();
        rows.push(Row { guard, name });
    }
    Ok(rows)
}

fn compare<'a>(
    wanted: &Conform,
    name: &'a str,
    dumps: &'a Dumps,
    hold_open: Option<Guard>,
) -> Result<Compared<'a>, String> {
    let configuration = read(&wanted.specs.join(format!("{name}.cfg")))?;
    let spec = &dumps[name];
    let started = Instant::now();
    let threads = super::threads(wanted.threads);
    let effort = Effort {
        threads,
        hold_open,
        within: hold_open.is_some().then_some(spec),
    };
    let code = conform::explore(name, &configuration, effort)?;
    Ok(Compared {
        name,
        seconds: started.elapsed().as_secs_f64(),
        spec,
        code,
    })
}

/// What TLC has found, unless that was of another specification.
fn dumped(wanted: &Conform, name: &str) -> Result<Graph, String> {
    let path = wanted.dumps.join(format!("{name}.dot"));
    let how = "`specs/check conform` has TLC write it (that takes Java)";
    let file = File::open(&path).map_err(|error| format!("{}: {error}; {how}", path.display()))?;
    let written = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let module = name.split('-').next().unwrap_or_default();
    let sources = [
        format!("{name}.cfg"),
        format!("{module}.tla"),
        format!("{}.tla", module.trim_start_matches("MC")),
    ];
    let is_stale = sources
        .iter()
        .any(|source| written(&wanted.specs.join(source)) > written(&path));
    if is_stale {
        return Err(format!(
            "{} is older than the specification; {how}",
            path.display()
        ));
    }
    Graph::read(BufReader::new(file)).map_err(|error| format!("{}: {error}", path.display()))
}

impl Compared<'_> {
    fn differs(&self) -> bool {
        let code = &self.code.graph;
        self.code.asserted.is_some()
            || !code.states_beyond(self.spec).is_empty()
            || !code.steps_beyond(self.spec).is_empty()
            || !self.spec.states_beyond(code).is_empty()
            || !self.spec.steps_beyond(code).is_empty()
    }
}

/// The figures of all configurations together.
#[derive(Default)]
struct Sum {
    configurations: Vec<Value>,
    spec_states: usize,
    code_states: usize,
    spec_steps: usize,
    code_steps: usize,
    only_spec: usize,
    only_code: usize,
    worlds: usize,
    asserted: usize,
    actions: BTreeMap<String, usize>,
    walks: Walks,
}

impl Sum {
    fn add(&mut self, compared: &Compared<'_>) {
        let (spec, code) = (compared.spec, &compared.code.graph);
        let only_spec = spec.states_beyond(code).len() + spec.steps_beyond(code).len();
        let only_code = code.states_beyond(spec).len() + code.steps_beyond(spec).len();
        self.spec_states += spec.state_count();
        self.code_states += code.state_count();
        self.spec_steps += spec.step_count();
        self.code_steps += code.step_count();
        self.only_spec += only_spec;
        self.only_code += only_code;
        self.worlds += compared.code.worlds;
        self.asserted += usize::from(compared.code.asserted.is_some());
        for (action, count) in spec.taken() {
            *self.actions.entry(action.to_owned()).or_default() += count;
        }
        self.configurations.push(json!({
            "name": compared.name,
            "spec_states": spec.state_count(),
            "code_states": code.state_count(),
            "spec_steps": spec.step_count(),
            "code_steps": code.step_count(),
            "only_spec": only_spec,
            "only_code": only_code,
            "machine_states": compared.code.worlds,
            "seconds": compared.seconds,
        }));
    }

    fn json(&self, unseen: &[&str]) -> Value {
        json!({
            "spec_states": self.spec_states,
            "code_states": self.code_states,
            "spec_steps": self.spec_steps,
            "code_steps": self.code_steps,
            "only_spec": self.only_spec,
            "only_code": self.only_code,
            "edge_coverage": self.walks.coverage(),
            "walks": self.walks.configurations,
            "walks_refused": self.walks.refused,
            "machine_states": self.worlds,
            "asserted": self.asserted,
            "actions": self.actions,
            "guards_unseen": unseen,
            "configurations": self.configurations,
        })
    }

    fn text(&self) -> String {
        format!(
            "conform: {} states and {} steps of the specification, {} and {} of the code; \
             only in the specification {}, only in the code {}; {} states of the machines{}",
            self.spec_states,
            self.spec_steps,
            self.code_states,
            self.code_steps,
            self.only_spec,
            self.only_code,
            self.worlds,
            self.walks.text(),
        )
    }
}

fn tell(compared: &Compared<'_>) {
    let (spec, code) = (compared.spec, &compared.code.graph);
    say!(
        "{:<40} spec {:>6} states {:>7} steps, code {:>6} states {:>7} steps, {:.0} s",
        compared.name,
        spec.state_count(),
        spec.step_count(),
        code.state_count(),
        code.step_count(),
        compared.seconds,
    );
    if let Some((what, state)) = &compared.code.asserted {
        say!("  a machine asserted: {what}");
        say!("    after {}", code.way_to(*state, &code.ways()).join(", "));
        say!("    in {}", code.text(*state));
    }
    tell_beyond("only in the specification", spec, code);
    tell_beyond("only in the code", code, spec);
}

fn tell_beyond(what: &str, one: &Graph, other: &Graph) {
    let steps = one.steps_beyond(other);
    if steps.is_empty() {
        return;
    }
    say!(
        "  {what}: {} states, {} steps",
        one.states_beyond(other).len(),
        steps.len()
    );
    let ways = one.ways();
    let mut told: Vec<_> = steps
        .iter()
        .map(|step| (one.way_to(step.0, &ways), step))
        .collect();
    told.sort_by_key(|(way, _)| way.len());
    for (way, step) in told.iter().take(TOLD_MAX) {
        say!("    {} after {}", one.action_of(step), way.join(", "));
        say!("      from {}", one.text(step.0));
        say!("      to   {}", one.text(step.2));
    }
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
