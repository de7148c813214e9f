//! What a run is like: its size, its configuration and its faults, drawn jointly from the seed.
//!
//! Uniform faults mask each other, so each class is off in about half of the runs and has an
//! intensity of its own in the others (swarm testing: Groce and others, ISSTA 2012). What depends
//! on each other is drawn together, so that no configuration is drawn in which the protocol can't
//! hold its promises: a timeout is always longer than a few round trips, and a directory's faults
//! are not drawn for an object store.

use std::fmt;
use std::time::Duration;

use stillpoint::protocol::coordinator::CoordinatorConfig;
use stillpoint::protocol::limits::Limits;

use crate::choice::{Choices, Label, Ratio};
use crate::faults::Fault;
use crate::lsm::FILES_MAX;
use crate::oracle::facts::Configured;
use crate::scenario::settings;

/// The longest line of a profile's text.
const LINE: usize = 110;

/// How long runs are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Length {
    /// A few hundred events.
    Short,
    /// Twenty thousand events.
    Long,
}

/// Which model of a store a run has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreKind {
    /// An object store.
    Object,
    /// A directory.
    Directory,
}

/// What a run is like.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Profile {
    /// Which store.
    pub store: StoreKind,
    /// How many workers there are.
    pub workers: u32,
    /// How many operators the job has.
    pub operators: u32,
    /// How many subtasks each of them has.
    pub parallelism: u32,
    /// Of so many compactions that could be, one is: seldom ones let files live through several
    /// checkpoints, frequent ones let them leave at once.
    pub compaction_one_in: u32,
    /// Whether a worker's disk keeps what an attempt leaves there for the next one of its subtask.
    pub disks_stay: bool,
    /// Events of the part with faults.
    pub safety_events: u64,
    /// The coordinator's configuration, limits included.
    pub config: CoordinatorConfig,
    /// Whether only that happens which the specification of checkpoints models, see
    /// `world/modelled.rs`.
    pub is_modelled: bool,
    /// Whether an object that leads to the manifest is lost for good at the end.
    pub is_ruined: bool,
    /// The intensity of each class of faults, 0 if it is off.
    intensity: [u8; Fault::COUNT],
}

/// The mean time between two disturbances, in microseconds.
pub const DISTURBANCE_PERIOD: u64 = 150_000;

/// A few more files than a cut ever has here, with its pack: from so many unsettled names on, a subtask
/// leaves some to the sweep.
const FEW_FILES: usize = FILES_MAX + 4;

/// Of so many records, one more is read at a time at least.
const RECORDS_A_READ: usize = 8;

impl Profile {
    /// Draws one.
    #[must_use]
    pub fn draw(choices: &mut Choices, length: Length) -> Self {
        let store = match choices.choose(2, Label::Profile) {
            0 => StoreKind::Object,
            _ => StoreKind::Directory,
        };
        let workers = 1 + choices.choose(3, Label::Profile);
        let mut operators = 1 + choices.weighted(&[3, 1], Label::Profile);
        let mut parallelism = 1 + choices.choose(2, Label::Profile);
        let mut compaction_one_in = pick(choices, [2, 1, 6]);
        let config = draw_config(choices);
        let mut intensity = [0; Fault::COUNT];
        for fault in Fault::ALL {
            if is_possible(*fault, store) {
                let weights = if strikes_seldom(*fault) {
                    [2, 4, 6, 4]
                } else {
                    [6, 2, 3, 1]
                };
                let drawn = choices.weighted(&weights, Label::FaultClass);
                intensity[*fault as usize] = u8::try_from(drawn).unwrap_or(0);
            }
        }
        let mut config = config;
        let is_crowded = choices.weighted(&[3, 1], Label::Profile) == 1;
        if is_crowded {
            crowd(&mut config, &mut intensity);
            (operators, parallelism, compaction_one_in) = (1, 2, 2);
        }
        // Drawn last, so that what older scenario files say of a profile keeps its place.
        config.limits.pins_max = pick(choices, [10_000, 10_000, 2, 1]);
        let disks_stay = choices.choose(2, Label::Profile) == 1;
        config.limits.queued_requests_max = pick(choices, [1_000, 1_000, 2, 1]);
        config.limits.acknowledged_files_max = pick(choices, [1 << 20, 1 << 20, 64, FEW_FILES]);
        let is_ruined = choices.choose(8, Label::Profile) == 7;
        // Whoever reads a long tail record by record is overtaken by commits for ever.
        let reads_least = config.limits.tail_records_max / RECORDS_A_READ;
        config.limits.reads_in_flight_max = pick(choices, [8, 1, 2]).max(reads_least);
        config.limits.read_tries_max = pick(choices, [10, 10, 3]);
        if choices.weighted(&[7, 1], Label::Profile) == 1 {
            // Nobody but users asks for checkpoints.
            config.interval = None;
        }
        let safety_events = match length {
            Length::Short if is_crowded => 400,
            Length::Short => pick(choices, [400, 200, 300]),
            Length::Long => 19_000,
        };
        // Each completion condemns a pack of each subtask while those of the one before may not be
        // forgotten yet: if they found no room, garbage would only ever grow.
        let packs = 2 * (operators * parallelism) as usize;
        config.limits.tombstones_max = config.limits.tombstones_max.max(packs + 1);
        Self {
            store,
            workers,
            operators,
            parallelism,
            compaction_one_in,
            disks_stay,
            safety_events,
            config,
            is_modelled: false,
            is_ruined,
            intensity,
        }
    }

