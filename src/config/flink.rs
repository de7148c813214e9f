//! Apache Flink's options, for who brings them along.
//!
//! ```text
//!  key/value --> known: sets a value ----------------------------> Config, directory
//!            --> asks for what there is not here, or a typing error --> BadOption
//!            --> means nothing here ------------------------------> ignored, by name
//! ```
//!
//! Keys are those of Flink 2 (`execution.checkpointing.*`), and of Flink 1 where they were renamed;
//! where both stand, the newer one counts. What is not said has Stillpoint's default, which is Flink's
//! but for what is retained: three checkpoints instead of one, since a damaged newest one must leave
//! a choice.
//!
//! Not here: options of RocksDB itself. The database is the user's, opened with the user's options.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use super::{BadConfig, Config};
use crate::protocol::time::written;

/// What Flink's options say.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FlinkOptions {
    /// How checkpoints are taken and kept.
    pub config: Config,
    /// Where checkpoints are kept, as Flink writes it: a path, or an address such as
    /// `file:///var/checkpoints`.
    pub directory: Option<String>,
    /// Keys that mean nothing here, in alphabetical order: whoever set them should hear of it.
    pub ignored: Vec<String>,
}

/// An option that can't be obeyed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key} is {value:?}; allowed is {wanted}")]
#[non_exhaustive]
pub struct BadOption {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub wanted: String,
}

/// All of Flink's checkpointing begins with this.
const CHECKPOINTING: &str = "execution.checkpointing.";

/// Options of Flink's checkpointing that say how Flink does what is done otherwise here, or not at
/// all: nothing goes wrong if nobody obeys them.
const MEANINGLESS: [&str; 19] = [
    "savepoint-dir",
    "create-subdir",
    "data-inline-threshold",
    "write-buffer-size",
    "cleaner.parallel-mode",
    "local-backup.enabled",
    "local-backup.dirs",
    "aligned-checkpoint-timeout",
    "unaligned.forced",
    "unaligned.max-subtasks-per-channel-state-file",
    "unaligned.interruptible-timers.enabled",
    "unaligned.emit-intermediate-watermarks",
    "unaligned.interruptible-timers.emit-intermediate-watermarks",
    "checkpoints-after-tasks-finish",
    "file-merging.across-checkpoint-boundary",
    "file-merging.max-file-size",
    "file-merging.max-space-amplification",
    "file-merging.pool-blocking",
    "pause-until-first-checkpoint",
];

/// Reads Flink's options from keys and values, such as those of its configuration file.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::config::flink;
///
/// let options = flink::read([
///     ("execution.checkpointing.interval", "3 min"),
///     ("execution.checkpointing.dir", "file:///var/checkpoints"),
///     ("taskmanager.numberOfTaskSlots", "4"),
/// ])
/// .expect("options that can be obeyed");
/// let interval = options.config.checkpoints.interval;
/// assert_eq!(interval, Some(Duration::from_secs(180)));
/// assert_eq!(options.ignored, ["taskmanager.numberOfTaskSlots"]);
/// ```
///
/// # Errors
/// The first option that asks for what there is not here, is written wrongly or is no option of
/// Flink's checkpointing; or values that don't go together.
pub fn read<K: Into<String>, V: Into<String>>(
    options: impl IntoIterator<Item = (K, V)>,
) -> Result<FlinkOptions, BadOption> {
    let options = options.into_iter();
    let mut options = Options(
        options
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
    );
    options.refuse_what_is_not_here()?;
    let config = options.config()?;
    let directory = options.directory();
    Ok(FlinkOptions {
        config,
        directory,
        ignored: options.rest()?,
    })
}

/// What nobody has looked at yet.
struct Options(BTreeMap<String, String>);

