//! Every value of the configuration at both ends of what is allowed, and just beyond them.

use std::time::{Duration, Instant};

use stillpoint::{Config, ErrorKind, Memory, MemoryState};

use super::{DEADLINE, in_time, open, place};

struct Case {
    name: String,
    config: Config,
}

fn case(name: String, change: impl FnOnce(&mut Config)) -> Case {
    let mut config = Config::default();
    change(&mut config);
    Case { name, config }
}

macro_rules! bounds {
    ($($($key:ident).+: $($allowed:expr),+; refused $($refused:expr),*;)+) => {
        /// Each value's ends: allowed, and refused.
        fn cases() -> (Vec<Case>, Vec<Case>) {
            let (mut allowed, mut refused) = (Vec::new(), Vec::new());
            $(
                let key = stringify!($($key).+).replace(' ', "");
                let set = |config: &mut Config, value| config.$($key).+ = value;
                $(
                    let name = format!("{key} = {}", stringify!($allowed));
                    allowed.push(case(name, |config| set(config, $allowed)));
                )+
                $(
                    let name = format!("{key} = {}", stringify!($refused));
                    refused.push(case(name, |config| set(config, $refused)));
                )*
            )+
            (allowed, refused)
        }
    };
}

/// `c` of `a.b.c = 1`.
fn key(name: &str) -> &str {
    let path = name.split(" = ").next().unwrap_or_default();
    path.rsplit('.').next().unwrap_or_default()
}

const NONE: Duration = Duration::ZERO;
const EVER: Duration = Duration::MAX;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// What the default of another value bounds ends there.
bounds! {
    transfers_max: 1, 1 << 16; refused 0, (1 << 16) + 1, usize::MAX;
    transfer_memory_bytes_max: MIB, 1 << 40; refused MIB - 1, usize::MAX;
    failure_burst_max: 1, u32::MAX; refused 0;
    failures_per_second: 1, u32::MAX; refused 0;
    progress_deadline: ms(10), ms(44_999); refused NONE, ms(9), ms(45_000), EVER;
    restore_tries_max: 1, u32::MAX; refused 0;
    claim_deadline: Some(ms(10)), Some(EVER), None; refused Some(ms(9));
    close_deadline: ms(60_001), EVER; refused NONE, ms(9), ms(60_000);
    checkpoints.interval: Some(ms(10)), Some(EVER), None; refused Some(ms(9));
    checkpoints.min_pause: NONE, ms(60_000); refused EVER;
    checkpoints.min_pause_max: NONE, EVER; refused;
    checkpoints.max_concurrent: 1, 8; refused 0, 9, usize::MAX;
    checkpoints.timeout: ms(10), EVER; refused ms(9);
    checkpoints.tolerable_failures: 0, u32::MAX; refused;
    checkpoints.num_retained: 1, 255; refused 0, 256, usize::MAX;
    checkpoints.renew_interval: Some(ms(10)), Some(EVER), None; refused Some(ms(9));
    checkpoints.look_interval: Some(ms(10)), Some(EVER), None; refused Some(ms(9));
    checkpoints.limits.checkpoint_id_block: 1, 1 << 20; refused 0, u64::MAX / 3, u64::MAX;
    checkpoints.limits.attempt_id_block: 1, 1 << 20; refused 0, u64::MAX / 3, u64::MAX;
    checkpoints.limits.queued_requests_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.pending_checkpoints_max: 1, 1 << 16; refused 0, usize::MAX;
    checkpoints.limits.tombstones_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.swept_files_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.deletes_in_flight_max: 1, 1 << 16; refused 0, usize::MAX;
    checkpoints.limits.tail_records_max: 1, 3840; refused 0, 3841, usize::MAX;
    checkpoints.limits.own_deletes_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.manifest_deletes_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.list_page_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.sweep_pause: NONE, EVER; refused;
    checkpoints.limits.sweep_round_pause: ms(1), EVER; refused NONE;
    checkpoints.limits.forget_delay: NONE, EVER; refused;
    checkpoints.limits.uploads_in_flight_max: 1, 1 << 16; refused 0, usize::MAX;
    checkpoints.limits.upload_tries_max: 1, 1 << 30; refused 0, u32::MAX;
    checkpoints.limits.snapshots_in_flight_max: 1, 1 << 16; refused 0, usize::MAX;
    checkpoints.limits.user_bytes_max: 0, (128 - 1) * MIB; refused 128 * MIB, usize::MAX;
    checkpoints.limits.family_bytes_max: 7, (128 - 1) * MIB; refused 6, 128 * MIB, usize::MAX;
    checkpoints.limits.acknowledged_files_max: 1, GIB; refused 0, usize::MAX;
    checkpoints.limits.retry_delay: ms(1), ms(10_000); refused NONE, EVER;
    checkpoints.limits.retry_delay_max: ms(100), EVER; refused ms(99);
    checkpoints.limits.reads_in_flight_max: 1, 1 << 16; refused 0, usize::MAX;
    checkpoints.limits.read_tries_max: 1, 1 << 30; refused 0, u32::MAX;
    checkpoints.limits.current_bytes_max: 80 << 10, usize::MAX; refused 0, (80 << 10) - 1;
    checkpoints.limits.manifest_object_bytes_max: 16 * MIB, usize::MAX; refused 0, 16 * MIB - 1;
    checkpoints.limits.claim_delay: NONE, ms(30_000); refused EVER;
    checkpoints.limits.claim_delay_max: ms(50), EVER; refused ms(49);
    checkpoints.limits.pins_max: 1, GIB; refused 0, usize::MAX;
}

