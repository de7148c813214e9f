//! Scenario files: a story by hand, on the same simulator.
//!
//! ```text
//! # FLINK-24611: what the file stands for
//! store object            what the world is like; everything else is benign
//! concurrent 2
//!
//! start                   orders, one a line; see `orders`
//! hold acknowledge 0.1
//! trigger
//! ...
//!
//! outcome                 what comes of it, rewritten by `STILLPOINT_REWRITE=1` and reviewed
//! completed 1 2
//! promise held
//! ```
//!
//! or, as shrinking writes it:
//!
//! ```text
//! world seeded            users write, checkpoints come by themselves; no orders
//! hold-open PinnedIsKept  a planted fault, if there is one
//! faults rivals pins      classes of faults that may strike
//!
//! choose disturbance 7 1  wherever nothing is said, the benign choice is made
//! choose store-fate upload 3 1
//!
//! outcome
//! promise broken: RetainedIsRecoverable
//! ```
//!
//! After the last order everything heals, and then all that must happen must happen: checkpoints
//! complete, a restart restores, garbage goes. Every promise is checked after every event, as in a
//! seeded run. What can't do anything is refused when the file is read; what did nothing, or was refused,
//! is told in the outcome. A scenario by orders names what it does, so it means the same on every later revision;
//! one by choices is read and played on every later one, and says there what comes of it then.
//!
//! | file | what it holds |
//! |---|---|
//! | `settings` | what the world is like, read and written |
//! | `orders` | what happens, read and done |
//! | `outcome` | what came of it, and what may be expected |
//! | `written` | the scenario of a run that was shrunk |

mod orders;
mod outcome;
pub(crate) mod settings;
mod written;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use stillpoint::protocol::marks::{self, Guard};

use self::orders::{Done, Line, Order, obey, read_order};
pub use self::outcome::Outcome;
use self::outcome::{expectation, in_vain, outcome_of, verdict};
use self::settings::{number, read_setting};
pub use self::written::write;
use crate::choice::{Choice, Choices, Label, Subject};
use crate::invariants::Violation;
use crate::profile::{Length, Profile, StoreKind};
use crate::run::{Attention, Ended, ended, finish, panicked, run};
use crate::shrink::is_setting;
use crate::world::World;
use crate::world::frames::Frames;
use crate::world::script::Aim;

