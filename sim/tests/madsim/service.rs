//! A process: a repository, and in it services that each hold a participant, as users write them.
//!
//! ```text
//! serve: ┌─> claim ──> restore ──> attach ──> change, checkpoint, wait, cancel, close, drop ─┐
//!        └───────────────────── again, unless fenced or replaced ────────────────────────────┘
//! faults over: the next checkpoint completes ──> cleaned ──> nothing but the closure ──> closed
//! ```
//!
//! Whatever is awaited may be given up on the way. Every call that has a deadline is held to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use madsim::time::{sleep, timeout};
use stillpoint::{
    Checkpoint, Claim, Config, Error, ErrorKind, Events, Participant, ParticipantEvent, Repository,
    RestoreOptions,
};

use crate::closure::{self, GivenUp};
use crate::oracle::Cut;
use crate::state::State;
use crate::store::Remote;
use crate::world::{Planted, Struck, World, below, millis_below, now, one_in, rest};

pub const PARTICIPANTS: [&str; 2] = ["orders", "stock"];

const CLAIM_DEADLINE: Duration = Duration::from_secs(10);
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
const PROGRESS_DEADLINE: Duration = Duration::from_secs(2);
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(20);
/// Beyond a deadline: what the executor's own steps and the shortest sleeps take.
const SLACK: Duration = Duration::from_millis(200);
/// Once faults have stopped.
const HEALED_WITHIN: Duration = Duration::from_secs(120);
/// What was sent before that has come by then.
const LANDED_AFTER: Duration = Duration::from_secs(15);

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
enum End {
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
struct Service {
    world: Arc<World>,
    process: u32,
    name: &'static str,
    repository: Repository,
    directory: PathBuf,
}

/// From where a call is held to its deadline.
struct Within {
    began: Duration,
    paused: Duration,
    bound: Duration,
}

impl Within {
    fn of(world: &World, bound: Duration) -> Self {
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
    fn note(&self, what: impl std::fmt::Display) {
        let (process, name) = (self.process, self.name);
        self.world
            .note(format_args!("process {process}, {name}: {what}"));
    }

    fn broken(&self, what: impl std::fmt::Display) {
        let (process, name) = (self.process, self.name);
        self.world
            .broken(format_args!("process {process}, {name}: {what}"));
    }

    /// An error was told: whether it may be.
    fn met(&self, doing: &str, error: &Error) {
        self.note(format_args!("{doing}: {:?}", error.kind()));
        if is_wrong(error.kind()) {
            self.broken(format_args!("{doing}: {error}"));
        }
    }

    fn in_time(&self, doing: &str, within: &Within) {
        if within.is_over(&self.world) {
            let took = now().saturating_sub(within.began);
            self.broken(format_args!("{doing} took {} ms", took.as_millis()));
        }
    }

    /// Awaits something, or gives it up on the way.
    async fn perhaps<T>(
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
            // What is being fetched is awaited.
            within = Some(Within::of(&self.world, deadline + PROGRESS_DEADLINE * 2));
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

/// Counts whoever waits for a checkpoint, however that ends.
struct Waiting(Service);

impl Waiting {
    fn begin(service: Service) -> Self {
        service.world.oracle().waits(service.name);
        Self(service)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.world.oracle().waits_no_more(self.0.name);
    }
}

/// Waits for a checkpoint's end, and has it judged.
async fn wait(service: Service, checkpoint: Checkpoint, cut: Cut) {
    let _waiting = Waiting::begin(service.clone());
    let world = &service.world;
    let ended = loop {
        let completed = checkpoint.completed();
        if let Some(ended) = service.perhaps(Struck::WaitDropped, 2000, completed).await {
            break ended;
        }
    };
    let name = service.name;
    match ended {
        Ok(_) => {
            service.note(format_args!("cut {cut:?} completed"));
            world.struck(Struck::Completed);
            let verdict = world.oracle().completed(name, cut);
            world.judge(verdict);
        }
        Err(error) => {
            service.met("checkpoint", &error);
            match error.kind() {
                ErrorKind::InDoubt => return,
                ErrorKind::Fenced if world.is(Planted::GoesOnFenced) => {
                    let verdict = world.oracle().completed(name, cut);
                    return world.judge(verdict);
                }
                ErrorKind::Deadline => world.struck(Struck::CheckpointExpired),
                _ => world.struck(Struck::CheckpointFailed),
            }
            let why = format!("{:?}", error.kind());
            let verdict = world.oracle().lost(name, cut, &why);
            world.judge(verdict);
        }
    }
}

/// A participant with its state.
struct Life {
    service: Service,
    participant: Arc<Participant>,
    state: State,
    epoch: u64,
}

impl Life {
    fn world(&self) -> &World {
        &self.service.world
    }

    async fn live(self) -> End {
        loop {
            if let Err(error) = self.participant.check() {
                self.service.met("end", &error);
                if error.kind() == ErrorKind::Fenced {
                    self.world().struck(Struck::Fenced);
                    return End::Over;
                }
                return End::Again;
            }
            if !self.world().is_faulty() {
                return self.heal().await;
            }
            if let Err(failure) = self.change() {
                self.service.broken(format_args!("the state: {failure}"));
                return End::Over;
            }
            match below(24) {
                0..12 => self.checkpoint_and_go_on(),
                12..14 => self.cancel().await,
                14 => self.drop_handle(),
                15..17 => self.triggered().await,
                17 => {
                    let cleaned = timeout(millis_below(3000), self.participant.cleaned());
                    self.service
                        .note(format_args!("cleaned {}", cleaned.await.is_ok()));
                }
                18 => self.participant.prepare().await,
                19 => {
                    let ended = timeout(millis_below(1000), self.participant.ended());
                    self.service
                        .note(format_args!("ended {}", ended.await.is_ok()));
                }
                20 => return self.close_some_way().await,
                21 if self.world().profile.drops => {
                    self.service.note("drops it");
                    self.world().struck(Struck::ParticipantDropped);
                    return End::Again;
                }
                _ => {}
            }
            rest(1200).await;
        }
    }

    fn change(&self) -> Result<(), stillpoint::protocol::answer::Failure> {
        for _ in 0..=below(3) {
            self.state.change()?;
        }
        Ok(())
    }

    /// Takes a cut and begins its checkpoint, if that may be.
    fn checkpoint(&self) -> Result<(Checkpoint, Cut), Error> {
        let content = self.state.read().map_err(Error::from)?;
        let number = self
            .world()
            .oracle()
            .cut(self.service.name, self.epoch, content);
        let checkpoint = self.participant.checkpoint(number.to_le_bytes());
        let outcome = checkpoint.as_ref().map(drop).map_err(Error::kind);
        self.service.note(format_args!("cut {number}: {outcome:?}"));
        // What comes after the call is not in it.
        if self.world().is(Planted::CutsLate) {
            let _ = self.change();
        }
        Ok((checkpoint?, (self.epoch, number)))
    }

    fn checkpoint_and_go_on(&self) {
        match self.checkpoint() {
            Ok((checkpoint, cut)) => {
                let waiting = wait(self.service.clone(), checkpoint, cut);
                drop(madsim::task::spawn(waiting));
            }
            Err(error) => self.service.met("cut", &error),
        }
    }

    async fn cancel(&self) {
        match self.checkpoint() {
            Ok((checkpoint, cut)) => {
                rest(60).await;
                checkpoint.cancel();
                self.world().struck(Struck::CheckpointCancelled);
                wait(self.service.clone(), checkpoint, cut).await;
            }
            Err(error) => self.service.met("cut", &error),
        }
    }

    /// Nobody wants to know.
    fn drop_handle(&self) {
        match self.checkpoint() {
            Ok((checkpoint, _)) => {
                drop(checkpoint);
                self.world().struck(Struck::CheckpointDropped);
            }
            Err(error) => self.service.met("cut", &error),
        }
    }

    async fn triggered(&self) {
        if let Ok(Ok(_)) = timeout(Duration::from_secs(4), self.participant.triggered()).await {
            self.world().struck(Struck::Triggered);
            self.checkpoint_and_go_on();
        }
    }

    /// Closes it, perhaps while it stores something, perhaps with nobody waiting for that.
    async fn close_some_way(self) -> End {
        if one_in(2) {
            self.checkpoint_and_go_on();
            rest(100).await;
        }
        let (service, participant) = (self.service.clone(), Arc::clone(&self.participant));
        if service.world.is_at(service.process, "upload") {
            service.world.struck(Struck::ClosedDuringUpload);
        }
        let within = Within::of(&service.world, CLOSE_DEADLINE);
        let closed = match below(3) {
            0 => {
                let _ = timeout(millis_below(50), participant.close()).await;
                service.world.struck(Struck::ClosedTwice);
                participant.close().await
            }
            1 => {
                service.world.struck(Struck::ClosedTwice);
                let (one, other) = tokio::join!(participant.close(), participant.close());
                let kinds = [&one, &other].map(|closed| closed.as_ref().map_err(Error::kind));
                if kinds[0] != kinds[1] {
                    service.broken(format_args!("closed twice, told {kinds:?}"));
                }
                one
            }
            _ => participant.close().await,
        };
        service.in_time("a close", &within);
        service.world.silence(service.process, service.name);
        match closed {
            Ok(()) => service.note("closed"),
            Err(error) => {
                if error.kind() == ErrorKind::Deadline {
                    service.world.struck(Struck::CloseLate);
                }
                service.met("close", &error);
                if error.kind() == ErrorKind::Fenced {
                    service.world.struck(Struck::Fenced);
                    return End::Over;
                }
            }
        }
        if participant.check().is_ok() {
            service.broken("it goes on after it was closed");
        }
        End::Again
    }

    /// Faults are over: what must be so within a bound.
    async fn heal(self) -> End {
        let (service, participant) = (self.service.clone(), Arc::clone(&self.participant));
        service.note("heals");
        let healing = timeout(HEALED_WITHIN, self.heal_now());
        match healing.await {
            Ok(Ok(())) => {
                service.world.struck(Struck::Healed);
                service.world.healed(service.name);
                End::Over
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Fenced => {
                service.met("heal", &error);
                End::Over
            }
            Ok(Err(error)) => {
                service.broken(format_args!("faults are over, and yet: {error}"));
                End::Over
            }
            Err(_) => {
                let waits = participant.pending_reason();
                service.broken(format_args!("faults are over, and yet it waits: {waits:?}"));
                End::Over
            }
        }
    }

    async fn heal_now(self) -> Result<(), Error> {
        let service = self.service.clone();
        self.next_completes().await?;
        sleep(LANDED_AFTER).await;
        let newest = self.next_completes().await?;
        let told = self.participant.restorable_position();
        if told != Some(newest.1.to_le_bytes().to_vec()) {
            service.broken(format_args!(
                "cut {newest:?} completed, told restorable is {told:?}"
            ));
        }
        self.participant.cleaned().await?;
        closure::holds(
            &service.world,
            &service.repository,
            service.name,
            GivenUp::Claims,
        )
        .await?;
        while service.world.waiting(service.name) > 0 {
            sleep(Duration::from_millis(100)).await;
        }
        let within = Within::of(&service.world, CLOSE_DEADLINE);
        self.participant.close().await?;
        service.in_time("a close", &within);
        service.world.silence(service.process, service.name);
        Ok(())
    }

    /// The next cut that can be taken completes.
    async fn next_completes(&self) -> Result<Cut, Error> {
        loop {
            match self.checkpoint() {
                Ok((checkpoint, cut)) => {
                    let completed = checkpoint.completed().await;
                    self.service.note(format_args!(
                        "healed: {:?}",
                        completed.as_ref().map(drop).map_err(Error::kind)
                    ));
                    completed?;
                    let verdict = self.world().oracle().completed(self.service.name, cut);
                    self.world().judge(verdict);
                    return Ok(cut);
                }
                // An earlier cut waits.
                Err(error) if error.kind() == ErrorKind::Busy => rest(200).await,
                Err(error) => return Err(error),
            }
        }
    }
}
