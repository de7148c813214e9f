//! Orders: what a scenario by hand says that happens, one a line.

use stillpoint::protocol::id::{CheckpointId, OperatorId, SubtaskId};

use super::settings::{micros, number};
use crate::choice::Choices;
use crate::invariants::{Progress, Violation};
use crate::lsm::KEYS;
use crate::profile::{Profile, StoreKind};
use crate::world::script::{
    Aim, Asked, MESSAGE_KINDS, MessageEffect, REQUEST_KINDS, RequestEffect, Rule,
};
use crate::world::{GuestId, World};

/// The longest that an `until` waits, in microseconds of the world's time.
const PATIENCE: u64 = 60_000_000;

/// One order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Start,
    Run(u64),
    UntilCompleted(u64),
    UntilLeader,
    UntilRunning,
    Trigger,
    Cancel,
    Write(SubtaskId, usize),
    Compact(SubtaskId),
    Rule(Rule),
    Release(Option<String>, Option<SubtaskId>),
    Calm,
    CrashCoordinator,
    CrashWorker(u32),
    Kill(SubtaskId),
    DeclareDead(SubtaskId),
    Pause(u64),
    Rival,
    Redeploy(Option<CheckpointId>),
    Pin(CheckpointId, String, bool),
    Guest,
    Close,
    PowerCut,
}

/// An order as it stands in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) order: Order,
    pub(super) text: String,
}

/// What is known of an order once it is obeyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Done {
    Something,
    Nothing,
    /// Whether it has struck is known later.
    Rule(usize),
    /// Whether it is refused is known later.
    Asked(Asked),
    /// Whether the guest gives up is known later.
    Guest(GuestId),
}

impl Done {
    fn if_it(has_done_something: bool) -> Self {
        if has_done_something {
            Self::Something
        } else {
            Self::Nothing
        }
    }

    fn if_asked(asked: Option<Asked>) -> Self {
        asked.map_or(Self::Nothing, Self::Asked)
    }
}

/// Reads an order in a world like this. One that can't do anything there is refused.
pub(super) fn read_order(words: &[&str], profile: &Profile) -> Result<Line, String> {
    let there = |word: &str| subtask_there(word, profile);
    let order = match words {
        ["start"] => Order::Start,
        ["run", time] => Order::Run(some_time(time)?),
        ["until", "completed", n] => Order::UntilCompleted(number(n)?),
        ["until", "leader"] => Order::UntilLeader,
        ["until", "running"] => Order::UntilRunning,
        ["trigger"] => Order::Trigger,
        ["cancel"] => Order::Cancel,
        ["write", whose, key] => Order::Write(there(whose)?, key_there(key)?),
        ["compact", whose] => Order::Compact(there(whose)?),
        ["hold", rest @ ..] => message_rule(rest, MessageEffect::Hold, profile)?,
        ["lose", rest @ ..] => message_rule(rest, MessageEffect::Lose, profile)?,
        ["double", time, rest @ ..] => {
            message_rule(rest, MessageEffect::Double(micros(time)?), profile)?
        }
        ["release"] => Order::Release(None, None),
        ["release", kind] => Order::Release(Some(message_kind(kind)?), None),
        ["release", kind, whose] => Order::Release(Some(message_kind(kind)?), Some(there(whose)?)),
        ["call", kind, rest @ ..] => request_rule(kind, rest, profile)?,
        ["calm"] => Order::Calm,
        ["crash", "coordinator"] => Order::CrashCoordinator,
        ["crash", "worker", n] => Order::CrashWorker(worker_there(n, profile)?),
        ["kill", whose] => Order::Kill(there(whose)?),
        ["declare-dead", whose] => Order::DeclareDead(there(whose)?),
        ["pause", time] => Order::Pause(some_time(time)?),
        ["rival"] => Order::Rival,
        ["redeploy"] => Order::Redeploy(None),
        ["restore", checkpoint] => Order::Redeploy(Some(CheckpointId(number(checkpoint)?))),
        ["pin", checkpoint, owner] => {
            Order::Pin(CheckpointId(number(checkpoint)?), (*owner).to_owned(), true)
        }
        ["unpin", checkpoint, owner] => Order::Pin(
            CheckpointId(number(checkpoint)?),
            (*owner).to_owned(),
            false,
        ),
        ["guest"] => Order::Guest,
        ["close"] => Order::Close,
        ["power-cut"] => Order::PowerCut,
        _ => return Err(format!("{:?} is no order", words.join(" "))),
    };
    let text = words.join(" ");
    Ok(Line { order, text })
}

