//! The process that is killed: this very test binary, told by the environment what to do.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stillpoint::rocksdb::DB;
use stillpoint::storage::Intercepted;
use stillpoint::{Checkpoint, Config, ErrorKind, FileSystem, Participant, Repository, RocksDb};

use crate::points::{CountedState, Points, Steps, Stop};
use crate::truth::{self, History};

pub const PARTICIPANT: &str = "orders/7";
pub const DEEDS: &str = "STILLPOINT_TEST_DEEDS";
pub const PLACE: &str = "STILLPOINT_TEST_PLACE";
pub const STOP: &str = "STILLPOINT_TEST_STOP";
/// What a child says begins with this, to be told from what the test harness says.
pub const SAYS: &str = "child says ";

pub fn say(what: impl Display) {
    println!("{SAYS}{what}");
    std::io::stdout().flush().unwrap();
}

/// Where a participant's checkpoints and its state are.
#[derive(Clone, Debug)]
pub struct Place {
    pub root: PathBuf,
    pub local: PathBuf,
}

impl Place {
    pub fn at(path: &Path) -> Self {
        Self {
            root: path.join("root"),
            local: path.join("local"),
        }
    }

    /// The participant's part of the root.
    pub fn objects(&self) -> PathBuf {
        self.root.join("participants/orders%2F7")
    }
}

/// Everything that waits is short, and every bound that makes something happen now and then is
/// small, so that it happens in each life.
pub fn config() -> Config {
    let mut config = Config::default();
    config.checkpoints.num_retained = 2;
    config.checkpoints.max_concurrent = 2;
    let limits = &mut config.checkpoints.limits;
    limits.checkpoint_id_block = 2;
    limits.attempt_id_block = 1;
    limits.tail_records_max = 4;
    limits.list_page_max = 5;
    limits.sweep_pause = Duration::from_millis(1);
    limits.sweep_round_pause = Duration::from_millis(5);
    limits.forget_delay = Duration::from_millis(1);
    limits.retry_delay = Duration::from_millis(1);
    limits.retry_delay_max = Duration::from_millis(20);
    limits.claim_delay = Duration::ZERO;
    config
}

pub async fn repository(place: &Place, points: &Arc<Points>) -> Repository {
    let store = Intercepted::new(FileSystem::at(&place.root), Arc::clone(points));
    let builder = Repository::builder(store).with_config(config());
    builder.open().await.unwrap()
}

/// A life: the state is restored, open and attached.
pub struct Life {
    pub participant: Participant,
    pub db: Arc<DB>,
    pub history: History,
    pub epoch: u64,
}

impl Life {
    pub async fn begin(place: &Place, points: &Arc<Points>) -> Self {
        let claim = repository(place, points).await;
        let claim = claim.claim(PARTICIPANT).await.unwrap();
        let epoch = claim.epoch().0;
        let restored = claim.restore_into(&place.local).await.unwrap();
        let history = History::from_user_bytes(restored.user_bytes());
        let db = Arc::new(truth::open(&place.local));
        let backend = CountedState(RocksDb::new(Arc::clone(&db)), Arc::clone(points));
        let participant = restored.attach(backend).unwrap();
        Self {
            participant,
            db,
            history,
            epoch,
        }
    }

    /// Writes a round and takes its cut, once an earlier cut has its checkpoint.
    pub async fn cut(&mut self) -> Checkpoint {
        self.history.advance(self.epoch);
        truth::write(&self.db, &self.history);
        say(format_args!("cut {}", self.history));
        loop {
            match self.participant.checkpoint(self.history.to_string()) {
                Ok(checkpoint) => return checkpoint,
                Err(error) if error.kind() == ErrorKind::Busy => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub async fn checkpoint(&mut self) {
        let checkpoint = self.cut().await;
        let history = self.history.clone();
        checkpoint.completed().await.unwrap();
        say(format_args!("completed {history}"));
    }
}

/// What a child does. In the parent it does nothing.
pub async fn main() {
    let Ok(deeds) = std::env::var(DEEDS) else {
        return;
    };
    let place = Place::at(Path::new(&std::env::var_os(PLACE).unwrap()));
    let stop = match std::env::var(STOP) {
        Ok(text) => match text.parse() {
            Ok(number) => Stop::At(number),
            Err(_) => Stop::Before(text),
        },
        Err(_) => Stop::Never,
    };
    let points = Points::new(stop);
    let points = Arc::new(match &*deeds {
        "leave" => points.refusing_deletes(),
        "work" => points.telling(),
        _ => points,
    });
    tracing::subscriber::set_global_default(Steps(Arc::clone(&points))).unwrap();
    match &*deeds {
        "begin" => begin(&place, &points).await,
        "leave" => leave(&place, &points).await,
        "checkpoint" => checkpoint(&place, &points).await,
        "restore" => restore(&place, &points).await,
        "collect" => collect(&place, &points).await,
        "clean" => clean(&place, &points).await,
        "work" => work(&place, &points).await,
        other => panic!("no deeds {other}"),
    }
    say("ended");
}

/// A first life, in good order.
async fn begin(place: &Place, points: &Arc<Points>) {
    let mut life = Life::begin(place, points).await;
    for _ in 0..5 {
        life.checkpoint().await;
    }
    life.participant.cleaned().await.unwrap();
    life.participant.close().await.unwrap();
}

/// A life that leaves whatever a life can leave: what it condemned could not be deleted, and it
/// ends between an upload and its commit.
async fn leave(place: &Place, points: &Arc<Points>) {
    let mut life = Life::begin(place, points).await;
    for _ in 0..5 {
        life.checkpoint().await;
    }
    points.arm();
    life.checkpoint().await;
}

/// A checkpoint, from the cut to the last delete that follows from it.
async fn checkpoint(place: &Place, points: &Arc<Points>) {
    let mut life = Life::begin(place, points).await;
    life.participant.cleaned().await.unwrap();
    points.arm();
    life.checkpoint().await;
    life.participant.cleaned().await.unwrap();
}

/// A restore, from the opening of the store to the attempt that runs.
async fn restore(place: &Place, points: &Arc<Points>) {
    points.arm();
    let life = Life::begin(place, points).await;
    life.participant.cleaned().await.unwrap();
}

/// `gc`: a guest's.
async fn collect(place: &Place, points: &Arc<Points>) {
    points.arm();
    let repository = repository(place, points).await;
    let inspection = repository.inspect(PARTICIPANT).await.unwrap();
    let report = inspection.collect(false).await.unwrap();
    assert!(!report.deleted.is_empty(), "there is something to delete");
}

/// `gc --take-over`: a holder's.
async fn clean(place: &Place, points: &Arc<Points>) {
    points.arm();
    let repository = repository(place, points).await;
    let claim = repository.claim(PARTICIPANT).await.unwrap();
    claim.clean().await.unwrap();
    claim.close().await.unwrap();
}

/// Checkpoints for ever, two at a time now and then, while a guest looks on.
async fn work(place: &Place, points: &Arc<Points>) {
    points.arm();
    let mut life = Life::begin(place, points).await;
    let repository = repository(place, points).await;
    loop {
        life.checkpoint().await;
        let (first, one) = (life.cut().await, life.history.clone());
        let (second, two) = (life.cut().await, life.history.clone());
        // The second one's completion may abort the first.
        if first.completed().await.is_ok() {
            say(format_args!("completed {one}"));
        }
        second.completed().await.unwrap();
        say(format_args!("completed {two}"));
        let inspection = repository.inspect(PARTICIPANT).await.unwrap();
        inspection.collect(false).await.unwrap();
    }
}