/// A scenario as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    profile: Profile,
    orders: Vec<Line>,
    /// The world is that of a seeded run, and these are its choices that are not benign.
    choices: Option<Vec<Choice>>,
    /// The planted fault.
    hold_open: Option<Guard>,
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

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first line that can't be read.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let mut scenario = Self {
            profile: quiet_profile(),
            orders: Vec::new(),
            choices: None,
            hold_open: None,
            expected: Vec::new(),
        };
        let mut in_outcome = false;
        let mut last = 1;
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            last = index + 1;
            let read = if content == "outcome" && !in_outcome {
                in_outcome = true;
                Ok(())
            } else if in_outcome {
                scenario.expect(content)
            } else {
                scenario.read(content)
            };
            read.map_err(|reason| BadLine { line: last, reason })?;
        }
        scenario
            .whole(in_outcome)
            .map_err(|reason| BadLine { line: last, reason })?;
        let config = &scenario.profile.config;
        config.validate().map_err(|bad| BadLine {
            line: 1,
            reason: bad.to_string(),
        })?;
        Ok(scenario)
    }

    /// Reads a line of the outcome. The last one says whether the promises held.
    fn expect(&mut self, line: &str) -> Result<(), String> {
        if self.is_judged() {
            return Err("nothing comes after what is said of the promises".to_owned());
        }
        let line = expectation(line, &self.orders)?;
        if self.choices.is_some() && !line.starts_with("promise ") {
            return Err("of a seeded world only what is said of the promises is known".to_owned());
        }
        self.expected.push(line);
        Ok(())
    }

    fn is_judged(&self) -> bool {
        let last = self.expected.last();
        last.is_some_and(|line| line.starts_with("promise "))
    }

    /// Whether something is told, to its end.
    fn whole(&self, has_outcome: bool) -> Result<(), String> {
        if self.orders.is_empty() && self.choices.is_none() {
            return Err("nothing happens: neither `world seeded` nor an order".to_owned());
        }
        if has_outcome && !self.is_judged() {
            return Err("an outcome ends with `promise held` or `promise broken: NAME`".to_owned());
        }
        Ok(())
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_first = self.profile == quiet_profile() && self.choices.is_none();
        let has_begun = !self.orders.is_empty() || self.choices.iter().flatten().next().is_some();
        match (words.as_slice(), &mut self.choices) {
            (["world", "seeded"], _) if is_first && !has_begun => {
                self.profile = Profile::benign();
                self.choices = Some(Vec::new());
            }
            (["world", ..], _) => return Err("this stands first, and is `world seeded`".to_owned()),
            (["hold-open", name], _) => {
                let guard = Guard::parse(name);
                self.hold_open = Some(guard.ok_or_else(|| format!("there is no guard {name:?}"))?);
            }
            (["choose", words @ ..], Some(choices)) => {
                let choice = read_choice(words)?;
                if choices.iter().any(|other| place(other) == place(&choice)) {
                    return Err("this is chosen twice".to_owned());
                }
                choices.push(choice);
            }
            (words, choices) => {
                if read_setting(&mut self.profile, words)? {
                    if has_begun {
                        return Err("settings stand before the first order".to_owned());
                    }
                    if choices.is_none() && OF_SEEDED_WORLDS.contains(&words[0]) {
                        return Err(format!("{} is of a seeded world only", words[0]));
                    }
                } else if choices.is_some() {
                    return Err(format!("{:?} is no choice", words.join(" ")));
                } else {
                    self.orders.push(read_order(words, &self.profile)?);
                }
            }
        }
        Ok(())
    }

    /// The planted fault that it names, if it names one: then a promise is to be broken.
    #[must_use]
    pub fn hold_open(&self) -> Option<Guard> {
        self.hold_open
    }

    /// Whether it is told by the choices of a seeded run.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        self.choices.is_some()
    }

    /// The same story on a directory, unless something happens in it that only an object store does.
    #[must_use]
    pub fn on_directory(mut self) -> Option<Self> {
        let only_objects = |line: &Line| {
            let Order::Rule(rule) = &line.order else {
                return false;
            };
            matches!(&rule.aim, Aim::Request { effect, .. } if effect.is_of_objects())
        };
        if self.choices.is_some() || self.orders.iter().any(only_objects) {
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
            orders.try_for_each(|line| obey(&mut world, &line.order, &mut choices).map(drop))
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
        marks::hold_open(self.hold_open);
        let outcome = match &self.choices {
            Some(choices) => self.play_choices(choices),
            None => self.play_orders(),
        };
        marks::hold_open(None);
        outcome
    }

    fn play_choices(&self, choices: &[Choice]) -> Outcome {
        let ended = self.with_choices(choices, Attention::Story);
        Outcome {
            lines: vec![verdict(ended.violation.as_ref())],
            ended,
        }
    }

    fn with_choices(&self, choices: &[Choice], attention: Attention) -> Ended {
        let choices = Choices::replayed(choices);
        run(
            choices,
            Length::Short,
            Some(self.profile.clone()),
            attention,
        )
    }

    /// The first of its choices that is greater than any that there was to choose from. A choice that
    /// the run does not come to, as may be on another revision, is none.
    #[must_use]
    pub fn beyond_range(&self, outcome: &Outcome) -> Option<Choice> {
        let choices = self.choices.as_deref()?;
        let made = |ended: &Ended, wanted: &Choice| {
            let mut made = ended.choices.iter().copied();
            made.find(|choice| place(choice) == place(wanted))
        };
        marks::hold_open(self.hold_open);
        let found = (0..choices.len()).find(|index| {
            let wanted = &choices[*index];
            if let Some(made) = made(&outcome.ended, wanted) {
                return made.value != wanted.value;
            }
            // It was not come to, or its answer was taken for the benign one. With the least other
            // answer the run is the same until it is come to.
            let mut least = choices.to_vec();
            least[*index].value = 1;
            wanted.value > 1 && made(&self.with_choices(&least, Attention::None), wanted).is_some()
        });
        marks::hold_open(None);
        found.map(|index| choices[index])
    }

    /// How many of its choices the run did not come to, or took for benign ones.
    #[must_use]
    pub fn not_come_to(&self, outcome: &Outcome) -> usize {
        let made = |wanted: &&Choice| {
            let mut made = outcome.ended.choices.iter();
            made.any(|choice| place(choice) == place(wanted))
        };
        let choices = self.choices.as_deref().unwrap_or_default();
        choices.len() - choices.iter().filter(made).count()
    }

    /// What has come of it by now, and which of the orders that were obeyed came to nothing.
    fn lines(&self, world: &World, done: &[Done]) -> Vec<String> {
        let obeyed = self.orders.iter().zip(done.iter().copied());
        let mut lines = outcome_of(world);
        lines.extend(in_vain(world, obeyed));
        lines
    }

    fn play_orders(&self) -> Outcome {
        let mut world = World::new(self.profile.clone());
        world.listen();
        world.writing = false;
        let mut choices = Choices::replayed(&[]);
        let mut lines = Vec::new();
        let mut done = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            for line in &self.orders {
                done.push(obey(&mut world, &line.order, &mut choices)?);
            }
            lines = self.lines(&world, &done);
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
            lines = self.lines(&world, &done);
        }
        lines.push(verdict(violation.as_ref()));
        Outcome {
            lines,
            ended: ended(&mut world, &choices, violation),
        }
    }
}