/// Reads a subtask: `0.1`.
pub(super) fn subtask(word: &str) -> Result<SubtaskId, String> {
    let (operator, index) = word
        .split_once('.')
        .ok_or_else(|| format!("{word:?} is no subtask"))?;
    Ok(SubtaskId {
        operator: OperatorId(number(operator)?),
        index: number(index)?,
    })
}

/// Reads a subtask of this world.
fn subtask_there(word: &str, profile: &Profile) -> Result<SubtaskId, String> {
    let read = subtask(word)?;
    if read.operator.0 < profile.operators && read.index < profile.parallelism {
        return Ok(read);
    }
    let (operator, index) = (profile.operators - 1, profile.parallelism - 1);
    Err(format!(
        "there is no subtask {word}: operators are 0 to {operator}, subtasks of each 0 to {index}"
    ))
}

fn worker_there(word: &str, profile: &Profile) -> Result<u32, String> {
    match number(word)? {
        worker if worker < profile.workers => Ok(worker),
        worker => Err(format!(
            "there is no worker {worker}: workers are 0 to {}",
            profile.workers - 1
        )),
    }
}

fn key_there(word: &str) -> Result<usize, String> {
    match number(word)? {
        key if key < KEYS => Ok(key),
        key => Err(format!("there is no key {key}: keys are 0 to {}", KEYS - 1)),
    }
}

/// Reads a time in which something can happen.
fn some_time(word: &str) -> Result<u64, String> {
    match micros(word)? {
        0 => Err(format!("{word:?} is no time at all")),
        time => Ok(time),
    }
}

fn message_kind(word: &str) -> Result<String, String> {
    if MESSAGE_KINDS.contains(&word) {
        Ok(word.to_owned())
    } else {
        Err(format!("{word:?} is no kind of message"))
    }
}

/// How often a rule strikes: `x3`; for ever if nothing is said.
fn times(words: &[&str]) -> Result<u32, String> {
    let [word] = words else {
        return match words {
            [] => Ok(u32::MAX),
            words => Err(format!("{:?} says more than how often", words.join(" "))),
        };
    };
    let Some(times) = word.strip_prefix('x') else {
        return Err(format!("{word:?} does not say how often"));
    };
    match number(times)? {
        0 => Err(format!("{word:?} is never: x1 or more")),
        times => Ok(times),
    }
}

fn message_rule(words: &[&str], effect: MessageEffect, profile: &Profile) -> Result<Order, String> {
    let [kind, rest @ ..] = words else {
        return Err("which messages?".to_owned());
    };
    let kind = message_kind(kind)?;
    let (subtask, rest) = match rest {
        [whose, rest @ ..] if whose.contains('.') => (Some(subtask_there(whose, profile)?), rest),
        rest => (None, rest),
    };
    let aim = Aim::Message {
        kind,
        subtask,
        effect,
    };
    Ok(Order::Rule(Rule::new(aim, times(rest)?)))
}

