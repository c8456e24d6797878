use super::*;

fn written(form: WrittenHash, fields: &[OwnedField]) -> Vec<u8> {
    let mut writer = HashWriter::new(form);
    for (field, value, expire_at) in fields {
        writer.add(field, value, *expire_at);
    }
    writer.finish()
}

#[test]
fn small_hashes_are_written_as_the_hosts_write_them() {
    let fields: Vec<OwnedField> =
        (0..12).map(|at| (format!("field:{at}").into(), b"value-of-it".to_vec(), None)).collect();
    // Redis 7.0.15 wrote the footer, too.
    let payload = hex(&format!("{LISTPACK_OF_THE_HOSTS}0a00c16479d4aecc7d5e"));
    assert_eq!(written(WrittenHash::Listpack, &fields), payload);
}

#[test]
fn a_large_hash_is_written_as_the_hosts_write_it() {
    let long = "y".repeat(100);
    let fields = plain(&[("i", "1234567"), ("long", &long), ("a", "1")]);
    // The order is that of Redis 7.0.15, whose footer this is.
    let payload =
        "04030169c287d61200046c6f6e67c3094064017979e057000179790161c0010a001abc6edb1402156b";
    assert_eq!(written(WrittenHash::Table(3), &fields), hex(payload));
}

#[test]
fn due_times_are_written_as_the_hosts_write_them() {
    let long = "2".repeat(100);
    let mut fields = plain(&[("b", &long), ("c", "3"), ("a", "1")]);
    fields[0].2 = Some(4_000_000_000_000);
    fields[2].2 = Some(4_000_000_001_000);
    // Redis 8.6.3 wrote this, Valkey 9.1.2 the next with the fields in another order.
    let redis = "1800409452a303000003010162c3094064013232e05700013232000163c00343e90161c001";
    let form = WrittenHash::RedisDueTable { fields: 3, least_due: 4_000_000_000_000 };
    assert_eq!(written(form, &fields), sealed(&hex(redis), VERSION_OF_7_4));
    let valkey = "16030161c001e8439452a30300000162c3094064013232e0570001323200409452a30300000163c00\
                  3ffffffffffffffff5000\
                  2b4b1371f64915a8";
    fields.rotate_right(1);
    assert_eq!(written(WrittenHash::ValkeyDueTable(3), &fields), hex(valkey));
}

#[test]
fn elements_end_with_their_lengths() {
    use listpack::{EndedBy, back_len};
    for (len, of_redis, of_valkey) in [
        (127, 1, 1),
        (128, 2, 2),
        (16_382, 2, 2),
        (16_383, 3, 2),
        (16_384, 3, 3),
        (2_097_151, 4, 3),
        (268_435_455, 5, 4),
        (268_435_456, 5, 5),
    ] {
        assert_eq!(back_len(len, EndedBy::Redis).1, of_redis, "{len}");
        assert_eq!(back_len(len, EndedBy::Valkey).1, of_valkey, "{len}");
    }
    assert_eq!(back_len(0x1234, EndedBy::Redis).0[..2], [0x24, 0xb4]);
    // An element of 16,383 bytes, as Redis and Valkey 9.1.2 write it.
    let value = "x".repeat(16_378);
    for end in [&b"\0\xff\xff"[..], b"\x7f\xff"] {
        let element = [b"\xf0\xfa\x3f\0\0", value.as_bytes(), end].concat();
        let elements = [&text("a")[..], &element].concat();
        let bytes = (elements.len() + 7) as u32;
        let listpack = [&bytes.to_le_bytes()[..], b"\x02\0", &elements, b"\xff"].concat();
        let content = [b"\x10\x80", &bytes.to_be_bytes()[..], &listpack].concat();
        assert_eq!(read_10(&content), Ok(plain(&[("a", &value)])));
    }
}

#[test]
fn times_that_redis_does_not_know_become_its_last() {
    let last = (1_i64 << 48) - 1;
    for (least_due, at, read_back) in [(5, i64::MAX, last), (i64::MAX, i64::MAX, last), (5, 7, 7)] {
        let fields = [(b"a".to_vec(), b"b".to_vec(), Some(at))];
        let payload = written(WrittenHash::RedisDueTable { fields: 1, least_due }, &fields);
        let read = read_whole(&payload, &LIMITS).expect("a hash");
        assert_eq!(read[0].2, Some(read_back));
    }
}

/// Texts on both sides of what is written in another way.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let number = (any::<i64>(), 0..64_u32).prop_map(|(number, bits)| number >> bits);
    prop_oneof![
        number.prop_map(|number| number.to_string().into()),
        proptest::collection::vec(any::<u8>(), 0..30),
        (60..70_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        (120..130_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        (4090..4100_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        (16_370..16_378_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn written_hashes_come_back(
        fields in proptest::collection::btree_map(
            any_text(), (any_text(), proptest::option::of(0..1_i64 << 48)), 1..10,
        ),
    ) {
        let mut fields: Vec<OwnedField> =
            fields.into_iter().map(|(field, (value, due))| (field, value, due)).collect();
        let least_due = fields.iter().filter_map(|field| field.2).min().unwrap_or(0);
        let count = fields.len();
        for form in [
            WrittenHash::RedisDueTable { fields: count, least_due },
            WrittenHash::ValkeyDueTable(count),
        ] {
            let read = read_whole(&written(form, &fields), &LIMITS);
            prop_assert_eq!(read.as_ref(), Ok(&fields));
        }
        fields.iter_mut().for_each(|field| field.2 = None);
        for form in [WrittenHash::Table(count), WrittenHash::Listpack] {
            let read = read_whole(&written(form, &fields), &LIMITS);
            prop_assert_eq!(read.as_ref(), Ok(&fields));
        }
    }
}
