//! A random world around one attempt: a state whose files come and go, a store that fails in every
//! way, a network that loses, doubles and reorders, leaders that die.
//!
//! Checked on every step:
//! - an acknowledgement names exactly the files of its cut, each stored, with the content of the cut;
//! - what a sent acknowledgement has named is never deleted; no name stands for two contents;
//! - what is uploaded is being kept readable;
//! - a leader that knows what was settled and declared is never told a new name below the floor;
//! - what is ignored changes nothing.
//!
//! And when faults stop: a checkpoint is acknowledged and answered, nothing is left held or under
//! way, and the store has nothing of the attempt that was not named, but for late puts below the
//! floor.

mod leader;

use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::protocol::subtask::Notice;
use leader::Leader;

/// Stands for a file's bytes.
type Content = u64;

/// What a cut listed: content by local name.
type Cut = BTreeMap<LocalName, Content>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) what: u8,
    pub(super) which: u8,
    pub(super) how: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Call {
    Secure(CheckpointId),
    Upload {
        to: FileName,
        checkpoint: CheckpointId,
        local: LocalName,
    },
    Delete(FileName),
}

#[derive(Default, Debug)]
struct Store {
    objects: BTreeMap<FileName, Content>,
    /// Puts in doubt that may still land.
    late: Vec<(FileName, Content)>,
    /// Those that did.
    landed: BTreeSet<FileName>,
    /// Names that no put ever gets an answer for.
    hanging: BTreeSet<FileName>,
}

/// What is durable about the job, whoever leads.
#[derive(Default, Debug)]
struct Durable {
    completed: BTreeMap<CheckpointId, BTreeMap<FileName, FileDescription>>,
    /// Names that have been in an interval or were condemned.
    accounted: BTreeSet<FileName>,
}

pub(super) struct World {
    subtask: Subtask,
    now: Timestamp,
    /// The state now.
    state: Cut,
    last_cut: Cut,
    next_content: Content,
    /// What was listed.
    cuts: BTreeMap<CheckpointId, Cut>,
    wanted_cut: Option<CheckpointId>,
    /// Cuts that were given up, and may be on their way.
    unwanted_cuts: Vec<CheckpointId>,
    /// What is kept readable.
    held: BTreeMap<CheckpointId, Cut>,
    calls: Vec<Call>,
    store: Store,
    bound: BTreeMap<FileName, Content>,
    named: BTreeSet<FileName>,
    acknowledged: BTreeSet<CheckpointId>,
    given_up: BTreeSet<FileName>,
    down: Vec<Message>,
    up: Vec<Message>,
    leader: Leader,
    durable: Durable,
    next_checkpoint: u64,
    completed_told: Option<CheckpointId>,
    aborted_told: BTreeSet<CheckpointId>,
    closed: bool,
    /// The limits are so small that deletes are left to the sweep and aborts forgotten.
    leaves_some: bool,
}

const PERMANENT: FailureKind = FailureKind::Denied;

fn pick<T>(from: &[T], which: u8) -> Option<usize> {
    (!from.is_empty()).then(|| usize::from(which) % from.len())
}

fn size_of_content(content: Content) -> u64 {
    content % 3 + 1
}

fn digest(content: Content) -> Digest {
    Digest {
        size_bytes: size_of_content(content),
        checksum: Checksum(content),
    }
}

impl World {
    pub(super) fn new(limits: Limits) -> Self {
        let restored = vec![
            FileDescription {
                name: FileName {
                    attempt: AttemptId(3),
                    number: 1,
                },
                local: local("0.sst"),
                kind: FileKind::State,
                digest: digest(1),
            },
            FileDescription {
                name: FileName {
                    attempt: AttemptId(3),
                    number: 2,
                },
                local: local(PACK),
                kind: FileKind::Pack,
                digest: digest(2),
            },
        ];
        let mut durable = Durable::default();
        let mut store = Store::default();
        for file in &restored {
            durable.accounted.insert(file.name);
            store.objects.insert(file.name, file.digest.checksum.0);
        }
        let files = restored.iter().map(|file| (file.name, file.clone()));
        durable.completed.insert(id(1), files.collect());
        let leaves_some = limits.own_deletes_max < 10;
        let now = Timestamp(0);
        Self {
            subtask: Subtask::new(now, config(limits), Some((id(1), restored))),
            now,
            state: [(local("0.sst"), 1)].into(),
            last_cut: [(local("0.sst"), 1)].into(),
            next_content: 3,
            cuts: BTreeMap::new(),
            wanted_cut: None,
            unwanted_cuts: Vec::new(),
            held: BTreeMap::new(),
            calls: Vec::new(),
            store,
            bound: BTreeMap::new(),
            named: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            given_up: BTreeSet::new(),
            down: Vec::new(),
            up: Vec::new(),
            leader: Leader::new(Epoch(1), true),
            durable,
            next_checkpoint: 2,
            completed_told: None,
            aborted_told: BTreeSet::new(),
            closed: false,
            leaves_some,
        }
    }