impl Options {
    fn config(&mut self) -> Result<Config, BadOption> {
        let mut config = Config::default();
        let checkpoints = &mut config.checkpoints;
        if let Some(interval) = self.time("interval", 10)? {
            checkpoints.interval = Some(interval);
        }
        if let Some(timeout) = self.time("timeout", 10)? {
            checkpoints.timeout = timeout;
        }
        if let Some(pause) = self.time("min-pause", 0)? {
            checkpoints.min_pause = pause;
            // Flink's does not grow when checkpoints fail.
            checkpoints.min_pause_max = pause;
            // "It does not make sense" to trigger more often, says Flink, and waits for so long.
            checkpoints.interval = checkpoints.interval.map(|interval| interval.max(pause));
        }
        if let Some(most) = self.count("max-concurrent-checkpoints", &[], 1)? {
            checkpoints.max_concurrent = most;
            let limits = &mut checkpoints.limits;
            limits.pending_checkpoints_max = limits.pending_checkpoints_max.max(most);
            limits.snapshots_in_flight_max = limits.snapshots_in_flight_max.max(most);
        }
        if let Some(failures) = self.count("tolerable-failed-checkpoints", &[], 0)? {
            checkpoints.tolerable_failures = u32::try_from(failures).unwrap_or(u32::MAX);
        }
        if let Some(count) = self.count("num-retained", &["state.checkpoints.num-retained"], 1)? {
            checkpoints.num_retained = count;
        }
        let threads = "state.backend.rocksdb.checkpoint.transfer.thread.num";
        if let Some(value) = self.0.remove(threads) {
            config.transfers_max = whole(threads, &value, 1)?;
        }
        config.validate().map_err(BadOption::from)?;
        Ok(config)
    }

    fn directory(&mut self) -> Option<String> {
        let (_, directory) = self.take("dir", &["state.checkpoints.dir"])?;
        Some(directory)
    }

    /// What was asked for and can't be had must not be passed over.
    fn refuse_what_is_not_here(&mut self) -> Result<(), BadOption> {
        self.only("mode", &[], &["EXACTLY_ONCE"])?;
        self.only("storage", &["state.checkpoint-storage"], &["filesystem"])?;
        // Checkpoints stay until newer ones take their place, whatever becomes of the job.
        let retention = "externalized-checkpoint-retention";
        self.only(retention, &[], &["RETAIN_ON_CANCELLATION"])?;
        self.only("incremental", &["state.backend.incremental"], &["true"])?;
        for key in [
            "unaligned.enabled",
            "unaligned.recover-output-on-downstream.enabled",
            "during-recovery.enabled",
            "file-merging.enabled",
        ] {
            self.only(key, &[], &["false"])?;
        }
        self.only("interval-during-backlog", &[], &[])?;
        for key in ["state.backend.type", "state.backend"] {
            if let Some(value) = self.0.remove(key) {
                one_of(key, &value, &["rocksdb"])?;
            }
        }
        Ok(())
    }

    /// An option of checkpointing under its newest name that is there, and that name.
    fn take(&mut self, key: &str, older: &[&str]) -> Option<(String, String)> {
        let newest = format!("{CHECKPOINTING}{key}");
        let names = std::iter::once(newest.as_str()).chain(older.iter().copied());
        let mut found = names.filter_map(|name| Some((name.to_owned(), self.0.remove(name)?)));
        let first = found.next();
        // The others have no say.
        found.for_each(drop);
        first
    }

    fn only(&mut self, key: &str, older: &[&str], allowed: &[&str]) -> Result<(), BadOption> {
        match self.take(key, older) {
            Some((key, value)) => one_of(&key, &value, allowed),
            None => Ok(()),
        }
    }

    /// A time. Flink reads a number without a unit as milliseconds.
    fn time(&mut self, key: &str, least_millis: u64) -> Result<Option<Duration>, BadOption> {
        let Some((key, value)) = self.take(key, &[]) else {
            return Ok(None);
        };
        let least = Duration::from_millis(least_millis);
        let millis = value.trim().parse().ok().map(Duration::from_millis);
        let time = millis.or_else(|| written::read(&value));
        match time.filter(|time| *time >= least) {
            Some(time) => Ok(Some(time)),
            None => {
                let wanted = format!("{}, at least {}", written::ALLOWED, written::write(least));
                Err(BadOption { key, value, wanted })
            }
        }
    }

