//! One run: safety under faults, then healing, then everything good must happen.
//!
//! ```text
//! faults ........ heal | a new checkpoint completes, who is deposed is told, what leaders gave up is gone
//! <-- safety_events -->|    (or the restart comes at once, to what the faults have left)
//!                      | restart, restore, another one | quiet | garbage is gone
//!                       <------------- within computed bounds --------------->
//!
//! now and then: an object that leads to the manifest is lost for good | that is said, and nothing more is lost
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::choice::{Choice, Choices, Label};
use crate::faults::{Fault, Struck};
use crate::invariants::{
    Class, DeposedAreTold, GarbageIsCollected, Leftovers, Progress, Violation, bound, garbage_bound,
};
use crate::oracle::facts::Caller;
use crate::profile::{Length, Profile};
use crate::world::ruin::Ruined;
use crate::world::situation::Situations;
use crate::world::story::Told;
use crate::world::{States, World};

/// How long a ruined world goes on once all is told, in microseconds.
const AFTERWARDS: u64 = 300_000;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The broken promise, if one is broken.
    pub violation: Option<Violation>,
    /// What the run was like.
    pub profile: Profile,
    /// Events that reached a machine or the store.
    pub events: u64,
    /// The digest of everything that happened.
    pub digest: u64,
    /// The digest of the states in between, if anybody compares them.
    pub states: Option<u64>,
    /// The choices that were not benign.
    pub choices: Vec<Choice>,
    /// Which faults struck.
    pub struck: Struck,
    /// Which rare situations were reached.
    pub situations: Situations,
    /// How many checkpoints completed.
    pub completed: u64,
    /// What waits for what at the end of a run that broke a promise, in words.
    pub waits: Vec<String>,
    /// When it ended, in microseconds of the world's time.
    pub ended_at: u64,
    /// What happened, if anybody listened.
    pub told: Told,
}

/// What is kept of a run besides how it ended. The run is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attention {
    /// Nothing: nobody listens, nobody compares.
    None,
    /// What happened is told.
    Story,
    /// Whole states are digested.
    States,
}

/// Runs a seed.
#[must_use]
pub fn run_seed(seed: u64, length: Length) -> Ended {
    run(Choices::seeded(seed), length, None, Attention::None)
}

/// Runs a seed and digests whole states as well, to compare it with another run.
#[must_use]
pub fn digested(seed: u64, length: Length) -> Ended {
    run(Choices::seeded(seed), length, None, Attention::States)
}

/// Runs with these choices; with a profile of one's own, or one that is drawn first.
#[must_use]
pub fn run(
    mut choices: Choices,
    length: Length,
    profile: Option<Profile>,
    attention: Attention,
) -> Ended {
    let profile = profile.unwrap_or_else(|| Profile::draw(&mut choices, length));
    let mut world = World::new(profile);
    match attention {
        Attention::None => {}
        Attention::Story => world.listen(),
        Attention::States => world.states = States::wanted(),
    }
    let result = catch_unwind(AssertUnwindSafe(|| live(&mut world, &mut choices)));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(panicked(panic.as_ref())),
    };
    ended(&mut world, &choices, violation)
}

/// What is to be said of a run that has ended.
pub(crate) fn ended(world: &mut World, choices: &Choices, violation: Option<Violation>) -> Ended {
    Ended {
        profile: world.profile.clone(),
        events: world.events,
        digest: world.digest.value(),
        states: world.states.value(),
        choices: choices.made().to_vec(),
        struck: world.struck.clone(),
        situations: world.situations.clone(),
        completed: world.watch.facts.completions,
        waits: waits(world, violation.as_ref()),
        ended_at: world.now,
        told: world.take_told(),
        violation,
    }
}

/// What waits for what; nothing of machines that have asserted, which can't be asked any more.
pub(crate) fn waits(world: &World, violation: Option<&Violation>) -> Vec<String> {
    match violation {
        Some(violation) if violation.class != Class::Crash => world.pending_reasons(),
        Some(_) | None => Vec::new(),
    }
}

/// A machine's assertion as a broken promise.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Violation {
    Violation {
        class: Class::Crash,
        promise: "MachinesDoNotAssert",
        what: panic_text(panic),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without words".to_owned()
    }
}

fn live(world: &mut World, choices: &mut Choices) -> Result<(), Violation> {
    while world.events < world.profile.safety_events {
        if !world.step(choices)? {
            break;
        }
    }
    finish(world, choices)?;
    if world.profile.is_ruined && !world.profile.is_modelled {
        ruin(world, choices)?;
    }
    Ok(())
}

/// More is lost than can be made good: that is said, and nothing more is lost.
fn ruin(world: &mut World, choices: &mut Choices) -> Result<(), Violation> {
    if !world.ruin(choices) {
        return end_phase(world);
    }
    let deadline = world.now + bound(&world.profile);
    let is_told = |world: &World| {
        let ruined = world.watch.ruined.as_ref();
        ruined.is_none_or(Ruined::is_told)
    };
    if !until(world, choices, deadline, is_told)? {
        let what = "what is lost for good is not told";
        return Err(Progress::broken(what, &world.pending_reasons()));
    }
    let ruined = world.watch.ruined.as_ref();
    if ruined.is_some_and(Ruined::stands_still) {
        // Who is told so comes again, and finds it as it was.
        let deadline = world.now + AFTERWARDS;
        until(world, choices, deadline, |_| false)?;
    }
    Ok(())
}

