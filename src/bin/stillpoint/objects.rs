//! What lies in a repository and is no state file: what it is, and why it is there.
//!
//! | name | kind | standing |
//! |---|---|---|
//! | `CURRENT` | `current` | `own` |
//! | `manifest/…` | `record`, `snapshot`, or `manifest` if it is not known which | `named`, `under_way`, `superseded` |
//! | `LOCK`, `.tmp/…` | `lock`, `temporary` | `own` |
//! | whatever no rule can parse | `foreign` | `foreign` |

use std::fs;
use std::path::{Component, Path};

use stillpoint::protocol::id::{ManifestName, ObjectName};
use stillpoint::{Error, Inspection, ManifestStanding};

use crate::explain::File;
use crate::root::Root;

const CURRENT: &str = "the one object that is ever replaced: it says which records, and which whole manifest, count. \
                       It is never deleted";
const LOCK: &str =
    "what is locked while CURRENT is replaced. It holds nothing, and is never deleted";
const TEMPORARY: &str = "what a writer has not given its name yet, or the lock by which that writer is known to live. It \
                         is removed by whoever opens the repository for writing once the writer is dead";
const FOREIGN: &str = "no rule can parse its name, so this library did not write it: nobody deletes it, and it \
                       disturbs nobody";

/// What lies beside the participants under this name.
pub async fn beside(root: &Root, at: &Path, asked: &str) -> Result<Option<File>, Error> {
    let Some(stored_bytes) = size(&at.join(asked), asked) else {
        return Ok(None);
    };
    let is_temporary = Path::new(asked).starts_with(".tmp");
    if !is_temporary && !is_among(&root.repository.unparsable().await?, asked) {
        return Ok(None);
    }
    let (kind, standing, reason) = if is_temporary {
        ("temporary", "own", TEMPORARY)
    } else {
        ("foreign", "foreign", FOREIGN)
    };
    let mut file = File::new(asked, standing, reason);
    file.kind = Some(kind);
    file.stored_bytes = Some(stored_bytes);
    Ok(Some(file))
}

/// What lies in a participant's folder under this name, alone or at the end of a path.
pub async fn within(
    inspection: &mut Inspection,
    folder: &Path,
    asked: &str,
) -> Result<Option<File>, Error> {
    let end = asked.rsplit('/').next().unwrap_or(asked);
    let stored = |name: &str| size(&folder.join(name), name);
    let manifest =
        ObjectName::parse(asked).or_else(|| ObjectName::parse(&format!("manifest/{end}")));
    let mut file = match manifest {
        Some(ObjectName::Manifest(name)) => {
            let mut file = manifest_object(inspection, name);
            file.stored_bytes = stored(&file.name);
            if file.stored_bytes.is_none() && file.standing == "named" {
                // Deleted since the manifest was read, perhaps.
                inspection.refresh().await?;
                file = manifest_object(inspection, name);
                file.stored_bytes = stored(&file.name);
            }
            file
        }
        Some(ObjectName::Current | ObjectName::Shared(_)) | None => {
            let (kind, name, standing, reason) = match end {
                "CURRENT" => ("current", end, "own", CURRENT),
                "LOCK" => ("lock", end, "own", LOCK),
                _ if stored(asked).is_some()
                    && is_among(&inspection.unparsable().await?, asked) =>
                {
                    ("foreign", asked, "foreign", FOREIGN)
                }
                _ => return Ok(None),
            };
            let mut file = File::new(name, standing, reason);
            file.kind = Some(kind);
            file.stored_bytes = stored(name);
            file
        }
    };
    file.is_garbage = file.standing == "superseded";
    Ok((file.stored_bytes.is_some() || file.standing == "named").then_some(file))
}

fn manifest_object(inspection: &Inspection, name: ManifestName) -> File {
    let (kind, standing, reason) = match inspection.explain_manifest(name) {
        ManifestStanding::Record => (
            "record",
            "named",
            "a commit, as CURRENT names it: it stays until a whole manifest is named that holds it",
        ),
        ManifestStanding::Snapshot => (
            "snapshot",
            "named",
            "the whole manifest that CURRENT names: a reader begins with it",
        ),
        ManifestStanding::OlderSnapshot => (
            "snapshot",
            "named",
            "the whole manifest before the one a reader begins with: CURRENT names it so that one damaged object \
             loses nothing",
        ),
        ManifestStanding::UnderWay => (
            "manifest",
            "under_way",
            "a commit, a claim or a whole manifest that CURRENT does not name yet, or never will since it was \
             refused or came too late: its maker deletes it, or a holder's sweep",
        ),
        ManifestStanding::Superseded => (
            "manifest",
            "superseded",
            "CURRENT does not name it any more, or never did, and is past it: the holder, or the next one, deletes it",
        ),
        _ => (
            "manifest",
            "unknown",
            "this version of the command does not know",
        ),
    };
    let mut file = File::new(&name.to_string(), standing, reason);
    file.kind = Some(kind);
    file
}

/// Whether a name, or a folder that it lies in, is listed.
fn is_among(listed: &[String], asked: &str) -> bool {
    listed.iter().any(|name| match name.strip_suffix('/') {
        Some(folder) => Path::new(asked).starts_with(folder),
        None => name == asked,
    })
}

/// The length of what lies there, links not followed; `None` if nothing does, or if the name leads
/// elsewhere.
fn size(path: &Path, name: &str) -> Option<u64> {
    let mut parts = Path::new(name).components();
    let stays = !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)));
    let found = stays.then(|| fs::symlink_metadata(path))?;
    found.ok().map(|found| found.len())
}
