//! What a store must hold once nothing is under way: what is retained refers to, and nothing else.

use std::path::Path;
use std::time::Duration;

use madsim::time::sleep;
use stillpoint::protocol::answer::Answer;
use stillpoint::protocol::id::ObjectName;
use stillpoint::storage::BlobStore;
use stillpoint::{
    Error, FileStanding, Inspection, ManifestStanding, Repository, RestoreOptions, VerifyDepth,
};

use crate::state::State;
use crate::world::World;

/// What the cleaner has forgotten to forget is committed now and then: it is looked at so often.
const LOOKS: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Whether manifest objects may lie about that a later holder deletes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Later {
    /// Those of claims that were given up, and a record of the holder's own that came late, after it
    /// had been deleted.
    Deletes,
    Nothing,
}

/// Waits until nothing lies there that nobody refers to.
pub async fn holds(
    world: &World,
    repository: &Repository,
    name: &str,
    later: Later,
) -> Result<(), Error> {
    let mut garbage = Vec::new();
    for _ in 0..LOOKS {
        let inspection = repository.inspect(name).await?;
        garbage = left(world, &inspection, name, later).await;
        if garbage.is_empty() {
            return sound(world, &inspection, name).await;
        }
        sleep(LOOK_EVERY).await;
    }
    world.broken(format_args!("{name}: clean, and yet there lie {garbage:?}"));
    Ok(())
}

/// The objects of a participant that are none of its closure.
async fn left(world: &World, inspection: &Inspection, name: &str, later: Later) -> Vec<String> {
    let Answer::Done(page) = world.objects.of(name).list("", None, 100_000).await else {
        unreachable!("the model has no faults of its own");
    };
    let mut left = Vec::new();
    let mut next_snapshots = 0;
    for object in page.names {
        let belongs = match ObjectName::parse(&object) {
            Some(ObjectName::Current) => true,
            Some(ObjectName::Manifest(manifest)) => match inspection.explain_manifest(manifest) {
                ManifestStanding::Record
                | ManifestStanding::Snapshot
                | ManifestStanding::OlderSnapshot => true,
                _ if manifest.epoch > inspection.manifest().epoch() => later == Later::Deletes,
                // The next whole manifest, which the next commit names.
                ManifestStanding::UnderWay => {
                    next_snapshots += 1;
                    next_snapshots == 1
                }
                _ => later == Later::Deletes,
            },
            Some(ObjectName::Shared(file)) => match inspection.explain(file).await {
                Ok(explanation) => matches!(explanation.standing, FileStanding::Held { .. }),
                Err(_) => false,
            },
            None => false,
        };
        if !belongs {
            left.push(object);
        }
    }
    left
}

async fn sound(world: &World, inspection: &Inspection, name: &str) -> Result<(), Error> {
    for checkpoint in inspection.checkpoints() {
        let report = inspection
            .verify(checkpoint.checkpoint, VerifyDepth::Checksums)
            .await?;
        if !report.is_sound() {
            world.broken(format_args!("{name}: {:?}", report.faults));
        }
    }
    Ok(())
}

/// A holder that comes only to clean leaves nothing behind: one that comes after it has a higher
/// epoch than whoever gave up a claim.
pub async fn is_left_clean(
    world: &World,
    repository: &Repository,
    name: &'static str,
) -> Result<(), Error> {
    for _ in 0..2 {
        let claim = repository.claim(name).await?;
        claim.clean().await?;
        claim.close().await?;
    }
    holds(world, repository, name, Later::Nothing).await
}

/// Every retained checkpoint is restored by a guest, and is what was there at its cut.
pub async fn comes_back(
    world: &World,
    repository: &Repository,
    name: &'static str,
    disk: &Path,
) -> Result<(), Error> {
    let inspection = repository.inspect(name).await?;
    for info in inspection.checkpoints() {
        let directory = disk.join(format!("{name}-{}", info.checkpoint));
        let options = RestoreOptions::new();
        inspection
            .restore(info.checkpoint, &directory, &options)
            .await?;
        let state = State::open(name, &directory, false).map_err(Error::from)?;
        let content = state.read().map_err(Error::from)?;
        let number = <[u8; 8]>::try_from(&*info.user_bytes).map_or(0, u64::from_le_bytes);
        let verdict = world.oracle().is(name, number, &content);
        world.judge(verdict.map(drop));
        world.note(format_args!("{name}: cut {number} comes back"));
    }
    Ok(())
}
