//! `stillpoint explain FILE`: who refers to a file, and why it is or isn't garbage; what anything else
//! in a repository is.

use std::fmt::{self, Display};

use serde::Serialize;
use stillpoint::protocol::id::{FileName, ObjectName};
use stillpoint::{Config, Error, ErrorKind, Explanation, FileStanding, Inspection};

use crate::arguments::Explain;
use crate::exit::Exit;
use crate::objects;
use crate::output::{self, Outcome};
use crate::root::{Access, Root};
use crate::show;

#[derive(Serialize)]
struct Document {
    /// `None`: it lies beside the participants.
    participant: Option<String>,
    asked: String,
    files: Vec<File>,
}

/// One file or other object.
#[derive(Serialize)]
pub struct File {
    pub name: String,
    pub standing: &'static str,
    pub is_garbage: bool,
    reason: String,
    held_by: Vec<u64>,
    local: Option<String>,
    pub kind: Option<&'static str>,
    size_bytes: Option<u64>,
    checksum: Option<String>,
    pub stored_bytes: Option<u64>,
}

pub async fn run(asked: &Explain) -> Result<Outcome, Error> {
    let pasted = asked.file.trim();
    let mut root = Root::open(&asked.at, Access::Read, Config::default()).await?;
    let below = below_participant(&root, pasted)?;
    match &below {
        Some((participant, _)) => root.participants.retain(|name| name == participant),
        None => {
            if let Some(file) = objects::beside(&root, &asked.at.root, pasted).await? {
                return document(None, pasted, vec![file], Exit::Done);
            }
        }
    }
    let mut inspection = root.inspect_one().await?;
    let folder = root.repository.folder(inspection.participant())?;
    let folder = asked.at.root.join(folder);
    let rest = below.map_or(pasted, |(_, rest)| rest);
    if inspection.find(rest).is_empty()
        && let Some(file) = objects::within(&mut inspection, &folder, rest).await?
    {
        let exit = match file.stored_bytes {
            Some(_) => Exit::Done,
            None => Exit::CheckFailed,
        };
        return document(Some(&inspection), pasted, vec![file], exit);
    }
    let names = names(&inspection, rest)?;
    let mut files = Vec::new();
    let mut exits = Vec::new();
    for name in names {
        let mut explanation = inspection.explain(name).await?;
        if is_missing(&explanation) || explanation.standing == FileStanding::Orphaned {
            // Dropped and deleted since the manifest was read, perhaps, or made by an attempt that
            // has begun since.
            inspection.refresh().await?;
            explanation = inspection.explain(name).await?;
        }
        if is_missing(&explanation) {
            exits.push(Exit::CheckFailed);
        }
        if explanation.stored_bytes.is_some() || is_recorded(&explanation.standing) {
            files.push(File::of_state(
                &explanation,
                inspection.manifest().epoch().0,
            ));
        }
    }
    if files.is_empty() {
        let cause = "no record names such a file, and none is stored";
        let error = Error::new(ErrorKind::NotFound, cause);
        return Err(error
            .with_participant(inspection.participant())
            .with_file(pasted));
    }
    document(Some(&inspection), pasted, files, Exit::worst(exits))
}

fn document(
    inspection: Option<&Inspection>,
    asked: &str,
    files: Vec<File>,
    exit: Exit,
) -> Result<Outcome, Error> {
    let document = Document {
        participant: inspection.map(|inspection| inspection.participant().to_owned()),
        asked: asked.to_owned(),
        files,
    };
    Outcome::new(&document, exit)
}

/// A retained checkpoint refers to a file that is not there.
fn is_missing(explanation: &Explanation) -> bool {
    matches!(explanation.standing, FileStanding::Held { .. }) && explanation.stored_bytes.is_none()
}

fn is_recorded(standing: &FileStanding) -> bool {
    matches!(
        standing,
        FileStanding::Held { .. } | FileStanding::Released | FileStanding::Condemned
    )
}

/// The participant whose folder the pasted path leads through, and the rest of the path.
fn below_participant<'a>(root: &Root, pasted: &'a str) -> Result<Option<(String, &'a str)>, Error> {
    let parts = pasted.match_indices("participants/");
    for (at, _) in parts {
        for name in &root.participants {
            let folder = root.repository.folder(name)?;
            let rest = pasted[at..]
                .strip_prefix(&folder)
                .and_then(|rest| rest.strip_prefix('/'));
            if let Some(rest) = rest {
                return Ok(Some((name.clone(), rest)));
            }
        }
    }
    Ok(None)
}

