//! The constants of `CheckpointLifecycle`, as a configuration of TLC gives them.

use std::collections::BTreeMap;

/// The constants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The names of the subtasks.
    pub tasks: Vec<String>,
    /// Epochs.
    pub max_epoch: u64,
    /// Checkpoints triggered.
    pub max_ckpt: u64,
    /// Files made.
    pub max_file: u64,
    /// Attempts named.
    pub max_attempt: u64,
    /// Checkpoints retained.
    pub retain: usize,
    /// Checkpoints under way at once.
    pub max_concurrent: usize,
    /// Pins at a time.
    pub max_pins: u64,
    /// Whether an older checkpoint may be restored.
    pub go_back: bool,
    /// Whether attempts hear of completions.
    pub forget_bases: bool,
    /// Faults that are counted; 0: none is, and there is no limit.
    pub max_faults: u64,
}

impl Bounds {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is missing or not understood.
    pub fn parse(configuration: &str) -> Result<Self, String> {
        let values = constants(configuration);
        let word = |name: &str| {
            let value = values.get(name).map(String::as_str);
            value.ok_or_else(|| format!("the configuration does not say what {name} is"))
        };
        let number = |name: &str| {
            let text = word(name)?;
            text.parse::<u64>()
                .map_err(|error| format!("{name} = {text}: {error}"))
        };
        let size =
            |name: &str| usize::try_from(number(name)?).map_err(|error| format!("{name}: {error}"));
        let truth = |name: &str| Ok::<_, String>(word(name)? == "TRUE");
        if word("HeldOpen")? != "{}" {
            return Err("a guard is held open in the configuration".to_owned());
        }
        Ok(Self {
            tasks: members(word("Tasks")?),
            max_epoch: number("MaxEpoch")?,
            max_ckpt: number("MaxCkpt")?,
            max_file: number("MaxFile")?,
            max_attempt: number("MaxAttempt")?,
            retain: size("Retain")?,
            max_concurrent: size("MaxConcurrent")?,
            max_pins: number("MaxPins")?,
            go_back: truth("GoBack")?,
            forget_bases: truth("ForgetBases")?,
            max_faults: number("MaxFaults")?,
        })
    }
}

/// The constants of a configuration, by name.
pub(super) fn constants(configuration: &str) -> BTreeMap<String, String> {
    let assigned = configuration
        .lines()
        .filter_map(|line| line.split_once(" = "));
    assigned
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// The members of a set.
pub(super) fn members(set: &str) -> Vec<String> {
    let inner = set.trim_start_matches('{').trim_end_matches('}');
    let members = inner.split(',').map(str::trim);
    members
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read() {
        let text = include_str!("../../../specs/MCCheckpointLifecycle-two.cfg");
        let bounds = Bounds::parse(text).expect("it is a configuration");
        assert_eq!(bounds.tasks, ["t1", "t2"]);
        assert_eq!((bounds.max_ckpt, bounds.retain), (2, 1));
        assert!(!bounds.go_back);
        assert!(Bounds::parse("Tasks = {t1}").is_err());
    }
}
