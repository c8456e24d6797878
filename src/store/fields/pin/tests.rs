use super::*;
use crate::store::fields::world::{Model, Valued, World};

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

impl World {
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

#[test]
fn a_pin_gives_up_when_it_keeps_too_much() {
    let mut world = World::filled(2000);
    let mut pin = world.pin(10_000).expect("a large hash");
    let mut count = 0;
    assert!(pin.visit_some(&world.store, false, &mut |_| count += 1).expect("room") < 10_000);
    assert!(0 < count && count < 2000);
    (0..2000).for_each(|number: u32| world.set(number.to_le_bytes().to_vec()));
    assert!(pin.visit_some(&world.store, false, &mut |_| ()).is_err());
}

#[test]
fn a_hash_forgets_a_pin_that_has_ended() {
    let mut world = World::filled(2000);
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
