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
    fn end_copy(&mut self, copy: HashCopy) -> bool {
        let has_source = LargeHash::of_entry(&copy.source).is_some_and(|large| self.has(large));
        let is_whole = !copy.state.lock().is_over;
        let ended = self.edit(self.key, |edit| edit.end_copy(copy, COPY));
        assert_eq!(ended.is_some(), has_source && is_whole);
        let Some(entry) = ended else { return false };
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
                        again += copy.left().unwrap_or(0);
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
    while copy.left() != Some(0) {
        copy.copy_some(&world.store);
    }
    // The names alone take more than the hash did.
    for number in 0..20_000_u32 {
        world.set((number + 5000).to_le_bytes().to_vec());
    }
    assert_eq!(copy.left(), Some(0));
    assert!(world.edit(world.key, |edit| edit.end_copy(copy, COPY)).is_none());
}
