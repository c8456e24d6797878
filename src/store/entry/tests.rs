use super::*;
use crate::store::{Origin, Type, block_bytes};

fn check(entry: &Entry, key: &[u8], value: &[u8], expire_at: Option<UnixMs>) {
    assert_eq!(entry.key(), key);
    assert_eq!(entry.value().bytes(), value);
    assert_eq!(entry.expire_at(), expire_at);
    assert_eq!(entry.bytes(), block_bytes(entry.bytes()));
}

#[test]
fn every_shape_round_trips() {
    for key_len in [0, 1, 255, 256, 70_000] {
        for value_len in [0, 1, 17, 255, 256, 100_000] {
            for expire_at in [None, Some(0), Some(-5), Some(UnixMs::MAX)] {
                let key = vec![7; key_len];
                let value = vec![9; value_len];
                let entry = Entry::new(&key, Value::Inline(&value), expire_at);
                check(&entry, &key, &value, expire_at);
            }
        }
    }
}

#[test]
fn overwriting_reaches_every_shape_from_every_shape() {
    let shared = SharedValue::new(vec![5; 40_000]);
    let long = vec![1; 300];
    let values = [
        Value::Inline(b""),
        Value::Inline(b"0123456789"),
        Value::Inline(&long),
        Value::Shared(&shared),
    ];
    let key = b"some key";
    for from in values {
        for to in values {
            for (before, after) in
                [(None, None), (Some(1), None), (None, Some(2)), (Some(3), Some(4))]
            {
                let mut entry = Entry::new(key, from, before);
                entry.overwrite(to, after);
                check(&entry, key, to.bytes(), after);
            }
        }
    }
}

#[test]
fn bytes_go_over_bytes_where_the_block_stays_the_same() {
    let (long, longer, longest) = (vec![1; 300], vec![2; 301], vec![3; 900]);
    let shared = SharedValue::new(vec![5; 40_000]);
    let inline = [&b""[..], b"0123", b"01234", &[4; 200], &long, &longer, &longest];
    for key in [&b"some key"[..], &[7; 256]] {
        for expire_at in [None, Some(1)] {
            for from in inline.map(Value::Inline).into_iter().chain([Value::Shared(&shared)]) {
                for to in inline {
                    let mut entry = Entry::new(key, from, expire_at);
                    let block = entry.bytes();
                    let new = Entry::new(key, Value::Inline(to), None);
                    let fits = (new.flags(), new.bytes()) == (entry.flags(), block);
                    if !fits {
                        entry.set_origin(Origin::Edited);
                    }
                    assert_eq!(entry.overwrite_bytes(to), fits);
                    let (value, origin) =
                        if fits { (to, Origin::Given) } else { (from.bytes(), Origin::Edited) };
                    check(&entry, key, value, expire_at);
                    assert_eq!((entry.origin(), entry.bytes()), (origin, block));
                }
            }
        }
    }
}

#[test]
fn expiry_comes_and_goes() {
    let mut entry = Entry::new(b"k", Value::Inline(b"v"), None);
    for expire_at in [None, Some(10), None, Some(20)] {
        entry.set_expire_at(expire_at);
        check(&entry, b"k", b"v", expire_at);
    }
}

#[test]
fn an_origin_stays_until_the_value_is_overwritten() {
    for origin in [Origin::Edited, Origin::Computed, Origin::Given] {
        let mut entry = Entry::new(b"k", Value::Inline(b"v"), None);
        entry.set_origin(origin);
        for expire_at in [None, Some(10), None] {
            entry.set_expire_at(expire_at);
            check(&entry, b"k", b"v", expire_at);
            assert_eq!(entry.origin(), origin);
        }
        assert_eq!(entry.copy_as(b"other").origin(), origin);
        entry.overwrite(Value::Inline(b"w"), None);
        assert_eq!(entry.origin(), Origin::Given);
    }
}

#[test]
fn a_type_stays_with_the_value() {
    for value in [Value::Inline(b"v"), Value::Shared(&SharedValue::new(vec![5; 40_000]))] {
        let mut entry = Entry::other(b"k", value, None);
        for expire_at in [None, Some(10), None] {
            entry.set_expire_at(expire_at);
            check(&entry, b"k", value.bytes(), expire_at);
            assert_eq!((entry.value_type(), entry.string()), (Type::Other, Err(WrongType)));
        }
        entry.set_origin(Origin::Edited);
        assert_eq!(entry.copy_as(b"other").value_type(), Type::Other);
        entry.overwrite(Value::Inline(b"w"), None);
        assert_eq!((entry.value_type(), entry.string()), (Type::String, Ok(&b"w"[..])));
    }
}

#[test]
fn shared_buffers_are_freed_with_their_last_entry() {
    let buffer = std::sync::Arc::new(vec![0u8; 10]);
    struct Probe(std::sync::Arc<Vec<u8>>);
    impl crate::store::SharedBytes for Probe {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
    let value = SharedValue::new(Probe(buffer.clone()));
    let mut a = Entry::new(b"a", Value::Shared(&value), None);
    let mut b = Entry::new(b"b", Value::Shared(&a.shared_value().unwrap()), Some(1));
    drop(value);
    a.set_expire_at(Some(3));
    b.overwrite(Value::Inline(b"small"), None);
    assert_eq!(std::sync::Arc::strong_count(&buffer), 2);
    drop(a);
    assert_eq!(std::sync::Arc::strong_count(&buffer), 1);
}

#[test]
fn a_buffer_is_changed_in_place_by_its_only_holder() {
    let mut entry = Entry::new(b"k", Value::Shared(&SharedValue::new(b"buffer".to_vec())), Some(5));
    assert_eq!(entry.change_shared(|bytes| bytes.extend_from_slice(b"!")), Some(()));
    check(&entry, b"k", b"buffer!", Some(5));
    let held = entry.shared_value();
    assert_eq!(entry.change_shared(|bytes| bytes.clear()), None, "somebody else holds it");
    drop(held);
    assert_eq!(entry.change_shared(|bytes| bytes.len()), Some(7));
    entry.overwrite(Value::Inline(b"inline"), None);
    assert_eq!(entry.change_shared(|bytes| bytes.clear()), None);
    check(&entry, b"k", b"inline", None);
}

#[test]
fn a_key_differs_in_any_byte() {
    for len in 0..40 {
        let key: Vec<u8> = (0..len).collect();
        let entry = Entry::new(&key, Value::Inline(b"v"), None);
        assert!(entry.has_key(&key));
        for at in 0..key.len() {
            let mut other = key.clone();
            other[at] ^= 1;
            assert!(!entry.has_key(&other), "{len} {at}");
            assert!(!entry.has_key(&key[..at]), "{len} {at}");
        }
        assert!(!entry.has_key(&[&key[..], b"x"].concat()));
    }
}