/// Claims, checkpoints and starts again. What is too short to get anything done on a busy machine
/// is asked for until it was long enough.
async fn works(name: &str, config: Config) {
    let store = Memory::new();
    for life in 1..=2_u8 {
        let repository = open(store.clone(), config.clone()).await;
        let claim = until_done(name, async || repository.claim("orders/7").await).await;
        let (_base, directory) = place();
        let restored = until_done(name, async || claim.restore_into(&directory).await).await;
        let state = if life == 1 {
            MemoryState::new()
        } else {
            MemoryState::open(restored.directory()).unwrap()
        };
        let before = state.get(b"life").map(|value| value.to_vec());
        assert_eq!(before, (life == 2).then(|| vec![1]));
        let participant = restored.attach(state.clone()).unwrap();
        state.put(b"life", &[life]);
        for _ in 0..2 {
            until_done(name, async || participant.checkpoint([])?.completed().await).await;
        }
        // A deadline of a few milliseconds may pass on a busy machine: then the next claim cleans.
        let _ = in_time(participant.close()).await;
    }
}

async fn until_done<T>(name: &str, work: impl AsyncFn() -> stillpoint::Result<T>) -> T {
    let begun = Instant::now();
    loop {
        match in_time(work()).await {
            Ok(done) => return done,
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Internal, "{name}: {error}");
                assert!(begun.elapsed() < DEADLINE, "{name}: {error}");
            }
        }
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn every_allowed_value_works() {
    for Case { name, config } in cases().0 {
        assert_eq!(config.validate(), Ok(()), "{name}");
        works(&name, config).await;
    }
}

#[test]
fn what_is_beyond_is_refused_by_name() {
    for Case { name, config } in cases().1 {
        let bad = config.validate().expect_err(&name);
        let key = key(&name);
        let is_named = bad.key == key || bad.wanted.contains(key);
        assert!(is_named, "{name}: {bad}");
    }
}

#[test]
fn no_value_is_left_out() {
    let all = format!("{:?}", Config::default());
    let keys = all.split(' ').filter_map(|word| word.strip_suffix(':'));
    let structures = ["checkpoints", "limits"];
    let allowed = cases().0;
    let mut values = 0;
    for key in keys.filter(|key| !structures.contains(key)) {
        let ends = allowed.iter().filter(|case| self::key(&case.name) == key);
        assert!(ends.count() >= 2, "{key} is not tried at both ends");
        values += 1;
    }
    assert!(values > 40, "{values} values were found");
}
