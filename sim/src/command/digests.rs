//! One line a seed that tells a run from any other, by what happened and by the states in between:
//! equal on every machine and in every build.

use std::ops::ControlFlow;
use std::sync::Mutex;

use serde_json::{Value, json};
use stillpoint_sim::reproduce::Reproduction;
use stillpoint_sim::run::digested;

use super::exit::Exit;
use super::output::{self, say};
use super::seeds::shared;
use super::watch::{self, Doing};
use super::{Seeds, interrupt, workers};

/// In order, on one thread: what is compared is the text.
pub(super) fn digests(asked: &Seeds, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    interrupt::heed()?;
    let rows = Mutex::new(Vec::new());
    workers::each(1, asked.seeds.clone(), asked.hold_open, |seed| {
        let doing = Doing::Seed(Reproduction {
            seed,
            length: asked.length.into(),
            hold_open: asked.hold_open,
        });
        let ended = watch::during(doing, || digested(seed, asked.length.into()));
        let events = format!("{:016x}", ended.digest);
        let states = format!("{:016x}", ended.states.unwrap_or_default());
        if json {
            shared(&rows).push(json!({"seed": seed, "events": events, "states": states}));
        } else {
            say!("{seed} {events} {states}");
        }
        // Nobody reads on, and nothing else comes of it.
        if output::is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    if json {
        let rows = std::mem::take(&mut *shared(&rows));
        say!("{}", interrupt::document(Value::Array(rows)));
    }
    Ok(Exit::Held)
}
