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
fn expired_keys_are_removed_by_the_first_who_meets_them() {
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
        assert!(edit.expiry().is_none());
        edit.expire_at(None);
        assert!(!edit.remove() && edit.change(&[], |_| Ok::<_, ()>(())).is_none());
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
    assert_eq!(gained.bytes, -8, "the new entry has no room for an expiry");
    tested.at(&apart(), |edit| assert_eq!(edit.read().map(|entry| entry.expire_at()), Some(None)));

    let mut tested = Tested::new();
    tested.at(&apart(), |edit| edit.put(Entry::new(b"key", Value::Inline(b"new"), Some(DUE + 20))));
    assert!(tested.done.changed && tested.done.expired && tested.keys() == 1);
    assert_eq!(tested.at(&apart(), |edit| edit.expiry()), Some(DUE + 20));
}

/// A change, what the log is told of it, and a keeper of the key's buffer, if there is one.
type Changed<'a> = (&'a str, &'a dyn Fn(&mut Edit<'_>), ChangeKind);

fn written(pieces: &'static [(usize, &'static [u8])]) -> impl Fn(&mut Edit<'_>) {
    move |edit| {
        let part = |&(at, bytes): &(usize, &[u8])| (at as u32, (at + bytes.len()) as u32);
        let parts: Vec<ValuePart> = pieces.iter().map(part).collect();
        let change = |value: &mut Vec<u8>| {
            for &(at, bytes) in pieces {
                let end = at + bytes.len();
                value.resize(value.len().max(end), 0);
                value[at..end].copy_from_slice(bytes);
            }
            Ok::<_, ()>(())
        };
        if edit.change(&parts, change).is_none() {
            let old = edit.read().map(|entry| entry.value().bytes().to_vec());
            let mut value = old.unwrap_or_default();
            let Ok(()) = change(&mut value) else { panic!("it cannot fail") };
            edit.rewrite(&parts, Value::Shared(&SharedValue::new(value)));
        }
        edit.set_origin(Origin::Edited);
    }
}

fn seen(edit: &Edit<'_>) -> Option<(Vec<u8>, Option<UnixMs>, Origin)> {
    let entry = edit.read()?;
    Some((entry.value().bytes().to_vec(), entry.expire_at(), entry.origin()))
}

/// Each change is taken back and made again, twice, in place and with a second reader of the
/// buffer, who sees nothing of it.
#[test]
fn kept_values_restore_a_key_and_make_the_change_again() {
    const OLD: &[u8] = b"0123456789";
    let of = |parts: &[ValuePart], before| ChangeKind::Parts { parts: parts.into(), before };
    let part = |start, end| of(&[(start, end)], OLD.len());
    let (inside, over_the_end) = (written(&[(2, b"ab")]), written(&[(8, b"abcd")]));
    let (behind, first) = (written(&[(14, b"ab")]), written(&[(0, b"x")]));
    let (apart, far_apart) = (
        written(&[(0, b"x"), (4, b"ab"), (9, b"z")]),
        written(&[(1, b"x"), (9, b"yz"), (20, b"z")]),
    );
    let anew = |edit: &mut Edit<'_>| {
        edit.remove();
        behind(edit);
    };
    let set = |edit: &mut Edit<'_>| edit.set(Value::Inline(b"new"), None);
    let changes: [Changed<'_>; 13] = [
        ("within", &inside, part(2, 4)),
        ("over the end", &over_the_end, part(8, 12)),
        ("behind the end", &behind, part(14, 16)),
        ("apart", &apart, of(&[(0, 1), (4, 6), (9, 10)], OLD.len())),
        ("far apart", &far_apart, of(&[(1, 2), (9, 11), (20, 21)], OLD.len())),
        ("removed, then a part of a new value", &anew, ChangeKind::Whole),
        ("two parts", &|edit| (inside(edit), behind(edit)).0, ChangeKind::Whole),
        ("a part, then another value", &|edit| (first(edit), set(edit)).0, ChangeKind::Whole),
        ("another value, then removed", &|edit| (set(edit), edit.remove()).0, ChangeKind::Whole),
        ("another value", &set, ChangeKind::Whole),
        ("another expiry", &|edit| edit.expire_at(Some(7)), ChangeKind::Expiry),
        ("no expiry, and a part", &|edit| (edit.expire_at(None), first(edit)).0, ChangeKind::Whole),
        ("another origin", &|edit| edit.set_origin(Origin::Computed), part(0, 0)),
    ];
    for (what, change, kind) in changes {
        for has_reader in [false, true] {
            let mut tested = Tested::new();
            let buffer = SharedValue::new(OLD.to_vec());
            let reader = has_reader.then(|| buffer.clone());
            tested.at(&Now::at(0), |edit| edit.set(Value::Shared(&buffer), Some(DUE)));
            drop(buffer);
            let before = tested.at(&Now::at(0), |edit| seen(edit));
            tested.done = Done::keeping(Keeping::Before);
            let after = tested.at(&Now::at(0), |edit| {
                change(edit);
                seen(edit)
            });
            assert_eq!(*tested.done.kind(), kind, "{what}");
            assert_ne!(before, after, "{what}");
            let mut kept = tested.done.take_before();
            for expected in [&before, &after, &before, &after] {
                tested.done = Done::keeping(Keeping::Before);
                let now = tested.at(&Now::at(0), |edit| {
                    kept.drain(..).rev().for_each(|before| edit.restore(before));
                    seen(edit)
                });
                assert_eq!(&now, expected, "{what}, {has_reader}");
                kept = tested.done.take_before();
            }
            assert!(reader.is_none_or(|reader| reader.bytes() == OLD), "{what}");
        }
    }
}

#[test]
fn a_part_keeps_only_what_it_writes() {
    let mut tested = Tested::new();
    let buffer = SharedValue::new(vec![b'.'; 100_000]);
    tested.at(&Now::at(0), |edit| edit.set(Value::Shared(&buffer), None));
    drop(buffer);
    for (change, least) in [
        (&written(&[(100_000, b"abc")]) as &dyn Fn(&mut Edit<'_>), 0),
        (&written(&[(5, b"abc")]), 3),
    ] {
        tested.done = Done::keeping(Keeping::Before);
        tested.at(&Now::at(0), |edit| change(edit));
        let kept: usize = tested.done.take_before().iter().map(Before::bytes).sum();
        assert!((least..200).contains(&kept), "{kept} bytes");
    }
}

#[test]
fn nothing_is_kept_unless_it_is_asked_for() {
    let mut tested = Tested::new();
    tested.at(&Now::at(0), |edit| edit.set(Value::Inline(b"new"), None));
    assert!(tested.done.take_before().is_empty() && *tested.done.kind() == ChangeKind::Nothing);
}
