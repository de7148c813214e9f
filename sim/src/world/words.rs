//! Messages, notices, records and events in a few words, for stories. Nothing is decided by them.

use std::fmt::Write;

use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::coordinator::{AbortReason, Notice};
use stillpoint::protocol::id::{AttemptId, FileName, SubtaskId};
use stillpoint::protocol::manifest::{Change, Completion, Record};
use stillpoint::protocol::message::{Fate, Message};
use stillpoint::protocol::store::{Listing, StoreCall, StoreToken};

use super::Happening;
use crate::oracle::facts::Caller;
use crate::store::{Request, Response};

/// Names that are listed one by one; of more, only their number is told.
const NAMES_MAX: usize = 6;

/// The lane of a story in which a caller stands.
pub(super) fn lane_of(caller: Caller) -> String {
    match caller {
        Caller::Coordinator(process) => process.to_string(),
        Caller::Guest(guest) => guest.to_string(),
        Caller::Attempt(attempt) | Caller::Restore(attempt) => attempt.to_string(),
    }
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.len() > NAMES_MAX {
        format!(
            "{} and {} more",
            items[..NAMES_MAX].join(" "),
            items.len() - NAMES_MAX
        )
    } else if items.is_empty() {
        "nothing".to_owned()
    } else {
        items.join(" ")
    }
}

/// A message in a few words.
pub(super) fn message(message: &Message) -> String {
    match message {
        Message::Lead(lead) => format!("lead, {}", lead.epoch),
        Message::Attach(attach) => format!("attach to {}", attach.epoch),
        Message::Attached(attached) => format!("attached to {}", attached.epoch),
        Message::NotNamed(not_named) => format!("not named in {}", not_named.epoch),
        Message::Trigger(trigger) => match trigger.base {
            Some(base) => format!("trigger {} against {base}", trigger.checkpoint),
            None => format!("trigger {} in full", trigger.checkpoint),
        },
        Message::Acknowledge(acknowledge) => {
            let names = acknowledge.files.named().iter().map(|file| file.name);
            format!("acknowledge {}: {}", acknowledge.checkpoint, list(names))
        }
        Message::Decline(decline) => {
            format!("decline {}: {}", decline.checkpoint, decline.failure)
        }
        Message::Answered(answered) => {
            format!("answered {}: {:?}", answered.checkpoint, answered.verdict)
        }
        Message::Notify(notify) => format!(
            "{} is {}",
            notify.checkpoint,
            match notify.fate {
                Fate::Completed => "completed",
                Fate::Aborted => "aborted",
                Fate::Subsumed => "subsumed",
            }
        ),
    }
}

fn attempts(attempts: &[(SubtaskId, AttemptId)]) -> String {
    list(
        attempts
            .iter()
            .map(|(subtask, attempt)| format!("{subtask} as {attempt}")),
    )
}

fn reason(reason: &AbortReason) -> String {
    match reason {
        AbortReason::Expired => "it took too long".to_owned(),
        AbortReason::Declined(subtask, failure) => format!("{subtask} declined: {failure}"),
        AbortReason::Contradiction(subtask, what) => {
            format!("{subtask} contradicts the registry: {what:?}")
        }
        AbortReason::Subsumed => "a newer one completed".to_owned(),
        AbortReason::AttemptEnded(subtask) => format!("the attempt of {subtask} ended"),
        AbortReason::Cancelled => "its user cancelled it".to_owned(),
        AbortReason::Closed => "the coordinator closes".to_owned(),
        AbortReason::CommitFailed(failure) => format!("its commit failed: {failure}"),
        AbortReason::Deposed(epoch) => format!("{epoch} has begun"),
        AbortReason::Broken(broken) => format!("there is no going on from {broken}"),
        other => format!("{other:?}"),
    }
}