    fn count(
        &mut self,
        key: &str,
        older: &[&str],
        least: usize,
    ) -> Result<Option<usize>, BadOption> {
        self.take(key, older)
            .map(|(key, value)| whole(&key, &value, least))
            .transpose()
    }

    /// What nobody has asked for: of Flink's other parts, or means nothing here.
    fn rest(self) -> Result<Vec<String>, BadOption> {
        let unknown = self.0.iter().find(|(key, _)| {
            let of_checkpointing = key.strip_prefix(CHECKPOINTING);
            of_checkpointing.is_some_and(|key| !MEANINGLESS.contains(&key))
        });
        if let Some((key, value)) = unknown {
            return Err(BadOption {
                key: key.clone(),
                value: value.clone(),
                wanted: "nothing: Flink has no such option".to_owned(),
            });
        }
        Ok(self.0.into_keys().collect())
    }
}

fn whole(key: &str, value: &str, least: usize) -> Result<usize, BadOption> {
    let number = value.trim().parse().ok();
    number.filter(|number| *number >= least).ok_or_else(|| {
        let wanted = format!("a whole number, at least {least}");
        bad(key, value, wanted)
    })
}

fn one_of(key: &str, value: &str, allowed: &[&str]) -> Result<(), BadOption> {
    // Flink takes its own words in any case, and one dash for the other.
    let said = value.trim().replace('-', "_");
    if allowed.iter().any(|one| said.eq_ignore_ascii_case(one)) {
        return Ok(());
    }
    let wanted = match allowed {
        [] => "to leave it out: it is not supported".to_owned(),
        allowed => format!("{}: nothing else is supported", allowed.join(", ")),
    };
    Err(bad(key, value, wanted))
}

fn bad(key: &str, value: &str, wanted: String) -> BadOption {
    let (key, value) = (key.to_owned(), value.to_owned());
    BadOption { key, value, wanted }
}

