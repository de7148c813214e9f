//! What the configuration bounds and only the world sees: requests under way at once, the size of a
//! page, the number of pins.
//!
//! A request is under way from when it is made until its maker is answered, so the count is that of
//! whoever makes it, whatever becomes of the request on its way. Reads of manifest objects are those
//! of a load: whoever reads `CURRENT` may begin anew, and waits no more for what was under way; whoever
//! leads reads records one by one for reasons that are not bounded together.

use std::collections::BTreeMap;

use stillpoint::protocol::id::{FileName, ManifestName, ObjectName};
use stillpoint::protocol::limits::Limits;
use stillpoint::protocol::manifest::{Change, Record};
use stillpoint::protocol::store::{StoreCall, StoreToken};

use super::World;
use super::coordinator::CoordinatorProcess;
use crate::invariants::{ConfigurationIsObeyed, Invariant};
use crate::oracle::facts::{Caller, Facts};
use crate::store::{Request, Response};

const PROMISE: &str = ConfigurationIsObeyed::NAME;

/// What is bounded by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Kind {
    Upload,
    Delete,
    ManifestDelete,
    ManifestRead,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::Upload,
        Self::Delete,
        Self::ManifestDelete,
        Self::ManifestRead,
    ];

    /// An attempt has no more deletes under way than it remembers.
    fn most(self, caller: Caller, limits: &Limits) -> usize {
        match self {
            Self::Upload => limits.uploads_in_flight_max,
            Self::Delete if matches!(caller, Caller::Attempt(_)) => {
                limits.deletes_in_flight_max.min(limits.own_deletes_max)
            }
            Self::Delete | Self::ManifestDelete => limits.deletes_in_flight_max,
            Self::ManifestRead => limits.reads_in_flight_max,
        }
    }
}

/// The requests of each process that it has not heard the answer to, in lists: they are short.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct UnderWay(BTreeMap<(Caller, Kind), Vec<ObjectName>>);

impl UnderWay {
    /// Notes a request; how many like it are under way then.
    fn begin(&mut self, caller: Caller, kind: Kind, name: ObjectName) -> usize {
        let names = self.0.entry((caller, kind)).or_default();
        names.push(name);
        names.len()
    }

    fn end(&mut self, caller: Caller, kind: Kind, name: ObjectName) {
        if let Some(names) = self.0.get_mut(&(caller, kind))
            && let Some(place) = names.iter().position(|other| *other == name)
        {
            names.swap_remove(place);
        }
    }

    /// Notes a request. What is wrong with it, in words, if anything is.
    fn request(&mut self, caller: Caller, request: &Request, limits: &Limits) -> Option<String> {
        if let Request::Call(StoreCall::List { limit, .. }) = request
            && *limit > limits.list_page_max
        {
            let most = limits.list_page_max;
            return Some(format!(
                "{caller:?} asks for a page of {limit}, and may for {most}"
            ));
        }
        if let Request::Call(StoreCall::Read {
            token: StoreToken::ReadCurrent,
        }) = request
        {
            self.0.remove(&(caller, Kind::ManifestRead));
        }
        let (kind, name) = bounded(request)?;
        // Who pins deletes its own record and no more.
        if matches!(caller, Caller::Guest(_)) && kind != Kind::ManifestRead {
            return None;
        }
        let most = kind.most(caller, limits);
        let count = self.begin(caller, kind, name);
        (count > most)
            .then(|| format!("{caller:?} has {count} under way with {name}, and may have {most}"))
    }

    /// A process is no more, and hears nothing.
    pub(super) fn forget(&mut self, gone: Caller) {
        for kind in Kind::ALL {
            self.0.remove(&(gone, kind));
        }
    }
}

