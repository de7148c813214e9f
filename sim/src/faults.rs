//! The classes of faults, and which of them have struck in a run.

/// A class of faults. Each run has about half of them, each at an intensity of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Messages vanish.
    LostMessages,
    /// Messages arrive twice.
    DoubledMessages,
    /// Messages travel long and overtake each other.
    SlowMessages,
    /// Messages of attempts reach a coordinator that does not lead (any more).
    AstrayMessages,
    /// A request never reaches the store; the caller hears `Unknown`.
    LostRequests,
    /// A request is carried out; the caller hears `Unknown`.
    LostAnswers,
    /// The caller hears `Unknown`, and the request lands much later.
    LateRequests,
    /// A swap, or a put of what is not there, is refused although nothing was stored.
    SpuriousRefusals,
    /// The store fails a request for certain.
    Throttling,
    /// The store takes long.
    SlowStore,
    /// Listings leave out what is new and show what is gone.
    LaggingLists,
    /// Listings break off.
    BrokenLists,
    /// Reads bring bytes that are not those stored.
    DamagedReads,
    /// Coordinators die at any step.
    CoordinatorCrashes,
    /// Coordinators stand still and wake up later.
    CoordinatorPauses,
    /// A second coordinator claims although the first lives.
    Rivals,
    /// Workers die at any step.
    WorkerCrashes,
    /// Workers stand still and wake up later.
    WorkerPauses,
    /// An attempt that lives is declared dead.
    FalseDeaths,
    /// The synchronous part of a snapshot fails, or its files can't be secured.
    FailedSnapshots,
    /// The upload of a file fails for certain.
    FailedUploads,
    /// Deletes fail.
    FailedDeletes,
    /// Something older than the newest checkpoint is restored.
    OlderRestores,
    /// A checkpoint is cancelled.
    Cancels,
    /// A coordinator closes in good order.
    Closes,
    /// The machine under a directory loses its power, and with it what was not synced.
    PowerCuts,
    /// For a while the store denies or fails everything that a process asks.
    Outages,
    /// A put in doubt has left something else under its name.
    TornPuts,
    /// Puts under a certain name are never answered, for ever.
    HangingNames,
    /// A local file has another length when it is read than at the cut, or changes between two
    /// attempts.
    LocalDamage,
    /// Retained checkpoints are pinned and unpinned by the leader's user.
    Pins,
    /// Others pin and unpin by commits of their own.
    Guests,
    /// An acknowledgement says what contradicts the registry.
    GarbledAcknowledgements,
    /// A directory has no space.
    NoSpace,
    /// Each copy of an acknowledgement is held back until later ones have overtaken it.
    HeldBackAcknowledgements,
}

impl Fault {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::LostMessages,
        Self::DoubledMessages,
        Self::SlowMessages,
        Self::AstrayMessages,
        Self::LostRequests,
        Self::LostAnswers,
        Self::LateRequests,
        Self::SpuriousRefusals,
        Self::Throttling,
        Self::SlowStore,
        Self::LaggingLists,
        Self::BrokenLists,
        Self::DamagedReads,
        Self::CoordinatorCrashes,
        Self::CoordinatorPauses,
        Self::Rivals,
        Self::WorkerCrashes,
        Self::WorkerPauses,
        Self::FalseDeaths,
        Self::FailedSnapshots,
        Self::FailedUploads,
        Self::FailedDeletes,
        Self::OlderRestores,
        Self::Cancels,
        Self::Closes,
        Self::PowerCuts,
        Self::Outages,
        Self::TornPuts,
        Self::HangingNames,
        Self::LocalDamage,
        Self::Pins,
        Self::Guests,
        Self::GarbledAcknowledgements,
        Self::NoSpace,
        Self::HeldBackAcknowledgements,
    ];

    /// How many classes there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Its name in profiles and scenario files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LostMessages => "lost-messages",
            Self::DoubledMessages => "doubled-messages",
            Self::SlowMessages => "slow-messages",
            Self::AstrayMessages => "astray-messages",
            Self::LostRequests => "lost-requests",
            Self::LostAnswers => "lost-answers",
            Self::LateRequests => "late-requests",
            Self::SpuriousRefusals => "spurious-refusals",
            Self::Throttling => "throttling",
            Self::SlowStore => "slow-store",
            Self::LaggingLists => "lagging-lists",
            Self::BrokenLists => "broken-lists",
            Self::DamagedReads => "damaged-reads",
            Self::CoordinatorCrashes => "coordinator-crashes",
            Self::CoordinatorPauses => "coordinator-pauses",
            Self::Rivals => "rivals",
            Self::WorkerCrashes => "worker-crashes",
            Self::WorkerPauses => "worker-pauses",
            Self::FalseDeaths => "false-deaths",
            Self::FailedSnapshots => "failed-snapshots",
            Self::FailedUploads => "failed-uploads",
            Self::FailedDeletes => "failed-deletes",
            Self::OlderRestores => "older-restores",
            Self::Cancels => "cancels",
            Self::Closes => "closes",
            Self::PowerCuts => "power-cuts",
            Self::Outages => "outages",
            Self::TornPuts => "torn-puts",
            Self::HangingNames => "hanging-names",
            Self::LocalDamage => "local-damage",
            Self::Pins => "pins",
            Self::Guests => "guests",
            Self::GarbledAcknowledgements => "garbled-acknowledgements",
            Self::NoSpace => "no-space",
            Self::HeldBackAcknowledgements => "held-back-acknowledgements",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.name() == name)
    }
}

/// How often each class has struck: being drawn is not enough.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Struck([u32; Fault::COUNT]);

impl Default for Struck {
    fn default() -> Self {
        Self([0; Fault::COUNT])
    }
}

impl Struck {
    /// A fault of this class has happened.
    pub fn note(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// How often it has.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u32 {
        self.0[fault as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (index, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, index);
            assert_eq!(Fault::parse(fault.name()), Some(*fault));
        }
    }
}
