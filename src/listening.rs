//! Lets a test hear what the library tells on the test's own thread.
//!
//! While at most one subscriber lives, `tracing` asks only the thread that comes first to an event's place in the code
//! whether anybody wants to hear it, and keeps the answer: a test on another thread, which listens to nothing, could
//! silence the place for the one that listens. So there are always two.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::dispatcher::Dispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Event, Metadata, Subscriber};

/// The fields of an event, as text.
pub(crate) type Fields = BTreeMap<&'static str, String>;

static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// The events of the wanted places that `act` meets on this thread.
pub(crate) fn heard(wanted: fn(&Metadata<'_>) -> bool, act: impl FnOnce()) -> Vec<Fields> {
    LazyLock::force(&SECOND);
    let events = Arc::default();
    let listener = Listener {
        wanted,
        events: Arc::clone(&events),
    };
    tracing::subscriber::with_default(listener, act);
    let mut events = events.lock().expect("nobody panics here");
    std::mem::take(&mut *events)
}

struct Listener {
    wanted: fn(&Metadata<'_>) -> bool,
    events: Arc<Mutex<Vec<Fields>>>,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.wanted)(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        let mut events = self.events.lock().expect("nobody panics here");
        events.push(told.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Told(Fields);

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_thread_that_listens_to_nothing_silences_nobody() {
        macro_rules! places {
            ($($place:literal)*) => { [$((|| tracing::trace!(place = $place)) as fn()),*] };
        }
        for place in places![1 2 3 4 5 6 7 8] {
            let (listens, was_met) = (Barrier::new(2), Barrier::new(2));
            let events = std::thread::scope(|scope| {
                scope.spawn(|| {
                    listens.wait();
                    place();
                    was_met.wait();
                });
                let wanted = |metadata: &Metadata<'_>| metadata.target() == module_path!();
                heard(wanted, || {
                    listens.wait();
                    was_met.wait();
                    place();
                })
            });
            assert_eq!(events.len(), 1, "{events:?}");
        }
    }
}
