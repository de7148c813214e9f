//! What an attempt says without its packs: the specification knows of no file of one snapshot alone.

use stillpoint::protocol::file::{FileKind, FileSet};
use stillpoint::protocol::id::FileName;
use stillpoint::protocol::message::{Acknowledge, Attach};

/// Takes the packs out of an acknowledgement; a name that it drops is a pack's unless `is_file`.
pub(crate) fn strip_acknowledgement(said: &mut Acknowledge, is_file: impl Fn(&FileName) -> bool) {
    match &mut said.files {
        FileSet::Delta { added, removed, .. } => {
            added.retain(|file| file.kind == FileKind::State);
            removed.retain(is_file);
        }
        FileSet::Full(files) => files.retain(|file| file.kind == FileKind::State),
    }
}

/// Takes the packs out of what an attachment declares.
pub(crate) fn strip_attachment(said: &mut Attach, is_file: impl Fn(&FileName) -> bool) {
    for (_, declared) in &mut said.declared {
        declared.retain(&is_file);
    }
    said.declared.retain(|(_, declared)| !declared.is_empty());
}
