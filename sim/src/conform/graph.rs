//! A graph of states with steps that have names, read from TLC or made by exploring the machines.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::BufRead;

use super::value::parse_state;

/// States by their number, in the order in which they were met; the first is where all begins.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
    steps: BTreeSet<Step>,
    actions: Vec<String>,
}

/// A step: from a state, by an action, to a state.
pub type Step = (u32, u16, u32);

impl Graph {
    /// The number of a state, and whether it is new.
    pub fn state(&mut self, text: String) -> (u32, bool) {
        if let Some(number) = self.numbers.get(&text) {
            return (*number, false);
        }
        let number = u32::try_from(self.texts.len()).expect("a graph has fewer than 2^32 states");
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        (number, true)
    }

    /// Enters a step. One that changes nothing is none.
    pub fn step(&mut self, from: u32, action: &str, to: u32) {
        if from == to {
            return;
        }
        let action = self.action(action);
        self.steps.insert((from, action, to));
    }

    fn action(&mut self, name: &str) -> u16 {
        let found = self.actions.iter().position(|known| known == name);
        let place = found.unwrap_or_else(|| {
            self.actions.push(name.to_owned());
            self.actions.len() - 1
        });
        u16::try_from(place).expect("a specification has few actions")
    }

    /// The number of a state that is there.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    /// The steps from a state.
    pub fn steps_from(&self, state: u32) -> impl Iterator<Item = &Step> {
        self.steps
            .range((state, 0, 0)..=(state, u16::MAX, u32::MAX))
    }