/// What a coordinator tells its user, in a few words.
pub(super) fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Leading { epoch } => format!("leads {epoch}"),
        Notice::Deployed {
            attempts: named,
            restore,
            ..
        } => match restore {
            Some(checkpoint) => format!("deploys {}, from {checkpoint}", attempts(named)),
            None => format!("deploys {}, empty", attempts(named)),
        },
        Notice::Triggered { checkpoint, .. } => format!("triggers {checkpoint}"),
        Notice::Completed { checkpoint } => format!("{checkpoint} is complete"),
        Notice::Aborted {
            checkpoint,
            reason: why,
        } => format!("{checkpoint} is aborted: {}", reason(why)),
        Notice::Subsumed { checkpoint } => format!("{checkpoint} is subsumed"),
        Notice::InDoubt {
            checkpoints,
            failure,
        } => format!("the commit of {} is in doubt: {failure}", list(checkpoints)),
        Notice::Refused { request, reason } => format!("{request} is refused: {reason:?}"),
        Notice::Done { request } => format!("{request} is done"),
        Notice::TooManyFailures {
            failures, first, ..
        } => format!("{failures} checkpoints in a row failed: {}", reason(first)),
        Notice::Warned { warning } => format!("a warning: {warning:?}"),
        Notice::CommitFailed { failure } => format!("a commit failed: {failure}"),
        Notice::SnapshotFailed { failure } => {
            format!("the manifest's snapshot failed: {failure}")
        }
        Notice::StoreTrouble { error } => format!("the store is in trouble: {error}"),
        Notice::Unparsable { names } => format!("can't parse {}", list(names)),
        Notice::Unknown {
            checkpoints,
            requests,
            broken: _,
        } => format!(
            "will never know what became of {} and {}",
            list(checkpoints),
            list(requests)
        ),
        Notice::Deposed { by } => format!("is deposed by {by}"),
        Notice::Failed { error } => format!("fails: {error:?}"),
        Notice::Closed => "has resigned".to_owned(),
    }
}

fn completion(completion: &Completion) -> String {
    let mut text = format!("completes {}", completion.checkpoint);
    let mut tell = |what: &str, names: Vec<FileName>| {
        if !names.is_empty() {
            let _ = write!(text, ", {what} {}", list(names));
        }
    };
    let subtasks = &completion.subtasks;
    let born = subtasks.iter().flat_map(|delta| &delta.born);
    tell("bears", born.map(|file| file.name).collect());
    let returned = subtasks.iter().flat_map(|delta| &delta.returned);
    tell("brings back", returned.map(|file| file.name).collect());
    let dropped = subtasks.iter().flat_map(|delta| &delta.dropped);
    tell("drops", dropped.copied().collect());
    text
}

fn change(change: &Change) -> String {
    match change {
        Change::Claim { epoch } => format!("claims {epoch}"),
        Change::Reserve {
            checkpoints_below,
            attempts_below,
        } => format!("reserves ids below {checkpoints_below} and {attempts_below}"),
        Change::Describe { .. } => "describes the operators".to_owned(),
        Change::Deploy {
            head,
            attempts: named,
        } => match head {
            Some(head) => format!("names {}, head {head}", attempts(named)),
            None => format!("names {}", attempts(named)),
        },
        Change::End { attempts } => format!("un-names {}", list(attempts)),
        Change::Complete(completed) => completion(completed),
        Change::Subsume { checkpoints } => format!("subsumes {}", list(checkpoints)),
        Change::Condemn { files } => format!("condemns {}", list(files)),
        Change::Forget { files } => format!("forgets {}", list(files)),
        Change::Pin { checkpoint, owner } => format!("pins {checkpoint} for {}", owner.0),
        Change::Unpin { checkpoint, owner } => format!("unpins {checkpoint} of {}", owner.0),
    }
}

/// A record that became durable, in a few words.
pub(super) fn record(record: &Record) -> String {
    let changes: Vec<String> = record.changes.iter().map(change).collect();
    let changes = if changes.is_empty() {
        "renews the lead".to_owned()
    } else {
        changes.join("; ")
    };
    format!("{} of {}: {changes}", record.version, record.epoch)
}

fn listing(listing: Listing) -> &'static str {
    match listing {
        Listing::Shared => "list state files",
        Listing::Manifest => "list manifest objects",
        Listing::Root => "list anything",
    }
}