    fn give(&mut self, event: Event) {
        let before = self.subtask.clone();
        let outcome = self.subtask.handle_event(self.now, event.clone());
        let actions: Vec<Action> = core::iter::from_fn(|| self.subtask.poll_action()).collect();
        if let Outcome::Ignored(_) = outcome {
            assert_eq!(self.subtask, before, "{event:?} was ignored");
        }
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(message) => {
                    self.check_message(&message);
                    self.up.push(message);
                }
                Action::Snapshot { checkpoint } => {
                    assert_eq!(self.wanted_cut, None);
                    let dead = self.aborted_told.contains(&checkpoint);
                    assert!(self.leaves_some || !dead, "{checkpoint} was aborted");
                    self.wanted_cut = Some(checkpoint);
                }
                Action::Secure { checkpoint, files } => {
                    let cut = &self.cuts[&checkpoint];
                    let asked = files.into_iter().chain([local(PACK)]);
                    let held = asked.map(|name| (name.clone(), cut[&name])).collect();
                    self.held.insert(checkpoint, held);
                    self.calls.push(Call::Secure(checkpoint));
                }
                Action::Upload {
                    to,
                    checkpoint,
                    local,
                    kind: _,
                    size_bytes: _,
                } => {
                    let content = self.held[&checkpoint][&local];
                    let bound = *self.bound.entry(to).or_insert(content);
                    assert_eq!(bound, content, "{to} stands for two contents");
                    assert!(!self.given_up.contains(&to), "{to} is used again");
                    self.calls.push(Call::Upload {
                        to,
                        checkpoint,
                        local,
                    });
                }
                Action::CancelUpload { token: _ } => {}
                Action::Release { checkpoint, local } => {
                    let held = self.held.get_mut(&checkpoint).unwrap();
                    assert!(held.remove(&local).is_some(), "{local} is released twice");
                }
                Action::ReleaseSnapshot { checkpoint } => {
                    if self.wanted_cut == Some(checkpoint) {
                        self.wanted_cut = None;
                        self.unwanted_cuts.push(checkpoint);
                    }
                    self.held.remove(&checkpoint);
                }
                Action::Delete { name } => {
                    assert_eq!(name.attempt, ATTEMPT);
                    assert!(!self.named.contains(&name), "{name} was named");
                    self.given_up.insert(name);
                    self.calls.push(Call::Delete(name));
                }
                Action::Tell(notice) => match notice {
                    Notice::Completed(checkpoint) => {
                        assert!(Some(checkpoint) > self.completed_told);
                        self.completed_told = Some(checkpoint);
                    }
                    Notice::Aborted(checkpoint) => {
                        self.aborted_told.insert(checkpoint);
                    }
                    Notice::Subsumed(_) => {}
                    Notice::Replaced => panic!("nobody replaced it"),
                    Notice::Closed => self.closed = true,
                },
            }
        }
    }

    /// The whole file set that an acknowledgement tells.
    fn resolve(&self, files: &FileSet) -> BTreeMap<FileName, FileDescription> {
        let mut set = BTreeMap::new();
        if let FileSet::Delta { base, removed, .. } = files {
            set.clone_from(&self.durable.completed[base]);
            for name in removed {
                assert!(set.remove(name).is_some(), "{name} is removed but not held");
            }
        }
        for file in files.named() {
            let before = set.insert(file.name, file.clone());
            assert_eq!(before, None, "{} is added but held", file.name);
        }
        set
    }

    fn check_message(&mut self, message: &Message) {
        let Message::Acknowledge(acknowledge) = message else {
            return;
        };
        if !self.acknowledged.insert(acknowledge.checkpoint) {
            return;
        }
        let set = self.resolve(&acknowledge.files);
        let told: Cut = set
            .values()
            .map(|file| (file.local.clone(), file.digest.checksum.0))
            .collect();
        assert_eq!(told.len(), set.len());
        assert_eq!(told, self.cuts[&acknowledge.checkpoint]);
        // Of a checkpoint that is over, the leader may have condemned files already.
        let pending = self.leader.pending.contains_key(&acknowledge.checkpoint);
        for file in set.values().filter(|_| pending) {
            let stored = self.store.objects.get(&file.name);
            assert_eq!(stored, Some(&file.digest.checksum.0), "{}", file.name);
        }
        self.named
            .extend(acknowledge.files.named().iter().map(|file| file.name));
    }

    // ---- the world's moves ----

    pub(super) fn step(&mut self, step: Step) {
        let Step { which, how, .. } = step;
        match step.what {
            0 => self.trigger(),
            1..=3 => self.deliver_down(which, how),
            4..=6 => self.deliver_up(which, how),
            7..=10 => self.answer_call(which, how),
            11 => self.change_state(which, how),
            12 | 13 => self.take_cut(how),
            14 => self.let_time_pass(),
            15 => self.abort(which),
            16 => self.complete(which),
            17 if how < 40 => self.change_leader(),
            18 => self.land(which),
            19 => self.give_late_cut(),
            _ => {}
        }
    }

    fn trigger(&mut self) {
        if !self.leader.attached || self.leader.pending.len() > 4 {
            return;
        }
        let checkpoint = id(self.next_checkpoint);
        self.next_checkpoint += 1;
        let base = self.durable.completed.keys().next_back().copied();
        self.leader.pending.insert(checkpoint, (base, None));
        self.down.push(Message::Trigger(Trigger {
            epoch: self.leader.epoch,
            attempt: ATTEMPT,
            checkpoint,
            base,
            settled: self.leader.settled(),
        }));
    }

    fn deliver_down(&mut self, which: u8, how: u8) {
        let Some(index) = pick(&self.down, which) else {
            return;
        };
        let message = self.down[index].clone();
        if !how.is_multiple_of(4) {
            self.down.remove(index);
        }
        if how % 8 != 1 {
            self.give(Event::Received(message));
        }
    }

    fn deliver_up(&mut self, which: u8, how: u8) {
        let Some(index) = pick(&self.up, which) else {
            return;
        };
        let message = self.up[index].clone();
        if !how.is_multiple_of(4) {
            self.up.remove(index);
        }
        if how % 8 != 1 {
            self.lead(message);
        }
    }

    fn answer_call(&mut self, which: u8, how: u8) {
        let Some(index) = pick(&self.calls, which) else {
            return;
        };
        let call = self.calls.remove(index);
        let (token, answer) = match call {
            Call::Secure(checkpoint) => {
                let token = OpToken::Secure(checkpoint);
                match how % 8 {
                    0 => {
                        // Nothing of it is kept readable.
                        if let Some(held) = self.held.get_mut(&checkpoint) {
                            held.clear();
                        }
                        (token, failed(FailureKind::NoSpace))
                    }
                    _ => (token, Answer::Done(Payload::Nothing)),
                }
            }
            Call::Upload {
                to,
                checkpoint,
                local,
            } => {
                let content = self.held.get(&checkpoint).and_then(|held| held.get(&local));
                let content = *content.unwrap_or_else(|| panic!("{local} is read, not held"));
                let is_pack = local.as_str() == PACK;
                (OpToken::Upload(to), self.put(to, content, is_pack, how))
            }
            Call::Delete(name) => (OpToken::Delete(name), self.delete(name, how)),
        };
        self.give(Event::IoCompleted { token, answer });
    }

    fn put(&mut self, to: FileName, content: Content, is_pack: bool, how: u8) -> Answer<Payload> {
        let there = self.store.objects.get(&to).copied();
        if self.store.hanging.contains(&to) {
            return unknown();
        }
        match how % 16 {
            0 => return failed(FailureKind::Unavailable),
            1 if there.is_none() => return failed(PERMANENT),
            2 => {
                self.store.objects.insert(to, content);
                return unknown();
            }
            3 => return unknown(),
            4 => {
                self.store.late.push((to, content));
                return unknown();
            }
            5 if there.is_none() => {
                // Somebody else's bytes.
                self.store.objects.insert(to, 0);
                return Answer::Refused;
            }
            6 => {
                self.store.hanging.insert(to);
                return unknown();
            }
            8 if there.is_none() && !is_pack => {
                // The file changed its length after the cut.
                let other = content + 1_000_001;
                self.store.objects.insert(to, other);
                return Answer::Done(Payload::Stored(digest(other)));
            }
            _ => {}
        }
        match there {
            Some(there) if there != content => Answer::Refused,
            Some(_) | None => {
                self.store.objects.insert(to, content);
                Answer::Done(Payload::Stored(digest(content)))
            }
        }
    }

    fn delete(&mut self, name: FileName, how: u8) -> Answer<Payload> {
        match how % 8 {
            0 => unknown(),
            1 => {
                self.store.objects.remove(&name);
                unknown()
            }
            2 => failed(PERMANENT),
            _ => {
                self.store.objects.remove(&name);
                Answer::Done(Payload::Nothing)
            }
        }
    }

    /// Flushes and compactions. A name may come back, with another length or after a cut without
    /// it.
    fn change_state(&mut self, which: u8, how: u8) {
        let name = local(&alloc::format!("{}.sst", which % 6));
        if self.state.remove(&name).is_some() && how.is_multiple_of(2) {
            return;
        }
        let content = self.next_content;
        let view = self.subtask.view();
        let mapped = view.live.iter().any(|file| file.local == name);
        let before = self.last_cut.get(&name).copied().map(size_of_content);
        if mapped && before == Some(size_of_content(content)) {
            return;
        }
        self.next_content += 1;
        self.state.insert(name, content);
    }

    fn give_late_cut(&mut self) {
        if let Some(checkpoint) = self.unwanted_cuts.pop() {
            self.give(Hand::taken_event(checkpoint.0 % 256, &["1.sst"]));
        }
    }

    fn take_cut(&mut self, how: u8) {
        let Some(checkpoint) = self.wanted_cut.take() else {
            return;
        };
        if how.is_multiple_of(8) {
            let failure = failure(FailureKind::Unavailable);
            self.give(Event::SnapshotFailed {
                checkpoint,
                failure,
            });
            return;
        }
        let mut cut = self.state.clone();
        cut.insert(local(PACK), self.next_content);
        self.next_content += 1;
        let files = cut.iter().map(|(name, &content)| LiveFile {
            local: name.clone(),
            kind: if name.as_str() == PACK {
                FileKind::Pack
            } else {
                FileKind::State
            },
            size_bytes: size_of_content(content),
        });
        let event = Event::SnapshotTaken {
            checkpoint,
            files: files.collect(),
            user_bytes: Vec::new(),
            families: Vec::new(),
            cut_at: WallClock(0),
        };
        self.last_cut.clone_from(&cut);
        self.cuts.insert(checkpoint, cut);
        self.give(event);
    }

    fn let_time_pass(&mut self) {
        if let Some(due) = self.subtask.poll_timeout() {
            self.now = self.now.max(due);
            self.subtask.handle_timeout(self.now);
            let actions = core::iter::from_fn(|| self.subtask.poll_action()).collect();
            self.act(actions);
        }
    }

    fn land(&mut self, which: u8) {
        if let Some(index) = pick(&self.store.late, which) {
            let (name, content) = self.store.late.remove(index);
            self.store.objects.entry(name).or_insert(content);
            self.store.landed.insert(name);
        }
    }

    // ---- when faults stop ----

    /// Everything is answered and delivered, in order, until nothing moves.
    fn run_quiet(&mut self) {
        const KIND: u8 = 7;
        for _ in 0..10_000 {
            if !self.down.is_empty() {
                self.deliver_down(0, KIND);
            } else if !self.up.is_empty() {
                self.deliver_up(0, KIND);
            } else if self.wanted_cut.is_some() {
                self.take_cut(KIND);
            } else if !self.calls.is_empty() {
                self.answer_call(0, KIND);
            } else if self.subtask.poll_timeout().is_some() {
                self.let_time_pass();
            } else {
                return;
            }
        }
        panic!("it goes on for ever: {:?}", self.subtask.pending_reason());
    }

    pub(super) fn end(&mut self) {
        self.say_lead();
        self.run_quiet();
        assert!(self.leader.attached, "the attempt has not attached");
        self.leader.pending.clear();
        self.trigger();
        let last = id(self.next_checkpoint - 1);
        self.run_quiet();
        assert!(
            self.leader
                .pending
                .get(&last)
                .is_some_and(|(_, files)| files.is_some()),
            "{last} was not acknowledged"
        );
        let view = self.subtask.view();
        assert_eq!(self.subtask.pending_reason(), None);
        assert_eq!(view.owned, BTreeSet::new());
        assert_eq!(self.held, BTreeMap::new());
        self.check_leftovers(view.floor);
        self.give(Event::Close);
        self.run_quiet();
        assert!(self.closed);
    }

    fn check_leftovers(&self, floor: u64) {
        for name in self.store.objects.keys() {
            let own = name.attempt == ATTEMPT && !self.named.contains(name);
            let left = self.leaves_some || self.store.landed.contains(name);
            assert!(!own || left, "{name} leaks");
            assert!(
                !own || name.number < floor,
                "{name} is out of the sweep's reach"
            );
        }
    }
}
