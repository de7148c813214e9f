//! The state and the actions of `LeaderFencing`.

use stillpoint::protocol::answer::{Answer, Failure, FailureKind};
use stillpoint::protocol::coordinator::{self, Timer};
use stillpoint::protocol::id::CheckpointId;
use stillpoint::protocol::message::{Message, Trigger};
use stillpoint::protocol::outcome::Outcome;
use stillpoint::protocol::store::{StoreCall, StorePayload, StoreToken};
use stillpoint::protocol::subtask;
use stillpoint::protocol::time::Timestamp;

use super::life::{Life, Machine};
use super::{Fencing, Name};
use crate::conform::search::{System, Taken};
use crate::conform::value::Value;
use crate::digest::Fingerprint;

/// More certain failures than any commit takes before it gives up.
const FAILURES_MAX: usize = 10;

fn failed() -> Answer<StorePayload> {
    Answer::Failed(Failure::new(
        FailureKind::Unavailable,
        "the harness says so",
    ))
}

fn unknown() -> Answer<StorePayload> {
    Answer::Unknown(Failure::new(FailureKind::Deadline, "the harness says so"))
}

impl System for Fencing {
    fn state(&self) -> Value {
        let names = |value: &dyn Fn(u64, &Name) -> Value, none: Value| {
            Value::places(self.bounds.max_name, |number| {
                self.name(number)
                    .map_or_else(|| none.clone(), |name| value(number, name))
            })
        };
        let zero = Value::from(0);
        let history = (1..).zip(&self.history).map(|(place, number)| {
            let epoch = self
                .name(*number)
                .map_or(0, |name| name.name.epoch.0 - self.begin.0);
            let commit = Value::record([("name", (*number).into()), ("epoch", epoch.into())]);
            (Value::Number(place), commit)
        });
        let requests = self.requests.keys().map(|(name, number)| {
            Value::record([("name", (*name).into()), ("try", (*number).into())])
        });
        let answers = self.answers.iter().map(|((name, number), answer)| {
            Value::record([
                ("name", (*name).into()),
                ("try", (*number).into()),
                ("done", matches!(answer, Answer::Done(_)).into()),
            ])
        });
        let lives = self
            .lives
            .iter()
            .map(|(id, life)| (Value::Number(*id), life.state()));
        let counted = self.counted.iter();
        let counted = counted.map(|(id, epochs)| (Value::Number(*id), Value::numbers(epochs)));
        Value::record([
            ("history", Value::Function(history.collect())),
            ("owner", names(&|_, name| name.owner.into(), zero.clone())),
            (
                "base",
                names(
                    &|_, name| (name.name.version.0 - 1 - self.begin.1).into(),
                    zero.clone(),
                ),
            ),
            (
                "outcome",
                names(&|_, name| Value::word(name.outcome), Value::word("none")),
            ),
            (
                "epochOf",
                names(&|_, name| (name.name.epoch.0 - self.begin.0).into(), zero),
            ),
            ("records", Value::numbers(&self.records())),
            ("puts", Value::numbers(self.puts.keys())),
            ("requests", Value::Set(requests.collect())),
            ("answers", Value::Set(answers.collect())),
            ("life", Value::Function(lives.collect())),
            ("obeys", self.obeys.into()),
            ("acks", Value::numbers(self.acks.keys())),
            ("counted", Value::Function(counted.collect())),
            ("nextN", (self.names.len() as u64 + 1).into()),
        ])
    }

    fn fingerprint(&self, state: &str) -> u128 {
        let lives: Vec<String> = self
            .lives
            .values()
            .map(|life| format!("{:?}", life.machine))
            .collect();
        let held: Vec<String> = self
            .lives
            .values()
            .map(|life| format!("{:?}", life.held))
            .collect();
        let lives: Vec<String> = lives.iter().map(|text| without_times(text)).collect();
        let attempt = format!("{:?}", self.attempt);
        Fingerprint::of(&(state, lives, held, attempt))
    }