fn token(token: &StoreToken) -> String {
    match token {
        StoreToken::ReadCurrent => "read CURRENT".to_owned(),
        StoreToken::LookAtCurrent => "look at CURRENT".to_owned(),
        StoreToken::ReadManifest(name) => format!("read {name}"),
        StoreToken::PutManifest(name) => format!("put {name}"),
        StoreToken::Swap(name) => format!("swap CURRENT for {name}"),
        StoreToken::DeleteFile(name) => format!("delete {name}"),
        StoreToken::DeleteManifest(name) => format!("delete {name}"),
        StoreToken::List(what) => listing(*what).to_owned(),
        StoreToken::Create => "create CURRENT".to_owned(),
    }
}

/// What is asked of the store, in a few words.
pub(super) fn request(request: &Request) -> String {
    match request {
        Request::Call(call) => token(&StoreCall::token(call)),
        Request::Upload { name, .. } => format!("upload {name}"),
        Request::Delete { name } => format!("delete {name}"),
        Request::Fetch { name } => format!("fetch {name}"),
    }
}

fn answer<T>(answer: &Answer<T>) -> String {
    match answer {
        Answer::Done(_) => "done".to_owned(),
        Answer::Refused => "refused".to_owned(),
        Answer::Failed(failure) => format!("failed, {failure}"),
        Answer::Unknown(failure) => format!("unknown, {failure}"),
    }
}

/// What was asked and what the store says of it, in a few words.
pub(super) fn response(response: &Response) -> (String, String) {
    match response {
        Response::Call {
            token: asked,
            answer: said,
        } => (token(asked), answer(said)),
        Response::Upload { name, answer: said } => (format!("upload {name}"), answer(said)),
        Response::Delete { name, answer: said } => (format!("delete {name}"), answer(said)),
        Response::Fetch { name, answer: said } => (format!("fetch {name}"), answer(said)),
    }
}

/// In whose lane something happens, and what, in a few words.
pub(super) fn happening(happening: &Happening) -> (String, String) {
    let (lane, text) = match happening {
        Happening::CoordinatorTimer(process) => (process.to_string(), "a timer".to_owned()),
        Happening::GuestTimer(guest) => (guest.to_string(), "a timer".to_owned()),
        Happening::AttemptTimer(attempt) => (attempt.to_string(), "a timer".to_owned()),
        Happening::StoreStep(_) => ("store".to_owned(), "a request is carried out".to_owned()),
        Happening::StoreAnswer(caller, answered) => {
            let (asked, said) = response(answered);
            (lane_of(*caller), format!("the answer to {asked}: {said}"))
        }
        Happening::ToCoordinator(process, received) => (process.to_string(), message(received)),
        Happening::ToAttempt(attempt, _, received) => (attempt.to_string(), message(received)),
        Happening::Running(process, attempt) => {
            (process.to_string(), format!("hears that {attempt} runs"))
        }
        Happening::Supervise(process) => (process.to_string(), "its user looks".to_owned()),
        Happening::FailOver(process) => (process.to_string(), "its user starts anew".to_owned()),
        Happening::Start(start) => (start.attempt.to_string(), "is to start".to_owned()),
        Happening::Kill(attempt) => (attempt.to_string(), "is to be stopped".to_owned()),
        Happening::Work(attempt) => (attempt.to_string(), "its user writes".to_owned()),
        Happening::Snapshot(attempt, checkpoint) => {
            (attempt.to_string(), format!("the cut of {checkpoint}"))
        }
        Happening::Local(attempt, _) => (attempt.to_string(), "a local step".to_owned()),
        Happening::Secure(attempt, checkpoint) => {
            (attempt.to_string(), format!("secures {checkpoint}"))
        }
        Happening::Disturb => ("faults".to_owned(), "something may go wrong".to_owned()),
        Happening::StartCoordinator => ("faults".to_owned(), "a coordinator starts".to_owned()),
    };
    (lane, text)
}
