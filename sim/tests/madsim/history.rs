//! A history of a seed: faults for a while, then none, then whether all came right.
//!
//! ```text
//! store node  ──killed, started again──┐
//! processes   ──killed, paused, replaced by another on another disk──┤ for a while; then all heals,
//! network     ──links clogged, packets lost──┘                         the last holder goes on
//! ```
//!
//! Invariant: a history is a function of its seed. Whatever draws, draws from the executor's
//! generator, or from tokio's, which is seeded as well.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use madsim::net::NetSim;
use madsim::runtime::{Handle, NodeHandle, Runtime};
use madsim::time::{sleep, timeout};
use stillpoint::Repository;
use tokio::runtime::{Builder, RngSeed};

use crate::closure;
use crate::service::{self, PARTICIPANTS};
use crate::store::{NODE, Remote, Server};
use crate::world::{Planted, Struck, Told, World, below, millis_below, now, one_in};

const DISKS: u32 = 3;
const FAULTY_MS: u64 = 60_000;
/// How long it may take until all is well again, replacements and all.
const HEALED_WITHIN: Duration = Duration::from_secs(600);
/// Of the whole history: nothing in it waits so long.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// How long the tasks of a node that was killed take to be dropped.
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

/// Runs the history of this seed, in a thread of its own as the executor wants it.
pub fn run(seed: u64, planted: Option<Planted>) -> Told {
    let disks = disks();
    let path = disks.path().to_owned();
    let tokio = seeded(seed);
    // A panic ends the executor, and not what was told until then.
    let place = Arc::new(OnceLock::new());
    let kept = Arc::clone(&place);
    let thread = thread::Builder::new().name(format!("seed {seed}"));
    let running = thread.spawn(move || {
        let mut runtime = Runtime::with_seed_and_config(seed, madsim::Config::default());
        runtime.set_time_limit(TIME_MAX);
        tokio.block_on(tokio::task::unconstrained(async move {
            runtime.block_on(async move {
                let world = kept.get_or_init(|| Arc::new(World::new(path, planted)));
                tokio::select! {
                    biased;
                    () = world.over.notified() => {}
                    () = history(Arc::clone(world)) => {}
                }
            });
        }));
    });
    let running = running.unwrap_or_else(|error| panic!("no thread: {error}"));
    let ended = running.join();
    let mut told = place.get().map(|world| world.told()).unwrap_or_default();
    if let Err(panic) = ended {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        let message = format!("a panic: {}", message.unwrap_or("of no words"));
        told.broken.get_or_insert(message);
    }
    told
}

/// A runtime of tokio's whose seed this thread takes over while it is in it. Nothing runs there: but
/// tokio's channels and `select!` draw, whom to wake or to look at first, from a generator of the
/// thread, which is another in each thread of a process unless such a runtime says which. Each
/// thread that enters draws the next seed, so that its worker has to have entered before.
fn seeded(seed: u64) -> tokio::runtime::Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    let ready = runtime.block_on(runtime.spawn(async {}));
    ready.unwrap_or_else(|error| panic!("the worker: {error}"));
    runtime
}

/// In memory if the system has such a place: what is synced there costs nothing.
fn disks() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.unwrap_or_else(|error| panic!("no directory: {error}"))
}

struct Process {
    number: u32,
    node: NodeHandle,
    disk: u32,
}

/// Whoever brings the faults about.
struct Supervisor {
    world: Arc<World>,
    store: NodeHandle,
    processes: Vec<Process>,
}

async fn history(world: Arc<World>) {
    let mut supervisor = Supervisor::start(world).await;
    supervisor.start_process();
    supervisor.bring_faults().await;
    supervisor.heal().await;
    supervisor.look_at_the_end().await;
}

impl Supervisor {
    async fn start(world: Arc<World>) -> Self {
        let serving = Arc::clone(&world);
        let store = Handle::current()
            .create_node()
            .name("store")
            .ip([10, 0, 0, 1].into())
            .init(move || {
                let world = Arc::clone(&serving);
                async move { Server::start(world).await.serve().await }
            })
            .build();
        sleep(Duration::from_millis(100)).await;
        Self {
            world,
            store,
            processes: Vec::new(),
        }
    }

