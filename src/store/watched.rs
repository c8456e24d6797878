//! Keys of a shard whose changes are watched.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::UnixMs;
use super::observed::Observed;

/// Names of keys that are watched: by the host, in any database, because it does not report which;
/// and by clients of the ports. Boxed, because few shards have any, and a shard must stay within
/// 256 bytes.
#[derive(Default)]
pub struct Watched(Option<Box<WatchedNames>>);

#[derive(Default)]
struct WatchedNames {
    by_name: HashMap<Arc<[u8]>, WatchedName>,
    observed: Observed,
}

/// The mark of a watched name.
#[derive(Default)]
pub struct WatchedName {
    /// Databases in which it has changed since its last request.
    pub told: SmallVec<[u32; 2]>,
    /// Databases in which it expires if it does not change, and when.
    pub due: SmallVec<[(u32, UnixMs); 1]>,
}

impl Watched {
    /// Whether nothing is watched.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// From now on the flag of a port's client is raised when the key changes. For the parameters
    /// and the result see [`Observed::observe`].
    pub fn observe(&mut self, db: u32, key: &[u8], flag: &Arc<AtomicBool>, most: usize) -> bool {
        self.0.get_or_insert_default().observed.observe(db, key, flag, most)
    }

    /// The client with this flag no longer watches the key.
    pub fn forget(&mut self, db: u32, key: &[u8], flag: &Arc<AtomicBool>) {
        self.with_observed(|observed| observed.forget(db, key, flag));
    }

    /// Raises the flags of the ports' clients that watch this key.
    pub fn raise(&mut self, db: u32, key: &[u8]) {
        self.with_observed(|observed| observed.raise(db, key));
    }

    /// Calls `change` if clients of the ports watch anything; then frees the box if nothing is
    /// watched.
    fn with_observed(&mut self, change: impl FnOnce(&mut Observed)) {
        let Some(marks) = &mut self.0 else { return };
        if marks.observed.is_empty() {
            return;
        }
        change(&mut marks.observed);
        if marks.observed.is_empty() && marks.by_name.is_empty() {
            self.0 = None;
        }
    }

    /// Whether the host watches anything.
    #[inline]
    pub fn has_marks(&self) -> bool {
        self.0.as_ref().is_some_and(|marks| !marks.by_name.is_empty())
    }

    /// Whether the host must be notified of a change of this key.
    pub fn concerns(&self, db: u32, key: &[u8]) -> bool {
        let mark = self.0.as_ref().and_then(|marks| marks.by_name.get(key));
        mark.is_some_and(|mark| !mark.told.contains(&db))
    }

    /// Whether the host watches this name in some database.
    pub fn has_mark(&self, key: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|marks| marks.by_name.contains_key(key))
    }

    /// The mark of a name that is requested now: no database has been notified; its expiries stay.
    pub fn ask(&mut self, name: &Arc<[u8]>) -> &mut WatchedName {
        let marks = self.0.get_or_insert_default();
        let mark = marks.by_name.entry(Arc::clone(name)).or_default();
        mark.told.clear();
        mark
    }

    /// Takes out the mark of a name that is no longer watched.
    pub fn remove(&mut self, name: &[u8]) -> Option<WatchedName> {
        let marks = self.0.as_mut()?;
        let mark = marks.by_name.remove(name);
        if marks.observed.is_empty() && marks.by_name.is_empty() {
            self.0 = None;
        }
        mark
    }

    /// Raises the flags of the ports' clients that watch keys of that database whose names are too
    /// long to keep.
    pub fn raise_long(&mut self, db: u32) {
        self.with_observed(|observed| observed.raise_long(db));
    }

    /// The mark of a name, if it is watched.
    pub fn mark(&mut self, key: &[u8]) -> Option<&mut WatchedName> {
        self.0.as_mut()?.by_name.get_mut(key)
    }

    /// All names that are known in full, for changes of whole databases.
    pub fn names(&self) -> Vec<Box<[u8]>> {
        self.0.as_ref().map_or_else(Vec::new, |marks| {
            let marked = marks.by_name.keys().map(|name| &**name);
            marked.chain(marks.observed.names()).map(Into::into).collect()
        })
    }
}
