//! Spans of time as people write them: `500 ms`, `10 min`.
//!
//! ```text
//! text    digits [space] unit        100ms, 100 ms, 2 hours
//! unit    ns us ms s min h d         and their words: see UNITS
//! ```
//!
//! The rule is Flink's (`TimeUtils`): whole numbers of one unit. What is written is read back as
//! the same span. With [`duration`] and [`optional`] a configuration says its times so.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Each unit in nanoseconds, and what it may be called; it is written by its first name.
const UNITS: [(u128, &[&str]); 7] = [
    (86_400_000_000_000, &["d", "day", "days"]),
    (3_600_000_000_000, &["h", "hour", "hours"]),
    (60_000_000_000, &["min", "m", "minute", "minutes"]),
    (1_000_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (
        1_000_000,
        &["ms", "milli", "millis", "millisecond", "milliseconds"],
    ),
    (
        1_000,
        &["us", "µs", "micro", "micros", "microsecond", "microseconds"],
    ),
    (1, &["ns", "nano", "nanos", "nanosecond", "nanoseconds"]),
];

/// What is allowed, for errors.
pub const ALLOWED: &str = "a whole number and a unit: 500 ms, 30 s, 10 min, 1 h";

/// Reads a span. `None` if it is written otherwise, or longer than can be told.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::protocol::time::written;
///
/// assert_eq!(written::read("10 min"), Some(Duration::from_secs(600)));
/// assert_eq!(written::read("10"), None);
/// ```
#[must_use]
pub fn read(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let (nanoseconds, _) = UNITS
        .iter()
        .find(|(_, names)| names.iter().any(|name| name.eq_ignore_ascii_case(unit)))?;
    let number: u64 = number.parse().ok()?;
    let total = u128::from(number) * nanoseconds;
    let seconds = u64::try_from(total / 1_000_000_000).ok()?;
    let rest = u32::try_from(total % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}

/// Writes a span in the largest unit of which it is a whole number.
#[must_use]
pub fn write(span: Duration) -> String {
    let total = span.as_nanos();
    if total == 0 {
        return String::from("0 ms");
    }
    let whole = UNITS.iter().find(|(unit, _)| total.is_multiple_of(*unit));
    let (unit, names) = whole.unwrap_or(&UNITS[UNITS.len() - 1]);
    format!("{} {}", total / unit, names[0])
}

/// A span that is written for people.
struct Written(Duration);

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&write(self.0))
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong =
            || serde::de::Error::custom(format!("{text:?} is no time; allowed is {ALLOWED}"));
        read(&text).map(Self).ok_or_else(wrong)
    }
}

/// `#[serde(with = "written::duration")]`
pub mod duration {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, Written};

    /// Writes it.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        Written(*span).serialize(serializer)
    }

    /// Reads it.
    ///
    /// # Errors
    /// The deserializer's, or that it is no time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Written::deserialize(deserializer).map(|written| written.0)
    }
}

/// `#[serde(with = "written::optional")]`
pub mod optional {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, Written};

    /// Writes it, if there is one.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        span.map(Written).serialize(serializer)
    }

    /// Reads it, if there is one.
    ///
    /// # Errors
    /// The deserializer's, or that it is no time.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let written = Option::<Written>::deserialize(deserializer)?;
        Ok(written.map(|written| written.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_by_each_of_its_names() {
        for (nanoseconds, names) in UNITS {
            for name in names {
                let span = Duration::from_nanos(u64::try_from(3 * nanoseconds).unwrap());
                for text in [
                    format!("3{name}"),
                    format!(" 3 {} ", name.to_ascii_uppercase()),
                ] {
                    assert_eq!(read(&text), Some(span), "{text}");
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (span, text) in [
            (Duration::ZERO, "0 ms"),
            (Duration::from_secs(600), "10 min"),
            (Duration::from_secs(90), "90 s"),
            (Duration::from_millis(1_500), "1500 ms"),
            (Duration::from_nanos(1), "1 ns"),
            (Duration::from_secs(172_800), "2 d"),
        ] {
            assert_eq!(write(span), text);
            assert_eq!(read(text), Some(span));
        }
    }

    #[test]
    fn nothing_else_is_a_time() {
        for text in [
            "",
            " ",
            "10",
            "ms",
            "-1 s",
            "1.5 s",
            "1 s 2 ms",
            "1 fortnight",
            "١ s",
            "1 s s",
            "18446744073709551616 ns",
            "18446744073709551615 d",
            "+1 s",
            "1_000 ms",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