impl From<BadConfig> for BadOption {
    fn from(bad: BadConfig) -> Self {
        Self {
            key: bad.key.to_owned(),
            value: bad.value,
            wanted: bad.wanted.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpointing(key: &str, value: &str) -> Result<FlinkOptions, BadOption> {
        read([(format!("{CHECKPOINTING}{key}"), value)])
    }

    fn refused(key: &str, value: &str) -> String {
        checkpointing(key, value).unwrap_err().to_string()
    }

    #[test]
    fn nothing_said_is_the_default() {
        let options = read::<String, String>([]).unwrap();
        assert_eq!(options.config, Config::default());
        assert_eq!((options.directory, options.ignored), (None, Vec::new()));
    }

    #[test]
    fn each_option_sets_its_value() {
        let options = read([
            ("execution.checkpointing.interval", "30 s"),
            ("execution.checkpointing.timeout", "5min"),
            ("execution.checkpointing.min-pause", "500"),
            ("execution.checkpointing.max-concurrent-checkpoints", "9"),
            ("execution.checkpointing.tolerable-failed-checkpoints", "4"),
            ("execution.checkpointing.num-retained", " 2 "),
            ("execution.checkpointing.mode", "exactly-once"),
            ("execution.checkpointing.incremental", "TRUE"),
            ("execution.checkpointing.dir", "s3://bucket/path"),
            ("state.backend.type", "rocksdb"),
            ("state.backend.rocksdb.checkpoint.transfer.thread.num", "7"),
        ])
        .unwrap();
        let checkpoints = &options.config.checkpoints;
        assert_eq!(checkpoints.interval, Some(Duration::from_secs(30)));
        assert_eq!(checkpoints.timeout, Duration::from_secs(300));
        assert_eq!(checkpoints.min_pause, Duration::from_millis(500));
        assert_eq!(checkpoints.min_pause_max, Duration::from_millis(500));
        assert_eq!(checkpoints.max_concurrent, 9);
        assert_eq!(checkpoints.tolerable_failures, 4);
        assert_eq!(checkpoints.num_retained, 2);
        assert_eq!(options.config.transfers_max, 7);
        assert_eq!(options.directory.as_deref(), Some("s3://bucket/path"));
        assert_eq!(options.ignored, Vec::<String>::new());
    }

    #[test]
    fn a_longer_pause_makes_the_interval_longer() {
        let options = read([
            ("execution.checkpointing.interval", "1 s"),
            ("execution.checkpointing.min-pause", "1 min"),
        ]);
        let checkpoints = options.unwrap().config.checkpoints;
        assert_eq!(checkpoints.interval, Some(Duration::from_secs(60)));
    }

    #[test]
    fn the_newer_name_counts() {
        let (older, newer) = (
            "state.checkpoints.num-retained",
            "execution.checkpointing.num-retained",
        );
        let retained = |options: &[(&str, &str)]| {
            let options = read(options.iter().copied()).unwrap();
            assert_eq!(options.ignored, Vec::<String>::new());
            options.config.checkpoints.num_retained
        };
        assert_eq!(retained(&[(older, "5")]), 5);
        assert_eq!(retained(&[(newer, "4"), (older, "5")]), 4);
    }

    #[test]
    fn an_error_names_key_value_and_what_is_allowed() {
        assert_eq!(
            refused("interval", "9 ms"),
            "execution.checkpointing.interval is \"9 ms\"; allowed is a whole number and a unit: \
             500 ms, 30 s, 10 min, 1 h, at least 10 ms"
        );
        assert_eq!(
            refused("num-retained", "0"),
            "execution.checkpointing.num-retained is \"0\"; allowed is a whole number, at least 1"
        );
        assert_eq!(
            refused("mode", "AT_LEAST_ONCE"),
            "execution.checkpointing.mode is \"AT_LEAST_ONCE\"; allowed is EXACTLY_ONCE: nothing \
             else is supported"
        );
        let key = "state.checkpoints.num-retained";
        let wrong = read([(key, "many")]).unwrap_err();
        assert_eq!((wrong.key.as_str(), wrong.value.as_str()), (key, "many"));
    }

    #[test]
    fn what_is_not_here_is_refused() {
        for (key, value) in [
            ("unaligned.enabled", "true"),
            ("file-merging.enabled", "true"),
            ("incremental", "false"),
            ("storage", "jobmanager"),
            ("interval-during-backlog", "1 min"),
            (
                "externalized-checkpoint-retention",
                "DELETE_ON_CANCELLATION",
            ),
            ("intervall", "1 min"),
            ("", "1"),
            ("timeout", "-1 s"),
            ("max-concurrent-checkpoints", "0"),
            ("tolerable-failed-checkpoints", "-1"),
        ] {
            let said = refused(key, value);
            assert!(
                said.starts_with(&format!("{CHECKPOINTING}{key} is {value:?}")),
                "{said}"
            );
        }
        assert!(read([("state.backend.type", "hashmap")]).is_err());
    }

    #[test]
    fn what_means_nothing_here_is_told() {
        for key in MEANINGLESS {
            let options = checkpointing(key, "whatever").unwrap();
            assert_eq!(options.ignored, [format!("{CHECKPOINTING}{key}")]);
        }
        assert_eq!(
            checkpointing("unaligned.enabled", "false").unwrap().ignored,
            Vec::<String>::new()
        );
    }

    #[test]
    fn values_that_do_not_go_together_are_told() {
        let wrong = checkpointing("num-retained", "100000000").unwrap_err();
        assert_eq!(wrong.key, "manifest_object_bytes_max");
    }
}
