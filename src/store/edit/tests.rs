use super::super::Census;
use super::*;

const DUE: UnixMs = 100;

struct Tested {
    table: Table,
    hasher: KeyHasher,
    done: Done,
}

impl Tested {
    fn new() -> Self {
        let mut tested =
            Tested { table: Table::default(), hasher: KeyHasher::default(), done: Done::default() };
        tested.at(&Now::at(0), |edit| edit.set(Value::Inline(b"old"), Some(DUE)));
        tested.done = Done::default();
        tested.table.take_gained();
        tested
    }

    fn at<R>(&mut self, now: &Now, work: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        let hash = self.hasher.hash(b"key");
        work(&mut Edit::new(&mut self.table, &self.hasher, hash, b"key", now, &mut self.done))
    }

    fn keys(&self) -> i64 {
        self.table.census().keys
    }
}

/// A clock at which the key is hidden, and a horizon at which it was not due yet.
fn apart() -> Now {
    Now::at(DUE + 10).with_horizon(DUE)
}

#[test]
fn what_has_expired_is_removed_by_whoever_meets_it() {
    let mut tested = Tested::new();
    assert!(tested.at(&Now::at(DUE), |edit| edit.is_there()), "up to the end of that millisecond");
    assert!(!tested.at(&Now::at(DUE + 1), |edit| edit.is_there()));
    assert_eq!((tested.keys(), tested.done.expired, tested.done.changed), (0, true, false));
    let gained = tested.table.take_gained();
    assert_eq!((gained.keys, gained.expiring, gained.expired), (-1, -1, 1));
    assert_eq!(tested.table.take_gained(), Census::default());
}

#[test]
fn before_the_horizon_it_is_hidden_and_stays() {
    let mut tested = Tested::new();
    tested.at(&apart(), |edit| {
        assert!(edit.read().is_none() && !edit.is_there());
        assert!(edit.expiry().is_none() && edit.bytes().is_none());
        edit.expire_at(None);
        assert!(!edit.remove() && edit.change(|_| Ok::<_, ()>(())).is_none());
    });
    let hash = tested.hasher.hash(b"key");
    assert!(read(&tested.table, hash, b"key", &apart(), &tested.done).is_none());
    tested.at(&apart(), |_| ());
    assert!(tested.keys() == 1 && !tested.done.is_anything());
    assert_eq!(tested.table.take_gained(), Census::default());
    assert!(tested.at(&Now::at(DUE), |edit| edit.is_there()), "it has not expired yet");
    tested.at(&Now::at(DUE + 10).with_horizon(DUE + 1), |edit| assert!(!edit.is_there()));
    assert!(tested.keys() == 0 && tested.done.expired);
}

#[test]
fn a_write_over_a_hidden_key_finds_none_and_removes_it() {
    let mut tested = Tested::new();
    tested.at(&apart(), |edit| edit.set(Value::Inline(b"new"), None));
    assert!(tested.done.changed && tested.done.expired);
    let gained = tested.table.take_gained();
    assert_eq!((gained.keys, gained.expiring, gained.expired), (0, -1, 1));
    assert_eq!(gained.bytes, -16, "the new entry has no room for an expiry");
    tested.at(&apart(), |edit| assert_eq!(edit.read().map(|entry| entry.expire_at()), Some(None)));

    let mut tested = Tested::new();
    tested.at(&apart(), |edit| edit.put(Entry::new(b"key", Value::Inline(b"new"), Some(DUE + 20))));
    assert!(tested.done.changed && tested.done.expired && tested.keys() == 1);
    assert_eq!(tested.at(&apart(), |edit| edit.expiry()), Some(DUE + 20));
}
