use std::collections::BTreeMap;

use super::*;
use crate::store::{Before, Done, Edit, Keeping, Now, UnixMs};

/// A field's value, and its expiry.
type Valued = (Vec<u8>, Option<UnixMs>);
type Model = BTreeMap<Vec<u8>, Valued>;

/// One that is read while the hash changes: what it must give, and what it has given.
struct PinnedRead {
    pin: FieldsPin,
    expected: Model,
    given: Vec<(Vec<u8>, Valued)>,
}

impl PinnedRead {
    /// Reads some more. False at the end, once all has been checked.
    fn read(&mut self, world: &World) -> bool {
        let store = &world.store;
        if let Some(large) = self.pin.large().filter(|large| world.has(large)) {
            assert!(large.pins.home.get() == world.hasher.hash(world.key.as_bytes()));
        }
        let (few, given) = (self.given.len().is_multiple_of(3), &mut self.given);
        let mut visit = |field: FieldRef<'_>| {
            given.push((field.name.to_vec(), (field.value.to_vec(), field.expire_at)));
        };
        if self.pin.needs_shard() {
            self.pin.visit_some(store, few, &mut visit).expect("no limit");
            return true;
        }
        if self.pin.visit_changed(few, &mut visit) {
            return true;
        }
        let count = self.given.len();
        let given: Model = std::mem::take(&mut self.given).into_iter().collect();
        assert_eq!(given.len(), count, "a field came twice");
        assert!(given == self.expected, "{count} fields of {}", self.expected.len());
        false
    }
}

/// A shard with a hash, and what it should be.
struct World {
    store: Store,
    hasher: KeyHasher,
    random: fastrand::Rng,
    key: &'static str,
    model: Model,
    /// The changes since it was `marked`, the newest last.
    log: Vec<(&'static str, Vec<Before>)>,
    marked: Model,
    time: UnixMs,
}

const KEYS: [&str; 2] = ["a hash", "its other name"];

impl World {
    fn new(seed: u64) -> Self {
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

    fn edit<R>(&mut self, key: &'static str, work: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        let mut done = Done::keeping(Keeping::Before);
        let now = Now::at(self.time).with_horizon(self.time);
        let hash = self.hasher.hash(key.as_bytes());
        let (table, name) = (self.store.db(0), key.as_bytes());
        let result = work(&mut Edit::new(table, &self.hasher, hash, name, &now, &mut done));
        self.log.push((key, done.take_before().into_vec()));
        result
    }

    fn set(&mut self, name: Vec<u8>) {
        let value = vec![self.random.u8(..); self.random.usize(0..40)];
        let expire_at = self.random.u8(0..8).eq(&0).then(|| self.time + self.random.i64(0..100));
        self.model.insert(name.clone(), (value.clone(), expire_at));
        self.edit(self.key, |edit| edit.set_field(&name, Value::Inline(&value), expire_at))
            .expect("a hash");
    }

    fn remove(&mut self, name: &[u8]) {
        let was_there = self.model.remove(name).is_some();
        assert_eq!(self.edit(self.key, |edit| edit.remove_field(name)), was_there);
    }

    fn drawn(&mut self, names: u32) -> Vec<u8> {
        self.random.u32(0..names).to_le_bytes().to_vec()
    }

    fn change(&mut self, names: u32) {
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
    fn has(&self, large: &LargeHash) -> bool {
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

    fn pin(&mut self, most: usize) -> Option<FieldsPin> {
        self.edit(self.key, |edit| edit.pin_fields(most))
    }

    fn reader(&mut self) -> Option<PinnedRead> {
        let pin = self.pin(usize::MAX)?;
        Some(PinnedRead { pin, expected: self.model.clone(), given: Vec::new() })
    }
}

/// While the hash grows and shrinks, is removed, renamed and brought back, each pin gives it as it
/// was when it was pinned, and each field once.
#[test]
fn a_pin_reads_one_moment() {
    let (mut read, mut changed) = (0, 0);
    for seed in 0..4 {
        let mut world = World::new(seed);
        let mut readers: Vec<PinnedRead> = Vec::new();
        for _ in 0..8 {
            // From a few to some thousand: splits and merges.
            let names = 1 << world.random.u32(6..13);
            for _ in 0..world.random.u32(0..names) {
                if world.random.bool() {
                    let name = world.drawn(names);
                    world.set(name);
                }
            }
            for _ in 0..world.random.usize(0..400) {
                world.change(names);
                if readers.len() < 4 && world.random.u8(0..10) == 0 {
                    readers.extend(world.reader());
                }
                if world.random.u8(0..20) == 0 {
                    readers.retain_mut(|reader| {
                        let goes_on = reader.read(&world);
                        read += u32::from(!goes_on);
                        changed += reader.pin.changed.as_ref().map_or(0, |table| table.len());
                        goes_on
                    });
                }
            }
            if world.random.u8(0..8) == 0 {
                readers.clear();
            }
        }
        for mut reader in readers {
            while reader.read(&world) {}
        }
    }
    assert!(read > 30 && changed > 300, "{read} {changed}");
}

fn filled(fields: u32) -> World {
    let mut world = World::new(1);
    (0..fields).for_each(|number| world.set(number.to_le_bytes().to_vec()));
    world
}

#[test]
fn a_pin_gives_up_when_it_keeps_too_much() {
    let mut world = filled(2000);
    let mut pin = world.pin(10_000).expect("a large hash");
    let mut count = 0;
    assert!(pin.visit_some(&world.store, false, &mut |_| count += 1).expect("room") < 10_000);
    assert!(0 < count && count < 2000);
    (0..2000).for_each(|number: u32| world.set(number.to_le_bytes().to_vec()));
    assert!(pin.visit_some(&world.store, false, &mut |_| ()).is_err());
}

#[test]
fn a_hash_forgets_a_pin_that_has_ended() {
    let mut world = filled(2000);
    let (dropped, mut ended) = (world.pin(1000), world.pin(usize::MAX).expect("a large hash"));
    drop(dropped);
    let are_any =
        |pin: &FieldsPin| pin.large().is_some_and(|large| large.pins.are_any.load(Relaxed));
    while ended.needs_shard() {
        assert!(are_any(&ended));
        ended.visit_some(&world.store, false, &mut |_| ()).expect("no limit");
    }
    world.remove(&1_u32.to_le_bytes());
    assert!(!are_any(&ended));
}
