//! What may stand under a name, as far as a caller of the store can know.
//!
//! ```text
//!  {nothing} --put 1, killed--> {nothing}, put 1 late --get: not found--> {nothing}, put 1 late
//!                                                     --get: body 1-----> {body 1}
//! ```
//!
//! Invariant: one of the states, after what is late has landed or not, is what the store has, if it
//! keeps its contract. What is late may come at any later time, even more than once: so nothing that
//! is right is called wrong.

use std::collections::BTreeSet;
use std::fmt;

use stillpoint::storage::Key;

/// The number of a body, or that there is none.
pub type Content = Option<usize>;

/// The effect of a call that was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// Puts this body, if there is none.
    Put(usize),
    /// Puts this body in the place of another.
    Swap {
        /// That other.
        expected: Content,
        /// This body.
        to: usize,
    },
    /// Deletes.
    Delete,
}

/// What may stand under a name.
pub struct Name {
    /// The name.
    pub key: Key,
    /// The contents, of which one is there.
    pub states: BTreeSet<Content>,
    /// What may still come.
    pub late: Vec<Late>,
}

impl Name {
    /// Lets what is late land, in every order.
    pub fn land(&mut self) {
        loop {
            let before = self.states.len();
            for late in &self.late {
                let landed: Vec<Content> = match late {
                    Late::Put(body) if self.states.contains(&None) => vec![Some(*body)],
                    Late::Swap { expected, to } if self.states.contains(expected) => {
                        vec![Some(*to)]
                    }
                    Late::Delete => vec![None],
                    Late::Put(_) | Late::Swap { .. } => Vec::new(),
                };
                self.states.extend(landed);
            }
            if self.states.len() == before {
                return;
            }
        }
    }

    /// Only these states agree with what was answered.
    pub fn must(&mut self, agrees: impl Fn(Content) -> bool, answered: &str) -> Result<(), String> {
        self.land();
        let before = self.states.clone();
        self.states.retain(|content| agrees(*content));
        if self.states.is_empty() {
            let states = States(&before);
            return Err(format!("{answered}; there may be {states}"));
        }
        Ok(())
    }
}

/// States in words.
pub struct States<'a>(pub &'a BTreeSet<Content>);

impl fmt::Display for States<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, content) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " or " })?;
            match content {
                None => f.write_str("nothing")?,
                Some(body) => write!(f, "body {body}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(states: &[Content], late: &[Late]) -> Name {
        let key = Key::new("shared/1/1").unwrap_or_else(|error| panic!("{error}"));
        Name {
            key,
            states: states.iter().copied().collect(),
            late: late.to_vec(),
        }
    }

    #[test]
    fn late_effects_land_in_every_order() {
        let swap = Late::Swap {
            expected: Some(1),
            to: 2,
        };
        let mut name = name(&[None], &[swap, Late::Put(1)]);
        name.land();
        assert_eq!(name.states, BTreeSet::from([None, Some(1), Some(2)]));
    }

    #[test]
    fn a_put_lands_on_a_free_name_only() {
        let mut taken = name(&[Some(7)], &[Late::Put(1)]);
        taken.land();
        assert_eq!(taken.states, BTreeSet::from([Some(7)]));
        taken.late.push(Late::Delete);
        taken.land();
        assert_eq!(taken.states, BTreeSet::from([None, Some(1), Some(7)]));
    }

    #[test]
    fn what_no_state_explains_is_said() {
        let mut name = name(&[None, Some(3)], &[]);
        let explained = name.must(|content| content == Some(3), "get gives body 3");
        assert_eq!(explained, Ok(()));
        let broken = name.must(|content| content.is_none(), "get: not found");
        assert_eq!(
            broken,
            Err("get: not found; there may be body 3".to_owned())
        );
    }
}
