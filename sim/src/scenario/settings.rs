//! What the world of a scenario is like: one line a setting, read and written by the same table.

use std::time::Duration;

use crate::faults::Fault;
use crate::profile::{Profile, StoreKind};

/// The most workers, operators and subtasks of one that a scenario can have.
const COUNT_MAX: u32 = 64;

/// A line `name value`.
struct Setting {
    name: &'static str,
    read: fn(&mut Profile, &str) -> Result<(), String>,
    write: fn(&Profile) -> String,
}

macro_rules! numbers {
    ($($name:literal: $($field:ident).+,)*) => {
        [$(Setting {
            name: $name,
            read: |profile, word| {
                profile.$($field).+ = number(word)?;
                Ok(())
            },
            write: |profile| profile.$($field).+.to_string(),
        },)*]
    };
}

macro_rules! times {
    ($($name:literal: $($field:ident).+,)*) => {
        [$(Setting {
            name: $name,
            read: |profile, word| {
                profile.$($field).+ = duration(word)?;
                Ok(())
            },
            write: |profile| millis(profile.$($field).+),
        },)*]
    };
}

const NUMBERS: [Setting; 24] = numbers! {
    "workers": workers,
    "operators": operators,
    "parallelism": parallelism,
    "compaction": compaction_one_in,
    "events": safety_events,
    "concurrent": config.max_concurrent,
    "retained": config.num_retained,
    "tolerated": config.tolerable_failures,
    "tail": config.limits.tail_records_max,
    "tombstones": config.limits.tombstones_max,
    "deletes": config.limits.deletes_in_flight_max,
    "list-page": config.limits.list_page_max,
    "upload-tries": config.limits.upload_tries_max,
    "uploads": config.limits.uploads_in_flight_max,
    "snapshots": config.limits.snapshots_in_flight_max,
    "id-block": config.limits.checkpoint_id_block,
    "attempt-block": config.limits.attempt_id_block,
    "own-deletes": config.limits.own_deletes_max,
    "pending": config.limits.pending_checkpoints_max,
    "pins": config.limits.pins_max,
    "reads": config.limits.reads_in_flight_max,
    "read-tries": config.limits.read_tries_max,
    "queued-requests": config.limits.queued_requests_max,
    "files": config.limits.acknowledged_files_max,
};

const TIMES: [Setting; 5] = times! {
    "timeout": config.timeout,
    "sweep-pause": config.limits.sweep_pause,
    "sweep-round-pause": config.limits.sweep_round_pause,
    "forget-delay": config.limits.forget_delay,
    "claim-delay": config.limits.claim_delay,
};

/// Settings of another kind, and those that move a second number along.
const OTHERS: [Setting; 9] = [
    Setting {
        name: "store",
        read: |profile, word| {
            if Fault::ALL.iter().any(|fault| profile.intensity(*fault) > 0) {
                return Err("the store comes before the faults".to_owned());
            }
            profile.store = match word {
                "object" => StoreKind::Object,
                "directory" => StoreKind::Directory,
                _ => return Err(format!("{word:?} is no kind of store")),
            };
            Ok(())
        },
        write: |profile| match profile.store {
            StoreKind::Object => "object".to_owned(),
            StoreKind::Directory => "directory".to_owned(),
        },
    },
    Setting {
        name: "min-pause",
        read: |profile, word| {
            profile.config.min_pause = duration(word)?;
            profile.config.min_pause_max = profile.config.min_pause * 8;
            Ok(())
        },
        write: |profile| millis(profile.config.min_pause),
    },
    Setting {
        name: "retry-delay",
        read: |profile, word| {
            let limits = &mut profile.config.limits;
            limits.retry_delay = duration(word)?;
            limits.retry_delay_max = limits.retry_delay * 8;
            Ok(())
        },
        write: |profile| millis(profile.config.limits.retry_delay),
    },
    Setting {
        name: "interval",
        read: |profile, word| {
            profile.config.interval = sometimes(word)?;
            Ok(())
        },
        write: |profile| sometimes_millis(profile.config.interval),
    },
    Setting {
        name: "renew",
        read: |profile, word| {
            profile.config.renew_interval = sometimes(word)?;
            Ok(())
        },
        write: |profile| sometimes_millis(profile.config.renew_interval),
    },
    Setting {
        name: "look",
        read: |profile, word| {
            profile.config.look_interval = sometimes(word)?;
            Ok(())
        },
        write: |profile| sometimes_millis(profile.config.look_interval),
    },
    Setting {
        name: "at-last",
        read: |profile, word| {
            profile.is_ruined = match word {
                "ruined" => true,
                "whole" => false,
                _ => return Err(format!("{word:?}: at last all is ruined or whole")),
            };
            Ok(())
        },
        write: |profile| if profile.is_ruined { "ruined" } else { "whole" }.to_owned(),
    },
    Setting {
        name: "disks",
        read: |profile, word| {
            profile.disks_stay = match word {
                "stay" => true,
                "go" => false,
                _ => return Err(format!("{word:?}: disks stay or go")),
            };
            Ok(())
        },
        write: |profile| if profile.disks_stay { "stay" } else { "go" }.to_owned(),
    },
    Setting {
        name: "faults",
        read: |_, word| Err(format!("{word:?}: faults are read as a list")),
        write: |profile| {
            let classes = Fault::ALL.iter();
            let on = classes.filter(|fault| profile.intensity(**fault) > 0);
            on.map(|fault| fault.name()).collect::<Vec<_>>().join(" ")
        },
    },
];