    fn node(&self, number: u32) -> NodeHandle {
        let [_, _, high, low] = number.to_be_bytes();
        Handle::current()
            .create_node()
            .name(format!("process {number}"))
            .ip([10, 1, high, low].into())
            .build()
    }

    fn path(&self, disk: u32) -> PathBuf {
        self.world.disks.join(format!("disk-{disk}"))
    }

    /// Starts a process on a disk that no other one uses; the oldest makes room.
    fn start_process(&mut self) {
        self.bury();
        let is_free =
            |processes: &[Process], disk| processes.iter().all(|process| process.disk != disk);
        let free: Vec<u32> = (0..DISKS)
            .filter(|disk| is_free(&self.processes, *disk))
            .collect();
        let disk = if free.is_empty() {
            let oldest = self.processes.remove(0);
            self.kill(&oldest);
            oldest.disk
        } else {
            free[usize::try_from(below(free.len() as u64)).unwrap_or(0)]
        };
        let number = self.world.replace();
        let node = self.node(number);
        let (world, path) = (Arc::clone(&self.world), self.path(disk));
        self.world
            .note(format_args!("process {number}: starts on disk {disk}"));
        drop(node.spawn(service::process(world, number, path)));
        let process = Process { number, node, disk };
        self.processes.push(process);
    }

    /// Those that have come to their end are killed: nothing of a process outlives it.
    fn bury(&mut self) {
        let world = Arc::clone(&self.world);
        self.processes.retain(|process| {
            let has_exited = world.has_exited(process.number);
            if has_exited {
                Handle::current().kill(process.node.id());
            }
            !has_exited
        });
    }

    fn kill(&self, process: &Process) {
        let world = &self.world;
        world.note(format_args!("process {}: killed", process.number));
        world.struck(Struck::Killed);
        for (at, struck) in [
            ("upload", Struck::KilledDuringUpload),
            ("swap", Struck::KilledDuringSwap),
            ("restore", Struck::KilledDuringRestore),
        ] {
            if world.is_at(process.number, at) {
                world.struck(struck);
            }
        }
        Handle::current().kill(process.node.id());
        world.exited(process.number);
    }

    async fn bring_faults(&mut self) {
        let world = Arc::clone(&self.world);
        let end = now() + Duration::from_millis(FAULTY_MS / 2 + below(FAULTY_MS));
        while now() < end {
            // Something may be on its way just now that is worth a fault.
            let wait = millis_below(4000);
            let ambushed = timeout(wait, world.ambush.notified()).await.is_ok();
            if ambushed {
                sleep(millis_below(12)).await;
            }
            if world.is(Planted::DrawsOnceMore) && now() > end / 2 {
                below(2);
            }
            self.bury();
            if self.processes.is_empty() {
                self.start_process();
                continue;
            }
            self.bring_one(ambushed).await;
        }
    }

    async fn bring_one(&mut self, ambushed: bool) {
        let profile = self.world.profile;
        match below(if ambushed { 3 } else { 8 }) {
            0 if profile.kills => {
                let at = usize::try_from(below(self.processes.len() as u64)).unwrap_or(0);
                let process = self.processes.remove(at);
                self.kill(&process);
                sleep(millis_below(1500)).await;
                self.start_process();
            }
            1 if profile.takeovers => {
                if one_in(2) && profile.clogs {
                    self.clog();
                }
                self.start_process();
            }
            2 if profile.store_kills => self.kill_store().await,
            3 if profile.clogs => self.clog(),
            4 if profile.pauses => self.pause(),
            5 if profile.packet_loss => self.lose_packets(),
            _ => {}
        }
    }

    async fn kill_store(&self) {
        self.world.note("store: killed");
        self.world.struck(Struck::StoreKilled);
        if self.world.is_at(NODE, "step") {
            self.world.struck(Struck::StoreKilledBetweenSteps);
        }
        if PARTICIPANTS.iter().any(|name| self.world.waiting(name) > 0) {
            self.world.struck(Struck::StoreKilledWhileAwaited);
        }
        Handle::current().kill(self.store.id());
        // Now and then for longer than a checkpoint may take.
        let long = if one_in(4) { 30_000 } else { 3000 };
        sleep(millis_below(long)).await;
        Handle::current().restart(self.store.id());
    }