    /// All steps.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter()
    }

    /// How many states there are.
    #[must_use]
    pub fn state_count(&self) -> usize {
        self.texts.len()
    }

    /// How many steps there are.
    #[must_use]
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// The text of a state.
    #[must_use]
    pub fn text(&self, state: u32) -> &str {
        &self.texts[state as usize]
    }

    /// How often each action is taken.
    #[must_use]
    pub fn taken(&self) -> BTreeMap<&str, usize> {
        let mut taken = BTreeMap::new();
        for (_, action, _) in &self.steps {
            *taken
                .entry(self.actions[*action as usize].as_str())
                .or_default() += 1;
        }
        taken
    }

    /// The states that the other graph has not.
    #[must_use]
    pub fn states_beyond(&self, other: &Self) -> Vec<u32> {
        let all = 0..self.texts.len();
        all.filter(|n| !other.numbers.contains_key(&self.texts[*n]))
            .map(|n| u32::try_from(n).expect("it was given as such"))
            .collect()
    }

    /// The steps that the other graph has not.
    #[must_use]
    pub fn steps_beyond(&self, other: &Self) -> Vec<Step> {
        let actions: Vec<Option<u16>> = self
            .actions
            .iter()
            .map(|name| other.actions.iter().position(|known| known == name))
            .map(|place| place.and_then(|place| u16::try_from(place).ok()))
            .collect();
        let states: Vec<Option<u32>> = self
            .texts
            .iter()
            .map(|text| other.numbers.get(text).copied())
            .collect();
        let is_there = |(from, action, to): &Step| {
            let step = (
                states[*from as usize],
                actions[*action as usize],
                states[*to as usize],
            );
            match step {
                (Some(from), Some(action), Some(to)) => other.steps.contains(&(from, action, to)),
                _ => false,
            }
        };
        let beyond = self.steps.iter().filter(|step| !is_there(step));
        beyond.copied().collect()
    }

    /// Whether a step from this state is not in the other graph.
    #[must_use]
    pub fn exceeds(&self, other: &Self, from: u32) -> bool {
        let place = |state: u32| other.numbers.get(self.text(state)).copied();
        let Some(there) = place(from) else {
            return true;
        };
        self.steps_from(from).any(|step| {
            let name = self.action_of(step);
            let action = other.actions.iter().position(|known| known == name);
            let action = action.and_then(|action| u16::try_from(action).ok());
            match (action, place(step.2)) {
                (Some(action), Some(to)) => !other.steps.contains(&(there, action, to)),
                _ => true,
            }
        })
    }

    /// The name of a step's action.
    #[must_use]
    pub fn action_of(&self, step: &Step) -> &str {
        &self.actions[step.1 as usize]
    }

    /// A shortest way from the beginning to each state: the step that leads there.
    #[must_use]
    pub fn ways(&self) -> Vec<Option<Step>> {
        let mut ways = vec![None; self.texts.len()];
        let mut front = VecDeque::from([0_u32]);
        while let Some(from) = front.pop_front() {
            for step in self.steps_from(from) {
                let to = step.2;
                if to != 0 && ways[to as usize].is_none() {
                    ways[to as usize] = Some(*step);
                    front.push_back(to);
                }
            }
        }
        ways
    }

    /// The actions on a shortest way to a state.
    #[must_use]
    pub fn way_to(&self, state: u32, ways: &[Option<Step>]) -> Vec<&str> {
        let mut way = Vec::new();
        let mut at = state;
        while let Some(step) = &ways[at as usize] {
            way.push(self.action_of(step));
            at = step.0;
        }
        way.reverse();
        way
    }

    /// Reads what TLC writes with `-dump dot,actionlabels`.
    ///
    /// # Errors
    /// What is not understood, or not there.
    pub fn read(dump: impl BufRead) -> Result<Self, String> {
        let mut graph = Self::default();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut steps = Vec::new();
        for line in dump.lines() {
            let line = line.map_err(|error| format!("the dump can't be read: {error}"))?;
            let Some((head, label)) = line.split_once(" [label=\"") else {
                continue;
            };
            if let Some((from, to)) = head.split_once(" -> ") {
                let action = label.split('"').next().unwrap_or_default();
                steps.push((from.to_owned(), action.to_owned(), to.to_owned()));
            } else {
                let text = label
                    .rsplit_once('"')
                    .map(|(text, _)| text.trim_end_matches("\",style = filled"))
                    .unwrap_or_default();
                let state = parse_state(&unescaped(text))?;
                let (number, _) = graph.state(state.to_string());
                numbers.insert(head.to_owned(), number);
            }
        }
        for (from, action, to) in steps {
            let number = |name: &str| {
                numbers
                    .get(name)
                    .copied()
                    .ok_or_else(|| format!("the dump has a step of {name}, which is no state"))
            };
            let (from, to) = (number(&from)?, number(&to)?);
            graph.step(from, &action, to);
        }
        Ok(graph)
    }
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, rest.as_str().chars().next()) {
            ('\\', Some('n')) => {
                plain.push('\n');
                rest.next();
            }
            ('\\', Some(next)) => {
                plain.push(next);
                rest.next();
            }
            (c, _) => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "strict digraph DiskGraph {\n\
        7 [label=\"/\\\\ a = 0\\n/\\\\ s = \\\"run\\\"\",style = filled]\n\
        7 -> -3 [label=\"Go\",color=\"black\",fontcolor=\"black\"];\n\
        -3 [label=\"/\\\\ a = 1\\n/\\\\ s = \\\"run\\\"\"];\n\
        7 -> -3 [label=\"Go\",color=\"black\",fontcolor=\"black\"];\n}\n";

    #[test]
    fn a_dump_is_read() {
        let graph = Graph::read(DUMP.as_bytes()).expect("it is a dump");
        assert_eq!((graph.state_count(), graph.step_count()), (2, 1));
        assert_eq!(graph.text(0), "[a:0,s:run]");
        assert_eq!(graph.way_to(1, &graph.ways()), ["Go"]);
    }

    #[test]
    fn graphs_that_differ_in_one_step_are_told_apart() {
        let spec = Graph::read(DUMP.as_bytes()).expect("it is a dump");
        let mut code = Graph::default();
        let (from, _) = code.state("[a:0,s:run]".to_owned());
        let (to, _) = code.state("[a:1,s:run]".to_owned());
        assert_eq!(spec.steps_beyond(&code).len(), 1);
        assert!(spec.states_beyond(&code).is_empty());
        code.step(from, "Go", to);
        assert!(spec.steps_beyond(&code).is_empty());
        code.step(to, "Back", from);
        assert_eq!(code.steps_beyond(&spec), [(1, 1, 0)]);
    }
}
