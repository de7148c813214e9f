//! An upload in doubt is repeated under its name only so often: the name may hang for good, and the
//! file must then be stored under another.

use std::collections::BTreeMap;

use stillpoint::protocol::id::FileName;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise, with how often each name was in doubt.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DoubtIsBounded {
    doubts: BTreeMap<FileName, u32>,
}

impl Invariant for DoubtIsBounded {
    const NAME: &'static str = "DoubtIsBounded";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::UploadInDoubt(_, name) => *self.doubts.entry(*name).or_default() += 1,
            Fact::UploadAsked(attempt, name, _) => {
                let doubts = self.doubts.get(name).copied().unwrap_or_default();
                if doubts >= facts.config.upload_tries_max {
                    return Self::broken(format!(
                        "{attempt} uploads {name} again, after {doubts} uploads in doubt"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stillpoint::protocol::id::AttemptId;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn one_doubt_too_many_breaks_it() {
        let (mut invariant, mut facts) = (DoubtIsBounded::default(), Facts::default());
        facts.config.upload_tries_max = 2;
        let attempt = AttemptId(1);
        let upload = || Fact::UploadAsked(attempt, name(1, 1), content_of(1));
        let doubt = || Fact::UploadInDoubt(attempt, name(1, 1));
        for fact in [upload(), doubt(), upload(), doubt()] {
            show(&mut invariant, &mut facts, fact).expect("so often");
        }
        let other = Fact::UploadAsked(attempt, name(1, 2), content_of(1));
        show(&mut invariant, &mut facts, other).expect("another name");
        assert!(show(&mut invariant, &mut facts, upload()).is_err());
    }
}
