//! Writing traces for TLC.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use stillpoint::protocol::marks::Guard;
use stillpoint_sim::invariants::Class;
use stillpoint_sim::trace;

/// What is traced.
#[derive(Args)]
pub(super) struct Trace {
    /// The seeds, as `A..B`; B is not among them.
    #[arg(long, value_parser = super::parse_range, default_value = "0..400")]
    seeds: std::ops::Range<u64>,
    /// The folder that the traces go to, in one folder for each configuration.
    #[arg(long, default_value = "target/traces")]
    out: PathBuf,
    /// Hold this guard open: a planted fault.
    #[arg(long, value_parser = super::seeds::parse_guard)]
    hold_open: Option<Guard>,
}

/// Traces every seed that is asked for.
pub(super) fn trace(wanted: &Trace, json: bool) -> Result<Option<Class>, String> {
    super::seeds::silence_panics();
    let mut files = Vec::new();
    for place in 0..trace::CONFIGURATIONS.len() as u64 {
        let seeds = wanted.seeds.clone();
        let seeds = seeds.filter(|seed| seed % trace::CONFIGURATIONS.len() as u64 == place);
        let traces: Vec<_> = seeds.map(|seed| trace::trace(seed, wanted.hold_open)).collect();
        if traces.is_empty() {
            continue;
        }
        let folder = wanted.out.join(place.to_string());
        trace::write(&folder, &traces, &trace::bounds(place))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let told = traces.iter().map(|trace| {
            let actions = trace.lines.iter().map(|line| line.by.join("+"));
            json!({
                "seed": trace.seed,
                "lines": trace.lines.len(),
                "ended": trace.ended,
                "actions": actions.collect::<Vec<_>>(),
                "at": trace.lines.iter().map(|line| line.at).collect::<Vec<_>>(),
            })
        });
        files.push(json!({ "folder": folder, "traces": told.collect::<Vec<_>>() }));
    }
    if json {
        println!("{}", json!({ "files": files }));
    } else {
        println!("{} files of traces", files.len());
    }
    Ok(None)
}
