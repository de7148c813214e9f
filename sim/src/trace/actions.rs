//! The specification's actions, as far as traces know them by name.

/// The actions, in the order in which one step of the world is several of them: what an attempt does
/// before what its leader makes of it, what is committed before what follows from it, and ends last.
/// Within a commit: a pin keeps what a completion would drop, the end of one does not let it go yet;
/// and garbage is judged before the attempts are others.
pub(super) const ORDER: [&str; 25] = [
    "Restored",
    "Flush",
    "Compact",
    "Upload",
    "Snapshot",
    "SendAck",
    "ForgetBase",
    "DropSnap",
    "RecvAck",
    "Attach",
    "GuestPin",
    "Complete",
    "GuestUnpin",
    "Forget",
    "Sweep",
    "Collect",
    "Deploy",
    "Abort",
    "Claim",
    "Depose",
    "Trigger",
    "Delete",
    "TaskDelete",
    "Crash",
    "LoseAck",
];

/// What commits are. Of several commits, those of the earlier come first.
const COMMITTED: [&str; 8] = [
    "GuestPin",
    "Complete",
    "GuestUnpin",
    "Forget",
    "Sweep",
    "Collect",
    "Deploy",
    "Claim",
];

fn place(of: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == of)
}

/// Puts the actions of one commit into that order.
pub(super) fn sort_commit(actions: &mut [&'static str]) {
    actions.sort_by_key(|name| place(name));
}

/// Puts the actions of a step into that order, those of commits as they stand.
pub(super) fn sort(actions: &mut [&'static str]) {
    actions.sort_by_key(|name| match COMMITTED.contains(name) {
        true => place(COMMITTED[0]),
        false => place(name),
    });
}
