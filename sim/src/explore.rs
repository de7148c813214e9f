//! The explorer: every order of everything that can happen, at small bounds.
//!
//! ```text
//! frontier of states --take one--> each answer to each choice of its next step --> new states
//!    ^                                                        |                        |
//!    +------------------ those never seen before <------------+-- every invariant -----+
//! ```
//!
//! A state is seen before if its fingerprint of 128 bits was ([`Fingerprint`]). States are taken
//! from the front of the frontier, so that a broken promise is found on a short way, and from its
//! back while it is too long to be held in memory. If the frontier runs out, every state within
//! the bounds has been seen, whatever the order: the numbers are then the same in every run.
//!
//! A path is a number of steps and the answers to all choices in them; [`replay`] takes it again
//! and tells what happens. It is written with the bounds' name, `attempts:5:3.0.1`. Where there is
//! but one thing that can happen, nothing is chosen, so a path has no more answers than it needs.
//!
//! [`Fingerprint`]: crate::digest::Fingerprint

pub mod bounds;

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use stillpoint::protocol::marks::{self, Guard};

use crate::choice::{Choices, next_script};
use crate::invariants::Violation;
use crate::run::panicked;
use crate::world::small::{Bounds, SmallWorld, labels};
use crate::world::story::{Line, Story};

/// States that the frontier holds before the search goes on from its back.
const FRONTIER_MAX: usize = 20_000;
/// Parts of the set of states that were seen, each with a lock of its own.
const SHARDS: usize = 64;

/// How far an exploration goes.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// States after which it ends.
    pub states_max: u64,
    /// Failures after which it ends.
    pub failures_max: usize,
    /// Threads.
    pub threads: usize,
    /// A guard that is held open: a planted fault.
    pub hold_open: Option<Guard>,
    /// Whether it goes on: asked before each state. What was found until then is told.
    pub goes_on: fn() -> bool,
    /// Takes each step, for whoever watches that it ends: see [`Watch`].
    pub watch: Watch,
}

/// Does the work, which is the last step of a path within bounds, with a guard held open.
pub type Watch = fn(&Bounds, Path, Option<Guard>, &mut dyn FnMut());

/// Nobody watches.
pub fn unwatched(_: &Bounds, _: Path, _: Option<Guard>, work: &mut dyn FnMut()) {
    work();
}

/// What an exploration came to.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Different states.
    pub states: u64,
    /// Steps from a state to another, to the same or to one that was seen before.
    pub transitions: u64,
    /// States in which nothing more can happen.
    pub ends: u64,
    /// Whether every state within the bounds has been seen.
    pub is_complete: bool,
    /// The most of each that was in play in one state.
    pub most: Most,
    /// Broken promises.
    pub failures: Vec<Failure>,
}

/// The most of each that was in play in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Most {
    /// Epochs that there had been.
    pub epochs: u64,
    /// Attempts that the manifest had named.
    pub attempts: u64,
    /// Checkpoints that had completed.
    pub completed: u64,
    /// Files that had been condemned.
    pub condemned: u64,
}

impl Most {
    fn of(state: &SmallWorld) -> Self {
        let facts = &state.world.watch.facts;
        Self {
            epochs: facts.durable.epoch.0,
            attempts: facts.durable.ever_named.len() as u64,
            completed: facts.completions,
            condemned: facts.durable.ever_condemned.len() as u64,
        }
    }

    /// The most in either.
    fn or(self, other: Self) -> Self {
        Self {
            epochs: self.epochs.max(other.epochs),
            attempts: self.attempts.max(other.attempts),
            completed: self.completed.max(other.completed),
            condemned: self.condemned.max(other.condemned),
        }
    }
}

/// A broken promise and the way to it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The promise.
    pub violation: Violation,
    /// The way.
    pub path: Path,
}

/// A way from the start to a state.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Path {
    /// How many steps it has.
    pub steps: u32,
    /// The answers to all choices in them.
    pub answers: Vec<u32>,
}

impl Path {
    /// The path and one step more, in which these choices were made.
    fn and(&self, script: &[u32], asked: usize) -> Self {
        let mut answers = self.answers.clone();
        answers.extend(script);
        answers.resize(self.answers.len() + asked, 0);
        Self {
            steps: self.steps + 1,
            answers,
        }
    }

    /// As [`parse_path`] reads it, with the name of the bounds.
    #[must_use]
    pub fn text(&self, bounds: &str) -> String {
        let answers: Vec<String> = self.answers.iter().map(u32::to_string).collect();
        format!("{bounds}:{}:{}", self.steps, answers.join("."))
    }
}

impl Failure {
    /// The path as [`parse_path`] reads it.
    #[must_use]
    pub fn path_text(&self, bounds: &Bounds) -> String {
        self.path.text(bounds.name)
    }
}

struct Node {
    state: SmallWorld,
    path: Path,
}

struct Search {
    bounds: Bounds,
    effort: Effort,
    frontier: Mutex<VecDeque<Node>>,
    /// Threads that hold a state and may add others.
    busy: AtomicUsize,
    seen: Vec<Mutex<HashSet<u128>>>,
    states: AtomicU64,
    transitions: AtomicU64,
    ends: AtomicU64,
    most: Mutex<Most>,
    failures: Mutex<Vec<Failure>>,
    is_over: AtomicBool,
}

