//! No name in the store ever stands for two different contents (FLINK-29095, SPARK-43404).

use std::collections::BTreeMap;

use stillpoint::protocol::id::FileName;

use super::{Invariant, Verdict};
use crate::lsm::ContentId;
use crate::oracle::facts::{Fact, Facts};

/// The promise, with what each name has stood for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NamesAreNeverReused {
    contents: BTreeMap<FileName, ContentId>,
}

impl Invariant for NamesAreNeverReused {
    const NAME: &'static str = "NamesAreNeverReused";

    fn observe(&mut self, _facts: &Facts, fact: &Fact) -> Verdict {
        let Fact::UploadAsked(attempt, name, content) = fact else {
            return Ok(());
        };
        if name.attempt != *attempt {
            return Self::broken(format!("{attempt} uploads {name}"));
        }
        match self.contents.insert(*name, *content) {
            Some(before) if before != *content => Self::broken(format!(
                "{name} stood for content {} and is to stand for {}",
                before.0, content.0
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn check(&self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::AttemptId;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn other_bytes_under_a_name_break_it() {
        let (mut invariant, mut facts) = (NamesAreNeverReused::default(), Facts::default());
        let upload = |content| Fact::UploadAsked(AttemptId(1), name(1, 1), content_of(content));
        show(&mut invariant, &mut facts, upload(1)).expect("new");
        show(&mut invariant, &mut facts, upload(1)).expect("the same again");
        assert!(show(&mut invariant, &mut facts, upload(2)).is_err());
    }

    #[test]
    fn anothers_name_breaks_it() {
        let (mut invariant, mut facts) = (NamesAreNeverReused::default(), Facts::default());
        let upload = Fact::UploadAsked(AttemptId(2), name(1, 1), content_of(1));
        assert!(show(&mut invariant, &mut facts, upload).is_err());
    }
}
