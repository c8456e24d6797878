use super::*;
use crate::store::fields::Fields;
use crate::store::fields::world::{Model, World};

const COPY: &[u8] = b"the copy";

impl World {
    fn begin_copy(&mut self) -> Option<HashCopy> {
        self.edit(self.key, |edit| edit.begin_copy())
    }

    /// Ends a copy, which must be what the hash is now. False if the key has another hash by now,
    /// or too much of it has changed.
    fn end_copy(&mut self, mut copy: HashCopy) -> bool {
        let has_source = LargeHash::of_entry(&copy.source).is_some_and(|large| self.has(large));
        let is_whole = !copy.state.lock().is_over;
        let ended = self.edit(self.key, |edit| edit.end_copy(&mut copy, COPY, usize::MAX));
        assert_eq!(ended.is_ok(), has_source && is_whole);
        let Ok(entry) = ended else { return false };
        assert_eq!(entry.key(), COPY);
        let fields = Fields::of_entry(&entry).expect("a hash").iter();
        let fields: Model = fields
            .map(|field| (field.name.to_vec(), (field.value.to_vec(), field.expire_at)))
            .collect();
        assert!(fields == self.model, "{} fields, not {}", fields.len(), self.model.len());
        true
    }
}

/// While the hash grows and shrinks, is removed, renamed and brought back, copies are made of it:
/// each is what the hash is when it ends.
#[test]
fn a_copy_is_the_hash_at_its_end() {
    let (mut ended, mut again) = (0, 0);
    for seed in 0..8 {
        let mut world = World::new(seed);
        let mut copies: Vec<HashCopy> = Vec::new();
        for _ in 0..8 {
            let names = 1 << world.random.u32(6..13);
            for _ in 0..world.random.u32(0..names) {
                let name = world.drawn(names);
                world.set(name);
            }
            for _ in 0..world.random.usize(0..400) {
                world.change(names);
                if copies.len() < 4 && world.random.u8(0..10) == 0 {
                    copies.extend(world.begin_copy());
                }
                for copy in &mut copies {
                    if world.random.u8(0..10) == 0 {
                        copy.copy_some(&world.store);
                        again += copy.left(&world.store).unwrap_or(0);
                    }
                }
                if !copies.is_empty() && world.random.u8(0..20) == 0 {
                    let copy = copies.swap_remove(world.random.usize(..copies.len()));
                    ended += u32::from(world.end_copy(copy));
                }
            }
        }
    }
    assert!(ended > 50 && again > 300, "{ended} {again}");
}

#[test]
fn a_copy_gives_up_when_too_much_changes() {
    let mut world = World::filled(2000);
    let mut copy = world.begin_copy().expect("a large hash");
    while copy.left(&world.store) != Some(0) {
        copy.copy_some(&world.store);
    }
    // The names alone take more than the hash did.
    for number in 0..20_000_u32 {
        world.set((number + 5000).to_le_bytes().to_vec());
    }
    assert_eq!(copy.left(&world.store), Some(0));
    let ended = world.edit(world.key, |edit| edit.end_copy(&mut copy, COPY, usize::MAX));
    assert!(matches!(ended, Err(Unended::Void)));
}

/// It catches up a few at a time, and tells how many are left.
#[test]
fn a_copy_counts_what_is_left() {
    let mut world = World::filled(2000);
    let mut copy = world.begin_copy().expect("a large hash");
    while copy.left(&world.store).is_none() {
        copy.copy_some(&world.store);
    }
    for number in 0..1000_u32 {
        world.set(number.to_le_bytes().to_vec());
    }
    assert_eq!(copy.left(&world.store), Some(1000));
    let ended = world.edit(world.key, |edit| edit.end_copy(&mut copy, COPY, 999));
    assert!(matches!(ended, Err(Unended::Behind)));
    let mut left = 1000;
    while left > 0 {
        copy.copy_some(&world.store);
        let before = std::mem::replace(&mut left, copy.left(&world.store).expect("all copied"));
        assert!(left <= before && left + 20 > before, "{before} {left}");
    }
    assert!(world.end_copy(copy));
}
