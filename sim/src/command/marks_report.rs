//! Which rare situations a range of seeds reaches, and where each is reached first.

use std::ops::ControlFlow;
use std::sync::Mutex;

use serde_json::{Value, json};
use stillpoint::protocol::marks::{self, Guard, Mark};
use stillpoint_sim::reproduce::Reproduction;
use stillpoint_sim::run::Ended;
use stillpoint_sim::world::situation::Situation;

use super::exit::Exit;
use super::output::{complain, say};
use super::seeds::{shared, watched};
use super::{OnThreads, interrupt, workers};

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

/// Marks that no seed need reach, each with its reason; the machines' own tests reach them.
const ONLY_BY_HAND: &[(&str, &str)] = &[
    (
        "EpochSeenBeforeLead",
        "a leader says nothing else to an attempt that has not attached to it",
    ),
    (
        "SameNameOtherLength",
        "the model of a state gives each number once; only a database that is made anew does not",
    ),
    (
        "AbortForgottenForRoom",
        "an attempt must stand still while more checkpoints end than it keeps in mind: about one \
         seed in thirty thousand",
    ),
    (
        "FollowGivenUp",
        "five reads in a row must fail: about one seed in ten thousand",
    ),
];

/// Why no seed need reach a mark, if that is so.
fn only_by_hand(name: &str) -> Option<&'static str> {
    let mut all = ONLY_BY_HAND.iter();
    all.find(|(mark, _)| *mark == name).map(|(_, why)| *why)
}

/// A situation is rare if fewer than one seed in so many reaches it.
const RARE: u64 = 10;
/// So many seeds must reach it: what one seed alone reaches is luck, and the next change loses it.
const REACHED_MIN: u64 = 2;
/// So many rare situations must be reached by so many seeds.
const RARE_MIN: (usize, u64) = (40, 20_000);

/// What was seen in all seeds.
struct Tally {
    ran: u64,
    seen: Vec<Seen>,
    guards: Vec<(u64, u64)>,
}

impl Tally {
    fn new() -> Self {
        Self {
            ran: 0,
            seen: vec![Seen::default(); names().len()],
            guards: vec![(0, 0); Guard::ALL.len()],
        }
    }

    /// Adds what this thread has counted while it ran a seed.
    fn add(&mut self, seed: u64, ended: &Ended) {
        self.ran += 1;
        let marked = Mark::ALL.iter().map(|mark| marks::reached(*mark) > 0);
        let situations = Situation::ALL.iter();
        let situated = situations.map(|it| ended.situations.count(*it) > 0);
        for (seen, reached) in self.seen.iter_mut().zip(marked.chain(situated)) {
            if reached {
                seen.first = Some(seen.first.map_or(seed, |first| first.min(seed)));
                seen.seeds += 1;
            }
        }
        for (sum, guard) in self.guards.iter_mut().zip(Guard::ALL) {
            let (held, not) = marks::counts(*guard);
            sum.0 += held;
            sum.1 += not;
        }
    }

    fn json(&self) -> Value {
        let rows = names().into_iter().zip(&self.seen);
        let rows = rows.map(|(name, seen)| {
            json!({
                "name": name,
                "first_hit_seed": seen.first,
                "seeds": seen.seeds,
                "only_by_hand": only_by_hand(name),
            })
        });
        interrupt::document(rows.collect())
    }

    fn print(&self) {
        for (name, seen) in names().iter().zip(&self.seen) {
            let first = seen
                .first
                .map_or("never".to_owned(), |first| first.to_string());
            let why = only_by_hand(name).filter(|_| seen.first.is_none());
            let why = why.map_or_else(String::new, |why| format!("; need not be: {why}"));
            say!("{name:<44} first {first:>8}  in {} seeds{why}", seen.seeds);
        }
        let rare = self.rare();
        let never = self.seen.iter().filter(|seen| seen.first.is_none()).count();
        say!(
            "{} situations in {} seeds, {rare} of them rare and reached, {never} never{}",
            self.seen.len(),
            self.ran,
            interrupt::words()
        );
        for (guard, (held, not)) in Guard::ALL.iter().zip(&self.guards) {
            say!("{:<44} held {held:>10}  not {not}", guard.name());
        }
    }

    /// How many situations are rare, and reached by more than luck.
    fn rare(&self) -> usize {
        let is_rare =
            |seen: &&Seen| seen.seeds >= REACHED_MIN && seen.seeds.saturating_mul(RARE) < self.ran;
        self.seen.iter().filter(is_rare).count()
    }

    /// Whether so many seeds ran that enough rare situations must be among what they reached, and are not.
    fn has_too_few_rare(&self) -> bool {
        let (rare_min, seeds_min) = RARE_MIN;
        self.ran >= seeds_min && self.rare() < rare_min
    }

    /// Whether something was not reached that seeds must reach: by more than luck, where so many ran.
    fn is_missing(&self) -> bool {
        let least = if self.ran >= RARE_MIN.1 {
            REACHED_MIN
        } else {
            1
        };
        let mut all = self.seen.iter().zip(names());
        all.any(|(seen, name)| seen.seeds < least && only_by_hand(name).is_none())
    }
}

pub(super) fn marks(asked: &OnThreads, json: bool) -> Result<Exit, String> {
    super::seeds::silence_panics();
    interrupt::heed()?;
    let of = &asked.of;
    let tally = Mutex::new(Tally::new());
    workers::each(asked.threads, of.seeds.clone(), of.hold_open, |seed| {
        marks::reset();
        let ended = watched(Reproduction {
            seed,
            length: of.length.into(),
            hold_open: of.hold_open,
        });
        shared(&tally).add(seed, &ended);
        ControlFlow::Continue(())
    });
    let tally = shared(&tally);
    if json {
        say!("{}", tally.json());
    } else {
        tally.print();
    }
    let has_too_few_rare = tally.has_too_few_rare();
    if has_too_few_rare {
        let (rare, (rare_min, _)) = (tally.rare(), RARE_MIN);
        complain!("error: {rare} rare situations were reached, and {rare_min} are wanted");
    }
    Ok(Exit::Held.unless_missed(tally.is_missing() || has_too_few_rare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_rare_situations_are_told_from_enough() {
        let (rare_min, seeds_min) = RARE_MIN;
        let of = |rare: usize, seeds: u64, ran: u64| {
            let mut tally = Tally::new();
            tally.ran = ran;
            for seen in tally.seen.iter_mut().take(rare) {
                seen.seeds = seeds;
            }
            tally.has_too_few_rare()
        };
        assert!(!of(rare_min, REACHED_MIN, seeds_min));
        assert!(of(rare_min - 1, REACHED_MIN, seeds_min));
        assert!(of(rare_min, REACHED_MIN - 1, seeds_min), "reached by luck");
        assert!(of(rare_min, seeds_min / RARE, seeds_min), "not rare");
        assert!(!of(0, 0, seeds_min - 1), "too few seeds to tell");
    }

    #[test]
    fn what_one_seed_alone_reaches_is_missing_where_many_ran() {
        let is_missing = |seeds: u64, ran: u64| {
            let mut tally = Tally::new();
            tally.ran = ran;
            tally.seen.iter_mut().for_each(|seen| seen.seeds = 9);
            tally.seen[0].seeds = seeds;
            tally.is_missing()
        };
        assert!(only_by_hand(names()[0]).is_none());
        let many = RARE_MIN.1;
        assert!(is_missing(REACHED_MIN - 1, many));
        assert!(!is_missing(REACHED_MIN, many));
        assert!(!is_missing(1, many - 1));
        assert!(is_missing(0, many - 1));
    }
}
