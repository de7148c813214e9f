//! Orders: what a scenario by hand says that happens, one a line.

use stillpoint::protocol::id::{CheckpointId, OperatorId, SubtaskId};

use super::settings::{micros, number};
use crate::choice::Choices;
use crate::invariants::{Progress, Violation};
use crate::world::World;
use crate::world::script::{MESSAGE_KINDS, MessageEffect, REQUEST_KINDS, RequestEffect, Rule};

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

/// Reads an order.
pub(super) fn read_order(words: &[&str]) -> Result<Order, String> {
    Ok(match words {
        ["start"] => Order::Start,
        ["run", time] => Order::Run(micros(time)?),
        ["until", "completed", n] => Order::UntilCompleted(number(n)?),
        ["until", "leader"] => Order::UntilLeader,
        ["until", "running"] => Order::UntilRunning,
        ["trigger"] => Order::Trigger,
        ["cancel"] => Order::Cancel,
        ["write", whose, key] => Order::Write(subtask(whose)?, number(key)?),
        ["compact", whose] => Order::Compact(subtask(whose)?),
        ["hold", rest @ ..] => message_rule(rest, MessageEffect::Hold)?,
        ["lose", rest @ ..] => message_rule(rest, MessageEffect::Lose)?,
        ["double", time, rest @ ..] => message_rule(rest, MessageEffect::Double(micros(time)?))?,
        ["release"] => Order::Release(None, None),
        ["release", kind] => Order::Release(Some(message_kind(kind)?), None),
        ["release", kind, whose] => {
            Order::Release(Some(message_kind(kind)?), Some(subtask(whose)?))
        }
        ["call", kind, rest @ ..] => request_rule(kind, rest)?,
        ["calm"] => Order::Calm,
        ["crash", "coordinator"] => Order::CrashCoordinator,
        ["crash", "worker", n] => Order::CrashWorker(number(n)?),
        ["kill", whose] => Order::Kill(subtask(whose)?),
        ["declare-dead", whose] => Order::DeclareDead(subtask(whose)?),
        ["pause", time] => Order::Pause(micros(time)?),
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
    })
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

fn message_kind(word: &str) -> Result<String, String> {
    if MESSAGE_KINDS.contains(&word) {
        Ok(word.to_owned())
    } else {
        Err(format!("{word:?} is no kind of message"))
    }
}

/// How often a rule strikes: `x3`; for ever if nothing is said.
fn times(word: Option<&&str>) -> Result<u32, String> {
    match word {
        None => Ok(u32::MAX),
        Some(word) => match word.strip_prefix('x') {
            Some(times) => number(times),
            None => Err(format!("{word:?} does not say how often")),
        },
    }
}

fn message_rule(words: &[&str], effect: MessageEffect) -> Result<Order, String> {
    let [kind, rest @ ..] = words else {
        return Err("which messages?".to_owned());
    };
    let kind = message_kind(kind)?;
    let (subtask, rest) = match rest {
        [whose, rest @ ..] if whose.contains('.') => (Some(subtask(whose)?), rest),
        rest => (None, rest),
    };
    Ok(Order::Rule(Rule::Message {
        kind,
        subtask,
        effect,
        left: times(rest.first())?,
    }))
}

fn request_rule(kind: &str, words: &[&str]) -> Result<Order, String> {
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
    Ok(Order::Rule(Rule::Request {
        kind: kind.to_owned(),
        effect,
        left: times(rest.first())?,
    }))
}

/// Does what an order says.
pub(super) fn obey(
    world: &mut World,
    order: &Order,
    choices: &mut Choices,
) -> Result<(), Violation> {
    match order {
        Order::Start | Order::UntilRunning => wait(world, choices, World::all_run)?,
        Order::Run(time) => run_for(world, *time, choices)?,
        Order::UntilCompleted(count) => {
            wait(world, choices, |world| {
                world.watch.facts.completions >= *count
            })?;
            // The news of it goes round.
            run_for(world, 20_000, choices)?;
        }
        Order::UntilLeader => wait(world, choices, |world| world.has_leader().is_some())?,
        Order::Trigger => {
            world.order_checkpoint(choices);
            run_for(world, 1, choices)?;
        }
        Order::Cancel => world.order_cancel(choices),
        Order::Write(subtask, key) => world.order_write(*subtask, *key),
        Order::Compact(subtask) => world.order_compact(*subtask),
        Order::Rule(rule) => world.add_rule(rule.clone()),
        Order::Release(kind, subtask) => world.release(kind.as_deref(), *subtask),
        Order::Calm => world.clear_rules(),
        Order::CrashCoordinator => world.order_crash_coordinator(choices),
        Order::CrashWorker(worker) => world.order_crash_worker(*worker),
        Order::Kill(subtask) => world.order_kill(*subtask),
        Order::DeclareDead(subtask) => world.order_declare_dead(*subtask),
        Order::Pause(time) => world.order_pause(*time),
        Order::Rival => world.order_rival(),
        Order::Redeploy(from) => {
            world.order_deploy(*from, choices);
            run_for(world, 20_000, choices)?;
        }
        Order::Pin(checkpoint, owner, begins) => {
            world.order_pin(*checkpoint, owner.clone(), *begins, choices);
        }
        Order::Guest => world.order_guest(choices),
        Order::Close => world.order_close(choices),
        Order::PowerCut => world.order_power_cut(choices),
    }
    match world.watch.violation.take() {
        Some(violation) => Err(violation),
        None => Ok(()),
    }
}

fn run_for(world: &mut World, time: u64, choices: &mut Choices) -> Result<(), Violation> {
    let end = world.now + time;
    while world.queue.next_at().is_some_and(|at| at <= end) {
        world.step(choices)?;
    }
    world.now = end;
    world.watch.facts.now = end;
    Ok(())
}

fn wait(
    world: &mut World,
    choices: &mut Choices,
    holds: impl Fn(&World) -> bool,
) -> Result<(), Violation> {
    let end = world.now + PATIENCE;
    while !holds(world) {
        if world.queue.next_at().is_none_or(|at| at > end) {
            let what = "what the story waits for does not come about";
            return Err(Progress::broken(what, &world.pending_reasons()));
        }
        world.step(choices)?;
    }
    Ok(())
}
