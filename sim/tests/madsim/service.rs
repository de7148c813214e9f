//! A process: a repository, and in it services that each hold a participant, as users write them.
//!
//! ```text
//! serve: ┌─> claim ──> restore ──> attach ──> its life, until it is closed, dropped or fenced ─┐
//!        └────────────────────── again, unless fenced or replaced ───────────────────────────┘
//! ```
//!
//! Whatever is awaited may be given up on the way. Every call that has a deadline is held to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use madsim::time::timeout;
use stillpoint::{
    Claim, Config, Error, ErrorKind, Events, Participant, ParticipantEvent, Repository,
    RestoreOptions,
};

use crate::life::Life;
use crate::state::State;
use crate::store::Remote;
use crate::world::{Planted, Struck, World, millis_below, now, one_in, rest};

pub const PARTICIPANTS: [&str; 2] = ["orders", "stock"];

const CLAIM_DEADLINE: Duration = Duration::from_secs(10);
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
const PROGRESS_DEADLINE: Duration = Duration::from_secs(2);
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(20);
/// Of one file of a state, a pack at most: each may be nearly as slow as one that stands still.
const PIECES_MAX: u32 = 16;
/// Beyond a deadline: what the executor's own steps and the shortest sleeps take.
const SLACK: Duration = Duration::from_millis(200);

pub fn config(world: &World) -> Config {
    let mut config = Config {
        transfers_max: if world.profile.one_transfer { 1 } else { 4 },
        failure_burst_max: 20,
        failures_per_second: 5,
        progress_deadline: PROGRESS_DEADLINE,
        restore_tries_max: 3,
        claim_deadline: Some(CLAIM_DEADLINE),
        close_deadline: CLOSE_DEADLINE,
        ..Config::default()
    };
    let checkpoints = &mut config.checkpoints;
    checkpoints.interval = world.profile.periodic.then_some(Duration::from_secs(3));
    checkpoints.max_concurrent = 2;
    checkpoints.timeout = CHECKPOINT_TIMEOUT;
    checkpoints.num_retained = 2;
    checkpoints.look_interval = Some(Duration::from_secs(2));
    let limits = &mut checkpoints.limits;
    limits.checkpoint_id_block = 4;
    limits.attempt_id_block = 2;
    limits.tail_records_max = 4;
    limits.list_page_max = 3;
    limits.deletes_in_flight_max = 2;
    limits.uploads_in_flight_max = 3;
    limits.upload_tries_max = 2;
    limits.sweep_pause = Duration::from_millis(200);
    limits.sweep_round_pause = Duration::from_secs(5);
    limits.retry_delay_max = Duration::from_secs(2);
    limits.claim_delay_max = Duration::from_secs(2);
    config
}

/// How a life of a service ends.
pub enum End {
    Again,
    Over,
}

/// A process, until it exits.
pub async fn process(world: Arc<World>, number: u32, disk: PathBuf) {
    let remote = Remote {
        world: Arc::clone(&world),
        process: number,
    };
    let opened = Repository::builder(remote)
        .with_config(config(&world))
        .open();
    let repository = match opened.await {
        Ok(repository) => repository,
        Err(error) => return world.broken(format_args!("process {number}: open: {error}")),
    };
    let services = PARTICIPANTS.map(|name| {
        let service = Service {
            world: Arc::clone(&world),
            process: number,
            name,
            repository: repository.clone(),
            directory: disk.join(name),
        };
        madsim::task::spawn(async move { service.serve().await })
    });
    for service in services {
        let _ = service.await;
    }
    world.exited(number);
}

/// One participant in one process.
#[derive(Clone)]
pub struct Service {
    pub world: Arc<World>,
    pub process: u32,
    pub name: &'static str,
    pub repository: Repository,
    directory: PathBuf,
}

/// From where a call is held to its deadline.
pub struct Within {
    began: Duration,
    paused: Duration,
    bound: Duration,
}

impl Within {
    pub fn of(world: &World, bound: Duration) -> Self {
        let (began, paused) = (now(), world.paused());
        Self {
            began,
            paused,
            bound,
        }
    }

    fn is_over(&self, world: &World) -> bool {
        let paused = world.paused().saturating_sub(self.paused);
        now().saturating_sub(self.began) > self.bound + paused + SLACK
    }
}

/// What no fault of this world explains.
fn is_wrong(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Corrupt
            | ErrorKind::Missing
            | ErrorKind::Incompatible
            | ErrorKind::Invalid
            | ErrorKind::Internal
            | ErrorKind::NoSpace
            | ErrorKind::Denied
            | ErrorKind::Unsupported
            | ErrorKind::Untrusted
            | ErrorKind::WritersNotHeld
    )
}

impl Service {
    pub fn note(&self, what: impl std::fmt::Display) {
        let (process, name) = (self.process, self.name);
        self.world
            .note(format_args!("process {process}, {name}: {what}"));
    }

    pub fn broken(&self, what: impl std::fmt::Display) {
        let (process, name) = (self.process, self.name);
        self.world
            .broken(format_args!("process {process}, {name}: {what}"));
    }

    /// An error was told: whether it may be.
    pub fn met(&self, doing: &str, error: &Error) {
        self.note(format_args!("{doing}: {:?}", error.kind()));
        if is_wrong(error.kind()) {
            self.broken(format_args!("{doing}: {error}"));
        }
    }

    pub fn in_time(&self, doing: &str, within: &Within) {
        if within.is_over(&self.world) {
            let took = now().saturating_sub(within.began);
            self.broken(format_args!("{doing} took {} ms", took.as_millis()));
        }
    }

