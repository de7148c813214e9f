//! A participant that is held: its state is changed, cut, waited for, given up, closed and dropped.
//!
//! ```text
//! change ──> checkpoint ──> wait · cancel · let go ──> close · drop ──> what was told is judged
//!    └ faults over: the next completes ──> cleaned ──> nothing but the closure ──> closed
//! ```

use std::sync::Arc;
use std::time::Duration;

use madsim::time::{sleep, timeout};
use stillpoint::protocol::answer::Failure;
use stillpoint::{Checkpoint, Error, ErrorKind, Participant, VerifyDepth};

use crate::closure::{self, Later};
use crate::oracle::Cut;
use crate::service::{CLOSE_DEADLINE, End, Service, Within};
use crate::state::State;
use crate::world::{Planted, Struck, World, below, millis_below, one_in, rest};

/// Once faults have stopped.
const HEALED_WITHIN: Duration = Duration::from_secs(120);
/// What was sent before that has come by then.
const LANDED_AFTER: Duration = Duration::from_secs(15);

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
pub struct Life {
    pub service: Service,
    pub participant: Arc<Participant>,
    pub state: State,
    pub epoch: u64,
}

impl Life {
    fn world(&self) -> &World {
        &self.service.world
    }

    pub async fn live(self) -> End {
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
                22 => self.look_on_as_guest().await,
                _ => {}
            }
            rest(1200).await;
        }
    }

    fn change(&self) -> Result<(), Failure> {
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

    /// Reads what is stored, which may change on the way.
    async fn look_on_as_guest(&self) {
        let (service, world) = (&self.service, self.world());
        let looking = async {
            let inspection = service.repository.inspect(service.name).await?;
            if let Some(newest) = inspection.checkpoints().last() {
                let verified = inspection.verify(newest.checkpoint, VerifyDepth::Checksums);
                for fault in verified.await?.faults {
                    service.broken(format_args!("a guest finds {fault}"));
                }
                world.struck(Struck::Guest);
            }
            Ok::<(), Error>(())
        };
        if let Some(Err(error)) = service.perhaps(Struck::GuestDropped, 200, looking).await {
            service.met("look on", &error);
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
            Later::Deletes,
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
