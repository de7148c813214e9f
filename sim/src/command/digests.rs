//! One line a seed that tells a run from any other: equal on every machine and in every build.

use std::ops::ControlFlow;
use std::sync::Mutex;

use serde_json::{Value, json};
use stillpoint_sim::reproduce::Reproduction;

use super::exit::Exit;
use super::output::{self, say};
use super::seeds::{shared, watched};
use super::{Seeds, interrupt, workers};

/// In order, on one thread: what is compared is the text.
pub(super) fn digests(asked: &Seeds, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    interrupt::heed()?;
    let rows = Mutex::new(Vec::new());
    workers::each(1, asked.seeds.clone(), asked.hold_open, |seed| {
        let ended = watched(Reproduction {
            seed,
            length: asked.length.into(),
            hold_open: asked.hold_open,
        });
        let digest = format!("{:016x}", ended.digest);
        if json {
            shared(&rows).push(json!({"seed": seed, "digest": digest}));
        } else {
            say!("{seed} {digest}");
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
