//! Keys of a shard whose changes somebody wants to hear of.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::UnixMs;
use super::observed::Observed;

/// Names of keys that are watched: by the host, in whichever databases, for it does not say
/// who asks; and by clients of the ports.
/// Boxed, because few shards have any: a shard is to stay within 256 bytes.
#[derive(Default)]
pub struct Watched(Option<Box<Marks>>);

#[derive(Default)]
struct Marks {
    by_name: HashMap<Box<[u8]>, Mark>,
    asked: u64,
    observed: Observed,
}

/// What is known of a watched name.
#[derive(Default)]
pub struct Mark {
    /// Databases in which it has changed since it was last asked for.
    pub told: SmallVec<[u32; 2]>,
    /// Databases in which it expires if it does not change, and when.
    pub due: SmallVec<[(u32, UnixMs); 1]>,
    asked: u64,
}

impl Watched {
    /// Whether nothing is watched.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How many names the host watches.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |marks| marks.by_name.len())
    }

    /// From here on the flag of a port's client is raised when the key changes. See
    /// [`Observed::observe`] for the rest.
    pub fn observe(&mut self, db: u32, key: &[u8], flag: &Arc<AtomicBool>, most: usize) -> bool {
        self.0.get_or_insert_default().observed.observe(db, key, flag, most)
    }

    /// The client with this flag does not watch the key any more.
    pub fn forget(&mut self, db: u32, key: &[u8], flag: &Arc<AtomicBool>) {
        self.with_observed(|observed| observed.forget(db, key, flag));
    }

    /// Raises the flags of the ports' clients that watch this key.
    pub fn raise(&mut self, db: u32, key: &[u8]) {
        self.with_observed(|observed| observed.raise(db, key));
    }

    /// Where clients of the ports watch anything: what is not watched any more then goes.
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

    /// Whether a change of this key would be news to the host.
    pub fn concerns(&self, db: u32, key: &[u8]) -> bool {
        let mark = self.0.as_ref().and_then(|marks| marks.by_name.get(key));
        mark.is_some_and(|mark| !mark.told.contains(&db))
    }

    /// The mark of a name that is asked for now: a new one, but for when it expires.
    pub fn ask(&mut self, key: &[u8]) -> &mut Mark {
        let marks = self.0.get_or_insert_default();
        marks.asked += 1;
        let mark = marks.by_name.entry(key.into()).or_default();
        mark.asked = marks.asked;
        mark.told.clear();
        mark
    }

    /// The mark of a name, if it is watched.
    pub fn mark(&mut self, key: &[u8]) -> Option<&mut Mark> {
        self.0.as_mut()?.by_name.get_mut(key)
    }

    /// All names, for changes of whole databases.
    pub fn names(&self) -> Vec<Box<[u8]>> {
        self.0.as_ref().map_or_else(Vec::new, |marks| {
            let marked = marks.by_name.keys().cloned();
            marked.chain(marks.observed.names().map(Into::into)).collect()
        })
    }

    /// Takes out the name that is most likely not watched any more: one that has
    /// changed, else the one that was asked for longest ago.
    pub fn take_stalest(&mut self) -> Option<(Box<[u8]>, Mark)> {
        let by_name = &mut self.0.as_mut()?.by_name;
        let stalest = by_name.iter().min_by_key(|(_, mark)| (mark.told.is_empty(), mark.asked));
        let name = stalest.map(|(name, _)| name.clone())?;
        by_name.remove_entry(&name)
    }
}
