//! Scenario files: a story by hand, on the same simulator.
//!
//! ```text
//! # FLINK-24611: what the file stands for
//! store object            what the world is like; everything else is benign
//! concurrent 2
//!
//! start                   orders, one a line; see `Order`
//! hold acknowledge 0.1
//! trigger
//! ...
//!
//! outcome                 what comes of it, rewritten by `STILLPOINT_REWRITE=1` and reviewed
//! completed 1 2
//! promise held
//! ```
//!
//! After the last order everything heals, and then all that must happen must happen: checkpoints
//! complete, a restart restores, garbage goes. Every promise is checked after every event, as in a
//! seeded run. A scenario names what it does, so it means the same on every later revision.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use stillpoint::protocol::coordinator::AbortReason;
use stillpoint::protocol::id::{CheckpointId, OperatorId, SubtaskId};

use crate::choice::Choices;
use crate::invariants::Violation;
use crate::profile::{Profile, StoreKind};
use crate::run::{finish, panicked};
use crate::world::World;
use crate::world::frames::Frames;
use crate::world::script::{MESSAGE_KINDS, MessageEffect, REQUEST_KINDS, RequestEffect, Rule};
use crate::world::story::{Line, Story};

/// The longest that an `until` waits, in microseconds of the world's time.
const PATIENCE: u64 = 60_000_000;

/// A scenario as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    profile: Profile,
    orders: Vec<Order>,
    /// The lines of the outcome it expects.
    pub expected: Vec<String>,
}

/// A line that can't be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for BadLine {}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Order {
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
    Close,
    PowerCut,
}

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In lines, as scenario files expect it.
    pub lines: Vec<String>,
    /// The broken promise, if one is broken.
    pub violation: Option<Violation>,
    /// What happened.
    pub story: Vec<Line>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first line that can't be read.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let mut scenario = Self {
            profile: quiet_profile(),
            orders: Vec::new(),
            expected: Vec::new(),
        };
        let mut in_outcome = false;
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            if content == "outcome" {
                in_outcome = true;
            } else if in_outcome {
                scenario.expected.push(content.to_owned());
            } else {
                scenario.read(content).map_err(|reason| BadLine {
                    line: index + 1,
                    reason,
                })?;
            }
        }
        let config = &scenario.profile.config;
        config.validate().map_err(|bad| BadLine {
            line: 1,
            reason: bad.to_string(),
        })?;
        Ok(scenario)
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if read_setting(&mut self.profile, &words)? {
            if !self.orders.is_empty() {
                return Err("settings stand before the first order".to_owned());
            }
            return Ok(());
        }
        self.orders.push(read_order(&words)?);
        Ok(())
    }

    /// The same story on a directory, unless something happens in it that only an object store does.
    #[must_use]
    pub fn on_directory(mut self) -> Option<Self> {
        let only_objects = |order: &Order| {
            matches!(
                order,
                Order::Rule(Rule::Request {
                    effect: RequestEffect::Late(_) | RequestEffect::Refuse | RequestEffect::Tear,
                    ..
                })
            )
        };
        if self.orders.iter().any(only_objects) {
            return None;
        }
        self.profile.store = StoreKind::Directory;
        Some(self)
    }

    /// The world after each step of the orders, and the promise that was broken on the way. What
    /// comes after the last order is not played.
    #[must_use]
    pub fn frames(&self) -> (Vec<World>, Option<Violation>) {
        let mut world = World::new(self.profile.clone());
        world.frames = Frames::wanted();
        world.writing = false;
        let mut choices = Choices::replayed(&[]);
        let obeyed = catch_unwind(AssertUnwindSafe(|| {
            let mut orders = self.orders.iter();
            orders.try_for_each(|order| obey(&mut world, order, &mut choices))
        }));
        let violation = match obeyed {
            Ok(obeyed) => obeyed.err(),
            Err(panic) => Some(panicked(panic.as_ref())),
        };
        (world.take_frames(), violation)
    }

    /// Plays it.
    #[must_use]
    pub fn play(&self) -> Outcome {
        let mut world = World::new(self.profile.clone());
        world.story = Story::told();
        world.writing = false;
        let mut choices = Choices::replayed(&[]);
        let mut lines = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            for order in &self.orders {
                obey(&mut world, order, &mut choices)?;
            }
            lines = outcome_of(&world);
            world.clear_rules();
            world.release(None, None);
            world.writing = true;
            finish(&mut world, &mut choices)
        }));
        let violation = match result {
            Ok(Ok(())) => None,
            Ok(Err(violation)) => Some(violation),
            Err(panic) => Some(panicked(panic.as_ref())),
        };
        if lines.is_empty() {
            lines = outcome_of(&world);
        }
        lines.push(match &violation {
            None => "promise held".to_owned(),
            Some(violation) => format!("promise broken: {}", violation.promise),
        });
        Outcome {
            lines,
            violation,
            story: world.story.lines().to_vec(),
        }
    }
}

/// A world without faults, interval or writes: everything happens by order.
fn quiet_profile() -> Profile {
    let mut profile = Profile::benign();
    profile.parallelism = 2;
    profile.workers = 2;
    profile.config.interval = None;
    profile.config.max_concurrent = 2;
    profile.config.num_retained = 1;
    profile.config.tolerable_failures = 1000;
    profile
}

