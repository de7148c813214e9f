//! What each promise says, for a person who meets its name on a page.

/// Each promise and what it says.
const MEANINGS: &[(&str, &str)] = &[
    (
        "AbortedIsNotStarted",
        "an attempt that has heard of an abort takes no snapshot for that checkpoint any more.",
    ),
    (
        "AcknowledgementsAgree",
        "what an attempt believes of its files and what the leader knows of them agree, whatever \
         was lost, doubled or late.",
    ),
    (
        "ClosingLeavesNothing",
        "an attempt that closes in good order leaves no object behind that is its own.",
    ),
    (
        "CompletedIsMonotone",
        "completed checkpoints, epochs and versions only rise, and so do the completions that an \
         attempt tells its user of.",
    ),
    (
        "ConfigurationIsObeyed",
        "a coordinator has no more checkpoints under way than it may, and retains no more than it \
         should, and what somebody waits to restore; nobody makes more requests at once than it may.",
    ),
    (
        "ContradictionsAreRefused",
        "an acknowledgement that contradicts the registry is never taken.",
    ),
    (
        "DeclarationsAreWhole",
        "an attempt declares to a new leader each name whose acknowledgement may not be accounted for.",
    ),
    (
        "DeletesAreRepeated",
        "an attempt goes on asking for a delete until it hears that it is done.",
    ),
    (
        "DeposedAreTold",
        "once faults have stopped, a leader whose place another has taken ends within a bound.",
    ),
    (
        "DoubtIsBounded",
        "an upload in doubt is repeated under its name only so often.",
    ),
    (
        "EveryWordIsAnswered",
        "what an attempt says to the leader that it follows is answered at once, and once.",
    ),
    (
        "FailuresAreCounted",
        "one failure in a row more than is tolerated is told with the first of them, no fewer are, \
         and the pause grows with them.",
    ),
    (
        "FirstAskedIsFirstServed",
        "who asks a leader for a checkpoint is served before who asks later, and before the \
         interval.",
    ),
    (
        "GarbageIsCollected",
        "once faults have stopped, whatever no retained checkpoint needs is gone within a bound.",
    ),
    (
        "HistoryIsExplained",
        "what users saw could have happened without faults: a twin of the same input \
         explains it.",
    ),
    (
        "HonestAreBelieved",
        "what an attempt acknowledges as it is is never called a contradiction.",
    ),
    (
        "HonestErrors",
        "no damage or trouble is reported where there is none, no checkpoint or pin is called gone \
         that is there, and no start is empty where something completed.",
    ),
    (
        "LinesAreContinued",
        "what runs goes on from where its line is, unless somebody asks for another checkpoint.",
    ),
    (
        "MachinesDoNotAssert",
        "no machine ever finds its own state to be impossible.",
    ),
    (
        "ManifestIsPlainSets",
        "the manifest, read from the store's bytes, says the same as plain sets of files.",
    ),
    (
        "NamesAreNeverReused",
        "no name in the store ever stands for two different contents.",
    ),
    (
        "NewestAreRetained",
        "a completion leaves as many of the newest checkpoints of its line as are to be retained.",
    ),
    (
        "NewsIsTrue",
        "what users are told is so, and whoever asked for something hears what became of it once, \
         before his coordinator ends.",
    ),
    (
        "OnlyTheOwnerDeletes",
        "each object has one owner at any time, and nobody else asks for its deletion.",
    ),
    (
        "PinsAreKept",
        "a pin begins and ends only as somebody wishes, who hears the truth about it, and what is \
         pinned stays.",
    ),
    (
        "Progress",
        "once faults have stopped, the next checkpoint completes within a bound that follows from \
         the configuration.",
    ),
    (
        "QueuesAreBounded",
        "no more requests wait than there is room for, and who is refused for want of room found \
         none.",
    ),
    (
        "RecordsMakeSense",
        "each record that becomes durable says only what can be so after those before it.",
    ),
    (
        "RestorableCheckpointExists",
        "once a checkpoint has completed, there is always one that can be restored.",
    ),
    (
        "RestoreIsExact",
        "what a restore brings back is, key by key, what stood there at the cut.",
    ),
    (
        "RetainedIsRecoverable",
        "every file of every retained checkpoint is in the store, durable, as recorded; and so is \
         the manifest.",
    ),
    (
        "RuinIsTold",
        "what is lost for good and can't be avoided is named, by whoever needs it, and nothing more \
         is lost.",
    ),
    (
        "StaleIsPowerless",
        "a superseded coordinator or attempt changes nothing that anyone can see.",
    ),
    (
        "TimesAreObeyed",
        "a checkpoint ends for its timeout when that is over, and the next periodic one comes when \
         its time has come.",
    ),
    (
        "TombstoneIsNeverReferredTo",
        "a file that was condemned is never part of a checkpoint that completes afterwards.",
    ),
    (
        "TroubleIsTold",
        "a commit in doubt, a snapshot left out, and a commit, snapshot or load that fails are told \
         when it is so.",
    ),
    (
        "UploadsAreSecured",
        "an attempt uploads only what its snapshot holds on the local disk.",
    ),
];

/// What a promise says, if it is known by this name.
pub(super) fn meaning(promise: &str) -> Option<&'static str> {
    let known = MEANINGS.iter().find(|(name, _)| *name == promise);
    known.map(|(_, meaning)| *meaning)
}

/// Whether a promise is known by this name.
#[must_use]
pub fn is_promise(name: &str) -> bool {
    meaning(name).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::invariants::{DeposedAreTold, GarbageIsCollected, Invariants, Progress};

    #[test]
    fn every_promise_is_explained() {
        let liveness = [
            Progress::broken("", &[]).promise,
            GarbageIsCollected::broken(&[], &[]).promise,
            DeposedAreTold::broken(&BTreeSet::new(), &[]).promise,
        ];
        for promise in Invariants::names().into_iter().chain(liveness) {
            assert!(meaning(promise).is_some(), "{promise} is not explained");
        }
    }
}
