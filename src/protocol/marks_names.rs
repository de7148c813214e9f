names! {
    /// The rules of the protocol. Held open, each plants the fault that it exists to prevent.
    Guard {
        /// A message counts only if it is of the epoch that the receiver obeys.
        EpochIsCurrent,
        /// A message of a subtask counts only if the manifest names its attempt.
        AttemptIsNamed,
    }
}

names! {
    /// Situations that a good simulation must reach.
    Mark {
        /// A checkpoint completed while an older one was pending.
        CompletedOutOfOrder,
        /// A file came back with a restored checkpoint, or is shared by subtasks.
        FileCameBack,
        /// A dropped checkpoint handed an interval to the one before it.
        IntervalHandedOn,
        /// A loader used an older snapshot because the newest was at fault.
        SnapshotSkipped,
        /// A loader began anew because `CURRENT` had moved on.
        LoadStartedAnew,
    }
}