    /// A profile without faults, for scenarios and the explorer.
    #[must_use]
    pub fn benign() -> Self {
        Self::draw(&mut Choices::replayed(&[]), Length::Short)
    }

    /// How often a class strikes where it can; never once faults have stopped.
    #[must_use]
    pub fn rate(&self, fault: Fault, healed: bool) -> Ratio {
        if healed {
            return Ratio::NEVER;
        }
        let rarities = rarities(fault);
        match self.intensity[fault as usize] {
            0 => Ratio::NEVER,
            1 => Ratio::one_in(rarities[0]),
            2 => Ratio::one_in(rarities[1]),
            _ => Ratio::one_in(rarities[2]),
        }
    }

    /// The class's intensity: 0 is off, 3 is most.
    #[must_use]
    pub fn intensity(&self, fault: Fault) -> u8 {
        self.intensity[fault as usize]
    }

    /// Sets a class's intensity, if the store can have it.
    pub fn set_intensity(&mut self, fault: Fault, intensity: u8) {
        if is_possible(fault, self.store) {
            self.intensity[fault as usize] = intensity.min(3);
        }
    }

    /// What coordinators are configured to do, as their users can see it.
    #[must_use]
    pub fn configured(&self) -> Configured {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Configured {
            max_concurrent: self.config.max_concurrent,
            interval: self.config.interval.map(micros),
            timeout: micros(self.config.timeout),
            min_pause: micros(self.config.min_pause),
            min_pause_max: micros(self.config.min_pause_max),
            num_retained: self.config.num_retained,
            upload_tries_max: self.config.limits.upload_tries_max,
            tolerable_failures: self.config.tolerable_failures,
            own_deletes_max: self.config.limits.own_deletes_max,
            retry_delay_max: micros(self.config.limits.retry_delay_max),
            tombstones_max: self.config.limits.tombstones_max,
            tail_records_max: self.config.limits.tail_records_max,
            read_tries_max: self.config.limits.read_tries_max,
            pins_max: self.config.limits.pins_max,
            acknowledged_files_max: self.config.limits.acknowledged_files_max,
            queued_requests_max: self.config.limits.queued_requests_max,
            snapshots_in_flight_max: self.config.limits.snapshots_in_flight_max,
        }
    }

    /// The number of subtasks.
    #[must_use]
    pub fn subtasks(&self) -> u32 {
        self.operators * self.parallelism
    }
}

