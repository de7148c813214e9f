//! One line a seed that tells a run from any other: equal on every machine and in every build.

use serde_json::json;
use stillpoint_sim::invariants::Class;
use stillpoint_sim::run::run_seed;

use super::Range;

/// In order, on one thread: what is compared is the text.
pub(super) fn digests(range: &Range, json: bool) -> Option<Class> {
    super::seeds::silence_panics();
    let length = range.length.into();
    let mut rows = Vec::new();
    for seed in range.seeds.clone() {
        let digest = format!("{:016x}", run_seed(seed, length).digest);
        if json {
            rows.push(json!({"seed": seed, "digest": digest}));
        } else {
            println!("{seed} {digest}");
        }
    }
    if json {
        println!("{}", serde_json::Value::Array(rows));
    }
    None
}
