//! The commands that the two READMEs show do what they say: a seed that is told or shrunk with a
//! guard held open does find that planted fault.

use std::path::Path;

use stillpoint::protocol::marks::{self, Guard};
use stillpoint_sim::profile::Length;
use stillpoint_sim::run::run_seed;

/// Seeds and guards of the commands that hold one open.
fn planted(page: &str) -> Vec<(u64, Guard)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word: &str| {
            let at = words.iter().position(|other| *other == word)?;
            words.get(at + 1).copied()
        };
        if let (Some(guard), Some(seed)) =
            (after("--hold-open"), after("shrink").or(after("replay")))
        {
            let guard = Guard::parse(guard).expect("a guard's name");
            found.push((seed.parse().expect("a seed"), guard));
        }
    }
    found
}

#[test]
fn seeds_that_the_pages_shrink_find_the_planted_fault() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut wrong = Vec::new();
    for page in ["README.md", "../README.md"] {
        let planted = planted(page);
        if planted.is_empty() {
            wrong.push(format!("{page} shows no planted fault"));
        }
        for (seed, guard) in planted {
            marks::hold_open(Some(guard));
            let ended = run_seed(seed, Length::Short);
            marks::hold_open(None);
            if ended.violation.is_none() {
                let name = guard.name();
                wrong.push(format!("{page}: seed {seed} holds with {name} held open"));
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