fn request_rule(kind: &str, words: &[&str], profile: &Profile) -> Result<Order, String> {
    if !REQUEST_KINDS.contains(&kind) {
        return Err(format!("{kind:?} is no kind of call"));
    }
    let (effect, rest) = match words {
        ["late", time, rest @ ..] => (RequestEffect::Late(micros(time)?), rest),
        ["lose-answer", rest @ ..] => (RequestEffect::LoseAnswer, rest),
        ["lose-request", rest @ ..] => (RequestEffect::LoseRequest, rest),
        ["refuse", rest @ ..] => (RequestEffect::Refuse, rest),
        ["fail", rest @ ..] => (RequestEffect::Fail, rest),
        ["deny", rest @ ..] => (RequestEffect::Deny, rest),
        ["hang", rest @ ..] => (RequestEffect::Hang, rest),
        ["damage", rest @ ..] => (RequestEffect::Damage, rest),
        ["tear", rest @ ..] => (RequestEffect::Tear, rest),
        _ => return Err(format!("{:?} happens to no call", words.join(" "))),
    };
    if !effect.kinds().contains(&kind) {
        let (name, kinds) = (words[0], effect.kinds().join(", "));
        return Err(format!("{name} happens to no {kind}, only to: {kinds}"));
    }
    if effect.is_of_objects() && profile.store == StoreKind::Directory {
        return Err(format!("{} happens in an object store only", words[0]));
    }
    let aim = Aim::Request {
        kind: kind.to_owned(),
        effect,
    };
    Ok(Order::Rule(Rule::new(aim, times(rest)?)))
}

/// Does what an order says.
pub(super) fn obey(
    world: &mut World,
    order: &Order,
    choices: &mut Choices,
) -> Result<Done, Violation> {
    let done = match order {
        Order::Start | Order::UntilRunning => wait(world, choices, World::all_run)?,
        Order::Run(time) => run_for(world, *time, choices)?,
        Order::UntilCompleted(count) => {
            wait(world, choices, |world| {
                world.watch.facts.completions >= *count
            })?;
            // The news of it goes round.
            run_for(world, 20_000, choices)?
        }
        Order::UntilLeader => wait(world, choices, |world| world.has_leader().is_some())?,
        Order::Trigger => {
            let asked = world.order_checkpoint(choices);
            run_for(world, 1, choices)?;
            Done::if_asked(asked)
        }
        Order::Cancel => Done::if_it(world.order_cancel(choices)),
        Order::Write(subtask, key) => Done::if_it(world.order_write(*subtask, *key)),
        Order::Compact(subtask) => Done::if_it(world.order_compact(*subtask)),
        Order::Rule(rule) => Done::Rule(world.add_rule(rule.clone())),
        Order::Release(kind, subtask) => Done::if_it(world.release(kind.as_deref(), *subtask)),
        Order::Calm => Done::if_it(world.clear_rules()),
        Order::CrashCoordinator => Done::if_it(world.order_crash_coordinator(choices)),
        Order::CrashWorker(worker) => Done::if_it(world.order_crash_worker(*worker)),
        Order::Kill(subtask) => Done::if_it(world.order_kill(*subtask)),
        Order::DeclareDead(subtask) => Done::if_it(world.order_declare_dead(*subtask)),
        Order::Pause(time) => Done::if_it(world.order_pause(*time)),
        Order::Rival => Done::if_it(world.order_rival()),
        Order::Redeploy(from) => {
            let asked = world.order_deploy(*from, choices);
            run_for(world, 20_000, choices)?;
            Done::if_asked(asked)
        }
        Order::Pin(checkpoint, owner, begins) => {
            Done::if_asked(world.order_pin(*checkpoint, owner.clone(), *begins, choices))
        }
        Order::Guest => world
            .order_guest(choices)
            .map_or(Done::Nothing, Done::Guest),
        Order::Close => Done::if_it(world.order_close(choices)),
        Order::PowerCut => Done::if_it(world.order_power_cut(choices)),
    };
    match world.watch.violation.take() {
        Some(violation) => Err(violation),
        None => Ok(done),
    }
}

fn run_for(world: &mut World, time: u64, choices: &mut Choices) -> Result<Done, Violation> {
    let end = world.now + time;
    while world.queue.next_at().is_some_and(|at| at <= end) {
        world.step(choices)?;
    }
    world.now = end;
    world.watch.facts.now = end;
    Ok(Done::Something)
}

fn wait(
    world: &mut World,
    choices: &mut Choices,
    holds: impl Fn(&World) -> bool,
) -> Result<Done, Violation> {
    let end = world.now + PATIENCE;
    while !holds(world) {
        if world.queue.next_at().is_none_or(|at| at > end) {
            let what = "what the story waits for does not come about";
            return Err(Progress::broken(what, &world.pending_reasons()));
        }
        world.step(choices)?;
    }
    Ok(Done::Something)
}
