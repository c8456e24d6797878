//! Keys of a shard that clients of the ports watch. Each client has a flag. A thread that changes
//! one of its keys raises the flag while it holds the shard.
//!
//! A client that no longer watches drops its flag. Its observers here are removed when the same
//! name is changed or watched, and after as many changes of others as names are watched.
//!
//! Of a long name only the beginning and a hash are kept. Another key with the same beginning and
//! hash is taken for it: a client is then notified of one change too many, but never of one too
//! few.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::limits::OBSERVED_NAME_BYTES;

/// Watched names, and the clients that watch each, by database.
#[derive(Default)]
pub struct Observed {
    /// By name, as [`Observed::kept`] shortens it.
    by_name: HashMap<Box<[u8]>, Observers>,
    hasher: RandomState,
    asked: u64,
    /// Changes since observers that are gone were last removed.
    changes: usize,
}

#[derive(Default)]
struct Observers {
    list: SmallVec<[Observer; 1]>,
    /// The number of the last request for this name.
    asked: u64,
}

struct Observer {
    db: u32,
    flag: Weak<AtomicBool>,
}

impl Observer {
    /// Notifies the client, if it still watches.
    fn raise(&self) {
        if let Some(flag) = self.flag.upgrade() {
            // Relaxed: read by the next holder of the shard.
            flag.store(true, Ordering::Relaxed);
        }
    }

    fn is_of(&self, flag: &Arc<AtomicBool>) -> bool {
        self.flag.as_ptr() == Arc::as_ptr(flag)
    }

    fn is_live(&self) -> bool {
        self.flag.strong_count() > 0
    }
}

fn is_long(name: &[u8]) -> bool {
    name.len() > OBSERVED_NAME_BYTES
}

