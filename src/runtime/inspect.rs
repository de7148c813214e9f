//! Looks at a participant as a guest.

use super::driver::Surroundings;
use super::load;
use crate::error::{Error, ErrorKind, Phase, Result};
use crate::protocol::manifest::{Expected, Loaded, Manifest};

/// A participant as it was when it was read.
pub struct Inspection {
    participant: String,
    around: Surroundings,
    manifest: Manifest,
}

impl Inspection {
    pub(super) async fn load(participant: &str, around: Surroundings) -> Result<Self> {
        let about = |error: Error| {
            error
                .with_participant(participant)
                .with_phase(Phase::Inspect)
        };
        let expected = Expected {
            job: Some(participant.to_owned()),
            root: None,
        };
        let limits = &around.config.checkpoints.limits;
        let deadline = around.config.progress_deadline;
        match load::load(&*around.store, expected, limits, deadline).await {
            Ok(Loaded::Root(root)) => Ok(Self {
                participant: participant.to_owned(),
                around,
                manifest: root.manifest,
            }),
            Ok(Loaded::NoRoot) => {
                let cause = "there is no such participant";
                Err(about(Error::new(ErrorKind::NotFound, cause)))
            }
            Err(error) => Err(about(load::error(error))),
        }
    }
}