/// Makes many checkpoints pend at once, whose acknowledgements overtake each other and some of
/// which fail, in lives that are long enough for it: what goes wrong between three checkpoints of
/// one attempt is hardly ever met otherwise.
fn crowd(config: &mut CoordinatorConfig, intensity: &mut [u8; Fault::COUNT]) {
    config.interval = Some(Duration::from_millis(120));
    config.min_pause = Duration::ZERO;
    config.min_pause_max = Duration::ZERO;
    config.max_concurrent = 3;
    config.timeout = Duration::from_secs(2);
    config.tolerable_failures = 1_000;
    config.limits.snapshots_in_flight_max = config.limits.snapshots_in_flight_max.max(4);
    config.limits.pending_checkpoints_max = config.limits.pending_checkpoints_max.max(3);
    for fault in Fault::ALL {
        if ends_a_life(*fault) {
            intensity[*fault as usize] = 0;
        }
    }
    for (fault, exactly) in [
        (Fault::SlowMessages, 2),
        (Fault::LostMessages, 1),
        (Fault::FailedSnapshots, 2),
        (Fault::Cancels, 3),
        (Fault::HeldBackAcknowledgements, 3),
    ] {
        intensity[fault as usize] = exactly;
    }
    let older_restores = &mut intensity[Fault::OlderRestores as usize];
    *older_restores = (*older_restores).min(1);
}

/// Whether a class ends the life of a coordinator, or of attempts.
fn ends_a_life(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::CoordinatorCrashes
            | Fault::CoordinatorPauses
            | Fault::Rivals
            | Fault::WorkerCrashes
            | Fault::WorkerPauses
            | Fault::FalseDeaths
            | Fault::Closes
            | Fault::PowerCuts
            | Fault::Outages
            | Fault::DamagedReads
    )
}

/// Whether a class can happen to this kind of store.
fn is_possible(fault: Fault, store: StoreKind) -> bool {
    let directory_only = matches!(fault, Fault::PowerCuts | Fault::NoSpace);
    let object_only = matches!(
        fault,
        Fault::LateRequests | Fault::SpuriousRefusals | Fault::LaggingLists | Fault::TornPuts
    );
    match store {
        StoreKind::Object => !directory_only,
        StoreKind::Directory => !object_only,
    }
}

/// Whether a class finds its moment in few runs, or only with one kind of store: it is off in an
/// eighth of the runs instead of a half, so that it strikes about as often as others.
fn strikes_seldom(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::PowerCuts
            | Fault::NoSpace
            | Fault::LateRequests
            | Fault::SpuriousRefusals
            | Fault::TornPuts
            | Fault::AstrayMessages
            | Fault::OlderRestores
            | Fault::GarbledAcknowledgements
            | Fault::LocalDamage
            | Fault::Pins
    )
}

/// One in how many, from the least to the greatest intensity.
fn rarities(fault: Fault) -> [u32; 3] {
    match fault {
        Fault::LostMessages => [30, 8, 3],
        Fault::DoubledMessages => [40, 12, 4],
        Fault::AstrayMessages => [2, 1, 1],
        Fault::SlowMessages => [20, 6, 2],
        Fault::LostRequests | Fault::LostAnswers | Fault::LateRequests => [60, 20, 8],
        Fault::SpuriousRefusals => [20, 8, 3],
        Fault::Throttling | Fault::SlowStore => [40, 12, 5],
        Fault::LaggingLists | Fault::BrokenLists => [8, 4, 2],
        Fault::DamagedReads => [30, 12, 5],
        Fault::CoordinatorCrashes => [300, 110, 45],
        Fault::WorkerCrashes => [90, 40, 20],
        Fault::Rivals => [20, 10, 5],
        Fault::CoordinatorPauses | Fault::WorkerPauses | Fault::FalseDeaths | Fault::Cancels => {
            [30, 14, 7]
        }
        Fault::Closes | Fault::PowerCuts => [60, 25, 12],
        Fault::FailedSnapshots => [12, 5, 3],
        Fault::OlderRestores => [2, 1, 1],
        Fault::FailedUploads => [30, 10, 4],
        Fault::FailedDeletes => [12, 4, 2],
        Fault::Outages => [24, 12, 6],
        Fault::TornPuts => [80, 30, 12],
        Fault::HangingNames => [80, 30, 15],
        Fault::LocalDamage => [60, 25, 12],
        Fault::Pins => [8, 4, 2],
        Fault::Guests => [12, 5, 2],
        Fault::GarbledAcknowledgements => [10, 5, 2],
        Fault::NoSpace => [60, 20, 8],
        Fault::HeldBackAcknowledgements => [12, 5, 2],
    }
}

fn pick<T: Copy, const N: usize>(choices: &mut Choices, from: [T; N]) -> T {
    let n = u32::try_from(N).unwrap_or(1);
    from[choices.choose(n, Label::Profile) as usize]
}