/// Explores everything within the bounds, or as much as the effort allows.
#[must_use]
pub fn explore(bounds: &Bounds, effort: Effort) -> Explored {
    let search = Search {
        bounds: bounds.clone(),
        effort,
        frontier: Mutex::default(),
        busy: AtomicUsize::new(0),
        seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
        states: AtomicU64::new(0),
        transitions: AtomicU64::new(0),
        ends: AtomicU64::new(0),
        most: Mutex::default(),
        failures: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    search.begin(SmallWorld::new(bounds));
    std::thread::scope(|scope| {
        for _ in 0..effort.threads.max(1) {
            scope.spawn(|| search.work());
        }
    });
    let is_complete = !search.is_over.load(Ordering::Relaxed);
    Explored {
        states: search.states.into_inner(),
        transitions: search.transitions.into_inner(),
        ends: search.ends.into_inner(),
        is_complete,
        most: search.most.into_inner().unwrap_or_default(),
        failures: search.failures.into_inner().unwrap_or_default(),
    }
}

impl Search {
    fn begin(&self, state: SmallWorld) {
        self.is_new(state.fingerprint());
        let path = Path::default();
        self.push(vec![Node { state, path }]);
    }

    fn push(&self, nodes: Vec<Node>) {
        if let Ok(mut frontier) = self.frontier.lock() {
            frontier.extend(nodes);
        }
    }

    /// Takes a state out, and counts this thread as busy with it.
    fn pop(&self) -> Option<Node> {
        let mut frontier = self.frontier.lock().ok()?;
        let node = if frontier.len() > FRONTIER_MAX {
            frontier.pop_back()
        } else {
            frontier.pop_front()
        };
        if node.is_some() {
            self.busy.fetch_add(1, Ordering::SeqCst);
        }
        node
    }

    fn work(&self) {
        marks::hold_open(self.effort.hold_open);
        while !self.is_over.load(Ordering::Relaxed) {
            if !(self.effort.goes_on)() {
                self.is_over.store(true, Ordering::Relaxed);
                break;
            }
            match self.pop() {
                Some(node) => {
                    self.expand(&node);
                    self.busy.fetch_sub(1, Ordering::SeqCst);
                }
                None if self.busy.load(Ordering::SeqCst) == 0 => break,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Whether a state was never seen before; it has been from now on.
    fn is_new(&self, fingerprint: u128) -> bool {
        let shard = &self.seen[(fingerprint % SHARDS as u128) as usize];
        let is_new = shard
            .lock()
            .is_ok_and(|mut shard| shard.insert(fingerprint));
        if is_new {
            let states = self.states.fetch_add(1, Ordering::Relaxed) + 1;
            if states >= self.effort.states_max {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        is_new
    }

    /// Takes every next step of a state.
    fn expand(&self, node: &Node) {
        let mut found = Vec::new();
        let mut next = Some(Vec::new());
        while let Some(script) = next {
            let mut choices = Choices::scripted_for(script.clone(), labels());
            let mut state = node.state.clone();
            let mut stepped = Ok(false);
            // What the script does not answer is answered with 0, here and on a path.
            let known = node.path.and(&script, script.len());
            let effort = &self.effort;
            (effort.watch)(&self.bounds, known, effort.hold_open, &mut || {
                stepped = step(&mut state, &mut choices);
            });
            let path = || node.path.and(&script, choices.asked().len());
            if matches!(stepped, Ok(false)) {
                self.ends.fetch_add(1, Ordering::Relaxed);
                break;
            }
            if state.is_within_bounds() {
                self.transitions.fetch_add(1, Ordering::Relaxed);
                match stepped {
                    Ok(_) if !self.is_new(state.fingerprint()) => {}
                    Ok(_) => match state.check() {
                        Ok(()) => found.push(Node {
                            path: path(),
                            state,
                        }),
                        Err(violation) => self.fail(violation, path()),
                    },
                    Err(violation) => self.fail(violation, path()),
                }
            }
            next = next_script(script, choices.asked());
        }
        let most = found
            .iter()
            .fold(Most::default(), |most, node| most.or(Most::of(&node.state)));
        if let Ok(mut all) = self.most.lock() {
            *all = all.or(most);
        }
        self.push(found);
    }

    fn fail(&self, violation: Violation, path: Path) {
        if let Ok(mut failures) = self.failures.lock() {
            failures.push(Failure { violation, path });
            if failures.len() >= self.effort.failures_max {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// A step; a machine's assertion is a broken promise as well.
fn step(state: &mut SmallWorld, choices: &mut Choices) -> Result<bool, Violation> {
    catch_unwind(AssertUnwindSafe(|| state.step(choices)))
        .unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// Takes a path again and tells what happens.
#[must_use]
pub fn replay(bounds: &Bounds, path: &Path) -> (Option<Violation>, Vec<Line>) {
    let mut state = SmallWorld::new(bounds);
    state.world.story = Story::told();
    let mut choices = Choices::scripted_for(path.answers.clone(), labels());
    let mut violation = None;
    for _ in 0..path.steps {
        violation = match step(&mut state, &mut choices) {
            Ok(true) => state.check().err(),
            Ok(false) => break,
            Err(violation) => Some(violation),
        };
        if violation.is_some() {
            break;
        }
    }
    (violation, state.world.story.lines().to_vec())
}

/// Reads a path: the name of the bounds, the number of steps and the answers.
///
/// # Errors
/// What is wrong with it.
pub fn parse_path(text: &str) -> Result<(Bounds, Path), String> {
    let mut parts = text.splitn(3, ':');
    let (Some(name), Some(steps), Some(answers)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(format!(
            "{text:?} is no path: it is written BOUNDS:STEPS:3.0.1"
        ));
    };
    let number = |word: &str| {
        word.parse::<u32>()
            .map_err(|error| format!("{text:?}, {word:?}: {error}"))
    };
    let bounds = bounds::named(name).ok_or_else(|| format!("there are no bounds {name:?}"))?;
    let answers = answers.split('.').filter(|answer| !answer.is_empty());
    let path = Path {
        steps: number(steps)?,
        answers: answers.map(number).collect::<Result<_, _>>()?,
    };
    Ok((bounds, path))
}