/// Settings that change nothing where everything happens by order.
const OF_SEEDED_WORLDS: &[&str] = &["faults", "events", "at-last"];

/// Where a choice is made.
fn place(choice: &Choice) -> (Label, Subject, u32) {
    (choice.label, choice.subject, choice.place)
}

fn read_choice(words: &[&str]) -> Result<Choice, String> {
    let (label, subject, place, value) = match words {
        [label, place, value] => (label, Subject::Nothing, place, value),
        [label, subject, place, value] => {
            let known = Subject::parse(subject);
            let subject = known.ok_or_else(|| format!("nothing is about {subject:?}"))?;
            (label, subject, place, value)
        }
        _ => return Err("a choice is: label, what it is about, place, value".to_owned()),
    };
    let choice = Choice {
        label: Label::parse(label).ok_or_else(|| format!("nothing is called {label:?}"))?,
        subject,
        place: number(place)?,
        value: number(value)?,
    };
    if is_setting(&choice) {
        return Err("what the world is like is said by settings".to_owned());
    }
    if choice.value == 0 {
        return Err("0 is the benign choice, which is made wherever nothing is said".to_owned());
    }
    Ok(choice)
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
    fn a_file_says_what_happens_and_how_it_ends() {
        for bad in [
            "",
            "# only words\n",
            "store object\n",
            "outcome\npromise held\n",
            "start\noutcome\n",
            "start\noutcome\ncompleted 1\n",
            "start\noutcome\npromise kept\n",
            "start\noutcome\npromise broken: Nothing\n",
            "start\noutcome\npromise held\nepoch 1\n",
            "start\noutcome\ncompleted x\npromise held\n",
            "start\noutcome\naborted 1 bored\npromise held\n",
            "start\noutcome\nrestored 1\npromise held\n",
            "world seeded\noutcome\nepoch 1\npromise held\n",
            "world seeded\nchoose message-lost 3 0\n",
            "world seeded\nchoose profile 3 1\n",
            "world seeded\nchoose message-lost 3 1\nchoose message-lost 3 1\n",
        ] {
            assert!(Scenario::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_that_there_is_no_room_for_is_seen() {
        let beyond = |value: u32| {
            let text = format!("world seeded\nchoose message-delay lead 0 {value}\n");
            let scenario = Scenario::parse(&text).expect("it can be read");
            scenario.beyond_range(&scenario.play()).is_some()
        };
        assert!(!beyond(1));
        let found: Vec<bool> = (100..120).map(beyond).collect();
        assert!(found.iter().all(|is_seen| *is_seen), "{found:?}");
    }

    #[test]
    fn what_can_not_do_anything_is_refused() {
        for (bad, reason) in [
            ("crash worker 2", "there is no worker 2: workers are 0 to 1"),
            (
                "kill 5.5",
                "there is no subtask 5.5: operators are 0 to 0, ",
            ),
            ("write 0.2 1", "there is no subtask 0.2"),
            ("write 0.0 8", "there is no key 8: keys are 0 to 7"),
            ("compact 9.9", "there is no subtask 9.9"),
            ("declare-dead 7.0", "there is no subtask 7.0"),
            ("hold trigger 9.9", "there is no subtask 9.9"),
            ("release trigger 9.9", "there is no subtask 9.9"),
            ("lose completed x0", "\"x0\" is never"),
            ("call delete fail x0", "\"x0\" is never"),
            ("call delete fail x1 x2", "\"x1 x2\" says more"),
            (
                "call list damage",
                "damage happens to no list, only to: read, fetch",
            ),
            (
                "call read tear",
                "tear happens to no read, only to: put, upload",
            ),
            ("call delete refuse", "refuse happens to no delete"),
            ("run 0ms", "\"0ms\" is no time at all"),
            ("faults rivals", "faults is of a seeded world only"),
            (
                "store directory\ncall put tear",
                "tear happens in an object store only",
            ),
        ] {
            let refused = Scenario::parse(&format!("{bad}\n")).expect_err(bad);
            assert!(refused.reason.contains(reason), "{bad}: {refused}");
        }
        let more = "operators 2\nworkers 3\ncrash worker 2\nkill 1.1\n";
        assert!(Scenario::parse(more).is_ok());
    }

    #[test]
    fn what_did_nothing_is_told() {
        for order in [
            "crash worker 1",
            "crash coordinator",
            "kill 0.0",
            "write 0.0 1",
            "compact 0.0",
            "declare-dead 0.0",
            "release",
            "calm",
            "cancel",
            "pause 10ms",
            "close",
            "trigger",
            "lose completed x3",
            "call delete fail",
        ] {
            let told = format!("did nothing: {order}");
            assert_eq!(after(order), [told.as_str()], "{order}");
            let file = format!("{order}\noutcome\n{told}\npromise held\n");
            assert!(Scenario::parse(&file).is_ok(), "{order}");
        }
        assert!(Scenario::parse("start\noutcome\ndid nothing: calm\npromise held\n").is_err());
        // One that struck less often than it could has struck.
        assert!(after("lose trigger 0.0 x3\nstart\ntrigger\nrun 5ms").is_empty());
        assert_eq!(after("start\ncompact 0.0"), ["did nothing: compact 0.0"]);
    }

    #[test]
    fn what_is_refused_is_told() {
        for (orders, refused) in [
            ("start\npin 9 me", "refused pin 9 me: no-such-checkpoint"),
            (
                "start\nunpin 9 me",
                "refused unpin 9 me: no-such-checkpoint",
            ),
            ("start\nrestore 7", "refused restore 7: no-such-checkpoint"),
        ] {
            assert_eq!(after(orders), [refused], "{orders}");
            let file = format!("{orders}\noutcome\n{refused}\npromise held\n");
            assert!(Scenario::parse(&file).is_ok(), "{orders}");
        }
        let other = "start\noutcome\nrefused start: whim\npromise held\n";
        assert!(Scenario::parse(other).is_err());
    }

    /// What is told of these orders besides what has come of the checkpoints.
    fn after(orders: &str) -> Vec<String> {
        let outcome = Scenario::parse(orders).expect("it can be read").play();
        let mut lines = outcome.lines;
        assert_eq!(lines.pop().as_deref(), Some("promise held"), "{orders}");
        lines.retain(|line| line.starts_with("did nothing") || line.starts_with("refused"));
        lines
    }

    #[test]
    fn choices_and_orders_do_not_mix() {
        let seeded =
            Scenario::parse("world seeded\nchoose message-lost trigger 3 1\n").expect("good");
        assert_eq!(seeded.choices.map(|choices| choices.len()), Some(1));
        for bad in [
            "choose message-lost 3 1\n",
            "retained 2\nworld seeded\n",
            "world seeded\nstart\n",
            "world seeded\nchoose message-lost 3 1\nretained 2\n",
            "world seeded\nchoose nothing 3 1\n",
            "world seeded\nchoose message-lost nothing 3 1\n",
            "hold-open Nothing\n",
        ] {
            assert!(Scenario::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plain_story_ends_well() {
        let text = "start\nwrite 0.0 1\ntrigger\nuntil completed 1\n\noutcome\npromise held\n";
        let scenario = Scenario::parse(text).expect("it can be read");
        assert_eq!(scenario.expected, ["promise held"]);
        let outcome = scenario.play();
        assert_eq!(outcome.ended.violation, None);
        assert_eq!(outcome.lines[0], "completed 1");
    }
}
