use proptest::prelude::*;

use super::super::{Entry, Value};
use super::*;

const BYTES: usize = 40_000;

impl SharedValue {
    /// Bytes of the room for copies.
    fn room(&self) -> usize {
        let Some(rooms) = self.0.rooms.take() else { return 0 };
        let bytes = rooms.0.iter().map(Vec::capacity).sum();
        self.0.put_back(rooms);
        bytes
    }
}

fn entry(value: &SharedValue) -> Entry {
    Entry::new(b"key", Value::Shared(value), None)
}

/// A step in the life of the entries of one buffer.
#[derive(Clone, Copy, Debug)]
enum Step {
    Copy(usize),
    Rename(usize),
    Drop(usize),
    Overwrite(usize),
    OverwriteWithItself(usize),
    Expire(usize),
    Read(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..7, 0..8usize).prop_map(|(kind, at)| match kind {
        0 | 1 => Step::Copy(at),
        2 => Step::Rename(at),
        3 => Step::Drop(at),
        4 => Step::Overwrite(at),
        5 => Step::OverwriteWithItself(at),
        _ if at % 2 == 0 => Step::Expire(at),
        _ => Step::Read(at),
    });
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whichever copies go, and in whichever order: all entries but one have their room.
    #[test]
    fn every_copy_has_its_room(steps in steps()) {
        let value = SharedValue::new(vec![1; BYTES]);
        let (mut entries, mut readers) = (vec![entry(&value)], Vec::new());
        for step in steps {
            let (Step::Copy(at) | Step::Rename(at) | Step::Drop(at) | Step::Overwrite(at)
                | Step::OverwriteWithItself(at) | Step::Expire(at) | Step::Read(at)) = step;
            let at = at % entries.len();
            match step {
                Step::Copy(_) => {
                    let copy = entries[at].copy_as(b"another key");
                    copy.take_copys_memory();
                    entries.push(copy);
                }
                Step::Rename(_) => entries[at] = entries[at].copy_as(b"renamed"),
                Step::Drop(_) if entries.len() > 1 => drop(entries.swap_remove(at)),
                Step::Overwrite(_) if entries.len() > 1 => {
                    entries[at].overwrite(Value::Inline(b"small"), None);
                    drop(entries.swap_remove(at));
                }
                Step::Drop(_) | Step::Overwrite(_) => {}
                Step::OverwriteWithItself(_) => {
                    entries[at].overwrite(Value::Shared(&value), None);
                }
                Step::Expire(_) => {
                    entries[at].set_expire_at(Some(5));
                }
                Step::Read(_) => readers.push(entries[at].shared_value()),
            }
            prop_assert_eq!(value.room(), BYTES * (entries.len() - 1));
        }
    }
}

#[test]
fn no_room_is_lost_or_left_between_threads() {
    let value = SharedValue::new(vec![1; BYTES]);
    let first = entry(&value);
    for _ in 0..200 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let held = ValueRef::new(&value);
                    held.make_room();
                    let another = ValueRef::new(&value);
                    another.make_room();
                    drop(held);
                });
            }
        });
        assert_eq!(value.room(), 0);
    }
    drop(first);
}

#[test]
fn values_kept_by_the_log_take_no_room_twice() {
    let value = SharedValue::new(vec![1; BYTES]);
    let mut first = entry(&value);
    let copy = first.copy_as(b"copy");
    copy.take_copys_memory();
    let kept = first.copy_as(b"key");
    first.overwrite(Value::Inline(b"other"), None);
    assert_eq!(value.room(), BYTES, "the copy and what the key was");
    drop(kept);
    assert_eq!(value.room(), 0);
    drop(copy);
}

#[test]
fn rooms_need_no_lock() {
    assert!(AtomicCell::<Option<Box<Rooms>>>::is_lock_free());
}
