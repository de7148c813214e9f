names! {
    /// The rules of the protocol. Held open, each plants the fault that it exists to prevent.
    Guard {
        // ---- fencing ----
        /// A message counts only if it is of the epoch that the receiver obeys.
        EpochIsCurrent,
        /// A message of a subtask counts only if the manifest names its attempt.
        AttemptIsNamed,
        /// A leader goes on only while `CURRENT` shows no higher epoch.
        DeposedByHigherEpoch,
        /// A leader says who leads until every named attempt follows it.
        LeadIsRepeatedUntilAttached,
        // ---- unknown outcomes ----
        /// A commit gives up only while no swap of it is in doubt.
        DoubtIsRepeated,
        /// "Exists already" is "done" only if the same bytes are there.
        ExistsMeansDoneIfSame,
        /// A commit is done only if its own name stands at its version.
        OwnNonceMeansDone,
        /// A full snapshot is named only once it was read back.
        SnapshotReadBack,
        /// A root is new, and begins empty, only if nothing at all is there.
        OnlyAnEmptyRootIsNew,
        /// An object counts as damaged only once several reads of it brought damage.
        DamageIsReadAgain,
        // ---- triggering and completing ----
        /// A checkpoint starts only while every subtask runs and follows this leader.
        AllSubtasksRun,
        /// A checkpoint starts only while fewer than `max_concurrent` are under way.
        MaxConcurrent,
        /// A periodic checkpoint starts only once the pause is over.
        MinPause,
        /// A timeout no longer ends a checkpoint only once every acknowledgement is in.
        TimeoutEndsWithTheLastAcknowledgement,
        /// A checkpoint commits only with every acknowledgement in.
        AllAcknowledged,
        /// A checkpoint goes on committing only while no newer one has completed.
        CommitsInOrder,
        /// A checkpoint starts only with an id that is reserved: whoever leads next begins above it.
        IdsAreReserved,
        /// More failures in a row than are tolerated are told, and no fewer.
        FailuresAreTolerated,
        /// Attempts restore only what is retained.
        RestoresOnlyRetained,
        /// A restart takes the newest checkpoint only while no other one was restored since.
        RestartsWhereTheLineIs,
        /// A delta counts only against the base that its trigger named.
        BaseIsTheTriggers,
        // ---- retention and garbage ----
        /// A checkpoint is dropped only if it is not among the newest of its lineage.
        RetentionKeepsNewest,
        /// Only what is retained is pinned.
        PinsOnlyRetained,
        /// A checkpoint is dropped only if nobody pins it.
        PinnedIsKept,
        /// A staged file is condemned only once a later snapshot was acknowledged without it.
        LaterAckWithoutIt,
        /// A staged file is condemned only while no older pending checkpoint waits for its subtask.
        NoOlderPendingWaits,
        /// A file is condemned only if no acknowledgement under way names it.
        NotNamedUnderWay,
        /// The sweep takes only files of attempts that the manifest does not name, or below a live
        /// attempt's floor.
        SweepsOnlyUnnamed,
        /// The sweep spares a file as an attempt's own only if that may still name it.
        SparesOnlyWhatMayBeNamed,
        /// A listing of the sweep is over only with its last page.
        ListingEndsWithItsLastPage,
        /// The sweep takes only manifest objects of epochs that are over.
        SweepsOnlyOlderEpochs,
        /// Of its own epoch, the sweep takes only records of other lives for versions that `CURRENT`
        /// has reached without them: no swap can come to name them.
        SweepsWhatCameTooLate,
        /// The sweep takes only manifest objects that `CURRENT` does not name.
        SweepsNothingNamed,
        // ---- an attempt of a subtask ----
        /// A subtask says again what attaches it until the leader answers.
        AttachIsRepeatedUntilAnswered,
        /// A subtask obeys the highest epoch that it has seen.
        HighestEpochIsObeyed,
        /// A trigger counts only above the subtask's last one.
        TriggerIsNew,
        /// A trigger of a checkpoint that is known to be aborted starts nothing.
        TriggerIsNotAborted,
        /// A file keeps its remote name only while every cut lists it, with the same length.
        MappingEndsWhenFileLeaves,
        /// A file is uploaded only out of a snapshot whose files are kept readable.
        OnlyTheSecuredIsUploaded,
        /// A file is stored only if it had its length at the cut when it was read.
        LengthIsThatOfTheCut,
        /// An upload in doubt is repeated under its name only so often: the name may hang for good.
        NameInDoubtIsRepeatedOnlySoOften,
        /// A name is forgotten without a delete only if nothing can be under it.
        NameIsForgottenOnlyIfNothingMayExist,
        /// A snapshot is acknowledged only when each of its files is stored.
        AckNeedsAllStored,
        /// Files are told against a base only if the subtask knows the base's files exactly.
        BaseIsKnown,
        /// An ended file is dropped only when no snapshot in flight and no base holds it.
        OnlyWhatNoSnapshotHoldsIsDropped,
        /// A subtask deletes only what it made and no sent acknowledgement bears.
        OnlyOwnAndNeverNamedIsDeleted,
        /// A delete is over only when the store has confirmed it.
        DeleteIsRepeatedUntilDone,
        /// What no leader has settled is not forgotten for being settled.
        DeclaredUntilSettled,
        /// The newest completed checkpoint that a subtask knows only rises.
        CompletionRises,
    }
}

