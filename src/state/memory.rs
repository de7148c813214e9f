//! State in memory: an ordered map of bytes, for small state and for tests.
//!
//! ```text
//! writers ──> Arc<map> ──snapshot──> the same Arc        no copy, whatever the size
//!     └ the first write after it copies the map if the snapshot still needs the old one
//! ```
//! A snapshot has no state files; its pack has one entry with the whole map, in the order of the
//! keys: number of pairs u64, then for each pair length of the key u32, length of the value u32,
//! key, value, little-endian. So each checkpoint stores all of it again: this is for state of a few
//! megabytes. Keys and values are shared between the copies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::failure::failed;
use super::pack::Pack;
use super::secured::{Secured, SecuredPack};
use super::{Cut, StateBackend, unlinked};
use crate::protocol::answer::{Failure, FailureKind};
use crate::protocol::id::LocalName;

/// The file that a restore leaves in the state's directory.
pub const MEMORY_STATE_NAME: &str = "state.memory";

type Map = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

/// A handle on a map of bytes; its clones are handles on the same map.
///
/// ```
/// use stillpoint::state::{MemoryState, StateBackend};
///
/// let state = MemoryState::new();
/// state.put(b"apples", b"3");
/// let cut = state.snapshot()?;
/// state.put(b"apples", b"4");             // not in the cut
///
/// let directory = tempfile::tempdir()?;
/// # use std::io::Cursor;
/// # use stillpoint::state::{SecuredPack, pack::StoredPack};
/// let SecuredPack::Bytes(pack) = cut.secure(&[])?.pack else {
///     unreachable!("this state's packs are small");
/// };
/// StoredPack::open(Cursor::new(pack))?.unpack(directory.path())?;
/// let restored = MemoryState::open(directory.path())?;
/// assert_eq!(restored.get(b"apples").as_deref(), Some(&b"3"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    map: Arc<RwLock<Arc<Map>>>,
    /// Where it was opened; `None` if it was made anew.
    opened_from: Option<Arc<Path>>,
}

impl MemoryState {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The map that a restore put into `directory`.
    ///
    /// # Errors
    /// [`FailureKind::NotFound`] if there is none, which is not an empty one; other kinds if it
    /// can't be read or is not what a snapshot wrote.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(MEMORY_STATE_NAME);
        let doing = format_args!("reading {}", path.display()).to_string();
        // A state may be as large as it is: no bound but that of a regular file.
        let bytes = unlinked::read(&path, u64::MAX).map_err(|error| failed(&error, &doing))?;
        let map = decode(&bytes).ok_or_else(|| {
            Failure::new(
                FailureKind::Corrupt,
                format!("{doing}: a length in it does not fit"),
            )
        })?;
        Ok(Self {
            map: Arc::new(RwLock::new(Arc::new(map))),
            opened_from: Some(whole(directory).into()),
        })
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Arc<[u8]>> {
        self.map.read().get(key).cloned()
    }

    /// Gives a key a value.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        self.write().put(key, value);
    }

    /// Removes a key.
    pub fn delete(&self, key: &[u8]) {
        self.write().delete(key);
    }

    /// Holds the map for several changes that belong together: a snapshot sees all or none.
    #[must_use]
    pub fn write(&self) -> MemoryBatch<'_> {
        MemoryBatch(self.map.write())
    }

    /// Holds the map for reading.
    #[must_use]
    pub fn read(&self) -> MemoryView<'_> {
        MemoryView(self.map.read())
    }
}

/// The map, held for changes.
#[derive(Debug)]
pub struct MemoryBatch<'a>(RwLockWriteGuard<'a, Arc<Map>>);

impl MemoryBatch<'_> {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key).map(|value| &**value)
    }

    /// Gives a key a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        Arc::make_mut(&mut self.0).insert(key.into(), value.into());
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &[u8]) {
        if self.0.contains_key(key) {
            Arc::make_mut(&mut self.0).remove(key);
        }
    }
}

/// The map, held for reading.
#[derive(Debug)]
pub struct MemoryView<'a>(RwLockReadGuard<'a, Arc<Map>>);