impl Observed {
    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// All names that are kept in full.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.by_name.keys().map(|name| &**name).filter(|name| !is_long(name))
    }

    /// The form in which a name is kept. That of a long name is itself longer than a short name can
    /// be, so it cannot equal one.
    fn kept<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        if !is_long(key) {
            return Cow::Borrowed(key);
        }
        let hash = self.hasher.hash_one(key).to_ne_bytes();
        Cow::Owned([&key[..OBSERVED_NAME_BYTES], &hash].concat())
    }

    /// From now on the flag is raised when the key changes. If `most` names are watched already,
    /// those requested longest ago are given up, and their clients are notified of a change. False
    /// if the flag was there for that key.
    pub fn observe(&mut self, db: u32, key: &[u8], flag: &Arc<AtomicBool>, most: usize) -> bool {
        let name = self.kept(key);
        if self.by_name.len() >= most && !self.by_name.contains_key(&*name) {
            self.make_room(most);
        }
        self.asked += 1;
        let observers = self.by_name.entry(name.into()).or_default();
        observers.asked = self.asked;
        let list = &mut observers.list;
        if list.iter().any(|observer| observer.db == db && observer.is_of(flag)) {
            return false;
        }
        // Done before it grows, so each dead observer is passed over only a few times.
        if list.len() == list.capacity() {
            list.retain(|observer| observer.is_live());
        }
        list.push(Observer { db, flag: Arc::downgrade(flag) });
        true
    }

    /// Frees at least an eighth of the room, so that a new name costs only a few checks of others.
    fn make_room(&mut self, most: usize) {
        self.remove_gone();
        let wanted = most.div_ceil(8);
        if self.by_name.len() + wanted <= most {
            return;
        }
        let mut asked: Vec<u64> = self.by_name.values().map(|observers| observers.asked).collect();
        let (_, &mut last, _) = asked.select_nth_unstable(wanted - 1);
        let given_up = self.by_name.extract_if(|_, observers| observers.asked <= last);
        given_up.for_each(|(_, observers)| observers.list.iter().for_each(Observer::raise));
    }

    fn remove_gone(&mut self) {
        self.by_name.retain(|_, observers| {
            observers.list.retain(|observer| observer.is_live());
            !observers.list.is_empty()
        });
    }

    /// The key has changed: raises the flags of its clients, once.
    pub fn raise(&mut self, db: u32, key: &[u8]) {
        self.changes += 1;
        // Amortised, one look a change. Writes to a shard without observers take a shorter way.
        if self.changes >= self.by_name.len() {
            self.changes = 0;
            self.remove_gone();
        }
        self.take_out(key, |observer| {
            if observer.db == db {
                observer.raise();
            }
            observer.db == db
        });
    }

    /// Any key of that database with a long name may have changed.
    pub fn raise_long(&mut self, db: u32) {
        for observers in self.by_name.iter().filter(|(name, _)| is_long(name)).map(|(_, list)| list)
        {
            observers.list.iter().filter(|observer| observer.db == db).for_each(Observer::raise);
        }
    }

    /// The client with this flag no longer watches the key.
    pub fn forget(&mut self, db: u32, key: &[u8], flag: &Arc<AtomicBool>) {
        self.take_out(key, |observer| observer.db == db && observer.is_of(flag));
    }

    /// Removes the observers of a name for which `goes` is true, and dead ones.
    fn take_out(&mut self, key: &[u8], mut goes: impl FnMut(&Observer) -> bool) {
        let name = self.kept(key);
        let Some(observers) = self.by_name.get_mut(&*name) else { return };
        observers.list.retain(|observer| !goes(observer) && observer.is_live());
        if observers.list.is_empty() {
            self.by_name.remove(&*name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag() -> Arc<AtomicBool> {
        Arc::default()
    }

    fn is_raised(flag: &Arc<AtomicBool>) -> bool {
        flag.load(Ordering::Relaxed)
    }

    #[test]
    fn a_change_is_told_to_those_who_watch_that_key_of_that_database() {
        let mut observed = Observed::default();
        let flags = [flag(), flag(), flag()];
        assert!(observed.observe(0, b"a", &flags[0], 10));
        assert!(!observed.observe(0, b"a", &flags[0], 10), "twice");
        assert!(observed.observe(1, b"a", &flags[1], 10));
        assert!(observed.observe(0, b"b", &flags[2], 10));
        observed.raise(0, b"a");
        observed.raise(0, b"c");
        assert_eq!(flags.each_ref().map(is_raised), [true, false, false]);
        observed.forget(0, b"b", &flags[2]);
        observed.raise(0, b"b");
        assert!(!is_raised(&flags[2]));
        observed.raise(1, b"a");
        assert!(is_raised(&flags[1]) && observed.is_empty());
    }

    #[test]
    fn long_names_are_told_apart_and_not_kept() {
        let mut observed = Observed::default();
        let name = |last: char| format!("{}{last}", "n".repeat(1 << 20));
        let flags = [flag(), flag()];
        assert!(observed.observe(0, name('a').as_bytes(), &flags[0], 10));
        assert!(observed.observe(1, name('b').as_bytes(), &flags[1], 10));
        assert!(
            observed.by_name.keys().all(|kept| kept.len() < 1000) && observed.names().count() == 0
        );
        observed.raise(0, name('b').as_bytes());
        observed.raise(0, name('c').as_bytes());
        assert_eq!(flags.each_ref().map(is_raised), [false, false]);
        observed.raise(0, name('a').as_bytes());
        observed.raise_long(0);
        assert_eq!(flags.each_ref().map(is_raised), [true, false]);
        observed.raise_long(1);
        assert!(is_raised(&flags[1]));
    }

    #[test]
    fn observers_that_are_gone_leave_nothing_for_long() {
        let mut observed = Observed::default();
        for _ in 0..1000 {
            observed.observe(0, b"a", &flag(), 10);
        }
        assert!(observed.by_name[&b"a"[..]].list.len() <= 2);
        let live = flag();
        observed.observe(0, b"a", &live, 10);
        for number in 0..1000 {
            observed.observe(0, format!("k{number}").as_bytes(), &flag(), 10);
        }
        assert!(observed.by_name.len() <= 10);
        assert!(!is_raised(&live), "it was not the turn of one that is alive");
    }

    #[test]
    fn changes_of_other_keys_remove_observers_that_are_gone() {
        let (mut observed, live) = (Observed::default(), flag());
        observed.observe(0, b"live", &live, 10);
        observed.observe(0, b"a", &flag(), 10);
        observed.observe(0, b"b", &flag(), 10);
        (0..3).for_each(|_| observed.raise(0, b"c"));
        assert_eq!(observed.by_name.len(), 1);
        drop(live);
        observed.raise(0, b"c");
        assert!(observed.is_empty());
    }

    #[test]
    fn the_stalest_is_given_up_as_changed() {
        let mut observed = Observed::default();
        let flags: Vec<_> = (0..5).map(|_| flag()).collect();
        for (number, flag) in flags.iter().enumerate() {
            observed.observe(0, &[number as u8], flag, 3);
        }
        assert_eq!(
            flags.iter().map(is_raised).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
        assert_eq!(observed.by_name.len(), 3);
    }
}
