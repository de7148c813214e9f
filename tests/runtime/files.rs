//! A state that is a directory of immutable files, as RocksDB's is, without any C++.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use stillpoint::protocol::answer::{Failure, FailureKind};
use stillpoint::protocol::id::LocalName;
use stillpoint::state::pack::Pack;
use stillpoint::state::{
    AttemptDirectory, Cut, OWN_FOLDER, Secured, SecuredFile, SecuredPack, StateBackend, StateFile,
};

const LIST: &str = "CURRENT";

/// Immutable files in a directory; `CURRENT` lists the live ones.
#[derive(Clone, Debug)]
pub struct Files {
    directory: PathBuf,
    live: Arc<Mutex<BTreeMap<String, u64>>>,
    attempt: Arc<AttemptDirectory>,
}

impl Files {
    /// Opens the directory that a restore filled.
    pub fn open(directory: &Path) -> Self {
        let listed = fs::read_to_string(directory.join(LIST)).unwrap_or_default();
        let length = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
        let live = listed
            .lines()
            .map(|name| (name.to_owned(), length(name)))
            .collect();
        let attempt = AttemptDirectory::create(&directory.join(OWN_FOLDER).join("links")).unwrap();
        Self {
            directory: directory.to_owned(),
            live: Arc::new(Mutex::new(live)),
            attempt: Arc::new(attempt),
        }
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.directory.join(name), content).unwrap();
        self.live
            .lock()
            .unwrap()
            .insert(name.to_owned(), content.len() as u64);
    }

    pub fn delete(&self, name: &str) {
        fs::remove_file(self.directory.join(name)).unwrap();
        self.live.lock().unwrap().remove(name);
    }

    /// The live files with their content.
    pub fn read(&self) -> BTreeMap<String, Vec<u8>> {
        let live = self.live.lock().unwrap();
        let read = |name: &String| fs::read(self.directory.join(name)).unwrap();
        live.keys().map(|name| (name.clone(), read(name))).collect()
    }
}

impl StateBackend for Files {
    fn kind(&self) -> &'static str {
        "files"
    }

    fn attach(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        let live = self.live.lock().unwrap().clone();
        let name = |text: &str| LocalName::new(text).unwrap();
        let files: Vec<_> = live
            .iter()
            .map(|(text, size_bytes)| StateFile {
                name: name(text),
                size_bytes: *size_bytes,
            })
            .collect();
        // Links of all: what is deleted after the cut must stay readable.
        let attempt = Arc::clone(&self.attempt);
        let mut copied = stillpoint::state::Copied::default();
        let mut links = BTreeMap::new();
        for file in &files {
            let source = self.directory.join(file.name.as_str());
            let link = SecuredFile::link(&source, file, &self.attempt, &mut copied)?;
            links.insert(file.name.clone(), link);
        }
        Ok(Cut::new(files, move |wanted| {
            let mut pack = Pack::new();
            let list: Vec<_> = live.keys().cloned().collect();
            pack.push(LocalName::new(LIST).unwrap(), list.join("\n").into_bytes())?;
            let taken = wanted.iter().map(|file| {
                let missing = || Failure::new(FailureKind::NotFound, "no such file");
                links.remove(&file.name).ok_or_else(missing)
            });
            Ok(Secured {
                files: taken.collect::<Result<_, _>>()?,
                pack: SecuredPack::File(SecuredFile::write_pack(pack, &attempt)?),
                copied,
            })
        }))
    }
}
