//! G1: every file of every retained checkpoint is in the store, durable, as recorded; and so is
//! the manifest that says so.

use stillpoint::protocol::id::FileName;
use stillpoint::protocol::manifest::Change;

use super::{Invariant, Verdict};
use crate::oracle::facts::{Fact, Facts};

/// The promise; it needs nothing of the past.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RetainedIsRecoverable;

impl RetainedIsRecoverable {
    fn file(facts: &Facts, name: FileName) -> Verdict {
        let Some((_, digest)) = facts.durable.held.get(&name) else {
            return Ok(());
        };
        match facts.digest_of(&name) {
            Some(stored) if stored == *digest => Ok(()),
            Some(stored) => Self::broken(format!(
                "{name} of a retained checkpoint is {stored:?}, recorded as {digest:?}"
            )),
            None => Self::broken(format!(
                "{name} of a retained checkpoint is not in the store ({})",
                holders(facts, name)
            )),
        }
    }
}

fn holders(facts: &Facts, name: FileName) -> String {
    let mut holders = Vec::new();
    for (checkpoint, retained) in &facts.durable.retained {
        if retained.files().any(|file| file.name == name) {
            holders.push(checkpoint.to_string());
        }
    }
    format!("held by {}", holders.join(", "))
}

impl Invariant for RetainedIsRecoverable {
    const NAME: &'static str = "RetainedIsRecoverable";

    fn observe(&mut self, facts: &Facts, fact: &Fact) -> Verdict {
        match fact {
            Fact::FileRemoved(name) | Fact::FileStored(name, _) => Self::file(facts, *name),
            Fact::Committed(record) => {
                for change in &record.changes {
                    if let Change::Complete(completion) = change {
                        for delta in &completion.subtasks {
                            for file in delta.born.iter().chain(&delta.returned) {
                                Self::file(facts, file.name)?;
                            }
                        }
                    }
                }
                Ok(())
            }
            Fact::CurrentNames(names) => {
                for name in names {
                    if !facts.manifests.contains(name) {
                        return Self::broken(format!("CURRENT names {name}, which is not there"));
                    }
                }
                Ok(())
            }
            Fact::ManifestRemoved(name) if facts.current_names.contains(name) => {
                Self::broken(format!("{name} is gone and CURRENT names it"))
            }
            Fact::CurrentRemoved => Self::broken("CURRENT is gone".to_owned()),
            _ => Ok(()),
        }
    }

    fn check(&self, facts: &Facts) -> Verdict {
        for retained in facts.durable.retained.values() {
            for file in retained.files() {
                if facts.digest_of(&file.name) != Some(file.digest) {
                    return Self::broken(format!(
                        "{} of a retained checkpoint is {:?}, recorded as {:?}",
                        file.name,
                        facts.digest_of(&file.name),
                        file.digest
                    ));
                }
            }
        }
        for name in &facts.current_names {
            if !facts.manifests.contains(name) {
                return Self::broken(format!("CURRENT names {name}, which is not there"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_good_history_holds() {
        let (mut invariant, mut facts) = (RetainedIsRecoverable, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        show(&mut invariant, &mut facts, stored(1, 1)).expect("stores");
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("holds");
        invariant.check(&facts).expect("holds");
    }

    #[test]
    fn completing_before_the_upload_breaks_it() {
        let (mut invariant, mut facts) = (RetainedIsRecoverable, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        );
        assert!(verdict.is_err());
        assert!(invariant.check(&facts).is_err());
    }

    #[test]
    fn other_bytes_break_it() {
        let (mut invariant, mut facts) = (RetainedIsRecoverable, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        let other = Fact::FileStored(name(1, 1), content_of(2));
        show(&mut invariant, &mut facts, other).expect("nobody refers to it yet");
        let verdict = commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        );
        assert!(verdict.is_err());
    }

    #[test]
    fn deleting_what_is_retained_breaks_it() {
        let (mut invariant, mut facts) = (RetainedIsRecoverable, Facts::default());
        commit(&mut invariant, &mut facts, begin()).expect("begins");
        show(&mut invariant, &mut facts, stored(1, 1)).expect("stores");
        commit(
            &mut invariant,
            &mut facts,
            vec![complete(1, &[file(1, 1)], &[])],
        )
        .expect("holds");
        let verdict = show(&mut invariant, &mut facts, Fact::FileRemoved(name(1, 1)));
        assert!(verdict.is_err());
    }
}
