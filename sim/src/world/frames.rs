//! Copies of the world after each of its steps, for whoever wants to go on from one of them. They
//! are no part of the world's state.

use std::hash::{Hash, Hasher};

use super::World;

/// The copies, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub struct Frames(Option<Vec<World>>);

impl Frames {
    /// None yet, but wanted.
    #[must_use]
    pub fn wanted() -> Self {
        Self(Some(Vec::new()))
    }
}

impl World {
    /// Keeps a copy of the world as it is, if anybody wants one.
    pub(super) fn keep_frame(&mut self) {
        if let Some(mut frames) = self.frames.0.take() {
            frames.push(self.clone());
            self.frames.0 = Some(frames);
        }
    }

    /// Takes the copies out; there will be no more.
    pub fn take_frames(&mut self) -> Vec<Self> {
        self.frames.0.take().unwrap_or_default()
    }
}

// Two worlds are equal whatever is kept of their past.
impl PartialEq for Frames {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Frames {}

impl Hash for Frames {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