    fn some_process(&self) -> &Process {
        let at = usize::try_from(below(self.processes.len() as u64)).unwrap_or(0);
        &self.processes[at]
    }

    /// Cuts a process off for a while: in one direction, or in both.
    fn clog(&self) {
        let process = self.some_process();
        let (id, store) = (process.node.id(), self.store.id());
        let links = match below(3) {
            0 => vec![(id, store)],
            1 => vec![(store, id)],
            _ => vec![(id, store), (store, id)],
        };
        let number = process.number;
        self.world.note(format_args!(
            "process {number}: {} links clogged",
            links.len()
        ));
        self.world.struck(Struck::Clogged);
        for (from, to) in &links {
            NetSim::current().clog_link(*from, *to);
        }
        let world = Arc::clone(&self.world);
        drop(madsim::task::spawn(async move {
            sleep(millis_below(8000)).await;
            world.note(format_args!("process {number}: unclogged"));
            for (from, to) in links {
                NetSim::current().unclog_link(from, to);
            }
        }));
    }

    /// Has a process stand still, which it does not notice.
    fn pause(&self) {
        let process = self.some_process();
        let (id, number) = (process.node.id(), process.number);
        let time = millis_below(6000);
        self.world
            .note(format_args!("process {number}: stands still"));
        self.world.struck(Struck::Paused);
        self.world.paused_for(time);
        Handle::current().pause(id);
        let world = Arc::clone(&self.world);
        drop(madsim::task::spawn(async move {
            sleep(time).await;
            world.note(format_args!("process {number}: goes on"));
            if !Handle::current().is_exit(id) {
                Handle::current().resume(id);
            }
        }));
    }

    fn lose_packets(&self) {
        self.world.note("packets are lost");
        self.world.struck(Struck::PacketsLost);
        let rate = [0.05, 0.2, 0.5][usize::try_from(below(3)).unwrap_or(0)];
        NetSim::current().update_config(|network| network.packet_loss_rate = rate);
        let world = Arc::clone(&self.world);
        drop(madsim::task::spawn(async move {
            sleep(millis_below(5000)).await;
            world.note("no packets are lost");
            NetSim::current().update_config(|network| network.packet_loss_rate = 0.0);
        }));
    }

    /// No more faults: whoever holds the participants, or will, must get through.
    async fn heal(&mut self) {
        let world = Arc::clone(&self.world);
        // What ends by itself, ends.
        sleep(Duration::from_secs(9)).await;
        world.heal();
        let healing = async {
            while !PARTICIPANTS.iter().all(|name| world.has_healed(name)) {
                self.bury();
                if self.processes.is_empty() {
                    self.start_process();
                }
                let _ = timeout(Duration::from_secs(1), world.news.notified()).await;
            }
        };
        if timeout(HEALED_WITHIN, healing).await.is_err() {
            world.broken("faults are over, and nobody holds all participants");
        }
    }

    async fn look_at_the_end(&mut self) {
        let world = Arc::clone(&self.world);
        for process in self.processes.drain(..) {
            Handle::current().kill(process.node.id());
        }
        let disk = self.path(DISKS);
        let node = self.node(world.replace());
        let looking = node.spawn({
            let world = Arc::clone(&world);
            async move {
                let remote = Remote {
                    world: Arc::clone(&world),
                    process: 0,
                };
                let opened = Repository::builder(remote)
                    .with_config(service::config(&world))
                    .open()
                    .await?;
                for name in PARTICIPANTS {
                    closure::is_left_clean(&world, &opened, name).await?;
                    closure::comes_back(&world, &opened, name, &disk).await?;
                }
                Ok::<(), stillpoint::Error>(())
            }
        });
        match looking.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => world.broken(format_args!("at the end: {error}")),
            Err(error) => world.broken(format_args!("at the end: {error}")),
        }
        Handle::current().kill(node.id());
        sleep(DROPPED_WITHIN).await;
        let tasks = Handle::current().metrics().num_tasks_by_node();
        let left: Vec<_> = tasks
            .iter()
            .filter(|(node, tasks)| node.starts_with("process") && **tasks > 0)
            .collect();
        if !left.is_empty() {
            world.broken(format_args!("tasks outlive their process: {left:?}"));
        }
    }
}