impl MemoryView<'_> {
    /// All pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl StateBackend for MemoryState {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn attach(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn is_restored_from(&self, directory: &Path) -> bool {
        self.opened_from.as_deref() == Some(&*whole(directory))
    }

    fn prepare(&self) {}

    fn snapshot(&self) -> Result<Cut, Failure> {
        let map = Arc::clone(&self.map.read());
        Ok(Cut::new(Vec::new(), move |_wanted| {
            let name = LocalName::new(MEMORY_STATE_NAME)
                .map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
            let mut pack = Pack::new();
            pack.push(name, encode(&map)?)?;
            Ok(Secured {
                files: Vec::new(),
                pack: SecuredPack::Bytes(pack.encode()?),
                copied: Default::default(),
            })
        }))
    }
}

/// A path that says the same from everywhere, as far as there is something.
fn whole(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn encode(map: &Map) -> Result<Vec<u8>, Failure> {
    let size = |bytes: &[u8]| {
        u32::try_from(bytes.len()).map_err(|_| {
            Failure::new(
                FailureKind::TooLarge,
                format!("a key or value of {} bytes", bytes.len()),
            )
        })
    };
    let mut out = (map.len() as u64).to_le_bytes().to_vec();
    for (key, value) in map {
        out.extend(size(key)?.to_le_bytes());
        out.extend(size(value)?.to_le_bytes());
        out.extend(&**key);
        out.extend(&**value);
    }
    Ok(out)
}

fn decode(bytes: &[u8]) -> Option<Map> {
    let (count, mut rest) = bytes.split_first_chunk()?;
    let mut map = Map::new();
    for _ in 0..u64::from_le_bytes(*count) {
        let (key_bytes, after) = rest.split_first_chunk()?;
        let (value_bytes, after) = after.split_first_chunk()?;
        let (key, after) = after.split_at_checked(u32::from_le_bytes(*key_bytes) as usize)?;
        let (value, after) = after.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
        if map.insert(key.into(), value.into()).is_some() {
            return None;
        }
        rest = after;
    }
    rest.is_empty().then_some(map)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::state::pack::StoredPack;

    fn restore(cut: Cut) -> MemoryState {
        let directory = tempfile::tempdir().unwrap();
        let SecuredPack::Bytes(pack) = cut.secure(&[]).unwrap().pack else {
            panic!("it is in memory");
        };
        let mut pack = StoredPack::open(Cursor::new(pack)).unwrap();
        pack.unpack(directory.path()).unwrap();
        MemoryState::open(directory.path()).unwrap()
    }

    fn pairs(state: &MemoryState) -> Vec<(Vec<u8>, Vec<u8>)> {
        state
            .read()
            .iter()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect()
    }

    #[test]
    fn a_cut_is_one_instant() {
        let state = MemoryState::new();
        state.put(b"a", b"1");
        state.put(b"b", b"2");
        let cut = state.snapshot().unwrap();
        assert!(cut.files().is_empty());
        let mut batch = state.write();
        batch.put(b"a", b"9");
        batch.delete(b"b");
        drop(batch);
        let later = state.snapshot().unwrap();
        assert_eq!(
            pairs(&restore(cut)),
            [
                (b"a".to_vec(), b"1".to_vec()),
                (b"b".to_vec(), b"2".to_vec())
            ]
        );
        assert_eq!(pairs(&restore(later)), [(b"a".to_vec(), b"9".to_vec())]);
    }

    #[test]
    fn an_empty_map_is_not_an_absent_one() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            MemoryState::open(directory.path()).unwrap_err().kind,
            FailureKind::NotFound
        );
        let state = restore(MemoryState::new().snapshot().unwrap());
        assert!(state.read().is_empty());
        fs::write(directory.path().join(MEMORY_STATE_NAME), b"").unwrap();
        assert_eq!(
            MemoryState::open(directory.path()).unwrap_err().kind,
            FailureKind::Corrupt
        );
    }

    #[test]
    fn a_name_that_is_not_listed_is_refused() {
        let cut = MemoryState::new().snapshot().unwrap();
        let wanted = [LocalName::new("000007.sst").unwrap()];
        assert_eq!(cut.secure(&wanted).unwrap_err().kind, FailureKind::NotFound);
    }

    proptest! {
        #[test]
        fn every_map_reads_back(pairs in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..5), prop::collection::vec(any::<u8>(), 0..5), 0..20)) {
            let map: Map = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            prop_assert_eq!(decode(&encode(&map).unwrap()), Some(map));
        }

        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(map) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&map).unwrap()), Some(map));
            }
        }
    }
}