    fn steps(&self) -> Vec<Taken<Self>> {
        let mut steps = Vec::new();
        let mut take = |action, next: Vec<Self>| {
            let taken = next.into_iter().map(|to| Taken {
                between: None,
                action,
                to,
            });
            steps.extend(taken);
        };
        take("StorePut", self.store_put());
        take("StoreSwaps", self.store_swaps());
        take("StoreRefusesForNothing", self.store_refuses_for_nothing());
        for (id, life) in &self.lives {
            let (id, phase) = (*id, life.phase());
            let one = |next: Option<Self>| next.into_iter().collect::<Vec<_>>();
            if phase == "start" {
                take("Load", one(self.load(id)));
            }
            if matches!(phase, "loaded" | "leads") && life.commit.is_none() {
                take("StartCommit", one(self.start_commit(id)));
            }
            match life.step() {
                "putting" => take("PutDone", one(self.put_done(id))),
                "swapping" => take("SendSwap", one(self.send_swap(id))),
                "waiting" => {
                    take("Unknown", one(self.unknown(id)));
                    take("FailsForCertain", one(self.fails_for_certain(id)));
                    take("SwapDone", one(self.swap_answered(id, true)));
                    take("SwapRefused", one(self.swap_answered(id, false)));
                }
                "judging" => take("Judge", one(self.judge(id))),
                _ => {}
            }
            if life.is_alive() {
                take("Crash", one(self.crash(id)));
            }
            if phase == "leads" {
                if life.commit.is_none() {
                    take("Depose", one(self.depose(id)));
                    take("SweepRecord", self.sweep_record(id));
                }
                take("Attach", one(self.attach(id)));
                take("RecvAck", self.recv_ack(id));
            }
        }
        steps
    }
}

