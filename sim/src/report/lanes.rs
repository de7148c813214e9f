//! The lanes of a page: who they are and how long they live.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::world::story::{Kind, Told};

/// A process, the store, or the faults that come from nowhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Lane {
    name: String,
    /// `coordinator`, `attempt`, `store` or `faults`: the name's first word.
    kind: String,
    /// What it says of itself when it begins.
    about: String,
    from: Option<u64>,
    until: Option<u64>,
    /// How it ended.
    how: String,
    /// The first and last line it stands in.
    first_line: usize,
    last_line: usize,
}

/// All lanes, in the order in which they first appear.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    #[serde(skip)]
    by_name: BTreeMap<String, usize>,
}

impl Lanes {
    /// The lanes of what was told.
    pub(super) fn of(told: &Told) -> Self {
        let mut lanes = Self {
            lanes: Vec::new(),
            by_name: BTreeMap::new(),
        };
        for (index, line) in told.lines.iter().enumerate() {
            let lane = lanes.seen(&line.lane, index);
            match line.kind {
                Kind::Begin => {
                    lane.about.clone_from(&line.text);
                    lane.from = Some(line.at);
                }
                Kind::End => {
                    lane.how.clone_from(&line.text);
                    lane.until = Some(line.at);
                }
                Kind::Pause
                | Kind::Process
                | Kind::Message
                | Kind::Barrier
                | Kind::Cut
                | Kind::Call
                | Kind::Answer
                | Kind::Store
                | Kind::Commit
                | Kind::Notice
                | Kind::Fault => {}
            }
            if let Some(from) = &line.from {
                lanes.seen(from, index);
            }
        }
        lanes
    }

    fn seen(&mut self, name: &str, line: usize) -> &mut Lane {
        let next = self.lanes.len();
        let index = *self.by_name.entry(name.to_owned()).or_insert(next);
        if index == next {
            self.lanes.push(Lane {
                name: name.to_owned(),
                kind: name.split(' ').next().unwrap_or_default().to_owned(),
                about: String::new(),
                from: None,
                until: None,
                how: String::new(),
                first_line: line,
                last_line: line,
            });
        }
        let lane = &mut self.lanes[index];
        lane.last_line = line;
        lane
    }

    /// The place of a lane; the first one for a name that stands in no line.
    pub(super) fn index(&self, name: &str) -> usize {
        self.by_name.get(name).copied().unwrap_or(0)
    }
}
