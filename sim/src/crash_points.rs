//! Every crash point of a story: the power fails after each of its steps, and of what was not
//! synced every subset is lost.
//!
//! ```text
//! step 1   step 2   step 3 ...            the scenario's story, on a directory
//!   |        |        |
//!   +- cut   +- cut   +- cut              every process dies; each unsynced entry survives or not
//!       |        |        |
//!       v        v        v
//!     restart, heal; checkpoints complete, a restart restores, garbage goes
//! ```
//!
//! Up to [`UNSYNCED_MAX`] unsynced entries are lost in every combination; of more, as many
//! combinations are drawn, and counted as sampled. A crash between two actions of a step is a crash
//! after it, since calls that had not begun and messages to the dead come to nothing. Two cuts that
//! leave equal stores and equal pasts have equal futures, so one of them is tried.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::choice::{Choices, Label, Labels, mix, next_script};
use crate::digest::Fingerprint;
use crate::invariants::{Class, Violation};
use crate::run::{finish, panicked};
use crate::scenario::Scenario;
use crate::world::World;

/// Unsynced entries that are lost in every combination.
pub const UNSYNCED_MAX: usize = 6;

/// What was tried, and what broke.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Steps after which the power failed.
    pub points: u64,
    /// Points at which something was not synced.
    pub unsynced_points: u64,
    /// Power cuts: points times the combinations of what they lost.
    pub cuts: u64,
    /// Different situations that they led to. Each was healed and had to keep all promises.
    pub situations: u64,
    /// Points at which so much was not synced that combinations were drawn.
    pub sampled: u64,
    /// Broken promises, with the step and the combination in words.
    pub failures: Vec<(Class, String)>,
}

impl Tried {
    /// Adds what was tried elsewhere.
    pub fn add(&mut self, other: Self) {
        self.points += other.points;
        self.unsynced_points += other.unsynced_points;
        self.cuts += other.cuts;
        self.situations += other.situations;
        self.sampled += other.sampled;
        self.failures.extend(other.failures);
    }
}

/// Tries every crash point of a scenario.
#[must_use]
pub fn try_all(name: &str, scenario: &Scenario) -> Tried {
    let mut tried = Tried::default();
    let mut seen = HashSet::new();
    let (frames, violation) = scenario.frames();
    let told = violation.map(|violation| (violation.class, format!("{name}: {violation}")));
    tried.failures.extend(told);
    for world in frames {
        tried.points += 1;
        let asked = cut(&world, Vec::new()).1;
        tried.unsynced_points += u64::from(!asked.is_empty());
        let is_sampled = asked.len() > UNSYNCED_MAX;
        tried.sampled += u64::from(is_sampled);
        let mut next = Some(vec![0; asked.len()]);
        let mut count = 0;
        while let Some(script) = next {
            let (after, _) = cut(&world, script.clone());
            tried.cuts += 1;
            count += 1;
            if seen.insert(situation(&after)) {
                tried.situations += 1;
                let step = world.steps;
                let told = |violation: Violation| {
                    let what = format!(
                        "{name}: power cut after step {step}, lost {script:?}: {violation}"
                    );
                    (violation.class, what)
                };
                tried.failures.extend(recover(after).err().map(told));
            }
            next = if is_sampled {
                (count < 1 << UNSYNCED_MAX).then(|| drawn(count, asked.len()))
            } else {
                next_script(script, &asked)
            };
        }
    }
    tried
}

/// The world after a power cut that loses what the script says, and how many entries it was asked
/// for.
fn cut(world: &World, script: Vec<u32>) -> (World, Vec<u32>) {
    let mut after = world.clone();
    let mut choices = Choices::scripted_for(script, Labels::of(&[Label::PowerCut]));
    after.order_power_cut(&mut choices);
    (after, choices.asked().to_vec())
}

/// The `count`-th combination that is drawn; the first is that everything is lost.
fn drawn(count: u64, entries: usize) -> Vec<u32> {
    if count == 1 {
        return vec![1; entries];
    }
    (0..entries)
        .map(|entry| (mix(count << 16 | entry as u64) & 1) as u32)
        .collect()
}

/// What is left after a cut, on which alone the future depends.
fn situation(world: &World) -> u128 {
    let mut hasher = Fingerprint::default();
    world.hash_after_power_cut(&mut hasher);
    hasher.value()
}

fn recover(mut world: World) -> Result<(), Violation> {
    if let Some(violation) = world.watch.violation.take() {
        return Err(violation);
    }
    world.clear_rules();
    world.release(None, None);
    world.writing = true;
    let mut choices = Choices::replayed(&[]);
    catch_unwind(AssertUnwindSafe(|| finish(&mut world, &mut choices)))
        .unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// Short stories, besides those that are written by hand: each way to configure the job crossed
/// with each of a few courses of events.
#[must_use]
pub fn generated() -> Vec<(String, String)> {
    let courses = [
        ("start", "start\n"),
        ("one", "start\nwrite 0.0 1\ntrigger\nuntil completed 1\n"),
        (
            "two",
            "start\nwrite 0.0 1\ntrigger\nuntil completed 1\nwrite 0.0 2\ntrigger\nuntil completed 2\n",
        ),
        (
            "merged",
            "start\nwrite 0.0 1\nwrite 0.0 2\ntrigger\nuntil completed 1\ncompact 0.0\nwrite 0.0 3\ntrigger\nuntil completed 2\nrun 60ms\n",
        ),
        (
            "overlapping",
            "start\nwrite 0.0 1\ntrigger\nrun 3ms\nwrite 0.0 2\ntrigger\nuntil completed 1\nrun 40ms\n",
        ),
        (
            "cancelled",
            "start\nwrite 0.0 1\ntrigger\nrun 6ms\ncancel\nwrite 0.0 2\ntrigger\nuntil completed 1\n",
        ),
        (
            "redeployed",
            "start\nwrite 0.0 1\ntrigger\nuntil completed 1\nredeploy\nuntil running\nwrite 0.0 2\ntrigger\nuntil completed 2\n",
        ),
        (
            "rival",
            "start\nwrite 0.0 1\ntrigger\nrun 4ms\nrival\nrun 80ms\ntrigger\nuntil completed 2\n",
        ),
        (
            "closed",
            "start\nwrite 0.0 1\ntrigger\nuntil completed 1\nclose\nrun 40ms\n",
        ),
    ];
    let mut all = Vec::new();
    for (course, orders) in courses {
        for retained in [1, 2] {
            for tail in [3, 64] {
                let name = format!("{course}-retained-{retained}-tail-{tail}");
                let text = format!(
                    "# generated\nstore directory\nparallelism 1\nretained {retained}\ntail {tail}\n{orders}"
                );
                all.push((name, text));
            }
        }
    }
    all
}
