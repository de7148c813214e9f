//! Which rare situations a range of seeds reaches, and where each is reached first.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use stillpoint::protocol::marks::{self, Guard, Mark};
use stillpoint_sim::invariants::Class;
use stillpoint_sim::profile::Length;
use stillpoint_sim::run::run_seed;
use stillpoint_sim::world::situation::Situation;

use super::Range;

/// What was seen of one mark.
#[derive(Clone, Copy, Default)]
struct Seen {
    first: Option<u64>,
    seeds: u64,
}

/// The protocol's marks, then the world's situations.
fn names() -> Vec<&'static str> {
    let marks = Mark::ALL.iter().map(|mark| mark.name());
    let situations = Situation::ALL.iter().map(|situation| situation.name());
    marks.chain(situations).collect()
}

/// Marks that no seed need reach, each for its reason; the machines' own tests reach them.
const ONLY_BY_HAND: &[&str] = &[
    // A leader says nothing else to an attempt that has not attached to it.
    "EpochSeenBeforeLead",
    // The model of a state gives each number once; only a database that is made anew does not.
    "SameNameOtherLength",
    // An attempt must stand still while more checkpoints end than it keeps in mind: about one seed
    // in thirty thousand.
    "AbortForgottenForRoom",
    // Five reads in a row must fail: about one seed in ten thousand.
    "FollowGivenUp",
];

/// A situation is rare if fewer than one seed in so many reaches it.
const RARE: u64 = 10;

pub(super) fn marks(range: &Range, json: bool) -> Option<Class> {
    super::seeds::silence_panics();
    let next = AtomicU64::new(range.seeds.start);
    let seen = Mutex::new(vec![Seen::default(); names().len()]);
    let guards = Mutex::new(vec![(0_u64, 0_u64); Guard::ALL.len()]);
    let threads = super::threads(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = vec![Seen::default(); names().len()];
                let mut own_guards = vec![(0_u64, 0_u64); Guard::ALL.len()];
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= range.seeds.end {
                        break;
                    }
                    marks::reset();
                    let ended = run_seed(seed, Length::from(range.length));
                    let marked = Mark::ALL.iter().map(|mark| marks::reached(*mark) > 0);
                    let situations = Situation::ALL.iter();
                    let situated = situations.map(|it| ended.situations.count(*it) > 0);
                    for (seen, reached) in own.iter_mut().zip(marked.chain(situated)) {
                        if reached {
                            seen.first = Some(seen.first.map_or(seed, |first| first.min(seed)));
                            seen.seeds += 1;
                        }
                    }
                    for (sum, guard) in own_guards.iter_mut().zip(Guard::ALL) {
                        let (held, not) = marks::counts(*guard);
                        sum.0 += held;
                        sum.1 += not;
                    }
                }
                if let Ok(mut seen) = seen.lock() {
                    for (all, own) in seen.iter_mut().zip(own) {
                        all.first = match (all.first, own.first) {
                            (Some(a), Some(b)) => Some(a.min(b)),
                            (a, b) => a.or(b),
                        };
                        all.seeds += own.seeds;
                    }
                }
                if let Ok(mut guards) = guards.lock() {
                    for (all, own) in guards.iter_mut().zip(own_guards) {
                        all.0 += own.0;
                        all.1 += own.1;
                    }
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap_or_default();
    let guards = guards.into_inner().unwrap_or_default();
    if json {
        let rows: Vec<_> = names()
            .iter()
            .zip(&seen)
            .map(|(name, seen)| json!({"name": name, "first_hit_seed": seen.first, "seeds": seen.seeds}))
            .collect();
        println!("{}", serde_json::Value::Array(rows));
    } else {
        for (name, seen) in names().iter().zip(&seen) {
            let first = seen
                .first
                .map_or("never".to_owned(), |first| first.to_string());
            println!("{name:<44} first {first:>8}  in {} seeds", seen.seeds);
        }
        let seeds = range.seeds.end - range.seeds.start;
        let is_rare = |seen: &&Seen| seen.seeds > 0 && seen.seeds * RARE < seeds;
        let rare = seen.iter().filter(is_rare).count();
        println!("{} situations, {rare} of them rare and reached", seen.len());
        for (guard, (held, not)) in Guard::ALL.iter().zip(&guards) {
            println!("{:<44} held {held:>10}  not {not}", guard.name());
        }
    }
    let missed = seen
        .iter()
        .zip(names())
        .any(|(seen, name)| seen.first.is_none() && !ONLY_BY_HAND.contains(&name));
    missed.then_some(Class::Safety)
}
