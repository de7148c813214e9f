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

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::UploadAsked(attempt, name, _) if name.attempt != *attempt => {
                Self::broken(format!("{attempt} uploads {name}"))
            }
            // What broke off half-way was never anybody's content, and changes nothing of what the
            // name stands for.
            Fact::FileStored(_, content) if facts.torn.contains(content) => Ok(()),
            Fact::FileStored(name, content) => match self.contents.insert(*name, *content) {
                Some(before) if before != *content => Self::broken(format!(
                    "{name} stood for content {} and stands for {} now",
                    before.0, content.0
                )),
                Some(_) | None => Ok(()),
            },
            _ => Ok(()),
        }
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
        let put = |content| Fact::FileStored(name(1, 1), content_of(content));
        show(&mut invariant, &mut facts, put(1)).expect("new");
        show(&mut invariant, &mut facts, put(1)).expect("the same again");
        assert!(show(&mut invariant, &mut facts, put(2)).is_err());
    }

    #[test]
    fn half_a_file_does_not_make_its_name_free() {
        let (mut invariant, mut facts) = (NamesAreNeverReused::default(), Facts::default());
        let put = |content| Fact::FileStored(name(1, 1), content_of(content));
        let torn = Fact::Torn(content_of(9));
        for fact in [torn, put(9), put(1), put(9), put(1)] {
            show(&mut invariant, &mut facts, fact).expect("one content, and half of it");
        }
        show(&mut invariant, &mut facts, put(9)).expect("half of it");
        assert!(show(&mut invariant, &mut facts, put(2)).is_err());
    }

    #[test]
    fn anothers_name_breaks_it() {
        let (mut invariant, mut facts) = (NamesAreNeverReused::default(), Facts::default());
        let upload = Fact::UploadAsked(AttemptId(2), name(1, 1), content_of(1));
        assert!(show(&mut invariant, &mut facts, upload).is_err());
    }
}
