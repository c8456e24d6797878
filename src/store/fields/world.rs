//! A hash that changes, for tests of those who read it meanwhile.

use std::collections::BTreeMap;

use super::Fields;
use super::large::LargeHash;
use crate::store::{Before, Done, Edit, Keeping, KeyHasher, Now, Store, UnixMs, Value};

/// A field's value, and its expiry.
pub type Valued = (Vec<u8>, Option<UnixMs>);
/// The fields by their names.
pub type Model = BTreeMap<Vec<u8>, Valued>;

/// A shard with a hash, and what it should be.
pub(super) struct World {
    pub store: Store,
    pub hasher: KeyHasher,
    pub random: fastrand::Rng,
    pub key: &'static str,
    pub model: Model,
    /// The changes since it was `marked`, the newest last.
    log: Vec<(&'static str, Vec<Before>)>,
    marked: Model,
    time: UnixMs,
}

const KEYS: [&str; 2] = ["a hash", "its other name"];

impl World {
    pub fn new(seed: u64) -> Self {
        World {
            store: Store::default(),
            hasher: KeyHasher::default(),
            random: fastrand::Rng::with_seed(seed),
            key: KEYS[0],
            model: Model::new(),
            log: Vec::new(),
            marked: Model::new(),
            time: 1000,
        }
    }

    /// With fields named by the first numbers.
    pub fn filled(fields: u32) -> Self {
        let mut world = World::new(1);
        (0..fields).for_each(|number| world.set(number.to_le_bytes().to_vec()));
        world
    }

    pub fn edit<R>(&mut self, key: &'static str, work: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        let mut done = Done::keeping(Keeping::Before);
        let now = Now::at(self.time).with_horizon(self.time);
        let hash = self.hasher.hash(key.as_bytes());
        let (table, name) = (self.store.db(0), key.as_bytes());
        let result = work(&mut Edit::new(table, &self.hasher, hash, name, &now, &mut done));
        self.log.push((key, done.take_before().into_vec()));
        result
    }

    pub fn set(&mut self, name: Vec<u8>) {
        let value = vec![self.random.u8(..); self.random.usize(0..40)];
        let expire_at = self.random.u8(0..8).eq(&0).then(|| self.time + self.random.i64(0..100));
        self.model.insert(name.clone(), (value.clone(), expire_at));
        self.edit(self.key, |edit| edit.set_field(&name, Value::Inline(&value), expire_at))
            .expect("a hash");
    }

    pub fn remove(&mut self, name: &[u8]) {
        let was_there = self.model.remove(name).is_some();
        assert_eq!(self.edit(self.key, |edit| edit.remove_field(name)), was_there);
    }

    pub fn drawn(&mut self, names: u32) -> Vec<u8> {
        self.random.u32(0..names).to_le_bytes().to_vec()
    }

    pub fn change(&mut self, names: u32) {
        let name = self.drawn(names);
        match self.random.u32(0..1000) {
            0..600 => self.set(name),
            600..900 => self.remove(&name),
            900..980 => {
                let at = self.random.bool().then(|| self.time + self.random.i64(0..100));
                if let Some((_, expiry)) = self.model.get_mut(&name) {
                    *expiry = at;
                }
                self.edit(self.key, |edit| edit.expire_field(&name, at));
            }
            980..990 => {
                self.time += 5;
                let time = self.time;
                self.model.retain(|_, (_, expiry)| expiry.is_none_or(|at| at >= time));
                // Some segments at a time, of which some may have none that is due.
                for _ in 0..1000 {
                    self.edit(self.key, |edit| edit.remove_due_fields(&mut 0));
                    if self.len() == self.model.len() {
                        break;
                    }
                }
            }
            990..994 => self.rename(),
            994..996 => self.undo(),
            996..998 => self.mark(),
            // DEL, or SET over it; sometimes the log brings it back.
            _ => {
                self.edit(self.key, |edit| edit.remove());
                self.model.clear();
            }
        }
        assert_eq!(self.len(), self.model.len());
    }

    /// Whether these are the fields of the key now.
    pub fn has(&self, large: &LargeHash) -> bool {
        let (table, name) = (self.store.table(0).expect("the first"), self.key.as_bytes());
        let entry = table.look(self.hasher.hash(name), name);
        let fields = entry.and_then(|entry| Fields::of(entry).ok());
        matches!(fields, Some(Fields::Large(it)) if std::ptr::eq(it, large))
    }

    fn len(&mut self) -> usize {
        let fields = |edit: &mut Edit<'_>| edit.fields().map(|fields| fields.map(Fields::len));
        self.edit(self.key, fields).expect("a hash").unwrap_or(0)
    }

    /// The changes so far will not be taken back.
    fn mark(&mut self) {
        self.log.clear();
        self.marked = self.model.clone();
    }

    fn rename(&mut self) {
        let (from, to) = (self.key, KEYS[usize::from(self.key == KEYS[0])]);
        let entry = self.edit(from, |edit| edit.read().map(|it| it.copy_as(to.as_bytes())));
        let Some(entry) = entry else { return };
        self.edit(from, |edit| edit.remove());
        self.edit(to, |edit| edit.put(entry));
        self.key = to;
    }

    /// Takes all changes back that are in the log, the newest first.
    fn undo(&mut self) {
        for (key, before) in std::mem::take(&mut self.log).into_iter().rev() {
            before.into_iter().rev().for_each(|it| self.edit(key, |edit| edit.restore(it)));
        }
        self.model = self.marked.clone();
        self.log.clear();
        let there = |key: &&str| {
            let table = self.store.table(0).expect("the first database");
            table.find(self.hasher.hash(key.as_bytes()), key.as_bytes()).is_some()
        };
        self.key = KEYS.into_iter().find(there).unwrap_or(KEYS[0]);
    }
}