/// Everything heals, and all that must happen must happen.
pub(crate) fn finish(world: &mut World, choices: &mut Choices) -> Result<(), Violation> {
    end_phase(world)?;
    world.heal(choices);
    if choices.choose(2, Label::Restart) == 0 {
        progress(world, choices, "after everything healed")?;
        deposed_are_told(world, choices)?;
        given_up_goes(world, choices)?;
    }
    world.restart_job(choices);
    let restored = world.watch.facts.restores;
    let needs_restore = world.watch.facts.durable.restore_point().is_some();
    progress(world, choices, "after a restart")?;
    if needs_restore && world.watch.facts.restores == restored {
        let what = "a checkpoint completed after a restart and nothing was restored";
        return Err(Progress::broken(what, &world.pending_reasons()));
    }
    world.writing = false;
    if world.deletes_hang {
        // Progress was possible all the same; now deletes may heal as well.
        world.deletes_hang = false;
    }
    garbage_goes(world, choices)?;
    // A leader's commits overtake a guest's as long as there is garbage to be forgotten.
    let deadline = world.now + bound(&world.profile);
    if !until(world, choices, deadline, |world| !world.has_guests())? {
        let what = "a guest still waits";
        return Err(Progress::broken(what, &world.pending_reasons()));
    }
    end_phase(world)
}

fn end_phase(world: &mut World) -> Result<(), Violation> {
    world.watch.check(&world.store);
    world.watch.check_manifest();
    match world.watch.violation.take() {
        Some(violation) => Err(violation),
        None => Ok(()),
    }
}

/// Lets the world go on until something holds; false when the time is over.
fn until(
    world: &mut World,
    choices: &mut Choices,
    deadline: u64,
    holds: impl Fn(&World) -> bool,
) -> Result<bool, Violation> {
    while !holds(world) {
        if world.queue.next_at().is_none_or(|at| at > deadline) {
            return Ok(false);
        }
        if !world.step(choices)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A checkpoint completes of which nothing was cut yet.
fn progress(world: &mut World, choices: &mut Choices, when: &str) -> Result<(), Violation> {
    let newest_cut = world.watch.facts.newest_cut();
    let start = world.now;
    let deadline = start + bound(&world.profile);
    let is_new = |world: &World| world.watch.facts.completed.last().copied() > newest_cut;
    if until(world, choices, deadline, is_new)? {
        return Ok(());
    }
    let what = format!(
        "no new checkpoint completed within {} ms {when}",
        (deadline - start) / 1000
    );
    Err(Progress::broken(&what, &world.pending_reasons()))
}

/// What of it is still there, in the store and on local disks.
fn remaining<'a>(
    leftovers: &'a Leftovers,
    world: &'a World,
    start: u64,
) -> impl Iterator<Item = String> + 'a {
    let lives = |caller| world.lives(caller);
    let stored = GarbageIsCollected::remaining(leftovers, &world.watch.facts, lives);
    stored.chain(world.local_snapshots_before(start))
}

/// Whoever is deposed now ends within the bound, and so has told its user.
fn deposed_are_told(world: &mut World, choices: &mut Choices) -> Result<(), Violation> {
    let deposed = DeposedAreTold::deposed(&world.watch.facts, |caller| world.lives(caller));
    let lives = |world: &World, process| world.lives(Caller::Coordinator(process));
    let have_ended = |world: &World| !deposed.iter().any(|process| lives(world, *process));
    let deadline = world.now + DeposedAreTold::bound(&world.profile);
    if until(world, choices, deadline, have_ended)? {
        return Ok(());
    }
    let remaining = deposed.iter().filter(|process| lives(world, **process));
    let remaining = remaining.copied().collect();
    Err(DeposedAreTold::broken(&remaining, &world.pending_reasons()))
}

/// What a leader has given up of its own manifest is gone within the bound, while it leads: what it
/// leaves behind, only the next one's sweep finds.
fn given_up_goes(world: &mut World, choices: &mut Choices) -> Result<(), Violation> {
    let lands_late = world.profile.rate(Fault::LateRequests, false).is_possible();
    if world.deletes_hang || lands_late {
        // It can't be deleted, or is there again once it is.
        return Ok(());
    }
    let given_up = GarbageIsCollected::of_leader(&world.watch.facts, |caller| world.lives(caller));
    let start = world.now;
    let deadline = start + garbage_bound(&world.profile, 0);
    let left = |world: &World| {
        let lives = |caller| world.lives(caller);
        let given_up = GarbageIsCollected::remaining(&given_up, &world.watch.facts, lives);
        given_up.collect::<Vec<_>>()
    };
    if until(world, choices, deadline, |world| left(world).is_empty())? {
        return Ok(());
    }
    let reasons = world.pending_reasons();
    Err(GarbageIsCollected::broken(&left(world), &reasons))
}

/// Whatever is garbage now is gone within its bound.
fn garbage_goes(world: &mut World, choices: &mut Choices) -> Result<(), Violation> {
    let leftovers = GarbageIsCollected::leftovers(&world.watch.facts);
    let start = world.now;
    let objects = world.watch.facts.files.len() + world.watch.facts.manifests.len();
    let deadline = start + garbage_bound(&world.profile, objects);
    let is_gone = |world: &World| remaining(&leftovers, world, start).next().is_none();
    if until(world, choices, deadline, is_gone)? {
        return Ok(());
    }
    let remaining: Vec<String> = remaining(&leftovers, world, start).collect();
    let reasons = world.pending_reasons();
    Err(GarbageIsCollected::broken(&remaining, &reasons))
}