fn bounded(request: &Request) -> Option<(Kind, ObjectName)> {
    let file = |kind, name: &FileName| Some((kind, ObjectName::Shared(*name)));
    match request {
        Request::Upload { name, .. } => file(Kind::Upload, name),
        Request::Delete { name } | Request::Call(StoreCall::DeleteFile { name }) => {
            file(Kind::Delete, name)
        }
        Request::Call(StoreCall::DeleteManifest { name }) => {
            Some((Kind::ManifestDelete, ObjectName::Manifest(*name)))
        }
        Request::Call(StoreCall::Read {
            token: StoreToken::ReadManifest(name),
        }) => Some((Kind::ManifestRead, ObjectName::Manifest(*name))),
        Request::Call(
            StoreCall::Read { .. }
            | StoreCall::Put { .. }
            | StoreCall::Create { .. }
            | StoreCall::Swap { .. }
            | StoreCall::List { .. },
        )
        | Request::Fetch { .. } => None,
    }
}

fn answered(response: &Response) -> Option<(Kind, ObjectName)> {
    let file = |kind, name: &FileName| Some((kind, ObjectName::Shared(*name)));
    let manifest = |kind, name: &ManifestName| Some((kind, ObjectName::Manifest(*name)));
    match response {
        Response::Upload { name, .. } => file(Kind::Upload, name),
        Response::Delete { name, .. } => file(Kind::Delete, name),
        Response::Call { token, .. } => match token {
            StoreToken::DeleteFile(name) => file(Kind::Delete, name),
            StoreToken::DeleteManifest(name) => manifest(Kind::ManifestDelete, name),
            StoreToken::ReadManifest(name) => manifest(Kind::ManifestRead, name),
            StoreToken::ReadCurrent
            | StoreToken::LookAtCurrent
            | StoreToken::PutManifest(_)
            | StoreToken::Swap(_)
            | StoreToken::List(_)
            | StoreToken::Create => None,
        },
        Response::Fetch { .. } => None,
    }
}

impl World {
    /// A process makes a request: are there too many?
    pub(super) fn count_request(&mut self, caller: Caller, request: &Request) {
        let reads = matches!(bounded(request), Some((Kind::ManifestRead, _)));
        if reads && self.leads(caller) {
            return;
        }
        let limits = &self.profile.config.limits;
        if let Some(what) = self.under_way.request(caller, request, limits) {
            self.watch.break_promise(PROMISE, what);
        }
    }

    fn leads(&self, caller: Caller) -> bool {
        let Caller::Coordinator(process) = caller else {
            return false;
        };
        let process = self.coordinators.get(&process);
        process.is_some_and(CoordinatorProcess::leads)
    }

    /// A process hears an answer.
    pub(super) fn count_answer(&mut self, caller: Caller, response: &Response) {
        if let Some((kind, name)) = answered(response) {
            self.under_way.end(caller, kind, name);
        }
    }

    /// A record has become durable: are there more pins than may be, by one that came with it?
    pub(super) fn count_pins(&mut self, record: &Record) {
        let most = self.profile.config.limits.pins_max;
        if let Some(what) = too_many_pins(&self.watch.facts, record, most) {
            self.watch.break_promise(PROMISE, what);
        }
    }
}