names! {
    /// Situations that a good simulation must reach.
    Mark {
        // ---- commits ----
        /// A swap's outcome became unknown.
        CommitInDoubt,
        /// A record was found to be stored already, by its own bytes.
        PutFoundItsOwnRecord,
        /// A swap was refused although `CURRENT` had not moved.
        SwapRefusedAlthoughNothingWasStored,
        /// A commit in doubt was found done by reading `CURRENT`.
        CommitFoundDoneByReading,
        /// `CURRENT` had moved too far to show what became of a commit.
        CommitLostForGood,
        /// A guest's pin took the place of a leader's commit.
        CommitOvertakenByGuest,
        /// A guest's record was read and applied by the leader.
        GuestFollowed,
        /// A guest's record could not be had, and `CURRENT` was asked anew.
        FollowGivenUp,
        /// A full snapshot of the manifest was written and read back.
        SnapshotWritten,
        // ---- leadership ----
        /// Somebody else's commit took the place of a claim.
        ClaimOvertaken,
        /// A leader learned that another one leads.
        LeaderDeposed,
        /// An attempt of an earlier epoch followed a new leader.
        AttemptAttached,
        /// A new attempt took the place of another.
        AttemptReplaced,
        /// An attempt that was replaced acknowledged.
        AcknowledgementOfReplacedAttempt,
        // ---- checkpoints ----
        /// A checkpoint was triggered while another was pending.
        TwoPending,
        /// A checkpoint completed while an older one was pending.
        CompletedOutOfOrder,
        /// A checkpoint completed while an older one, acknowledged by all, waited for its commit.
        OvertakenWithEveryAcknowledgement,
        /// An acknowledgement came for a checkpoint that was over.
        AcknowledgementTooLate,
        /// An acknowledgement's base was overtaken by a completion.
        BaseOvertaken,
        // ---- garbage ----
        /// A file that was never in a completed checkpoint was condemned by its live attempt's
        /// later snapshot.
        StagedFileCondemned,
        /// A leader with nothing to commit learned by a look that somebody else leads.
        LookFoundAnotherLeader,
        /// Garbage found no room among the tombstones and was left to the sweep.
        GarbageLeftToTheSweep,
        /// The sweep found garbage.
        SweepFoundGarbage,
        /// A listing broke off.
        ListingBrokeOff,
        // ---- registry and loader ----
        /// A file came back with a restored checkpoint, or is shared by subtasks.
        FileCameBack,
        /// A dropped checkpoint handed an interval to the one before it.
        IntervalHandedOn,
        /// A loader used an older snapshot because the newest was at fault.
        SnapshotSkipped,
        /// A loader began anew because `CURRENT` had moved on.
        LoadStartedAnew,
        // ---- an attempt of a subtask ----
        /// Two overlapping snapshots share an upload.
        UploadSharedBySnapshots,
        /// A snapshot takes over what one that was not acknowledged has stored.
        UploadTakenOver,
        /// An upload ended after its snapshot was given up.
        UploadOutlivesItsSnapshot,
        /// An upload's name held something else.
        UploadRefused,
        /// An upload stayed in doubt and got a fresh name.
        UploadInDoubtRenamed,
        /// An upload was cancelled because nothing wanted its file any more.
        UploadCancelled,
        /// A delete of a subtask was in doubt.
        DeleteInDoubt,
        /// A subtask had so much to delete that it left some to the sweep.
        DeleteLeftToTheSweep,
        /// A cut lists a known name with another length.
        SameNameOtherLength,
        /// A trigger came when as many snapshots were under way as may be.
        TooManySnapshots,
        /// As many names were not settled as may be, and one that is not needed was left to the sweep.
        NameLeftToTheSweep,
        /// A subtask heard of an abort before the trigger.
        AbortBeforeTrigger,
        /// A subtask acknowledged a snapshot before an older one.
        AcknowledgedOutOfOrder,
        /// A subtask was triggered with a base that it does not know.
        BaseUnknown,
        /// A subtask forgot an abort that came before its trigger, because there were too many.
        AbortForgottenForRoom,
        /// A subtask forgot a base because there were too many.
        BaseForgottenForRoom,
        /// An acknowledgement or decline was repeated.
        ReplyRepeated,
        /// An acknowledgement contradicted the registry.
        AcknowledgementContradicted,
        /// A subtask attached to a new leader while it had snapshots in flight.
        AttachWithSnapshotsInFlight,
        /// A subtask heard of a new epoch by another message than the leader's first.
        EpochSeenBeforeLead,
        /// A trigger came while the cut of an older checkpoint was under way.
        CutWaitsForAnother,
        /// A cut came after its snapshot had been given up.
        CutCameTooLate,
        /// An attempt learned that the manifest does not name it.
        AttemptFoundItselfReplaced,
    }
}