    /// Awaits something, or gives it up on the way.
    pub async fn perhaps<T>(
        &self,
        dropped: Struck,
        bound_ms: u64,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        if !self.world.is_faulty() || !self.world.profile.drops || !one_in(4) {
            return Some(work.await);
        }
        let done = timeout(millis_below(bound_ms), work).await.ok();
        if done.is_none() {
            self.note(format_args!("{dropped:?}"));
            self.world.struck(dropped);
        }
        done
    }

    async fn serve(self) {
        loop {
            match self.life().await {
                End::Over => return,
                End::Again if self.world.is_replaced(self.process) => return,
                End::Again => rest(500).await,
            }
        }
    }

    async fn life(&self) -> End {
        let Some(claim) = self.claim().await else {
            return End::Again;
        };
        let epoch = claim.epoch().0;
        self.note(format_args!("holds it, {}", claim.epoch()));
        if (1..self.process).any(|other| self.world.is_at(other, "upload")) {
            self.world.struck(Struck::FencedDuringUpload);
        }
        let Some((participant, state)) = self.restore(claim, epoch).await else {
            return End::Again;
        };
        let participant = Arc::new(participant);
        let listening = listen(self.clone(), participant.events());
        drop(madsim::task::spawn(listening));
        Life {
            service: self.clone(),
            participant,
            state,
            epoch,
        }
        .live()
        .await
    }

    async fn claim(&self) -> Option<Claim> {
        let within = Within::of(&self.world, CLAIM_DEADLINE);
        self.world.speaks(self.process, self.name);
        let claiming = self.repository.claim(self.name);
        let claimed = self.perhaps(Struck::ClaimDropped, 400, claiming).await?;
        self.in_time("a claim", &within);
        match claimed {
            Ok(claim) => Some(claim),
            Err(error) => {
                if error.kind() == ErrorKind::Deadline {
                    self.world.struck(Struck::ClaimLate);
                }
                self.met("claim", &error);
                None
            }
        }
    }

    async fn restore(&self, claim: Claim, epoch: u64) -> Option<(Participant, State)> {
        let mut options = RestoreOptions::new();
        let mut within = None;
        if self.world.is_faulty() && one_in(3) {
            let deadline = millis_below(3000);
            options = options.deadline(deadline);
            // What is being fetched is awaited for as long as it moves.
            let fetched = PROGRESS_DEADLINE * PIECES_MAX;
            within = Some(Within::of(&self.world, deadline + fetched));
        }
        let restored = loop {
            let restoring = claim.restore_with(&self.directory, &options);
            match self.perhaps(Struck::RestoreDropped, 300, restoring).await {
                Some(restored) => break restored,
                None => within = None,
            }
        };
        if let Some(within) = within {
            self.in_time("a restore", &within);
        }
        let restored = match restored {
            Ok(restored) => restored,
            Err(error) => {
                if error.kind() == ErrorKind::Deadline {
                    self.world.struck(Struck::RestoreLate);
                }
                self.met("restore", &error);
                return None;
            }
        };
        let number = match restored.user_bytes().map(<[u8; 8]>::try_from) {
            None => None,
            Some(Ok(bytes)) => Some(u64::from_le_bytes(bytes)),
            Some(Err(_)) => {
                self.broken("other bytes are attached than ever were");
                return None;
            }
        };
        if number.is_some() {
            self.world.struck(Struck::RestoredSomething);
        }
        if restored.report().kept_files > 0 {
            self.world.struck(Struck::FilesKept);
        }
        let opened = State::open(self.name, restored.directory(), restored.is_empty());
        let (state, content) = match opened.and_then(|state| Ok((state.read()?, state))) {
            Ok((content, state)) => (state, content),
            Err(failure) => {
                self.broken(format_args!("what was restored can't be opened: {failure}"));
                return None;
            }
        };
        self.note(format_args!("restored {number:?}"));
        let verdict = self
            .world
            .oracle()
            .restored(self.name, epoch, number, &content);
        self.world.judge(verdict);
        let cuts_late = self.world.is(Planted::CutsLate);
        match restored.attach(state.backend(cuts_late)) {
            Ok(participant) => Some((participant, state)),
            Err(error) => {
                self.met("attach", &error);
                None
            }
        }
    }
}

/// Notices go into the trace, without what differs from run to run: paths.
async fn listen(service: Service, mut events: Events) {
    while let Some(event) = events.next().await {
        let told = match &event {
            ParticipantEvent::Triggered { checkpoint, .. } => format!("triggered {checkpoint}"),
            ParticipantEvent::Cut { checkpoint, .. } => format!("cut {checkpoint}"),
            ParticipantEvent::Uploaded { checkpoint, .. } => format!("uploaded for {checkpoint}"),
            ParticipantEvent::Completed(report) => format!("completed {}", report.checkpoint),
            ParticipantEvent::Aborted { checkpoint, error } => {
                format!("aborted {checkpoint}: {:?}", error.kind())
            }
            ParticipantEvent::Subsumed { checkpoint } => format!("subsumed {checkpoint}"),
            ParticipantEvent::Deleted { file } => format!("deleted {file}"),
            ParticipantEvent::InDoubt { checkpoints, .. } => format!("in doubt {checkpoints:?}"),
            ParticipantEvent::StoreTrouble { error } => format!("trouble: {:?}", error.kind()),
            ParticipantEvent::Ended { error } => format!("ended: {:?}", error.kind()),
            _ => "something else".to_owned(),
        };
        service.note(format_args!("told {told}"));
        if matches!(event, ParticipantEvent::InDoubt { .. }) {
            service.world.struck(Struck::InDoubt);
        }
    }
}