fn draw_config(choices: &mut Choices) -> CoordinatorConfig {
    let millis = Duration::from_millis;
    let interval = pick(choices, [200, 120, 350, 600]);
    // A checkpoint takes 50 to 150 ms without faults: the shortest timeout aborts some, not all.
    let timeout = pick(choices, [2_000, 5_000, 800, 400]);
    let min_pause = pick(choices, [0, 20, 100]);
    let retry_delay = pick(choices, [20, 50, 10]);
    let limits = Limits {
        checkpoint_id_block: pick(choices, [4, 1, 64]),
        attempt_id_block: pick(choices, [4, 8, 16]),
        tombstones_max: pick(choices, [1000, 1000, 32, 3]),
        deletes_in_flight_max: pick(choices, [4, 1, 16]),
        tail_records_max: pick(choices, [8, 3, 5, 64]),
        list_page_max: pick(choices, [100, 3, 7]),
        sweep_pause: millis(pick(choices, [20, 5])),
        sweep_round_pause: millis(pick(choices, [300, 100])),
        forget_delay: millis(pick(choices, [50, 0, 200])),
        uploads_in_flight_max: pick(choices, [4, 1, 8]),
        // A few more than what is attached to each snapshot.
        user_bytes_max: 8,
        own_deletes_max: pick(choices, [1024, 1024, 2]),
        pending_checkpoints_max: pick(choices, [64, 64, 3, 1]),
        upload_tries_max: pick(choices, [3, 1, 5]),
        snapshots_in_flight_max: pick(choices, [4, 2, 8]),
        retry_delay: millis(retry_delay),
        retry_delay_max: millis(retry_delay * 8),
        claim_delay: millis(pick(choices, [5, 20])),
        claim_delay_max: millis(640),
        ..Limits::default()
    };
    CoordinatorConfig {
        interval: Some(millis(interval)),
        min_pause: millis(min_pause),
        min_pause_max: millis(min_pause * 8),
        max_concurrent: pick(choices, [1, 2, 3, 3]).min(limits.pending_checkpoints_max),
        timeout: millis(timeout),
        tolerable_failures: pick(choices, [1000, 0, 3]),
        num_retained: pick(choices, [2, 3, 3, 1, 3, 2]),
        renew_interval: pick(choices, [None, Some(millis(1_000))]),
        look_interval: pick(choices, [None, Some(millis(500))]),
        limits,
    }
}

/// In the words of scenario files, all of it; and how often each class of faults strikes.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut width = 0;
        for setting in settings::all_of(self) {
            match width {
                0 => {}
                _ if width + setting.len() > LINE => {
                    writeln!(f, ",")?;
                    width = 0;
                }
                _ => write!(f, ", ")?,
            }
            f.write_str(&setting)?;
            width += setting.len() + 2;
        }
        write!(f, "\nfaults:")?;
        for fault in Fault::ALL {
            let rate = self.rate(*fault, false);
            if rate.is_possible() {
                write!(f, " {} 1/{}", fault.name(), rate.among)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_configurations_are_legal() {
        for seed in 0..2000 {
            let profile = Profile::draw(&mut Choices::seeded(seed), Length::Short);
            assert_eq!(profile.config.validate(), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn about_half_of_the_classes_are_off() {
        let mut on = [0_u32; Fault::COUNT];
        for seed in 0..2000 {
            let profile = Profile::draw(&mut Choices::seeded(seed), Length::Short);
            for fault in Fault::ALL {
                on[*fault as usize] += u32::from(profile.intensity(*fault) > 0);
                if !is_possible(*fault, profile.store) {
                    assert_eq!(profile.intensity(*fault), 0, "seed {seed}");
                }
            }
        }
        for fault in Fault::ALL {
            let count = on[*fault as usize];
            let most = if strikes_seldom(*fault) { 1_800 } else { 1_300 };
            assert!((400..most).contains(&count), "{}: {count}", fault.name());
        }
    }

    #[test]
    fn the_benign_profile_has_no_faults() {
        let profile = Profile::benign();
        for fault in Fault::ALL {
            assert_eq!(profile.rate(*fault, false), Ratio::NEVER);
        }
    }
}