/// The stored files that a pasted text names: as `shared/1/7` or `1/7`, alone or at the end of a
/// path, or by the name that they have in the state's directory.
fn names(inspection: &Inspection, pasted: &str) -> Result<Vec<FileName>, Error> {
    let parts: Vec<&str> = pasted.rsplitn(3, '/').collect();
    if let [number, attempt, rest @ ..] = &*parts {
        let shared = format!("shared/{attempt}/{number}");
        let is_shared = rest
            .first()
            .is_none_or(|rest| *rest == "shared" || rest.ends_with("/shared"));
        if let (true, Some(ObjectName::Shared(name))) = (is_shared, ObjectName::parse(&shared)) {
            return Ok(vec![name]);
        }
    }
    let end = parts.first().copied().unwrap_or(pasted);
    let mut found = inspection.find(pasted);
    if found.is_empty() {
        found = inspection.find(end);
    }
    if found.is_empty() {
        let cause = "no retained checkpoint has a file of this name; a stored file is named like `shared/1/7`";
        return Err(Error::new(ErrorKind::NotFound, cause)
            .with_participant(inspection.participant())
            .with_file(pasted));
    }
    Ok(found)
}

impl File {
    pub fn new(name: &str, standing: &'static str, reason: &str) -> Self {
        Self {
            name: name.to_owned(),
            standing,
            is_garbage: false,
            reason: reason.to_owned(),
            held_by: Vec::new(),
            local: None,
            kind: None,
            size_bytes: None,
            checksum: None,
            stored_bytes: None,
        }
    }

    fn of_state(explanation: &Explanation, epoch: u64) -> Self {
        let name = explanation.file.to_string();
        let mut file = Self::new(&name, standing(&explanation.standing), "");
        file.stored_bytes = explanation.stored_bytes;
        let attempt = explanation.file.attempt.0;
        file.reason = match &explanation.standing {
            FileStanding::Held { by, description } => {
                file.held_by = by.iter().map(|checkpoint| checkpoint.0).collect();
                file.local = Some(description.local.to_string());
                file.kind = Some(show::kind(description.kind));
                file.size_bytes = Some(description.digest.size_bytes);
                file.checksum = Some(description.digest.checksum.to_string());
                match explanation.stored_bytes {
                    Some(_) => "it stays as long as one of these checkpoints is retained".to_owned(),
                    None => "retained checkpoints refer to it and it is NOT THERE: they are damaged".to_owned(),
                }
            }
            FileStanding::Released => {
                "no retained checkpoint refers to it any more; its holder condemns it once nothing under way \
                 can need it"
                    .to_owned()
            }
            FileStanding::Condemned => {
                file.is_garbage = true;
                "it is condemned: nothing will ever refer to it again, and anybody may delete it".to_owned()
            }
            FileStanding::OfLiveAttempt => format!(
                "no checkpoint refers to it; attempt {attempt}, which made it, is the present one: the file belongs \
                 to a checkpoint under way, or its maker deletes it, or leaves it to the sweep"
            ),
            FileStanding::Orphaned => {
                file.is_garbage = true;
                format!(
                    "no record names it, and attempt {attempt}, which made it, is over (the repository is in epoch \
                     {epoch}): the next sweep of a holder condemns it"
                )
            }
            _ => "this version of the command does not know".to_owned(),
        };
        file
    }
}

/// A standing in a word.
pub fn standing(standing: &FileStanding) -> &'static str {
    match standing {
        FileStanding::Held { .. } => "held",
        FileStanding::Released => "released",
        FileStanding::Condemned => "condemned",
        FileStanding::OfLiveAttempt => "of_live_attempt",
        FileStanding::Orphaned => "orphaned",
        _ => "unknown",
    }
}

impl Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            let garbage = if file.is_garbage {
                "garbage"
            } else {
                "no garbage"
            };
            match &self.participant {
                Some(participant) => write!(f, "{} of {participant}", file.name)?,
                None => write!(f, "{}", file.name)?,
            }
            writeln!(f, ": {garbage} ({})", file.standing)?;
            if !file.held_by.is_empty() {
                let by: Vec<_> = file.held_by.iter().map(u64::to_string).collect();
                writeln!(f, "  referred to by  checkpoint {}", by.join(", "))?;
            }
            match (&file.local, file.kind) {
                (Some(local), Some(kind)) => writeln!(f, "  local name      {local} ({kind})")?,
                (None, Some(kind)) => writeln!(f, "  kind            {kind}")?,
                (_, None) => {}
            }
            if let (Some(size_bytes), Some(checksum)) = (file.size_bytes, &file.checksum) {
                writeln!(
                    f,
                    "  recorded        {}, checksum {checksum}",
                    output::bytes(size_bytes)
                )?;
            }
            match file.stored_bytes {
                Some(size_bytes) => writeln!(f, "  stored          {}", output::bytes(size_bytes))?,
                None => writeln!(f, "  stored          no")?,
            }
            writeln!(f, "  {}", file.reason)?;
        }
        Ok(())
    }
}