fn all() -> impl Iterator<Item = &'static Setting> {
    // Which store it is decides which faults are possible, so it comes before them.
    OTHERS[..5]
        .iter()
        .chain(&NUMBERS)
        .chain(&TIMES)
        .chain(&OTHERS[5..])
}

/// Reads a setting. False if the words are none.
pub(super) fn read_setting(profile: &mut Profile, words: &[&str]) -> Result<bool, String> {
    if let ["faults", classes @ ..] = words {
        for class in classes {
            let fault = Fault::parse(class).ok_or_else(|| format!("{class:?} is no fault"))?;
            profile.set_intensity(fault, 1);
            if profile.intensity(fault) == 0 {
                return Err(format!("{class} can't happen to this store"));
            }
        }
        return Ok(true);
    }
    let [name, word] = words else {
        return Ok(false);
    };
    let Some(setting) = all().find(|setting| setting.name == *name) else {
        return Ok(false);
    };
    (setting.read)(profile, word)?;
    for (name, count) in [
        ("workers", profile.workers),
        ("operators", profile.operators),
        ("parallelism", profile.parallelism),
    ] {
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(format!("{name} {count}: there are 1 to {COUNT_MAX}"));
        }
    }
    Ok(true)
}

/// Each setting of a profile but the faults.
pub(crate) fn all_of(profile: &Profile) -> impl Iterator<Item = String> {
    all()
        .filter(|setting| setting.name != "faults")
        .map(|setting| format!("{} {}", setting.name, (setting.write)(profile)))
}

/// The lines that make one profile of another.
pub(super) fn write_settings(from: &Profile, to: &Profile) -> Vec<String> {
    all()
        .filter(|setting| (setting.write)(from) != (setting.write)(to))
        .map(|setting| format!("{} {}", setting.name, (setting.write)(to)))
        .collect()
}

/// Reads a number.
pub(super) fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

/// Reads a time in microseconds.
pub(super) fn micros(word: &str) -> Result<u64, String> {
    let bad = || format!("{word:?} is no time in ms");
    let millis = word.strip_suffix("ms").ok_or_else(bad)?;
    match number::<u64>(millis)? {
        millis @ 0..=DAY_MILLIS => Ok(millis * 1000),
        _ => Err(format!("{word:?} is more than a day")),
    }
}

/// The longest time that a scenario can speak of.
const DAY_MILLIS: u64 = 86_400_000;

fn duration(word: &str) -> Result<Duration, String> {
    micros(word).map(Duration::from_micros)
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn sometimes(word: &str) -> Result<Option<Duration>, String> {
    match word {
        "never" => Ok(None),
        word => duration(word).map(Some),
    }
}

fn sometimes_millis(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".to_owned(), millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choices;
    use crate::profile::Length;

    #[test]
    fn what_is_written_is_read_back() {
        for seed in 0..500 {
            for length in [Length::Short, Length::Long] {
                let drawn = Profile::draw(&mut Choices::seeded(seed), length);
                let mut read = Profile::benign();
                for line in write_settings(&Profile::benign(), &drawn) {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    assert_eq!(read_setting(&mut read, &words), Ok(true), "{line}");
                }
                let mut expected = drawn.clone();
                for fault in Fault::ALL {
                    let is_on = drawn.intensity(*fault) > 0;
                    expected.set_intensity(*fault, u8::from(is_on));
                }
                assert_eq!(read, expected, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_readme_knows_each_setting() {
        let readme = include_str!("../../README.md");
        let unknown = all().filter(|setting| !readme.contains(&format!("`{}`", setting.name)));
        let unknown: Vec<_> = unknown.map(|setting| setting.name).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn a_fault_of_another_store_is_refused() {
        let mut profile = Profile::benign();
        assert!(read_setting(&mut profile, &["faults", "power-cuts"]).is_err());
        assert_eq!(
            read_setting(&mut profile, &["store", "directory"]),
            Ok(true)
        );
        assert_eq!(
            read_setting(&mut profile, &["faults", "power-cuts"]),
            Ok(true)
        );
    }
}