/// What is wrong with a record's pins, in words, if there are more than may be.
fn too_many_pins(facts: &Facts, record: &Record, most: usize) -> Option<String> {
    let begins = |change: &Change| matches!(change, Change::Pin { .. });
    let count = facts.durable.pins.len();
    let is_wrong = count > most && record.changes.iter().any(begins);
    is_wrong.then(|| format!("{count} pins, and there may be {most}"))
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::{AttemptId, CheckpointId, Epoch, Nonce, Version};
    use stillpoint::protocol::manifest::PinOwner;
    use stillpoint::protocol::store::Listing;

    use super::super::GuestId;
    use super::*;
    use crate::oracle::facts::ProcessId;

    #[test]
    fn each_process_and_kind_is_counted_by_itself() {
        let mut under_way = UnderWay::default();
        let name = |number| {
            ObjectName::Shared(FileName {
                attempt: AttemptId(1),
                number,
            })
        };
        let (first, second) = (Caller::Attempt(AttemptId(1)), Caller::Attempt(AttemptId(2)));
        assert_eq!(under_way.begin(first, Kind::Upload, name(1)), 1);
        assert_eq!(under_way.begin(first, Kind::Upload, name(2)), 2);
        assert_eq!(under_way.begin(first, Kind::Delete, name(3)), 1);
        assert_eq!(under_way.begin(second, Kind::Upload, name(1)), 1);
        under_way.end(first, Kind::Upload, name(1));
        assert_eq!(under_way.begin(first, Kind::Upload, name(4)), 2);
        under_way.forget(first);
        assert_eq!(under_way.begin(first, Kind::Upload, name(5)), 1);
    }

    #[test]
    fn one_request_too_many_breaks_it() {
        let limits = Limits {
            deletes_in_flight_max: 1,
            ..Limits::default()
        };
        let mut under_way = UnderWay::default();
        let attempt = AttemptId(1);
        let mut ask = |caller, number| {
            let name = FileName { attempt, number };
            let what = under_way.request(caller, &Request::Delete { name }, &limits);
            what.is_some()
        };
        assert!(!ask(Caller::Attempt(attempt), 1));
        assert!(
            !ask(Caller::Coordinator(ProcessId(0)), 1),
            "another process"
        );
        assert!(ask(Caller::Attempt(attempt), 2));
    }

    #[test]
    fn an_attempt_deletes_no_more_than_it_remembers() {
        let limits = Limits {
            own_deletes_max: 1,
            ..Limits::default()
        };
        let attempt = AttemptId(1);
        let ask = |caller| {
            let mut under_way = UnderWay::default();
            let mut deletes = (1..=2).map(|number| {
                let name = FileName { attempt, number };
                under_way.request(caller, &Request::Delete { name }, &limits)
            });
            deletes.any(|what| what.is_some())
        };
        assert!(ask(Caller::Attempt(attempt)));
        assert!(!ask(Caller::Coordinator(ProcessId(0))));
    }

    #[test]
    fn one_read_too_many_breaks_it_until_a_load_begins_anew() {
        let limits = Limits {
            reads_in_flight_max: 1,
            ..Limits::default()
        };
        let mut under_way = UnderWay::default();
        let mut read = |token| {
            let read = Request::Call(StoreCall::Read { token });
            let what = under_way.request(Caller::Guest(GuestId(0)), &read, &limits);
            what.is_some()
        };
        let record = |version| {
            StoreToken::ReadManifest(ManifestName {
                epoch: Epoch(1),
                version: Version(version),
                nonce: Nonce(1),
            })
        };
        assert!(!read(record(1)));
        assert!(!read(StoreToken::ReadCurrent), "it begins anew");
        assert!(!read(record(2)));
        assert!(read(record(3)));
    }

    #[test]
    fn a_page_that_is_too_large_breaks_it() {
        let limits = Limits::default();
        let mut under_way = UnderWay::default();
        let mut ask = |limit| {
            let list = Request::Call(StoreCall::List {
                listing: Listing::Root,
                after: None,
                limit,
            });
            let what = under_way.request(Caller::Coordinator(ProcessId(0)), &list, &limits);
            what.is_some()
        };
        assert!(!ask(limits.list_page_max));
        assert!(ask(limits.list_page_max + 1));
    }

    #[test]
    fn one_pin_too_many_breaks_it() {
        let mut facts = Facts::default();
        let (checkpoint, owner) = (CheckpointId(1), PinOwner("a".to_owned()));
        facts.durable.pins.insert((checkpoint, owner.clone()));
        let record = |changes| Record {
            changes,
            version: facts.durable.version,
            epoch: facts.durable.epoch,
        };
        let pins = record(vec![Change::Pin { checkpoint, owner }]);
        assert_eq!(too_many_pins(&facts, &pins, 1), None);
        assert!(too_many_pins(&facts, &pins, 0).is_some());
        let others = record(Vec::new());
        assert_eq!(too_many_pins(&facts, &others, 0), None, "an older one");
    }
}