fn without_times(text: &str) -> String {
    let mut parts = text.split("Timestamp(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

impl Fencing {
    /// `CURRENT` and all that it names are read at once.
    fn load(&self, id: u64) -> Option<Self> {
        let is_guest = self.is_guest(id);
        let mut before = self
            .lives
            .iter()
            .filter(|(other, _)| **other < id && !self.is_guest(**other));
        if !is_guest && before.any(|(_, life)| life.phase() == "start" && life.epoch == 0) {
            return None;
        }
        self.with(id, |next, life| {
            if matches!(life.machine, Machine::NotYet) {
                life.begin(id, is_guest);
            } else {
                life.fire(Timer::Load);
            }
            while matches!(life.held.front(), Some(StoreCall::Read { .. })) {
                life.serve_next(&mut next.store);
            }
            life.epoch = next.epoch_now() + u64::from(!is_guest);
            life.version = next.version();
            life.phase() == "loaded"
        })
    }

    fn start_commit(&self, id: u64) -> Option<Self> {
        if self.names.len() as u64 >= self.bounds.max_name {
            return None;
        }
        self.with(id, |next, life| {
            if next.is_guest(id) && life.epoch == 0 {
                return false;
            }
            let starts = life.holds_put()
                || life.fire(Timer::Claim)
                || life.fire(Timer::NextCommit)
                || life.fire(Timer::Renew);
            let Some(call) = life.held.pop_front().filter(|_| starts) else {
                return false;
            };
            let StoreToken::PutManifest(name) = call.token() else {
                panic!("a commit begins with its record, not with {call:?}");
            };
            next.names.push(Name {
                name,
                owner: id,
                outcome: "open",
            });
            let number = next.names.len() as u64;
            next.puts.insert(number, call);
            life.commit = Some((number, "putting"));
            true
        })
    }

    fn store_put(&self) -> Vec<Self> {
        let next = self.puts.iter().map(|(number, call)| {
            let mut next = self.clone();
            next.puts.remove(number);
            let _ = next.store.serve(call.clone());
            next
        });
        next.collect()
    }

    fn put_done(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life
                .commit
                .filter(|(number, _)| next.records().contains(number))
            else {
                return false;
            };
            let name = next.names[usize::try_from(number - 1).unwrap_or(0)].name;
            life.answer(
                StoreToken::PutManifest(name),
                Answer::Done(StorePayload::Nothing),
            );
            life.commit = Some((number, "swapping"));
            life.holds_swap()
        })
    }

    fn send_swap(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let (Some((number, _)), true) = (life.commit, life.tries < next.bounds.max_try) else {
                return false;
            };
            let Some(call) = life.held.pop_front() else {
                return false;
            };
            life.tries += 1;
            next.requests.insert((number, life.tries), call);
            life.commit = Some((number, "waiting"));
            true
        })
    }

    fn store_swaps(&self) -> Vec<Self> {
        let next = self.requests.iter().map(|(request, call)| {
            let mut next = self.clone();
            next.requests.remove(request);
            let answer = next.store.serve(call.clone());
            if matches!(answer, Answer::Done(_)) {
                next.history.push(request.0);
            }
            next.answers.insert(*request, answer);
            next
        });
        next.collect()
    }

    fn store_refuses_for_nothing(&self) -> Vec<Self> {
        let next = self.requests.keys().map(|request| {
            let mut next = self.clone();
            next.requests.remove(request);
            next.answers.insert(*request, Answer::Refused);
            next
        });
        next.collect()
    }

    fn swap_token(&self, number: u64) -> StoreToken {
        let place = usize::try_from(number - 1).expect("names are few");
        StoreToken::Swap(self.names[place].name)
    }

    fn unknown(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            life.answer(next.swap_token(number), unknown());
            life.doubt = true;
            next.conclude(life, number);
            true
        })
    }

    /// The store says so of this try, and of every other that follows until the commit is given up;
    /// while it is in doubt it is not, and the swap is repeated.
    fn fails_for_certain(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            if next.requests.remove(&(number, life.tries)).is_none() {
                return false;
            }
            for _ in 0..FAILURES_MAX {
                // The swap of the try before fails like the first.
                life.held.pop_front();
                life.answer(next.swap_token(number), failed());
                next.conclude(life, number);
                if life.commit.is_none() {
                    break;
                }
            }
            true
        })
    }

    fn swap_answered(&self, id: u64, done: bool) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            let answer = next.answers.get(&(number, life.tries)).cloned();
            let Some(answer) = answer.filter(|answer| matches!(answer, Answer::Done(_)) == done)
            else {
                return false;
            };
            next.answers.retain(|(name, _), _| *name != number);
            life.answer(next.swap_token(number), answer);
            if done {
                let place = usize::try_from(number - 1).expect("names are few");
                life.version = next.names[place].name.version.0 - next.begin.1;
                next.conclude(life, number);
            } else {
                life.commit = Some((number, "judging"));
            }
            true
        })
    }

    fn judge(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            let Some((number, _)) = life.commit else {
                return false;
            };
            life.serve_next(&mut next.store);
            next.conclude(life, number);
            if next.is_guest(id) {
                life.version = next.version();
                if life.phase() == "loaded" {
                    life.epoch = next.epoch_now();
                }
            }
            true
        })
    }

    fn crash(&self, id: u64) -> Option<Self> {
        self.with(id, |_, life| {
            let (epoch, version) = (life.epoch, life.version);
            *life = Life {
                machine: Machine::Dead,
                epoch,
                version,
                ..Life::new()
            };
            true
        })
    }

    /// It asks `CURRENT` who leads, by a commit of which nothing is left.
    fn depose(&self, id: u64) -> Option<Self> {
        self.with(id, |next, life| {
            if next.epoch_now() <= life.epoch {
                return false;
            }
            let _ = life.holds_put() || life.fire(Timer::NextCommit) || life.fire(Timer::Renew);
            while life.phase() == "leads" && !life.held.is_empty() {
                life.serve_next(&mut next.store);
            }
            life.serve(&mut next.store);
            life.phase() != "leads"
        })
    }

    /// The listing shows one record.
    fn sweep_record(&self, id: u64) -> Vec<Self> {
        let next = self.records().into_iter().filter_map(|number| {
            let name = self.name(number)?.name;
            self.with(id, |next, life| {
                life.list(vec![name.to_string()]);
                life.serve(&mut next.store);
                !next.store.has_record(name)
            })
        });
        next.collect()
    }

    /// The attempt hears of a leader, by its first message or, of one that it may not obey, by a trigger.
    fn attach(&self, id: u64) -> Option<Self> {
        let life = &self.lives[&id];
        let lead = life.lead.clone()?;
        let mut next = self.clone();
        let message = if life.epoch >= self.obeys {
            Message::Lead(lead)
        } else {
            Message::Trigger(Trigger {
                epoch: lead.epoch,
                attempt: self.code,
                checkpoint: CheckpointId(1_000_000),
                base: None,
                settled: CheckpointId(0),
            })
        };
        let outcome = next
            .attempt
            .handle_event(Timestamp(0), subtask::Event::Received(message));
        let mut attached = None;
        while let Some(action) = next.attempt.poll_action() {
            if let subtask::Action::Send(Message::Attach(attach)) = action {
                attached = Some(attach);
            }
        }
        if let Some(attach) = attached {
            next.acks.insert(attach.epoch.0 - self.begin.0, attach);
        }
        next.obeys = life.epoch;
        (outcome == Outcome::Accepted).then_some(next)
    }

    /// What was said to it changes nothing here; what was said to another must not count.
    fn recv_ack(&self, id: u64) -> Vec<Self> {
        let own = self.lives[&id].epoch;
        let others = self.acks.iter().filter(|(epoch, _)| **epoch != own);
        let next = others.filter_map(|(epoch, attach)| {
            let mut counts = false;
            self.with(id, |_, life| {
                if let Machine::Leader(machine) = &mut life.machine {
                    let event = coordinator::Event::Received(Message::Attach(attach.clone()));
                    counts = machine.handle_event(life.now, event) == Outcome::Accepted;
                }
                life.drain();
                counts
            })
            .map(|mut next| {
                next.counted.entry(id).or_default().insert(*epoch);
                next
            })
        });
        next.collect()
    }
}
