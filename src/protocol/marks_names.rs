names! {
    /// The rules of the protocol. Held open, each plants the fault that it exists to prevent.
    Guard {
        /// A message counts only if it is of the epoch that the receiver obeys.
        EpochIsCurrent,
        /// A message of a subtask counts only if the manifest names its attempt.
        AttemptIsNamed,
        /// A subtask obeys the highest epoch that it has seen.
        HighestEpochIsObeyed,
        /// A trigger counts only above the subtask's last one.
        TriggerIsNew,
        /// A trigger of a checkpoint that is known to be aborted starts nothing.
        TriggerIsNotAborted,
        /// A file keeps its remote name only while every cut lists it, with the same length.
        MappingEndsWhenFileLeaves,
        /// A file is stored only if it had its length at the cut when it was read.
        LengthIsThatOfTheCut,
        /// An upload in doubt goes on under its name until it was tried often enough.
        NameInDoubtIsLeft,
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
        /// Names are declared to new leaders until they are settled.
        DeclaredUntilSettled,
        /// The newest completed checkpoint that a subtask knows only rises.
        CompletionRises,
    }
}

names! {
    /// Situations that a good simulation must reach.
    Mark {
        /// A checkpoint completed while an older one was pending.
        CompletedOutOfOrder,
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
        /// A cut was taken for a snapshot that was given up meanwhile.
        CutOfAnAbortedSnapshot,
        /// A trigger came when as many snapshots were under way as may be.
        TooManySnapshots,
        /// A subtask heard of an abort before the trigger.
        AbortBeforeTrigger,
        /// A subtask acknowledged a snapshot before an older one.
        AcknowledgedOutOfOrder,
        /// A subtask was triggered with a base that it does not know.
        BaseUnknown,
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
    }
}