fn read_setting(profile: &mut Profile, words: &[&str]) -> Result<bool, String> {
    match words {
        ["store", "object"] => profile.store = StoreKind::Object,
        ["store", "directory"] => profile.store = StoreKind::Directory,
        ["workers", n] => profile.workers = number(n)?,
        ["operators", n] => profile.operators = number(n)?,
        ["parallelism", n] => profile.parallelism = number(n)?,
        ["concurrent", n] => profile.config.max_concurrent = number(n)?,
        ["retained", n] => profile.config.num_retained = number(n)?,
        ["tolerated", n] => profile.config.tolerable_failures = number(n)?,
        ["timeout", time] => profile.config.timeout = duration(time)?,
        ["min-pause", time] => {
            profile.config.min_pause = duration(time)?;
            profile.config.min_pause_max = profile.config.min_pause * 8;
        }
        ["interval", time] => profile.config.interval = Some(duration(time)?),
        ["tail", n] => profile.config.limits.tail_records_max = number(n)?,
        ["tombstones", n] => profile.config.limits.tombstones_max = number(n)?,
        ["upload-tries", n] => profile.config.limits.upload_tries_max = number(n)?,
        ["uploads", n] => profile.config.limits.uploads_in_flight_max = number(n)?,
        ["id-block", n] => profile.config.limits.checkpoint_id_block = number(n)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_order(words: &[&str]) -> Result<Order, String> {
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
        ["close"] => Order::Close,
        ["power-cut"] => Order::PowerCut,
        _ => return Err(format!("{:?} is no order", words.join(" "))),
    })
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn micros(word: &str) -> Result<u64, String> {
    match word.strip_suffix("ms") {
        Some(millis) => Ok(number::<u64>(millis)? * 1000),
        None => Err(format!("{word:?} is no time in ms")),
    }
}

fn duration(word: &str) -> Result<Duration, String> {
    micros(word).map(Duration::from_micros)
}

fn subtask(word: &str) -> Result<SubtaskId, String> {
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
        ["tear", rest @ ..] => (RequestEffect::Tear, rest),
        _ => return Err(format!("{:?} happens to no call", words.join(" "))),
    };
    Ok(Order::Rule(Rule::Request {
        kind: kind.to_owned(),
        effect,
        left: times(rest.first())?,
    }))
}

fn obey(world: &mut World, order: &Order, choices: &mut Choices) -> Result<(), Violation> {
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
    Ok(())
}

fn wait(
    world: &mut World,
    choices: &mut Choices,
    holds: impl Fn(&World) -> bool,
) -> Result<(), Violation> {
    let end = world.now + PATIENCE;
    while !holds(world) && world.queue.next_at().is_some_and(|at| at <= end) {
        world.step(choices)?;
    }
    Ok(())
}

/// What a user has seen by now.
fn outcome_of(world: &World) -> Vec<String> {
    let facts = &world.watch.facts;
    let list = |ids: &mut dyn Iterator<Item = u64>| {
        let words: Vec<String> = ids.map(|id| id.to_string()).collect();
        if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(" ")
        }
    };
    let mut lines = vec![
        format!(
            "completed {}",
            list(&mut facts.completed.iter().map(|id| id.0))
        ),
        format!(
            "retained {}",
            list(&mut facts.durable.retained.keys().map(|id| id.0))
        ),
        format!("epoch {}", facts.durable.epoch.0),
    ];
    for (checkpoint, reason) in &facts.aborted {
        lines.push(format!("aborted {} {}", checkpoint.0, name_of(reason)));
    }
    for (checkpoint, subtask) in &facts.restored {
        lines.push(format!(
            "restored {} by {}.{}",
            checkpoint.0, subtask.operator.0, subtask.index
        ));
    }
    lines
}

fn name_of(reason: &AbortReason) -> &'static str {
    match reason {
        AbortReason::Expired => "expired",
        AbortReason::Declined(..) => "declined",
        AbortReason::Contradiction(..) => "contradiction",
        AbortReason::Subsumed => "subsumed",
        AbortReason::AttemptEnded(_) => "attempt-ended",
        AbortReason::Cancelled => "cancelled",
        AbortReason::Closed => "closed",
        AbortReason::CommitFailed(_) => "commit-failed",
        AbortReason::Deposed(_) => "deposed",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_can_not_be_read_is_named() {
        let bad = Scenario::parse("start\n\ndance\n").expect_err("no such order");
        assert_eq!(bad.to_string(), "line 3: \"dance\" is no order");
        let bad = Scenario::parse("start\nretained 2\n").expect_err("too late");
        assert_eq!(bad.line, 2);
        assert!(Scenario::parse("call swap explode\n").is_err());
        assert!(Scenario::parse("retained 0\n").is_err());
    }

    #[test]
    fn a_plain_story_ends_well() {
        let text = "start\nwrite 0.0 1\ntrigger\nuntil completed 1\n\noutcome\ncompleted 1\n";
        let scenario = Scenario::parse(text).expect("it can be read");
        assert_eq!(scenario.expected, ["completed 1"]);
        let outcome = scenario.play();
        assert_eq!(outcome.violation, None);
        assert_eq!(outcome.lines[0], "completed 1");
    }
}
